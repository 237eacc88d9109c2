/*
 * frame.c - frames, their latches, and the mapping from addresses to frames: chains under a latch for
 * every bucket, of which there are as many as frames.
 */
#include "tree/dex/cache/frame.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "pool/pool.h"

struct frame_bucket {
    struct rt_latch latch;
    uint32_t first;
};

enum {
    PAUSE_STEPS = 12,
    LATCH_LEASES = 100, /* more than any holder waits for, one after the other */
    LATCH_LOOKS = 64,   /* tries between looks at the clock */
};
static const uint64_t PAUSE_NS = 200;

enum pando_status frames_create(struct frames *frames, uint32_t count, uint32_t page_bytes)
{
    uint32_t buckets = 64;
    while (buckets < count)
        buckets *= 2;
    *frames = (struct frames){.count = count,
                              .page_bytes = page_bytes,
                              .stride = FRAME_PAGE + page_bytes,
                              .bucket_mask = buckets - 1};
    frames->memory = rt_pages_map((size_t)count * frames->stride);
    frames->buckets = rt_pages_map(buckets * sizeof(struct frame_bucket));
    if (frames->memory == NULL || frames->buckets == NULL) {
        frames_destroy(frames);
        return PANDO_NO_MEMORY;
    }
    for (uint32_t i = 0; i < buckets; i++)
        frames->buckets[i].first = FRAME_NONE;
    return PANDO_OK;
}

void frames_destroy(struct frames *frames)
{
    rt_pages_unmap(frames->memory, (size_t)frames->count * frames->stride);
    rt_pages_unmap(frames->buckets, (frames->bucket_mask + 1ul) * sizeof(struct frame_bucket));
    *frames = (struct frames){0};
}

/* ---- latches --------------------------------------------------------------------------------- */

/* No queue: every operation gives latches, which is one plain store, and would have to look for somebody to wake with
 * a fence behind it. They are held for moments, but by those who wait for the pool. */
void frame_pause_co(struct frame_pause *pause)
{
    uint64_t most = PAUSE_NS << (pause->tries < PAUSE_STEPS ? pause->tries : PAUSE_STEPS);
    pause->tries++;
    rt_sleep_co(PAUSE_NS + rt_random() % most);
}

/* Whoever holds a latch waits for the pool, ten leases at a time, and may do so several times, below others who
 * do. If it lasts longer than all that, others are to serve these keys. */
static void give_up(struct pool *pool)
{
    log_error("a page of the cache is in use for too long: this process gives up its membership",
              log_u64("leases", LATCH_LEASES));
    pool_resign(pool);
}

void frame_latch_co(const struct frames *frames, struct frame *frame)
{
    struct frame_pause pause = {0};
    uint64_t begin_ns = 0;
    while (!frame_try(frame)) {
        frame_pause_co(&pause);
        if (frames->pool == NULL || pause.tries % LATCH_LOOKS != 0)
            continue;
        uint64_t now_ns = rt_now_ns();
        begin_ns = begin_ns == 0 ? now_ns : begin_ns;
        if (now_ns - begin_ns > LATCH_LEASES * pool_lease_ns(frames->pool) &&
            !pool_fenced(frames->pool))
            give_up(frames->pool);
    }
}

/* ---- the mapping ----------------------------------------------------------------------------- */

static struct frame_bucket *bucket_of(struct frames *frames, fabric_address address)
{
    uint64_t hash = address * 0x9e3779b97f4a7c15u;
    return &frames->buckets[hash >> 32 & frames->bucket_mask];
}

static uint32_t find_in(const struct frames *frames, const struct frame_bucket *bucket,
                        fabric_address address)
{
    uint32_t index = bucket->first;
    while (index != FRAME_NONE && frame_at(frames, index)->address != address)
        index = frame_at(frames, index)->next;
    return index;
}

uint32_t frame_find(struct frames *frames, fabric_address address)
{
    struct frame_bucket *bucket = bucket_of(frames, address);
    rt_latch_lock(&bucket->latch);
    uint32_t index = find_in(frames, bucket, address);
    rt_latch_unlock(&bucket->latch);
    return index;
}

bool frame_enter(struct frames *frames, uint32_t index)
{
    struct frame *frame = frame_at(frames, index);
    struct frame_bucket *bucket = bucket_of(frames, frame->address);
    rt_latch_lock(&bucket->latch);
    bool fresh = find_in(frames, bucket, frame->address) == FRAME_NONE;
    if (fresh) {
        frame->next = bucket->first;
        bucket->first = index;
    }
    rt_latch_unlock(&bucket->latch);
    return fresh;
}

void frame_remove(struct frames *frames, uint32_t index)
{
    struct frame *frame = frame_at(frames, index);
    struct frame_bucket *bucket = bucket_of(frames, frame->address);
    rt_latch_lock(&bucket->latch);
    uint32_t *link = &bucket->first;
    while (*link != index) {
        pando_assert(*link != FRAME_NONE);
        link = &frame_at(frames, *link)->next;
    }
    *link = frame->next;
    rt_latch_unlock(&bucket->latch);
}
