/*
 * metrics.c - what the server says of itself to GET /metrics.
 *
 * Commands are counted in atomics; what belongs to a loop (the session's counters, its tables) is
 * copied by that loop, to which a message is sent. The pool is asked by the first thread's session.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/http.h"
#include "http/metrics_pool.h"
#include "server/server_int.h"

enum { LABELS_BYTES = 128, HISTOGRAM_FROM = 8, HISTOGRAM_TO = 34 /* powers of two, nanoseconds */ };
static const double quantiles[] = {0.5, 0.9, 0.99, 0.999};

/* ---- what loops own -------------------------------------------------------------------------- */

/* One thread's part; the message comes back by counting down. */
struct part {
    struct rt_message message;
    struct server_thread *thread;
    struct gathered *all;
    struct fabric_counters counters[FABRIC_TARGETS];
};

struct gathered {
    struct rt_countdown left;
    struct rt_latch latch; /* over the tables */
    struct store_stats databases[SERVER_DATABASES][2];
    struct range_stats {
        char name[STORE_NAME_MAX];
        struct store_stats stats;
    } ranges[SERVER_RANGE_TABLES_MAX];
    unsigned range_count;
    struct part parts[SERVER_THREADS_MAX];
};

/* Numbers are of the whole process: whichever thread has a table open says the same. */
static void gather_range(struct gathered *all, const struct range_table *table)
{
    for (unsigned i = 0; i < all->range_count; i++) {
        if (strcmp(all->ranges[i].name, table->name) == 0)
            return;
    }
    if (all->range_count == SERVER_RANGE_TABLES_MAX)
        return;
    struct range_stats *stats = &all->ranges[all->range_count++];
    memcpy(stats->name, table->name, sizeof(stats->name));
    store_table_stats(table->table, &stats->stats);
}

static void part_deliver(struct rt_message *message)
{
    struct part *part = container_of(message, struct part, message);
    struct server_thread *thread = part->thread;
    struct gathered *all = part->all;

    store_counters(thread->store, part->counters);
    rt_latch_lock(&all->latch);
    for (unsigned i = 0; i < SERVER_DATABASES; i++) {
        for (unsigned j = 0; j < 2; j++) {
            if (thread->databases[i].tables[j] != NULL)
                store_table_stats(thread->databases[i].tables[j], &all->databases[i][j]);
        }
    }
    for (unsigned i = 0; i < thread->range_table_count; i++)
        gather_range(all, &thread->range_tables[i]);
    rt_latch_unlock(&all->latch);
    rt_countdown_done(&all->left);
}

static void gather_co(struct server *server, struct gathered *all)
{
    unsigned threads = server->options.threads;
    rt_countdown_init(&all->left, threads);
    for (unsigned i = 0; i < threads; i++) {
        all->parts[i] = (struct part){
            .message.deliver = part_deliver, .thread = &server->threads[i], .all = all};
        rt_loop_post(server->threads[i].loop, &all->parts[i].message);
    }
    rt_countdown_wait_co(&all->left);
}

static void put_loops_co(struct server *server, struct metrics *out)
{
    struct gathered *all = calloc(1, sizeof(*all));
    struct fabric_counters counters[FABRIC_TARGETS] = {{0}};
    struct store_stats index = {0};
    if (all == NULL) {
        out->failed = true;
        return;
    }
    gather_co(server, all);
    for (unsigned i = 0; i < server->options.threads; i++) {
        for (unsigned target = 0; target < FABRIC_TARGETS; target++)
            fabric_counters_add(&counters[target], &all->parts[i].counters[target]);
    }
    for (unsigned i = 0; i < SERVER_DATABASES; i++) {
        store_stats_add(&index, &all->databases[i][0]);
        store_stats_add(&index, &all->databases[i][1]);
    }
    for (unsigned i = 0; i < all->range_count; i++)
        store_stats_add(&index, &all->ranges[i].stats);
    metrics_fabric(out, counters);
    metrics_index(out, &index);
    free(all);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void put_commands(struct metrics *out, const struct stats_sum *sum)
{
    char labels[LABELS_BYTES];
    metrics_family(out, "pando_commands_total", METRICS_COUNTER, "Commands executed.");
    for (unsigned i = 0; i < STATS_COMMANDS_MAX && sum->command[i].name != NULL; i++) {
        if (sum->command[i].calls == 0)
            continue;
        snprintf(labels, sizeof(labels), "command=\"%s\"", sum->command[i].name);
        metrics_u64(out, "pando_commands_total", labels, sum->command[i].calls);
    }
    metrics_family(out, "pando_command_errors_total", METRICS_COUNTER,
                   "Commands that were answered with an error.");
    for (unsigned i = 0; i < STATS_COMMANDS_MAX && sum->command[i].name != NULL; i++) {
        if (sum->command[i].calls == 0)
            continue;
        snprintf(labels, sizeof(labels), "command=\"%s\"", sum->command[i].name);
        metrics_u64(out, "pando_command_errors_total", labels, sum->command[i].errors);
    }
}

static void put_quantiles(struct metrics *out, const struct stats_sum *sum)
{
    const char *name = "pando_command_duration_seconds";
    char labels[LABELS_BYTES];
    metrics_family(out, name, METRICS_SUMMARY,
                   "Time from the beginning of a command to its reply, since the server began.");
    for (unsigned i = 0; i < STATS_COMMANDS_MAX && sum->command[i].name != NULL; i++) {
        const struct stats_command_sum *command = &sum->command[i];
        if (command->calls == 0)
            continue;
        for (size_t q = 0; q < sizeof(quantiles) / sizeof(quantiles[0]); q++) {
            snprintf(labels, sizeof(labels), "command=\"%s\",quantile=\"%g\"", command->name,
                     quantiles[q]);
            metrics_double(out, name, labels,
                           (double)stats_quantile_ns(command, quantiles[q]) / 1e9);
        }
        snprintf(labels, sizeof(labels), "command=\"%s\"", command->name);
        metrics_double(out, "pando_command_duration_seconds_sum", labels,
                       (double)command->ns / 1e9);
        metrics_u64(out, "pando_command_duration_seconds_count", labels, command->calls);
    }
}

/* All commands in one, by powers of two: from two of these anybody can tell the quantiles of the time
 * between. */
static void put_histogram(struct metrics *out, const struct stats_sum *sum)
{
    const char *name = "pando_duration_seconds";
    char labels[LABELS_BYTES];
    uint64_t at_most[HISTOGRAM_TO + 1] = {0}, ns = 0, calls = 0;
    for (unsigned i = 0; i < STATS_COMMANDS_MAX && sum->command[i].name != NULL; i++) {
        const struct stats_command_sum *command = &sum->command[i];
        ns += command->ns;
        for (unsigned j = 0; j < STATS_BUCKETS; j++) {
            calls += command->buckets[j];
            for (unsigned power = HISTOGRAM_FROM; power <= HISTOGRAM_TO; power++) {
                if (stats_bucket_limit_ns(j) < UINT64_C(1) << power)
                    at_most[power] += command->buckets[j];
            }
        }
    }
    metrics_family(out, name, METRICS_HISTOGRAM, "The same for all commands together.");
    for (unsigned power = HISTOGRAM_FROM; power <= HISTOGRAM_TO; power++) {
        snprintf(labels, sizeof(labels), "le=\"%.9g\"", (double)(UINT64_C(1) << power) / 1e9);
        metrics_u64(out, "pando_duration_seconds_bucket", labels, at_most[power]);
    }
    metrics_u64(out, "pando_duration_seconds_bucket", "le=\"+Inf\"", calls);
    metrics_double(out, "pando_duration_seconds_sum", NULL, (double)ns / 1e9);
    metrics_u64(out, "pando_duration_seconds_count", NULL, calls);
}

static void put_connections(struct metrics *out, const struct stats_sum *sum)
{
    metrics_one(out, "pando_clients", METRICS_GAUGE, "Connections now.", sum->clients);
    metrics_one(out, "pando_connections_total", METRICS_COUNTER, "Connections that were served.",
                sum->connections);
    metrics_family(out, "pando_errors_total", METRICS_COUNTER, "What went wrong, by kind.");
    metrics_u64(out, "pando_errors_total", "kind=\"rejected\"", sum->rejected);
    metrics_u64(out, "pando_errors_total", "kind=\"protocol\"", sum->protocol_errors);
    metrics_u64(out, "pando_errors_total", "kind=\"authentication\"", sum->auth_failures);
    metrics_one(out, "pando_received_bytes_total", METRICS_COUNTER, "Bytes from clients.",
                sum->bytes_in);
    metrics_one(out, "pando_sent_bytes_total", METRICS_COUNTER, "Bytes to clients.",
                sum->bytes_out);
    metrics_one(out, "pando_key_hits_total", METRICS_COUNTER, "Keys that were asked for and there.",
                sum->hits);
    metrics_one(out, "pando_key_misses_total", METRICS_COUNTER, "Keys that were not.", sum->misses);
    metrics_one(out, "pando_keys_expired_total", METRICS_COUNTER,
                "Keys removed when their time had come.", sum->expired);
    metrics_one(out, "pando_threads", METRICS_GAUGE, "Server threads.", sum->threads);
    metrics_family(out, "pando_uptime_seconds", METRICS_GAUGE, "Time since the server began.");
    metrics_double(out, "pando_uptime_seconds", NULL, (double)sum->uptime_ms / 1000);
}

static void content_co(void *context, struct metrics *out)
{
    struct server *server = context;
    struct stats_sum *sum = malloc(sizeof(*sum));
    if (sum == NULL) {
        out->failed = true;
        return;
    }
    server_stats(server, sum);
    metrics_build(out);
    put_connections(out, sum);
    metrics_one(out, "pando_strangers_evicted_total", METRICS_COUNTER,
                "Connections that proved nothing and were closed to make room for others.",
                strangers_evicted(server->strangers) + strangers_evicted(server->silent));
    put_commands(out, sum);
    put_quantiles(out, sum);
    put_histogram(out, sum);
    free(sum);
    put_loops_co(server, out);
    metrics_pool_co(out, server->threads[0].store, env_memory_nodes(server->options.env));
}

/* ---- being there ----------------------------------------------------------------------------- */

enum pando_status metrics_open(struct server *server, char *error, size_t error_bytes)
{
    if (server->options.metrics_listen == NULL)
        return PANDO_OK;
    return http_open(server->options.metrics_listen, content_co, server, &server->http, error,
                     error_bytes);
}

enum pando_status metrics_start(struct server *server)
{
    return server->http == NULL ? PANDO_OK : http_start(server->http);
}

void metrics_stop_co(struct server *server)
{
    if (server->http != NULL)
        http_stop_co(server->http);
}

void metrics_close(struct server *server)
{
    if (server->http != NULL)
        http_close(server->http);
}

const char *server_metrics_address(const struct server *server)
{
    return server->http == NULL ? "" : http_address(server->http);
}
