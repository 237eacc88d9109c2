/*
 * main.c - options and report of bench/vs-lmdb.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/vfs.h>

#include "bare_tree.h"
#include "cmd/cmd.h"
#include "compare.h"
#include "lmdb_side.h"
#include "store/engines.h"

static const char NAME[] = "vs-lmdb";
static const long TMPFS = 0x01021994; /* TMPFS_MAGIC of linux/magic.h */

struct settings {
    const char *without, *with, *json, *lmdb_directory;
    uint64_t cache, pool_size, fill, operations, rounds, batch, bare_node, seed;
    bool judge;
};

static const struct config_option options[] = {
    {.name = "without",
     .metavar = "LIST",
     .help = "Techniques of the engine to switch off, with commas.",
     CONFIG_TEXT_INTO(struct settings, without)},
    {.name = "with",
     .metavar = "LIST",
     .help = "Techniques of the engine to switch on that are off unless they are named, with "
             "commas.",
     CONFIG_TEXT_INTO(struct settings, with)},
    {.name = "cache",
     .metavar = "SIZE",
     .help = "The engine's cache; room for everything if not given.",
     CONFIG_SIZE_INTO(struct settings, cache)},
    {.name = "pool-size",
     .metavar = "SIZE",
     .help = "Memory of the embedded pool; room for twice the records if not given.",
     CONFIG_SIZE_INTO(struct settings, pool_size)},
    {.name = "fill",
     .metavar = "PERCENT",
     .help = "How full the engine's nodes are loaded; LMDB's and the bare tree's are full.",
     .default_text = "80",
     CONFIG_U64_INTO(struct settings, fill)},
    {.name = "rounds",
     .metavar = "N",
     .help = "Rounds of each comparison, of which the median counts: from 5 to 99.",
     .default_text = "7",
     CONFIG_U64_INTO(struct settings, rounds)},
    {.name = "operations",
     .metavar = "N",
     .help = "Searches of a round; there are twice as many in batches, a quarter as many "
             "updates, and a twentieth scans.",
     .default_text = "400000",
     CONFIG_U64_INTO(struct settings, operations)},
    {.name = "batch",
     .metavar = "N",
     .help = "Lookups given to the engine at a time, of which 16 are in flight: from 16 to 4096.",
     .default_text = "256",
     CONFIG_U64_INTO(struct settings, batch)},
    {.name = "bare-node",
     .metavar = "BYTES",
     .help = "Of the bare tree's nodes: 128, 256, 384, 512 or 1024; the fastest if not given.",
     CONFIG_SIZE_INTO(struct settings, bare_node)},
    {.name = "lmdb-directory",
     .metavar = "DIRECTORY",
     .help = "Where LMDB's files are made (and removed at once): a tmpfs, so that no disk counts. "
             "One mounted with huge=always gives LMDB large pages too.",
     .default_text = "/dev/shm",
     CONFIG_TEXT_INTO(struct settings, lmdb_directory)},
    {.name = "judge",
     .help = "Exit with status 1 if a ratio misses its target.",
     CONFIG_BOOL_INTO(struct settings, judge)},
    {.name = "seed",
     .metavar = "N",
     .help = "Of the random keys.",
     .default_text = "1",
     CONFIG_U64_INTO(struct settings, seed)},
    {.name = "json",
     .metavar = "FILE",
     .help = "Also write all numbers as JSON to FILE.",
     CONFIG_TEXT_INTO(struct settings, json)},
};

static const struct config_command command = {
    .name = NAME,
    .summary = "Compares an engine with LMDB, and with a bare tree in memory, on one thread: pairs "
               "of 8 and 8 bytes, 10,000,000 of them if RECORDS is not given.",
    .positionals = "[RECORDS] [ENGINE]",
    .positionals_max = 2,
    .example = "bench/vs-lmdb build 10000000 sherman --json vs-lmdb.json",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

/* ---- options --------------------------------------------------------------------------------- */

static int check_numbers(const struct settings *settings, const struct compare_plan *plan)
{
    const struct {
        const char *name;
        uint64_t value, min, max;
    } numbers[] = {
        {"RECORDS", plan->records, 1000, WORK_RECORDS_MAX},
        {"--fill", settings->fill, 10, 100},
        {"--rounds", settings->rounds, 5, COMPARE_ROUNDS_MAX},
        {"--operations", settings->operations, 1000, 100000000},
        {"--batch", settings->batch, WORK_IN_FLIGHT, 4096},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i].value < numbers[i].min || numbers[i].value > numbers[i].max)
            return cmd_usage(NAME, "%s: %" PRIu64 " is not from %" PRIu64 " to %" PRIu64,
                             numbers[i].name, numbers[i].value, numbers[i].min, numbers[i].max);
    }
    if (settings->bare_node != 0 && !bare_tree_has(settings->bare_node))
        return cmd_usage(NAME, "--bare-node: %" PRIu64 " is not 128, 256, 384, 512 or 1024",
                         settings->bare_node);
    return EXIT_OK;
}

static int make_plan(const struct config *config, const struct settings *settings,
                     struct compare_plan *plan)
{
    *plan = (struct compare_plan){
        .engine_name = config->positional_count > 1 ? config->positionals[1] : "sherman",
        .lmdb_directory = settings->lmdb_directory,
        .records = 10000000,
        .operations = settings->operations,
        .bare_node_bytes = settings->bare_node,
        .rounds = (unsigned)settings->rounds,
        .seed = settings->seed,
    };
    if (config->positional_count > 0 &&
        parse_u64(config->positionals[0], &plan->records) != PANDO_OK)
        return cmd_usage(NAME, "RECORDS: '%.32s' is not a number; use for example 10000000",
                         config->positionals[0]);
    int result = check_numbers(settings, plan);
    if (result != EXIT_OK)
        return result;
    uint64_t room = plan->records * 64 + ((uint64_t)512 << 20);
    plan->pool_bytes = settings->pool_size > 0 ? settings->pool_size : room;
    plan->engine = (struct engine_side_options){
        .engine = store_engine(plan->engine_name),
        .without = settings->without,
        .with = settings->with,
        .cache_bytes = settings->cache > 0 ? settings->cache : room,
        .fill = (unsigned)settings->fill,
        .batch = (unsigned)settings->batch,
    };
    if (plan->engine.engine == NULL)
        return cmd_usage(NAME, "ENGINE: there is no engine '%.32s'; use %s", plan->engine_name,
                         store_engine_names());
    return EXIT_OK;
}

/* ---- report ---------------------------------------------------------------------------------- */

static bool on_tmpfs(const char *directory)
{
    struct statfs found;
    return statfs(directory, &found) == 0 && found.f_type == TMPFS;
}

static void print_head(const struct compare_plan *plan)
{
    printf("%s%s%s%s%s, %" PRIu64 " records of 8 + 8 B, one thread; %s, %s%s\n", plan->engine_name,
           plan->engine.without != NULL ? " without " : "",
           plan->engine.without != NULL ? plan->engine.without : "",
           plan->engine.with != NULL ? " with " : "",
           plan->engine.with != NULL ? plan->engine.with : "", plan->records, lmdb_side_version(),
           on_tmpfs(plan->lmdb_directory) ? "on a tmpfs, " : "",
           on_tmpfs(plan->lmdb_directory) ? "no syncs" : "NOT ON A TMPFS: a disk may count");
    fflush(stdout);
}

static unsigned print_lines(const struct compare_plan *plan, const struct compare_outcome *outcome)
{
    unsigned missed = 0;
    printf("%-28s %12s %12s  %-10s %8s %15s\n", "millions a second", plan->engine_name, "other", "",
           "ratio", "least..most");
    for (int i = 0; i < WORK_JOBS; i++) {
        const struct compare_line *line = &outcome->lines[i];
        bool low = line->ratio < line->target;
        missed += low;
        printf("%-28s %12.3f %12.3f  %-10s %7.2fx %7.2f..%-6.2f (target %.1fx)%s\n", line->what,
               line->engine_rate / 1e6, line->other_rate / 1e6, line->other, line->ratio,
               line->ratio_least, line->ratio_most, line->target, low ? "  MISSED" : "");
    }
    return missed;
}

static void add_text(struct json *json, const char *key, const char *text)
{
    json_key(json, key);
    if (text != NULL)
        json_string(json, text);
    else
        json_null(json);
}

static void add_u64(struct json *json, const char *key, uint64_t value)
{
    json_key(json, key);
    json_u64(json, value);
}

static void add_double(struct json *json, const char *key, double value)
{
    json_key(json, key);
    json_double(json, value);
}

static void add_lines(struct json *json, const struct compare_outcome *outcome)
{
    json_key(json, "comparisons");
    json_begin_array(json);
    for (int i = 0; i < WORK_JOBS; i++) {
        const struct compare_line *line = &outcome->lines[i];
        json_begin_object(json);
        add_text(json, "name", line->name);
        add_text(json, "other", line->other);
        add_u64(json, "operations", line->operations);
        add_double(json, "engine_per_second", line->engine_rate);
        add_double(json, "other_per_second", line->other_rate);
        add_double(json, "ratio", line->ratio);
        add_double(json, "ratio_least", line->ratio_least);
        add_double(json, "ratio_most", line->ratio_most);
        add_double(json, "target", line->target);
        json_end_object(json);
    }
    json_end_array(json);
}

static bool write_json(const char *path, const struct compare_plan *plan,
                       const struct compare_outcome *outcome)
{
    struct json json;
    json_init(&json);
    json_begin_object(&json);
    add_text(&json, "engine", plan->engine_name);
    add_text(&json, "without", plan->engine.without);
    add_text(&json, "with", plan->engine.with);
    add_text(&json, "lmdb", lmdb_side_version());
    add_u64(&json, "records", plan->records);
    add_u64(&json, "rounds", plan->rounds);
    add_u64(&json, "cache_bytes", plan->engine.cache_bytes);
    add_u64(&json, "fill", plan->engine.fill);
    add_u64(&json, "batch", plan->engine.batch);
    add_u64(&json, "in_flight", WORK_IN_FLIGHT);
    add_u64(&json, "bare_node_bytes", outcome->bare_node_bytes);
    json_key(&json, "bare_late_values");
    json_bool(&json, outcome->bare_late_values);
    json_key(&json, "bare_avx512");
    json_bool(&json, outcome->bare_wide);
    add_double(&json, "engine_load_seconds", outcome->engine_load_seconds);
    add_double(&json, "lmdb_load_seconds", outcome->lmdb_load_seconds);
    add_lines(&json, outcome);
    json_end_object(&json);
    bool ok = cmd_write_json(NAME, &json, path);
    json_fini(&json);
    return ok;
}

/* ---- running --------------------------------------------------------------------------------- */

static int run(const struct settings *settings, const struct compare_plan *plan)
{
    struct compare_outcome outcome;
    char uri[64];
    int result;

    snprintf(uri, sizeof(uri), "embedded:%" PRIu64, plan->pool_bytes);
    struct cmd_pool pool = {.uri = uri, .log = {.level = "error"}};
    struct env *env = cmd_pool_open(NAME, &pool, &result);
    if (env == NULL)
        return result;
    print_head(plan);
    bool ok = compare_run(env, plan, &outcome);
    env_close(env);
    if (!ok) {
        cmd_error(NAME, "%s", outcome.error);
        return EXIT_FAILED;
    }
    unsigned missed = print_lines(plan, &outcome);
    if (settings->json != NULL && !write_json(settings->json, plan, &outcome))
        return EXIT_FAILED;
    return settings->judge && missed > 0 ? EXIT_FAILED : EXIT_OK;
}

int main(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    struct compare_plan plan;
    int result;

    if (cmd_load(&config, &command, argc, argv, &settings, &result)) {
        result = make_plan(&config, &settings, &plan);
        if (result == EXIT_OK)
            result = run(&settings, &plan);
    }
    config_fini(&config);
    return result;
}
