/*
 * frame.h - the cache's frames: room for a page each, with a latch, found by the page's address.
 *
 * A frame is in one of four states, changed only by who holds its latch:
 *
 *   FREE      in some thread's set of free frames, or lent (pair_cache.h)
 *   BUSY      being loaded, written back to be freed, or standing for a page that is worked on
 *             elsewhere; its latch is held for all that time, so others wait and begin again
 *   HOT       its parent's child word names the frame itself ("swizzled")
 *   COOLING   found through the mapping only; clean; the next to go
 *
 * Readers are optimistic: they note the latch's version, read, and look whether it is the same
 * still. Frames are never unmapped, so that a reader who is late reads nonsense and notices.
 *
 * Order: whoever holds a page's latch may wait for a child's, never for a parent's.
 */
#ifndef TREE_DEX_CACHE_FRAME_H
#define TREE_DEX_CACHE_FRAME_H

#include <stdatomic.h>

#include "rt/rt.h"
#include "tree/dex/page/page.h"

enum frame_state { FRAME_FREE, FRAME_BUSY, FRAME_HOT, FRAME_COOLING };

enum { FRAME_NONE = UINT32_MAX, FRAME_PAGE = 64, FRAME_PREFETCH = 7 };

struct frame {
    _Atomic uint64_t version; /* bit 0: held */
    fabric_address address;   /* of the page; the rest belongs to who holds the latch */
    uint32_t parent;          /* HOT: the frame that names it */
    uint32_t next;            /* in its bucket of the mapping, under that bucket's latch */
    _Atomic uint8_t state;
    atomic_bool dirty;      /* set before the log has a record of the change */
    _Atomic uint16_t users; /* tasks with a child of it that is BUSY; rises under its latch only */
    /* COOLING, but with pages below it that are cached and perhaps changed; or HOT, but of more keys than its
     * parent leads to it. Read without the latch, too. */
    atomic_bool orphan;
    bool pinned;   /* never cools: the root */
    uint8_t grows; /* of an inner page: where new pages below it go, plus 1; 0: to its own node */
    uint8_t split_at;       /* likewise: at which child it was last split (its low bits) */
    _Atomic uint64_t end;   /* in the log, behind its last change */
    _Atomic uint64_t first; /* in the log: the oldest change that is not in the pool */
    uint64_t epoch;         /* of the map that was known when it was read */
    _Atomic uint64_t pairs; /* of a lent frame: what it is to pair_cache.c, and to nobody else */
};

_Static_assert(sizeof(struct frame) <= 64, "a cache line, with the page right behind it");

struct pool;

struct frames {
    struct pool *pool; /* NULL: none; frame_latch_co */
    uint32_t count;
    uint32_t page_bytes;
    uint32_t stride;
    uint8_t *memory; /* frame, page, frame, page ... */
    struct frame_bucket *buckets;
    uint32_t bucket_mask;
};

/* NO_MEMORY. All frames are FREE, and the caller's. */
PANDO_MUST_CHECK enum pando_status frames_create(struct frames *frames, uint32_t count,
                                                 uint32_t page_bytes);
void frames_destroy(struct frames *frames);

static inline struct frame *frame_at(const struct frames *frames, uint32_t index)
{
    return (struct frame *)(void *)(frames->memory + (size_t)index * frames->stride);
}

static inline uint8_t *frame_bytes(const struct frames *frames, uint32_t index)
{
    return frames->memory + (size_t)index * frames->stride + FRAME_PAGE;
}

/* Asks for all that a search in it will touch: as many lines as memory delivers at once. */
static inline void frame_prefetch(const struct frames *frames, uint32_t index)
{
    const uint8_t *at = frames->memory + (size_t)index * frames->stride;
    for (uint32_t i = 0; i < FRAME_PREFETCH; i++)
        __builtin_prefetch(at + i * 64);
}

/* ---- child words ----------------------------------------------------------------------------- */

/* A child word of a cached inner page is an address, or the frame with the child in it. */
#define FRAME_SWIZZLED ((uint64_t)1 << 63)

static inline bool frame_swizzled(uint64_t word)
{
    return (word & FRAME_SWIZZLED) != 0;
}

static inline uint64_t frame_word(uint32_t index)
{
    return FRAME_SWIZZLED | index;
}

/* ---- latches --------------------------------------------------------------------------------- */

enum { FRAME_HELD = 1, FRAME_STEP = 2 };

/* The version, without waiting; held or not. */
static inline uint64_t frame_look(const struct frame *frame)
{
    return atomic_load_explicit(&frame->version, memory_order_acquire);
}

static inline bool frame_held(uint64_t version)
{
    return (version & FRAME_HELD) != 0;
}

/* Whether nothing has been changed since that look. */
static inline bool frame_same(const struct frame *frame, uint64_t version)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&frame->version, memory_order_relaxed) == version;
}

/* Takes the latch if nothing was changed since that look. */
static inline bool frame_take(struct frame *frame, uint64_t version)
{
    if (frame_held(version))
        return false;
    bool taken =
        atomic_compare_exchange_strong_explicit(&frame->version, &version, version | FRAME_HELD,
                                                memory_order_acquire, memory_order_relaxed);
    if (taken)
        atomic_thread_fence(memory_order_release); /* before anything is changed */
    return taken;
}

static inline bool frame_try(struct frame *frame)
{
    return frame_take(frame, frame_look(frame));
}

/* Lets go of one that is as it was. */
static inline void frame_give(struct frame *frame)
{
    uint64_t version = atomic_load_explicit(&frame->version, memory_order_relaxed);
    atomic_store_explicit(&frame->version, version & ~(uint64_t)FRAME_HELD, memory_order_release);
}

/* Lets go of one that was changed: all who looked before begin again. */
static inline void frame_give_changed(struct frame *frame)
{
    uint64_t version = atomic_load_explicit(&frame->version, memory_order_relaxed);
    atomic_store_explicit(&frame->version, (version & ~(uint64_t)FRAME_HELD) + FRAME_STEP,
                          memory_order_release);
}

/* Waiting for one that is held: growing, random pauses. */
struct frame_pause {
    unsigned tries;
};
void frame_pause_co(struct frame_pause *pause);

/* Waits for the latch. After 100 leases this process gives up its membership: what the holder waits for then ends, and
 * others serve its keys. */
void frame_latch_co(const struct frames *frames, struct frame *frame);

/* ---- the mapping ----------------------------------------------------------------------------- */

/* The frame of a page, or FRAME_NONE. Nothing holds it there but its latch. */
uint32_t frame_find(struct frames *frames, fabric_address address);

/* Enters a BUSY frame whose address is set; false, if the page has one already. */
bool frame_enter(struct frames *frames, uint32_t index);
void frame_remove(struct frames *frames, uint32_t index);

#endif
