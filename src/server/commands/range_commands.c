/*
 * range_commands.c - RI commands: ordered tables of their own, keys and values as they are.
 *
 * The table of RI name "x" is "ri:x". Ranges include both ends; an empty start is the first key and an
 * empty end the last.
 */
#include <stdlib.h>

#include "server/keyspace.h"
#include "server/parallel.h"
#include "server/resp/pattern.h"
#include "server/tries.h"
#include "store/engines.h"

enum {
    NAME_MAX_BYTES = STORE_NAME_MAX - 4, /* "ri:" and the end */
    KEY_USUAL = 128,
    INLINE_USUAL = 128,
    GET_ROOM = 1024,
    STEP_PAIRS = 1024,
};

static const char PREFIX[] = "ri:";

/* ---- tables ---------------------------------------------------------------------------------- */

/* False: not a name, which was replied. */
static bool table_name(struct command_call *call, char out[STORE_NAME_MAX])
{
    struct slice name = call_word(call, 1);
    bool fine = name.size > 0 && name.size <= NAME_MAX_BYTES;
    for (size_t i = 0; fine && i < name.size; i++)
        fine = name.data[i] > ' ' && name.data[i] < 0x7f;
    if (!fine) {
        reply_errorf(call->reply,
                     "ERR invalid index name: 1 to %d printable characters without spaces",
                     (int)NAME_MAX_BYTES);
        return false;
    }
    memcpy(out, PREFIX, sizeof(PREFIX) - 1);
    memcpy(out + sizeof(PREFIX) - 1, name.data, name.size);
    out[sizeof(PREFIX) - 1 + name.size] = '\0';
    return true;
}

static struct range_table *opened_table(struct server_thread *thread, const char *name)
{
    for (unsigned i = 0; i < thread->range_table_count; i++) {
        if (strcmp(thread->range_tables[i].name, name) == 0)
            return &thread->range_tables[i];
    }
    return NULL;
}

static void forget_table(struct server_thread *thread, const char *name)
{
    struct range_table *found = opened_table(thread, name);
    if (found == NULL)
        return;
    store_table_close(found->table);
    *found = thread->range_tables[--thread->range_table_count];
}

static struct store_table *hold(struct command_call *call, struct store_table *table)
{
    store_table_hold(table);
    call->held = table;
    return table;
}

/* Stays open until the call has ended. NULL: an error was replied. */
static struct store_table *table_of_co(struct command_call *call)
{
    struct server_thread *thread = call->thread;
    char name[STORE_NAME_MAX], error[SERVER_ERROR_BYTES] = "";
    struct store_table *table;

    if (!table_name(call, name))
        return NULL;
    struct range_table *found = opened_table(thread, name);
    if (found != NULL && store_table_attached(found->table))
        return hold(call, found->table);
    forget_table(thread, name); /* it may have been dropped, and there may be a new one */
    enum pando_status status =
        store_table_open_co(thread->store, name, &table, error, sizeof(error));
    if (status == PANDO_NOT_FOUND) {
        reply_errorf(
            call->reply,
            "ERR no such index '%s': it was dropped, or never made; make it with RI.CREATE",
            name + sizeof(PREFIX) - 1);
        return NULL;
    }
    if (status != PANDO_OK) {
        reply_failure(call->reply, status);
        return NULL;
    }
    found = opened_table(thread, name); /* another task may have been first */
    if (found != NULL) {
        store_table_close(table);
        return hold(call, found->table);
    }
    if (thread->range_table_count == SERVER_RANGE_TABLES_MAX) {
        store_table_close(table);
        forget_table(thread, thread->range_tables[0].name);
        return table_of_co(call);
    }
    found = &thread->range_tables[thread->range_table_count++];
    memcpy(found->name, name, sizeof(found->name));
    found->table = table;
    return hold(call, table);
}

/* A failure on an index, which may be that it was dropped while the command ran. */
static void index_failed(struct command_call *call, const struct store_table *table,
                         enum pando_status status)
{
    struct slice name = call_word(call, 1);
    if (store_table_dropped(table))
        reply_errorf(call->reply, "ERR index '%.*s' was dropped while the command ran",
                     (int)name.size, (const char *)name.data);
    else
        reply_failure(call->reply, status);
}

/* Whether the status says that a key is not there, and not that its index is not. */
static bool key_missing(const struct store_table *table, enum pando_status status)
{
    return status == PANDO_NOT_FOUND && !store_table_dropped(table);
}

struct create_options {
    char engine[STORE_ENGINE_NAME_MAX];
    struct store_shape shape;
};

static bool create_options(struct command_call *call, struct create_options *out)
{
    *out = (struct create_options){.shape = {.key_max = KEY_USUAL, .value_inline = INLINE_USUAL}};
    for (size_t i = 2; i < call->count; i += 2) {
        int64_t number = 0;
        bool has_value = i + 1 < call->count;
        if (has_value && call_word_is(call, i, "engine")) {
            struct slice word = call_word(call, i + 1);
            size_t size = word.size < sizeof(out->engine) - 1 ? word.size : sizeof(out->engine) - 1;
            memcpy(out->engine, word.data, size);
            out->engine[size] = '\0';
        } else if (has_value && call_word_is(call, i, "keymax")) {
            if (!call_integer(call, i + 1, &number))
                return false;
            if (number < 1 || number > STORE_KEY_MAX) {
                reply_errorf(call->reply, "ERR KEYMAX is not from 1 to %d", (int)STORE_KEY_MAX);
                return false;
            }
            out->shape.key_max = (uint32_t)number;
        } else if (has_value && call_word_is(call, i, "inline")) {
            if (!call_integer(call, i + 1, &number))
                return false;
            if (number < 8 || number > 4096) {
                reply_error(call->reply, "ERR INLINE is not from 8 to 4096");
                return false;
            }
            out->shape.value_inline = (uint32_t)number;
        } else {
            reply_error(call->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

void command_ri_create_co(struct command_call *call)
{
    struct create_options options;
    char name[STORE_NAME_MAX], error[SERVER_ERROR_BYTES] = "";

    if (!table_name(call, name) || !create_options(call, &options))
        return;
    forget_table(call->thread, name); /* a handle of one that was dropped elsewhere */
    enum pando_status status = store_table_create_co(
        call->thread->store, name, options.engine[0] == '\0' ? NULL : options.engine,
        &options.shape, error, sizeof(error));
    if (status == PANDO_OK)
        reply_ok(call->reply);
    else if (status == PANDO_EXISTS)
        reply_error(call->reply, "ERR index already exists");
    else if (status == PANDO_INVALID || status == PANDO_TOO_LARGE)
        reply_errorf(call->reply, "ERR %s", error);
    else if (status == PANDO_FULL)
        reply_errorf(call->reply, "OOM %s", error);
    else
        reply_failure(call->reply, status);
}

static bool name_is_free_co(struct server_thread *thread, const char *name)
{
    char error[SERVER_ERROR_BYTES];
    struct store_table *table;
    enum pando_status status =
        store_table_open_co(thread->store, name, &table, error, sizeof(error));
    if (status == PANDO_OK)
        store_table_close(table);
    return status == PANDO_NOT_FOUND;
}

void command_ri_drop_co(struct command_call *call)
{
    char name[STORE_NAME_MAX];
    if (!table_name(call, name))
        return;
    forget_table(call->thread, name);
    enum pando_status status = store_table_drop_co(call->thread->store, name);
    if (status == PANDO_TIMEOUT && name_is_free_co(call->thread, name))
        status = PANDO_OK; /* its memory comes back when nobody uses it any more */
    if (status == PANDO_OK)
        reply_integer(call->reply, 1);
    else if (status == PANDO_NOT_FOUND)
        reply_integer(call->reply, 0);
    else
        reply_failure(call->reply, status);
}

void command_ri_list_co(struct command_call *call)
{
    struct store_table_info *tables = NULL;
    unsigned count = 0;
    enum pando_status status = store_table_list_co(call->thread->store, &tables, &count);
    if (status != PANDO_OK) {
        reply_failure(call->reply, status);
        return;
    }
    size_t array = reply_array_begin(call->reply);
    uint64_t shown = 0;
    for (unsigned i = 0; i < count; i++) {
        if (strncmp(tables[i].name, PREFIX, sizeof(PREFIX) - 1) != 0)
            continue;
        reply_text(call->reply, tables[i].name + sizeof(PREFIX) - 1);
        shown++;
    }
    reply_array_end(call->reply, array, shown);
    free(tables);
}

/* ---- one key --------------------------------------------------------------------------------- */

static bool key_fits(struct command_call *call, const struct store_table *table, struct slice key)
{
    if (key.size <= store_table_shape(table)->key_max)
        return true;
    reply_errorf(call->reply, "ERR key of %zu bytes: this index has keys of at most %u", key.size,
                 store_table_shape(table)->key_max);
    return false;
}

void command_ri_set_co(struct command_call *call)
{
    struct store_table *table = table_of_co(call);
    struct slice key = call_word(call, 2);
    if (table == NULL || !key_fits(call, table, key))
        return;
    enum pando_status status = store_put_co(table, key, call_word(call, 3), STORE_UPSERT);
    if (status == PANDO_OK)
        reply_ok(call->reply);
    else
        index_failed(call, table, status);
}

static void get_co(struct command_call *call, struct store_table *table, struct slice key)
{
    size_t room_size = GET_ROOM, size;
    enum pando_status status = PANDO_TIMEOUT;

    for (int i = 0; i < TRIES_TO_READ; i++) {
        uint8_t *room = reply_bulk_begin(call->reply, room_size);
        if (room == NULL)
            return;
        status = key.size > store_table_shape(table)->key_max
                     ? PANDO_NOT_FOUND
                     : store_get_co(table, key, room, room_size, &size);
        if (key_missing(table, status)) {
            reply_null(call->reply);
            return;
        }
        if (status != PANDO_OK)
            break;
        if (size <= room_size) {
            reply_bulk_end(call->reply, 0, size);
            return;
        }
        room_size = size;
        status = PANDO_TIMEOUT;
    }
    index_failed(call, table, status);
}

void command_ri_get_co(struct command_call *call)
{
    struct store_table *table = table_of_co(call);
    if (table != NULL)
        get_co(call, table, call_word(call, 2));
}

/* ---- several keys ---------------------------------------------------------------------------- */

struct several {
    struct command_call *call;
    struct store_table *table;
    size_t first; /* word */
    int64_t count;
    uint64_t changed;
    enum pando_status status;
};

static void several_failed(struct several *several, enum pando_status status)
{
    several->status = failure_of(several->status, status);
}

static bool delete_one_co(void *context, size_t index)
{
    struct several *several = context;
    enum pando_status status =
        store_delete_co(several->table, call_word(several->call, several->first + index));
    if (status == PANDO_OK)
        several->count++;
    else if (!key_missing(several->table, status) && status != PANDO_TOO_LARGE)
        several_failed(several, status);
    several->changed += status == PANDO_OK;
    return several->status == PANDO_OK;
}

static bool exists_one_co(void *context, size_t index)
{
    struct several *several = context;
    uint8_t byte;
    size_t size;
    enum pando_status status = store_get_co(
        several->table, call_word(several->call, several->first + index), &byte, 1, &size);
    if (status == PANDO_OK)
        several->count++;
    else if (!key_missing(several->table, status) && status != PANDO_TOO_LARGE)
        several_failed(several, status);
    return several->status == PANDO_OK;
}

/* Some of them may have been done, which is of no account if all are gone. */
static void reply_several_failed(struct command_call *call, const struct several *several)
{
    if (several->changed == 0 || store_table_dropped(several->table))
        index_failed(call, several->table, several->status);
    else
        reply_failure_after(call->reply, several->status, several->changed);
}

static void several_co(struct command_call *call, bool (*fn_co)(void *context, size_t index))
{
    struct several several = {.call = call, .table = table_of_co(call), .first = 2};
    if (several.table == NULL)
        return;
    parallel_co(call->thread, call->count - 2, fn_co, &several);
    if (several.status == PANDO_OK)
        reply_integer(call->reply, several.count);
    else
        reply_several_failed(call, &several);
}

void command_ri_del_co(struct command_call *call)
{
    several_co(call, delete_one_co);
}

void command_ri_exists_co(struct command_call *call)
{
    several_co(call, exists_one_co);
}

void command_ri_mget_co(struct command_call *call)
{
    struct store_table *table = table_of_co(call);
    size_t mark = reply_mark(call->reply);
    unsigned errors = call->reply->errors;
    if (table == NULL)
        return;
    reply_array(call->reply, call->count - 2);
    for (size_t i = 2; i < call->count; i++) {
        size_t before = reply_mark(call->reply);
        get_co(call, table, call_word(call, i));
        if (call->reply->errors == errors)
            continue;
        size_t size = reply_mark(call->reply) - before;
        uint8_t *front = bytes_front(&call->reply->bytes);
        memmove(front + mark, front + before, size); /* the error alone */
        reply_rewind(call->reply, mark + size);
        return;
    }
}

static bool set_one_co(void *context, size_t index)
{
    struct several *several = context;
    size_t word = several->first + 2 * index;
    enum pando_status status = store_put_co(several->table, call_word(several->call, word),
                                            call_word(several->call, word + 1), STORE_UPSERT);
    if (status != PANDO_OK)
        several_failed(several, status);
    several->changed += status == PANDO_OK;
    return several->status == PANDO_OK;
}

/* Pairs with the same key do not overlap: the last one counts. */
static bool has_duplicates(const struct command_call *call)
{
    if (call->count > 2 + 2 * 64)
        return true; /* not worth finding out */
    for (size_t i = 2; i < call->count; i += 2) {
        for (size_t j = 2; j < i; j += 2) {
            if (slice_equal(call_word(call, i), call_word(call, j)))
                return true;
        }
    }
    return false;
}

void command_ri_mset_co(struct command_call *call)
{
    struct several several = {.call = call, .first = 2};
    if (call->count % 2 != 0) {
        reply_error(call->reply, "ERR wrong number of arguments for 'ri.mset' command");
        return;
    }
    several.table = table_of_co(call);
    if (several.table == NULL)
        return;
    for (size_t i = 2; i < call->count; i += 2) {
        if (!key_fits(call, several.table, call_word(call, i)))
            return;
    }
    size_t count = (call->count - 2) / 2;
    if (has_duplicates(call)) {
        for (size_t i = 0; i < count && set_one_co(&several, i); i++)
            continue;
    } else {
        parallel_co(call->thread, count, set_one_co, &several);
    }
    if (several.status == PANDO_OK)
        reply_ok(call->reply);
    else
        reply_several_failed(call, &several);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* What a scan does with its pairs, and where it goes on after a pause. */
struct ranging {
    struct reply *reply; /* NULL: only counts */
    bool keys_alone;     /* in the reply */
    struct slice end;    /* inclusive, where has_end */
    bool has_end;
    uint64_t limit; /* 0: none */
    uint64_t step, seen_in_step;
    uint64_t count;
    uint8_t last[STORE_KEY_MAX];
    size_t last_size;
    bool resumed; /* last was seen in the step before */
    bool over;
};

/* Without touching the room for a key, which is a kilobyte. */
static void ranging_init(struct ranging *ranging, uint64_t limit)
{
    ranging->reply = NULL;
    ranging->end = (struct slice){0};
    ranging->keys_alone = ranging->has_end = ranging->resumed = ranging->over = false;
    ranging->limit = limit;
    ranging->step = ranging->seen_in_step = ranging->count = 0;
    ranging->last_size = 0;
}

static bool ranging_pair(void *context, struct slice key, struct slice value)
{
    struct ranging *ranging = context;
    if (ranging->resumed && key.size == ranging->last_size &&
        memcmp(key.data, ranging->last, key.size) == 0)
        return true;
    if (ranging->has_end && slice_compare(key, ranging->end) > 0) {
        ranging->over = true;
        return false;
    }
    if (ranging->reply != NULL) {
        reply_bulk(ranging->reply, key);
        if (!ranging->keys_alone)
            reply_bulk(ranging->reply, value);
        ranging->over = ranging->reply->overflow;
    }
    ranging->count++;
    ranging->seen_in_step++;
    if (ranging->seen_in_step == ranging->step) { /* to go on behind it */
        if (key.size > 0)
            memcpy(ranging->last, key.data, key.size);
        ranging->last_size = key.size;
    }
    ranging->over |= ranging->limit != 0 && ranging->count >= ranging->limit;
    return !ranging->over && ranging->seen_in_step < ranging->step;
}

/* Steps through the range, letting others run in between. */
static enum pando_status ranging_co(struct store_table *table, struct store_range range,
                                    struct ranging *ranging)
{
    enum pando_status status = PANDO_OK;
    ranging->step = STEP_PAIRS;
    while (status == PANDO_OK && !ranging->over) {
        uint64_t left = ranging->limit == 0 ? STEP_PAIRS : ranging->limit - ranging->count;
        ranging->seen_in_step = 0;
        range.limit = (left < STEP_PAIRS ? left : STEP_PAIRS) + ranging->resumed;
        status = store_scan_co(table, &range, ranging_pair, ranging);
        if (ranging->seen_in_step < ranging->step)
            break; /* the end of the table or of the range */
        struct slice last = slice_of(ranging->last, ranging->last_size);
        if (range.reverse) {
            range.high = last; /* exclusive */
            range.no_high = false;
        } else {
            range.low = last;
            ranging->resumed = true;
        }
        rt_yield_co();
    }
    return status;
}

/* What may be asked of a range. */
struct range_options {
    uint64_t limit; /* 0: none */
    bool reverse, keys_alone;
};

static void range_reply_co(struct command_call *call, struct store_table *table,
                           struct store_range range, struct slice end, bool has_end,
                           const struct range_options *options)
{
    struct ranging ranging;
    ranging_init(&ranging, options->limit);
    ranging.reply = call->reply;
    ranging.keys_alone = options->keys_alone;
    ranging.end = end;
    ranging.has_end = has_end;
    size_t array = reply_array_begin(call->reply);
    enum pando_status status = ranging_co(table, range, &ranging);
    if (status == PANDO_OK) {
        reply_array_end(call->reply, array, ranging.count * (options->keys_alone ? 1 : 2));
    } else {
        reply_rewind(call->reply, array);
        index_failed(call, table, status);
    }
}

static bool parse_count(struct command_call *call, size_t word, uint64_t *out)
{
    int64_t count;
    if (!call_integer(call, word, &count))
        return false;
    if (count < 1) {
        reply_error(call->reply, "ERR COUNT must be positive");
        return false;
    }
    *out = (uint64_t)count;
    return true;
}

/* The words from `first` on, in any order; false: the error is in the reply. */
static bool parse_range_options(struct command_call *call, size_t first, bool may_reverse,
                                struct range_options *out)
{
    *out = (struct range_options){0};
    for (size_t i = first; i < call->count; i++) {
        if (call_word_is(call, i, "novalues")) {
            out->keys_alone = true;
        } else if (may_reverse && call_word_is(call, i, "rev")) {
            out->reverse = true;
        } else if (call_word_is(call, i, "count") && i + 1 < call->count) {
            if (!parse_count(call, ++i, &out->limit))
                return false;
        } else {
            reply_error(call->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

/* RI.SCAN name start COUNT n [NOVALUES] */
void command_ri_scan_co(struct command_call *call)
{
    struct store_table *table = table_of_co(call);
    struct slice start = call_word(call, 2);
    struct range_options options;
    if (table == NULL || !parse_range_options(call, 3, false, &options))
        return;
    if (options.limit == 0) {
        reply_error(call->reply, "ERR syntax error");
        return;
    }
    if (key_fits(call, table, start))
        range_reply_co(call, table, (struct store_range){.low = start, .no_high = true},
                       (struct slice){0}, false, &options);
}

/* RI.RANGE name start end [COUNT n] [REV] [NOVALUES] */
void command_ri_range_co(struct command_call *call)
{
    struct store_table *table = table_of_co(call);
    struct slice start = call_word(call, 2), end = call_word(call, 3);
    uint8_t above[STORE_KEY_MAX + 1];
    struct range_options options;

    if (table == NULL || !parse_range_options(call, 4, true, &options))
        return;
    if (!key_fits(call, table, start) || !key_fits(call, table, end))
        return;
    struct store_range range = {.low = start, .no_high = true, .reverse = options.reverse};
    if (options.reverse && end.size > 0) {
        /* Going down, the end comes first: begin just above it. */
        memcpy(above, end.data, end.size);
        above[end.size] = 0;
        range.high = slice_of(above, end.size + 1);
        range.no_high = false;
        if (range.high.size > STORE_KEY_MAX) {
            size_t size = prefix_end(above, end.size);
            range.high = slice_of(above, size);
            range.no_high = size == 0;
        }
        range_reply_co(call, table, range, end, false, &options);
        return;
    }
    range_reply_co(call, table, range, end, end.size > 0, &options);
}

/* The keys that begin with word 2; the end is written to `high`. */
static struct store_range prefix_range(const struct command_call *call, uint8_t *high)
{
    struct slice prefix = call_word(call, 2);
    if (prefix.size > 0)
        memcpy(high, prefix.data, prefix.size);
    size_t size = prefix_end(high, prefix.size);
    return (struct store_range){.low = prefix, .high = slice_of(high, size), .no_high = size == 0};
}

/* RI.PREFIX name prefix [COUNT n] [NOVALUES] */
void command_ri_prefix_co(struct command_call *call)
{
    struct store_table *table = table_of_co(call);
    uint8_t high[STORE_KEY_MAX];
    struct range_options options;
    if (table == NULL || !parse_range_options(call, 3, false, &options) ||
        !key_fits(call, table, call_word(call, 2)))
        return;
    range_reply_co(call, table, prefix_range(call, high), (struct slice){0}, false, &options);
}

/* ---- counting and deleting ------------------------------------------------------------------- */

void command_ri_len_co(struct command_call *call)
{
    struct store_table *table = table_of_co(call);
    struct ranging ranging;
    if (table == NULL)
        return;
    ranging_init(&ranging, 0);
    enum pando_status status = ranging_co(table, (struct store_range){.no_high = true}, &ranging);
    if (status == PANDO_OK)
        reply_integer(call->reply, (int64_t)ranging.count);
    else
        index_failed(call, table, status);
}

struct doomed {
    struct store_table *table;
    uint8_t *bytes;
    size_t used, capacity;
    uint32_t offsets[STEP_PAIRS + 1];
    unsigned count;
    int64_t deleted;
    enum pando_status status;
};

static bool doomed_pair(void *context, struct slice key, struct slice value)
{
    struct doomed *doomed = context;
    (void)value;
    if (doomed->capacity - doomed->used < key.size)
        return false;
    memcpy(doomed->bytes + doomed->used, key.data, key.size);
    doomed->used += key.size;
    doomed->offsets[++doomed->count] = (uint32_t)doomed->used;
    return doomed->count < STEP_PAIRS;
}

static bool doomed_delete_co(void *context, size_t index)
{
    struct doomed *doomed = context;
    uint32_t from = doomed->offsets[index], to = doomed->offsets[index + 1];
    enum pando_status status =
        store_delete_co(doomed->table, slice_of(doomed->bytes + from, to - from));
    if (status == PANDO_OK)
        doomed->deleted++;
    else if (!key_missing(doomed->table, status))
        doomed->status = failure_of(doomed->status, status);
    return doomed->status == PANDO_OK;
}

static enum pando_status delete_prefix_co(struct command_call *call, struct doomed *doomed)
{
    uint8_t high[STORE_KEY_MAX];
    struct store_range range = prefix_range(call, high);
    enum pando_status status = PANDO_OK;
    do {
        doomed->count = 0;
        doomed->used = 0;
        status = may_go_on(call->thread);
        if (status == PANDO_OK)
            status = store_scan_co(doomed->table, &range, doomed_pair, doomed);
        if (status == PANDO_OK)
            parallel_co(call->thread, doomed->count, doomed_delete_co, doomed);
        rt_yield_co();
    } while (status == PANDO_OK && doomed->status == PANDO_OK && doomed->count > 0);
    return status == PANDO_OK ? doomed->status : status;
}

void command_ri_delprefix_co(struct command_call *call)
{
    struct store_table *table = table_of_co(call);
    if (table == NULL || !key_fits(call, table, call_word(call, 2)))
        return;
    struct doomed *doomed = calloc(1, sizeof(*doomed));
    if (doomed != NULL) {
        doomed->table = table;
        doomed->capacity = (size_t)STEP_PAIRS * 64 + STORE_KEY_MAX;
        doomed->bytes = malloc(doomed->capacity);
    }
    enum pando_status status =
        doomed == NULL || doomed->bytes == NULL ? PANDO_NO_MEMORY : delete_prefix_co(call, doomed);
    if (status == PANDO_OK)
        reply_integer(call->reply, doomed->deleted);
    else if (doomed == NULL || doomed->deleted == 0 || store_table_dropped(table))
        index_failed(call, table, status);
    else
        reply_failure_after(call->reply, status, (uint64_t)doomed->deleted);
    if (doomed != NULL)
        free(doomed->bytes);
    free(doomed);
}
