/*
 * fabric_bench.c - `pando fabric-bench`: its options and its report.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/fabric.h"
#include "cmd/cmd.h"

static const uint64_t ROUND_NS = 50 * RT_NS_PER_MS;
static const uint64_t BUFFERS_MAX = (uint64_t)1 << 30;

struct settings {
    struct cmd_pool pool;
    const char *op, *seconds, *json;
    uint64_t size, list, depth, threads, span;
    bool one_task;
    bool raw, runtime, force;
};

static const struct config_option options[] = {
    CMD_POOL_OPTIONS(struct settings),
    {.name = "op",
     .metavar = "OP",
     .help = "read, write, cas, faa or all.",
     .default_text = "read",
     CONFIG_TEXT_INTO(struct settings, op)},
    {.name = "size",
     .metavar = "SIZE",
     .help = "Bytes of a read or write; cas and faa have 8.",
     .default_text = "64",
     CONFIG_SIZE_INTO(struct settings, size)},
    {.name = "list",
     .metavar = "N",
     .help = "Operations of a list: they travel and complete together.",
     .default_text = "1",
     CONFIG_U64_INTO(struct settings, list)},
    {.name = "depth",
     .metavar = "N",
     .help = "Lists in flight per thread.",
     .default_text = "64",
     CONFIG_U64_INTO(struct settings, depth)},
    {.name = "one-task",
     .help = "One task posts all of a thread's lists, instead of a task for each.",
     .default_text = "false",
     CONFIG_BOOL_INTO(struct settings, one_task)},
    {.name = "threads",
     .metavar = "N",
     .help = "Threads (of every compute node, if simulated).",
     .default_text = "1",
     CONFIG_U64_INTO(struct settings, threads)},
    {.name = "seconds",
     .metavar = "SECONDS",
     .help = "How long to measure each operation, 2 if not given; on a simulated pool this is "
             "virtual time, 0.02 if not given.",
     CONFIG_TEXT_INTO(struct settings, seconds)},
    {.name = "span",
     .metavar = "SIZE",
     .help = "Addresses are random in the last part of each window, this large but at most half of "
             "it.",
     .default_text = "1G",
     CONFIG_SIZE_INTO(struct settings, span)},
    {.name = "raw",
     .help = "In turns with the pool, measure what lies beneath it and print the ratio: an echo "
             "over a socket for tcp, a memcpy loop for shm and embedded.",
     CONFIG_BOOL_INTO(struct settings, raw)},
    {.name = "runtime",
     .help = "Also measure tasks: create, switch, and the cost of an operation.",
     CONFIG_BOOL_INTO(struct settings, runtime)},
    {.name = "force",
     .help = "Let write, cas and faa run on a pool that others may use: write overwrites the last "
             "part of its windows with zeroes.",
     CONFIG_BOOL_INTO(struct settings, force)},
    {.name = "json",
     .metavar = "FILE",
     .help = "Also write all numbers as JSON to FILE, or to stdout if it is '-'.",
     CONFIG_TEXT_INTO(struct settings, json)},
};

static const struct config_command command = {
    .name = "fabric-bench",
    .summary = "Measures raw READ, WRITE, CAS and FAA on a pool: rates and latencies.",
    .example = "pando fabric-bench --pool tcp:127.0.0.1:7000 --secret-file pando.secret --raw",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

static const struct op_name {
    const char *name, *title;
    enum fabric_kind kind;
} op_names[] = {
    {"read", "READ", FABRIC_READ},
    {"write", "WRITE", FABRIC_WRITE},
    {"cas", "CAS", FABRIC_CAS},
    {"faa", "FAA", FABRIC_FAA},
};

enum { OPS = sizeof(op_names) / sizeof(op_names[0]) };

struct bench {
    const struct settings *settings;
    struct env *env;
    uint64_t duration_ns;
    FILE *out;
    struct json json;
};

/* ---- options --------------------------------------------------------------------------------- */

static int usage(const char *option, const char *value, const char *what)
{
    return cmd_usage("fabric-bench", "--%s: '%.32s' %s", option, value, what);
}

static int check_numbers(const struct settings *settings)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64, settings->size);
    if (settings->size == 0 || settings->size > FABRIC_LIST_BYTES_MAX)
        return usage("size", text, "is not from 1 to 1M bytes; use for example 64 or 1K");
    snprintf(text, sizeof(text), "%" PRIu64, settings->list);
    if (settings->list == 0 || settings->list > FABRIC_LIST_OPS_MAX)
        return usage("list", text, "is not from 1 to 256; use for example 1");
    if (settings->list * settings->size > FABRIC_LIST_BYTES_MAX)
        return usage("list", text, "times --size is more than 1 MiB; use less of either");
    snprintf(text, sizeof(text), "%" PRIu64, settings->depth);
    if (settings->depth == 0 || settings->depth > BENCH_DEPTH_MAX)
        return usage("depth", text, "is not from 1 to 16384; use for example 64");
    if (settings->depth * settings->list * settings->size > BUFFERS_MAX)
        return usage("depth", text, "times --list and --size is more than 1 GiB; use less");
    snprintf(text, sizeof(text), "%" PRIu64, settings->threads);
    if (settings->threads == 0 || settings->threads > BENCH_THREADS_MAX)
        return usage("threads", text, "is not from 1 to 64; use for example 1");
    return EXIT_OK;
}

static int check_op(const struct settings *settings)
{
    if (strcmp(settings->op, "all") == 0)
        return EXIT_OK;
    for (size_t i = 0; i < OPS; i++) {
        if (strcmp(settings->op, op_names[i].name) == 0)
            return EXIT_OK;
    }
    return usage("op", settings->op, "is no operation; use read, write, cas, faa or all");
}

/* What can only be said once the pool is known. */
static int check_pool(struct bench *bench)
{
    const struct settings *settings = bench->settings;
    bool simulated = env_simulated(bench->env);
    bool shared =
        strcmp(env_kind(bench->env), "shm") == 0 || strcmp(env_kind(bench->env), "tcp") == 0;

    bench->duration_ns = simulated ? 20 * RT_NS_PER_MS : 2 * RT_NS_PER_S;
    if (settings->seconds != NULL && (!cmd_parse_seconds(settings->seconds, &bench->duration_ns) ||
                                      bench->duration_ns < RT_NS_PER_MS))
        return usage("seconds", settings->seconds, "is not from 0.001 to 3600; use for example 2");
    if (settings->raw && simulated)
        return cmd_usage("fabric-bench",
                         "--raw: nothing lies beneath a simulated pool; leave it out");
    if (settings->raw && env_memory_nodes(bench->env) > 1)
        return cmd_usage("fabric-bench", "--raw: name one memory node only");
    if (shared && !settings->force && strcmp(settings->op, "read") != 0)
        return cmd_usage(
            "fabric-bench",
            "--op %s: overwrites the last part of each window of a pool that others may "
            "use; add --force if it holds nothing of value",
            settings->op);
    return EXIT_OK;
}

/* ---- report ---------------------------------------------------------------------------------- */

static void rate_text(char *out, size_t size, double rate)
{
    if (rate >= 1e6)
        snprintf(out, size, "%.2f M/s", rate / 1e6);
    else
        snprintf(out, size, "%.1f k/s", rate / 1e3);
}

static double micros(const struct histogram *histogram, double q)
{
    return (double)histogram_quantile(histogram, q) / 1000;
}

static void print_result(struct bench *bench, const struct op_name *op,
                         const struct bench_spec *spec, const struct bench_result *result)
{
    char rate[32], raw_rate[32], real[32];
    bool simulated = env_simulated(bench->env);

    rate_text(rate, sizeof(rate), result->rate);
    fprintf(bench->out, "%s%-5s %u B", simulated ? "simulated " : "", op->title, spec->size);
    if (spec->list > 1)
        fprintf(bench->out, ", lists of %u", spec->list);
    if (spec->one_task)
        fprintf(bench->out, ", one task");
    fprintf(bench->out, ", depth %u, %u thread%s: %s, p50 %.2f us, p99 %.2f us", spec->depth,
            spec->threads, spec->threads == 1 ? "" : "s", rate, micros(&result->latency_ns, 0.5),
            micros(&result->latency_ns, 0.99));
    if (spec->raw != NULL) {
        rate_text(raw_rate, sizeof(raw_rate), result->raw_rate);
        fprintf(bench->out, "; raw %s %s, ratio %.2f", bench_raw_name(spec->raw), raw_rate,
                result->rate / result->raw_rate);
    }
    if (histogram_count(&result->raw_latency_ns) > 0)
        fprintf(bench->out, ", raw p50 %.2f us, latency ratio %.2f",
                micros(&result->raw_latency_ns, 0.5),
                micros(&result->latency_ns, 0.5) / micros(&result->raw_latency_ns, 0.5));
    if (simulated) {
        rate_text(real, sizeof(real), (double)result->operations / result->real_seconds);
        fprintf(bench->out, "; the simulator did %s of real time", real);
    }
    fprintf(bench->out, "\n");
    fflush(bench->out);
}

static void json_number(struct json *json, const char *key, double value)
{
    json_key(json, key);
    json_double(json, value);
}

static void json_count(struct json *json, const char *key, uint64_t value)
{
    json_key(json, key);
    json_u64(json, value);
}

static void json_latency(struct json *json, const char *key, const struct histogram *histogram)
{
    json_key(json, key);
    json_begin_object(json);
    json_count(json, "samples", histogram_count(histogram));
    json_number(json, "mean", histogram_mean(histogram));
    json_count(json, "min", histogram_min(histogram));
    json_count(json, "p50", histogram_quantile(histogram, 0.5));
    json_count(json, "p90", histogram_quantile(histogram, 0.9));
    json_count(json, "p99", histogram_quantile(histogram, 0.99));
    json_count(json, "p999", histogram_quantile(histogram, 0.999));
    json_count(json, "max", histogram_max(histogram));
    json_end_object(json);
}

static void json_result(struct json *json, const struct op_name *op, const struct bench_spec *spec,
                        const struct bench_result *result)
{
    json_begin_object(json);
    json_key(json, "op");
    json_string(json, op->name);
    json_count(json, "size", spec->size);
    json_count(json, "list", spec->list);
    json_count(json, "depth", spec->depth);
    json_count(json, "threads", spec->threads);
    json_count(json, "span_bytes", result->span_bytes);
    json_count(json, "operations", result->operations);
    json_number(json, "per_second", result->rate);
    json_number(json, "mean_per_second", result->mean_rate);
    json_latency(json, "latency_ns", &result->latency_ns);
    json_number(json, "real_seconds", result->real_seconds);
    json_number(json, "real_per_second", (double)result->operations / result->real_seconds);
    if (spec->raw != NULL) {
        json_key(json, "raw");
        json_string(json, bench_raw_name(spec->raw));
        json_number(json, "raw_per_second", result->raw_rate);
        json_number(json, "ratio", result->rate / result->raw_rate);
    }
    if (histogram_count(&result->raw_latency_ns) > 0) {
        json_latency(json, "raw_latency_ns", &result->raw_latency_ns);
        json_number(json, "latency_ratio",
                    micros(&result->latency_ns, 0.5) / micros(&result->raw_latency_ns, 0.5));
    }
    json_end_object(json);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static unsigned rounds_of(uint64_t duration_ns)
{
    uint64_t rounds = duration_ns / ROUND_NS;
    return rounds < 5 ? 5 : rounds > 1000 ? 1000 : (unsigned)rounds;
}

static void show_progress(unsigned round, unsigned rounds)
{
    fprintf(stderr, "\rmeasuring: round %u of %u ", round + 1, rounds);
}

static bool measure_op(struct bench *bench, const struct op_name *op)
{
    const struct settings *settings = bench->settings;
    bool atomic = op->kind == FABRIC_CAS || op->kind == FABRIC_FAA;
    struct bench_spec spec = {
        .kind = op->kind,
        .size = atomic ? 8 : (uint32_t)settings->size,
        .list = (unsigned)settings->list,
        .depth = (unsigned)settings->depth,
        .threads = (unsigned)settings->threads,
        .one_task = settings->one_task,
        .duration_ns = bench->duration_ns,
        .rounds = env_simulated(bench->env) ? 1 : rounds_of(bench->duration_ns),
        .span_bytes = settings->span,
        .progress = isatty(STDERR_FILENO) == 1 ? show_progress : NULL,
    };
    char error[BENCH_ERROR_BYTES];
    struct bench_result *result = malloc(sizeof(*result));
    uint64_t embedded_bytes = 0;
    bool ok = false;

    if (strcmp(env_kind(bench->env), "embedded") == 0)
        (void)!parse_size(settings->pool.uri + strlen("embedded:"), &embedded_bytes);
    if (result == NULL) {
        cmd_error("fabric-bench", "out of memory");
        return false;
    }
    if (settings->raw) {
        spec.raw = bench_raw_open(bench->env, &spec, embedded_bytes, error, sizeof(error));
        if (spec.raw == NULL) {
            cmd_error("fabric-bench", "%s", error);
            goto out;
        }
    }
    ok = bench_measure(bench->env, &spec, result);
    if (spec.progress != NULL)
        fprintf(stderr, "\r\033[K");
    if (ok) {
        print_result(bench, op, &spec, result);
        json_result(&bench->json, op, &spec, result);
    } else {
        cmd_error("fabric-bench", "%s: %s", op->title, result->error);
    }
out:
    if (spec.raw != NULL)
        bench_raw_close(spec.raw);
    free(result);
    return ok;
}

static bool measure_runtime(struct bench *bench)
{
    struct bench_runtime runtime;
    char error[BENCH_ERROR_BYTES];
    if (!bench_runtime(&runtime, error, sizeof(error))) {
        cmd_error("fabric-bench", "--runtime: %s", error);
        return false;
    }
    fprintf(bench->out,
            "runtime: task created, run and finished %.1f ns; switch %.2f ns (yield %.1f ns); "
            "operation %.1f ns, of which copy %.1f ns\n",
            runtime.create_ns, runtime.switch_ns, runtime.yield_ns, runtime.operation_ns,
            runtime.copy_ns);
    json_key(&bench->json, "runtime");
    json_begin_object(&bench->json);
    json_number(&bench->json, "create_ns", runtime.create_ns);
    json_number(&bench->json, "switch_ns", runtime.switch_ns);
    json_number(&bench->json, "yield_ns", runtime.yield_ns);
    json_number(&bench->json, "operation_ns", runtime.operation_ns);
    json_number(&bench->json, "copy_ns", runtime.copy_ns);
    json_number(&bench->json, "net_operation_ns", runtime.operation_ns - runtime.copy_ns);
    json_end_object(&bench->json);
    return true;
}

static bool measure_all(struct bench *bench)
{
    const struct settings *settings = bench->settings;
    bool ok = true;

    json_begin_object(&bench->json);
    json_key(&bench->json, "pool");
    json_string(&bench->json, settings->pool.uri);
    json_key(&bench->json, "kind");
    json_string(&bench->json, env_kind(bench->env));
    json_key(&bench->json, "simulated");
    json_bool(&bench->json, env_simulated(bench->env));
    json_key(&bench->json, "measurements");
    json_begin_array(&bench->json);
    for (size_t i = 0; ok && i < OPS; i++) {
        if (strcmp(settings->op, "all") == 0 || strcmp(settings->op, op_names[i].name) == 0)
            ok = measure_op(bench, &op_names[i]);
    }
    json_end_array(&bench->json);
    if (ok && settings->runtime)
        ok = measure_runtime(bench);
    json_end_object(&bench->json);
    return ok;
}

static int bench_main(struct bench *bench)
{
    const struct settings *settings = bench->settings;
    bool json_to_stdout = settings->json != NULL && strcmp(settings->json, "-") == 0;

    int result = check_pool(bench);
    if (result != EXIT_OK)
        return result;
    bench->out = json_to_stdout ? stderr : stdout;
    json_init(&bench->json);
    bool ok = measure_all(bench);
    if (ok && settings->json != NULL)
        ok = cmd_write_json("fabric-bench", &bench->json, settings->json);
    json_fini(&bench->json);
    return ok ? EXIT_OK : EXIT_FAILED;
}

int cmd_fabric_bench(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    struct bench bench = {.settings = &settings};
    int result;

    if (!cmd_load(&config, &command, argc, argv, &settings, &result))
        goto out;
    result = check_numbers(&settings);
    if (result == EXIT_OK)
        result = check_op(&settings);
    if (result != EXIT_OK)
        goto out;
    settings.pool.no_member = true;
    bench.env = cmd_pool_open("fabric-bench", &settings.pool, &result);
    if (bench.env != NULL) {
        result = bench_main(&bench);
        env_close(bench.env);
    }
out:
    config_fini(&config);
    return result;
}
