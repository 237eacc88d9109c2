/*
 * lend.c - how much of the cache holds single pairs (pair_cache.h) and how much whole pages.
 *
 * A pair takes a sixtieth of its leaf's room, so for keys that are looked up here and there frames are worth
 * more as records; for scans and for leaves that are changed a record is of no use. What misses the cache
 * tells which it is. Misses of leaves are judged by the thousand, and after each judgement a few frames
 * change hands:
 *
 *   nearly all of gets            frames are lent in place of pages, where records have no room, and only if that is
 *                                 so nearly everywhere: pages that are of use do not go for empty ones
 *   more of changes and scans     lent frames are taken back before pages have to go
 *   inner pages are missing, too  likewise: each serves all leaves below it. Missing one costs a READ, or what a
 *                                 call of the memory node (pushdown.c) takes longer than a READ of the leaf
 */
#include "tree/dex/dex_int.h"

enum {
    INTERVAL_MISSES = 1024, /* misses */
    INTERVALS = 8,     /* a judgement is of the last ones: few calls that took long do not count */
    FRAMES_PART = 512, /* of all change hands at a time: what was learned slowly stays a while */
    MOSTLY = 4,        /* so many times more gets than all else */
    CROWDED_PARTS = 4, /* records are full if all but one of so many are */
    READ_COST = 64,    /* what `lost` is counted in */
    LOST_MUCH = READ_COST / 8, /* by each miss */
    LOST_LITTLE = READ_COST / 16,
};

static uint32_t count_up(_Atomic uint32_t *counter, uint32_t by)
{
    return atomic_fetch_add_explicit(counter, by, memory_order_relaxed) + by;
}

/* Of the last windows; the oldest counts less with each. */
static uint32_t lately(_Atomic uint32_t *counter)
{
    uint32_t count = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_fetch_sub_explicit(counter, count / INTERVALS, memory_order_relaxed);
    return count;
}

static void judge(struct dex_table *table)
{
    struct dex_lend *lend = &table->cache.lend;
    uint32_t gets = lately(&lend->gets), others = lately(&lend->others);
    uint32_t lost = lately(&lend->lost), crowded = lately(&lend->crowded);
    int most = 1 + (int)(table->cache.frames.count / FRAMES_PART), budget = 0;

    if (others > gets || lost > (gets + others) * LOST_MUCH)
        budget = -most;
    else if (gets > MOSTLY * others && lost < gets * LOST_LITTLE &&
             crowded > gets / CROWDED_PARTS * (CROWDED_PARTS - 1))
        budget = most;
    atomic_store_explicit(&lend->budget, budget, memory_order_relaxed);
}

/* What a call at a page of that level costs more than a READ. */
static uint32_t call_cost(const struct dex_cost *cost, uint8_t level)
{
    uint64_t read_ns = atomic_load_explicit(&cost->read_ns, memory_order_relaxed);
    uint64_t call_ns = atomic_load_explicit(&cost->call_ns[level], memory_order_relaxed);
    if (read_ns == 0 || call_ns <= read_ns)
        return 0;
    uint64_t more = (call_ns - read_ns) * READ_COST / read_ns;
    return more < READ_COST ? (uint32_t)more : (uint32_t)READ_COST;
}

void dex_lend_missed(struct dex_table *table, uint16_t bank, uint8_t level, bool get,
                     bool pushed_down)
{
    struct dex_lend *lend = &table->cache.lend;

    if (table->cache.records.most == 0)
        return; /* none can be lent, whatever this tells */
    if (level > 0)
        count_up(&lend->lost, pushed_down
                                  ? call_cost(&table->pushdown.costs[bank % DEX_COST_NODES], level)
                                  : READ_COST);
    if (level > 0 && !pushed_down)
        return; /* its leaf is still to come */
    (void)count_up(get ? &lend->gets : &lend->others, 1);
    if (count_up(&lend->misses, 1) % INTERVAL_MISSES == 0)
        judge(table);
    if (table->on.lend_wildly)
        atomic_store(&lend->budget, rt_random() % 2 == 0 ? 1 : -1);
}

bool dex_lends(const struct dex_table *table)
{
    return pair_cache_lent(&table->cache.records) > 0;
}

void dex_lend_co(struct dex *self, const struct pair_cache_token *token)
{
    struct dex_table *table = self->table;
    bool fresh =
        atomic_load_explicit(&table->cache.fresh, memory_order_relaxed) < table->cache.frames.count;
    uint32_t index;

    if (table->cache.records.most == 0)
        return;
    if (!token->room)
        (void)count_up(&table->cache.lend.crowded, 1);
    if (atomic_load_explicit(&table->cache.lend.budget, memory_order_relaxed) <= 0 ||
        pair_cache_lent(&table->cache.records) >= table->cache.records.most ||
        ((fresh || token->room) && !table->on.lend_wildly))
        return;
    if (!dex_frame_try_co(self, &index))
        return;
    atomic_fetch_sub_explicit(&table->cache.lend.budget, 1, memory_order_relaxed);
    if (pair_cache_grow(&table->cache.records, index))
        frame_give_changed(frame_at(&table->cache.frames, index));
    else
        dex_frame_free(self, index);
}

uint32_t dex_lend_back(struct dex *self)
{
    struct dex_table *table = self->table;
    if (atomic_load_explicit(&table->cache.lend.budget, memory_order_relaxed) >= 0 ||
        (self->free_count > 0 && !table->on.lend_wildly))
        return FRAME_NONE;
    atomic_fetch_add_explicit(&table->cache.lend.budget, 1, memory_order_relaxed);
    return pair_cache_shrink(&table->cache.records);
}
