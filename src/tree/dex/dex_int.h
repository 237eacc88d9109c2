/*
 * dex_int.h - what the parts of the engine share: the table, and a thread's handle.
 */
#ifndef TREE_DEX_DEX_INT_H
#define TREE_DEX_DEX_INT_H

#include "base/log_limit.h"
#include "base/prng.h"
#include "engine/step.h"
#include "owners/owners.h"
#include "pool/intent.h"
#include "tree/dex/cache/cache.h"
#include "tree/dex/dex.h"
#include "tree/dex/log/log.h"
#include "tree/dex/page/pages.h"
#include "tree/dex/pushdown/pushdown.h"

/* Every technique can be switched off; the last are for tests only and break the engine on
 * purpose. */
struct dex_switches {
    bool
        partition; /* inner pages of one's own are changed without a lock; keys have owners anyway */
    bool cache;    /* pages are kept */
    bool cooling_map; /* many FIFOs instead of one */
    bool path_aware;  /* cooling is delegated to children */
    bool admission;   /* leaves are kept with a probability only */
    bool records;     /* single pairs are kept, too */
    bool offload;     /* pushdown: memory nodes finish some operations */
    bool prefetch;    /* scans ask for leaves ahead */
    bool log;         /* an acknowledged write survives this process: durability */
    bool merge;
    bool balance; /* owners give keys to others that have less to do */
    /* Off unless asked for by "+": gets of leaves, too, and leaves whatever the barrier costs; always. */
    bool offload_leaves, offload_only;
    bool lend_wildly;  /* likewise, for tests: frames for records come and go at random */
    bool small_log;    /* likewise: checkpoints are frequent */
    bool join_eagerly; /* likewise: partitions of the map are joined whenever they can be */
    /* break-cells and so on, see docs/PROTOCOLS.md */
    bool cells, replay, invalidate, forget, barrier, durable, stamps, through, partitions,
        write_back, truncate, lease;
};

struct dex_stats {
    _Atomic uint64_t misses, rereads, splits, merges, repairs, checkpoints, log_waits, offloaded,
        pushdown_misses, waits, damage;
};

enum { DEX_DAMAGED_PAGES = 16 };

/* Pages that were found to be damaged a moment ago, each until it is looked at as closely again: find.c. */
struct dex_damage {
    atomic_bool any; /* ever */
    struct rt_latch latch;
    struct {
        fabric_address page;
        uint64_t until_ns;
        uint8_t level;
    } known[DEX_DAMAGED_PAGES];
    unsigned next;
};

/* Every operation reads what comes first, also one that finds everything in the cache; that changes seldom. What
 * misses and the background write has lines of its own: else a miss would make the hits of all other threads
 * wait for memory. */
struct dex_table {
    struct engine_table base;
    struct pool *pool;
    unsigned slot; /* in the pool's directory */
    uint16_t id;
    struct page_layout layout;
    uint32_t inline_max; /* longer values are blobs */
    struct dex_switches on;
    uint32_t root_frame;
    fabric_address root;
    struct dex_redo redo;
    struct owners owners;
    struct dex *maintainer; /* the handle of the background task */
    struct dex_cache cache;
    alignas(DEX_LINE_BYTES) struct dex_stats stats;
    struct dex_pushdown_state pushdown;
    struct log_limit unreached_log; /* find.c */
    struct dex_damage damage;

    /* Written when inner pages are split: whose turn it is, by level and node (place.c). */
    alignas(DEX_LINE_BYTES) struct rt_latch credits_latch;
    int32_t *credits;
};

/* A page's bytes and room to build others; taken from and given back to the thread's handle. */
struct dex_scratch {
    struct dex_scratch *next;
    uint8_t *page, *image, *sibling, *other; /* page_bytes each */
    uint8_t *value;                          /* VALUE_ROOM */
    uint8_t *blob;                           /* a long value, when one was fetched */
    uint8_t *message;                        /* POOL_INTENT_BYTES */
    uint8_t key[PAGE_KEY_ROOM], key2[PAGE_KEY_ROOM];
};

enum { FREE_FRAMES_MAX = 32 };

struct dex {
    struct engine base;
    struct dex_table *table;
    struct owners_handle owners;
    struct dex_scratch *free_scratch;
    struct dex_scratch *reserve; /* for writing back when there is no other; NULL while in use */
    struct rt_waitq reserved;    /* its tasks that wait for that */
    uint32_t free_frames[FREE_FRAMES_MAX];
    uint32_t free_count;
    uint32_t pairs_per_leaf; /* about, of the last scanned; 0: not known */
    struct prng prng;
};

static inline struct dex *dex_of(struct engine *engine)
{
    return container_of(engine, struct dex, base);
}

static inline void dex_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* NULL: no memory. */
struct dex_scratch *dex_scratch_take(struct dex *self);
void dex_scratch_give(struct dex *self, struct dex_scratch *scratch);

/* A handle for another thread, without what an engine's user sees: table.c. */
PANDO_MUST_CHECK enum pando_status
dex_handle_create(struct dex_table *table, struct pool_session *session, struct dex **out);
void dex_handle_destroy(struct dex *self);

/* owners_retry_co and owners_again_co. */
PANDO_MUST_CHECK static inline enum pando_status dex_retry_co(struct dex *self,
                                                              struct pool_retry *retry)
{
    return owners_retry_co(&self->table->owners, retry);
}

static inline bool dex_again_co(struct dex *self, struct pool_retry *retry, struct step *step)
{
    return owners_again_co(&self->table->owners, retry, step);
}

#endif
