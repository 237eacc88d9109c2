#include "cmd/top_data.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/metrics.h"

/* ---- from a server's metrics ----------------------------------------------------------------- */

/* Families that are plain sums, whatever their labels. */
static const struct {
    const char *name;
    size_t offset;
} sums[] = {
    {"pando_clients", offsetof(struct top_snapshot, clients)},
    {"pando_errors_total", offsetof(struct top_snapshot, errors)},
    {"pando_key_hits_total", offsetof(struct top_snapshot, hits)},
    {"pando_key_misses_total", offsetof(struct top_snapshot, misses)},
    {"pando_fabric_round_trips_total", offsetof(struct top_snapshot, round_trips)},
    {"pando_index_cache_hits_total", offsetof(struct top_snapshot, cache_hits)},
    {"pando_index_cache_misses_total", offsetof(struct top_snapshot, cache_misses)},
    {"pando_index_cache_bytes", offsetof(struct top_snapshot, cache_bytes)},
    {"pando_index_rereads_total", offsetof(struct top_snapshot, rereads)},
    {"pando_index_splits_total", offsetof(struct top_snapshot, splits)},
    {"pando_index_merges_total", offsetof(struct top_snapshot, merges)},
    {"pando_index_forwarded_total", offsetof(struct top_snapshot, forwarded)},
    {"pando_index_moves_total", offsetof(struct top_snapshot, moves)},
    {"pando_index_offloaded_total", offsetof(struct top_snapshot, offloaded)},
};

static bool add_sum(struct top_snapshot *snapshot, const struct metrics_sample *sample)
{
    for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
        if (metrics_is(sample, sums[i].name)) {
            double *sum = (double *)((char *)snapshot + sums[i].offset);
            *sum += sample->value;
            return true;
        }
    }
    return false;
}

static struct top_command *command_of(struct top_snapshot *snapshot,
                                      const struct metrics_sample *sample)
{
    static struct top_command nobody;
    char name[TOP_NAME_BYTES] = "";
    if (!metrics_label(sample, "command", name, sizeof(name)))
        return &nobody;
    for (unsigned i = 0; i < snapshot->command_count; i++) {
        if (strcmp(snapshot->commands[i].name, name) == 0)
            return &snapshot->commands[i];
    }
    if (snapshot->command_count == TOP_COMMANDS_MAX)
        return &nobody;
    struct top_command *command = &snapshot->commands[snapshot->command_count++];
    memcpy(command->name, name, sizeof(name));
    return command;
}

static void add_bucket(struct top_snapshot *snapshot, const struct metrics_sample *sample)
{
    char text[32];
    if (!metrics_label(sample, "le", text, sizeof(text)))
        return;
    double limit = strtod(text, NULL);
    unsigned i = 0;
    while (i < snapshot->bucket_count && snapshot->bucket_limit_s[i] < limit)
        i++;
    if (i < snapshot->bucket_count && snapshot->bucket_limit_s[i] == limit) {
        snapshot->bucket_calls[i] += sample->value;
        return;
    }
    if (snapshot->bucket_count == TOP_BUCKETS_MAX || i < snapshot->bucket_count)
        return; /* servers of one release have the same buckets, in rising order */
    snapshot->bucket_limit_s[i] = limit;
    snapshot->bucket_calls[i] = sample->value;
    snapshot->bucket_count++;
}

static void add_verbs(struct top_snapshot *snapshot, const struct metrics_sample *sample)
{
    char kind[16] = "";
    (void)metrics_label(sample, "kind", kind, sizeof(kind));
    if (strcmp(kind, "read") == 0)
        snapshot->reads += sample->value;
    else if (strcmp(kind, "write") == 0)
        snapshot->writes += sample->value;
    else if (strcmp(kind, "atomic") == 0)
        snapshot->atomics += sample->value;
    else
        snapshot->calls += sample->value;
}

/* Several servers say the same of one pool: the last one counts. */
static void set_node(struct top_snapshot *snapshot, const struct metrics_sample *sample,
                     size_t offset)
{
    char text[16];
    if (!metrics_label(sample, "node", text, sizeof(text)))
        return;
    unsigned number = (unsigned)strtoul(text, NULL, 10), i = 0;
    while (i < snapshot->node_count && snapshot->nodes[i].node != number)
        i++;
    if (i == TOP_NODES_MAX)
        return;
    if (i == snapshot->node_count)
        snapshot->nodes[snapshot->node_count++] = (struct top_node){.node = number};
    *(double *)((char *)&snapshot->nodes[i] + offset) = sample->value;
}

static void set_member(struct top_snapshot *snapshot, const struct metrics_sample *sample)
{
    struct top_member member = {.state = "alive", .beats = sample->value};
    char text[16];
    if (!metrics_label(sample, "member", text, sizeof(text)))
        return;
    member.member = (unsigned)strtoul(text, NULL, 10);
    if (metrics_label(sample, "incarnation", text, sizeof(text)))
        member.incarnation = (unsigned)strtoul(text, NULL, 10);
    (void)metrics_label(sample, "name", member.name, sizeof(member.name));
    unsigned i = 0;
    while (i < snapshot->member_count && snapshot->members[i].member != member.member)
        i++;
    if (i == TOP_MEMBERS_MAX)
        return;
    snapshot->members[i] = member;
    snapshot->member_count += i == snapshot->member_count;
    snapshot->members_known = true;
}

static void add_sample(struct top_snapshot *snapshot, const struct metrics_sample *sample)
{
    char direction[8] = "";
    if (!isfinite(sample->value) || add_sum(snapshot, sample))
        return;
    if (metrics_is(sample, "pando_commands_total")) {
        command_of(snapshot, sample)->calls += sample->value;
    } else if (metrics_is(sample, "pando_command_errors_total")) {
        command_of(snapshot, sample)->errors += sample->value;
    } else if (metrics_is(sample, "pando_command_duration_seconds_sum")) {
        command_of(snapshot, sample)->seconds += sample->value;
    } else if (metrics_is(sample, "pando_duration_seconds_bucket")) {
        add_bucket(snapshot, sample);
    } else if (metrics_is(sample, "pando_fabric_verbs_total")) {
        add_verbs(snapshot, sample);
    } else if (metrics_is(sample, "pando_fabric_bytes_total")) {
        (void)metrics_label(sample, "direction", direction, sizeof(direction));
        *(strcmp(direction, "in") == 0 ? &snapshot->bytes_in : &snapshot->bytes_out) +=
            sample->value;
    } else if (metrics_is(sample, "pando_uptime_seconds")) {
        snapshot->uptime_s =
            sample->value > snapshot->uptime_s ? sample->value : snapshot->uptime_s;
    } else if (metrics_is(sample, "pando_pool_bytes")) {
        set_node(snapshot, sample, offsetof(struct top_node, bytes));
    } else if (metrics_is(sample, "pando_pool_used_bytes")) {
        set_node(snapshot, sample, offsetof(struct top_node, used));
    } else if (metrics_is(sample, "pando_pool_spare_bytes")) {
        set_node(snapshot, sample, offsetof(struct top_node, spare));
    } else if (metrics_is(sample, "pando_pool_member_heartbeats_total")) {
        set_member(snapshot, sample);
    }
}

void top_add_metrics(struct top_snapshot *snapshot, struct slice text)
{
    struct metrics_sample sample;
    snapshot->servers++;
    while (metrics_next(&text, &sample))
        add_sample(snapshot, &sample);
}

/* ---- from the pool --------------------------------------------------------------------------- */

static const char *state_name(enum pool_member_state state)
{
    static const char *const names[] = {"free", "joining", "alive", "being recovered"};
    return (unsigned)state < 4 ? names[state] : "damaged";
}

static enum pando_status add_members_co(struct top_snapshot *snapshot, struct store_thread *thread)
{
    unsigned count = 0;
    struct pool_member *members = calloc(POOL_MEMBERS, sizeof(*members));
    if (members == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = store_members_co(thread, members, POOL_MEMBERS, &count);
    for (unsigned i = 0; status == PANDO_OK && i < count; i++) {
        struct top_member *member = &snapshot->members[i];
        *member = (struct top_member){.member = members[i].member,
                                      .incarnation = members[i].beat.incarnation,
                                      .beats = (double)members[i].beat.counter};
        snprintf(member->state, sizeof(member->state), "%s", state_name(members[i].beat.state));
        snprintf(member->name, sizeof(member->name), "%.*s", POOL_NAME_MAX - 1,
                 members[i].record.name);
    }
    if (status == PANDO_OK) {
        snapshot->member_count = count;
        snapshot->members_known = true;
    }
    free(members);
    return status;
}

enum pando_status top_add_pool_co(struct top_snapshot *snapshot, struct store_thread *thread,
                                  unsigned nodes)
{
    enum pando_status status = add_members_co(snapshot, thread);
    snapshot->node_count = 0;
    for (unsigned i = 0; i < nodes && i < TOP_NODES_MAX && status == PANDO_OK; i++) {
        struct pool_node_stats stats;
        status = store_node_stats_co(thread, (uint16_t)i, &stats);
        if (status != PANDO_OK)
            break;
        double given = (double)(stats.chunks - stats.chunks_free) * POOL_CHUNK_BYTES;
        snapshot->nodes[snapshot->node_count++] =
            (struct top_node){.node = i,
                              .bytes = (double)stats.chunks * POOL_CHUNK_BYTES,
                              .used = given - (double)stats.blocks_free_bytes,
                              .spare = (double)stats.blocks_free_bytes};
    }
    return status;
}

/* ---- sums ------------------------------------------------------------------------------------ */

double top_calls(const struct top_snapshot *snapshot)
{
    double sum = 0;
    for (unsigned i = 0; i < snapshot->command_count; i++)
        sum += snapshot->commands[i].calls;
    return sum;
}

double top_command_errors(const struct top_snapshot *snapshot)
{
    double sum = 0;
    for (unsigned i = 0; i < snapshot->command_count; i++)
        sum += snapshot->commands[i].errors;
    return sum;
}

static double bucket_before(const struct top_snapshot *before, double limit_s)
{
    for (unsigned i = 0; i < before->bucket_count; i++) {
        if (before->bucket_limit_s[i] == limit_s)
            return before->bucket_calls[i];
    }
    return 0;
}

/* Buckets are powers of two wide: between their limits the calls are taken to be evenly spread. */
double top_quantile_s(const struct top_snapshot *before, const struct top_snapshot *after,
                      double fraction)
{
    unsigned count = after->bucket_count;
    if (count == 0)
        return 0;
    double total =
        after->bucket_calls[count - 1] - bucket_before(before, after->bucket_limit_s[count - 1]);
    double wanted = fraction * total, below = 0, limit_below = 0;
    if (total <= 0)
        return 0;
    for (unsigned i = 0; i < count; i++) {
        double limit = after->bucket_limit_s[i];
        double here = after->bucket_calls[i] - bucket_before(before, limit);
        if (here >= wanted && here > below)
            return limit_below + (limit - limit_below) * (wanted - below) / (here - below);
        below = here > below ? here : below;
        limit_below = limit;
    }
    return limit_below; /* beyond the last limit */
}
