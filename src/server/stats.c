#include "server/stats.h"

#include <stdlib.h>
#include <string.h>

#include "server/commands/command.h"
#include "server/server_int.h"

static void add_thread(const struct stats_thread *thread, struct stats_sum *out)
{
    out->commands += stats_get(&thread->commands);
    out->connections += stats_get(&thread->connections);
    out->rejected += stats_get(&thread->rejected);
    out->protocol_errors += stats_get(&thread->protocol_errors);
    out->auth_failures += stats_get(&thread->auth_failures);
    out->bytes_in += stats_get(&thread->bytes_in);
    out->bytes_out += stats_get(&thread->bytes_out);
    out->expired += stats_get(&thread->expired);
    out->hits += stats_get(&thread->hits);
    out->misses += stats_get(&thread->misses);
    out->clients += stats_get(&thread->clients);
    for (unsigned i = 0; i < command_numbers(); i++) {
        const struct stats_command *from = &thread->command[i];
        struct stats_command_sum *to = &out->command[i];
        to->calls += stats_get(&from->calls);
        to->errors += stats_get(&from->errors);
        to->ns += stats_get(&from->ns);
        to->rejected += stats_get(&from->rejected);
        for (unsigned j = 0; j < STATS_BUCKETS; j++)
            to->buckets[j] += stats_get(&from->buckets[j]);
    }
}

void server_stats(const struct server *server, struct stats_sum *out)
{
    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i < command_numbers(); i++)
        out->command[i].name = command_number_name(i);
    for (unsigned i = 0; i < server->options.threads; i++)
        add_thread(&server->threads[i].stats, out);
    out->threads = server->options.threads;
    out->uptime_ms = rt_loop_self() == NULL ? 0 : rt_wall_ms() - server->started_ms;
}

static void subtract(struct stats_sum *from, const struct stats_sum *sum)
{
    from->commands -= sum->commands;
    from->connections -= sum->connections;
    from->rejected -= sum->rejected;
    from->protocol_errors -= sum->protocol_errors;
    from->auth_failures -= sum->auth_failures;
    from->bytes_in -= sum->bytes_in;
    from->bytes_out -= sum->bytes_out;
    from->expired -= sum->expired;
    from->hits -= sum->hits;
    from->misses -= sum->misses;
    for (unsigned i = 0; i < command_numbers(); i++) {
        from->command[i].calls -= sum->command[i].calls;
        from->command[i].errors -= sum->command[i].errors;
        from->command[i].ns -= sum->command[i].ns;
        from->command[i].rejected -= sum->command[i].rejected;
        for (unsigned j = 0; j < STATS_BUCKETS; j++)
            from->command[i].buckets[j] -= sum->command[i].buckets[j];
    }
}

void server_stats_since_reset(struct server *server, struct stats_sum *out)
{
    rt_latch_lock(&server->reset_latch); /* what is subtracted was counted before */
    server_stats(server, out);
    if (server->at_reset != NULL)
        subtract(out, server->at_reset);
    rt_latch_unlock(&server->reset_latch);
}

enum pando_status server_stats_reset(struct server *server)
{
    struct stats_sum *now = malloc(sizeof(*now));
    if (now == NULL)
        return PANDO_NO_MEMORY;
    rt_latch_lock(&server->reset_latch);
    server_stats(server, now);
    struct stats_sum *former = server->at_reset;
    server->at_reset = now;
    rt_latch_unlock(&server->reset_latch);
    free(former);
    return PANDO_OK;
}

uint64_t stats_quantile_ns(const struct stats_command_sum *command, double q)
{
    uint64_t count = 0, seen = 0;
    for (unsigned i = 0; i < STATS_BUCKETS; i++)
        count += command->buckets[i];
    if (count == 0)
        return 0;
    uint64_t rank = (uint64_t)(q * (double)count);
    rank = rank >= count ? count - 1 : rank;
    for (unsigned i = 0; i < STATS_BUCKETS; i++) {
        seen += command->buckets[i];
        if (seen > rank)
            return stats_bucket_limit_ns(i);
    }
    return stats_bucket_limit_ns(STATS_BUCKETS - 1);
}
