/*
 * cache.h - which pages and single pairs are kept: frames, the cooling map, records.
 */
#ifndef TREE_DEX_CACHE_CACHE_H
#define TREE_DEX_CACHE_CACHE_H

#include <stdalign.h>

#include "tree/dex/cache/cooling.h"
#include "tree/dex/cache/frame.h"
#include "tree/dex/cache/pair_cache.h"

struct dex;
struct dex_table;

/* What missed the cache lately, and what follows from it: lend.c. */
struct dex_lend {
    _Atomic uint32_t misses;       /* of leaves, all */
    _Atomic uint32_t gets, others; /* lately */
    _Atomic uint32_t crowded;      /* of the gets: for their records there was no room */
    _Atomic uint32_t lost;         /* by missing inner pages, in parts of a READ */
    _Atomic int budget; /* frames that may be lent until the next judgement; below 0, taken back */
};

/* Of one table. A thread that writes takes the line from all others. */
enum { DEX_LINE_BYTES = 64 };
struct dex_cache {
    struct frames frames;
    struct pair_cache records;

    /* Read by misses; written while the cache fills, and when pages are split. */
    alignas(DEX_LINE_BYTES) _Atomic uint32_t fresh; /* frames that were never used begin here */
    _Atomic uint32_t orphans; /* frames that are: no memory node is to go through such pages */
    atomic_uint relinking;    /* tasks that wait until a frame has no users, */
    struct rt_waitq unused;   /* here */
    struct cooling cooling;

    /* Written by misses. */
    alignas(DEX_LINE_BYTES) struct rt_latch free_latch;
    uint32_t free_list;          /* frames that no thread has, linked by `next` */
    _Atomic uint32_t free_count; /* of these; changed under the latch */
    alignas(DEX_LINE_BYTES) struct dex_lend lend;
};

/* ---- cache.c: which pages are kept ----------------------------------------------------------- */

/* A frame that is FREE, with its latch held. TIMEOUT: none could be had. Waits for others to be done with theirs: not
 * for those who have one already, who would wait for each other. */
PANDO_MUST_CHECK enum pando_status dex_frame_co(struct dex *self, uint32_t *frame);

/* The same without waiting. */
PANDO_MUST_CHECK bool dex_frame_try_co(struct dex *self, uint32_t *frame);

/* Gives back one that is in nobody's way any more: not in the mapping; its latch is held. */
void dex_frame_free(struct dex *self, uint32_t frame);

/* The handle's own free frames are for others from now on. */
void dex_frames_leave(struct dex *self);

/* For tests, when no handle is left: whether each free frame is in the list once, or lent. */
bool dex_frames_whole(const struct dex_table *table);

/* For both its latch is held. It goes, or has a parent again that leads to all below it; or it does not. */
void dex_clear_orphan(struct dex_table *table, uint32_t frame);
void dex_set_orphan(struct dex_table *table, uint32_t frame);

/* After a parent's child word `at` has come to name a frame: makes that an orphan if it is a copy of an inner page
 * from before others split it, with pages below it to which the parent leads by another way. Both latches are
 * held. */
void dex_check_child(struct dex_table *table, uint32_t parent, uint32_t at, uint32_t frame);

/* A COOLING frame whose latch is held goes. */
void dex_evict(struct dex *self, uint32_t frame);

/* Its parent names a HOT frame by address again; both latches are held; the frame is left COOLING but in no
 * queue. */
void dex_unswizzle(struct dex_table *table, uint32_t parent, uint32_t frame);

/* Moves frames that were children of a page whose contents were replaced: those that are there still stay
 * swizzled, the others are left COOLING. The page's latch is held. `bytes` are the new contents, with
 * addresses only: what the page is in the pool. */
void dex_relink_children_co(struct dex *self, uint32_t frame, const uint8_t *bytes);

/* A task has no BUSY child of this frame any more. */
void dex_frame_unuse(struct dex_table *table, struct frame *parent);

/* A frame that a queue has pushed out goes, unless somebody is at it. FRAME_NONE is nothing. */
void dex_evict_if_idle(struct dex *self, uint32_t frame);

/* ---- lend.c: frames for single pairs --------------------------------------------------------- */

/* A page of that level was not cached: READ, or pushed down to its memory node. */
void dex_lend_missed(struct dex_table *table, uint16_t bank, uint8_t level, bool get,
                     bool pushed_down);

/* Whether what is looked up is rather kept as a record than with its leaf. */
bool dex_lends(const struct dex_table *table);

/* After a get that missed: perhaps lends one more frame, if there was no room for its record. */
void dex_lend_co(struct dex *self, const struct pair_cache_token *token);

/* A frame that was lent and is free now; FRAME_NONE: none is to be taken back. */
uint32_t dex_lend_back(struct dex *self);

#endif
