/*
 * cooling.h - the frames that may go next: a hash table of short queues, a cache line each with a
 * latch of its own, so that threads seldom meet. Which frame goes first is decided within a queue.
 */
#ifndef TREE_DEX_CACHE_COOLING_H
#define TREE_DEX_CACHE_COOLING_H

#include "fabric/fabric.h"
#include "rt/rt.h"

struct cooling {
    struct cooling_bucket *buckets;
    uint32_t count;
    bool single; /* one queue for all, for comparison */
    struct rt_latch latch;
    uint32_t *queue;
    uint32_t head, used, capacity;
};

/* Room for about `frames`. */
PANDO_MUST_CHECK enum pando_status cooling_create(struct cooling *cooling, uint32_t frames,
                                                  bool single);
void cooling_destroy(struct cooling *cooling);

/* Adds a frame; the one it pushes out, or FRAME_NONE. */
uint32_t cooling_add(struct cooling *cooling, fabric_address address, uint32_t frame);

/* Whether it was there. */
bool cooling_remove(struct cooling *cooling, fabric_address address, uint32_t frame);

/* The oldest of the queue that this number names, or FRAME_NONE. */
uint32_t cooling_oldest(struct cooling *cooling, uint64_t random);

#endif
