/*
 * tree.h - the tree itself: finding pages, operations, splits and merges, where pages lie.
 */
#ifndef TREE_DEX_TREE_H
#define TREE_DEX_TREE_H

#include "tree/dex/dex_int.h"

/* ---- place.c: where pages lie ---------------------------------------------------------------- */

/* NO_MEMORY. */
PANDO_MUST_CHECK enum pando_status dex_place_init(struct dex_table *table);
void dex_place_fini(struct dex_table *table);

/* The memory node whose turn it is to get a subtree of that level. */
uint16_t dex_place_turn(struct dex *self, uint8_t level);

/* Where new pages below a cached inner page go. Its latch is held. */
uint16_t dex_place_below(const struct frame *frame);

/* Where a page's right half goes, when it is split because of a key. Its latch is held. */
struct dex_place {
    uint16_t below_parent; /* where new pages below its parent go */
    /* Out. */
    uint16_t right;
    uint8_t left_grows, split_at; /* what its frame is to have afterwards */
};
void dex_place_half(struct dex *self, uint32_t frame, struct slice key, struct dex_place *place);

/* A fresh block for a page, in a bank or anywhere (POOL_ANY_NODE). */
PANDO_MUST_CHECK enum pando_status dex_alloc_co(struct dex *self, uint16_t bank,
                                                struct page_header *header);
/* For the half of a page that is split. An inner page has to be: a leaf below it was, and until that is
 * told nobody finds what went to its other half. So it may come from what is left of a full pool. */
PANDO_MUST_CHECK enum pando_status dex_alloc_half_co(struct dex *self, uint16_t bank, uint8_t level,
                                                     struct page_header *header);
PANDO_MUST_CHECK enum pando_status dex_free_page_co(struct dex *self, const uint8_t *bytes);

/* Of a live page and a dead one. */
uint64_t dex_tenure(const struct dex_table *table, bool live);

/* ---- find.c: from a key to its page ---------------------------------------------------------- */

struct dex_target {
    struct dex_pushdown *push; /* NULL: not to be pushed down */
    struct dex_scratch *scratch;
    struct slice key;
    uint8_t level;
    bool before;         /* the page with the keys just below the key */
    bool keep;           /* it is to be kept whatever the admission says */
    bool believe_damage; /* a page that was damaged a moment ago is not read again at all */
};

struct dex_spot {
    uint32_t frame;
    uint64_t version; /* as it was looked at */
    uint32_t parent;  /* FRAME_NONE for the root */
    uint64_t parent_version;
    bool pushed_down; /* a memory node has done it: there is no frame */
    bool private;     /* nobody else sees the frame: it is BUSY, and its latch is ours */
    /* What the last page named, when it is not there; or that page (dex_complete_split_co). */
    uint64_t suspect;
    uint8_t suspect_level;
};

/* Tries of an operation that found a page and lost it again, zero to begin with. */
struct dex_tries {
    unsigned count;
    uint64_t deadline_ns;
    struct frame_pause pause;
};

/* Before another one: the first few are at once, then it pauses. False: it has lasted too long (as pool_past
 * says, sooner while the table is being closed), or this member is fenced. */
bool dex_try_again_co(struct dex *self, struct dex_tries *tries);

PANDO_MUST_CHECK enum pando_status dex_find_co(struct dex *self, const struct dex_target *target,
                                               struct dex_spot *spot);

/* A page that is not there, or not what it should be, and what is known of it; begins as zeroes. */
struct dex_suspect {
    fabric_address page;
    unsigned looks;
    struct pool_watch *watch; /* of members that may have left an inner page so */
};

/* Restarts: look at the page once more. CORRUPT: it is damaged, which was logged and counted. */
PANDO_MUST_CHECK struct step dex_suspect_co(struct dex *self, fabric_address page, uint8_t level,
                                            struct dex_suspect *suspect);
void dex_suspect_end(struct dex_suspect *suspect);

/* Before what somebody is told of a leaf's damage is final: who is led there next looks closely. */
void dex_damage_forget_leaves(struct dex_table *table);

/* Whether a leaf that was missed is to be kept. */
bool dex_admits(struct dex *self);

/* The end of what was done with a private frame. */
PANDO_MUST_CHECK enum pando_status dex_private_end_co(struct dex *self, uint32_t frame);

/* ---- modify.c, get.c, scan.c ----------------------------------------------------------------- */

enum pando_status dex_part_co(struct engine *engine, struct slice key, struct engine_part *part);
enum pando_status dex_swap_value_co(struct engine *engine, struct slice key,
                                    const struct engine_swap *swap);
enum pando_status dex_modify_co(struct engine *engine, struct slice key, unsigned how,
                                engine_modify_fn fn, void *context);
enum pando_status dex_scan_co(struct engine *engine, const struct engine_range *range,
                              engine_scan_fn fn, void *context);

/* Those of keys that are this process's own; the caller has entered. */
PANDO_MUST_CHECK enum pando_status dex_local_get_co(struct dex *self,
                                                    const struct map_partition *part,
                                                    struct slice key, struct dex_scratch *scratch,
                                                    bool *blob, void *value, size_t capacity,
                                                    size_t *size);

/* Changes a key, with a value as it is, or for others (owners_edit). The caller has entered, as above. */
PANDO_MUST_CHECK enum pando_status dex_local_modify_co(struct dex *self,
                                                       const struct map_partition *part,
                                                       struct slice key,
                                                       const struct owners_edit *edit);

/* Of a key whose pair is being changed, and whose record was asked for: its leaf's latch is held. */
static inline void dex_forget_record(struct dex_table *table, struct slice key,
                                     struct pair_cache_token *token)
{
    if (table->on.forget)
        pair_cache_forget(&table->cache.records, key, token);
}

/* A change of a leaf whose latch is held: its record goes into the log, its stamp into the page. FULL:
 * the log is, and nothing was done. */
PANDO_MUST_CHECK enum pando_status dex_log_change(struct dex_table *table, struct frame *frame,
                                                  const struct map_partition *part,
                                                  enum dex_log_kind kind,
                                                  const struct page_pair *pair, uint8_t *bytes);

/* The leaf with a key (or those just below it) as it is now, copied to scratch->page. */
PANDO_MUST_CHECK enum pando_status dex_local_leaf_co(struct dex *self, struct slice key,
                                                     bool before, struct dex_scratch *scratch);

/* The same for a scan that will come to so many more. */
PANDO_MUST_CHECK enum pando_status dex_scan_leaf_co(struct dex *self,
                                                    const struct owners_guard *guard,
                                                    struct slice key, bool before,
                                                    struct dex_scratch *scratch, unsigned more);

/* READs leaves that follow the one with this key, or with those just below it come before that, as far as they
 * are not cached: prefetch.c. */
void dex_prefetch_co(struct dex *self, const struct owners_guard *guard,
                     const struct dex_spot *spot, struct slice key, bool before, unsigned leaves);

/* ---- split.c, merge.c ------------------------------------------------------------------------ */

/* Splits the page of that level that has the key, if it has more than one pair. Everything may have
 * changed afterwards. */
PANDO_MUST_CHECK enum pando_status dex_split_co(struct dex *self, struct slice key, uint8_t level);

/* A child does not have the key that its cached parent, the spot's frame, says it has: makes the
 * parent right, and restarts. CORRUPT: the child is damaged, or the parent is, which is then the
 * suspect. */
PANDO_MUST_CHECK struct step dex_complete_split_co(struct dex *self, struct dex_spot *spot,
                                                   const struct dex_target *target);

/* Merges the page of that level that has the key with a neighbour, if they fit. Gives up quietly when
 * somebody is in the way. */
void dex_merge_co(struct dex *self, struct slice key, uint8_t level);

/* Whether only this process changes a cached page, and has since the page was read: then it need not be
 * locked, and is current. Its latch is held. */
bool dex_page_exclusive(const struct dex *self, uint32_t frame);

/* Before a cached page is changed in the pool: locks it if others change it too, and makes sure that it
 * is current; its latch is held. *locked says whether there was a lock to take. STALE: it was not
 * current, but is now, or is a dead page because it cannot be read in the pool; nothing is locked.
 * CORRUPT: it is the root, and cannot be read, perhaps because its writer died (dex_suspect_co);
 * nothing is locked. */
PANDO_MUST_CHECK enum pando_status dex_lock_page_co(struct dex *self, uint32_t frame,
                                                    struct dex_scratch *scratch,
                                                    struct pool_lock *lock, bool *locked);

/* Of a HOT inner page that is an orphan (frame.h): reads it anew, if it is as at that version. Whether it has changed;
 * the descent begins again. */
bool dex_renew_co(struct dex *self, uint32_t frame, uint64_t version);

/* Whether a page is the one of its level that is on the way to the target. */
bool dex_covers(const uint8_t *bytes, uint8_t level, const struct dex_target *target);

/* Which child of a page is on the way to the target. */
uint32_t dex_child_index(const struct dex_table *table, const uint8_t *bytes,
                         const struct dex_target *target);

/* ---- the rest -------------------------------------------------------------------------------- */

enum pando_status dex_bulk_load_co(struct engine *engine, engine_feed_fn next, void *context,
                                   unsigned fill);
enum pando_status dex_verify_co(struct engine *engine, struct engine_census *out, char *error,
                                size_t error_bytes);
enum pando_status dex_drop_co(struct engine_table *table, struct pool_session *session);
void dex_batch_co(struct engine *engine, struct engine_batch_op *ops, size_t count);

#endif
