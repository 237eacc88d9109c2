#include "http/metrics_pool.h"

#include <stdio.h>
#include <stdlib.h>

#include "store/usage.h"

enum { LABELS_BYTES = 256 };

static const char *const target_names[FABRIC_TARGETS] = {
    [FABRIC_MEMORY] = "memory",
    [FABRIC_COMPUTE] = "compute",
};

static const char *const state_names[] = {"free", "joining", "alive", "being_recovered"};
enum { STATES = 4 };

void metrics_build(struct metrics *metrics)
{
    metrics_family(metrics, "pando_build_info", METRICS_GAUGE, "The release that runs here.");
    metrics_u64(metrics, "pando_build_info", "version=\"" PANDO_RELEASE "\"", 1);
}

/* ---- memory nodes ---------------------------------------------------------------------------- */

struct node_family {
    const char *name, *help;
    enum metrics_type type;
    uint64_t (*value)(const struct pool_node_stats *stats);
};

static uint64_t total_bytes(const struct pool_node_stats *stats)
{
    return stats->chunks * POOL_CHUNK_BYTES;
}

static uint64_t used_bytes(const struct pool_node_stats *stats)
{
    return (stats->chunks - stats->chunks_free) * POOL_CHUNK_BYTES - stats->blocks_free_bytes;
}

static uint64_t spare_bytes(const struct pool_node_stats *stats)
{
    return stats->blocks_free_bytes;
}

static uint64_t reserved_bytes(const struct pool_node_stats *stats)
{
    return stats->chunks_reserved * POOL_CHUNK_BYTES;
}

static uint64_t grants(const struct pool_node_stats *stats)
{
    return stats->grants;
}

static uint64_t returns(const struct pool_node_stats *stats)
{
    return stats->returns;
}

static uint64_t sweeps(const struct pool_node_stats *stats)
{
    return stats->sweeps;
}

static uint64_t refusals(const struct pool_node_stats *stats)
{
    return stats->refusals;
}

static uint64_t starts(const struct pool_node_stats *stats)
{
    return stats->starts;
}

static const struct node_family node_families[] = {
    {"pando_pool_bytes", "Memory that a node offers.", METRICS_GAUGE, total_bytes},
    {"pando_pool_used_bytes", "Memory of a node that is in somebody's hands.", METRICS_GAUGE,
     used_bytes},
    {"pando_pool_spare_bytes", "Blocks that came back and wait to be used again.", METRICS_GAUGE,
     spare_bytes},
    {"pando_pool_reserved_bytes", "Free memory that is kept for what is vital.", METRICS_GAUGE,
     reserved_bytes},
    {"pando_pool_grants_total", "Times a node gave out memory.", METRICS_COUNTER, grants},
    {"pando_pool_returns_total", "Times memory was given back.", METRICS_COUNTER, returns},
    {"pando_pool_sweeps_total", "Dead members whose memory was taken back.", METRICS_COUNTER,
     sweeps},
    {"pando_pool_refusals_total", "Times there was no memory to give.", METRICS_COUNTER, refusals},
    {"pando_pool_starts_total", "Times a memory node opened this memory.", METRICS_COUNTER, starts},
};

void metrics_nodes(struct metrics *metrics, const struct pool_node_stats *stats, unsigned first,
                   unsigned count)
{
    char labels[LABELS_BYTES];
    for (size_t i = 0; i < sizeof(node_families) / sizeof(node_families[0]); i++) {
        const struct node_family *family = &node_families[i];
        metrics_family(metrics, family->name, family->type, family->help);
        for (unsigned node = 0; node < count; node++) {
            snprintf(labels, sizeof(labels), "node=\"%u\"", first + node);
            metrics_u64(metrics, family->name, labels, family->value(&stats[node]));
        }
    }
}

static void use_sample(struct metrics *metrics, unsigned node, const char *use, uint64_t bytes)
{
    char labels[LABELS_BYTES];
    snprintf(labels, sizeof(labels), "node=\"%u\",use=\"%s\"", node, use);
    metrics_u64(metrics, "pando_pool_use_bytes", labels, bytes);
}

static void metrics_usage(struct metrics *metrics, const struct pool_usage *usage, unsigned count)
{
    char labels[LABELS_BYTES];
    metrics_family(metrics, "pando_pool_use_bytes", METRICS_GAUGE,
                   "Memory of a node by what it is used for.");
    for (unsigned node = 0; node < count; node++) {
        uint64_t bytes[STORE_USES] = {0};
        for (uint32_t i = 0; i < usage[node].head.tables; i++)
            bytes[store_use_of(&usage[node].tables[i])] += usage[node].tables[i].bytes;
        for (unsigned i = 0; i < STORE_USES; i++)
            use_sample(metrics, node, store_use_name((enum store_use)i), bytes[i]);
        use_sample(metrics, node, "slots", usage[node].head.slots_bytes);
        use_sample(metrics, node, "members", usage[node].head.hands_bytes);
        use_sample(metrics, node, "waiting", usage[node].head.waiting_bytes);
        use_sample(metrics, node, "held", usage[node].head.held_bytes);
    }
    metrics_family(metrics, "pando_pool_class_free_bytes", METRICS_GAUGE,
                   "Free blocks in chunks that are in use, by size of block.");
    for (unsigned node = 0; node < count; node++) {
        for (uint32_t i = 0; i < usage[node].head.classes; i++) {
            const struct pool_usage_class *class = &usage[node].classes[i];
            snprintf(labels, sizeof(labels), "node=\"%u\",block=\"%u\",vital=\"%d\"", node,
                     class->block_bytes, class->kind == POOL_CHUNK_VITAL);
            metrics_u64(metrics, "pando_pool_class_free_bytes", labels, class->free_bytes);
        }
    }
}

/* ---- members --------------------------------------------------------------------------------- */

void metrics_members(struct metrics *metrics, const struct pool_member *members, unsigned count)
{
    char labels[LABELS_BYTES], name[128];
    uint64_t states[STATES] = {0};
    for (unsigned i = 0; i < count; i++) {
        if ((unsigned)members[i].beat.state < STATES)
            states[members[i].beat.state]++;
    }
    metrics_family(metrics, "pando_pool_members", METRICS_GAUGE, "Members of the pool, by state.");
    for (unsigned i = POOL_JOINING; i < STATES; i++) {
        snprintf(labels, sizeof(labels), "state=\"%s\"", state_names[i]);
        metrics_u64(metrics, "pando_pool_members", labels, states[i]);
    }
    metrics_family(metrics, "pando_pool_member_heartbeats_total", METRICS_COUNTER,
                   "Heartbeats of each living member.");
    for (unsigned i = 0; i < count; i++) {
        if (members[i].beat.state != POOL_ALIVE)
            continue;
        snprintf(labels, sizeof(labels), "member=\"%u\",incarnation=\"%u\",name=\"%s\"",
                 members[i].member, members[i].beat.incarnation,
                 metrics_escape(members[i].record.name, name, sizeof(name)));
        metrics_u64(metrics, "pando_pool_member_heartbeats_total", labels, members[i].beat.counter);
    }
}

/* ---- all of a pool --------------------------------------------------------------------------- */

/* Of the nodes that answer. */
static void put_usage_co(struct store_thread *thread, unsigned nodes, struct metrics *out)
{
    struct pool_usage *usage = calloc(nodes, sizeof(*usage));
    unsigned reached = 0;
    if (usage == NULL) {
        out->failed = true;
        return;
    }
    while (reached < nodes &&
           store_usage_co(thread, (uint16_t)reached, &usage[reached]) == PANDO_OK)
        reached++;
    metrics_usage(out, usage, reached);
    for (unsigned i = 0; i < reached; i++)
        pool_usage_free(&usage[i]);
    free(usage);
}

void metrics_pool_co(struct metrics *out, struct store_thread *thread, unsigned nodes)
{
    unsigned reached = 0, members = 0;
    struct pool_node_stats *stats = calloc(nodes, sizeof(*stats));
    struct pool_member *member = calloc(POOL_MEMBERS, sizeof(*member));
    if (stats == NULL || member == NULL) {
        out->failed = true;
    } else {
        while (reached < nodes &&
               store_node_stats_co(thread, (uint16_t)reached, &stats[reached]) == PANDO_OK)
            reached++;
        metrics_nodes(out, stats, 0, reached);
        put_usage_co(thread, nodes, out);
        if (store_members_co(thread, member, POOL_MEMBERS, &members) == PANDO_OK)
            metrics_members(out, member, members);
        metrics_one(out, "pando_pool_up", METRICS_GAUGE,
                    "1 if every memory node answered just now.", reached == nodes);
    }
    free(stats);
    free(member);
}

/* ---- the fabric and the engine --------------------------------------------------------------- */

static void fabric_sample(struct metrics *metrics, const char *name, const char *key,
                          const char *value, unsigned target, uint64_t count)
{
    char labels[LABELS_BYTES];
    if (key != NULL)
        snprintf(labels, sizeof(labels), "%s=\"%s\",target=\"%s\"", key, value,
                 target_names[target]);
    else
        snprintf(labels, sizeof(labels), "target=\"%s\"", target_names[target]);
    metrics_u64(metrics, name, labels, count);
}

void metrics_fabric(struct metrics *metrics, const struct fabric_counters counters[FABRIC_TARGETS])
{
    const char *name = "pando_fabric_verbs_total";
    metrics_family(metrics, name, METRICS_COUNTER, "Operations on remote memory, by kind.");
    for (unsigned i = 0; i < FABRIC_TARGETS; i++) {
        fabric_sample(metrics, name, "kind", "read", i, counters[i].reads);
        fabric_sample(metrics, name, "kind", "write", i, counters[i].writes);
        fabric_sample(metrics, name, "kind", "atomic", i, counters[i].atomics);
        fabric_sample(metrics, name, "kind", "call", i, counters[i].calls);
    }
    name = "pando_fabric_round_trips_total";
    metrics_family(metrics, name, METRICS_COUNTER, "Lists of such operations.");
    for (unsigned i = 0; i < FABRIC_TARGETS; i++)
        fabric_sample(metrics, name, NULL, NULL, i, counters[i].lists);
    name = "pando_fabric_bytes_total";
    metrics_family(metrics, name, METRICS_COUNTER, "Bytes read from and written to others.");
    for (unsigned i = 0; i < FABRIC_TARGETS; i++) {
        fabric_sample(metrics, name, "direction", "in", i, counters[i].bytes_in);
        fabric_sample(metrics, name, "direction", "out", i, counters[i].bytes_out);
    }
    name = "pando_fabric_retries_total";
    metrics_family(metrics, name, METRICS_COUNTER, "What had to be done again.");
    for (unsigned i = 0; i < FABRIC_TARGETS; i++)
        fabric_sample(metrics, name, NULL, NULL, i, counters[i].retries);
}

void metrics_index(struct metrics *metrics, const struct store_stats *stats)
{
    metrics_one(metrics, "pando_index_cache_hits_total", METRICS_COUNTER,
                "Searches that the cache of the index led to their leaf.", stats->cache_hits);
    metrics_one(metrics, "pando_index_cache_misses_total", METRICS_COUNTER,
                "Searches that it did not.", stats->cache_misses);
    metrics_one(metrics, "pando_index_cache_bytes", METRICS_GAUGE, "Memory of that cache.",
                stats->cache_bytes);
    metrics_one(metrics, "pando_index_cache_nodes", METRICS_GAUGE, "Nodes in it.",
                stats->cache_entries);
    metrics_one(metrics, "pando_index_rereads_total", METRICS_COUNTER,
                "Nodes read again because they were torn or out of date.", stats->rereads);
    metrics_one(metrics, "pando_index_splits_total", METRICS_COUNTER, "Nodes split.",
                stats->splits);
    metrics_one(metrics, "pando_index_merges_total", METRICS_COUNTER, "Nodes merged.",
                stats->merges);
    metrics_one(metrics, "pando_index_repairs_total", METRICS_COUNTER,
                "Nodes mended that a dead writer left.", stats->repairs);
    metrics_one(metrics, "pando_index_damage_total", METRICS_COUNTER,
                "Operations that met damaged memory.", stats->damage);
    metrics_one(metrics, "pando_index_lock_waits_total", METRICS_COUNTER,
                "Waits for a lock that this process held itself.", stats->lock_waits);
    metrics_one(metrics, "pando_index_lock_handovers_total", METRICS_COUNTER,
                "Locks passed on inside this process.", stats->handovers);
    metrics_one(metrics, "pando_index_forwarded_total", METRICS_COUNTER,
                "Calls to other processes, which own the keys.", stats->forwarded);
    metrics_one(metrics, "pando_index_moves_total", METRICS_COUNTER,
                "Times keys were given to another process, or taken over from a dead one.",
                stats->moves);
    metrics_one(metrics, "pando_index_offloaded_total", METRICS_COUNTER,
                "Operations that a memory node did.", stats->offloaded);
    metrics_one(metrics, "pando_index_checkpoints_total", METRICS_COUNTER,
                "Times that changed pages were written back to make room in a log.",
                stats->checkpoints);
    metrics_one(metrics, "pando_index_log_waits_total", METRICS_COUNTER,
                "Operations that waited for room in a log.", stats->log_waits);
}
