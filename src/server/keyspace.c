#include "server/long.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/resp/number.h"
#include "server/tries.h"

/* ---- databases ------------------------------------------------------------------------------- */

/* Four pairs of the largest have to fit into a node. Of pairs of 16 and 64 bytes there are ten or
 * eleven in one for short keys, which is 70 % of it. */
static const struct store_shape shapes[2] = {
    {.key_max = KEYSPACE_SHORT_MAX, .value_inline = 208, .node_bytes = 1536},
    {.key_max = KEYSPACE_KEY_MAX, .value_inline = 256, .node_bytes = 8192},
};

static enum pando_status open_table_co(struct server_thread *thread, const char *name,
                                       const struct store_shape *shape, struct store_table **out,
                                       char *error, size_t error_bytes)
{
    enum pando_status status = store_table_open_co(thread->store, name, out, error, error_bytes);
    if (status != PANDO_NOT_FOUND)
        return status;
    status = store_table_create_co(thread->store, name, thread->server->options.engine, shape,
                                   error, error_bytes);
    if (status != PANDO_OK && status != PANDO_EXISTS && status != PANDO_UNKNOWN)
        return status;
    /* Another server may have the name and not yet the root. */
    for (int i = 0; i < 100; i++) {
        status = store_table_open_co(thread->store, name, out, error, error_bytes);
        if (status != PANDO_NOT_FOUND)
            break;
        rt_sleep_co(10 * RT_NS_PER_MS); /* another process makes it */
    }
    return status;
}

static enum pando_status open_both_co(struct server_thread *thread, unsigned number, bool create,
                                      char *error, size_t error_bytes)
{
    struct database *database = &thread->databases[number];
    enum pando_status worst = PANDO_OK;
    char name[STORE_NAME_MAX];

    for (int i = 0; i < 2 && (worst == PANDO_OK || worst == PANDO_NOT_FOUND); i++) {
        struct store_table *table;
        if (database->tables[i] != NULL)
            continue;
        snprintf(name, sizeof(name), i == 0 ? "db%u" : "db%u.long", number);
        enum pando_status status =
            create ? open_table_co(thread, name, &shapes[i], &table, error, error_bytes)
                   : store_table_open_co(thread->store, name, &table, error, error_bytes);
        if (status != PANDO_OK)
            worst = status;
        else if (database->tables[i] == NULL)
            database->tables[i] = table;
        else /* another task of the thread was quicker */
            store_table_close(table);
    }
    return worst;
}

enum pando_status keyspace_open_co(struct server_thread *thread, unsigned number, char *error,
                                   size_t error_bytes)
{
    return open_both_co(thread, number, true, error, error_bytes);
}

enum pando_status keyspace_find_co(struct server_thread *thread, unsigned number)
{
    char error[SERVER_ERROR_BYTES];
    return open_both_co(thread, number, false, error, sizeof(error));
}

enum pando_status keyspace_open_for_co(const struct client *client, unsigned number)
{
    char error[SERVER_ERROR_BYTES];
    if (client->user != USER_READONLY)
        return keyspace_open_co(client->thread, number, error, sizeof(error));
    enum pando_status status = keyspace_find_co(client->thread, number);
    return status == PANDO_NOT_FOUND ? PANDO_OK : status;
}

void keyspace_refresh_co(struct server_thread *thread)
{
    char error[SERVER_ERROR_BYTES];
    for (unsigned i = 0; i < SERVER_DATABASES; i++) {
        struct store_table **tables = thread->databases[i].tables;
        for (int j = 0; j < 2; j++) {
            struct store_table *fresh;
            char name[STORE_NAME_MAX];
            if (tables[j] == NULL || !store_table_dropped(tables[j]))
                continue;
            snprintf(name, sizeof(name), j == 0 ? "db%u" : "db%u.long", i);
            /* The old handle may be in use; it goes with the thread. */
            if (open_table_co(thread, name, &shapes[j], &fresh, error, sizeof(error)) == PANDO_OK)
                tables[j] = fresh;
        }
    }
}

/* ---- errors ---------------------------------------------------------------------------------- */

void reply_failure(struct reply *reply, enum pando_status status)
{
    switch (status) {
    case PANDO_FULL:
        reply_error(reply, "OOM the pool is full: delete keys or drop indexes; more room takes a "
                           "larger pool (dump, load)");
        return;
    case PANDO_NO_MEMORY:
        reply_error(reply, "OOM this server is out of memory");
        return;
    case PANDO_TOO_LARGE:
        reply_error(reply, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
        return;
    case PANDO_UNKNOWN:
        reply_error(reply, "UNKNOWN the connection to the pool broke: this command may or may not "
                           "have been applied");
        return;
    case PANDO_AGAIN:
        reply_error(reply, "UNAVAILABLE this server has too much to do, or is ending: nothing was "
                           "changed, try again");
        return;
    case PANDO_TIMEOUT:
    case PANDO_BROKEN:
    case PANDO_FENCED:
        reply_error(reply, "UNAVAILABLE the pool cannot be reached now: nothing was changed, try "
                           "again");
        return;
    default:
        reply_errorf(reply, "ERR the pool says: %s", pando_status_text(status));
    }
}

void reply_failure_after(struct reply *reply, enum pando_status status, uint64_t changed)
{
    if (changed == 0)
        reply_failure(reply, status);
    else
        reply_errorf(reply,
                     "UNKNOWN %llu keys were changed, then it failed (%s): others may or may not "
                     "have been changed",
                     (unsigned long long)changed, pando_status_text(status));
}

enum pando_status may_go_on(const struct server_thread *thread)
{
    return server_stopping(thread->server) ? PANDO_AGAIN : PANDO_OK;
}

bool call_integer(struct command_call *call, size_t index, int64_t *out)
{
    if (number_parse(call_word(call, index), out))
        return true;
    reply_error(call->reply, "ERR value is not an integer or out of range");
    return false;
}

bool call_database(struct command_call *call, size_t index, unsigned *out)
{
    int64_t number;
    if (!call_integer(call, index, &number))
        return false;
    if (number < INT32_MIN || number > INT32_MAX)
        reply_errorf(call->reply, "ERR value is out of range, value must between %d and %d",
                     INT32_MIN, INT32_MAX);
    else if (number < 0 || number >= SERVER_DATABASES)
        reply_error(call->reply, "ERR DB index is out of range");
    else
        *out = (unsigned)number;
    return number >= 0 && number < SERVER_DATABASES;
}

bool call_key_fits(struct command_call *call, struct slice key)
{
    if (key.size <= KEYSPACE_KEY_MAX)
        return true;
    reply_errorf(call->reply, "ERR key of %zu bytes: keys have at most %d here", key.size,
                 (int)KEYSPACE_KEY_MAX);
    return false;
}

/* ---- looking --------------------------------------------------------------------------------- */

bool keyspace_glance_co(struct store_table *table, struct slice key, struct glance *out,
                        enum pando_status *status)
{
    uint8_t head[VALUE_HEAD_MAX];
    size_t size;
    struct value value;

    *status = PANDO_NOT_FOUND;
    if (key.size > KEYSPACE_KEY_MAX || table == NULL)
        return false;
    *status = store_get_co(table, key, head, sizeof(head), &size);
    if (*status != PANDO_OK)
        return false;
    size_t known = size < sizeof(head) ? size : sizeof(head);
    if (!value_read(slice_of(head, known), &value)) {
        *status = PANDO_VERSION;
        return false;
    }
    *out = (struct glance){.expire_ms = value.expire_ms, .size = size - (known - value.data.size)};
    if (value_expired(&value)) {
        *status = PANDO_NOT_FOUND;
        return false;
    }
    return true;
}

/* ---- changing -------------------------------------------------------------------------------- */

static struct store_change edit_change(void *context, const struct slice *old)
{
    struct edit *edit = context;
    reply_rewind(edit->call->reply, edit->mark);
    edit->found = false;
    edit->status = PANDO_OK;
    if (old != NULL) {
        if (!value_read(*old, &edit->old)) {
            edit->status = PANDO_VERSION;
            return edit_keep();
        }
        edit->found = !value_expired(&edit->old);
    }
    struct store_change change = edit->change(edit);
    return edit->status == PANDO_OK ? change : edit_keep();
}

enum pando_status edit_long_co(struct edit *edit)
{
    enum pando_status status = PANDO_STALE;
    for (int i = 0; i < TRIES_TO_CHANGE && status == PANDO_STALE; i++) {
        reply_rewind(edit->call->reply, edit->mark);
        status = edit->long_co(edit);
    }
    return status == PANDO_STALE ? PANDO_TIMEOUT : status;
}

bool edit_finish(struct edit *edit, enum pando_status status)
{
    struct command_call *call = edit->call;
    if (status == PANDO_OK)
        return true;
    reply_rewind(call->reply, edit->mark);
    if (status == PANDO_RANGE)
        reply_errorf(call->reply, "ERR '%s' takes no old values of more than %d bytes",
                     call->command->name, BUFFERED_BYTES);
    else
        reply_failure(call->reply, status);
    return false;
}

bool edit_run_co(struct edit *edit, struct command_call *call, struct slice key,
                 struct store_change (*change)(struct edit *edit))
{
    edit->call = call;
    edit->key = key;
    edit->change = change;
    edit->mark = reply_mark(call->reply);
    if (!call_key_fits(call, key))
        return false;
    struct store_table *table = keyspace_table(call, key);
    enum pando_status status = store_modify_co(table, key, STORE_SHORT, edit_change, edit);
    bool expired = false; /* a long value whose time has come is none */
    if (status == PANDO_RANGE && long_remove_co(table, key, true, &expired) == PANDO_OK && expired)
        status = store_modify_co(table, key, STORE_SHORT, edit_change, edit);
    free(edit->memory);
    edit->memory = NULL;
    if (status == PANDO_OK)
        status = edit->status;
    if (status == PANDO_RANGE && edit->long_co != NULL)
        status = edit_long_co(edit);
    return edit_finish(edit, status);
}

uint8_t *edit_build(struct edit *edit, size_t size, uint8_t first, uint64_t expire_ms)
{
    struct slice probe = slice_of(&first, size > 0 ? 1 : 0);
    size_t head = value_head_size(probe, expire_ms);
    edit->status = size > VALUE_BYTES_MAX  ? PANDO_TOO_LARGE
                   : size > BUFFERED_BYTES ? PANDO_RANGE
                                           : PANDO_OK;
    uint8_t *memory = edit->status != PANDO_OK ? NULL : realloc(edit->memory, head + size + 1);
    if (memory == NULL) {
        edit->status = edit->status == PANDO_OK ? PANDO_NO_MEMORY : edit->status;
        return NULL;
    }
    edit->memory = memory;
    edit->memory_size = head + size;
    value_head_write(memory, head, expire_ms);
    if (size > 0)
        memory[head] = first;
    return memory + head;
}

struct store_change edit_store_built(struct edit *edit)
{
    return (struct store_change){.what = STORE_REPLACE,
                                 .value = slice_of(edit->memory, edit->memory_size)};
}

struct store_change edit_store(struct edit *edit, struct slice data, uint64_t expire_ms)
{
    uint8_t *room = edit_build(edit, data.size, data.size > 0 ? data.data[0] : 0, expire_ms);
    if (room == NULL)
        return edit_keep();
    if (data.size > 0)
        memcpy(room, data.data, data.size);
    return edit_store_built(edit);
}

/* ---- values as they are stored --------------------------------------------------------------- */

enum pando_status value_store_begin(struct value_stored *stored, struct slice data,
                                    uint64_t expire_ms)
{
    size_t head = value_head_size(data, expire_ms), size = head + data.size;

    stored->copy = NULL;
    if (data.size > VALUE_BYTES_MAX)
        return PANDO_TOO_LARGE;
    stored->bytes = data;
    if (head == 0)
        return PANDO_OK;
    uint8_t *to = stored->small;
    if (size > sizeof(stored->small))
        to = stored->copy = malloc(size);
    if (to == NULL)
        return PANDO_NO_MEMORY;
    value_head_write(to, head, expire_ms);
    memcpy(to + head, data.data, data.size);
    stored->bytes = slice_of(to, size);
    return PANDO_OK;
}

void value_store_end(struct value_stored *stored)
{
    free(stored->copy);
}
