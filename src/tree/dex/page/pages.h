/*
 * pages.h - pages in the pool: reading, writing (pages.c). As bytes they are in page.h.
 */
#ifndef TREE_DEX_PAGE_PAGES_H
#define TREE_DEX_PAGE_PAGES_H

#include "pool/pool.h"
#include "tree/dex/page/page.h"

struct dex;
struct dex_table;
struct dex_scratch;

/* Reads a page and checks it; reads again while it is torn. STALE: no page of this table is there. */
PANDO_MUST_CHECK enum pando_status dex_read_co(struct dex *self, fabric_address address,
                                               uint8_t *bytes);

/* A change of pages: all of it happens or, after this process died, will have happened when the dead one is
 * recovered. Sealed here. Pages of one memory node are one list. Those of several, in the order in which they
 * are given, are written by lists of their own while an intent at `home`, or where the lock is, has them all;
 * only if nobody else writes any of them, or none but the one that is locked. */
enum { DEX_WRITE_PAGES = 4 };
struct dex_page_write {
    uint8_t *images[DEX_WRITE_PAGES]; /* each has its address in it */
    unsigned count;
    const struct pool_lock *lock; /* released with it; NULL: none is held */
    bool plain;                   /* without an intent: fresh blocks, or when losses are accepted */
    uint16_t home; /* the bank of the intent if pages lie in several and none is locked */
};
PANDO_MUST_CHECK enum pando_status dex_write_pages_co(struct dex *self, struct dex_scratch *scratch,
                                                      const struct dex_page_write *change);

/* A copy of a cached page as it is to be in the pool: children by their addresses. Its latch is
 * held. */
void dex_image(const struct dex_table *table, uint32_t frame, uint8_t *image);

/* Sends a cached page that was changed to the pool; its latch is held, and kept. */
PANDO_MUST_CHECK enum pando_status dex_write_back_co(struct dex *self, uint32_t frame);

#endif
