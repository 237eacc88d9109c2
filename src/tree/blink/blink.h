/*
 * blink.h - the levels of a B-link tree that engines share: inner nodes, and what is the same of leaves.
 *
 * A descent begins at the lowest cached inner node, or at the root, and moves right along siblings (find.c).
 * Nodes are split and merged under their locks (lock.c, split.c, merge.c), and an intent says what a dead
 * writer was about to do. Engines have leaves of their own: what the walks over a whole tree need to know of
 * them is in struct blink_leaves.
 *
 * An engine's table has a struct blink_tree, and its handle of each thread a struct blink. All functions but
 * those of the tree are for the handle's own thread.
 */
#ifndef TREE_BLINK_BLINK_H
#define TREE_BLINK_BLINK_H

#include <stdatomic.h>

#include "base/list.h"
#include "engine/engine.h"
#include "engine/step.h"
#include "pool/pool.h"
#include "tree/blink/cache/index_cache.h"
#include "tree/blink/lock/local_lock.h"
#include "tree/blink/node/node.h"

/* Techniques that can be switched off; the last are for tests only and break the tree on purpose. */
struct blink_switches {
    bool combine;      /* write-back and unlock in one list */
    bool onchip;       /* said here, done by the simulated NIC: locks in on-chip memory */
    bool hierarchical; /* local locks before global ones */
    bool queue;        /* waiters line up */
    bool handover;     /* the global lock is passed on inside the process */
    bool cache;        /* copies of inner nodes */
    bool lockread;     /* a node's READ rides behind its lock's CAS */
    bool backoff;      /* growing pauses between tries for a remote lock */
    bool reuse;        /* a node's bytes are passed on with its lock */
    /* break-fences and so on, see docs/PROTOCOLS.md */
    bool fences, intents, locks, release, completed, sibling, merge_lock, separator, dead, guards;
};

struct blink_damage_said {
    fabric_address address;
    uint64_t at_ns;
};

struct blink_leaves;

/* One process's part in a tree; shared by its threads. */
struct blink_tree {
    struct pool *pool;
    unsigned slot; /* in the pool's directory */
    uint16_t id;
    struct node_layout layout;
    struct blink_switches on;
    const struct blink_leaves *leaves;
    struct index_cache *cache;
    struct local_locks *locks;
    struct unmerged *unmerged;
    _Atomic uint64_t root;       /* as last seen */
    _Atomic uint32_t root_level; /* likewise */
    _Atomic uint64_t rereads, splits, merges, damage;
    struct rt_latch handles_latch;    /* of what follows */
    struct list handles;              /* of struct blink */
    struct blink_damage_said said[8]; /* which damaged nodes were logged last, and when */
    unsigned said_next;
    uint64_t gone_hits, gone_misses; /* of those that are no more */
};

/* A node's bytes and room to build another; taken from and given back to the thread's handle. */
struct blink_scratch {
    struct blink_scratch *next;
    struct node_entry *entries;              /* NODE_ENTRIES_MAX + 1 */
    struct inner_entry *separators;          /* likewise */
    uint8_t *node, *image, *sibling, *other; /* node_bytes each */
    uint8_t *intent;                         /* POOL_INTENT_BYTES */
    uint8_t *value;                          /* an old blob's contents, when one was fetched */
};

/* One thread's handle. */
struct blink {
    struct blink_tree *tree;
    struct pool_session *session;
    struct list link; /* in the tree's handles */
    struct index_cache_reader reader;
    struct blink_scratch *free_scratch;
    /* Counted with every operation: by each thread for itself, lest all of them write to one line. */
    _Atomic uint64_t hits, misses;
};

static inline void blink_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* One that only this thread counts. */
static inline void blink_count_own(_Atomic uint64_t *counter)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + 1, memory_order_relaxed);
}

/* ---- tree.c: trees, handles, scratch --------------------------------------------------------- */

/* Makes what a tree needs in this process. The caller has filled in everything down to `leaves`, the rest is
 * zero. NO_MEMORY: the caller calls blink_tree_fini as after success. */
PANDO_MUST_CHECK enum pando_status blink_tree_init(struct blink_tree *tree, uint64_t cache_bytes,
                                                   uint32_t key_max);
void blink_tree_fini(struct blink_tree *tree);

/* The handle is all zero. */
void blink_attach(struct blink *self, struct blink_tree *tree, struct pool_session *session);
void blink_detach(struct blink *self);

/* What all handles have found in the cache, and what not. */
void blink_lookups(struct blink_tree *tree, uint64_t *hits, uint64_t *misses);

/* As many as tasks have been at work at once; none is allocated after that. NULL: no memory. */
struct blink_scratch *blink_scratch_take(struct blink *self);
void blink_scratch_give(struct blink *self, struct blink_scratch *scratch);

/* ---- find.c: nodes by key -------------------------------------------------------------------- */

/* Reads a node and checks its header (of an inner node, all of it); reads again while it is torn.
 * STALE: no node of this table is there any more. */
PANDO_MUST_CHECK enum pando_status blink_read_co(struct blink *self, fabric_address address,
                                                 uint8_t *bytes, struct node_header *header);

/* The same by a pointer that was read at pointer_ns of rt_coarse_ns, from a node that was valid or from
 * where roots are: links a node that whoever wrote it has not linked yet (rule
 * unlinked-sibling). */
PANDO_MUST_CHECK enum pando_status blink_read_linked_co(struct blink *self, fabric_address address,
                                                        uint64_t pointer_ns, uint8_t *bytes,
                                                        struct node_header *header);

/* Links a node of which these are the bytes as node_unlinked has left them. STALE: it has changed. */
PANDO_MUST_CHECK enum pando_status blink_link_co(struct blink *self, fabric_address address,
                                                 const uint8_t *bytes);

/* Where the search for a key goes. */
struct blink_target {
    struct slice key;
    uint8_t level;
    bool before; /* the node with the keys just below the key */
};

/* The node of that level that covers the key, read into bytes. Bounded; TIMEOUT after that. */
PANDO_MUST_CHECK enum pando_status blink_find_co(struct blink *self,
                                                 const struct blink_target *target, uint8_t *bytes,
                                                 struct node_header *header);

/* Fast path of blink_find_co, in two steps; saves about a tenth of a get. First the READ of the
 * leaf that the cache names: returns its address, or 0 if the cache knows none or the READ came too
 * late. Then blink_find_after_read_co takes those bytes if they are the target, and else does what
 * blink_find_co does. */
PANDO_MUST_CHECK fabric_address blink_read_cached_leaf_co(struct blink *self, struct slice key,
                                                          uint8_t *bytes);
PANDO_MUST_CHECK enum pando_status blink_find_after_read_co(struct blink *self,
                                                            const struct blink_target *target,
                                                            fabric_address at, uint8_t *bytes,
                                                            struct node_header *header);

/* Its address alone, mostly from the cache and then perhaps not true any more. */
PANDO_MUST_CHECK enum pando_status blink_locate_co(struct blink *self, struct slice key,
                                                   uint8_t level, uint8_t *bytes,
                                                   fabric_address *address);

/* Siblings that a search follows to the right before it begins again. Each is a split that what was
 * read above does not know of: of so many at once only what is old, or damaged, knows nothing. */
enum { BLINK_MOVES_RIGHT_MAX = 64 };

/* What a node said that was reached for this target. */
enum blink_fit { FIT, FIT_RIGHT /* go to its sibling */, FIT_NOT /* the cache misled */ };
enum blink_fit blink_fits(const struct blink *self, const struct blink_target *target,
                          const struct node_header *header);

/* Before a search begins again: forgets what led to a wrong node, learns the root anew, and pauses as
 * pool_retry_co does. */
PANDO_MUST_CHECK enum pando_status
blink_restart_co(struct blink *self, const struct blink_target *target, struct pool_retry *retry);

/* The condition of a loop that does so: whether the try is followed by another. If not, the step is
 * how the loop ends, and no restart: the root, too, may meet with back-pressure, which is waited out. */
static inline bool blink_again_co(struct blink *self, const struct blink_target *target,
                                  struct pool_retry *retry, struct step *step)
{
    if (step->next == STEP_DONE)
        return false;
    enum pando_status status = blink_restart_co(self, target, retry);
    if (status == PANDO_AGAIN)
        status = pool_retry_co(self->tree->pool, retry);
    *step = step_of(status);
    return step_ok(*step);
}

/* NOT_FOUND: there is none. CORRUPT: the directory's word for it is damaged. */
PANDO_MUST_CHECK enum pando_status blink_root_co(struct blink *self, bool fresh,
                                                 fabric_address *root);

/* Puts the child of a root that was given up (merge.c) in its place. OK also if somebody else has done so. */
PANDO_MUST_CHECK enum pando_status blink_swap_root_co(struct blink *self, fabric_address root,
                                                      fabric_address child);

/* Whether a node is such a root: dead, with one child that it still names. */
static inline bool blink_given_up(const struct node_header *header)
{
    return header->dead && header->level > 0 && header->no_high && header->low.size == 0;
}

/* For who meets one, as it was read at read_ns of rt_coarse_ns: puts the child in its place if the directory
 * still names the node. OK also if there was nothing to do: start over. */
PANDO_MUST_CHECK enum pando_status blink_replace_root_co(struct blink *self, const uint8_t *bytes,
                                                         const struct node_header *header,
                                                         uint64_t read_ns);

/* The root, for walks over the whole tree, after that. Reads nodes into `bytes`. */
PANDO_MUST_CHECK enum pando_status blink_settled_root_co(struct blink *self, uint8_t *bytes,
                                                         fabric_address *root);

/* ---- lock.c: nodes under locks --------------------------------------------------------------- */

/* What is special of the last list under a lock: then it is not handed over. */
enum blink_last {
    LAST_PLAIN,
    LAST_REPAIRS, /* its release takes marks away */
    LAST_SPLITS,  /* it begins with a sibling, see split.c: it is not sent again as it is */
};

struct blink_lock {
    struct pool_lock global;
    struct local_lock_grant local;
    bool held;
    bool alone;       /* the local one only: global.word is 0 */
    uint8_t last;     /* enum blink_last */
    uint8_t repaired; /* with LAST_REPAIRS: how many torn cells */
    fabric_address node;
    uint8_t *known; /* the node's bytes as they were read; NULL: they are not to be passed on */
};

/* Locks a node's lock word and reads the node, both in one list where that is switched on. */
PANDO_MUST_CHECK enum pando_status blink_lock_co(struct blink *self, fabric_address node,
                                                 uint8_t *bytes, struct blink_lock *lock);

/* The same with the local lock only, or with work that somebody else may do: lock->local.done then, and
 * nothing is held. */
struct blink_lock_options {
    bool alone;
    void *work; /* NULL: none */
};
PANDO_MUST_CHECK enum pando_status blink_lock_with_co(struct blink *self, fabric_address node,
                                                      uint8_t *bytes,
                                                      const struct blink_lock_options *options,
                                                      struct blink_lock *lock);

/* Without waiting: BUSY if anybody holds it. */
PANDO_MUST_CHECK enum pando_status blink_try_lock_co(struct blink *self, fabric_address node,
                                                     struct blink_lock *lock);

/* Sends the last writes under a lock and releases it, or passes it on. The operations are on the
 * lock's node. There is room for one more in `ops`. OK, FENCED, or UNKNOWN: this member resigned,
 * because it could neither finish nor take back what it had begun. */
PANDO_MUST_CHECK enum pando_status blink_commit_co(struct blink *self, struct blink_lock *lock,
                                                   struct fabric_op *ops, uint32_t count);

/* Writes that may be repeated while the lock is held, where `at` lies; each list completed. */
PANDO_MUST_CHECK enum pando_status blink_submit_co(struct blink *self, fabric_address at,
                                                   struct fabric_op *ops, uint32_t count);

static inline enum pando_status blink_unlock_co(struct blink *self, struct blink_lock *lock)
{
    struct fabric_op ops[2];
    return blink_commit_co(self, lock, ops, 0);
}

/* Releases the lock; returns `status` unless that fails. */
PANDO_MUST_CHECK enum pando_status blink_unlock_with_co(struct blink *self, struct blink_lock *lock,
                                                        enum pando_status status);

/* ---- damage.c -------------------------------------------------------------------------------- */

/* Counts and logs damage that was proven; the key tells which part of the table is concerned. Returns
 * CORRUPT. */
PANDO_MUST_CHECK enum pando_status blink_damaged(struct blink *self, fabric_address address,
                                                 struct slice key, const char *what);

/* The way to the target led to an address where no valid node was found. CORRUPT: there is none though
 * one is linked. Else restarts. No lock is held. */
PANDO_MUST_CHECK struct step blink_suspect_co(struct blink *self, const struct blink_target *target,
                                              fabric_address address);

/* A key, or the beginning of a long one, for people. */
enum { BLINK_KEY_TEXT = 128 };
void blink_key_text(struct slice key, char out[BLINK_KEY_TEXT]);

/* ---- split.c --------------------------------------------------------------------------------- */

/* A header for a new or rewritten node. */
struct node_header blink_header(const struct blink *self, fabric_address address, uint64_t version,
                                uint8_t level);

/* A node becomes the left half of itself: returns the header of its right half, the new node at `block`, which
 * gets the keys from `middle` on. */
struct node_header blink_halve(const struct blink *self, struct node_header *left,
                               struct slice middle, const struct pool_block *block);

/*
 * Replaces a locked node by scratch->image, under an intent, after an optional sibling (scratch->sibling, at
 * *fresh); unlocks. The sibling's block is given back if nothing was done for want of a slot.
 *
 * The sibling is written unlinked (rule unlinked-sibling), and linked when the node refers to it:
 * in the same list if it is on the same memory node, else by whoever comes first:
 * blink_complete_split_co, with the word in *unlinked, or those who follow the sibling pointer. All
 * in one list: once the node was replaced, others may change the sibling, so a repetition of the
 * list must not write it again; blink_commit_co sees to that.
 */
PANDO_MUST_CHECK enum pando_status
blink_replace_co(struct blink *self, struct blink_lock *lock, struct blink_scratch *scratch,
                 fabric_address address, const struct pool_block *fresh, uint64_t *unlinked);

/* Gives the parent the separator of a node that is reached only through its left sibling.
 * `unlinked`: the header word of one that may still be so, and is linked first; else 0. */
PANDO_MUST_CHECK enum pando_status blink_complete_split_co(struct blink *self, uint8_t level,
                                                           struct slice low, fabric_address child,
                                                           uint64_t unlinked);

/* ---- merge.c --------------------------------------------------------------------------------- */

/* Two neighbours under one parent, all locked and read. */
enum { BLINK_MERGE_LOCKS = 3 };

struct blink_merge {
    struct blink *self;
    struct blink_scratch *scratch; /* node: the parent; other: left; sibling: right */
    struct blink_scratch *images;  /* node: left; other: right; sibling: parent, as they shall be */
    struct blink_lock parent_lock, left_lock, right_lock;
    struct node_header parent, left, right;
    uint32_t index; /* of the left child; the separator between them has the same */
    bool parent_small;
    bool only_child; /* there is no neighbour under that parent */
    /* Slots of the intent and the guards, in order of their nodes; 0: cleared, or not needed. */
    fabric_address slots[BLINK_MERGE_LOCKS];
};

/* A node is merged when it is less than a quarter full, into one that is at most three quarters
 * full. */
static inline uint32_t blink_quarter(const struct blink *self)
{
    return self->tree->layout.node_bytes / 4;
}

/* Tries to merge the node of that level that covers the key with a neighbour, and so on upwards.
 * Gives up quietly when somebody is in the way. */
void blink_merge_co(struct blink *self, uint8_t level, struct slice key);

/* Whether nodes wait to be tried again because somebody was in their way; tries them. */
bool blink_merges_left(struct blink_tree *tree);
void blink_merge_left_co(struct blink *self);

/* ---- walks over a whole tree, and what they ask of leaves ------------------------------------ */

/* A part of the key space. */
struct blink_span {
    struct slice low, high;
    bool no_high;
};

/* What a sound leaf adds to the census. */
struct blink_content {
    uint64_t pairs, bytes;
};

/* Complaint about a leaf that may be repaired. */
extern const char blink_torn_leaf[];
extern const char blink_bad_root[];

/* What an engine does with its leaves. */
struct blink_leaves {
    /* Whether the leaf that covers the key is worth an attempt to merge it. */
    bool (*small_co)(struct blink *self, struct slice key);

    /* Builds the leaf that two neighbours become, with this header, in images->node. False: they do not fit. */
    bool (*join)(struct blink_merge *merge, const struct node_header *header);

    /* Checks the leaf in scratch->node and counts its pairs within the span. *wrong: a complaint of static
     * lifetime, or NULL. */
    enum pando_status (*check_co)(struct blink *self, const struct blink_span *span,
                                  struct blink_scratch *scratch, const struct node_header *header,
                                  struct blink_content *content, const char **wrong);

    /* Repairs the leaf that covers the key, under its lock. CORRUPT: it is damaged. */
    enum pando_status (*repair_co)(struct blink *self, struct slice key);

    /* Frees what the pairs of the leaf in scratch->node refer to. */
    enum pando_status (*free_values_co)(struct blink *self, struct blink_scratch *scratch,
                                        const struct node_header *header);
};

/* verify.c: checks the whole tree while others use it; for engine_verify_co. CORRUPT is not returned: damage is
 * counted in *out, and described in `error`, a line each. */
PANDO_MUST_CHECK enum pando_status blink_verify_co(struct blink *self, struct engine_census *out,
                                                   char *error, size_t error_bytes);

/* drop.c: frees all nodes of a tree that nobody uses any more. NOT_FOUND: it has no root. */
PANDO_MUST_CHECK enum pando_status blink_free_all_co(struct blink *self);

#endif
