/*
 * metrics_pool.h - what every process that answers GET /metrics says of the pool and the fabric.
 */
#ifndef SERVER_METRICS_POOL_H
#define SERVER_METRICS_POOL_H

#include "base/metrics.h"
#include "store/store.h"

/* pando_build_info. */
void metrics_build(struct metrics *metrics);

/* pando_pool_*: of memory nodes first .. first + count - 1. */
void metrics_usage(struct metrics *metrics, const struct pool_usage *usage, unsigned count);
void metrics_nodes(struct metrics *metrics, const struct pool_node_stats *stats, unsigned first,
                   unsigned count);
void metrics_members(struct metrics *metrics, const struct pool_member *members, unsigned count);

/* pando_fabric_*: what this process asked of others, by kind of target. */
void metrics_fabric(struct metrics *metrics, const struct fabric_counters counters[FABRIC_TARGETS]);

/* pando_index_*. */
void metrics_engine(struct metrics *metrics, const struct engine_stats *stats);

#endif
