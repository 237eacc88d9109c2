/*
 * grace.h - memory that is freed when no reader can have a pointer to it any more.
 *
 * Readers take no lock and wait for nobody: each says in a word of its own, which only it writes,
 * since when it reads. Writers, one at a time, take memory out of what readers can reach and retire
 * it; it is freed when every reader that was there then has left. A reader holds no pointer across
 * a suspension.
 *
 * At most GRACE_ITEMS pieces wait. While a reader stands still, a writer that finds no room for
 * more leaves undone what it wanted.
 */
#ifndef TREE_BLINK_CACHE_GRACE_H
#define TREE_BLINK_CACHE_GRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

enum { GRACE_ITEMS = 1024 };

struct grace_item {
    void *memory;
    uint64_t since; /* readers that began at this time or later cannot reach it */
};

struct grace {
    _Atomic uint64_t now; /* counts what was retired; begins with 1 */
    struct list readers;
    uint32_t first, count; /* of a ring */
    struct grace_item items[GRACE_ITEMS];
};

/* One thread's. In memory of its own cache line if others are not to be slowed down. */
struct grace_reader {
    struct list link;
    _Atomic uint64_t since; /* 0: it does not read */
};

void grace_init(struct grace *grace);

/* Frees all that waits. No reader is left. */
void grace_fini(struct grace *grace);

/*
 * Every pointer that writers may change is loaded after it, by sequentially consistent loads.
 *
 *   reader   since = now;  load pointer        writer   store pointer;  now++;  load since
 *
 * All four are in one total order. So a writer that does not see the reader has stored its pointer
 * before the reader loads it; and a reader that saw the new `now` sees the store before it.
 */
static inline void grace_enter(struct grace *grace, struct grace_reader *reader)
{
    atomic_store(&reader->since, atomic_load_explicit(&grace->now, memory_order_acquire));
}

static inline void grace_leave(struct grace_reader *reader)
{
    atomic_store_explicit(&reader->since, 0, memory_order_release);
}

/* ---- for writers, one at a time -------------------------------------------------------------- */

void grace_join(struct grace *grace, struct grace_reader *reader);

/* The reader does not read. */
void grace_part(struct grace_reader *reader);

/* Whether so many pieces can be retired; frees what may be freed if there is no room. */
bool grace_room(struct grace *grace, uint32_t items);

/* Frees it in time. No pointer leads to it any more. There is room. */
void grace_retire(struct grace *grace, void *memory);

/* Frees what no reader can have any more. */
void grace_collect(struct grace *grace);

#endif
