/*
 * sherman_int.h - what the files of the engine share.
 */
#ifndef TREE_SHERMAN_SHERMAN_INT_H
#define TREE_SHERMAN_SHERMAN_INT_H

#include <stdatomic.h>

#include "pool/block_fmt.h"
#include "pool/intent.h"
#include "tree/blob/blob.h"
#include "tree/cache/index_cache.h"
#include "tree/lock/local_lock.h"
#include "tree/node/node.h"
#include "tree/sherman/sherman.h"

/* Every technique can be switched off; the last are for tests only and break the engine on
 * purpose. */
struct sherman_switches {
    bool combine;      /* write-back and unlock in one list */
    bool onchip;       /* said here, done by the simulated NIC: locks in on-chip memory */
    bool hierarchical; /* local locks before global ones */
    bool queue;        /* waiters line up */
    bool handover;     /* the global lock is passed on inside the process */
    bool twolevel;     /* writes of one entry instead of the whole leaf */
    bool cache;        /* copies of inner nodes */
    bool lockread;     /* the leaf's READ rides behind the lock's CAS */
    bool backoff;      /* growing pauses between tries for a remote lock */
    bool reuse;        /* the leaf's bytes are passed on with its lock */
    bool adopt;        /* a holder does the work of those who wait for its leaf */
    bool merge;        /* underfull nodes are merged */
    bool alone;        /* off: no global locks of leaves; see README.md, "A baseline for others" */
    /* break-cells and so on, see docs/PROTOCOLS.md */
    bool cells, fences, intents, locks, release, completed, versions, sibling, tiling, merge_lock,
        separator, dead, proof;
};

struct damage_said {
    fabric_address address;
    uint64_t at_ns;
};

struct sherman_table {
    struct engine_table base;
    struct pool *pool;
    unsigned slot; /* in the pool's directory */
    uint16_t id;
    struct node_layout layout;
    struct sherman_switches on;
    struct index_cache *cache;
    struct local_locks *locks;
    struct unmerged *unmerged;
    _Atomic uint64_t root;       /* as last seen */
    _Atomic uint32_t root_level; /* likewise */
    _Atomic uint64_t rereads, splits, merges, repairs, damage;
    struct rt_latch handles_latch; /* of what follows */
    struct list handles;           /* of struct sherman */
    struct damage_said said[8];    /* which damaged nodes were logged last, and when */
    unsigned said_next;
    uint64_t gone_hits, gone_misses; /* of those that are no more */
};

/* A node's bytes and room to build another; taken from and given back to the thread's handle. */
struct scratch {
    struct scratch *next;
    struct node_entry *entries;              /* NODE_ENTRIES_MAX + 1 */
    struct inner_entry *separators;          /* likewise */
    uint8_t *node, *image, *sibling, *other; /* node_bytes each */
    uint8_t *intent;                         /* POOL_INTENT_BYTES */
    uint8_t *value;                          /* an old blob's contents, when one was fetched */
};

struct sherman {
    struct engine base;
    struct sherman_table *table;
    struct list link; /* in the table's handles */
    struct scratch *free_scratch;
    /* Counted with every operation: by each thread for itself, lest all of them write to one line. */
    _Atomic uint64_t hits, misses;
    uint32_t pairs_per_leaf; /* about, of those scanned lately; 0: not known */
};

static inline struct sherman *sherman_of(struct engine *engine)
{
    return container_of(engine, struct sherman, base);
}

struct scratch *scratch_take(struct sherman *self);
void scratch_give(struct sherman *self, struct scratch *scratch);

/* ---- find.c: nodes by key -------------------------------------------------------------------- */

/* Reads a node and checks its header (of an inner node, all of it); reads again while it is torn.
 * STALE: no node of this table is there any more. */
PANDO_MUST_CHECK enum pando_status sherman_read_co(struct sherman *self, fabric_address address,
                                                   uint8_t *bytes, struct node_header *header);

/* The same by a pointer that was read at pointer_ns of rt_coarse_ns, from a node that was valid or from
 * where roots are: links a node that whoever wrote it has not linked yet (R21). */
PANDO_MUST_CHECK enum pando_status sherman_read_linked_co(struct sherman *self,
                                                          fabric_address address,
                                                          uint64_t pointer_ns, uint8_t *bytes,
                                                          struct node_header *header);

/* Links a node of which these are the bytes as node_unlinked has left them. STALE: it has changed. */
PANDO_MUST_CHECK enum pando_status sherman_link_co(struct sherman *self, fabric_address address,
                                                   const uint8_t *bytes);

/* Where the search for a key goes. */
struct sherman_target {
    struct slice key;
    uint8_t level;
    bool before; /* the node with the keys just below the key */
};

/* The node of that level that covers the key, read into bytes. Bounded; TIMEOUT after that. */
PANDO_MUST_CHECK enum pando_status sherman_find_co(struct sherman *self,
                                                   const struct sherman_target *target,
                                                   uint8_t *bytes, struct node_header *header);

/* What mostly happens, in two steps, without what the ordinary way has for all else, which is a tenth of a get's
 * time. First the READ of the leaf that the cache names, and the leaf's address; 0: the cache knows none, or it
 * came too late. Then the same as sherman_find_co, which does both, if those bytes are what is looked for. */
PANDO_MUST_CHECK fabric_address sherman_leaf_at_once_co(struct sherman *self, struct slice key,
                                                        uint8_t *bytes);
PANDO_MUST_CHECK enum pando_status sherman_find_from_co(struct sherman *self,
                                                        const struct sherman_target *target,
                                                        fabric_address at, uint8_t *bytes,
                                                        struct node_header *header);

/* Its address alone, mostly from the cache and then perhaps not true any more. */
PANDO_MUST_CHECK enum pando_status sherman_locate_co(struct sherman *self, struct slice key,
                                                     uint8_t level, uint8_t *bytes,
                                                     fabric_address *address);

/* What a node said that was reached for this target. */
enum sherman_fit { FIT, FIT_RIGHT /* go to its sibling */, FIT_NOT /* the cache misled */ };
enum sherman_fit sherman_fits(const struct sherman *self, const struct sherman_target *target,
                              const struct node_header *header);

/* Before a search begins again: forgets what led to a wrong node, learns the root anew, and pauses as
 * pool_retry_co does. */
PANDO_MUST_CHECK enum pando_status sherman_misled_co(struct sherman *self,
                                                     const struct sherman_target *target,
                                                     struct pool_retry *retry);
PANDO_MUST_CHECK enum pando_status sherman_root_co(struct sherman *self, bool fresh,
                                                   fabric_address *root);

/* ---- lock.c: nodes under locks --------------------------------------------------------------- */

/* What is special of the last list under a lock: then it is not handed over. */
enum sherman_last {
    LAST_PLAIN,
    LAST_MENDS,  /* its release takes marks away */
    LAST_SPLITS, /* it begins with a sibling, see split.c: it is not sent again as it is */
};

struct sherman_lock {
    struct pool_lock global;
    struct local_lock_grant local;
    bool held;
    bool alone;     /* the local one only: global.word is 0 */
    uint8_t last;   /* enum sherman_last */
    uint8_t mended; /* with LAST_MENDS: how many torn cells */
    fabric_address node;
    uint8_t *known; /* the node's bytes as they were read; NULL: they are not to be passed on */
};

/* Locks a node's lock word and reads the node, both in one list where that is switched on. */
PANDO_MUST_CHECK enum pando_status sherman_lock_co(struct sherman *self, fabric_address node,
                                                   uint8_t *bytes, struct sherman_lock *lock);

/* The same for a leaf. With `work` somebody else may do that work; lock->local.done then, and nothing
 * is held. */
PANDO_MUST_CHECK enum pando_status sherman_lock_leaf_co(struct sherman *self, fabric_address node,
                                                        uint8_t *bytes, void *work,
                                                        struct sherman_lock *lock);

/* Without waiting: BUSY if anybody holds it. */
PANDO_MUST_CHECK enum pando_status sherman_try_lock_co(struct sherman *self, fabric_address node,
                                                       struct sherman_lock *lock);

/* Sends the last writes under a lock and releases it, or passes it on. The operations are on the
 * lock's node. There is room for one more in `ops`. OK, FENCED, or UNKNOWN: this member gave itself
 * up, because it could neither finish nor take back what it had begun. */
PANDO_MUST_CHECK enum pando_status sherman_commit_co(struct sherman *self,
                                                     struct sherman_lock *lock,
                                                     struct fabric_op *ops, uint32_t count);

/* Writes that may be repeated while the lock is held, on any node; each list completed. */
PANDO_MUST_CHECK enum pando_status sherman_write_co(struct sherman *self, uint16_t node,
                                                    struct fabric_op *ops, uint32_t count);

static inline enum pando_status sherman_unlock_co(struct sherman *self, struct sherman_lock *lock)
{
    struct fabric_op ops[2];
    return sherman_commit_co(self, lock, ops, 0);
}

/* ---- leaf.c: changing one pair --------------------------------------------------------------- */

enum pando_status sherman_modify_co(struct engine *engine, struct slice key, unsigned how,
                                    engine_modify_fn fn, void *context);

/* R19: before another look at a leaf that was torn, or had a blob that is gone. The second look is at
 * once, later ones after pauses; half-way the leaf that covers the key is made whole under its lock, or
 * its writer waited for. TIMEOUT after the last. */
PANDO_MUST_CHECK enum pando_status sherman_torn_co(struct sherman *self, struct slice key,
                                                   unsigned *looks);

/* Locks the leaf that covers the key and mends what a writer left there that died (R18). CORRUPT: it is
 * damaged, which is logged and counted. */
PANDO_MUST_CHECK enum pando_status sherman_mend_co(struct sherman *self, struct slice key);

/* ---- damage.c -------------------------------------------------------------------------------- */

/* Counts and logs damage that was proven; the key tells which part of the table is concerned. Returns
 * CORRUPT. */
PANDO_MUST_CHECK enum pando_status sherman_damaged(struct sherman *self, fabric_address address,
                                                   struct slice key, const char *what);

/* The way to the target led to an address where no valid node was found. CORRUPT: there is none though
 * one is linked. AGAIN: start over. No lock is held. */
PANDO_MUST_CHECK enum pando_status sherman_suspect_co(struct sherman *self,
                                                      const struct sherman_target *target,
                                                      fabric_address address);

/* A key, or the beginning of a long one, for people. */
enum { SHERMAN_KEY_TEXT = 128 };
void sherman_key_text(struct slice key, char out[SHERMAN_KEY_TEXT]);

/* ---- split.c --------------------------------------------------------------------------------- */

/* Replaces a locked leaf's pairs by these sorted ones: in place if they fit, in two leaves
 * otherwise. Releases the lock. */
PANDO_MUST_CHECK enum pando_status
sherman_rewrite_co(struct sherman *self, struct sherman_lock *lock, struct scratch *scratch,
                   const struct node_header *header, uint32_t count, bool appending);

/* Tells the parent about a node that is reached only through its left sibling. `unlinked`: the header
 * word of one that may still be so, and is linked first; else 0. */
PANDO_MUST_CHECK enum pando_status sherman_adopt_co(struct sherman *self, uint8_t level,
                                                    struct slice low, fabric_address child,
                                                    uint64_t unlinked);

/* A header for a new or rewritten node. */
struct node_header sherman_header(const struct sherman *self, fabric_address address,
                                  uint64_t version, uint8_t level);

/* ---- merge.c --------------------------------------------------------------------------------- */

/* Tries to merge the node of that level that covers the key with a neighbour, and so on upwards.
 * Gives up quietly when somebody is in the way. */
void sherman_merge_co(struct sherman *self, uint8_t level, struct slice key);

/* Tries the nodes again that somebody was in the way of. */
void sherman_keep_co(struct engine_table *base, struct pool_session *session);

/* unmerged.c: any thread. Adding does nothing when there are too many. */
struct unmerged *unmerged_create(uint32_t key_max);
void unmerged_destroy(struct unmerged *unmerged);
void unmerged_add(struct unmerged *unmerged, uint8_t level, struct slice key);
uint32_t unmerged_count(struct unmerged *unmerged);
bool unmerged_take(struct unmerged *unmerged, uint8_t *level, uint8_t *key, size_t *size);

/* ---- the rest -------------------------------------------------------------------------------- */

enum pando_status sherman_get_co(struct engine *engine, struct slice key, void *value,
                                 size_t capacity, size_t *size);
enum pando_status sherman_scan_co(struct engine *engine, const struct engine_range *range,
                                  engine_scan_fn fn, void *context);
enum pando_status sherman_bulk_load_co(struct engine *engine, engine_feed_fn next, void *context,
                                       unsigned fill);
enum pando_status sherman_verify_co(struct engine *engine, struct engine_census *out, char *error,
                                    size_t error_bytes);
enum pando_status sherman_drop_co(struct engine_table *table, struct pool_session *session);

static inline void sherman_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* One that only this thread counts. */
static inline void sherman_count_own(_Atomic uint64_t *counter)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + 1, memory_order_relaxed);
}

#endif
