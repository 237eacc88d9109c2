/*
 * copy_commands.c - RENAME, RENAMENX and COPY: a value from one key to another.
 *
 * Not one atomic change: the new key is written first and the old one removed afterwards, and only if
 * it still has the value that was copied. Whoever fails in between leaves both.
 */
#include <stdlib.h>

#include "server/long.h"
#include "server/resp/number.h"
#include "server/tries.h"

enum { FIRST_ROOM = 1024 };

/* Bytes as they are stored, header and all. */
struct stored {
    uint8_t *bytes;
    size_t size;
};

/* NOT_FOUND, also for what has expired. Freed by the caller, also after a failure. */
static enum pando_status fetch_co(struct store_table *table, struct slice key, struct stored *out)
{
    size_t capacity = FIRST_ROOM;
    struct value value;

    for (int i = 0; i < TRIES_TO_READ; i++) {
        uint8_t *bytes = realloc(out->bytes, capacity);
        if (bytes == NULL)
            return PANDO_NO_MEMORY;
        out->bytes = bytes;
        enum pando_status status = store_get_co(table, key, bytes, capacity, &out->size);
        if (status != PANDO_OK)
            return status;
        if (out->size > BUFFERED_BYTES)
            return PANDO_RANGE;
        if (out->size <= capacity) {
            if (!value_read(slice_of(bytes, out->size), &value))
                return PANDO_VERSION;
            return value_expired(&value) ? PANDO_NOT_FOUND : PANDO_OK;
        }
        capacity = out->size;
    }
    return PANDO_TIMEOUT;
}

struct place_edit {
    struct slice bytes;
    bool only_new, done;
};

static struct store_change place_change(void *context, const struct slice *old)
{
    struct place_edit *place = context;
    struct value value;
    bool there = old != NULL && (!value_read(*old, &value) || !value_expired(&value));
    place->done = !(place->only_new && there);
    if (!place->done)
        return edit_keep();
    return (struct store_change){.what = STORE_REPLACE, .value = place->bytes};
}

static struct store_change remove_same(void *context, const struct slice *old)
{
    struct place_edit *place = context;
    place->done = old == NULL || slice_equal(*old, place->bytes);
    return old != NULL && place->done ? edit_remove() : edit_keep();
}

/* Where a value is, and where it shall be. */
struct places {
    struct store_table *from, *to;
    struct slice from_key, to_key;
    bool only_new;
};

/* The same of a long value, there or at the target: with memory for a piece of it. STALE: again. */
static enum pando_status copy_long_once_co(const struct places *places, bool remove, bool *done)
{
    const struct long_source nothing = {0};
    struct long_look from, to;
    enum pando_status status = long_look_co(places->from, places->from_key, &from);
    if (status == PANDO_OK && !from.found)
        status = PANDO_NOT_FOUND;
    if (status == PANDO_OK)
        status = long_look_co(places->to, places->to_key, &to);
    *done = status == PANDO_OK && !(places->only_new && to.found);
    if (status != PANDO_OK || !*done)
        return status;
    struct long_source base = long_source_of(places->from, places->from_key, &from);
    status = long_replace_co(places->to, places->to_key, &to, &base, &nothing, 0, from.expire_ms);
    if (status != PANDO_OK || !remove)
        return status;
    struct store_swap same = long_expecting(&from);
    return store_remove_co(places->from, places->from_key, &same);
}

static enum pando_status copy_long_co(struct places places, bool remove, bool *done)
{
    enum pando_status status = PANDO_STALE;
    for (int i = 0; i < TRIES_TO_CHANGE && status == PANDO_STALE; i++) {
        bool placed;
        status = copy_long_once_co(&places, remove, &placed);
        *done = placed;
    }
    return status == PANDO_STALE ? PANDO_TIMEOUT : status;
}

/* NOT_FOUND: no source. *done: false if the target was there and only a new one was wanted. */
static enum pando_status move_co(struct store_table *from, struct slice from_key,
                                 struct store_table *to, struct slice to_key, bool only_new,
                                 bool *done)
{
    struct stored stored = {0};
    enum pando_status status = PANDO_AGAIN;

    for (int i = 0; i < TRIES_TO_CHANGE && status == PANDO_AGAIN; i++) {
        status = fetch_co(from, from_key, &stored);
        if (status != PANDO_OK)
            break;
        struct place_edit place = {.bytes = slice_of(stored.bytes, stored.size),
                                   .only_new = only_new && i == 0};
        status =
            store_modify_co(to, to_key, only_new ? STORE_SHORT : STORE_BLIND, place_change, &place);
        *done = place.done;
        if (status != PANDO_OK || !place.done)
            break;
        struct place_edit same = {.bytes = place.bytes};
        status = store_modify_co(from, from_key, STORE_SHORT, remove_same, &same);
        if (status == PANDO_OK && !same.done)
            status = PANDO_AGAIN; /* somebody changed it meanwhile: what is there now moves */
    }
    free(stored.bytes);
    if (status == PANDO_RANGE) {
        struct places places = {from, to, from_key, to_key, only_new};
        status = copy_long_co(places, true, done);
    }
    return status;
}

static void rename_co(struct command_call *call, bool only_new)
{
    struct slice from = call_word(call, 1), to = call_word(call, 2);
    enum pando_status status;
    struct glance glance;
    bool done = true;

    if (!call_key_fits(call, to))
        return;
    if (slice_equal(from, to)) {
        bool there = keyspace_glance_co(keyspace_table(call, from), from, &glance, &status);
        status = there ? PANDO_OK : status;
        done = false;
    } else if (from.size > KEYSPACE_KEY_MAX) {
        status = PANDO_NOT_FOUND;
    } else {
        status = move_co(keyspace_table(call, from), from, keyspace_table(call, to), to, only_new,
                         &done);
    }
    if (status == PANDO_NOT_FOUND)
        reply_error(call->reply, "ERR no such key");
    else if (status != PANDO_OK)
        reply_failure(call->reply, status);
    else if (only_new)
        reply_integer(call->reply, done);
    else
        reply_ok(call->reply);
}

void command_rename_co(struct command_call *call)
{
    rename_co(call, false);
}

void command_renamenx_co(struct command_call *call)
{
    rename_co(call, true);
}

/* ---- COPY ------------------------------------------------------------------------------------ */

struct copy_options {
    unsigned database;
    bool replace;
};

static bool copy_options(struct command_call *call, struct copy_options *options)
{
    for (size_t i = 3; i < call->count; i++) {
        if (call_word_is(call, i, "replace")) {
            options->replace = true;
        } else if (call_word_is(call, i, "db") && i + 1 < call->count) {
            if (!call_database(call, ++i, &options->database))
                return false;
        } else {
            reply_error(call->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

void command_copy_co(struct command_call *call)
{
    struct slice from = call_word(call, 1), to = call_word(call, 2);
    struct copy_options options = {.database = call->client->database};
    struct stored stored = {0};
    char error[SERVER_ERROR_BYTES] = "";

    if (!copy_options(call, &options) || !call_key_fits(call, to))
        return;
    if (options.database == call->client->database && slice_equal(from, to)) {
        reply_error(call->reply, "ERR source and destination objects are the same");
        return;
    }
    enum pando_status status =
        keyspace_open_co(call->thread, options.database, error, sizeof(error));
    if (status == PANDO_OK)
        status = from.size > KEYSPACE_KEY_MAX ? PANDO_NOT_FOUND
                                              : fetch_co(keyspace_table(call, from), from, &stored);
    struct place_edit place = {.bytes = slice_of(stored.bytes, stored.size),
                               .only_new = !options.replace};
    struct store_table *table =
        call->thread->databases[options.database].tables[to.size > KEYSPACE_SHORT_MAX];
    if (status == PANDO_OK)
        status = store_modify_co(table, to, options.replace ? STORE_BLIND : STORE_SHORT,
                                 place_change, &place);
    if (status == PANDO_RANGE) {
        struct places places = {keyspace_table(call, from), table, from, to, !options.replace};
        status = copy_long_co(places, false, &place.done);
    }
    free(stored.bytes);
    if (status == PANDO_OK)
        reply_integer(call->reply, place.done);
    else if (status == PANDO_NOT_FOUND)
        reply_integer(call->reply, 0);
    else
        reply_failure(call->reply, status);
}
