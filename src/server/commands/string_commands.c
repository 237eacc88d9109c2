/*
 * string_commands.c - GET, SET and their kin: one value under one key.
 */
#include <math.h>
#include <stdlib.h>

#include "server/commands/expiry.h"
#include "server/long.h"
#include "server/net/outgoing.h"
#include "server/resp/number.h"
#include "server/tries.h"

enum { GET_ROOM = 1024 };

/* ---- reading --------------------------------------------------------------------------------- */

static void found_or_missed(struct command_call *call, enum pando_status status)
{
    struct stats_thread *stats = &call->thread->stats;
    stats_add(status == PANDO_OK ? &stats->hits : &stats->misses, 1);
}

/* A part of a value that is longer than what was read at first; PANDO_STALE: it has changed, or is
 * damaged. */
static enum pando_status reply_rest_co(struct command_call *call, struct store_table *table,
                                       struct slice key, uint64_t reference, uint64_t skip,
                                       uint64_t size)
{
    if (size > LONG_BYTES && !call->streams && call->may_wait) {
        call->postponed = true;
        return PANDO_OK;
    }
    if (size > BUFFERED_BYTES && !call->streams)
        return PANDO_RANGE;
    return long_send_co(call, table, key, reference, skip, size);
}

/* Which bytes GETRANGE means of so many. */
static void range_of(int64_t size, int64_t start, int64_t end, uint64_t *skip, uint64_t *bytes)
{
    *skip = *bytes = 0;
    if (start < 0 && end < 0 && start > end)
        return;
    start = start < 0 ? start + size : start;
    end = end < 0 ? end + size : end;
    start = start < 0 ? 0 : start;
    end = end < 0 ? 0 : end;
    end = end >= size ? size - 1 : end;
    if (start > end || size == 0)
        return;
    *skip = (uint64_t)start;
    *bytes = (uint64_t)(end - start + 1);
}

/* Writes a part of the value as a bulk string. One READ is enough for most values. */
static enum pando_status read_value_co(struct command_call *call, struct slice key, int64_t start,
                                       int64_t end)
{
    struct store_table *table = keyspace_table(call, key);
    enum pando_status status = PANDO_STALE;
    uint64_t failed = 0; /* the reference to what could not be read */
    struct value value;

    if (key.size > KEYSPACE_KEY_MAX || table == NULL)
        return PANDO_NOT_FOUND;
    for (int i = 0; i < TRIES_TO_READ && status == PANDO_STALE; i++) {
        uint64_t skip, bytes;
        uint8_t *room = reply_bulk_begin(call->reply, GET_ROOM);
        if (room == NULL)
            return PANDO_OK; /* over the limit: the connection ends */
        struct store_part part = {.to = room, .capacity = GET_ROOM};
        status = store_part_co(table, key, &part);
        if (status != PANDO_OK)
            return status;
        if (!value_read(slice_of(room, part.got), &value))
            return PANDO_VERSION;
        if (value_expired(&value))
            return PANDO_NOT_FOUND;
        size_t head = part.got - value.data.size;
        range_of((int64_t)(part.size - head), start, end, &skip, &bytes);
        if (skip + bytes <= value.data.size)
            reply_bulk_end(call->reply, head + (size_t)skip, (size_t)bytes);
        else
            status = reply_rest_co(call, table, key, part.reference, head + skip, bytes);
        /* What the key still refers to was not freed. */
        if (status == PANDO_STALE && part.reference == failed)
            status = PANDO_CORRUPT;
        failed = part.reference;
    }
    return status == PANDO_STALE ? PANDO_TIMEOUT : status;
}

static void read_and_reply_co(struct command_call *call, int64_t start, int64_t end, bool part)
{
    enum pando_status status = read_value_co(call, call_word(call, 1), start, end);
    if (!call->postponed)
        found_or_missed(call, status);
    if (status == PANDO_NOT_FOUND && part)
        reply_bulk(call->reply, slice_of(NULL, 0));
    else if (status == PANDO_NOT_FOUND)
        reply_null(call->reply);
    else if (status == PANDO_RANGE)
        reply_errorf(call->reply,
                     "ERR value of more than %d bytes: use GET or GETRANGE for it alone",
                     BUFFERED_BYTES);
    else if (status != PANDO_OK)
        reply_failure(call->reply, status);
}

void command_get_co(struct command_call *call)
{
    read_and_reply_co(call, 0, -1, false);
}

void command_strlen_co(struct command_call *call)
{
    struct slice key = call_word(call, 1);
    struct glance glance = {0};
    enum pando_status status;
    if (keyspace_glance_co(keyspace_table(call, key), key, &glance, &status))
        reply_integer(call->reply, (int64_t)glance.size);
    else if (status == PANDO_NOT_FOUND)
        reply_integer(call->reply, 0);
    else
        reply_failure(call->reply, status);
}

void command_getrange_co(struct command_call *call)
{
    int64_t start, end;
    if (call_integer(call, 2, &start) && call_integer(call, 3, &end))
        read_and_reply_co(call, start, end, true);
}

/* ---- SET ------------------------------------------------------------------------------------- */

struct set_edit {
    struct edit edit;
    struct slice value;
    struct expiry_options options;
    uint64_t expire_ms;
    bool stored;
};

static void reply_old(struct edit *edit)
{
    if (edit->found)
        reply_bulk(edit->call->reply, edit->old.data);
    else
        reply_null(edit->call->reply);
}

static struct store_change set_change(struct edit *edit)
{
    struct set_edit *set = container_of(edit, struct set_edit, edit);
    const struct expiry_options *options = &set->options;
    uint64_t expire_ms = set->expire_ms;

    if (options->get)
        reply_old(edit);
    set->stored = !(options->not_exists && edit->found) && !(options->exists && !edit->found);
    if (!set->stored)
        return edit_keep();
    if (options->keep_ttl && edit->found)
        expire_ms = edit->old.expire_ms;
    return edit_store(edit, set->value, expire_ms);
}

/* The old value as the reply, which is to be short. */
static enum pando_status reply_old_co(struct edit *edit, const struct long_look *look)
{
    struct command_call *call = edit->call;
    struct slice shown = slice_of(look->stored + look->skip, look->stored_size - look->skip);
    if (!look->found)
        reply_null(call->reply);
    else if (look->size == shown.size)
        reply_bulk(call->reply, shown);
    else if (look->size > BUFFERED_BYTES)
        return PANDO_RANGE;
    else {
        bool streams = call->streams;
        call->streams = false; /* it may have to be taken back */
        enum pando_status status = long_send_co(call, keyspace_table(call, edit->key), edit->key,
                                                look->reference, look->skip, look->size);
        call->streams = streams;
        return status;
    }
    return PANDO_OK;
}

/* SET, SETNX and GETSET of a long value, or over one. */
static enum pando_status set_long_co(struct edit *edit)
{
    struct set_edit *set = container_of(edit, struct set_edit, edit);
    const struct expiry_options *options = &set->options;
    struct command_call *call = edit->call;
    struct store_table *table = keyspace_table(call, edit->key);
    const struct long_source nothing = {0}, piece = {.bytes = set->value, .size = set->value.size};
    uint64_t expire_ms = set->expire_ms;
    struct long_look look;

    enum pando_status status = long_look_co(table, edit->key, &look);
    if (status == PANDO_OK && options->get)
        status = reply_old_co(edit, &look);
    if (status != PANDO_OK)
        return status;
    set->stored = !(options->not_exists && look.found) && !(options->exists && !look.found);
    if (!set->stored)
        return PANDO_OK;
    if (options->keep_ttl && look.found)
        expire_ms = look.expire_ms;
    return call->incoming != NULL
               ? long_put_co(call, &look, expire_ms)
               : long_replace_co(table, edit->key, &look, &nothing, &piece, 0, expire_ms);
}

/* Runs an edit that stores what the client sent, long or not. */
static bool set_run_co(struct set_edit *set, struct command_call *call,
                       struct store_change (*change)(struct edit *edit))
{
    struct edit *edit = &set->edit;
    edit->long_co = set_long_co;
    if (call->incoming == NULL)
        return edit_run_co(edit, call, call_word(call, 1), change);
    edit->call = call;
    edit->key = call_word(call, 1);
    edit->mark = reply_mark(call->reply);
    return call_key_fits(call, edit->key) && edit_finish(edit, edit_long_co(edit));
}

/* Everything but the plain SET, which need not know the old value. */
static void set_slow_co(struct command_call *call, const struct expiry_options *options,
                        uint64_t expire_ms)
{
    struct set_edit set = {
        .value = call_word(call, 2), .options = *options, .expire_ms = expire_ms};
    if (!set_run_co(&set, call, set_change) || options->get)
        return;
    if (set.stored)
        reply_ok(call->reply);
    else
        reply_null(call->reply);
}

/* SET key value [options], SETEX key seconds value or PSETEX key milliseconds value: the options, and which word
 * is the value. False: an error was replied. */
static bool set_words(struct command_call *call, struct expiry_options *options, size_t *value)
{
    bool seconds = call->command->run_co == command_setex_co;
    *options = (struct expiry_options){0};
    *value = 2;
    if (!seconds && call->command->run_co != command_psetex_co)
        return expiry_parse(call, 3, EXPIRY_SET, options);
    options->has_time = true;
    options->unit = seconds ? EXPIRY_SECONDS : EXPIRY_MS;
    options->word = 2;
    *value = 3;
    return true;
}

void command_set_co(struct command_call *call)
{
    struct slice key = call_word(call, 1);
    struct expiry_options options;
    struct value_stored stored;
    uint64_t expire_ms;
    size_t value;

    if (!set_words(call, &options, &value) || !expiry_moment(call, &options, &expire_ms))
        return;
    if (options.not_exists || options.exists || options.get || options.keep_ttl) {
        set_slow_co(call, &options, expire_ms);
        return;
    }
    if (!call_key_fits(call, key))
        return;
    enum pando_status status;
    if (call->incoming != NULL) {
        status = long_put_co(call, NULL, expire_ms);
    } else {
        status = value_store_begin(&stored, call_word(call, value), expire_ms);
        if (status == PANDO_OK)
            status = store_put_co(keyspace_table(call, key), key, stored.bytes, STORE_UPSERT);
        value_store_end(&stored);
    }
    if (status == PANDO_OK)
        reply_ok(call->reply);
    else
        reply_failure(call->reply, status);
}

void command_setex_co(struct command_call *call)
{
    command_set_co(call);
}

void command_psetex_co(struct command_call *call)
{
    command_set_co(call);
}

static struct store_change setnx_change(struct edit *edit)
{
    struct set_edit *set = container_of(edit, struct set_edit, edit);
    set->stored = !edit->found;
    return set->stored ? edit_store(edit, set->value, 0) : edit_keep();
}

void command_setnx_co(struct command_call *call)
{
    struct set_edit set = {.value = call_word(call, 2), .options = {.not_exists = true}};
    if (set_run_co(&set, call, setnx_change))
        reply_integer(call->reply, set.stored);
}

/* ---- reading and changing -------------------------------------------------------------------- */

static struct store_change getdel_change(struct edit *edit)
{
    reply_old(edit);
    return edit_remove();
}

void command_getdel_co(struct command_call *call)
{
    struct edit edit = {0};
    (void)edit_run_co(&edit, call, call_word(call, 1), getdel_change);
}

static struct store_change getset_change(struct edit *edit)
{
    struct set_edit *set = container_of(edit, struct set_edit, edit);
    reply_old(edit);
    return edit_store(edit, set->value, 0);
}

void command_getset_co(struct command_call *call)
{
    struct set_edit set = {.value = call_word(call, 2), .options = {.get = true}};
    (void)set_run_co(&set, call, getset_change);
}

static struct store_change getex_change(struct edit *edit)
{
    struct set_edit *set = container_of(edit, struct set_edit, edit);
    reply_old(edit);
    if (!edit->found)
        return edit_keep();
    if (set->options.persist)
        return edit->old.expire_ms == 0 ? edit_keep() : edit_store(edit, edit->old.data, 0);
    if (set->expire_ms <= rt_wall_ms())
        return edit_remove();
    return edit_store(edit, edit->old.data, set->expire_ms);
}

void command_getex_co(struct command_call *call)
{
    struct set_edit set = {0};
    struct slice key = call_word(call, 1);
    size_t mark = reply_mark(call->reply);
    struct glance glance;
    enum pando_status status;

    if (!expiry_parse(call, 2, EXPIRY_GETEX, &set.options))
        return;
    if (!expiry_moment(call, &set.options, &set.expire_ms)) {
        /* Of a key that is not there Redis does not look at the time. */
        if (!keyspace_glance_co(keyspace_table(call, key), key, &glance, &status) &&
            status == PANDO_NOT_FOUND) {
            reply_rewind(call->reply, mark);
            call->reply->errors--;
            reply_null(call->reply);
        }
        return;
    }
    if (!set.options.has_time && !set.options.persist)
        command_get_co(call);
    else
        (void)edit_run_co(&set.edit, call, call_word(call, 1), getex_change);
}

/* ---- parts of values ------------------------------------------------------------------------- */

struct splice_edit {
    struct edit edit;
    struct slice piece;
    size_t offset; /* SETRANGE */
    bool append;
    size_t size; /* out */
};

static struct store_change splice_change(struct edit *edit)
{
    struct splice_edit *splice = container_of(edit, struct splice_edit, edit);
    struct slice old = edit->found ? edit->old.data : slice_of(NULL, 0);
    size_t offset = splice->append ? old.size : splice->offset;
    size_t end = offset + splice->piece.size;
    uint64_t expire_ms = edit->found ? edit->old.expire_ms : 0;

    splice->size = old.size;
    if (splice->piece.size == 0 && !splice->append)
        return edit_keep();
    splice->size = end > old.size ? end : old.size;
    uint8_t first = old.size > 0 ? old.data[0] : 0;
    if (offset == 0 && splice->piece.size > 0)
        first = splice->piece.data[0];
    uint8_t *room = edit_build(edit, splice->size, first, expire_ms);
    if (room == NULL)
        return edit_keep();
    if (old.size > 0)
        memcpy(room, old.data, old.size);
    if (offset > old.size)
        memset(room + old.size, 0, offset - old.size);
    if (splice->piece.size > 0)
        memcpy(room + offset, splice->piece.data, splice->piece.size);
    return edit_store_built(edit);
}

/* The same where the old value, the piece or the new value is long. */
static enum pando_status splice_long_co(struct edit *edit)
{
    struct splice_edit *splice = container_of(edit, struct splice_edit, edit);
    struct command_call *call = edit->call;
    struct store_table *table = keyspace_table(call, edit->key);
    struct long_source piece = {.bytes = splice->piece, .size = splice->piece.size};
    struct long_look look;

    enum pando_status status = call->incoming != NULL ? long_seal_co(call->incoming, 0) : PANDO_OK;
    if (status == PANDO_OK)
        status = long_look_co(table, edit->key, &look);
    if (status != PANDO_OK)
        return status;
    struct long_source base = long_source_of(table, edit->key, &look);
    uint64_t offset = splice->append ? base.size : splice->offset;
    if (call->incoming != NULL)
        piece = long_source_of_word(call, edit->key);
    splice->size = base.size;
    if (piece.size == 0 && !splice->append)
        return PANDO_OK;
    splice->size = offset + piece.size > base.size ? offset + piece.size : base.size;
    if (call->incoming != NULL && !look.found && offset == 0)
        return long_put_co(call, &look, 0); /* it is all of the value */
    return long_replace_co(table, edit->key, &look, &base, &piece, offset,
                           look.found ? look.expire_ms : 0);
}

static bool splice_run_co(struct splice_edit *splice, struct command_call *call)
{
    struct edit *edit = &splice->edit;
    edit->long_co = splice_long_co;
    if (call->incoming == NULL)
        return edit_run_co(edit, call, call_word(call, 1), splice_change);
    edit->call = call;
    edit->key = call_word(call, 1);
    edit->mark = reply_mark(call->reply);
    return call_key_fits(call, edit->key) && edit_finish(edit, edit_long_co(edit));
}

void command_append_co(struct command_call *call)
{
    struct splice_edit splice = {.piece = call_word(call, 2), .append = true};
    if (splice_run_co(&splice, call))
        reply_integer(call->reply, (int64_t)splice.size);
}

void command_setrange_co(struct command_call *call)
{
    int64_t offset;
    struct splice_edit splice = {.piece = call_word(call, 3)};
    if (!call_integer(call, 2, &offset))
        return;
    if (offset < 0) {
        reply_error(call->reply, "ERR offset is out of range");
        return;
    }
    size_t piece = call->incoming != NULL ? call->incoming->size : splice.piece.size;
    if (piece > 0 && (uint64_t)offset + piece > VALUE_BYTES_MAX) {
        reply_failure(call->reply, PANDO_TOO_LARGE);
        return;
    }
    splice.offset = (size_t)offset;
    if (splice_run_co(&splice, call))
        reply_integer(call->reply, (int64_t)splice.size);
}

/* ---- counting -------------------------------------------------------------------------------- */

struct count_edit {
    struct edit edit;
    int64_t delta, value;
    long double float_delta;
    bool float_wanted;
    const char *wrong; /* out */
};

static struct store_change count_change(struct edit *edit)
{
    struct count_edit *count = container_of(edit, struct count_edit, edit);
    char text[NUMBER_TEXT_MAX];
    int64_t old = 0;

    count->wrong = NULL;
    if (edit->found && !number_parse(edit->old.data, &old))
        count->wrong = "ERR value is not an integer or out of range";
    else if (__builtin_add_overflow(old, count->delta, &count->value))
        count->wrong = "ERR increment or decrement would overflow";
    if (count->wrong != NULL)
        return edit_keep();
    size_t size = number_format(text, count->value);
    return edit_store(edit, slice_of(text, size), edit->found ? edit->old.expire_ms : 0);
}

/* No number is that long. */
static enum pando_status count_long_co(struct edit *edit)
{
    struct count_edit *count = container_of(edit, struct count_edit, edit);
    count->wrong = count->float_wanted ? "ERR value is not a valid float"
                                       : "ERR value is not an integer or out of range";
    return PANDO_OK;
}

static void count_co(struct command_call *call, int64_t delta)
{
    struct count_edit count = {.edit = {.long_co = count_long_co}, .delta = delta};
    if (!edit_run_co(&count.edit, call, call_word(call, 1), count_change))
        return;
    if (count.wrong != NULL)
        reply_error(call->reply, count.wrong);
    else
        reply_integer(call->reply, count.value);
}

void command_incr_co(struct command_call *call)
{
    count_co(call, 1);
}

void command_decr_co(struct command_call *call)
{
    count_co(call, -1);
}

void command_incrby_co(struct command_call *call)
{
    int64_t delta;
    if (call_integer(call, 2, &delta))
        count_co(call, delta);
}

void command_decrby_co(struct command_call *call)
{
    int64_t delta;
    if (!call_integer(call, 2, &delta))
        return;
    if (delta == INT64_MIN)
        reply_error(call->reply, "ERR decrement would overflow");
    else
        count_co(call, -delta);
}

static struct store_change count_float_change(struct edit *edit)
{
    struct count_edit *count = container_of(edit, struct count_edit, edit);
    char text[NUMBER_FLOAT_TEXT_MAX];
    long double old = 0;

    count->wrong = NULL;
    if (edit->found && !number_parse_float(edit->old.data, &old)) {
        count->wrong = "ERR value is not a valid float";
        return edit_keep();
    }
    long double value = old + count->float_delta;
    if (isnan(value) || isinf(value)) {
        count->wrong = "ERR increment would produce NaN or Infinity";
        return edit_keep();
    }
    struct slice shown = slice_of(text, number_format_float(text, value));
    reply_bulk(edit->call->reply, shown);
    return edit_store(edit, shown, edit->found ? edit->old.expire_ms : 0);
}

void command_incrbyfloat_co(struct command_call *call)
{
    struct count_edit count = {.edit = {.long_co = count_long_co}, .float_wanted = true};
    if (!number_parse_float(call_word(call, 2), &count.float_delta)) {
        reply_error(call->reply, "ERR value is not a valid float");
        return;
    }
    if (edit_run_co(&count.edit, call, call_word(call, 1), count_float_change) &&
        count.wrong != NULL)
        reply_error(call->reply, count.wrong);
}
