/*
 * place.c - on which memory node a page lies, and its block.
 *
 * A table is divided into subtrees of one level, and new ones take turns among the memory nodes in proportion
 * to the room that they have (pool_turn_next). All other pages of a subtree go to the node of their parent:
 *
 *   - The right half of a page of the dividing level, or above it, goes to the node whose turn it is.
 *   - The right half of a page below it goes to its parent's node. So a subtree that has a new node grows
 *     there; the pages that it had before stay where they are.
 *   - Keys that fall, at the beginning of the tree or in one place of it, are always the left half's. A page
 *     that is split twice at the same child of its first half is taken for such: then the left half is
 *     what has a new node, and its right half stays. The page itself cannot move, so its frame says where
 *     pages below it go, for as long as it is cached.
 *   - If a node is full its pages go anywhere, likewise.
 *
 * The dividing level rises with the tree: it is the highest one, up to DEX_SUBTREE_LEVEL, with enough subtrees
 * for every memory node to have several. A node then never has more than a small part too much, also while keys
 * only ever rise and one subtree after the other is filled. It is estimated from the root alone. Placement
 * decides where bytes lie and how much memory nodes can do for an owner, never what is right: each process
 * may have its own opinion.
 */
#include <stdlib.h>

#include "tree/dex/tree.h"

enum {
    SUBTREES_PER_NODE = 4,
    PLACED_LEVELS = DEX_SUBTREE_LEVEL + 1, /* turns of each, and of all above together */
    CHILD_BYTES = 16,                      /* of a page of words; others have longer keys */
    FULL_PARTS = 3,                        /* a page is about two of three parts full */
};

enum pando_status dex_place_init(struct dex_table *table)
{
    uint16_t banks = pool_banks(table->pool);
    table->credits = calloc((size_t)PLACED_LEVELS * banks, sizeof(*table->credits));
    if (table->credits == NULL)
        return PANDO_NO_MEMORY;
    /* Processes and tables begin at different nodes. */
    for (unsigned i = 0; i < PLACED_LEVELS; i++)
        table->credits[i * banks + (pool_identity(table->pool).member + table->id + i) % banks] = 1;
    return PANDO_OK;
}

void dex_place_fini(struct dex_table *table)
{
    free(table->credits);
}

/* About how many children a page has. */
static uint32_t fanout(const struct dex_table *table)
{
    const struct page_layout *layout = &table->layout;
    uint32_t child = layout->key_size == 8 ? CHILD_BYTES : 24 + layout->key_max;
    uint32_t children = page_space(layout, 1, 0, 0) / child / FULL_PARTS * (FULL_PARTS - 1);
    return children < 2 ? 2 : children;
}

/* The root may be changing: then this is one opinion as well as another. */
static uint8_t dividing_level(const struct dex_table *table)
{
    const uint8_t *root = frame_bytes(&table->cache.frames, table->root_frame);
    uint8_t level = page_level(root) > 1 ? page_level(root) - 1 : 1;
    uint64_t subtrees = page_pairs(root), enough = SUBTREES_PER_NODE * pool_banks(table->pool);

    for (; level > 1 && (subtrees < enough || level > DEX_SUBTREE_LEVEL); level--)
        subtrees *= fanout(table);
    return level;
}

uint16_t dex_place_turn(struct dex *self, uint8_t level)
{
    struct dex_table *table = self->table;
    unsigned row = level < PLACED_LEVELS ? level : 0; /* no leaf takes a turn */
    rt_latch_lock(&table->credits_latch);
    uint16_t bank = pool_turn_next(table->pool, &table->credits[row * pool_banks(table->pool)]);
    rt_latch_unlock(&table->credits_latch);
    return bank;
}

uint16_t dex_place_below(const struct frame *frame)
{
    return frame->grows > 0 ? frame->grows - 1 : pool_bank(frame->address);
}

void dex_place_half(struct dex *self, uint32_t index, struct slice key, struct dex_place *place)
{
    struct dex_table *table = self->table;
    struct frame *frame = frame_at(&table->cache.frames, index);
    const uint8_t *bytes = frame_bytes(&table->cache.frames, index);
    uint8_t level = page_level(bytes);

    place->right = place->below_parent;
    place->left_grows = frame->grows;
    if (pool_banks(table->pool) == 1 || level == 0)
        return;
    uint32_t at = page_child_index(&table->layout, bytes, key);
    uint16_t next =
        level < dividing_level(table) ? place->below_parent : dex_place_turn(self, level);
    bool falling = at < page_pairs(bytes) / 2 && (uint8_t)at == frame->split_at;
    place->split_at = (uint8_t)at;
    place->right = falling ? dex_place_below(frame) : next;
    if (falling)
        place->left_grows = next < UINT8_MAX ? (uint8_t)(next + 1) : 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

uint64_t dex_tenure(const struct dex_table *table, bool live)
{
    return pool_tenure_pack((struct pool_tenure){.state = live ? POOL_BLOCK_LIVE : POOL_BLOCK_FREE,
                                                 .kind = PAGE_KIND,
                                                 .table = table->id,
                                                 .holder = pool_identity(table->pool)});
}

static enum pando_status alloc_co(struct dex *self, uint16_t bank, bool vital,
                                  struct page_header *header)
{
    struct pool_block block;
    uint32_t bytes = self->table->layout.page_bytes;
    enum pando_status status =
        pool_table_alloc_co(self->base.session, self->table->id, bank, bytes, &block);
    /* Anywhere, when that one is full or away. */
    if (bank != POOL_ANY_NODE &&
        (status == PANDO_FULL || status == PANDO_BROKEN || status == PANDO_TIMEOUT))
        status =
            pool_table_alloc_co(self->base.session, self->table->id, POOL_ANY_NODE, bytes, &block);
    if (status == PANDO_FULL && vital)
        status = pool_table_vital_alloc_co(self->base.session, self->table->id, bytes, &block);
    if (status != PANDO_OK)
        return status;
    header->address = block.address;
    header->version = block.version + 1;
    header->tenure = dex_tenure(self->table, true);
    return PANDO_OK;
}

enum pando_status dex_alloc_co(struct dex *self, uint16_t bank, struct page_header *header)
{
    return alloc_co(self, bank, false, header);
}

enum pando_status dex_alloc_half_co(struct dex *self, uint16_t bank, uint8_t level,
                                    struct page_header *header)
{
    return alloc_co(self, bank, level > 0, header);
}

enum pando_status dex_free_page_co(struct dex *self, const uint8_t *bytes)
{
    struct pool_block block = {.address = page_address(bytes), .version = page_version(bytes)};
    bool written = page_dead(bytes);
    return pool_free_co(self->base.session, &block, self->table->layout.page_bytes, written);
}
