/*
 * check.c - `pando check`: an engine attacked in simulated clusters, one for each seed.
 */
#include "cmd/check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "check/workers.h"
#include "cmd/cmd.h"
#include "cmd/engine_name.h"
#include "store/engines.h"

enum {
    LIST_BYTES = 512,
    BAR_WIDTH = 30,
    REPLAY_BYTES = 2048, /* three such lists and a few numbers */
    NAME_SHOWN = 32,     /* characters of an unknown one, in an error */
};

#define BREAK "break-" /* how an engine's switches begin that only tests use */

struct settings {
    const char *engine, *seeds, *faults, *without, *with, *broken;
    struct cmd_log log;
    uint64_t ops, nodes, memory, threads, tasks, keys, workers;
    bool trace, hashes, keep_going;
};

static const struct config_option options[] = {
    {.name = "engine",
     .metavar = "ENGINE",
     .help = "The engine to check: " STORE_ENGINE_NAMES(
         ", ") ", or fg+, which is sherman without its techniques.",
     .default_text = "dex",
     CONFIG_TEXT_INTO(struct settings, engine)},
    {.name = "seeds",
     .metavar = "A..B",
     .help = "The seeds, each a cluster of its own; or one alone.",
     .default_text = "1..20",
     CONFIG_TEXT_INTO(struct settings, seeds)},
    {.name = "faults",
     .metavar = "LIST",
     .help = "Kinds of faults, separated by commas. none: only what the memory model allows. "
             "crash: clients are killed at any operation. short: they are also paused and cut off, "
             "clocks drift, memory nodes restart. answers: lists are executed, but their answers "
             "are lost. outage: memory nodes or links are gone for longer than any patience. "
             "pauses: several clients stand still beyond their leases. flips: bits of the table, "
             "of its logs and of the directory's word for its root change in memory nodes (every "
             "answer has to be right or 'corrupt'; if keys have owners, some of these are "
             "killed). full: memory "
             "nodes get full. alloc: some allocations fail. blobs: values up to megabytes on slow "
             "links. lost: a memory node comes back empty, with another pool's window, or never "
             "(every answer has to be right or an error). locks: memory nodes come back without "
             "their lock tables. all: each of them, of those from outage on at most one in a seed.",
     .default_text = "all",
     CONFIG_TEXT_INTO(struct settings, faults)},
    {.name = "ops",
     .metavar = "N",
     .help = "Operations in each cluster.",
     .default_text = "600",
     CONFIG_U64_INTO(struct settings, ops)},
    {.name = "nodes",
     .metavar = "N",
     .help = "Compute nodes.",
     .default_text = "4",
     CONFIG_U64_INTO(struct settings, nodes)},
    {.name = "memory",
     .metavar = "N",
     .help = "Memory nodes.",
     .default_text = "2",
     CONFIG_U64_INTO(struct settings, memory)},
    {.name = "threads",
     .metavar = "N",
     .help = "Threads of each compute node.",
     .default_text = "2",
     CONFIG_U64_INTO(struct settings, threads)},
    {.name = "tasks",
     .metavar = "N",
     .help = "Tasks of each thread.",
     .default_text = "2",
     CONFIG_U64_INTO(struct settings, tasks)},
    {.name = "keys",
     .metavar = "N",
     .help = "Keys that there may be.",
     .default_text = "64",
     CONFIG_U64_INTO(struct settings, keys)},
    {.name = "without",
     .metavar = "LIST",
     .help = "Techniques of the engine to switch off, separated by commas.",
     CONFIG_TEXT_INTO(struct settings, without)},
    {.name = "with",
     .metavar = "LIST",
     .help =
         "Techniques of the engine to switch on that are off unless they are named, separated "
         "by commas: of dex offload-leaves, offload-only, lend-wildly, small-log, join-eagerly.",
     CONFIG_TEXT_INTO(struct settings, with)},
    {.name = "break",
     .metavar = "LIST",
     .help =
         "Rules to break on purpose, to see that it is noticed. Of the pool: fencing, recovery, "
         "resolve, lost-locks, lease, redo, kept, grace, floor, old-reads, refusals, windows. Of "
         "sherman: "
         "cells, fences, intents, locks, release, handover, versions, sibling, tiling, merge-lock, "
         "separator, dead, repair, guards. Of dex: cells, replay, invalidate, forget, barrier, "
         "durable, "
         "stamps, "
         "through, partitions, write-back, truncate, serve-lease. docs/PROTOCOLS.md says "
         "which rule each one breaks; scripts/mutations tries them all.",
     CONFIG_TEXT_INTO(struct settings, broken)},
    {.name = "trace",
     .help = "Print the events of one seed.",
     CONFIG_BOOL_INTO(struct settings, trace)},
    {.name = "hashes",
     .help = "Print a hash of the events of each seed. Programs with equal hashes did the same.",
     CONFIG_BOOL_INTO(struct settings, hashes)},
    {.name = "keep-going",
     .help = "Go on after a violation.",
     CONFIG_BOOL_INTO(struct settings, keep_going)},
    {.name = "workers",
     .metavar = "N",
     .help = "Processes at work at the same time; 0 for one on each processor.",
     .default_text = "0",
     CONFIG_U64_INTO(struct settings, workers)},
    CMD_LOG_OPTIONS(struct settings, log, "error"),
};

static const struct config_command command = {
    .name = "check",
    .summary = "Attacks an engine in simulated clusters, with crashes, pauses, cut links and every "
               "freedom of the memory model, and checks what its clients saw, its structure, its "
               "locks and its memory. The same seed is the same run. Exits with 1 if something was "
               "violated, and says how to see it again.",
    .example = "pando check --engine sherman --seeds 1..200 --faults all",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

struct check {
    const struct settings *settings;
    struct check_run run;
    char without[LIST_BYTES], with[LIST_BYTES];
    bool progress;
    uint64_t begin_ns;
    uint64_t seeds, done, violations, undecided;
    struct check_result sum;
};

/* ---- options --------------------------------------------------------------------------------- */

static bool parse_seeds(const char *text, uint64_t *first, uint64_t *last)
{
    char low[32];
    const char *dots = strstr(text, "..");
    if (dots == NULL) {
        if (parse_u64(text, first) != PANDO_OK)
            return false;
        *last = *first;
        return true;
    }
    size_t size = (size_t)(dots - text);
    if (size >= sizeof(low))
        return false;
    memcpy(low, text, size);
    low[size] = '\0';
    return parse_u64(low, first) == PANDO_OK && parse_u64(dots + 2, last) == PANDO_OK &&
           *first <= *last && *last < UINT64_MAX - 1000;
}

static bool is_word(const char *word, const char *name, size_t size)
{
    return strlen(word) == size && memcmp(word, name, size) == 0;
}

static bool parse_fault(const char *text, size_t size, unsigned *faults)
{
    static const struct {
        const char *name;
        unsigned faults;
    } known[] = {
        {"none", CHECK_FAULTS_NONE},       {"crash", CHECK_FAULTS_CRASH},
        {"short", CHECK_FAULTS_SHORT},     {"outage", CHECK_FAULTS_OUTAGE},
        {"pauses", CHECK_FAULTS_PAUSES},   {"flips", CHECK_FAULTS_FLIPS},
        {"full", CHECK_FAULTS_FULL},       {"alloc", CHECK_FAULTS_ALLOC},
        {"blobs", CHECK_FAULTS_BLOBS},     {"lost", CHECK_FAULTS_LOST},
        {"answers", CHECK_FAULTS_ANSWERS}, {"locks", CHECK_FAULTS_LOCKS},
        {"all", CHECK_FAULTS_ALL},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (is_word(known[i].name, text, size)) {
            *faults |= known[i].faults;
            return true;
        }
    }
    return false;
}

static bool parse_faults(const char *text, unsigned *out)
{
    bool good = true;
    *out = CHECK_FAULTS_NONE;
    while (good) {
        size_t size = strcspn(text, ",");
        good = parse_fault(text, size, out);
        text += size;
        if (*text == '\0')
            break;
        text++;
    }
    return good;
}

/* What may be broken in the pool, and the option that does it. */
static const struct {
    const char *name;
    size_t offset; /* of a bool in struct check_options */
} pool_breaks[] = {
    {"fencing", offsetof(struct check_options, no_fencing)},
    {"recovery", offsetof(struct check_options, no_recovery)},
    {"resolve", offsetof(struct check_options, broken.resolve)},
    {"lost-locks", offsetof(struct check_options, broken.lost_locks)},
    {"lease", offsetof(struct check_options, broken.lease)},
    {"redo", offsetof(struct check_options, broken.redo)},
    {"kept", offsetof(struct check_options, broken.kept)},
    {"grace", offsetof(struct check_options, broken.grace)},
    {"floor", offsetof(struct check_options, broken.floor)},
    {"old-reads", offsetof(struct check_options, broken.old_reads)},
    {"refusals", offsetof(struct check_options, broken.refusals)},
    {"windows", offsetof(struct check_options, no_windows)},
};
enum { POOL_BREAKS = sizeof(pool_breaks) / sizeof(pool_breaks[0]) };

/* All that may be broken; cut if it does not fit. */
static void list_breaks(const struct engine_ops *engine, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < POOL_BREAKS && used < out_bytes; i++)
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", i > 0 ? ", " : "",
                                 pool_breaks[i].name);
    for (size_t i = 0; i < engine->switch_count && used < out_bytes; i++) {
        const char *name = engine->switches[i].name;
        if (strncmp(name, BREAK, strlen(BREAK)) == 0)
            used += (size_t)snprintf(out + used, out_bytes - used, ", %s", name + strlen(BREAK));
    }
}

static bool engine_breaks(const struct engine_ops *engine, const char *name, size_t size)
{
    for (size_t i = 0; i < engine->switch_count; i++) {
        const char *known = engine->switches[i].name;
        if (strncmp(known, BREAK, strlen(BREAK)) == 0 && strlen(known) == strlen(BREAK) + size &&
            memcmp(known + strlen(BREAK), name, size) == 0)
            return true;
    }
    return false;
}

/* One word of --break: the pool's, or the engine's, which gets it as "break-...". */
static int take_break(struct check *check, const char *name, size_t size)
{
    const struct engine_ops *engine = check->run.options.engine;
    size_t used = strlen(check->without);
    char all[LIST_BYTES];

    for (size_t i = 0; i < POOL_BREAKS; i++) {
        if (is_word(pool_breaks[i].name, name, size)) {
            *(bool *)((char *)&check->run.options + pool_breaks[i].offset) = true;
            return EXIT_OK;
        }
    }
    if (!engine_breaks(engine, name, size)) {
        list_breaks(engine, all, sizeof(all));
        return cmd_usage("check", "--break: %s has no '%.*s' to break; it has %s", engine->name,
                         size < NAME_SHOWN ? (int)size : NAME_SHOWN, name, all);
    }
    int added = snprintf(check->without + used, sizeof(check->without) - used, "%s" BREAK "%.*s",
                         used > 0 ? "," : "", (int)size, name);
    if (added < 0 || (size_t)added >= sizeof(check->without) - used)
        return cmd_usage("check", "--break: with --without longer than %d characters",
                         LIST_BYTES - 1);
    return EXIT_OK;
}

static int set_breaks(struct check *check)
{
    const char *list = check->settings->broken == NULL ? "" : check->settings->broken;
    int result = EXIT_OK;

    if (strlen(list) >= LIST_BYTES)
        return cmd_usage("check", "--break: longer than %d characters", LIST_BYTES - 1);
    while (*list != '\0' && result == EXIT_OK) {
        size_t size = strcspn(list, ",");
        if (size > 0)
            result = take_break(check, list, size);
        list += size;
        list += *list == ',';
    }
    return result;
}

static int check_switches(const struct engine_ops *engine, const char *option, const char *list,
                          bool on)
{
    char error[LIST_BYTES];
    enum pando_status status = engine_switches_check(
        engine->name, engine->switches, engine->switch_count, list, on, error, sizeof(error));
    return status == PANDO_OK ? EXIT_OK : cmd_usage("check", "%s: %s", option, error);
}

static int set_switches(struct check *check, const struct engine_name *name)
{
    const struct settings *settings = check->settings;

    if (!engine_name_without(name, settings->without, check->without, sizeof(check->without)))
        return cmd_usage("check", "--without: longer than %d characters", LIST_BYTES - 1);
    if (!engine_name_with(name, settings->with, check->with, sizeof(check->with)))
        return cmd_usage("check", "--with: longer than %d characters", LIST_BYTES - 1);
    int result = check_switches(name->engine, "--without", settings->without, false);
    if (result == EXIT_OK)
        result = check_switches(name->engine, "--with", settings->with, true);
    if (result == EXIT_OK)
        result = set_breaks(check);
    check->run.options.without = check->without[0] != '\0' ? check->without : NULL;
    check->run.options.with = check->with[0] != '\0' ? check->with : NULL;
    return result;
}

static int set_engine(struct check *check)
{
    const char *engine = check->settings->engine;
    struct engine_name name;

    if (!engine_name_find(engine, &name))
        return cmd_usage("check", "--engine: there is no engine '%.32s'; use %s or fg+", engine,
                         store_engine_names());
    if (name.own_keys_only)
        return cmd_usage("check",
                         "--engine: %s is right only if compute nodes write only keys of their "
                         "own, and here all write all; use sherman",
                         engine);
    check->run.options.engine = name.engine;
    return set_switches(check, &name);
}

static int check_count(const char *name, uint64_t value, uint64_t min, uint64_t max)
{
    if (value >= min && value <= max)
        return EXIT_OK;
    return cmd_usage("check", "--%s: %" PRIu64 " is not between %" PRIu64 " and %" PRIu64, name,
                     value, min, max);
}

static int check_counts(const struct settings *settings)
{
    const struct {
        const char *name;
        uint64_t value, min, max;
    } counts[] = {
        {"ops", settings->ops, 1, CHECK_OPS_MAX},
        {"nodes", settings->nodes, 1, CHECK_NODES_MAX},
        {"memory", settings->memory, 1, CHECK_MEMORY_MAX},
        {"threads", settings->threads, 1, CHECK_THREADS_MAX},
        {"tasks", settings->tasks, 1, CHECK_TASKS_MAX},
        {"keys", settings->keys, 2, CHECK_KEYS_MAX},
        {"workers", settings->workers, 0, CHECK_WORKERS_MAX / 2},
    };
    int result = EXIT_OK;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && result == EXIT_OK; i++)
        result = check_count(counts[i].name, counts[i].value, counts[i].min, counts[i].max);
    if (result == EXIT_OK && settings->ops < settings->nodes)
        return cmd_usage("check",
                         "--ops: %" PRIu64 " are too few for %" PRIu64
                         " compute nodes; use at least one for each of --nodes",
                         settings->ops, settings->nodes);
    return result;
}

static unsigned worker_count(const struct check *check)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t count = check->settings->workers;
    if (count == 0)
        count = processors > 0 ? (uint64_t)processors : 1;
    if (count > CHECK_WORKERS_MAX / 2)
        count = CHECK_WORKERS_MAX / 2;
    return (unsigned)(count < check->seeds ? count : check->seeds);
}

static int prepare(struct check *check, const struct settings *settings)
{
    struct check_run *run = &check->run;
    check->settings = settings;
    run->options = (struct check_options){.nodes = (unsigned)settings->nodes,
                                          .memory = (unsigned)settings->memory,
                                          .threads = (unsigned)settings->threads,
                                          .tasks = (unsigned)settings->tasks,
                                          .keys = (unsigned)settings->keys,
                                          .ops = (unsigned)settings->ops,
                                          .trace = settings->trace};
    int result = check_counts(settings);
    if (result != EXIT_OK)
        return result;
    result = set_engine(check);
    if (result != EXIT_OK)
        return result;
    if (!parse_seeds(settings->seeds, &run->first_seed, &run->last_seed))
        return cmd_usage("check", "--seeds: '%.48s' is no range; use for example 1..200",
                         settings->seeds);
    if (!parse_faults(settings->faults, &run->options.faults))
        return cmd_usage("check",
                         "--faults: '%.32s' is no list of none, crash, short, outage, pauses, "
                         "flips, answers, full, alloc, blobs, lost, locks and all",
                         settings->faults);
    check->seeds = run->last_seed - run->first_seed + 1;
    if (settings->trace && check->seeds != 1)
        return cmd_usage("check", "--trace shows one seed; give it as --seeds N");
    run->workers = worker_count(check);
    return EXIT_OK;
}

/* ---- saying it ------------------------------------------------------------------------------- */

static void clear_bar(const struct check *check)
{
    if (check->progress)
        fprintf(stderr, "\r\033[K");
}

static void draw_bar(const struct check *check)
{
    char bar[BAR_WIDTH + 1];
    if (!check->progress || check->seeds == 0)
        return;
    unsigned filled = (unsigned)(check->done * BAR_WIDTH / check->seeds);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', filled);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r[%s] %" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 " operations", bar,
            check->done, check->seeds, check->sum.operations);
    fflush(stderr);
}

static void add_text(char *line, size_t bytes, const char *option, const char *value)
{
    size_t used = strlen(line);
    if (value != NULL && value[0] != '\0')
        snprintf(line + used, bytes - used, " --%s %s", option, value);
}

static void add_count(char *line, size_t bytes, const char *option, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    add_text(line, bytes, option, text);
}

static void print_replay(const struct check *check, uint64_t seed)
{
    const struct settings *settings = check->settings;
    char line[REPLAY_BYTES];

    snprintf(line, sizeof(line), "%s check", cmd_program);
    add_text(line, sizeof(line), "engine", settings->engine);
    add_count(line, sizeof(line), "seeds", seed);
    add_text(line, sizeof(line), "faults", settings->faults);
    add_count(line, sizeof(line), "ops", settings->ops);
    add_count(line, sizeof(line), "nodes", settings->nodes);
    add_count(line, sizeof(line), "memory", settings->memory);
    add_count(line, sizeof(line), "threads", settings->threads);
    add_count(line, sizeof(line), "tasks", settings->tasks);
    add_count(line, sizeof(line), "keys", settings->keys);
    add_text(line, sizeof(line), "without", settings->without);
    add_text(line, sizeof(line), "with", settings->with);
    add_text(line, sizeof(line), "break", settings->broken);
    printf("replay: %s --trace\n", line);
}

static void add_result(struct check *check, const struct check_result *result)
{
    struct check_result *sum = &check->sum;
    check->done++;
    check->violations += result->violated;
    check->undecided += result->undecided;
    sum->operations += result->operations;
    sum->unknown += result->unknown;
    sum->failed += result->failed;
    sum->kills += result->kills;
    sum->pauses += result->pauses;
    sum->cuts += result->cuts;
    sum->restarts += result->restarts;
    sum->outages += result->outages;
    sum->flips += result->flips;
    sum->lost += result->lost;
    sum->lock_tables += result->lock_tables;
    sum->big_values += result->big_values;
    sum->full += result->full;
    sum->corrupt += result->corrupt;
    sum->served += result->served;
    sum->recoveries += result->recoveries;
    sum->splits += result->splits;
    sum->merges += result->merges;
    sum->repairs += result->repairs;
    sum->forwarded += result->forwarded;
    sum->moves += result->moves;
    sum->virtual_ns += result->virtual_ns;
    if (result->leaked_bytes > sum->leaked_bytes)
        sum->leaked_bytes = result->leaked_bytes;
}

static bool seed_ended(void *context, uint64_t seed, const struct check_result *result)
{
    struct check *check = context;
    add_result(check, result);
    if (result->violated || result->undecided != 0) {
        clear_bar(check);
        if (result->violated)
            printf("seed %" PRIu64 ": VIOLATION: %s\n", seed, result->text);
        else
            printf("seed %" PRIu64 ": UNDECIDED: the search for an order was given up\n", seed);
        print_replay(check, seed);
        fflush(stdout);
    }
    if (check->settings->hashes) {
        clear_bar(check);
        printf("seed %" PRIu64 ": hash %016" PRIx64 "\n", seed, result->trace_hash);
    }
    draw_bar(check);
    return check->violations == 0 || check->settings->keep_going;
}

static int report(const struct check *check)
{
    const struct check_result *sum = &check->sum;
    double seconds = (double)(rt_machine_ns() - check->begin_ns) / 1e9;
    char undecided[64] = "";

    if (check->undecided > 0)
        snprintf(undecided, sizeof(undecided), ", %" PRIu64 " UNDECIDED", check->undecided);
    clear_bar(check);
    printf("check %s: %" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 " violated%s; %" PRIu64
           " operations, %" PRIu64 " of unknown outcome; %" PRIu64 " kills, %" PRIu64
           " pauses, %" PRIu64 " cuts, %" PRIu64 " restarts, %" PRIu64 " outages, %" PRIu64
           " flips, %" PRIu64 " lost windows, %" PRIu64 " lost lock tables, %" PRIu64
           " recoveries; %" PRIu64 " answers 'corrupt', %" PRIu64 " 'full'; %" PRIu64
           " values of megabytes; %" PRIu64 " clients served afterwards; %" PRIu64
           " splits, %" PRIu64 " merges, %" PRIu64 " repairs; %" PRIu64 " forwarded, %" PRIu64
           " moves; at most %" PRIu64 " bytes left behind; %.1f s simulated in %.1f s\n",
           check->settings->engine, check->done, check->seeds, check->violations, undecided,
           sum->operations, sum->unknown, sum->kills, sum->pauses, sum->cuts, sum->restarts,
           sum->outages, sum->flips, sum->lost, sum->lock_tables, sum->recoveries, sum->corrupt,
           sum->full, sum->big_values, sum->served, sum->splits, sum->merges, sum->repairs,
           sum->forwarded, sum->moves, sum->leaked_bytes, (double)sum->virtual_ns / 1e9, seconds);
    return check->violations == 0 && check->undecided == 0 ? EXIT_OK : EXIT_FAILED;
}

/* ---- running --------------------------------------------------------------------------------- */

static int run_check(struct check *check)
{
    check->begin_ns = rt_machine_ns();
    check->progress = isatty(STDERR_FILENO) == 1 && !check->settings->trace;
    draw_bar(check);
    if (check->settings->trace) {
        struct check_result *result = calloc(1, sizeof(*result));
        if (result == NULL)
            return EXIT_FAILED;
        check->run.options.seed = check->run.first_seed;
        check_seed(&check->run.options, result);
        (void)seed_ended(check, check->run.first_seed, result);
        free(result);
    } else if (!check_workers_run(&check->run, seed_ended, check)) {
        cmd_error("check", "cannot start a process");
        return EXIT_FAILED;
    }
    return report(check);
}

int cmd_check(int argc, char **argv)
{
    struct check check = {0};
    struct settings settings = {0};
    struct config config;
    int result;

    if (cmd_load(&config, &command, argc, argv, &settings, &result)) {
        result = cmd_log_begin("check", &settings.log) ? prepare(&check, &settings) : EXIT_USAGE;
        if (result == EXIT_OK)
            result = run_check(&check);
    }
    config_fini(&config);
    return result;
}
