/*
 * tree.c - what a process has of a tree, its threads' handles, and the room they work in.
 */
#include <stdlib.h>

#include "tree/blink/blink_int.h"

enum pando_status blink_tree_init(struct blink_tree *tree, uint64_t cache_bytes, uint32_t key_max)
{
    struct local_lock_options locks = {.no_queue = !tree->on.queue,
                                       .no_handover = !tree->on.handover};
    list_init(&tree->handles);
    tree->cache = index_cache_create(&tree->layout, cache_bytes, rt_random());
    tree->locks = local_locks_create(tree->pool, locks);
    tree->unmerged = unmerged_create(key_max);
    bool whole = tree->cache != NULL && tree->locks != NULL && tree->unmerged != NULL;
    return whole ? PANDO_OK : PANDO_NO_MEMORY;
}

void blink_tree_fini(struct blink_tree *tree)
{
    if (tree->cache != NULL)
        index_cache_destroy(tree->cache);
    if (tree->locks != NULL)
        local_locks_destroy(tree->locks);
    unmerged_destroy(tree->unmerged);
}

/* ---- scratch --------------------------------------------------------------------------------- */

static void scratch_free(struct blink_scratch *scratch)
{
    free(scratch->entries);
    free(scratch->separators);
    free(scratch->node);
    free(scratch->image);
    free(scratch->sibling);
    free(scratch->other);
    free(scratch->intent);
    free(scratch);
}

static struct blink_scratch *scratch_create(uint32_t node_bytes)
{
    struct blink_scratch *scratch = calloc(1, sizeof(*scratch));
    if (scratch == NULL)
        return NULL;
    scratch->entries = malloc((NODE_ENTRIES_MAX + 1) * sizeof(*scratch->entries));
    scratch->separators = malloc((NODE_ENTRIES_MAX + 1) * sizeof(*scratch->separators));
    scratch->node = aligned_alloc(64, node_bytes);
    scratch->image = aligned_alloc(64, node_bytes);
    scratch->sibling = aligned_alloc(64, node_bytes);
    scratch->other = aligned_alloc(64, node_bytes);
    scratch->intent = aligned_alloc(64, POOL_INTENT_BYTES);
    if (scratch->entries != NULL && scratch->separators != NULL && scratch->node != NULL &&
        scratch->image != NULL && scratch->sibling != NULL && scratch->other != NULL &&
        scratch->intent != NULL)
        return scratch;
    scratch_free(scratch);
    return NULL;
}

struct blink_scratch *blink_scratch_take(struct blink *self)
{
    struct blink_scratch *scratch = self->free_scratch;
    if (scratch == NULL)
        return scratch_create(self->tree->layout.node_bytes);
    self->free_scratch = scratch->next;
    return scratch;
}

void blink_scratch_give(struct blink *self, struct blink_scratch *scratch)
{
    free(scratch->value);
    scratch->value = NULL;
    scratch->next = self->free_scratch;
    self->free_scratch = scratch;
}

/* ---- handles --------------------------------------------------------------------------------- */

void blink_attach(struct blink *self, struct blink_tree *tree, struct pool_session *session)
{
    self->tree = tree;
    self->session = session;
    rt_latch_lock(&tree->handles_latch);
    list_push_back(&tree->handles, &self->link);
    rt_latch_unlock(&tree->handles_latch);
    index_cache_join(tree->cache, &self->reader);
}

void blink_detach(struct blink *self)
{
    struct blink_tree *tree = self->tree;
    index_cache_part(&self->reader);
    rt_latch_lock(&tree->handles_latch);
    list_remove(&self->link);
    tree->gone_hits += atomic_load(&self->hits);
    tree->gone_misses += atomic_load(&self->misses);
    rt_latch_unlock(&tree->handles_latch);
    while (self->free_scratch != NULL) {
        struct blink_scratch *scratch = self->free_scratch;
        self->free_scratch = scratch->next;
        scratch_free(scratch);
    }
}

void blink_lookups(struct blink_tree *tree, uint64_t *hits, uint64_t *misses)
{
    rt_latch_lock(&tree->handles_latch);
    *hits = tree->gone_hits;
    *misses = tree->gone_misses;
    list_for_each (link, &tree->handles) {
        const struct blink *handle = container_of(link, struct blink, link);
        *hits += atomic_load_explicit(&handle->hits, memory_order_relaxed);
        *misses += atomic_load_explicit(&handle->misses, memory_order_relaxed);
    }
    rt_latch_unlock(&tree->handles_latch);
}
