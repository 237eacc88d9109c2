/*
 * serve.c - what this process does for others: operations on keys that it owns, and changes of
 * ownership. Requests are checked like everything from outside.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tree/dex/call_fmt.h"
#include "tree/dex/dex_int.h"

/* One handle for every session that answers. */
static struct dex *handle_for(struct dex_table *table, struct pool_session *session)
{
    struct dex *found = NULL;
    rt_latch_lock(&table->handles_latch);
    list_for_each (link, &table->handles) {
        struct dex *handle = container_of(link, struct dex, link);
        if (handle->serves && handle->base.session == session)
            found = handle;
    }
    rt_latch_unlock(&table->handles_latch);
    if (found == NULL && dex_handle_create(table, session, &found) == PANDO_OK)
        found->serves = true;
    return found;
}

/* Enters if the key is ours, perhaps since a moment ago. STALE: it is not. CORRUPT: the map may say
 * that it is, but what has to be read first is damaged. */
static enum pando_status enter_ours_co(struct dex *self, struct slice key, struct dex_guard *guard)
{
    uint64_t owner;
    for (int i = 0; i < 2; i++) {
        dex_enter(self, key, guard);
        if (dex_mine(self->table, guard->part))
            return PANDO_OK;
        bool frozen = guard->part->frozen;
        dex_leave(self, guard);
        if (i > 0 || frozen)
            break;
        atomic_store(&self->table->doubt, true);
        enum pando_status status = dex_claim_co(self, key, &owner);
        if (status == PANDO_CORRUPT)
            return status;
        if (status != PANDO_OK || owner != dex_self(self->table))
            break;
    }
    return PANDO_STALE;
}

static bool key_sound(const struct dex *self, size_t size)
{
    const struct engine_shape *shape = &self->table->base.shape;
    return size <= shape->key_max && (shape->key_size == 0 || size == shape->key_size);
}

static enum pando_status serve_get_co(struct dex *self, struct dex_scratch *scratch,
                                      struct fabric_request *request)
{
    struct dex_get_reply head = {0};
    struct dex_guard guard;
    size_t size = 0;
    bool blob;

    if (!key_sound(self, request->body.size))
        return PANDO_INVALID;
    enum pando_status status = enter_ours_co(self, request->body, &guard);
    if (status != PANDO_OK)
        return status;
    status = dex_local_get_co(self, guard.part, request->body, scratch, &blob,
                              request->reply + sizeof(head),
                              FABRIC_CALL_BYTES_MAX - sizeof(head) - 64, &size);
    dex_leave(self, &guard);
    if (status == PANDO_NOT_FOUND)
        return PANDO_OK; /* an empty reply */
    if (status != PANDO_OK)
        return status;
    head.blob = blob;
    memcpy(request->reply, &head, sizeof(head));
    request->reply_size = (uint32_t)(sizeof(head) + size);
    return PANDO_OK;
}

/* ---- changes --------------------------------------------------------------------------------- */

struct errand {
    struct dex_modify_request head;
    struct slice value, expected;
    struct dex_modify_reply reply;
};

static struct engine_change run_errand(void *context, const struct slice *old)
{
    struct errand *errand = context;
    uint8_t what = old != NULL ? errand->head.if_present : errand->head.if_absent;
    errand->reply.was_there = old != NULL;
    return (struct engine_change){.what = what, .value = errand->value};
}

static bool errand_read(const struct dex *self, struct slice body, struct errand *errand,
                        struct slice *key)
{
    const struct engine_shape *shape = &self->table->base.shape;
    struct dex_modify_request *head = &errand->head;
    if (body.size < sizeof(*head))
        return false;
    memcpy(head, body.data, sizeof(*head));
    size_t rest = body.size - sizeof(*head);
    if (head->key_size > rest || head->value_size > rest - head->key_size ||
        head->expected_size != rest - head->key_size - head->value_size ||
        !key_sound(self, head->key_size) || head->if_absent > ENGINE_REMOVE ||
        head->if_present > ENGINE_REMOVE || head->expect > DEX_EXPECT_BLOB || head->blob > 1)
        return false;
    *key = slice_of(body.data + sizeof(*head), head->key_size);
    errand->value = slice_of(key->data + key->size, head->value_size);
    errand->expected = slice_of(errand->value.data + head->value_size, head->expected_size);
    if (head->if_absent != ENGINE_STORE && head->if_present != ENGINE_STORE)
        return true;
    if (head->blob)
        return self->table->layout.value_size == 0 && head->value_size == 8;
    return shape->value_size != 0 ? head->value_size == shape->value_size
                                  : head->value_size <= self->table->inline_max;
}

static enum pando_status serve_modify_co(struct dex *self, struct fabric_request *request)
{
    struct errand errand = {0};
    struct dex_guard guard;
    struct slice key;

    if (!errand_read(self, request->body, &errand, &key))
        return PANDO_INVALID;
    struct dex_edit edit = {.how = ENGINE_BLIND,
                            .fn = run_errand,
                            .context = &errand,
                            .raw = true,
                            .raw_blob = errand.head.blob == 1,
                            .expect = errand.head.expect,
                            .expected = errand.expected,
                            .mismatch = &errand.reply.mismatch};
    enum pando_status status = enter_ours_co(self, key, &guard);
    if (status != PANDO_OK)
        return status;
    status = dex_local_modify_co(self, guard.part, key, &edit);
    dex_leave(self, &guard);
    if (status != PANDO_OK)
        return status == PANDO_BROKEN || status == PANDO_TIMEOUT ? PANDO_STALE : status;
    memcpy(request->reply, &errand.reply, sizeof(errand.reply));
    request->reply_size = sizeof(errand.reply);
    return PANDO_OK;
}

/* ---- leaves, ownership ----------------------------------------------------------------------- */

static enum pando_status serve_leaf_co(struct dex *self, struct dex_scratch *scratch,
                                       struct fabric_request *request)
{
    struct dex_table *table = self->table;
    struct dex_leaf_request head;
    struct dex_guard guard;

    if (request->body.size < sizeof(head) || request->body.size > sizeof(head) + PAGE_KEY_ROOM + 8)
        return PANDO_INVALID;
    memcpy(&head, request->body.data, sizeof(head));
    struct slice key =
        slice_of(request->body.data + sizeof(head), request->body.size - sizeof(head));
    dex_enter(self, key, &guard);
    const struct map_part *part = dex_part_of(guard.map, key, head.before != 0);
    uint8_t low[PAGE_KEY_ROOM];
    struct slice in = head.before ? slice_of(low, part->low.size) : key;
    memcpy(low, part->low.data, part->low.size);
    dex_leave(self, &guard);
    enum pando_status status = enter_ours_co(self, in, &guard);
    if (status != PANDO_OK)
        return status;
    /* It may have been cut meanwhile: leaves of others are never looked at. */
    if (guard.part != dex_part_of(guard.map, key, head.before != 0)) {
        dex_leave(self, &guard);
        return PANDO_STALE;
    }
    status = dex_local_leaf_co(self, key, head.before != 0, scratch);
    dex_leave(self, &guard);
    if (status != PANDO_OK)
        return status;
    page_seal(&table->layout, scratch->page);
    memcpy(request->reply, scratch->page, table->layout.page_bytes);
    request->reply_size = table->layout.page_bytes;
    return PANDO_OK;
}

static enum pando_status serve_give_co(struct dex *self, struct fabric_request *request)
{
    struct dex_give_request head;
    struct dex_range range = {0};

    if (request->body.size < sizeof(head))
        return PANDO_INVALID;
    memcpy(&head, request->body.data, sizeof(head));
    size_t rest = request->body.size - sizeof(head);
    range.no_high = (head.high_size & DEX_GIVE_NO_HIGH) != 0;
    uint32_t high_size = range.no_high ? 0 : head.high_size;
    if (head.low_size > rest || high_size != rest - head.low_size ||
        head.low_size > self->table->layout.key_max || high_size > self->table->layout.key_max)
        return PANDO_INVALID;
    range.low = slice_of(request->body.data + sizeof(head), head.low_size);
    range.high = slice_of(range.low.data + head.low_size, high_size);
    return dex_give_co(self, &range, head.to);
}

static enum pando_status answer_co(void *context, struct pool_session *session,
                                   struct fabric_request *request)
{
    struct dex_table *table = context;
    struct dex *self = handle_for(table, session);
    enum pando_status status = PANDO_INVALID;

    if (self == NULL)
        return PANDO_NO_MEMORY;
    request->reply_size = 0;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    switch (request->method) {
    case DEX_CALL_GET:
        status = serve_get_co(self, scratch, request);
        break;
    case DEX_CALL_MODIFY:
        status = serve_modify_co(self, request);
        break;
    case DEX_CALL_LEAF:
        status = serve_leaf_co(self, scratch, request);
        break;
    case DEX_CALL_FLUSH:
        status = dex_flush_co(self, NULL);
        break;
    case DEX_CALL_GIVE:
        status = serve_give_co(self, request);
        break;
    case DEX_CALL_TAKE: {
        uint64_t owner;
        atomic_store(&table->doubt, true);
        status = key_sound(self, request->body.size) || request->body.size == 0
                     ? dex_claim_co(self, request->body, &owner)
                     : PANDO_INVALID;
        break;
    }
    case DEX_CALL_PING: {
        uint64_t load = atomic_load(&table->load);
        memcpy(request->reply, &load, sizeof(load));
        request->reply_size = sizeof(load);
        status = PANDO_OK;
        break;
    }
    case POOL_WISH_METHOD: { /* it cannot call us: all that is ours shall be its */
        struct dex_range all = {.no_high = true};
        uint64_t owner;
        /* Keys may have become ours that nobody could tell us of. */
        atomic_store(&table->doubt, true);
        status = dex_claim_co(self, all.low, &owner);
        if (status == PANDO_OK)
            status = dex_give_co(self, &all, map_member(request->from));
        break;
    }
    default:
        break;
    }
    dex_scratch_give(self, scratch);
    return status;
}

enum pando_status dex_serve(struct dex_table *table)
{
    return pool_answer(table->pool, table->id, answer_co, table);
}

void dex_serve_no_more_co(struct dex_table *table)
{
    pool_answer_no_more_co(table->pool, table->id);
    /* Nobody answers any more: their handles go. */
    for (;;) {
        struct dex *found = NULL;
        rt_latch_lock(&table->handles_latch);
        list_for_each (link, &table->handles) {
            struct dex *handle = container_of(link, struct dex, link);
            if (handle->serves)
                found = handle;
        }
        rt_latch_unlock(&table->handles_latch);
        if (found == NULL)
            return;
        dex_handle_destroy(found);
    }
}
