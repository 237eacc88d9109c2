/*
 * pushdown.h - operations that memory nodes finish for an owner, and whether that pays.
 */
#ifndef TREE_DEX_PUSHDOWN_PUSHDOWN_H
#define TREE_DEX_PUSHDOWN_PUSHDOWN_H

#include "base/slice.h"
#include "engine/engine.h"
#include "engine/step.h"
#include "tree/dex/cache/cache.h"
#include "tree/dex/page/page.h"
#include "tree/dex/pushdown/pushdown_fmt.h"
#include "tree/dex/pushdown/visible.h"

struct dex;
struct dex_table;
struct dex_scratch;
struct map_partition;

/* Pages of this level are the highest that a memory node is asked to go on from, and the highest that are to lie
 * on one memory node with all below them: the paper's M. */
enum { DEX_SUBTREE_LEVEL = 3 };

/* How long READs of a memory node, calls with a barrier at a page of each level and calls without one took
 * lately. Each node's is written with every READ of it. */
enum { DEX_COST_NODES = 64 };
struct dex_cost {
    alignas(DEX_LINE_BYTES) _Atomic uint64_t read_ns;
    _Atomic uint64_t call_ns[DEX_SUBTREE_LEVEL + 1], plain_ns;
};

struct dex_pushdown_state {
    struct dex_cost costs[DEX_COST_NODES];
    struct visible visible;
};

/* An operation that a memory node could do. */
struct dex_pushdown {
    unsigned operation; /* enum dex_pushdown_kind */
    const struct map_partition *part;
    struct slice key, value; /* one that lies in the leaf: long ones are not pushed down */
    bool barrier;            /* the memory node has to see what was written before */
    bool keep;               /* the leaf is to be kept, not asked for */
    /* Out, when it was done. */
    bool was_there, old_blob, shrunk;
    struct slice found; /* its value, or the old blob's address: in the scratch */
    fabric_address leaf;
    struct page_stamp stamp;
    uint64_t end;
    struct pair_cache_token token; /* for the pair as it is now */
    /* Out in any case: the log has a record of it, and it may count or not. */
    bool unknown;
};

/* What memory nodes do for this engine: memory_side.c. */
extern const struct engine_pushdown dex_memory_side;

/* ---- pushdown.c ------------------------------------------------------------------------------- */

void dex_note_read_time(struct dex_table *table, uint16_t bank, uint64_t duration_ns);

/* Whether a memory node is to go on from this page; then it is also decided with or without a barrier. */
bool dex_pushdown_pays(struct dex *self, struct dex_pushdown *push, fabric_address page,
                       uint8_t level);

/* STEP_LOAD: to be done here after all. */
PANDO_MUST_CHECK struct step dex_pushdown_co(struct dex *self, struct dex_pushdown *push,
                                             fabric_address page, uint8_t level,
                                             struct dex_scratch *scratch);

#endif
