/*
 * sherman_int.h - what the files of the engine share.
 */
#ifndef TREE_SHERMAN_SHERMAN_INT_H
#define TREE_SHERMAN_SHERMAN_INT_H

#include <stdatomic.h>

#include "blob/blob.h"
#include "pool/block_fmt.h"
#include "pool/intent.h"
#include "tree/blink/blink.h"
#include "tree/sherman/sherman.h"

/* Techniques that can be switched off, besides those of struct blink_switches; the last are for tests only and
 * break the engine on purpose. */
struct sherman_switches {
    bool twolevel; /* writes of one entry instead of the whole leaf */
    bool adopt;    /* a holder does the work of those who wait for its leaf */
    bool merge;    /* underfull nodes are merged */
    bool alone;    /* off: no global locks of leaves; see README.md, "A baseline for others" */
    /* break-cells and so on, see docs/PROTOCOLS.md */
    bool cells, versions, tiling, proof;
};

struct sherman_table {
    struct engine_table base;
    struct blink_tree blink;
    struct sherman_switches on;
    _Atomic uint64_t repairs;
};

struct sherman {
    struct engine base;
    struct sherman_table *table;
    struct blink blink;
    uint32_t pairs_per_leaf; /* about, of those scanned lately; 0: not known */
};

static inline struct sherman *sherman_of(struct engine *engine)
{
    return container_of(engine, struct sherman, base);
}

/* ---- leaf.c: changing one pair --------------------------------------------------------------- */

enum pando_status sherman_part_co(struct engine *engine, struct slice key,
                                  struct engine_part *part);
enum pando_status sherman_swap_co(struct engine *engine, struct slice key,
                                  const struct engine_swap *swap);
enum pando_status sherman_modify_co(struct engine *engine, struct slice key, unsigned how,
                                    engine_modify_fn fn, void *context);

/* proven-repair (R19): before another look at a leaf that was torn, or had a blob that is gone. The
 * second look is at once, later ones after pauses; half-way the leaf that covers the key is made
 * whole under its lock, or its writer waited for. TIMEOUT after the last. */
PANDO_MUST_CHECK enum pando_status sherman_retry_torn_co(struct sherman *self, struct slice key,
                                                         unsigned *looks);

/* Locks the leaf that covers the key and repairs what a writer left there that died (rule
 * intent-first). CORRUPT: it is damaged, which is logged and counted. */
PANDO_MUST_CHECK enum pando_status sherman_repair_leaf_co(struct sherman *self, struct slice key);

/* ---- split.c --------------------------------------------------------------------------------- */

/* Replaces a locked leaf's pairs by these sorted ones: in place if they fit, in two leaves
 * otherwise. Releases the lock. */
PANDO_MUST_CHECK enum pando_status sherman_rewrite_co(struct sherman *self, struct blink_lock *lock,
                                                      struct blink_scratch *scratch,
                                                      const struct node_header *header,
                                                      uint32_t count, bool appending);

/* ---- what blink asks of leaves: struct blink_leaves ------------------------------------------ */

extern const struct blink_leaves sherman_leaves;

bool sherman_leaf_small_co(struct blink *self, struct slice key);
bool sherman_leaf_join(struct blink_merge *merge, const struct node_header *header);
enum pando_status sherman_leaf_check_co(struct blink *self, const struct blink_span *span,
                                        struct blink_scratch *scratch,
                                        const struct node_header *header,
                                        struct blink_content *content, const char **wrong);
enum pando_status sherman_leaf_free_values_co(struct blink *self, struct blink_scratch *scratch,
                                              const struct node_header *header);

/* ---- the rest -------------------------------------------------------------------------------- */

enum pando_status sherman_scan_co(struct engine *engine, const struct engine_range *range,
                                  engine_scan_fn fn, void *context);
enum pando_status sherman_bulk_load_co(struct engine *engine, engine_feed_fn next, void *context,
                                       unsigned fill);
enum pando_status sherman_verify_co(struct engine *engine, struct engine_census *out, char *error,
                                    size_t error_bytes);
enum pando_status sherman_drop_co(struct engine_table *table, struct pool_session *session);

/* Tries the nodes again that somebody was in the way of. */
void sherman_maintain_co(struct engine_table *base, struct pool_session *session);

#endif
