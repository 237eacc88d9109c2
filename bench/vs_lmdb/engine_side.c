#include "engine_side.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "engine/engine.h"
#include "rt/rt.h"

enum {
    TURN_OPERATIONS = 512, /* between two turns of the loop: it also sends the heartbeat */
    SHOW_PAIRS = 1 << 16,
};

static const char TABLE[] = "vs-lmdb";

struct engine_side {
    const struct engine_side_options *options;
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct engine *engine;
    /* Of a batch. */
    struct engine_batch_op *operations;
    uint64_t *keys, *values;
};

/* ---- opening --------------------------------------------------------------------------------- */

static bool failed(enum pando_status status, const char *what, char *error, size_t error_bytes)
{
    if (status == PANDO_OK)
        return false;
    if (error[0] == '\0')
        snprintf(error, error_bytes, "%s: %s", what, pando_status_text(status));
    return true;
}

static bool make_batch(struct engine_side *side)
{
    size_t count = side->options->batch;
    side->operations = calloc(count, sizeof(*side->operations));
    side->keys = calloc(count, sizeof(*side->keys));
    side->values = calloc(count, sizeof(*side->values));
    if (side->operations == NULL || side->keys == NULL || side->values == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        side->operations[i] = (struct engine_batch_op){
            .kind = ENGINE_BATCH_GET,
            .key = slice_of(&side->keys[i], sizeof(side->keys[i])),
            .buffer = &side->values[i],
            .capacity = sizeof(side->values[i]),
        };
    return true;
}

static bool open_table_co(struct engine_side *side, char *error, size_t error_bytes)
{
    const struct engine_side_options *options = side->options;
    const struct engine_shape shape = {.key_size = 8, .value_size = 8};
    const struct engine_config config = {
        .without = options->without, .with = options->with, .cache_bytes = options->cache_bytes};

    if (failed(engine_create_co(options->engine, side->session, TABLE, &shape), "creating a table",
               error, error_bytes))
        return false;
    if (failed(engine_open_co(options->engine, side->session, TABLE, &config, &side->table, error,
                              error_bytes),
               "opening the table", error, error_bytes))
        return false;
    return !failed(engine_attach_co(side->table, side->session, &side->engine),
                   "attaching to the table", error, error_bytes);
}

bool engine_side_open_co(const struct env_place *place, const struct engine_side_options *options,
                         struct engine_side **out, char *error, size_t error_bytes)
{
    struct pool_options pool = {.memory_nodes = 1, .name = "vs-lmdb"};
    struct engine_side *side = calloc(1, sizeof(*side));

    error[0] = '\0';
    if (side == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return false;
    }
    side->options = options;
    if (!make_batch(side))
        snprintf(error, error_bytes, "out of memory for batches; use a smaller --batch");
    else if (!failed(pool_join_co(place->fabric, &pool, &side->pool, error, error_bytes),
                     "joining the pool", error, error_bytes) &&
             !failed(pool_session_open_co(side->pool, &side->session), "opening a session", error,
                     error_bytes) &&
             open_table_co(side, error, error_bytes)) {
        *out = side;
        return true;
    }
    engine_side_close_co(side);
    return false;
}

void engine_side_close_co(struct engine_side *side)
{
    if (side == NULL)
        return;
    if (side->engine != NULL)
        engine_detach_co(side->engine);
    if (side->table != NULL)
        engine_close_co(side->table, side->session);
    if (side->session != NULL)
        pool_session_close_co(side->session);
    if (side->pool != NULL)
        pool_leave_co(side->pool);
    free(side->operations);
    free(side->keys);
    free(side->values);
    free(side);
}

/* ---- loading --------------------------------------------------------------------------------- */

struct feed {
    uint64_t next, records;
    uint64_t key, value;
    void (*loaded)(void *context, uint64_t pairs);
    void *context;
};

static bool feed_next(void *context, struct slice *key, struct slice *value)
{
    struct feed *feed = context;
    if (feed->next == feed->records)
        return false;
    if (feed->next % SHOW_PAIRS == 0)
        feed->loaded(feed->context, feed->next);
    feed->key = htobe64(work_key(feed->next));
    feed->value = work_value(feed->next);
    feed->next++;
    *key = slice_of(&feed->key, sizeof(feed->key));
    *value = slice_of(&feed->value, sizeof(feed->value));
    return true;
}

bool engine_side_load_co(struct engine_side *side, uint64_t records,
                         void (*loaded)(void *context, uint64_t pairs), void *context, char *error,
                         size_t error_bytes)
{
    struct feed feed = {.records = records, .loaded = loaded, .context = context};
    error[0] = '\0';
    enum pando_status status =
        engine_bulk_load_co(side->engine, feed_next, &feed, side->options->fill);
    if (status == PANDO_FULL)
        snprintf(error, error_bytes, "loading: the pool is full; give it more with --pool-size");
    return !failed(status, "loading", error, error_bytes);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void turn_co(size_t done)
{
    if (done % TURN_OPERATIONS == 0)
        rt_yield_co();
}

static enum pando_status search_co(struct engine_side *side, const struct work_round *round,
                                   struct work_result *result)
{
    for (size_t i = 0; i < round->count; i++) {
        uint64_t key = htobe64(round->keys[i]), value = 0;
        size_t size;
        enum pando_status status =
            engine_get_co(side->engine, slice_of(&key, sizeof(key)), &value, sizeof(value), &size);
        if (status == PANDO_OK) {
            result->sum += value;
            result->pairs++;
        } else if (status != PANDO_NOT_FOUND) {
            return status;
        }
        turn_co(i);
    }
    return PANDO_OK;
}

static bool scanned(void *context, struct slice key, struct slice value)
{
    struct work_result *result = context;
    uint64_t found;
    (void)key;
    memcpy(&found, value.data, sizeof(found));
    result->sum += found;
    result->pairs++;
    return true;
}

static enum pando_status scan_co(struct engine_side *side, const struct work_round *round,
                                 struct work_result *result)
{
    for (size_t i = 0; i < round->count; i++) {
        uint64_t key = htobe64(round->keys[i]);
        struct engine_range range = {
            .low = slice_of(&key, sizeof(key)), .no_high = true, .limit = WORK_SCAN_PAIRS};
        enum pando_status status = engine_scan_co(side->engine, &range, scanned, result);
        if (status != PANDO_OK)
            return status;
        turn_co(i);
    }
    return PANDO_OK;
}

/* In batches of as many as LMDB commits at once: both sides' are safe when theirs returns. All keys are
 * there, so that a put is an update. */
static enum pando_status update_co(struct engine_side *side, const struct work_round *round,
                                   struct work_result *result)
{
    struct engine_batch_op puts[WORK_COMMIT_UPDATES];
    uint64_t keys[WORK_COMMIT_UPDATES], values[WORK_COMMIT_UPDATES];

    for (size_t i = 0; i < round->count; i += WORK_COMMIT_UPDATES) {
        size_t count =
            round->count - i < WORK_COMMIT_UPDATES ? round->count - i : WORK_COMMIT_UPDATES;
        for (size_t k = 0; k < count; k++) {
            keys[k] = htobe64(round->keys[i + k]);
            values[k] = work_new_value(round->keys[i + k], round->salt);
            puts[k] = (struct engine_batch_op){.kind = ENGINE_BATCH_PUT,
                                               .key = slice_of(&keys[k], sizeof(keys[k])),
                                               .value = slice_of(&values[k], sizeof(values[k]))};
        }
        engine_batch_co(side->engine, puts, count, WORK_IN_FLIGHT);
        for (size_t k = 0; k < count; k++) {
            if (puts[k].status != PANDO_OK)
                return puts[k].status;
        }
        result->pairs += count;
        rt_yield_co();
    }
    return PANDO_OK;
}

/* One call of engine_batch_co. */
static enum pando_status batch_one_co(struct engine_side *side, const uint64_t *keys, size_t count,
                                      struct work_result *result)
{
    for (size_t i = 0; i < count; i++)
        side->keys[i] = htobe64(keys[i]);
    engine_batch_co(side->engine, side->operations, count, WORK_IN_FLIGHT);
    for (size_t i = 0; i < count; i++) {
        enum pando_status status = side->operations[i].status;
        if (status == PANDO_OK) {
            result->sum += side->values[i];
            result->pairs++;
        } else if (status != PANDO_NOT_FOUND) {
            return status;
        }
    }
    return PANDO_OK;
}

static enum pando_status batch_co(struct engine_side *side, const struct work_round *round,
                                  struct work_result *result)
{
    size_t batch = side->options->batch, since_turn = 0;
    for (size_t i = 0; i < round->count; i += batch) {
        size_t count = round->count - i < batch ? round->count - i : batch;
        enum pando_status status = batch_one_co(side, round->keys + i, count, result);
        if (status != PANDO_OK)
            return status;
        since_turn += count;
        if (since_turn >= TURN_OPERATIONS) {
            since_turn = 0;
            rt_yield_co();
        }
    }
    return PANDO_OK;
}

static void finish(struct work_result *result, const char *what, uint64_t begin_ns,
                   enum pando_status status)
{
    result->ns = rt_machine_ns() - begin_ns;
    if (status != PANDO_OK)
        snprintf(result->error, sizeof(result->error), "engine: %s: %s", what,
                 pando_status_text(status));
}

void engine_side_run_co(struct engine_side *side, const struct work_round *round,
                        struct work_result *result)
{
    static const struct {
        const char *what;
        enum pando_status (*run_co)(struct engine_side *, const struct work_round *,
                                    struct work_result *);
    } jobs[WORK_JOBS] = {
        [WORK_SEARCH] = {"search", search_co},
        [WORK_SCAN] = {"scan", scan_co},
        [WORK_UPDATE] = {"update", update_co},
        [WORK_BATCH] = {"batch search", batch_co},
    };
    uint64_t begin_ns = rt_machine_ns();
    *result = (struct work_result){0};
    enum pando_status status = jobs[round->job].run_co(side, round, result);
    finish(result, jobs[round->job].what, begin_ns, status);
}

static bool counted(void *context, struct slice key, struct slice value)
{
    struct work_result *result = context;
    uint64_t pair[2];
    memcpy(&pair[0], key.data, 8);
    memcpy(&pair[1], value.data, 8);
    result->sum += work_fingerprint(be64toh(pair[0]), pair[1]);
    result->pairs++;
    return true;
}

void engine_side_census_co(struct engine_side *side, struct work_result *result)
{
    struct engine_range range = {.no_high = true};
    uint64_t begin_ns = rt_machine_ns();
    *result = (struct work_result){0};
    enum pando_status status = engine_scan_co(side->engine, &range, counted, result);
    finish(result, "scan of everything", begin_ns, status);
}
