/*
 * dex_int.h - what the files of the engine share.
 */
#ifndef TREE_DEX_DEX_INT_H
#define TREE_DEX_DEX_INT_H

#include <stdalign.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/prng.h"
#include "pool/intent.h"
#include "tree/blob/blob.h"
#include "tree/dex/cooling.h"
#include "tree/dex/dex.h"
#include "tree/dex/frame.h"
#include "tree/dex/log.h"
#include "tree/dex/map.h"
#include "tree/dex/records.h"
#include "tree/dex/visible.h"
#include "tree/page/page.h"

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
    bool offload;     /* memory nodes do some of the work */
    bool prefetch;    /* scans ask for leaves ahead */
    bool log;         /* an acknowledged write survives this process: durability */
    bool merge;
    bool balance; /* owners give keys to others that have less to do */
    /* Off unless asked for by "+": gets of leaves, too, and leaves whatever the barrier costs; always. */
    bool offload_leaves, offload_only;
    bool lend_wildly;  /* likewise, for tests: frames for records come and go at random */
    bool small_log;    /* likewise: checkpoints are frequent */
    bool join_eagerly; /* likewise: parts of the map are joined whenever they can be */
    /* break-cells and so on, see docs/PROTOCOLS.md */
    bool cells, replay, invalidate, forget, barrier, durable, stamps, through, partitions,
        write_back, truncate, lease;
};

struct dex_stats {
    _Atomic uint64_t misses, rereads, splits, merges, repairs, forwarded, checkpoints, log_waits,
        offloaded, takeovers, given, waits, damage;
};

/* A thread that writes takes the line from all others. */
enum { DEX_LINE_BYTES = 64 };

/* How long READs of a memory node, calls with a barrier and calls without one took lately. Each node's is
 * written with every READ of it. */
enum { DEX_COST_NODES = 64 };
struct dex_cost {
    alignas(DEX_LINE_BYTES) _Atomic uint64_t read_ns;
    _Atomic uint64_t call_ns, plain_ns;
};

/* What missed the cache lately, and what follows from it: lend.c. */
struct dex_lend {
    _Atomic uint32_t misses;       /* of leaves, all */
    _Atomic uint32_t gets, others; /* lately */
    _Atomic uint32_t crowded;      /* of the gets: for their records there was no room */
    _Atomic uint32_t lost;         /* by missing inner pages, in parts of a READ */
    _Atomic int budget; /* frames that may be lent until the next judgement; below 0, taken back */
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
    struct frames frames;
    struct records records;
    struct dex_log *log; /* of this process; made with the first ownership */

    /* Who owns what. Operations count themselves in under the parity of the generation they began in
     * (dex_enter), so that a change waits for those that know only the former map. */
    _Atomic(struct map *) map;
    _Atomic uint32_t generation;
    _Atomic uint64_t unanswered_ns; /* since when owners cannot be called; 0: they can */
    _Atomic uint64_t wished_ns;     /* when that was last said to one (wishes.c) */
    atomic_bool changing;           /* one change of ownership at a time */
    atomic_bool checkpointing;      /* one at a time, too */
    atomic_bool checkpoint_failed;
    atomic_bool doubt; /* an owner could not be reached: the map may be old */
    atomic_bool closing;

    /* Read by misses; written while the cache fills, and when pages are split. */
    alignas(DEX_LINE_BYTES) _Atomic uint32_t fresh; /* frames that were never used begin here */
    _Atomic uint32_t orphans; /* frames that are: no memory node is to go through such pages */
    struct cooling cooling;

    /* Written by misses. */
    alignas(DEX_LINE_BYTES) struct rt_latch free_latch;
    uint32_t free_list;          /* frames that no thread has, linked by `next` */
    _Atomic uint32_t free_count; /* of these; changed under the latch */
    alignas(DEX_LINE_BYTES) struct dex_stats stats;
    alignas(DEX_LINE_BYTES) struct dex_lend lend;
    struct dex_cost costs[DEX_COST_NODES];
    struct visible visible;

    /* Written by calls that are answered. */
    alignas(DEX_LINE_BYTES) struct rt_latch handles_latch;
    struct list handles;        /* struct dex */
    uint64_t operations_before; /* of handles that are gone */

    /* The background task, on the loop that opened the table. */
    alignas(DEX_LINE_BYTES) struct dex *keeper;
    _Atomic uint64_t load; /* operations in the last lease, as it counted */
    atomic_bool keeper_done;
    bool keeper_started;
    bool retired;              /* nothing of it in the pool is ours to touch */
    bool looked;               /* for orphans, at least once */
    uint64_t departures_known; /* of the pool, when there were none */
    unsigned passes;
    uint64_t operations_known; /* when its load was last measured */
    struct rt_waitq wake;
};

/* Pages of this level and all below them lie on one memory node, as far as it has room: the paper's M. */
enum { DEX_SUBTREE_LEVEL = 3 };

/* A page's bytes and room to build others; taken from and given back to the thread's handle. */
struct dex_scratch {
    struct dex_scratch *next;
    uint8_t *page, *image, *sibling, *other; /* page_bytes each */
    uint8_t *value;                          /* VALUE_ROOM */
    uint8_t *blob;                           /* a long value, when one was fetched */
    uint8_t *intent;                         /* POOL_INTENT_BYTES */
    uint8_t key[PAGE_KEY_ROOM], key2[PAGE_KEY_ROOM];
};

enum { FREE_FRAMES_MAX = 32 };

struct dex {
    struct engine base;
    struct dex_table *table;
    struct list link;
    bool serves; /* it answers others */
    struct dex_scratch *free_scratch;
    struct dex_scratch *reserve; /* for writing back when there is no other; NULL while in use */
    uint32_t free_frames[FREE_FRAMES_MAX];
    uint32_t free_count;
    _Atomic uint64_t operations; /* done here ever, for whomever; only its own thread counts */
    _Atomic uint32_t active[2];  /* operations under way, by the parity of their generation */
    uint32_t pairs_per_leaf;     /* about, of the last scanned; 0: not known */
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

static inline uint64_t dex_self(const struct dex_table *table)
{
    return map_member(pool_identity(table->pool));
}

/* NULL: no memory. */
struct dex_scratch *dex_scratch_take(struct dex *self);
void dex_scratch_give(struct dex *self, struct dex_scratch *scratch);

/* A handle for another thread, without what an engine's user sees: table.c. */
PANDO_MUST_CHECK enum pando_status
dex_handle_create(struct dex_table *table, struct pool_session *session, struct dex **out);
void dex_handle_destroy(struct dex *self);

static inline void dex_did(struct dex *self, uint64_t operations)
{
    uint64_t before = atomic_load_explicit(&self->operations, memory_order_relaxed);
    atomic_store_explicit(&self->operations, before + operations, memory_order_relaxed);
}

/* What all handles have done. */
uint64_t dex_operations(struct dex_table *table);

/* Bounded loops that begin again: pool_retry_co, for less long while the table is being closed. */
PANDO_MUST_CHECK enum pando_status dex_retry_co(struct dex *self, struct pool_retry *retry);

/* ---- view.c: who owns what, as this process knows it ----------------------------------------- */

/* An operation under way. */
struct dex_guard {
    const struct map *map;
    const struct map_part *part; /* the one with its key */
    unsigned parity;
};
void dex_enter(struct dex *self, struct slice key, struct dex_guard *guard);
void dex_leave(struct dex *self, struct dex_guard *guard);

/* Whether operations on this part run here. */
static inline bool dex_mine(const struct dex_table *table, const struct map_part *part)
{
    return part->owner == dex_self(table) && !part->frozen;
}

/* Whether an operation on this key would run here. */
bool dex_owns(struct engine *engine, struct slice key);

/* Puts a new view in the place of the old one, which is freed when every operation that might see it
 * has ended: this waits for them. */
void dex_publish_co(struct dex *self, struct map *map);

/* Whether only this process changes a cached page, and has since the page was read: then it need not be
 * locked, and is current. Its latch is held. */
bool dex_alone(const struct dex *self, uint32_t frame);

static inline uint64_t dex_epoch(const struct dex_table *table)
{
    return atomic_load_explicit(&table->map, memory_order_acquire)->epoch;
}

/* ---- pages.c: pages in the pool -------------------------------------------------------------- */

/* Reads a page and checks it; reads again while it is torn. STALE: no page of this table is there. */
PANDO_MUST_CHECK enum pando_status dex_read_co(struct dex *self, fabric_address address,
                                               uint8_t *bytes);

/* A change of pages that lie on one node, as one list: all of it happens or, after this process died,
 * will have happened when the dead one is recovered. Sealed here. */
enum { DEX_CHANGE_PAGES = 4 };
struct dex_change {
    uint8_t *images[DEX_CHANGE_PAGES]; /* each has its address in it */
    unsigned count;
    const struct pool_lock *lock; /* released with it; NULL: none is held */
    bool plain;                   /* without an intent: fresh blocks, or when losses are accepted */
};
PANDO_MUST_CHECK enum pando_status dex_change_co(struct dex *self, struct dex_scratch *scratch,
                                                 const struct dex_change *change);

/* A copy of a cached page as it is to be in the pool: children by their addresses. Its latch is
 * held. */
void dex_image(const struct dex_table *table, uint32_t frame, uint8_t *image);

/* A fresh block for a page, near another page or anywhere (POOL_ANY_NODE). */
PANDO_MUST_CHECK enum pando_status dex_alloc_co(struct dex *self, uint16_t node,
                                                struct page_header *header);
/* For the half of a page that is split. An inner page has to be: a leaf below it was, and until that is
 * told nobody finds what went to its other half. So it may come from what is left of a full pool. */
PANDO_MUST_CHECK enum pando_status dex_alloc_half_co(struct dex *self, uint16_t node, uint8_t level,
                                                     struct page_header *header);
PANDO_MUST_CHECK enum pando_status dex_free_page_co(struct dex *self, const uint8_t *bytes);

/* Of a live page and a dead one. */
uint64_t dex_tenure(const struct dex_table *table, bool live);

/* Sends a cached page that was changed to the pool; its latch is held, and kept. */
PANDO_MUST_CHECK enum pando_status dex_write_back_co(struct dex *self, uint32_t frame);

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

/* It has a parent again, or goes; its latch is held. */
void dex_not_orphan(struct dex_table *table, uint32_t frame);

/* A COOLING frame whose latch is held goes. */
void dex_evict(struct dex *self, uint32_t frame);

/* Its parent names a HOT frame by address again; both latches are held; the frame is left COOLING but in no
 * queue. */
void dex_unswizzle(struct dex_table *table, uint32_t parent, uint32_t frame);

/* Moves frames that were children of a page whose contents were replaced: those that are there still stay
 * swizzled, the others are left COOLING. The page's latch is held. `bytes` are the new contents, with
 * addresses only. */
void dex_replace_co(struct dex *self, uint32_t frame, const uint8_t *bytes);

/* A frame that a queue has pushed out goes, unless somebody is at it. FRAME_NONE is nothing. */
void dex_let_go(struct dex *self, uint32_t frame);

/* ---- find.c: from a key to its page ---------------------------------------------------------- */

/* An operation that a memory node could do: offload.c. */
struct dex_push {
    unsigned operation; /* enum dex_work */
    const struct map_part *part;
    struct slice key, value; /* one that lies in the leaf: long ones are not pushed */
    bool barrier;            /* the memory node has to see what was written before */
    bool keep;               /* the leaf is to be kept, not asked for */
    /* Out, when it was done. */
    bool was_there, old_blob, shrunk;
    struct slice found; /* its value, or the old blob's address: in the scratch */
    fabric_address leaf;
    struct page_stamp stamp;
    uint64_t end;
    struct records_ticket ticket; /* for the pair as it is now */
    /* Out in any case: the log has a record of it, and it may count or not. */
    bool doubt;
};

struct dex_target {
    struct dex_push *push; /* NULL: not to be offloaded */
    struct dex_scratch *scratch;
    struct slice key;
    uint8_t level;
    bool before; /* the page with the keys just below the key */
    bool keep;   /* it is to be kept whatever the admission says */
};

struct dex_spot {
    uint32_t frame;
    uint64_t version; /* as it was looked at */
    uint32_t parent;  /* FRAME_NONE for the root */
    uint64_t parent_version;
    bool pushed;  /* a memory node has done it: there is no frame */
    bool private; /* nobody else sees the frame: it is BUSY, and its latch is ours */
    /* What the last page named, when it is not there; or that page (dex_mend_co). */
    uint64_t suspect;
    uint8_t suspect_level;
};

PANDO_MUST_CHECK enum pando_status dex_find_co(struct dex *self, const struct dex_target *target,
                                               struct dex_spot *spot);

/* A page that is not there, or not what it should be, and what is known of it; begins as zeroes. */
struct dex_doubt {
    fabric_address page;
    unsigned looks;
    struct pool_watch *watch; /* of members that may have left an inner page so */
};

/* AGAIN: look at the page once more. CORRUPT: it is damaged, which was logged and counted. */
PANDO_MUST_CHECK enum pando_status dex_doubt_co(struct dex *self, fabric_address page,
                                                uint8_t level, struct dex_doubt *doubt);
void dex_doubt_end(struct dex_doubt *doubt);

/* Whether a leaf that was missed is to be kept. */
bool dex_admits(struct dex *self);

/* The end of what was done with a private frame. */
PANDO_MUST_CHECK enum pando_status dex_private_end_co(struct dex *self, uint32_t frame);

/* ---- offload.c ------------------------------------------------------------------------------- */

void dex_read_took(struct dex_table *table, uint16_t node, uint64_t duration_ns);

/* Whether a memory node is to go on from this page; then it is also decided with or without a barrier. */
bool dex_offload_pays(struct dex *self, struct dex_push *push, fabric_address page, uint8_t level);

/* BUSY: to be done here after all. */
PANDO_MUST_CHECK enum pando_status dex_offload_co(struct dex *self, struct dex_push *push,
                                                  fabric_address page, uint8_t level,
                                                  struct dex_scratch *scratch);

/* ---- modify.c, get.c, scan.c ----------------------------------------------------------------- */

enum pando_status dex_get_co(struct engine *engine, struct slice key, void *value, size_t capacity,
                             size_t *size);
enum pando_status dex_modify_co(struct engine *engine, struct slice key, unsigned how,
                                engine_modify_fn fn, void *context);
enum pando_status dex_scan_co(struct engine *engine, const struct engine_range *range,
                              engine_scan_fn fn, void *context);

/* Those of keys that are this process's own; the caller has entered. AGAIN: they are not any more. */
PANDO_MUST_CHECK enum pando_status dex_local_get_co(struct dex *self, const struct map_part *part,
                                                    struct slice key, struct dex_scratch *scratch,
                                                    bool *blob, void *value, size_t capacity,
                                                    size_t *size);

/* Reads the long value that a key's leaf refers to. AGAIN: it is gone, look at the leaf once more. CORRUPT:
 * so it was the last time, with the same reference. */
PANDO_MUST_CHECK enum pando_status dex_read_blob_co(struct dex *self, struct slice key,
                                                    blob_ref ref, void *value, size_t capacity,
                                                    size_t *size, blob_ref *missing);

/* What is to become of a key: decided by a function, here; blobs may be made before. */
struct dex_edit {
    unsigned how;
    engine_modify_fn fn;
    void *context;

    /* For others: values as they lie in leaves, blobs as references; perhaps only if the key is as it was
     * (enum dex_expect). */
    bool raw, raw_blob;
    unsigned expect;
    struct slice expected;
    uint8_t *mismatch; /* out */

    blob_ref *missing; /* see blob_missing; not of those for others */
};
PANDO_MUST_CHECK enum pando_status dex_local_modify_co(struct dex *self,
                                                       const struct map_part *part,
                                                       struct slice key,
                                                       const struct dex_edit *edit);

/* ---- lend.c: frames for single pairs ---------------------------------------------------------- */

/* A page of that level was not cached: READ, or pushed to its memory node. */
void dex_lend_missed(struct dex_table *table, uint16_t node, uint8_t level, bool get, bool pushed);

/* Whether what is looked up is rather kept as a record than with its leaf. */
bool dex_lends(const struct dex_table *table);

/* After a get that missed: perhaps lends one more frame, if there was no room for its record. */
void dex_lend_co(struct dex *self, const struct records_ticket *ticket);

/* A frame that was lent and is free now; FRAME_NONE: none is to be taken back. */
uint32_t dex_lend_back(struct dex *self);

/* Of a key whose pair is being changed, and whose record was asked for: its leaf's latch is held. */
static inline void dex_forget_record(struct dex_table *table, struct slice key,
                                     struct records_ticket *ticket)
{
    if (table->on.forget)
        records_forget(&table->records, key, ticket);
}

/* A change of a leaf whose latch is held: its record goes into the log, its stamp into the page. FULL:
 * the log is, and nothing was done. */
PANDO_MUST_CHECK enum pando_status dex_log_change(struct dex_table *table, struct frame *frame,
                                                  const struct map_part *part,
                                                  enum dex_log_kind kind,
                                                  const struct page_pair *pair, uint8_t *bytes);

/* The leaf with a key (or those just below it) as it is now, copied to scratch->page. */
PANDO_MUST_CHECK enum pando_status dex_local_leaf_co(struct dex *self, struct slice key,
                                                     bool before, struct dex_scratch *scratch);

/* The same for a scan that will come to so many more. */
PANDO_MUST_CHECK enum pando_status dex_scan_leaf_co(struct dex *self, const struct dex_guard *guard,
                                                    struct slice key, bool before,
                                                    struct dex_scratch *scratch, unsigned more);

/* The part with a key, or with those just below it. */
const struct map_part *dex_part_of(const struct map *map, struct slice key, bool before);

/* READs leaves that follow the one with this key, or with those just below it come before that, as far as they
 * are not cached: prefetch.c. */
void dex_prefetch_co(struct dex *self, const struct dex_guard *guard, const struct dex_spot *spot,
                     struct slice key, bool before, unsigned leaves);

/* What was read is only told when it is sure to last (R34), and we still are who we were (R39). */
PANDO_MUST_CHECK enum pando_status dex_settle_co(struct dex *self, uint64_t end);

/* ---- split.c, merge.c ------------------------------------------------------------------------ */

/* Splits the page of that level that has the key, if it has more than one pair. Everything may have
 * changed afterwards. */
PANDO_MUST_CHECK enum pando_status dex_split_co(struct dex *self, struct slice key, uint8_t level);

/* A child does not have the key that its cached parent, the spot's frame, says it has: makes the
 * parent right. CORRUPT: the child is damaged, or the parent is, which is then the suspect. */
PANDO_MUST_CHECK enum pando_status dex_mend_co(struct dex *self, struct dex_spot *spot,
                                               const struct dex_target *target);

/* Merges the page of that level that has the key with a neighbour, if they fit. Gives up quietly when
 * somebody is in the way. */
void dex_merge_co(struct dex *self, struct slice key, uint8_t level);

/* Before a cached page is changed in the pool: locks it if others change it too, and makes sure that it
 * is current; its latch is held. *locked says whether there was a lock to take. STALE: it was not
 * current, but is now, or is a dead page because it cannot be read in the pool; nothing is locked.
 * CORRUPT: it is the root, and cannot be read, perhaps because its writer died (dex_doubt_co);
 * nothing is locked. */
PANDO_MUST_CHECK enum pando_status dex_own_page_co(struct dex *self, uint32_t frame,
                                                   struct dex_scratch *scratch,
                                                   struct pool_lock *lock, bool *locked);

/* Whether a page is the one of its level that is on the way to the target. */
bool dex_covers(const uint8_t *bytes, uint8_t level, const struct dex_target *target);

/* Which child of a page is on the way to the target. */
uint32_t dex_child_index(const struct dex_table *table, const uint8_t *bytes,
                         const struct dex_target *target);

/* ---- own.c, give.c, checkpoint.c: getting and giving keys ---------------------------------------------------------- */

/* A key that is not ours: takes it over if nobody has it (any more), and otherwise says who does. */
PANDO_MUST_CHECK enum pando_status dex_claim_co(struct dex *self, struct slice key,
                                                uint64_t *owner);

/* Whether a member is gone for good: fenced everywhere, what it left half done finished. */
PANDO_MUST_CHECK enum pando_status dex_gone_co(struct dex *self, uint64_t member, bool *gone);

/* Gives the keys from low to high (or to the end), as far as they are ours, to a member, or to nobody.
 * Ends of the range are moved to where leaves end. */
struct dex_range {
    struct slice low, high;
    bool no_high;
};
PANDO_MUST_CHECK enum pando_status dex_give_co(struct dex *self, const struct dex_range *range,
                                               uint64_t to);
static inline bool dex_range_has(const struct dex_range *range, struct slice key)
{
    return slice_compare(key, range->low) >= 0 &&
           (range->no_high || slice_compare(key, range->high) < 0);
}

/* Whether a map needs this process's log. */
bool dex_log_named(const struct dex_table *table, const struct map *map);

/* One change of ownership at a time. */
void dex_change_begin_co(struct dex_table *table);
void dex_change_end(struct dex_table *table);

/* Replaces the map by a changed one and makes that the view; AGAIN: another has changed it. Frees both
 * in the end. */
PANDO_MUST_CHECK enum pando_status dex_swap_co(struct dex *self, struct map *from, struct map *to);

/* Makes a map that counts in the pool the view. Consumes it. */
PANDO_MUST_CHECK enum pando_status dex_adopt_co(struct dex *self, struct map *map);

/* Makes one part of neighbouring ones of this process, if the map is crowded: join.c. */
void dex_join_parts_co(struct dex *self);

/* What is only in this process's memory goes to the pool: everything (NULL), or most of a range. */
PANDO_MUST_CHECK enum pando_status dex_flush_co(struct dex *self, const struct dex_range *range);

/* Room in the log for some more records: waits for a checkpoint if there is little. */
PANDO_MUST_CHECK enum pando_status dex_log_room_co(struct dex *self);

/* None is under way; if the table is closing, none will be in the background. */
void dex_checkpoint_end_co(struct dex_table *table);

/* ---- forward.c, serve.c: what others do for us, and we for them ------------------------------ */

/* Asks the owner. AGAIN: it is not any more, or cannot be reached now. */
PANDO_MUST_CHECK enum pando_status dex_forward_get_co(struct dex *self, uint64_t owner,
                                                      struct slice key, void *value,
                                                      size_t capacity, size_t *size,
                                                      blob_ref *missing);
PANDO_MUST_CHECK enum pando_status dex_forward_modify_co(struct dex *self, uint64_t owner,
                                                         struct slice key,
                                                         const struct dex_edit *edit);

/* Pairs of one owner's leaves from the cursor on, into scratch->page as a page of its own. */
PANDO_MUST_CHECK enum pando_status dex_forward_leaf_co(struct dex *self, uint64_t owner,
                                                       struct slice key, bool before,
                                                       struct dex_scratch *scratch);
PANDO_MUST_CHECK enum pando_status dex_forward_flush_co(struct dex *self, uint64_t owner);
PANDO_MUST_CHECK enum pando_status dex_forward_give_co(struct dex *self, uint64_t owner,
                                                       const struct dex_range *range, uint64_t to);

/* Answers others, from now on and until no more. */
PANDO_MUST_CHECK enum pando_status dex_serve(struct dex_table *table);
void dex_serve_no_more_co(struct dex_table *table);

/* ---- the rest -------------------------------------------------------------------------------- */

enum pando_status dex_bulk_load_co(struct engine *engine, engine_feed_fn next, void *context,
                                   unsigned fill);
enum pando_status dex_verify_co(struct engine *engine, struct engine_census *out, char *error,
                                size_t error_bytes);
enum pando_status dex_drop_co(struct engine_table *table, struct pool_session *session);
void dex_batch_co(struct engine *engine, struct engine_batch_op *ops, size_t count);
enum pando_status dex_move_co(struct engine *engine, struct slice key, uint64_t choice);
enum pando_status dex_spread_co(struct engine *engine, bool others, unsigned *processes);

/* Gives keys to a process that has less to do, if this one has much more than most. */
void dex_balance_co(struct dex *self);

/* The background task: keeper.c. */
PANDO_MUST_CHECK enum pando_status dex_keeper_start(struct dex_table *table);
void dex_keeper_stop_co(struct dex_table *table);
void dex_keep_co(struct engine_table *base, struct pool_session *session);

#endif
