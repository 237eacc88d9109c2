/*
 * metrics_pool.h - what every process that answers GET /metrics says of the pool and the fabric.
 */
#ifndef HTTP_METRICS_POOL_H
#define HTTP_METRICS_POOL_H

#include "base/metrics.h"
#include "store/store.h"

/* pando_build_info. */
void metrics_build(struct metrics *metrics);

/* pando_pool_* of a process that has joined: of its memory nodes as far as they answer, and the members. */
void metrics_pool_co(struct metrics *metrics, struct store_thread *thread, unsigned nodes);

/* The parts of it that a memory node can tell of itself: of nodes first .. first + count - 1. */
void metrics_nodes(struct metrics *metrics, const struct pool_node_stats *stats, unsigned first,
                   unsigned count);
void metrics_members(struct metrics *metrics, const struct pool_member *members, unsigned count);

/* pando_fabric_*: what this process asked of others, by kind of target. */
void metrics_fabric(struct metrics *metrics, const struct fabric_counters counters[FABRIC_TARGETS]);

/* pando_index_*. */
void metrics_index(struct metrics *metrics, const struct store_stats *stats);

#endif
