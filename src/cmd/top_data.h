/*
 * top_data.h - what `pando top` shows, as it was at one time: added up over servers, and looked up in
 * the pool.
 */
#ifndef CMD_TOP_DATA_H
#define CMD_TOP_DATA_H

#include "store/store.h"

enum {
    TOP_COMMANDS_MAX = 128,
    TOP_BUCKETS_MAX = 64,
    TOP_NODES_MAX = 256,
    TOP_MEMBERS_MAX = POOL_MEMBERS,
    TOP_NAME_BYTES = 32,
};

struct top_command {
    char name[TOP_NAME_BYTES];
    double calls, errors, seconds;
};

struct top_node {
    unsigned node;
    double bytes, used, spare;
};

struct top_member {
    unsigned member, incarnation;
    char state[TOP_NAME_BYTES];
    char name[POOL_NAME_MAX];
    double beats;
};

struct top_snapshot {
    uint64_t at_ns;
    unsigned servers; /* that answered */

    double clients, errors, uptime_s, hits, misses;
    struct top_command commands[TOP_COMMANDS_MAX];
    unsigned command_count;
    double bucket_limit_s[TOP_BUCKETS_MAX], bucket_calls[TOP_BUCKETS_MAX]; /* at or below */
    unsigned bucket_count;

    double reads, writes, atomics, calls, round_trips, bytes_in, bytes_out;
    double cache_hits, cache_misses, cache_bytes, rereads, splits, merges;
    double forwarded, moves, offloaded;

    struct top_node nodes[TOP_NODES_MAX];
    unsigned node_count;
    struct top_member members[TOP_MEMBERS_MAX];
    unsigned member_count;
    bool members_known;
};

/* Adds what one server's /metrics says. */
void top_add_metrics(struct top_snapshot *snapshot, struct slice text);

/* Asks the pool; it knows better than the servers. */
PANDO_MUST_CHECK enum pando_status top_add_pool_co(struct top_snapshot *snapshot,
                                                   struct store_thread *thread, unsigned nodes);

/* Sums over commands. */
double top_calls(const struct top_snapshot *snapshot);
double top_command_errors(const struct top_snapshot *snapshot);

/* The latency at or below which a fraction of the calls between two snapshots lies; 0: no calls. */
double top_quantile_s(const struct top_snapshot *before, const struct top_snapshot *after,
                      double fraction);

#endif
