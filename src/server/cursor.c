#include "server/cursor.h"

#include <stdio.h>

#include "server/cursor_fmt.h"
#include "server/keyspace.h"

enum { OPEN_TRIES = 100, SWEEP_KEYS = 64 };

#define TAG_PATIENCE_NS (15 * RT_NS_PER_S) /* leases pass meanwhile */
#define TAG_PAUSE_NS    (100 * RT_NS_PER_MS)

static struct store_change next_tag(void *context, const struct slice *old)
{
    uint64_t *tag = context, last = 0;
    if (old != NULL && old->size == sizeof(last))
        memcpy(&last, old->data, sizeof(last));
    *tag = last + 1;
    return (struct store_change){.what = STORE_REPLACE, .value = slice_of(tag, sizeof(*tag))};
}

/* A tag that no other server has. Whoever has the key may die meanwhile: one tag that was perhaps taken
 * for nothing does no harm. */
static enum pando_status take_tag_co(struct server_thread *thread, uint64_t *tag, char *error,
                                     size_t error_bytes)
{
    uint64_t end_ns = rt_now_ns() + TAG_PATIENCE_NS;
    enum pando_status status;
    for (;;) {
        status = store_modify_co(thread->cursors, slice_of_text("tag"), false, next_tag, tag);
        /* FULL, too: what a dead server had of a full pool is kept from use for a while. */
        bool passes = status == PANDO_UNKNOWN || status == PANDO_TIMEOUT ||
                      status == PANDO_BROKEN || status == PANDO_FULL;
        if (!passes || rt_now_ns() > end_ns)
            break;
        rt_sleep_co(TAG_PAUSE_NS); /* for the pool to pass */
    }
    if (status != PANDO_OK)
        snprintf(error, error_bytes, "table '%s': taking a number for this server's cursors: %s",
                 CURSOR_TABLE, pando_status_text(status));
    return status;
}

enum pando_status cursors_open_co(struct server_thread *thread, char *error, size_t error_bytes)
{
    static const struct store_shape shape = {.key_max = 8, .value_inline = 64, .node_bytes = 1024};
    struct server *server = thread->server;
    enum pando_status status = PANDO_NOT_FOUND;

    for (int i = 0; i < OPEN_TRIES && status == PANDO_NOT_FOUND; i++) {
        status =
            store_table_open_co(thread->store, CURSOR_TABLE, &thread->cursors, error, error_bytes);
        if (status != PANDO_NOT_FOUND)
            break;
        enum pando_status created =
            store_table_create_co(thread->store, CURSOR_TABLE, NULL, &shape, error, error_bytes);
        if (created != PANDO_OK && created != PANDO_EXISTS && created != PANDO_UNKNOWN)
            return created;
        if (created != PANDO_OK)
            rt_sleep_co(10 * RT_NS_PER_MS); /* somebody else is at it */
    }
    if (status == PANDO_OK && thread->index == 0) {
        uint64_t tag = 0;
        status = take_tag_co(thread, &tag, error, error_bytes);
        server->cursor_tag = tag & ((1u << CURSOR_TAG_BITS) - 1);
        atomic_store(&server->cursor_count, 1);
    }
    return status;
}

static void key_of(uint64_t cursor, uint8_t key[CURSOR_KEY_BYTES])
{
    uint64_t tag = cursor >> CURSOR_COUNT_BITS, slot = cursor % CURSOR_SLOTS;
    key[0] = (uint8_t)(tag >> 8);
    key[1] = (uint8_t)tag;
    key[2] = (uint8_t)(slot >> 8);
    key[3] = (uint8_t)slot;
}

enum pando_status cursor_keep_co(struct server_thread *thread, unsigned database, struct slice key,
                                 uint64_t *out)
{
    struct server *server = thread->server;
    uint8_t cursor_key[CURSOR_KEY_BYTES], bytes[CURSOR_HEAD_BYTES + KEYSPACE_KEY_MAX];
    uint64_t count =
        atomic_fetch_add(&server->cursor_count, 1) & ((UINT64_C(1) << CURSOR_COUNT_BITS) - 1);
    struct cursor_head head = {
        .count = count, .written_ms = rt_wall_ms(), .database = (uint32_t)database};

    *out = server->cursor_tag << CURSOR_COUNT_BITS | count;
    if (*out == 0)
        return cursor_keep_co(thread, database, key, out);
    key_of(*out, cursor_key);
    memcpy(bytes, &head, CURSOR_HEAD_BYTES);
    if (key.size > 0)
        memcpy(bytes + CURSOR_HEAD_BYTES, key.data, key.size);
    return store_put_co(thread->cursors, slice_of(cursor_key, sizeof(cursor_key)),
                        slice_of(bytes, CURSOR_HEAD_BYTES + key.size), STORE_UPSERT);
}

enum pando_status cursor_find_co(struct server_thread *thread, unsigned database, uint64_t cursor,
                                 uint8_t *key, size_t *key_size)
{
    uint8_t cursor_key[CURSOR_KEY_BYTES], bytes[CURSOR_HEAD_BYTES + KEYSPACE_KEY_MAX];
    struct cursor_head head = {0};
    size_t size;

    if (cursor >> (CURSOR_TAG_BITS + CURSOR_COUNT_BITS) != 0)
        return PANDO_NOT_FOUND;
    key_of(cursor, cursor_key);
    enum pando_status status = store_get_co(
        thread->cursors, slice_of(cursor_key, sizeof(cursor_key)), bytes, sizeof(bytes), &size);
    if (status != PANDO_OK)
        return status;
    if (size < CURSOR_HEAD_BYTES || size > sizeof(bytes))
        return PANDO_NOT_FOUND;
    memcpy(&head, bytes, CURSOR_HEAD_BYTES);
    uint64_t count = cursor & ((UINT64_C(1) << CURSOR_COUNT_BITS) - 1);
    if (head.count != count || head.database != database)
        return PANDO_NOT_FOUND;
    *key_size = size - CURSOR_HEAD_BYTES;
    memcpy(key, bytes + CURSOR_HEAD_BYTES, *key_size);
    return PANDO_OK;
}

/* ---- old ones -------------------------------------------------------------------------------- */

struct old_cursors {
    uint64_t before_ms;
    uint8_t keys[SWEEP_KEYS][CURSOR_KEY_BYTES];
    unsigned count;
};

static bool is_old(struct slice value, uint64_t before_ms)
{
    struct cursor_head head = {0};
    if (value.size < CURSOR_HEAD_BYTES)
        return true;
    memcpy(&head, value.data, CURSOR_HEAD_BYTES);
    return head.written_ms < before_ms;
}

static bool collect_old(void *context, struct slice key, struct slice value)
{
    struct old_cursors *old = context;
    if (key.size != CURSOR_KEY_BYTES)
        return true;
    if (is_old(value, old->before_ms))
        memcpy(old->keys[old->count++], key.data, CURSOR_KEY_BYTES);
    return old->count < SWEEP_KEYS;
}

static struct store_change remove_old(void *context, const struct slice *value)
{
    const struct old_cursors *old = context;
    return value != NULL && is_old(*value, old->before_ms) ? edit_remove() : edit_keep();
}

void cursors_sweep_co(struct server_thread *thread)
{
    struct old_cursors old = {.before_ms = rt_wall_ms() - CURSOR_LIFE_MS};
    struct store_range all = {.no_high = true};
    do {
        old.count = 0;
        enum pando_status status = store_scan_co(thread->cursors, &all, collect_old, &old);
        if (status != PANDO_OK)
            return;
        for (unsigned i = 0; i < old.count && status == PANDO_OK; i++)
            status = store_modify_co(thread->cursors, slice_of(old.keys[i], CURSOR_KEY_BYTES),
                                     false, remove_old, &old);
        if (status != PANDO_OK)
            return;
        rt_yield_co();
    } while (old.count == SWEEP_KEYS && !server_stopping(thread->server));
}
