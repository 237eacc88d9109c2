/*
 * scan_commands.c - commands on all keys of a database: KEYS, SCAN, DBSIZE, FLUSHDB, FLUSHALL.
 */
#include <stdlib.h>

#include "server/census.h"
#include "server/cursor.h"
#include "server/parallel.h"
#include "server/resp/number.h"
#include "server/resp/pattern.h"
#include "server/walk.h"

enum { STEP_KEYS = 512, COUNT_USUAL = 10, COUNT_MAX = 65536 };

static const struct database *database_of(const struct command_call *call)
{
    return &call->thread->databases[call->client->database];
}

/* ---- KEYS and SCAN --------------------------------------------------------------------------- */

void command_keys_co(struct command_call *call)
{
    struct slice pattern = call_word(call, 1);
    struct walk walk;
    enum pando_status status = PANDO_OK;
    size_t mark = reply_mark(call->reply);
    uint64_t count = 0;

    if (!walk_begin(&walk, database_of(call), &pattern)) {
        reply_failure(call->reply, PANDO_NO_MEMORY);
        return;
    }
    size_t array = reply_array_begin(call->reply);
    while (!walk.over && status == PANDO_OK && !call->reply->overflow) {
        status = walk_step_co(&walk, STEP_KEYS);
        for (size_t i = 0; status == PANDO_OK && i < walk.count; i++)
            reply_bulk(call->reply, walk.entries[i].key);
        count += walk.count;
        rt_yield_co();
    }
    walk_end(&walk);
    if (status == PANDO_OK) {
        reply_array_end(call->reply, array, count);
        return;
    }
    reply_rewind(call->reply, mark);
    reply_failure(call->reply, status);
}

struct scan_options {
    uint64_t cursor;
    int64_t count;
    struct slice pattern;
    bool has_pattern;
    bool other_type; /* none of which there is anything */
};

static bool parse_cursor(struct slice word, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < word.size; i++) {
        uint8_t digit = (uint8_t)(word.data[i] - '0');
        if (digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return true;
}

static bool scan_options(struct command_call *call, struct scan_options *out)
{
    *out = (struct scan_options){.count = COUNT_USUAL};
    if (!parse_cursor(call_word(call, 1), &out->cursor)) {
        reply_error(call->reply, "ERR invalid cursor");
        return false;
    }
    for (size_t i = 2; i < call->count; i += 2) {
        bool has_value = i + 1 < call->count;
        if (has_value && call_word_is(call, i, "count")) {
            if (!call_integer(call, i + 1, &out->count))
                return false;
            if (out->count < 1) {
                reply_error(call->reply, "ERR syntax error");
                return false;
            }
        } else if (has_value && call_word_is(call, i, "match")) {
            out->pattern = call_word(call, i + 1);
            out->has_pattern = true;
        } else if (has_value && call_word_is(call, i, "type")) {
            out->other_type = !call_word_is(call, i + 1, "string");
        } else {
            reply_error(call->reply, "ERR syntax error");
            return false;
        }
    }
    out->count = out->count > COUNT_MAX ? COUNT_MAX : out->count;
    return true;
}

static void scan_reply(struct command_call *call, const struct walk *walk, uint64_t cursor,
                       bool nothing)
{
    char text[NUMBER_TEXT_MAX];
    size_t count = nothing ? 0 : walk->count;
    reply_array(call->reply, 2);
    reply_bulk(call->reply, slice_of(text, number_format(text, (int64_t)cursor)));
    reply_array(call->reply, count);
    for (size_t i = 0; i < count; i++)
        reply_bulk(call->reply, walk->entries[i].key);
}

void command_scan_co(struct command_call *call)
{
    struct server_thread *thread = call->thread;
    struct scan_options options;
    struct walk walk;
    uint8_t key[KEYSPACE_KEY_MAX];
    size_t key_size = 0;
    uint64_t cursor = 0;
    enum pando_status status = PANDO_OK;

    if (!scan_options(call, &options))
        return;
    if (options.cursor != 0)
        status = cursor_find_co(thread, call->client->database, options.cursor, key, &key_size);
    if (status == PANDO_NOT_FOUND) {
        reply_error(call->reply, "ERR invalid cursor: it was not given out for this database, or "
                                 "too long ago");
        return;
    }
    if (status == PANDO_OK &&
        !walk_begin(&walk, database_of(call), options.has_pattern ? &options.pattern : NULL))
        status = PANDO_NO_MEMORY;
    if (status != PANDO_OK) {
        reply_failure(call->reply, status);
        return;
    }
    if (options.cursor != 0)
        walk_resume(&walk, slice_of(key, key_size));
    if (!walk.over)
        status = walk_step_co(&walk, (unsigned)options.count);
    if (status == PANDO_OK && !walk.over)
        status = cursor_keep_co(thread, call->client->database, slice_of(walk.low, walk.low_size),
                                &cursor);
    if (status == PANDO_OK)
        scan_reply(call, &walk, cursor, options.other_type);
    else
        reply_failure(call->reply, status);
    walk_end(&walk);
}

/* ---- counting and emptying ------------------------------------------------------------------- */

void command_dbsize_co(struct command_call *call)
{
    struct walk walk;
    enum pando_status status = PANDO_OK;
    int64_t count = 0;

    if (!walk_begin(&walk, database_of(call), NULL))
        status = PANDO_NO_MEMORY;
    while (status == PANDO_OK && !walk.over) {
        status = walk_step_co(&walk, STEP_KEYS);
        count += (int64_t)walk.count;
        rt_yield_co();
    }
    walk_end(&walk);
    if (status == PANDO_OK)
        reply_integer(call->reply, count);
    else
        reply_failure(call->reply, status);
}

struct flush {
    const struct database *database;
    const struct walk *walk;
    enum pando_status status;
    uint64_t deleted;
};

static bool flush_one_co(void *context, size_t index)
{
    struct flush *flush = context;
    struct slice key = flush->walk->entries[index].key;
    enum pando_status status =
        store_delete_co(flush->database->tables[key.size > KEYSPACE_SHORT_MAX], key);
    if (status == PANDO_OK)
        flush->deleted++;
    else if (status != PANDO_NOT_FOUND)
        flush->status = failure_of(flush->status, status);
    return flush->status == PANDO_OK;
}

static enum pando_status flush_co(struct server_thread *thread, unsigned number, uint64_t *deleted)
{
    const struct database *database = &thread->databases[number];
    struct walk walk;
    struct flush flush = {.database = database, .walk = &walk};
    if (database->tables[0] == NULL || database->tables[1] == NULL)
        return PANDO_OK;
    if (!walk_begin(&walk, database, NULL))
        return PANDO_NO_MEMORY;
    walk.which = WALK_ALL;
    census_forget(thread->server->census, number);
    while (flush.status == PANDO_OK && !walk.over) {
        flush.status = may_go_on(thread);
        if (flush.status == PANDO_OK)
            flush.status = walk_step_co(&walk, STEP_KEYS);
        if (flush.status == PANDO_OK)
            parallel_co(thread, walk.count, flush_one_co, &flush);
        rt_yield_co();
    }
    walk_end(&walk);
    *deleted += flush.deleted;
    return flush.status;
}

static bool flush_options(struct command_call *call)
{
    if (call->count == 1 ||
        (call->count == 2 && (call_word_is(call, 1, "async") || call_word_is(call, 1, "sync"))))
        return true;
    reply_error(call->reply, "ERR syntax error");
    return false;
}

void command_flushdb_co(struct command_call *call)
{
    if (!flush_options(call))
        return;
    uint64_t deleted = 0;
    enum pando_status status = flush_co(call->thread, call->client->database, &deleted);
    if (status == PANDO_OK)
        reply_ok(call->reply);
    else
        reply_failure_after(call->reply, status, deleted);
}

void command_flushall_co(struct command_call *call)
{
    enum pando_status status = PANDO_OK;
    uint64_t deleted = 0;
    if (!flush_options(call))
        return;
    for (unsigned i = 0; i < SERVER_DATABASES && status == PANDO_OK; i++) {
        status = keyspace_find_co(call->thread, i);
        if (status == PANDO_OK)
            status = flush_co(call->thread, i, &deleted);
        else if (status == PANDO_NOT_FOUND)
            status = PANDO_OK;
    }
    if (status == PANDO_OK)
        reply_ok(call->reply);
    else
        reply_failure_after(call->reply, status, deleted);
}
