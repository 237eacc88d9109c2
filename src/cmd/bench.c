/*
 * bench.c - `pando bench`: its options.
 */
#include "cmd/bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/engine_name.h"
#include "store/engines.h"
#include "store/uri.h"

enum {
    URI_BYTES = 1024,
    LIST_BYTES = 512,
    VALUE_INLINE_MAX = 256, /* longer values lie outside of the leaves */
    BLOB_INLINE = 8,
    LEAF_FENCES = 48, /* see tree/blink/node: a leaf's header but for its two fences */
    CELL_BYTES = 8,
    BAR_WIDTH = 30,
};

/* What the workload `locks` can do without; offsets in struct bench_plan. */
static const struct engine_switch lock_switches[] = {
    {.name = "onchip", .offset = offsetof(struct bench_plan, onchip)},
    {.name = "hierarchical", .offset = offsetof(struct bench_plan, hierarchical)},
    {.name = "queue", .offset = offsetof(struct bench_plan, queue)},
    {.name = "handover", .offset = offsetof(struct bench_plan, handover)},
    {.name = "backoff", .offset = offsetof(struct bench_plan, backoff)},
    {.name = "writeunlock", .offset = offsetof(struct bench_plan, write_unlock)},
};
enum { LOCK_SWITCHES = sizeof(lock_switches) / sizeof(lock_switches[0]) };

struct settings {
    struct cmd_pool pool;
    const char *engine, *without, *with, *workload, *dist, *seconds, *json, *table, *warmup,
        *routed, *join_at;
    uint64_t records, ops, threads, coroutines, processes;
    uint64_t key_size, value_size, scan_length, cache, node_size, span, fill;
    uint64_t memory_threads, seed;
    bool keep, limit;
};

static const struct config_option options[] = {
    CMD_POOL_OPTIONS(struct settings),
    {.name = "engine",
     .metavar = "ENGINE",
     .help = "The engine: " STORE_ENGINE_NAMES(
         ", ") ", or a baseline of their papers: fg+ is sherman without its "
               "techniques, p-sherman is sherman whose compute nodes write only keys of their own "
               "and take no remote locks of leaves.",
     .default_text = "dex",
     CONFIG_TEXT_INTO(struct settings, engine)},
    {.name = "without",
     .metavar = "LIST",
     .help = "Techniques to switch off, with commas. sherman has combine, onchip, hierarchical, "
             "queue, handover, twolevel, cache, lockread, backoff, reuse, adopt, merge; without "
             "onchip a "
             "simulated pool's lock words are as slow as host memory. dex has partition, cache, "
             "cooling-map, path-aware, admission, records, offload, prefetch, log, merge, balance. "
             "The workload locks has onchip, hierarchical, queue, handover, backoff, writeunlock; "
             "without writeunlock a lock is released by a fetch-and-add.",
     CONFIG_TEXT_INTO(struct settings, without)},
    {.name = "with",
     .metavar = "LIST",
     .help = "Techniques to switch on that are off unless they are named, with commas: for "
             "comparisons and tests. sherman has alone (see p-sherman). dex has offload-leaves "
             "(gets of leaves, too, are done by memory nodes), offload-only (whatever is not "
             "cached is), lend-wildly, small-log, join-eagerly.",
     CONFIG_TEXT_INTO(struct settings, with)},
    {.name = "workload",
     .metavar = "NAME",
     .help = "a to f (YCSB), load, search, insert, update, delete, scan, write-only, "
             "write-intensive, read-intensive, range-only, range-write (Sherman's), dex-read-only, "
             "dex-read-intensive, dex-write-intensive, insert-intensive, scan-intensive (DEX's), "
             "or locks (no table: locks of one memory node).",
     .default_text = "search",
     CONFIG_TEXT_INTO(struct settings, workload)},
    {.name = "records",
     .metavar = "N",
     .help = "Pairs loaded before.",
     .default_text = "1000000",
     CONFIG_U64_INTO(struct settings, records)},
    {.name = "ops",
     .metavar = "N",
     .help = "Operations to do, over all clients of all processes, instead of --seconds.",
     .positive = true,
     CONFIG_U64_INTO(struct settings, ops)},
    {.name = "seconds",
     .metavar = "SECONDS",
     .help = "How long to measure, 5 if not given; on a simulated pool this is virtual time, 0.01 "
             "if not given.",
     CONFIG_TEXT_INTO(struct settings, seconds)},
    {.name = "warmup",
     .metavar = "SECONDS",
     .help =
         "How long the workload runs before it is counted, half a second or 0.002 if not given. "
         "Caches are filled before that.",
     CONFIG_TEXT_INTO(struct settings, warmup)},
    {.name = "threads",
     .metavar = "N",
     .help = "Threads (of every compute node, if simulated).",
     .default_text = "1",
     CONFIG_U64_INTO(struct settings, threads)},
    {.name = "coroutines",
     .metavar = "N",
     .help = "Clients of each thread.",
     .default_text = "1",
     CONFIG_U64_INTO(struct settings, coroutines)},
    {.name = "processes",
     .metavar = "N",
     .help =
         "How many processes with this same command line take part; each reports its own share. "
         "The first one loads the table. More than one only in a pool that processes can share.",
     .default_text = "1",
     CONFIG_U64_INTO(struct settings, processes)},
    {.name = "dist",
     .metavar = "DIST",
     .help = "Which keys are popular: uniform, zipf:0.99 or latest. The workload's own if not "
             "given: zipf:0.99 for YCSB (d: latest) and the papers' mixes, else uniform.",
     CONFIG_TEXT_INTO(struct settings, dist)},
    {.name = "routed",
     .metavar = "yes|no",
     .help =
         "Whether the clients of a compute node use only keys that it owns, as if every request "
         "had been sent to the owner of its key; no: operations on others' keys are forwarded. "
         "yes for dex and p-sherman if not given, else no.",
     CONFIG_TEXT_INTO(struct settings, routed)},
    {.name = "join-at",
     .metavar = "SECONDS",
     .help = "Simulated pools, engines whose keys have owners: the last compute node joins only so "
             "long after the measurement began, and gets half of another's keys; the JSON has the "
             "rate over time.",
     CONFIG_TEXT_INTO(struct settings, join_at)},
    {.name = "key-size",
     .metavar = "BYTES",
     .help = "From 8 to 1024.",
     .default_text = "8",
     CONFIG_SIZE_INTO(struct settings, key_size)},
    {.name = "value-size",
     .metavar = "BYTES",
     .help = "From 8 to 1M.",
     .default_text = "8",
     CONFIG_SIZE_INTO(struct settings, value_size)},
    {.name = "scan-length",
     .metavar = "N",
     .help = "Pairs of a scan.",
     .default_text = "100",
     CONFIG_U64_INTO(struct settings, scan_length)},
    {.name = "cache",
     .metavar = "SIZE",
     .help = "Index cache of each compute node; for none at all there is --without cache.",
     .default_text = "500M",
     CONFIG_SIZE_INTO(struct settings, cache)},
    CMD_WINDOW_OPTION(struct settings),
    {.name = "node-size",
     .metavar = "BYTES",
     .help = "Of a tree node; 1K if not given, more for long keys and values.",
     .positive = true,
     CONFIG_SIZE_INTO(struct settings, node_size)},
    {.name = "span",
     .metavar = "N",
     .help = "Pairs a leaf has room for, instead of --node-size.",
     .positive = true,
     CONFIG_U64_INTO(struct settings, span)},
    {.name = "fill",
     .metavar = "PERCENT",
     .help = "How full nodes are loaded.",
     .default_text = "80",
     CONFIG_U64_INTO(struct settings, fill)},
    {.name = "memory-threads",
     .metavar = "N",
     .help = "Simulated pools: threads of each memory node.",
     .positive = true,
     CONFIG_U64_INTO(struct settings, memory_threads)},
    {.name = "seed",
     .metavar = "N",
     .help = "Of everything random; simulated runs with one seed are the same to the bit.",
     .default_text = "1",
     CONFIG_U64_INTO(struct settings, seed)},
    {.name = "table",
     .metavar = "NAME",
     .help = "The table that is made, and dropped afterwards.",
     .default_text = "bench",
     CONFIG_TEXT_INTO(struct settings, table)},
    {.name = "keep", .help = "Do not drop the table.", CONFIG_BOOL_INTO(struct settings, keep)},
    {.name = "limit",
     .help = "Also measure the raw rate of the same one-sided operations, and print the ratio.",
     .default_text = "true",
     CONFIG_BOOL_INTO(struct settings, limit)},
    {.name = "json",
     .metavar = "FILE",
     .help = "Also write all numbers as JSON to FILE, or to stdout if it is '-'.",
     CONFIG_TEXT_INTO(struct settings, json)},
};

static const struct config_command command = {
    .name = "bench",
    .summary = "Measures an engine: rates, latencies, round trips and bytes per operation.",
    .example = "pando bench --pool sim:nic=cx5,compute=8,memory=8 --threads 22 --workload "
               "write-intensive",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

struct bench {
    const struct settings *settings;
    struct bench_plan plan;
    char uri[URI_BYTES];
    char without[LIST_BYTES], with[LIST_BYTES];
    bool embedded_locks;
};

/* ---- options --------------------------------------------------------------------------------- */

static int check_numbers(const struct settings *settings)
{
    const struct {
        const char *name;
        uint64_t value, min, max;
    } numbers[] = {
        {"records", settings->records, 1, (uint64_t)1 << 40},
        {"threads", settings->threads, 1, BENCH_THREADS_MAX},
        {"coroutines", settings->coroutines, 1, BENCH_CLIENTS_MAX},
        {"processes", settings->processes, 1, BENCH_PROCESSES_MAX},
        {"key-size", settings->key_size, WORKLOAD_KEY_MIN, BENCH_KEY_MAX},
        {"value-size", settings->value_size, 8, 1 << 20},
        {"scan-length", settings->scan_length, 1, 1 << 20},
        {"fill", settings->fill, 10, 100},
        {"span", settings->span, settings->span == 0 ? 0 : 4, 1024},
        {"memory-threads", settings->memory_threads, 0, URI_SIM_THREADS_MAX},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i].value < numbers[i].min || numbers[i].value > numbers[i].max)
            return cmd_usage("bench", "--%s: %" PRIu64 " is not from %" PRIu64 " to %" PRIu64,
                             numbers[i].name, numbers[i].value, numbers[i].min, numbers[i].max);
    }
    if (settings->table[0] == '\0' || strlen(settings->table) > BENCH_TABLE_NAME_MAX)
        return cmd_usage("bench", "--table: a name has 1 to %d characters", BENCH_TABLE_NAME_MAX);
    return EXIT_OK;
}

/* Options of which one would win. */
static int check_conflicts(const struct settings *settings)
{
    if (settings->ops > 0 && settings->seconds != NULL)
        return cmd_usage("bench", "--ops and --seconds: either says when to end; give only one");
    if (settings->span > 0 && settings->node_size > 0)
        return cmd_usage("bench",
                         "--span and --node-size: either says how large nodes are; give only one");
    if (settings->cache == 0)
        return cmd_usage("bench", "--cache: 0 is too small; for no cache use --without cache");
    return EXIT_OK;
}

static bool lists(const char *names, const char *name)
{
    size_t size = strlen(name);
    while (names != NULL && *names != '\0') {
        size_t item = strcspn(names, ",");
        if (item == size && memcmp(names, name, size) == 0)
            return true;
        names += item + (names[item] == ',');
    }
    return false;
}

static int set_engine(struct bench *bench)
{
    const struct settings *settings = bench->settings;
    struct bench_plan *plan = &bench->plan;
    struct engine_name name;

    if (!engine_name_find(settings->engine, &name))
        return cmd_usage("bench", "--engine: there is no engine '%.32s'; use %s, fg+ or p-sherman",
                         settings->engine, store_engine_names());
    plan->engine_name = name.name;
    plan->engine = name.engine;
    if (!engine_name_without(&name, settings->without, bench->without, sizeof(bench->without)))
        return cmd_usage("bench", "--without: longer than %d characters", LIST_BYTES - 1);
    if (!engine_name_with(&name, settings->with, bench->with, sizeof(bench->with)))
        return cmd_usage("bench", "--with: longer than %d characters", LIST_BYTES - 1);
    plan->without = bench->without[0] != '\0' ? bench->without : NULL;
    plan->with = bench->with[0] != '\0' ? bench->with : NULL;
    for (size_t i = 0; i < LOCK_SWITCHES; i++)
        *(bool *)((char *)plan + lock_switches[i].offset) =
            !lists(plan->without, lock_switches[i].name);
    bench->embedded_locks = strcmp(settings->engine, "fg+") == 0;
    return EXIT_OK;
}

static int set_routed(struct bench *bench)
{
    const char *routed = bench->settings->routed;
    struct bench_plan *plan = &bench->plan;
    bool alone = lists(plan->with, "alone");

    plan->routed = alone || engine_has_owners(plan->engine);
    if (routed == NULL)
        return EXIT_OK;
    if (strcmp(routed, "yes") != 0 && strcmp(routed, "no") != 0)
        return cmd_usage("bench", "--routed: '%.32s' is neither yes nor no", routed);
    plan->routed = strcmp(routed, "yes") == 0;
    if (alone && !plan->routed)
        return cmd_usage("bench",
                         "--routed no: without remote locks, compute nodes that write each "
                         "other's keys would destroy them; use --engine sherman");
    return EXIT_OK;
}

static int set_workload(struct bench *bench)
{
    const struct settings *settings = bench->settings;
    struct bench_plan *plan = &bench->plan;

    plan->workload = workload_find(settings->workload);
    if (plan->workload == NULL)
        return cmd_usage(
            "bench", "--workload: there is no workload '%.32s'; `pando bench --help` lists them",
            settings->workload);
    plan->dist_name = settings->dist != NULL ? settings->dist : plan->workload->dist;
    if (!workload_dist_parse(plan->dist_name, &plan->dist))
        return cmd_usage("bench",
                         "--dist: '%.32s' is no distribution; use uniform, zipf:0.99 or latest",
                         plan->dist_name);
    bool locks = plan->workload->percent[WORKLOAD_LOCK] > 0;
    workload_space_init(&plan->space, plan->workload, locks ? BENCH_LOCKS : settings->records);
    if (locks || (plan->workload->fill && engine_has_owners(plan->engine)))
        plan->routed = false; /* an empty table cannot be spread */
    plan->ops = settings->ops;
    if (plan->workload->fill && plan->ops == 0)
        plan->ops = settings->records;
    if (plan->ops == 0 && strcmp(plan->workload->name, "delete") == 0)
        plan->ops = settings->records;
    return EXIT_OK;
}

/* Of what the user wrote; what a baseline's name switches is the engine's, whatever the workload. */
static int check_switches(const struct bench *bench, const char *option, const char *list, bool on)
{
    const struct engine_ops *engine = bench->plan.engine;
    char error[BENCH_ERROR_BYTES];
    enum pando_status status =
        bench->plan.workload->percent[WORKLOAD_LOCK] > 0
            ? engine_switches_check("the workload locks", lock_switches, LOCK_SWITCHES, list, on,
                                    error, sizeof(error))
            : engine_switches_check(engine->name, engine->switches, engine->switch_count, list, on,
                                    error, sizeof(error));
    return status == PANDO_OK ? EXIT_OK : cmd_usage("bench", "%s: %s", option, error);
}

static uint32_t round_up(uint64_t value, uint32_t to)
{
    return (uint32_t)((value + to - 1) / to * to);
}

static int set_shape(struct bench *bench)
{
    const struct settings *settings = bench->settings;
    struct bench_plan *plan = &bench->plan;
    bool blobs = settings->value_size > VALUE_INLINE_MAX;
    uint32_t key = round_up(settings->key_size, 8);
    uint32_t value = blobs ? BLOB_INLINE : round_up(settings->value_size, 8);
    uint32_t cell = CELL_BYTES + key + value, header = LEAF_FENCES + 2 * key;

    plan->value_size = (uint32_t)settings->value_size;
    plan->shape = (struct engine_shape){
        .key_size = (uint32_t)settings->key_size,
        .value_size = blobs ? 0 : plan->value_size,
        .value_inline = blobs ? BLOB_INLINE : plan->value_size,
        .node_bytes = (uint32_t)settings->node_size,
    };
    if (blobs)
        cell += 8; /* cells of any size say their sizes */
    if (settings->span > 0)
        plan->shape.node_bytes = round_up((uint64_t)header + settings->span * cell, 64);
    enum pando_status status = engine_shape_check(&plan->shape);
    if (status != PANDO_OK)
        return cmd_usage(
            "bench",
            "--key-size %" PRIu64 ", --value-size %" PRIu64
            ": nodes of %u B cannot hold such pairs; nodes have 256 B to 32K, in steps "
            "of 64, and room for four pairs",
            settings->key_size, settings->value_size, plan->shape.node_bytes);
    uint32_t pairs = (uint32_t)((plan->shape.node_bytes - header) / cell * settings->fill / 100);
    plan->pairs_per_leaf = pairs == 0 ? 1 : pairs;
    plan->update_bytes = cell > plan->shape.node_bytes - 64 ? 8 : cell;
    plan->scan_length = (unsigned)settings->scan_length;
    plan->fill = (unsigned)settings->fill;
    return EXIT_OK;
}

static int set_times(struct bench *bench, bool simulated, unsigned compute_nodes)
{
    const struct settings *settings = bench->settings;
    struct bench_plan *plan = &bench->plan;

    plan->measure_ns = simulated ? 10 * RT_NS_PER_MS : 5 * RT_NS_PER_S;
    plan->warmup_ns = simulated ? 2 * RT_NS_PER_MS : RT_NS_PER_S / 2;
    if (settings->seconds != NULL && (!cmd_parse_seconds(settings->seconds, &plan->measure_ns) ||
                                      plan->measure_ns < 100 * RT_NS_PER_US))
        return cmd_usage("bench",
                         "--seconds: '%.32s' is not from 0.0001 to 3600; use for example 5",
                         settings->seconds);
    if (settings->warmup != NULL && !cmd_parse_seconds(settings->warmup, &plan->warmup_ns))
        return cmd_usage("bench", "--warmup: '%.32s' is not from 0 to 3600; use for example 1",
                         settings->warmup);
    if (settings->join_at == NULL)
        return EXIT_OK;
    if (!cmd_parse_seconds(settings->join_at, &plan->join_at_ns) || plan->join_at_ns == 0 ||
        plan->join_at_ns >= plan->measure_ns)
        return cmd_usage("bench", "--join-at: '%.32s' is not between 0 and --seconds",
                         settings->join_at);
    plan->no_limit = true;
    if (!simulated || !engine_has_owners(plan->engine) || compute_nodes < 2 || plan->ops > 0 ||
        plan->coroutines > 1)
        return cmd_usage("bench",
                         "--join-at: only on a simulated pool of two compute nodes or more, "
                         "with --engine dex, --seconds and one client per thread");
    return EXIT_OK;
}

/* ---- simulated pools ------------------------------------------------------------------------- */

/* A memory node's window: the table's share, room to grow, and for every thread a chunk or two. */
static uint64_t sim_node_bytes(const struct bench *bench, const struct uri *uri)
{
    const struct bench_plan *plan = &bench->plan;
    uint64_t leaves = plan->space.positions / plan->pairs_per_leaf + 1;
    uint64_t table = leaves * plan->shape.node_bytes / 4 * 7;
    if (plan->shape.value_size == 0)
        table += plan->space.positions * (plan->value_size + 256);
    return table / uri->memory +
           ((uint64_t)uri->compute * plan->threads * 3 + 16) * POOL_CHUNK_BYTES;
}

static void uri_append(struct bench *bench, const char *option, uint64_t value)
{
    size_t used = strlen(bench->uri);
    char before = bench->uri[used - 1];
    snprintf(bench->uri + used, sizeof(bench->uri) - used, "%s%s=%" PRIu64,
             before == ':' ? "" : ",", option, value);
}

/* Options that such a pool cannot have. */
static int check_pool(const struct settings *settings, enum uri_kind kind)
{
    if (kind != URI_SIM && settings->memory_threads > 0)
        return cmd_usage("bench",
                         "--memory-threads: only on a simulated pool; others have `pando memory "
                         "--threads`");
    if ((kind == URI_SIM || kind == URI_EMBEDDED) && settings->processes > 1)
        return cmd_usage("bench",
                         "--processes %" PRIu64 ": this pool ends with its process, others cannot "
                         "come; use shm:, tcp: or verbs:",
                         settings->processes);
    return EXIT_OK;
}

/* What the URI leaves open and the other options decide. */
static int complete_uri(struct bench *bench)
{
    const struct settings *settings = bench->settings;
    const struct bench_plan *plan = &bench->plan;
    struct uri uri;
    char error[BENCH_ERROR_BYTES];

    if (strlen(settings->pool.uri) >= sizeof(bench->uri) / 2 ||
        uri_parse(settings->pool.uri, &uri, error, sizeof(error)) != PANDO_OK)
        return EXIT_OK; /* the pool itself will complain */
    int result = check_pool(settings, uri.kind);
    if (result != EXIT_OK || uri.kind != URI_SIM)
        return result;
    if (strstr(bench->uri, "size=") == NULL)
        uri_append(bench, "size", sim_node_bytes(bench, &uri));
    if (strstr(bench->uri, "seed=") == NULL)
        uri_append(bench, "seed", settings->seed);
    if (settings->memory_threads > 0)
        uri_append(bench, "memory-threads", settings->memory_threads);
    if (!plan->onchip)
        uri_append(bench, "onchip", 0);
    if (bench->embedded_locks)
        uri_append(bench, "embedded", 1);
    return EXIT_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static void show_progress(const char *what, double share)
{
    char bar[BAR_WIDTH + 1];
    int filled = (int)(share * BAR_WIDTH);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', (size_t)filled);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] %3.0f %% %s", bar, share * 100, what);
    fflush(stderr);
}

static int measure(struct bench *bench, struct env *env)
{
    const struct settings *settings = bench->settings;
    bool json_to_stdout = settings->json != NULL && strcmp(settings->json, "-") == 0;
    struct bench_outcome *outcome = malloc(sizeof(*outcome));
    struct json json;

    if (outcome == NULL) {
        cmd_error("bench", "out of memory");
        return EXIT_FAILED;
    }
    bool ok = bench_engine_run(env, &bench->plan, outcome);
    if (bench->plan.progress != NULL)
        fprintf(stderr, "\r\033[K");
    if (!ok)
        cmd_error("bench", "%s", outcome->error);
    else
        bench_report_line(json_to_stdout ? stderr : stdout, env, &bench->plan, outcome);
    if (ok && settings->json != NULL) {
        json_init(&json);
        bench_report_json(&json, env, &bench->plan, outcome);
        ok = cmd_write_json("bench", &json, settings->json);
        json_fini(&json);
    }
    free(outcome);
    return ok ? EXIT_OK : EXIT_FAILED;
}

static int prepare(struct bench *bench)
{
    const struct settings *settings = bench->settings;
    struct bench_plan *plan = &bench->plan;

    plan->threads = (unsigned)settings->threads;
    plan->coroutines = (unsigned)settings->coroutines;
    plan->processes = (unsigned)settings->processes;
    plan->cache_bytes = settings->cache;
    plan->seed = settings->seed;
    plan->table = settings->table;
    plan->keep = settings->keep;
    plan->no_limit = !settings->limit;
    plan->progress = isatty(STDERR_FILENO) == 1 ? show_progress : NULL;
    snprintf(bench->uri, sizeof(bench->uri), "%s", settings->pool.uri);
    int result = check_numbers(settings);
    if (result == EXIT_OK)
        result = check_conflicts(settings);
    if (result == EXIT_OK)
        result = set_engine(bench);
    if (result == EXIT_OK)
        result = set_routed(bench);
    if (result == EXIT_OK)
        result = set_workload(bench);
    if (result == EXIT_OK)
        result = check_switches(bench, "--without", settings->without, false);
    if (result == EXIT_OK)
        result = check_switches(bench, "--with", settings->with, true);
    if (result == EXIT_OK)
        result = set_shape(bench);
    return result == EXIT_OK ? complete_uri(bench) : result;
}

int cmd_bench(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    struct bench bench = {.settings = &settings};
    int result;

    if (!cmd_load(&config, &command, argc, argv, &settings, &result))
        goto out;
    result = prepare(&bench);
    if (result != EXIT_OK)
        goto out;
    settings.pool.uri = bench.uri;
    struct env *env = cmd_pool_open("bench", &settings.pool, &result);
    if (env == NULL)
        goto out;
    result = set_times(&bench, env_simulated(env), env_compute_nodes(env));
    if (result == EXIT_OK)
        result = measure(&bench, env);
    env_close(env);
out:
    config_fini(&config);
    return result;
}
