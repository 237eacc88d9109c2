#include "compare.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bare_tree.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "lmdb_side.h"
#include "rt/rt.h"

enum {
    PAIR_BYTES = 16,
    SHOW_MS = 100,
};

static const struct compare_line lines[WORK_JOBS] = {
    [WORK_SEARCH] = {.name = "search", .what = "search", .other = "LMDB", .target = 1.5},
    [WORK_SCAN] = {.name = "scan", .what = "scan of 100 pairs", .other = "LMDB", .target = 1.0},
    [WORK_UPDATE] = {.name = "update",
                     .what = "update (100 a commit, batch)",
                     .other = "LMDB",
                     .target = 5.0},
    [WORK_BATCH] = {.name = "batch_search",
                    .what = "search, 16 in flight",
                    .other = "bare tree",
                    .target = 0.5},
};

/* Of --operations, so that all take about as long. */
static const double SHARE[WORK_JOBS] = {
    [WORK_SEARCH] = 1, [WORK_SCAN] = 0.05, [WORK_UPDATE] = 0.25, [WORK_BATCH] = 2};

/* Updates come last: what the others must find is then what was loaded. */
static const enum work_job ORDER[WORK_JOBS] = {WORK_SEARCH, WORK_SCAN, WORK_BATCH, WORK_UPDATE};

struct compare {
    const struct compare_plan *plan;
    struct compare_outcome *outcome;
    struct engine_side *engine;
    struct lmdb_side *lmdb;
    struct bare_tree *bare;
    struct progress progress;
    struct prng prng;
    uint64_t *keys;
    uint64_t pairs_done;
    unsigned rounds_done;

    /* What the helper thread is to do, and how far it is. */
    const struct work_round *round;
    struct work_result *result;
    uint64_t lmdb_loaded;
    bool ok;
};

__attribute__((format(printf, 2, 3))) static bool fail(struct compare *compare, const char *format,
                                                       ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(compare->outcome->error, sizeof(compare->outcome->error), format, arguments);
    va_end(arguments);
    return false;
}

/* What blocks is done by a helper thread: the loop goes on sending the member's heartbeat. */
static bool helped_co(struct compare *compare, rt_fn fn)
{
    enum pando_status status = rt_blocking_co(fn, compare);
    if (status != PANDO_OK)
        return fail(compare, "starting a helper thread: %s", pando_status_text(status));
    return true;
}

/* ---- loading --------------------------------------------------------------------------------- */

static void show_loaded(void *context, uint64_t pairs)
{
    struct compare *compare = context;
    progress_show(&compare->progress, (double)pairs / (double)compare->plan->records, pairs,
                  pairs * PAIR_BYTES);
}

static bool load_engine_co(struct compare *compare)
{
    progress_begin(&compare->progress, "loading the engine");
    bool ok = engine_side_load_co(compare->engine, compare->plan->records, show_loaded, compare,
                                  compare->outcome->error, sizeof(compare->outcome->error));
    compare->outcome->engine_load_seconds = (double)progress_end_ns(&compare->progress) / 1e9;
    return ok;
}

static void load_lmdb(void *arg)
{
    struct compare *compare = arg;
    struct compare_outcome *outcome = compare->outcome;
    compare->ok = lmdb_side_open(compare->plan->lmdb_directory, compare->plan->records,
                                 &compare->lmdb, outcome->error, sizeof(outcome->error)) &&
                  lmdb_side_load(compare->lmdb, compare->plan->records, &compare->lmdb_loaded,
                                 outcome->error, sizeof(outcome->error));
}

/* Draws while the helper works. */
static void watch_lmdb(void *arg)
{
    struct compare *compare = arg;
    uint64_t loaded;
    do {
        rt_sleep_co(SHOW_MS * RT_NS_PER_MS);
        loaded = __atomic_load_n(&compare->lmdb_loaded, __ATOMIC_RELAXED);
        if (loaded != UINT64_MAX)
            show_loaded(compare, loaded);
    } while (loaded != UINT64_MAX);
}

static bool load_lmdb_co(struct compare *compare)
{
    progress_begin(&compare->progress, "loading LMDB");
    if (compare->progress.terminal && rt_spawn(rt_loop_self(), watch_lmdb, compare) != PANDO_OK)
        return fail(compare, "out of memory");
    bool ok = helped_co(compare, load_lmdb) && compare->ok;
    __atomic_store_n(&compare->lmdb_loaded, UINT64_MAX, __ATOMIC_RELAXED);
    compare->outcome->lmdb_load_seconds = (double)progress_end_ns(&compare->progress) / 1e9;
    return ok;
}

static void tried_bare(const struct bare_tree *tree, double rate)
{
    printf("bare tree, nodes of %4zu B%s: %6.2f M/s\n", bare_tree_node_bytes(tree),
           bare_tree_late_values(tree) ? ", values fetched late" : "", rate / 1e6);
    fflush(stdout);
}

static void build_bare(void *arg)
{
    struct compare *compare = arg;
    compare->bare =
        bare_tree_create(compare->plan->records, compare->plan->bare_node_bytes, tried_bare);
}

static bool build_bare_co(struct compare *compare)
{
    if (!helped_co(compare, build_bare))
        return false;
    if (compare->bare == NULL)
        return fail(compare, "out of memory for the bare tree; use fewer RECORDS");
    compare->outcome->bare_node_bytes = bare_tree_node_bytes(compare->bare);
    compare->outcome->bare_late_values = bare_tree_late_values(compare->bare);
    compare->outcome->bare_wide = bare_tree_wide(compare->bare);
    return true;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void run_other(void *arg)
{
    struct compare *compare = arg;
    if (compare->round->job == WORK_BATCH)
        bare_tree_run(compare->bare, compare->round, compare->result);
    else
        lmdb_side_run(compare->lmdb, compare->round, compare->result);
}

static bool run_side_co(struct compare *compare, bool engine, const struct work_round *round,
                        struct work_result *result)
{
    compare->round = round;
    compare->result = result;
    if (engine)
        engine_side_run_co(compare->engine, round, result);
    else if (!helped_co(compare, run_other))
        return false;
    const char *side = engine ? "the engine" : lines[round->job].other;
    return work_result_check(round, result, side) || fail(compare, "%s", result->error);
}

/* Every pair once on both sides, in order: an engine may keep leaves or pairs. */
static bool touch_co(struct compare *compare)
{
    struct work_round round = {.job = WORK_SEARCH, .keys = compare->keys};
    uint64_t records = compare->plan->records, record = 0;
    struct work_result result;

    progress_begin(&compare->progress, "filling caches");
    while (record < records) {
        round.count = round.pairs = round.sum = 0;
        for (; record < records && round.count < compare->plan->operations; record++) {
            compare->keys[round.count++] = work_key(record);
            round.sum += work_value(record);
        }
        round.pairs = round.count;
        if (!run_side_co(compare, true, &round, &result) ||
            !run_side_co(compare, false, &round, &result))
            return false;
        show_loaded(compare, record < records ? record : records);
    }
    progress_end_ns(&compare->progress);
    return true;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *numbers, unsigned count)
{
    qsort(numbers, count, sizeof(*numbers), ascending);
    return count % 2 == 1 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

/* Both sides, in turns the first, on the same keys; rates in operations per second. */
static bool round_co(struct compare *compare, struct compare_line *line, unsigned number,
                     double rates[2])
{
    struct work_round round;
    struct work_result result;
    work_round_draw(&round, line->job, &compare->prng, compare->plan->records, compare->keys,
                    line->operations);
    for (unsigned turn = 0; turn < 2; turn++) {
        bool other = (turn == 0) == (number % 2 == 1);
        if (!run_side_co(compare, !other, &round, &result))
            return false;
        compare->pairs_done += result.pairs;
        rates[other] = (double)line->operations * 1e9 / (double)(result.ns > 0 ? result.ns : 1);
    }
    return true;
}

static void show_measured(struct compare *compare)
{
    double rounds = (double)WORK_JOBS * (compare->plan->rounds + 1);
    compare->rounds_done++;
    progress_show(&compare->progress, compare->rounds_done / rounds, compare->pairs_done,
                  compare->pairs_done * PAIR_BYTES);
}

/* The first round warms up and is not counted. */
static bool line_co(struct compare *compare, struct compare_line *line)
{
    double engine[COMPARE_ROUNDS_MAX], other[COMPARE_ROUNDS_MAX], ratio[COMPARE_ROUNDS_MAX];
    unsigned rounds = compare->plan->rounds;

    for (unsigned i = 0; i <= rounds; i++) {
        double rates[2];
        if (!round_co(compare, line, i, rates))
            return false;
        show_measured(compare);
        if (i == 0)
            continue;
        engine[i - 1] = rates[0];
        other[i - 1] = rates[1];
        ratio[i - 1] = rates[0] / rates[1];
    }
    line->engine_rate = median(engine, rounds);
    line->other_rate = median(other, rounds);
    line->ratio = median(ratio, rounds);
    line->ratio_least = ratio[0];
    line->ratio_most = ratio[rounds - 1];
    return true;
}

static size_t operations_of(const struct compare_plan *plan, enum work_job job)
{
    size_t count = (size_t)((double)plan->operations * SHARE[job]);
    return (count + WORK_IN_FLIGHT - 1) / WORK_IN_FLIGHT * WORK_IN_FLIGHT;
}

static bool measure_co(struct compare *compare)
{
    progress_begin(&compare->progress, "measuring");
    for (int i = 0; i < WORK_JOBS; i++) {
        enum work_job job = ORDER[i];
        struct compare_line *line = &compare->outcome->lines[job];
        *line = lines[job];
        line->job = job;
        line->operations = operations_of(compare->plan, job);
        if (!line_co(compare, line))
            return false;
    }
    progress_end_ns(&compare->progress);
    return true;
}

/* ---- checking -------------------------------------------------------------------------------- */

static void census_lmdb(void *arg)
{
    struct compare *compare = arg;
    lmdb_side_census(compare->lmdb, compare->result);
}

/* After the updates both sides have the same pairs, and not those that were loaded. */
static bool check_co(struct compare *compare)
{
    struct work_result engine, lmdb;
    uint64_t records = compare->plan->records;

    compare->result = &lmdb;
    engine_side_census_co(compare->engine, &engine);
    if (!helped_co(compare, census_lmdb))
        return false;
    if (engine.error[0] != '\0' || lmdb.error[0] != '\0')
        return fail(compare, "%s", engine.error[0] != '\0' ? engine.error : lmdb.error);
    if (engine.pairs != records || lmdb.pairs != records || engine.sum != lmdb.sum)
        return fail(compare,
                    "after the updates the engine and LMDB do not have the same pairs; the "
                    "figures mean nothing");
    if (engine.sum == work_fingerprint_loaded(records))
        return fail(compare, "the updates changed nothing; the figures mean nothing");
    return true;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void main_co(void *context, const struct env_place *place)
{
    struct compare *compare = context;
    struct compare_outcome *outcome = compare->outcome;

    if (!engine_side_open_co(place, &compare->plan->engine, &compare->engine, outcome->error,
                             sizeof(outcome->error)))
        return;
    compare->ok = false;
    bool ok = load_engine_co(compare) && load_lmdb_co(compare) && build_bare_co(compare) &&
              touch_co(compare) && measure_co(compare) && check_co(compare);
    progress_end_ns(&compare->progress);
    engine_side_close_co(compare->engine);
    compare->ok = ok;
}

bool compare_run(struct env *env, const struct compare_plan *plan, struct compare_outcome *outcome)
{
    struct compare compare = {.plan = plan, .outcome = outcome};
    size_t most = operations_of(plan, WORK_BATCH);

    memset(outcome, 0, sizeof(*outcome));
    prng_seed(&compare.prng, plan->seed);
    compare.keys = malloc(most * sizeof(*compare.keys));
    if (compare.keys == NULL)
        return fail(&compare, "out of memory for %zu keys; use a smaller --operations", most);
    enum pando_status status = env_run(env, 1, main_co, &compare);
    if (status != PANDO_OK)
        compare.ok = fail(&compare, "%s", pando_status_text(status));
    lmdb_side_close(compare.lmdb);
    bare_tree_destroy(compare.bare);
    free(compare.keys);
    return compare.ok;
}
