#include "tree/dex/cache/cooling.h"

#include <stdlib.h>

#include "tree/dex/cache/frame.h"

enum { SLOTS = 6 };

struct cooling_bucket {
    struct rt_latch latch;
    uint32_t used;
    uint32_t frames[SLOTS]; /* oldest first */
    uint8_t rest[64 - (2 + SLOTS) * 4];
};
_Static_assert(sizeof(struct cooling_bucket) == 64, "a cache line");

enum pando_status cooling_create(struct cooling *cooling, uint32_t frames, bool single)
{
    *cooling =
        (struct cooling){.count = frames / SLOTS + 1, .single = single, .capacity = frames + 1};
    if (single)
        cooling->queue = malloc(cooling->capacity * sizeof(uint32_t));
    else
        cooling->buckets = aligned_alloc(64, cooling->count * sizeof(struct cooling_bucket));
    if (cooling->queue == NULL && cooling->buckets == NULL)
        return PANDO_NO_MEMORY;
    for (uint32_t i = 0; i < cooling->count && !single; i++)
        cooling->buckets[i] = (struct cooling_bucket){0};
    return PANDO_OK;
}

void cooling_destroy(struct cooling *cooling)
{
    free(cooling->buckets);
    free(cooling->queue);
    *cooling = (struct cooling){0};
}

static struct cooling_bucket *bucket_of(struct cooling *cooling, fabric_address address)
{
    uint64_t hash = address * 0xff51afd7ed558ccdu;
    return &cooling->buckets[(hash >> 32) % cooling->count];
}

/* ---- one queue: a ring whose removed entries are skipped -------------------------------------- */

static uint32_t *ring_at(struct cooling *cooling, uint32_t i)
{
    return &cooling->queue[(cooling->head + i) % cooling->capacity];
}

/* The room of removed entries that were the oldest. */
static void ring_skip(struct cooling *cooling)
{
    while (cooling->used > 0 && *ring_at(cooling, 0) == FRAME_NONE) {
        cooling->head = (cooling->head + 1) % cooling->capacity;
        cooling->used--;
    }
}

static uint32_t ring_pop(struct cooling *cooling)
{
    ring_skip(cooling);
    if (cooling->used == 0)
        return FRAME_NONE;
    uint32_t frame = *ring_at(cooling, 0);
    cooling->head = (cooling->head + 1) % cooling->capacity;
    cooling->used--;
    return frame;
}

static uint32_t ring_add(struct cooling *cooling, uint32_t frame)
{
    uint32_t out = FRAME_NONE;
    rt_latch_lock(&cooling->latch);
    ring_skip(cooling);
    if (cooling->used == cooling->capacity)
        out = ring_pop(cooling);
    *ring_at(cooling, cooling->used++) = frame;
    rt_charge(RT_COST_HANDOFF);
    rt_latch_unlock(&cooling->latch);
    return out;
}

static bool ring_remove(struct cooling *cooling, uint32_t frame)
{
    bool found = false;
    rt_latch_lock(&cooling->latch);
    for (uint32_t i = 0; i < cooling->used && !found; i++) {
        found = *ring_at(cooling, i) == frame;
        if (found)
            *ring_at(cooling, i) = FRAME_NONE;
    }
    rt_charge(RT_COST_HANDOFF);
    rt_latch_unlock(&cooling->latch);
    return found;
}

/* ---- many ------------------------------------------------------------------------------------ */

static void take_out(struct cooling_bucket *bucket, uint32_t at)
{
    for (uint32_t i = at + 1; i < bucket->used; i++)
        bucket->frames[i - 1] = bucket->frames[i];
    bucket->used--;
}

uint32_t cooling_add(struct cooling *cooling, fabric_address address, uint32_t frame)
{
    uint32_t out = FRAME_NONE;
    if (cooling->single)
        return ring_add(cooling, frame);
    struct cooling_bucket *bucket = bucket_of(cooling, address);
    rt_latch_lock(&bucket->latch);
    if (bucket->used == SLOTS) {
        out = bucket->frames[0];
        take_out(bucket, 0);
    }
    bucket->frames[bucket->used++] = frame;
    rt_latch_unlock(&bucket->latch);
    return out;
}

bool cooling_remove(struct cooling *cooling, fabric_address address, uint32_t frame)
{
    if (cooling->single)
        return ring_remove(cooling, frame);
    struct cooling_bucket *bucket = bucket_of(cooling, address);
    bool found = false;
    rt_latch_lock(&bucket->latch);
    for (uint32_t i = 0; i < bucket->used && !found; i++) {
        found = bucket->frames[i] == frame;
        if (found)
            take_out(bucket, i);
    }
    rt_latch_unlock(&bucket->latch);
    return found;
}

uint32_t cooling_oldest(struct cooling *cooling, uint64_t random)
{
    uint32_t out = FRAME_NONE;
    if (cooling->single) {
        rt_latch_lock(&cooling->latch);
        out = ring_pop(cooling);
        rt_charge(RT_COST_HANDOFF);
        rt_latch_unlock(&cooling->latch);
        return out;
    }
    struct cooling_bucket *bucket = &cooling->buckets[random % cooling->count];
    rt_latch_lock(&bucket->latch);
    if (bucket->used > 0) {
        out = bucket->frames[0];
        take_out(bucket, 0);
    }
    rt_latch_unlock(&bucket->latch);
    return out;
}
