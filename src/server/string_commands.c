/*
 * string_commands.c - GET, SET and their kin: one value under one key.
 */
#include <math.h>
#include <stdlib.h>

#include "server/expiry.h"
#include "server/keyspace.h"
#include "server/number.h"

enum { GET_ROOM = 1024, READ_TRIES = 8 };

/* ---- reading --------------------------------------------------------------------------------- */

/* Writes the value as a bulk string; false: it is not there, and nothing was written. */
static bool read_value_co(struct call *call, struct slice key, enum pando_status *status)
{
    struct store_table *table = keyspace_table(call, key);
    struct stats_thread *stats = &call->thread->stats;
    size_t room_size = GET_ROOM, size;
    struct value value;

    *status = PANDO_NOT_FOUND;
    if (key.size > KEYSPACE_KEY_MAX)
        return false;
    for (int i = 0; i < READ_TRIES; i++) {
        uint8_t *room = reply_bulk_begin(call->reply, room_size);
        if (room == NULL) {
            *status = PANDO_OK; /* over the limit: the connection ends */
            return true;
        }
        *status = store_get_co(table, key, room, room_size, &size);
        if (*status != PANDO_OK)
            break;
        if (size > room_size) { /* and may have changed when it is read again */
            room_size = size;
            *status = PANDO_TIMEOUT;
            continue;
        }
        if (!value_read(slice_of(room, size), &value)) {
            *status = PANDO_VERSION;
            return false;
        }
        if (value_expired(&value)) {
            *status = PANDO_NOT_FOUND;
            break;
        }
        reply_bulk_end(call->reply, (size_t)(value.data.data - room), value.data.size);
        stats_add(&stats->hits, 1);
        return true;
    }
    stats_add(&stats->misses, 1);
    return false;
}

void command_get_co(struct call *call)
{
    enum pando_status status;
    if (read_value_co(call, call_word(call, 1), &status))
        return;
    if (status == PANDO_NOT_FOUND)
        reply_null(call->reply);
    else
        reply_failure(call->reply, status);
}

void command_strlen_co(struct call *call)
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

static struct slice part_of(struct slice whole, int64_t start, int64_t end)
{
    int64_t size = (int64_t)whole.size;
    if (start < 0 && end < 0 && start > end)
        return slice_of(NULL, 0);
    start = start < 0 ? start + size : start;
    end = end < 0 ? end + size : end;
    start = start < 0 ? 0 : start;
    end = end < 0 ? 0 : end;
    end = end >= size ? size - 1 : end;
    if (start > end || size == 0)
        return slice_of(NULL, 0);
    return slice_of(whole.data + start, (size_t)(end - start + 1));
}

void command_getrange_co(struct call *call)
{
    int64_t start, end;
    enum pando_status status;
    size_t mark = reply_mark(call->reply);

    if (!call_integer(call, 2, &start) || !call_integer(call, 3, &end))
        return;
    if (!read_value_co(call, call_word(call, 1), &status)) {
        if (status == PANDO_NOT_FOUND)
            reply_bulk(call->reply, slice_of(NULL, 0));
        else
            reply_failure(call->reply, status);
        return;
    }
    if (call->reply->overflow)
        return;
    /* The whole value lies in the reply: replace it by its part, which is not longer. */
    uint8_t *written = bytes_front(&call->reply->bytes) + mark;
    size_t size = reply_mark(call->reply) - mark;
    const uint8_t *line = memchr(written, '\n', size);
    struct slice whole = slice_of(line + 1, size - (size_t)(line + 1 - written) - 2);
    struct slice part = part_of(whole, start, end);
    uint8_t *copy = malloc(part.size + 1);
    reply_rewind(call->reply, mark);
    if (copy == NULL) {
        reply_failure(call->reply, PANDO_NO_MEMORY);
        return;
    }
    if (part.size > 0)
        memcpy(copy, part.data, part.size);
    reply_bulk(call->reply, slice_of(copy, part.size));
    free(copy);
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

static struct engine_change set_change(struct edit *edit)
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

/* Everything but the plain SET, which need not know the old value. */
static void set_slow_co(struct call *call, const struct expiry_options *options, uint64_t expire_ms)
{
    struct set_edit set = {
        .value = call_word(call, 2), .options = *options, .expire_ms = expire_ms};
    if (!edit_run_co(&set.edit, call, call_word(call, 1), set_change) || options->get)
        return;
    if (set.stored)
        reply_ok(call->reply);
    else
        reply_null(call->reply);
}

static void put_and_reply_co(struct call *call, size_t word, uint64_t expire_ms)
{
    struct slice key = call_word(call, 1);
    if (!call_key_fits(call, key))
        return;
    enum pando_status status = keyspace_put_co(call, key, word, expire_ms, ENGINE_UPSERT);
    if (status == PANDO_OK)
        reply_ok(call->reply);
    else
        reply_failure(call->reply, status);
}

void command_set_co(struct call *call)
{
    struct expiry_options options = {0};
    uint64_t expire_ms = 0;

    if (call->count > 3 && (!expiry_parse(call, 3, EXPIRY_SET, &options) ||
                            !expiry_moment(call, &options, &expire_ms)))
        return;
    if (options.not_exists || options.exists || options.get || options.keep_ttl)
        set_slow_co(call, &options, expire_ms);
    else
        put_and_reply_co(call, 2, expire_ms);
}

static struct engine_change setnx_change(struct edit *edit)
{
    struct set_edit *set = container_of(edit, struct set_edit, edit);
    set->stored = !edit->found;
    return set->stored ? edit_store(edit, set->value, 0) : edit_keep();
}

void command_setnx_co(struct call *call)
{
    struct set_edit set = {.value = call_word(call, 2)};
    if (edit_run_co(&set.edit, call, call_word(call, 1), setnx_change))
        reply_integer(call->reply, set.stored);
}

static void set_expiring_co(struct call *call, bool seconds)
{
    struct expiry_options options = {.has_time = true, .seconds = seconds, .word = 2};
    uint64_t expire_ms;
    if (expiry_moment(call, &options, &expire_ms))
        put_and_reply_co(call, 3, expire_ms);
}

void command_setex_co(struct call *call)
{
    set_expiring_co(call, true);
}

void command_psetex_co(struct call *call)
{
    set_expiring_co(call, false);
}

/* ---- reading and changing -------------------------------------------------------------------- */

static struct engine_change getdel_change(struct edit *edit)
{
    reply_old(edit);
    return edit_remove();
}

void command_getdel_co(struct call *call)
{
    struct edit edit = {0};
    (void)edit_run_co(&edit, call, call_word(call, 1), getdel_change);
}

static struct engine_change getset_change(struct edit *edit)
{
    struct set_edit *set = container_of(edit, struct set_edit, edit);
    reply_old(edit);
    return edit_store(edit, set->value, 0);
}

void command_getset_co(struct call *call)
{
    struct set_edit set = {.value = call_word(call, 2)};
    (void)edit_run_co(&set.edit, call, call_word(call, 1), getset_change);
}

static struct engine_change getex_change(struct edit *edit)
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

void command_getex_co(struct call *call)
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

static struct engine_change splice_change(struct edit *edit)
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

void command_append_co(struct call *call)
{
    struct splice_edit splice = {.piece = call_word(call, 2), .append = true};
    if (edit_run_co(&splice.edit, call, call_word(call, 1), splice_change))
        reply_integer(call->reply, (int64_t)splice.size);
}

void command_setrange_co(struct call *call)
{
    int64_t offset;
    struct splice_edit splice = {.piece = call_word(call, 3)};
    if (!call_integer(call, 2, &offset))
        return;
    if (offset < 0) {
        reply_error(call->reply, "ERR offset is out of range");
        return;
    }
    if (splice.piece.size > 0 && (uint64_t)offset + splice.piece.size > VALUE_BYTES_MAX) {
        reply_failure(call->reply, PANDO_TOO_LARGE);
        return;
    }
    splice.offset = (size_t)offset;
    if (edit_run_co(&splice.edit, call, call_word(call, 1), splice_change))
        reply_integer(call->reply, (int64_t)splice.size);
}

/* ---- counting -------------------------------------------------------------------------------- */

struct count_edit {
    struct edit edit;
    int64_t delta, value;
    long double float_delta;
    const char *wrong; /* out */
};

static struct engine_change count_change(struct edit *edit)
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

static void count_co(struct call *call, int64_t delta)
{
    struct count_edit count = {.delta = delta};
    if (!edit_run_co(&count.edit, call, call_word(call, 1), count_change))
        return;
    if (count.wrong != NULL)
        reply_error(call->reply, count.wrong);
    else
        reply_integer(call->reply, count.value);
}

void command_incr_co(struct call *call)
{
    count_co(call, 1);
}

void command_decr_co(struct call *call)
{
    count_co(call, -1);
}

void command_incrby_co(struct call *call)
{
    int64_t delta;
    if (call_integer(call, 2, &delta))
        count_co(call, delta);
}

void command_decrby_co(struct call *call)
{
    int64_t delta;
    if (!call_integer(call, 2, &delta))
        return;
    if (delta == INT64_MIN)
        reply_error(call->reply, "ERR decrement would overflow");
    else
        count_co(call, -delta);
}

static struct engine_change count_float_change(struct edit *edit)
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

void command_incrbyfloat_co(struct call *call)
{
    struct count_edit count = {0};
    if (!number_parse_float(call_word(call, 2), &count.float_delta)) {
        reply_error(call->reply, "ERR value is not a valid float");
        return;
    }
    if (edit_run_co(&count.edit, call, call_word(call, 1), count_float_change) &&
        count.wrong != NULL)
        reply_error(call->reply, count.wrong);
}
