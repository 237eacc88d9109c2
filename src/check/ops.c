/*
 * ops.c - operations at random, and their entries in the history.
 *
 * A value says itself which write made it: 8 bytes of a number that no other write has, whose low
 * 24 bits are the size of the whole value, and then bytes that follow from the number.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "check/check_int.h"
#include "check/faults.h"

enum kind {
    KIND_GET,
    KIND_PUT,
    KIND_INSERT,
    KIND_UPDATE,
    KIND_DELETE,
    KIND_MODIFY,
    KIND_SCAN,
    KIND_BATCH,
    KIND_MOVE,
    KINDS
};

enum {
    SIZE_BITS = 24,
    BATCH = 4,
    HOT_KEYS = 6, /* half of the operations are on so many */
};

#define NOT_MADE  UINT64_MAX
#define SIZE_MASK (((uint64_t)1 << SIZE_BITS) - 1)

void check_plan_operations(struct cluster *cluster)
{
    static const unsigned usual[KINDS] = {30, 20, 10, 8, 14, 10, 6, 4, 2};
    for (unsigned i = 0; i < KINDS; i++)
        cluster->weights[i] = 1 + usual[i] / 2 + (unsigned)prng_below(&cluster->prng, usual[i]);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Bytes i to i + 7, or fewer at the end. */
static uint64_t filler(uint64_t number, size_t i)
{
    return hash_u64(number + i / 8);
}

static size_t piece(size_t i, size_t size)
{
    return size - i < sizeof(uint64_t) ? size - i : sizeof(uint64_t);
}

/* From 32 KiB up to the largest, small ones more often. */
static size_t big_size(struct cluster *cluster)
{
    size_t most = cluster->value_max >> rt_random() % 6;
    cluster->result->big_values++;
    return most / 3 + rt_random() % (most - most / 3);
}

static size_t value_size(struct cluster *cluster)
{
    static const unsigned blobs[] = {100, 600, 1500, 4000};
    if (cluster->shape.value_size != 0)
        return cluster->shape.value_size;
    uint64_t dice = rt_random() % 100;
    if (dice >= 75 && (cluster->faults & CHECK_FAULTS_BLOBS) != 0)
        return big_size(cluster);
    if (dice < 15)
        return blobs[rt_random() % 4];
    uint32_t most = cluster->shape.value_inline > 8 ? cluster->shape.value_inline : 8;
    return dice < 50 ? most : 8 + rt_random() % (most - 7);
}

/* A new value; its number. */
static uint64_t value_make(struct cluster *cluster, uint8_t *out, size_t *size)
{
    *size = value_size(cluster);
    uint64_t number = ++cluster->values << SIZE_BITS | *size;
    memcpy(out, &number, sizeof(number));
    for (size_t i = sizeof(number); i < *size; i += sizeof(number)) {
        uint64_t word = filler(number, i);
        memcpy(out + i, &word, piece(i, *size));
    }
    return number;
}

/* Its number; with a violation and NOT_MADE if it is none that anybody made. */
static uint64_t value_read(struct check_actor *actor, unsigned key, const uint8_t *bytes,
                           size_t size, const char *by)
{
    uint64_t number = 0;
    size_t i = sizeof(number);
    if (size >= sizeof(number))
        memcpy(&number, bytes, sizeof(number));
    bool good = size >= sizeof(number) && (number & SIZE_MASK) == size &&
                number >> SIZE_BITS <= actor->cluster->values && number >> SIZE_BITS != 0;
    for (; good && i < size; i += sizeof(number)) {
        uint64_t word = filler(number, i);
        if (memcmp(bytes + i, &word, piece(i, size)) != 0)
            break;
    }
    if (good && i >= size)
        return number;
    if (!fabric_sim_dead(actor->fabric))
        check_violate(actor->cluster,
                      "client %" PRIu32
                      ": a %s of key %u saw a value that nobody wrote: %zu bytes, "
                      "beginning with %" PRIx64 ", wrong from byte %zu on",
                      actor->number, by, key, size, number, good ? i : 0);
    return NOT_MADE;
}

/* ---- recording ------------------------------------------------------------------------------- */

static struct history_op begin(struct check_actor *actor, enum history_kind kind, unsigned key)
{
    struct cluster *cluster = actor->cluster;
    return (struct history_op){.kind = kind,
                               .key = key,
                               .client = actor->number,
                               .call = ++cluster->clock,
                               .call_ns = sim_now_ns(cluster->sim)};
}

static void add(struct check_actor *actor, const struct history_op *op)
{
    if (history_add(actor->cluster->history, op) != PANDO_OK)
        check_violate(actor->cluster, "out of memory for the history");
}

/* What a status says about an operation; false if it says that nothing was done. */
static bool outcome_of(struct check_actor *actor, const struct history_op *op,
                       enum pando_status status, enum history_outcome *out)
{
    struct cluster *cluster = actor->cluster;
    bool gone =
        fabric_sim_dead(actor->fabric) || pool_fenced(pool_session_pool(actor->engine->session));
    bool damaged = status == PANDO_CORRUPT && check_damaged(cluster);
    bool refused =
        (status == PANDO_EXISTS && op->kind == HISTORY_INSERT) ||
        (status == PANDO_NOT_FOUND && (op->kind == HISTORY_UPDATE || op->kind == HISTORY_DELETE));

    *out = HISTORY_UNKNOWN;
    cluster->result->corrupt += damaged;
    cluster->result->full += status == PANDO_FULL;
    if (fabric_sim_dead(actor->fabric) || damaged)
        return true;
    if (actor->alone && check_lost(cluster) && status != PANDO_OK && status != PANDO_NOT_FOUND)
        return true;
    if (status == PANDO_OK || (status == PANDO_NOT_FOUND && op->kind == HISTORY_GET))
        *out = HISTORY_DONE;
    else if (refused)
        *out = HISTORY_REFUSED;
    else if (!actor->alone &&
             (status == PANDO_FULL || status == PANDO_AGAIN || status == PANDO_NO_MEMORY))
        return false;
    else if (actor->alone || (status != PANDO_UNKNOWN && status != PANDO_BROKEN &&
                              status != PANDO_TIMEOUT && status != PANDO_FENCED && !gone))
        check_violate(cluster, "client %" PRIu32 ": an operation on key %" PRIu32 " returned '%s'",
                      actor->number, op->key, pando_status_text(status));
    return true;
}

static void finish(struct check_actor *actor, struct history_op *op, enum pando_status status)
{
    struct cluster *cluster = actor->cluster;
    static const char *const names[] = {"get", "put", "insert", "update", "delete", "modify"};
    op->done = ++cluster->clock;
    op->done_ns = sim_now_ns(cluster->sim);
    check_trace(cluster,
                "op       client %-4" PRIu32 " %-6s key %-4" PRIu32 " seen %" PRIx64
                " value %" PRIx64 ": %s (from %.3f us)%s",
                actor->number, names[op->kind], op->key, op->seen, op->value,
                pando_status_text(status), (double)op->call_ns / 1000,
                fabric_sim_dead(actor->fabric) ? ", but it is dead" : "");
    bool counts = outcome_of(actor, op, status, &op->outcome);
    cluster->result->failed += !counts || op->outcome == HISTORY_UNKNOWN;
    if (!counts)
        return;
    cluster->result->unknown += op->outcome == HISTORY_UNKNOWN && op->kind != HISTORY_GET;
    add(actor, op);
}

/* ---- single operations ----------------------------------------------------------------------- */

static struct slice key_of(const struct cluster *cluster, unsigned key)
{
    return slice_of(cluster->keys[key].bytes, cluster->keys[key].size);
}

static uint8_t *buffer_new(const struct cluster *cluster)
{
    uint8_t *buffer = malloc(cluster->value_max);
    pando_assert(buffer != NULL);
    return buffer;
}

/* Reads a value in parts: the first one says which value it is. */
static enum pando_status get_parts_co(struct check_actor *actor, unsigned key, uint8_t *buffer,
                                      size_t *size)
{
    enum { PARTS_TRIES = 100 };
    struct slice name = key_of(actor->cluster, key);
    size_t most = actor->cluster->value_max;
    enum pando_status status = PANDO_STALE;
    for (int tries = 0; tries < PARTS_TRIES && status == PANDO_STALE; tries++) {
        size_t step = most / 8 + rt_random() % (most / 3); /* each part reads whole segments */
        struct engine_part part = {.to = buffer, .capacity = step};
        status = engine_part_co(actor->engine, name, &part);
        *size = part.size;
        for (size_t at = part.got; status == PANDO_OK && at < *size && at < most; at += part.got) {
            size_t left = most - at;
            part.offset = at;
            part.to = buffer + at;
            part.capacity = step < left ? step : left;
            /* A short value has no reference: what is read now may be another. */
            status = part.reference == 0 ? PANDO_STALE : engine_part_co(actor->engine, name, &part);
        }
    }
    return status == PANDO_STALE ? PANDO_TIMEOUT : status;
}

/* Puts a value that is written in pieces before. */
static enum pando_status put_staged_co(struct check_actor *actor, unsigned key, struct slice value,
                                       enum engine_put mode)
{
    struct engine_swap swap = {.expect = ENGINE_EXPECT_NOTHING, .mode = mode};
    struct engine_stage *stage;
    size_t head = value.size < ENGINE_STAGE_HEAD_MAX ? value.size : ENGINE_STAGE_HEAD_MAX;
    struct slice name = key_of(actor->cluster, key);
    enum pando_status status = engine_stage_open_co(actor->engine, name, value.size - head, &stage);
    if (status != PANDO_OK)
        return status;
    for (size_t at = head; at < value.size && status == PANDO_OK;) {
        size_t step = 1 + rt_random() % (value.size / 2);
        step = step < value.size - at ? step : value.size - at;
        status = engine_stage_add_co(stage, slice_of(value.data + at, step));
        at += step;
    }
    if (status == PANDO_OK)
        status = engine_stage_seal_co(stage, slice_of(value.data, head), &swap.staged);
    bool sealed = status == PANDO_OK;
    if (sealed)
        status = engine_swap_co(actor->engine, name, &swap);
    engine_stage_close_co(stage, sealed && (status == PANDO_OK || status == PANDO_UNKNOWN)
                                     ? ENGINE_STAGE_TAKEN
                                     : ENGINE_STAGE_FREE);
    return status;
}

/* Whether this operation is done the way that long values are, if the engine has any. */
static bool in_parts(const struct check_actor *actor)
{
    return actor->engine->ops->part_co != NULL && actor->cluster->shape.value_size == 0 &&
           rt_random() % 4 == 0;
}

enum pando_status check_get_co(struct check_actor *actor, unsigned key)
{
    uint8_t *buffer = buffer_new(actor->cluster);
    size_t size = 0;
    struct history_op op = begin(actor, HISTORY_GET, key);
    check_doing_begin(actor->cluster, &actor->doing, "get", key);
    enum pando_status status = in_parts(actor)
                                   ? get_parts_co(actor, key, buffer, &size)
                                   : engine_get_co(actor->engine, key_of(actor->cluster, key),
                                                   buffer, actor->cluster->value_max, &size);
    check_doing_end(&actor->doing);
    if (status == PANDO_OK && size <= actor->cluster->value_max)
        op.seen = value_read(actor, key, buffer, size, "get");
    finish(actor, &op, status);
    free(buffer);
    return status;
}

enum pando_status check_put_co(struct check_actor *actor, unsigned key, enum engine_put mode)
{
    static const enum history_kind kinds[] = {HISTORY_PUT, HISTORY_INSERT, HISTORY_UPDATE};
    uint8_t *buffer = buffer_new(actor->cluster);
    size_t size;
    struct history_op op = begin(actor, kinds[mode], key);
    op.value = value_make(actor->cluster, buffer, &size);
    check_doing_begin(actor->cluster, &actor->doing, "put", key);
    struct slice value = slice_of(buffer, size);
    enum pando_status status =
        size > 1 && in_parts(actor)
            ? put_staged_co(actor, key, value, mode)
            : engine_put_co(actor->engine, key_of(actor->cluster, key), value, mode);
    check_doing_end(&actor->doing);
    finish(actor, &op, status);
    free(buffer);
    return status;
}

static void delete_co(struct check_actor *actor, unsigned key)
{
    struct history_op op = begin(actor, HISTORY_DELETE, key);
    check_doing_begin(actor->cluster, &actor->doing, "delete", key);
    enum pando_status status = engine_delete_co(actor->engine, key_of(actor->cluster, key));
    check_doing_end(&actor->doing);
    finish(actor, &op, status);
}

/* ---- read-modify-write ----------------------------------------------------------------------- */

struct modify {
    struct check_actor *actor;
    unsigned key;
    uint8_t *buffer;
    unsigned calls;
    struct history_op ops[8]; /* one for each call; the last one counts if it was done */
};

static struct engine_change modify_change(void *context, const struct slice *old)
{
    struct modify *modify = context;
    struct engine_change change = {.what = ENGINE_KEEP};
    unsigned last = modify->calls > 0 ? modify->calls - 1 : 0;
    struct history_op *op = &modify->ops[modify->calls];
    size_t size;

    /* More calls than can be remembered: nothing more is changed. */
    if (modify->calls == sizeof(modify->ops) / sizeof(modify->ops[0]))
        op = &modify->ops[last];
    else
        *op = modify->ops[last];
    op->seen =
        old != NULL ? value_read(modify->actor, modify->key, old->data, old->size, "modify") : 0;
    op->value = op->seen;
    if (modify->calls == sizeof(modify->ops) / sizeof(modify->ops[0]))
        return change;
    modify->calls++;
    switch (rt_random() % 8) {
    case 0:
        break;
    case 1:
        change.what = ENGINE_REMOVE;
        op->value = 0;
        break;
    default:
        change.what = ENGINE_STORE;
        op->value = value_make(modify->actor->cluster, modify->buffer, &size);
        change.value = slice_of(modify->buffer, size);
        break;
    }
    return change;
}

static void modify_co(struct check_actor *actor, unsigned key)
{
    struct modify modify = {.actor = actor, .key = key, .buffer = buffer_new(actor->cluster)};
    modify.ops[0] = begin(actor, HISTORY_MODIFY, key);
    check_doing_begin(actor->cluster, &actor->doing, "modify", key);
    enum pando_status status =
        engine_modify_co(actor->engine, key_of(actor->cluster, key), false, modify_change, &modify);
    check_doing_end(&actor->doing);
    if (modify.calls == 0 && status == PANDO_OK && !fabric_sim_dead(actor->fabric))
        check_violate(actor->cluster, "client %" PRIu32 ": a modify of key %u asked for no change",
                      actor->number, key);
    /* If the outcome is unknown, any of the calls may have been the one. */
    if (modify.calls > 0)
        finish(actor, &modify.ops[modify.calls - 1], status);
    for (unsigned i = 0; i + 1 < modify.calls; i++) {
        modify.ops[i].outcome = HISTORY_UNKNOWN;
        if (modify.ops[modify.calls - 1].outcome == HISTORY_UNKNOWN)
            add(actor, &modify.ops[i]);
    }
    free(modify.buffer);
}

/* ---- scans ----------------------------------------------------------------------------------- */

struct scan {
    struct check_actor *actor;
    struct history_pair *pairs;
    size_t count;
    size_t stop_at;
    bool stopped;
};

static int find_compare(const void *wanted, const void *element)
{
    const struct slice *key = wanted;
    const struct check_key *other = element;
    return slice_compare(*key, slice_of(other->bytes, other->size));
}

static bool scan_pair(void *context, struct slice key, struct slice value)
{
    struct scan *scan = context;
    struct check_actor *actor = scan->actor;
    struct cluster *cluster = actor->cluster;
    struct check_key *found =
        bsearch(&key, cluster->keys, cluster->key_count, sizeof(*cluster->keys), find_compare);

    /* What a dead client is shown says nothing. */
    if (fabric_sim_dead(actor->fabric))
        return true;
    if (found == NULL || scan->count == 2 * (size_t)cluster->key_count) {
        check_violate(cluster, "client %" PRIu32 ": a scan returned %s", actor->number,
                      found == NULL ? "a key that nobody ever wrote" : "pairs without end");
        return false;
    }
    unsigned number = (unsigned)(found - cluster->keys);
    scan->pairs[scan->count++] =
        (struct history_pair){.key = number,
                              .value = value_read(actor, number, value.data, value.size, "scan"),
                              .time = ++cluster->clock,
                              .time_ns = sim_now_ns(cluster->sim)};
    scan->stopped = scan->count == scan->stop_at;
    return !scan->stopped;
}

static enum pando_status scan_co(struct check_actor *actor, const struct engine_range *range,
                                 unsigned first, unsigned end, size_t stop_at)
{
    struct cluster *cluster = actor->cluster;
    struct scan scan = {.actor = actor, .stop_at = stop_at};
    struct history_scan record = {.first = first,
                                  .end = end,
                                  .reverse = range->reverse,
                                  .limit = range->limit,
                                  .client = actor->number,
                                  .call = ++cluster->clock,
                                  .call_ns = sim_now_ns(cluster->sim)};
    char text[256];

    scan.pairs = calloc(2 * (size_t)cluster->key_count, sizeof(*scan.pairs));
    pando_assert(scan.pairs != NULL);
    check_doing_begin(cluster, &actor->doing, "scan", first);
    enum pando_status status = engine_scan_co(actor->engine, range, scan_pair, &scan);
    check_doing_end(&actor->doing);
    record.done = ++cluster->clock;
    record.done_ns = sim_now_ns(cluster->sim);
    record.pairs = scan.pairs;
    record.count = scan.count;
    record.complete = status == PANDO_OK && !scan.stopped && !fabric_sim_dead(actor->fabric);
    check_trace(cluster,
                "op       client %-4" PRIu32 " scan   keys %u to %u%s limit %" PRIu64
                ": %zu pairs, %s (from %.3f us)",
                actor->number, first, end, range->reverse ? " reverse" : "", range->limit,
                scan.count, pando_status_text(status), (double)record.call_ns / 1000);
    if (status != PANDO_OK) {
        struct history_op op = {.kind = HISTORY_GET, .key = first < cluster->key_count ? first : 0};
        enum history_outcome outcome;
        (void)outcome_of(actor, &op, status == PANDO_NOT_FOUND ? PANDO_CORRUPT : status, &outcome);
        cluster->result->failed++;
    }
    enum pando_status added = history_add_scan(cluster->history, &record, text, sizeof(text));
    if (added != PANDO_OK)
        check_violate(cluster, "%s",
                      added == PANDO_INVALID ? text : "out of memory for the history");
    free(scan.pairs);
    return status;
}

enum pando_status check_scan_all_co(struct check_actor *actor, bool reverse)
{
    struct engine_range range = {.no_high = true, .reverse = reverse};
    return scan_co(actor, &range, 0, actor->cluster->key_count, 0);
}

/* A bound at a key, or right behind it: the key with a zero byte is the next one there is. */
static struct slice bound_at(const struct cluster *cluster, unsigned *number, uint8_t *bytes)
{
    const struct check_key *key = &cluster->keys[*number];
    size_t size = key->size;
    memcpy(bytes, key->bytes, size);
    if (rt_random() % 8 == 0) {
        bytes[size++] = 0;
        (*number)++;
    }
    return slice_of(bytes, size);
}

static void some_scan_co(struct check_actor *actor)
{
    struct cluster *cluster = actor->cluster;
    uint8_t low_bytes[CHECK_KEY_BYTES_MAX + 1], high_bytes[CHECK_KEY_BYTES_MAX + 1];
    struct engine_range range = {.reverse = rt_random() % 2 == 0};
    unsigned first = (unsigned)(rt_random() % cluster->key_count);
    unsigned end = first + (unsigned)(rt_random() % (cluster->key_count / 2 + 1));

    if (rt_random() % 8 == 0)
        first = 0; /* and no low bound */
    else
        range.low = bound_at(cluster, &first, low_bytes);
    if (end >= cluster->key_count || rt_random() % 8 == 0) {
        range.no_high = true;
        end = cluster->key_count;
    } else {
        range.high = bound_at(cluster, &end, high_bytes);
    }
    if (end < first)
        end = first;
    if (rt_random() % 2 == 0)
        range.limit = 1 + rt_random() % 12;
    (void)scan_co(actor, &range, first, end, rt_random() % 8 == 0 ? 1 + rt_random() % 6 : 0);
}

/* ---- batches --------------------------------------------------------------------------------- */

static unsigned some_key(const struct cluster *cluster)
{
    uint64_t dice = rt_random();
    if (dice % 2 == 0)
        return (unsigned)(hash_u64(cluster->options->seed + dice / 2 % HOT_KEYS) %
                          cluster->key_count);
    return (unsigned)(dice / 2 % cluster->key_count);
}

static void batch_fill(struct check_actor *actor, struct engine_batch_op *one,
                       struct history_op *op, uint8_t *buffer)
{
    static const enum history_kind kinds[] = {HISTORY_GET, HISTORY_PUT, HISTORY_DELETE};
    unsigned key = some_key(actor->cluster), kind = (unsigned)(rt_random() % 3);
    size_t size = 0;

    *op = begin(actor, kinds[kind], key);
    if (kinds[kind] == HISTORY_PUT)
        op->value = value_make(actor->cluster, buffer, &size);
    *one = (struct engine_batch_op){.key = key_of(actor->cluster, key),
                                    .value = slice_of(buffer, size),
                                    .buffer = buffer,
                                    .capacity = actor->cluster->value_max};
    one->kind = kind == 0 ? ENGINE_BATCH_GET : kind == 1 ? ENGINE_BATCH_PUT : ENGINE_BATCH_DELETE;
}

static void batch_co(struct check_actor *actor)
{
    struct engine_batch_op batch[BATCH];
    struct history_op ops[BATCH];
    uint8_t *buffers[BATCH];

    for (int i = 0; i < BATCH; i++) {
        buffers[i] = buffer_new(actor->cluster);
        batch_fill(actor, &batch[i], &ops[i], buffers[i]);
    }
    check_doing_begin(actor->cluster, &actor->doing, "batch", ops[0].key);
    engine_batch_co(actor->engine, batch, BATCH, 1 + (unsigned)(rt_random() % BATCH));
    check_doing_end(&actor->doing);
    for (int i = 0; i < BATCH; i++) {
        if (ops[i].kind == HISTORY_GET && batch[i].status == PANDO_OK)
            ops[i].seen =
                value_read(actor, ops[i].key, buffers[i], batch[i].size, "get of a batch");
        finish(actor, &ops[i], batch[i].status);
        free(buffers[i]);
    }
}

/* ---- other owners ---------------------------------------------------------------------------- */

/* Whatever it says, nothing that clients see may change. */
static void move_co(struct check_actor *actor, unsigned key)
{
    unsigned processes;
    check_doing_begin(actor->cluster, &actor->doing, "move", key);
    enum pando_status status =
        rt_random() % 8 == 0
            ? engine_spread_co(actor->engine, false, &processes)
            : engine_move_co(actor->engine, key_of(actor->cluster, key), rt_random());
    check_doing_end(&actor->doing);
    check_trace(actor->cluster, "keys from %u on get another owner: %s", key,
                pando_status_text(status));
}

/* ---- one at random --------------------------------------------------------------------------- */

/* More inserts for a while, then more deletes: the table grows and shrinks. */
static enum kind some_kind(const struct cluster *cluster)
{
    bool growing = sim_now_ns(cluster->sim) / (CHECK_LEASE_NS / 4) % 2 == 0;
    unsigned weights[KINDS], sum = 0;
    for (unsigned i = 0; i < KINDS; i++) {
        weights[i] = cluster->weights[i];
        if (i == (growing ? KIND_INSERT : KIND_DELETE))
            weights[i] *= 3;
        sum += weights[i];
    }
    unsigned dice = (unsigned)(rt_random() % sum), kind = 0;
    while (dice >= weights[kind])
        dice -= weights[kind++];
    return (enum kind)kind;
}

bool check_operate_co(struct check_actor *actor)
{
    struct cluster *cluster = actor->cluster;
    unsigned key = some_key(cluster);

    switch (some_kind(cluster)) {
    case KIND_GET:
        (void)check_get_co(actor, key);
        break;
    case KIND_PUT:
        (void)check_put_co(actor, key, ENGINE_UPSERT);
        break;
    case KIND_INSERT:
        (void)check_put_co(actor, key, ENGINE_INSERT);
        break;
    case KIND_UPDATE:
        (void)check_put_co(actor, key, ENGINE_UPDATE);
        break;
    case KIND_DELETE:
        delete_co(actor, key);
        break;
    case KIND_MODIFY:
        modify_co(actor, key);
        break;
    case KIND_SCAN:
        some_scan_co(actor);
        break;
    case KIND_BATCH:
        batch_co(actor);
        break;
    case KIND_MOVE:
        move_co(actor, key);
        break;
    case KINDS:
        break;
    }
    return !fabric_sim_dead(actor->fabric) &&
           !pool_fenced(pool_session_pool(actor->engine->session));
}

/* ---- bulk load ------------------------------------------------------------------------------- */

struct load {
    struct check_actor *actor;
    unsigned next, percent;
    uint8_t *buffer;
    struct history_op *ops; /* one for each pair */
    unsigned count;
};

static bool load_next(void *context, struct slice *key, struct slice *value)
{
    struct load *load = context;
    struct cluster *cluster = load->actor->cluster;
    size_t size;

    while (load->next < cluster->key_count && rt_random() % 100 >= load->percent)
        load->next++;
    if (load->next >= cluster->key_count)
        return false;
    struct history_op op = begin(load->actor, HISTORY_PUT, load->next);
    op.value = value_make(cluster, load->buffer, &size);
    load->ops[load->count++] = op;
    *key = key_of(cluster, load->next++);
    *value = slice_of(load->buffer, size);
    return true;
}

void check_load_co(struct check_actor *actor, unsigned percent, unsigned fill)
{
    struct cluster *cluster = actor->cluster;
    struct load load = {.actor = actor, .percent = percent, .buffer = buffer_new(cluster)};
    load.ops = calloc(cluster->key_count, sizeof(*load.ops));
    pando_assert(load.ops != NULL);
    enum pando_status status = engine_bulk_load_co(actor->engine, load_next, &load, fill);
    if (status == PANDO_FULL && (cluster->faults & CHECK_FAULTS_FULL) != 0)
        cluster->result->full++;
    else if (status != PANDO_OK)
        check_violate(cluster, "the bulk load returned '%s'", pando_status_text(status));
    /* Of a load that failed some pairs may be there. */
    for (unsigned i = 0; i < load.count; i++) {
        struct history_op *op = &load.ops[i];
        op->done = ++cluster->clock;
        op->done_ns = sim_now_ns(cluster->sim);
        op->outcome = status == PANDO_OK ? HISTORY_DONE : HISTORY_UNKNOWN;
        add(actor, op);
    }
    free(load.ops);
    free(load.buffer);
}
