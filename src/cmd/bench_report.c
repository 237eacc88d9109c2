/*
 * bench_report.c - what a run found, as one line and as JSON.
 */
#include <inttypes.h>
#include <string.h>

#include "cmd/bench.h"

static double micros(const struct histogram *histogram, double q)
{
    return (double)histogram_quantile(histogram, q) / 1000;
}

static double ratio(double part, double whole)
{
    return whole == 0 ? 0 : part / whole;
}

static double hit_ratio(const struct bench_outcome *outcome)
{
    const struct engine_stats *stats = &outcome->stats;
    return ratio((double)stats->cache_hits, (double)(stats->cache_hits + stats->cache_misses));
}

static struct fabric_counters all_counters(const struct bench_outcome *outcome)
{
    struct fabric_counters sum = {0};
    for (int i = 0; i < FABRIC_TARGETS; i++)
        fabric_counters_add(&sum, &outcome->tally.counters[i]);
    return sum;
}

/* ---- for people ------------------------------------------------------------------------------ */

void bench_report_line(FILE *out, const struct env *env, const struct bench_plan *plan,
                       const struct bench_outcome *outcome)
{
    const struct bench_tally *tally = &outcome->tally;
    struct fabric_counters sum = all_counters(outcome);
    double ops = (double)bench_tally_ops(tally);
    unsigned nodes = env_compute_nodes(env);

    fprintf(out, "%s on %s%s, %s, %s, %" PRIu64 " records, ", plan->engine_name, env_kind(env),
            env_simulated(env) ? " (simulated, virtual time)" : "", plan->workload->name,
            plan->dist_name, plan->space.records);
    if (nodes > 1)
        fprintf(out, "%u compute nodes x ", nodes);
    fprintf(out, "%u thread%s x %u: %.3f Mops, p50 %.2f us, p99 %.2f us", plan->threads,
            plan->threads == 1 ? "" : "s", plan->coroutines, outcome->rate / 1e6,
            micros(&tally->latency_ns, 0.5), micros(&tally->latency_ns, 0.99));
    fprintf(out,
            "; per operation %.3f round trips, %.3f READ, %.3f WRITE, %.3f atomics, %.0f B in, "
            "%.0f B out",
            ratio((double)(sum.lists + sum.calls), ops), ratio((double)sum.reads, ops),
            ratio((double)sum.writes, ops), ratio((double)sum.atomics, ops),
            ratio((double)sum.bytes_in, ops), ratio((double)sum.bytes_out, ops));
    if (engine_has_owners(plan->engine))
        fprintf(out,
                ", %.4f calls of memory nodes and %.4f of others, %.4f forwarded, "
                "%.4f offloaded",
                ratio((double)tally->counters[FABRIC_MEMORY].calls, ops),
                ratio((double)tally->counters[FABRIC_COMPUTE].calls, ops),
                ratio((double)outcome->stats.forwarded, ops),
                ratio((double)outcome->stats.offloaded, ops));
    if (outcome->stats.cache_hits + outcome->stats.cache_misses > 0)
        fprintf(out, "; cache hits %.2f %%", 100 * hit_ratio(outcome));
    if (outcome->limit_rate > 0)
        fprintf(out, "; limit %.3f Mops, %.2f of it", outcome->limit_rate / 1e6,
                outcome->best_rate / outcome->limit_rate);
    if (tally->errors > 0)
        fprintf(out, "; %" PRIu64 " errors", tally->errors);
    fprintf(out, "\n");
    fflush(out);
}

/* What one operation takes of a thread's time beyond the operations of the fabric. */
static double ns_above_limit(const struct env *env, const struct bench_plan *plan,
                             const struct bench_outcome *outcome)
{
    double threads = (double)plan->threads * env_compute_nodes(env);
    return threads * 1e9 * (1 / outcome->best_rate - 1 / outcome->limit_rate);
}

/* ---- for programs ---------------------------------------------------------------------------- */

static void number(struct json *json, const char *key, double value)
{
    json_key(json, key);
    json_double(json, value);
}

static void count(struct json *json, const char *key, uint64_t value)
{
    json_key(json, key);
    json_u64(json, value);
}

static void text(struct json *json, const char *key, const char *value)
{
    json_key(json, key);
    json_string(json, value);
}

static void latency(struct json *json, const struct histogram *histogram)
{
    number(json, "mean_us", histogram_mean(histogram) / 1000);
    number(json, "p50_us", micros(histogram, 0.5));
    number(json, "p90_us", micros(histogram, 0.9));
    number(json, "p99_us", micros(histogram, 0.99));
    number(json, "p999_us", micros(histogram, 0.999));
    number(json, "max_us", micros(histogram, 1));
}

static void by_kind(struct json *json, const struct bench_outcome *outcome)
{
    const struct bench_tally *tally = &outcome->tally;
    double ops = (double)bench_tally_ops(tally);

    json_key(json, "by_kind");
    json_begin_object(json);
    for (int i = 0; i < WORKLOAD_KINDS; i++) {
        if (tally->ops[i] == 0)
            continue;
        json_key(json, workload_kind_name((enum workload_kind)i));
        json_begin_object(json);
        count(json, "ops", tally->ops[i]);
        number(json, "mops", outcome->rate / 1e6 * ratio((double)tally->ops[i], ops));
        latency(json, &tally->kind_latency_ns[i]);
        json_end_object(json);
    }
    json_end_object(json);
}

static void per_op(struct json *json, const struct bench_outcome *outcome)
{
    static const char *const names[FABRIC_TARGETS] = {
        [FABRIC_MEMORY] = "memory", [FABRIC_COMPUTE] = "compute"};
    double ops = (double)bench_tally_ops(&outcome->tally);
    json_key(json, "per_op");
    json_begin_object(json);
    for (int i = 0; i < FABRIC_TARGETS; i++) {
        const struct fabric_counters *counters = &outcome->tally.counters[i];
        json_key(json, names[i]);
        json_begin_object(json);
        number(json, "reads", ratio((double)counters->reads, ops));
        number(json, "writes", ratio((double)counters->writes, ops));
        number(json, "atomics", ratio((double)counters->atomics, ops));
        number(json, "calls", ratio((double)counters->calls, ops));
        number(json, "round_trips", ratio((double)(counters->lists + counters->calls), ops));
        number(json, "bytes_out", ratio((double)counters->bytes_out, ops));
        number(json, "bytes_in", ratio((double)counters->bytes_in, ops));
        number(json, "retries", ratio((double)counters->retries, ops));
        json_end_object(json);
    }
    json_end_object(json);
}

/* Exact shares of the small values, and quantiles. */
static void distribution(struct json *json, const char *key, const struct histogram *histogram)
{
    enum { SHARES = 128 };
    double all = (double)histogram_count(histogram);
    char name[16];

    json_key(json, key);
    json_begin_object(json);
    count(json, "samples", histogram_count(histogram));
    number(json, "mean", histogram_mean(histogram));
    count(json, "p50", histogram_quantile(histogram, 0.5));
    count(json, "p90", histogram_quantile(histogram, 0.9));
    count(json, "p99", histogram_quantile(histogram, 0.99));
    count(json, "p999", histogram_quantile(histogram, 0.999));
    count(json, "max", histogram_max(histogram));
    json_key(json, "share");
    json_begin_object(json);
    for (size_t i = 0; i < SHARES; i++) {
        if (histogram->buckets[i] == 0)
            continue;
        snprintf(name, sizeof(name), "%zu", i);
        number(json, name, (double)histogram->buckets[i] / all);
    }
    json_end_object(json);
    json_end_object(json);
}

static void distributions(struct json *json, const struct bench_outcome *outcome)
{
    json_key(json, "distribution");
    json_begin_object(json);
    text(json, "of",
         outcome->exact ? "all operations"
                        : "a sample after the measurement, with one client per thread");
    distribution(json, "write_round_trips", &outcome->tally.write_round_trips);
    distribution(json, "write_bytes", &outcome->tally.write_bytes);
    distribution(json, "read_round_trips", &outcome->tally.read_round_trips);
    json_end_object(json);
}

static void engine_counts(struct json *json, const struct bench_outcome *outcome)
{
    const struct engine_stats *stats = &outcome->stats;
    double ops = (double)bench_tally_ops(&outcome->tally);
    json_key(json, "engine_per_op");
    json_begin_object(json);
    number(json, "rereads", ratio((double)stats->rereads, ops));
    number(json, "splits", ratio((double)stats->splits, ops));
    number(json, "merges", ratio((double)stats->merges, ops));
    number(json, "repairs", ratio((double)stats->repairs, ops));
    number(json, "lock_waits", ratio((double)stats->lock_waits, ops));
    number(json, "handovers", ratio((double)stats->handovers, ops));
    number(json, "cache_hits", ratio((double)stats->cache_hits, ops));
    number(json, "cache_misses", ratio((double)stats->cache_misses, ops));
    number(json, "forwarded", ratio((double)stats->forwarded, ops));
    number(json, "offloaded", ratio((double)stats->offloaded, ops));
    number(json, "checkpoints", ratio((double)stats->checkpoints, ops));
    number(json, "log_waits", ratio((double)stats->log_waits, ops));
    number(json, "moves", ratio((double)stats->moves, ops));
    json_end_object(json);
}

static void rates(struct json *json, const char *name, const uint64_t *operations, double seconds)
{
    json_key(json, name);
    json_begin_array(json);
    for (int i = 0; i < BENCH_SERIES; i++)
        json_double(json, (double)operations[i] / seconds / 1e6);
    json_end_array(json);
}

static void series(struct json *json, const struct bench_plan *plan,
                   const struct bench_outcome *outcome)
{
    double seconds = (double)plan->measure_ns / 1e9 / BENCH_SERIES;
    json_key(json, "series");
    json_begin_object(json);
    number(json, "join_at_seconds", (double)plan->join_at_ns / 1e9);
    number(json, "move_seconds", (double)outcome->move_ns / 1e9);
    number(json, "step_seconds", seconds);
    rates(json, "mops", outcome->series, seconds);
    rates(json, "mops_others", outcome->series_others, seconds);
    json_end_object(json);
}

static void settings(struct json *json, const struct env *env, const struct bench_plan *plan,
                     const struct bench_outcome *outcome)
{
    text(json, "engine", plan->engine_name);
    text(json, "without", plan->without == NULL ? "" : plan->without);
    if (plan->with != NULL)
        text(json, "with", plan->with);
    text(json, "fabric", env_kind(env));
    json_key(json, "simulated");
    json_bool(json, env_simulated(env));
    text(json, "time", env_simulated(env) ? "virtual" : "real");
    text(json, "workload", plan->workload->name);
    text(json, "dist", plan->dist_name);
    json_key(json, "routed");
    json_bool(json, plan->routed);
    count(json, "records", plan->space.records);
    count(json, "ops", bench_tally_ops(&outcome->tally));
    count(json, "compute_nodes", env_compute_nodes(env));
    count(json, "memory_nodes", env_memory_nodes(env));
    count(json, "processes", plan->processes);
    count(json, "process", outcome->process);
    count(json, "threads", plan->threads);
    count(json, "coroutines", plan->coroutines);
    count(json, "key_size", plan->shape.key_size);
    count(json, "value_size", plan->value_size);
    count(json, "node_size", plan->shape.node_bytes);
    count(json, "fill", plan->fill);
    count(json, "scan_length", plan->scan_length);
    count(json, "seed", plan->seed);
    if (env_window_bytes(env) > 0)
        count(json, "window_bytes", env_window_bytes(env));
}

void bench_report_json(struct json *json, const struct env *env, const struct bench_plan *plan,
                       const struct bench_outcome *outcome)
{
    const struct bench_tally *tally = &outcome->tally;
    char operations[160];

    json_begin_object(json);
    settings(json, env, plan, outcome);
    number(json, "seconds", (double)outcome->elapsed_ns / 1e9);
    number(json, "mops", outcome->rate / 1e6);
    latency(json, &tally->latency_ns);
    count(json, "latency_samples", histogram_count(&tally->latency_ns));
    count(json, "errors", tally->errors);
    count(json, "not_found", tally->not_found);
    by_kind(json, outcome);
    per_op(json, outcome);
    engine_counts(json, outcome);
    distributions(json, outcome);
    number(json, "cache_hit_ratio", hit_ratio(outcome));
    count(json, "cache_bytes", outcome->cache_bytes);
    number(json, "cache_bytes_per_leaf",
           ratio((double)outcome->cache_bytes,
                 (double)plan->space.records / (double)plan->pairs_per_leaf));
    count(json, "pool_bytes", outcome->pool_bytes);
    number(json, "bytes_per_record", outcome->bytes_per_record);
    if (outcome->limit_rate > 0) {
        bench_limit_text(plan, operations, sizeof(operations));
        json_key(json, "limit");
        json_begin_object(json);
        text(json, "operations", operations);
        number(json, "mops", outcome->limit_rate / 1e6);
        number(json, "engine_mops", outcome->best_rate / 1e6);
        json_end_object(json);
        number(json, "of_limit", outcome->best_rate / outcome->limit_rate);
        number(json, "ns_above_limit", ns_above_limit(env, plan, outcome));
    }
    if (plan->join_at_ns > 0)
        series(json, plan, outcome);
    number(json, "load_seconds", outcome->load_seconds);
    number(json, "real_seconds", outcome->real_seconds);
    number(json, "virtual_seconds", (double)outcome->virtual_ns / 1e9);
    json_end_object(json);
}
