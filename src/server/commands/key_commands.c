/*
 * key_commands.c - commands on keys, whatever their values are; and on several keys.
 *
 * A command on several keys is atomic for each of them, not for all together: others may see it
 * half-way, and a failure may leave it so.
 */
#include <stdlib.h>

#include "server/commands/expiry.h"
#include "server/long.h"
#include "server/parallel.h"
#include "server/resp/number.h"

/* ---- counting and removing ------------------------------------------------------------------- */

/* What is done to each key, and the sum. */
struct each {
    struct command_call *call;
    int64_t count;
    uint64_t changed;         /* keys */
    enum pando_status status; /* of what failed */
};

static void each_failed(struct each *each, enum pando_status status)
{
    each->status = failure_of(each->status, status);
}

static void each_reply(struct each *each)
{
    if (each->status != PANDO_OK)
        reply_failure_after(each->call->reply, each->status, each->changed);
    else
        reply_integer(each->call->reply, each->count);
}

struct removal {
    bool found;
    bool strange;
};

static struct store_change removal_change(void *context, const struct slice *old)
{
    struct removal *removal = context;
    struct value value;
    *removal = (struct removal){0};
    if (old == NULL)
        return edit_keep();
    /* What a later version stored may be removed, too. */
    removal->found = !value_read(*old, &value) || !value_expired(&value);
    return edit_remove();
}

static bool remove_one_co(void *context, size_t index)
{
    struct each *each = context;
    struct slice key = call_word(each->call, index + 1);
    struct removal removal = {0};
    if (key.size > KEYSPACE_KEY_MAX)
        return true;
    enum pando_status status = store_modify_co(keyspace_table(each->call, key), key, STORE_SHORT,
                                               removal_change, &removal);
    if (status == PANDO_RANGE)
        status = long_remove_co(keyspace_table(each->call, key), key, false, &removal.found);
    if (status != PANDO_OK)
        each_failed(each, status);
    else
        each->count += removal.found;
    each->changed += status == PANDO_OK && removal.found;
    return each->status == PANDO_OK;
}

void command_del_co(struct command_call *call)
{
    struct each each = {.call = call};
    parallel_co(call->thread, call->count - 1, remove_one_co, &each);
    each_reply(&each);
}

static bool exists_one_co(void *context, size_t index)
{
    struct each *each = context;
    struct slice key = call_word(each->call, index + 1);
    struct glance glance;
    enum pando_status status;
    if (keyspace_glance_co(keyspace_table(each->call, key), key, &glance, &status))
        each->count++;
    else if (status != PANDO_NOT_FOUND)
        each_failed(each, status);
    return each->status == PANDO_OK;
}

void command_exists_co(struct command_call *call)
{
    struct each each = {.call = call};
    parallel_co(call->thread, call->count - 1, exists_one_co, &each);
    each_reply(&each);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* True: it is there. False: that, or an error, was replied as `absent`. */
static bool glance_co(struct command_call *call, struct glance *glance, int64_t absent)
{
    struct slice key = call_word(call, 1);
    enum pando_status status;
    if (keyspace_glance_co(keyspace_table(call, key), key, glance, &status))
        return true;
    if (status == PANDO_NOT_FOUND)
        reply_integer(call->reply, absent);
    else
        reply_failure(call->reply, status);
    return false;
}

void command_type_co(struct command_call *call)
{
    struct slice key = call_word(call, 1);
    struct glance glance;
    enum pando_status status;
    if (keyspace_glance_co(keyspace_table(call, key), key, &glance, &status))
        reply_simple(call->reply, "string");
    else if (status == PANDO_NOT_FOUND)
        reply_simple(call->reply, "none");
    else
        reply_failure(call->reply, status);
}

static void ttl_co(struct command_call *call, unsigned unit)
{
    struct glance glance;
    if (!glance_co(call, &glance, -2))
        return;
    if (glance.expire_ms == 0) {
        reply_integer(call->reply, -1);
        return;
    }
    int64_t ms =
        (int64_t)glance.expire_ms - ((unit & EXPIRY_ABSOLUTE) != 0 ? 0 : (int64_t)rt_wall_ms());
    ms = ms < 0 ? 0 : ms;
    reply_integer(call->reply,
                  (unit & EXPIRY_SECONDS) != 0 ? (int64_t)(((uint64_t)ms + 500) / 1000) : ms);
}

void command_ttl_co(struct command_call *call)
{
    ttl_co(call, EXPIRY_SECONDS);
}

void command_pttl_co(struct command_call *call)
{
    ttl_co(call, EXPIRY_MS);
}

void command_expiretime_co(struct command_call *call)
{
    ttl_co(call, EXPIRY_SECONDS | EXPIRY_ABSOLUTE);
}

void command_pexpiretime_co(struct command_call *call)
{
    ttl_co(call, EXPIRY_ABSOLUTE);
}

/* ---- expiry ---------------------------------------------------------------------------------- */

struct expire_edit {
    struct edit edit;
    int64_t when_ms;
    bool not_set, set, greater, less; /* NX, XX, GT, LT */
    bool persist;
    bool done;
};

static bool expire_applies(const struct expire_edit *expire, uint64_t old_ms)
{
    uint64_t when = expire->when_ms < 0 ? 0 : (uint64_t)expire->when_ms;
    return !(expire->not_set && old_ms != 0) && !(expire->set && old_ms == 0) &&
           !(expire->greater && (old_ms == 0 || when <= old_ms)) &&
           !(expire->less && old_ms != 0 && when >= old_ms);
}

static struct store_change expire_change(struct edit *edit)
{
    struct expire_edit *expire = container_of(edit, struct expire_edit, edit);
    expire->done = edit->found && expire_applies(expire, edit->old.expire_ms);
    if (!expire->done)
        return edit_keep();
    if (expire->when_ms <= (int64_t)rt_wall_ms())
        return edit_remove();
    return edit_store(edit, edit->old.data, (uint64_t)expire->when_ms);
}

/* The same of a long value: it is written anew. */
static enum pando_status expire_long_co(struct edit *edit)
{
    struct expire_edit *expire = container_of(edit, struct expire_edit, edit);
    struct store_table *table = keyspace_table(edit->call, edit->key);
    const struct long_source nothing = {0};
    struct long_look look;
    enum pando_status status = long_look_co(table, edit->key, &look);
    if (status != PANDO_OK)
        return status;
    expire->done = look.found &&
                   (expire->persist ? look.expire_ms != 0 : expire_applies(expire, look.expire_ms));
    if (!expire->done)
        return PANDO_OK;
    if (!expire->persist && expire->when_ms <= (int64_t)rt_wall_ms())
        return long_remove_co(table, edit->key, false, &expire->done);
    struct long_source base = long_source_of(table, edit->key, &look);
    return long_replace_co(table, edit->key, &look, &base, &nothing, 0,
                           expire->persist ? 0 : (uint64_t)expire->when_ms);
}

static bool expire_options(struct command_call *call, struct expire_edit *expire)
{
    for (size_t i = 3; i < call->count; i++) {
        if (call_word_is(call, i, "nx")) {
            expire->not_set = true;
        } else if (call_word_is(call, i, "xx")) {
            expire->set = true;
        } else if (call_word_is(call, i, "gt")) {
            expire->greater = true;
        } else if (call_word_is(call, i, "lt")) {
            expire->less = true;
        } else {
            struct slice word = call_word(call, i);
            reply_errorf(call->reply, "ERR Unsupported option %.*s",
                         (int)(word.size < 128 ? word.size : 128), (const char *)word.data);
            return false;
        }
    }
    if (expire->not_set && (expire->set || expire->greater || expire->less)) {
        reply_error(call->reply,
                    "ERR NX and XX, GT or LT options at the same time are not compatible");
        return false;
    }
    if (expire->greater && expire->less) {
        reply_error(call->reply, "ERR GT and LT options at the same time are not compatible");
        return false;
    }
    return true;
}

static void expire_co(struct command_call *call, unsigned unit)
{
    struct expire_edit expire = {.edit = {.long_co = expire_long_co}};
    int64_t base_ms = (unit & EXPIRY_ABSOLUTE) != 0 ? 0 : (int64_t)rt_wall_ms();

    if (!expire_options(call, &expire) || !call_integer(call, 2, &expire.when_ms))
        return;
    if (((unit & EXPIRY_SECONDS) != 0 &&
         __builtin_mul_overflow(expire.when_ms, 1000, &expire.when_ms)) ||
        expire.when_ms > INT64_MAX - base_ms) {
        reply_errorf(call->reply, "ERR invalid expire time in '%s' command", call->command->name);
        return;
    }
    expire.when_ms += base_ms;
    atomic_store_explicit(&call->thread->server->expiry_written, true, memory_order_relaxed);
    if (edit_run_co(&expire.edit, call, call_word(call, 1), expire_change))
        reply_integer(call->reply, expire.done);
}

void command_expire_co(struct command_call *call)
{
    expire_co(call, EXPIRY_SECONDS);
}

void command_pexpire_co(struct command_call *call)
{
    expire_co(call, EXPIRY_MS);
}

void command_expireat_co(struct command_call *call)
{
    expire_co(call, EXPIRY_SECONDS | EXPIRY_ABSOLUTE);
}

void command_pexpireat_co(struct command_call *call)
{
    expire_co(call, EXPIRY_ABSOLUTE);
}

static struct store_change persist_change(struct edit *edit)
{
    struct expire_edit *expire = container_of(edit, struct expire_edit, edit);
    expire->done = edit->found && edit->old.expire_ms != 0;
    return expire->done ? edit_store(edit, edit->old.data, 0) : edit_keep();
}

void command_persist_co(struct command_call *call)
{
    struct expire_edit expire = {.edit = {.long_co = expire_long_co}, .persist = true};
    if (edit_run_co(&expire.edit, call, call_word(call, 1), persist_change))
        reply_integer(call->reply, expire.done);
}
