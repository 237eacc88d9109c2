/*
 * memory_side.c - operations that a memory node does for an owner: from a page down to the leaf, in
 * its own window.
 *
 * The owner has nothing of that subtree that is newer, and lets nobody else at it until it has an answer.
 * A change carries its place in the owner's log, and is left out if the leaf's stamp is not below it:
 * the owner repeats a call that had no answer, and the first may come late. From reading a leaf to
 * writing it a latch is held, so that a call that came late has ended before a later one answers.
 */
#include "tree/dex/pushdown/memory_side.h"

#include <stdlib.h>
#include <string.h>

#include "pool/intent.h"
#include "pool/view.h"
#include "tree/dex/page/page.h"
#include "tree/dex/pushdown/pushdown.h"

enum {
    DEPTH_MAX = 16,
    USUAL_PAGE = 1024, /* one that long does not need memory of its own */
};

struct job {
    const struct memnode_place *place;
    struct fabric_request *request;
    struct dex_pushdown_request head;
    struct page_layout layout;
    struct slice key, value;
    uint8_t *page, *other, *intent;
};

static bool job_read(struct job *job)
{
    struct dex_pushdown_request *head = &job->head;
    struct slice body = job->request->body;
    if (body.size < sizeof(*head))
        return false;
    memcpy(head, body.data, sizeof(*head));
    job->layout = (struct page_layout){.pool = job->place->pool,
                                       .table = head->table,
                                       .page_bytes = head->page_bytes,
                                       .key_size = head->key_size,
                                       .value_size = head->value_size,
                                       .key_max = head->key_max,
                                       .value_max = head->value_max};
    if (head->engine != DEX_PUSHDOWN || head->operation >= DEX_PUSHDOWN_KINDS ||
        head->reserved != 0 ||
        body.size != sizeof(*head) + (size_t)head->key_bytes + head->value_bytes ||
        (head->slot != 0 && pool_bank(head->slot) != job->place->bank) ||
        page_layout_check(&job->layout) != PANDO_OK || head->key_bytes > head->key_max ||
        (head->key_size != 0 && head->key_bytes != head->key_size))
        return false;
    job->key = slice_of(body.data + sizeof(*head), head->key_bytes);
    job->value = slice_of(job->key.data + job->key.size, head->value_bytes);
    if (head->operation == DEX_PUSHDOWN_GET || head->operation == DEX_PUSHDOWN_DELETE)
        return head->value_bytes == 0;
    return head->value_size != 0 ? head->value_bytes == head->value_size
                                 : head->value_bytes <= head->value_max;
}

/* STALE: it is not the page of that level with the key. */
static enum pando_status read_page(struct job *job, fabric_address address, int level)
{
    if (pool_bank(address) != job->place->bank ||
        fabric_self_read(job->place->fabric, fabric_address_offset(address), job->page,
                         job->layout.page_bytes) != PANDO_OK ||
        !page_check(&job->layout, address, job->page) || page_level(job->page) != level ||
        page_dead(job->page) || page_side(job->page, job->key) != 0)
        return PANDO_STALE;
    return PANDO_OK;
}

/* Down to the leaf's address. */
static enum pando_status descend(struct job *job, fabric_address *leaf)
{
    fabric_address address = job->head.page;
    if (job->head.level > DEPTH_MAX)
        return PANDO_INVALID;
    for (int level = job->head.level; level > 0; level--) {
        enum pando_status status = read_page(job, address, level);
        if (status != PANDO_OK)
            return status;
        address = page_child(&job->layout, job->page,
                             page_child_index(&job->layout, job->page, job->key));
    }
    *leaf = address;
    return PANDO_OK;
}

static void reply(struct job *job, bool found, bool blob, struct slice value)
{
    struct dex_pushdown_reply head = {
        .was_there = found, .blob = blob, .leaf = page_address(job->page)};
    memcpy(job->request->reply, &head, sizeof(head));
    if (value.size > 0)
        memmove(job->request->reply + sizeof(head), value.data, value.size);
    job->request->reply_size = (uint32_t)(sizeof(head) + value.size);
}

static enum pando_status clear_intent(const struct job *job)
{
    const uint64_t zero = 0;
    return fabric_self_write(job->place->fabric, fabric_address_offset(job->head.slot), &zero,
                             sizeof(zero));
}

/* Whether the slot has the intent of this very change. Of a call that comes late somebody else may have it. */
static bool intent_is_ours(struct job *job)
{
    uint64_t offset = fabric_address_offset(job->head.slot), header = 0;
    struct intent intent;

    if (fabric_self_read(job->place->fabric, offset, &header, sizeof(header)) != PANDO_OK ||
        header == 0 ||
        fabric_self_read(job->place->fabric, offset, job->intent, POOL_INTENT_BYTES) != PANDO_OK ||
        !intent_read(&intent, job->place->pool, job->head.slot, job->intent, POOL_INTENT_BYTES) ||
        intent.image_count != 1 || intent.images[0].address != page_address(job->page) ||
        intent.images[0].bytes.size != job->layout.page_bytes)
        return false;
    struct page_stamp found = page_stamp(intent.images[0].bytes.data);
    return found.epoch == job->head.epoch && found.lsn == job->head.lsn;
}

/* A change that was made by an earlier call. If this node went down in the middle of it, the intent finished it when
 * the node came up again; it must not do so another time. */
static enum pando_status finish_again(struct job *job)
{
    return job->head.slot != 0 && intent_is_ours(job) ? clear_intent(job) : PANDO_OK;
}

/* [intent][page][no intent]: a node that goes down in between finishes it when it comes up again. */
static enum pando_status write_leaf(struct job *job)
{
    struct fabric *fabric = job->place->fabric;
    uint64_t offset = fabric_address_offset(page_address(job->page));
    uint64_t slot = fabric_address_offset(job->head.slot);
    struct intent_builder builder;
    struct intent_lock nobody = {.word = pool_lock_word(job->request->from, 1)};

    page_seal(&job->layout, job->page);
    if (job->head.slot != 0) {
        intent_begin(&builder, job->intent, POOL_INTENT_BYTES, nobody);
        intent_add_image(&builder, page_address(job->page),
                         slice_of(job->page, job->layout.page_bytes));
        size_t size = intent_finish(&builder, job->place->pool, job->head.slot);
        if (size == 0 || fabric_self_write(fabric, slot, job->intent, size) != PANDO_OK)
            return PANDO_INVALID;
    }
    enum pando_status status = fabric_self_write(fabric, offset, job->page, job->layout.page_bytes);
    return status == PANDO_OK && job->head.slot != 0 ? clear_intent(job) : status;
}

/* Under the leaf's latch; the leaf has been read. */
static enum pando_status change_leaf(struct job *job, uint32_t index, bool found)
{
    uint8_t *head = job->request->reply; /* a struct dex_pushdown_reply, aligned to nothing */
    struct page_stamp stamp = {job->head.epoch, job->head.lsn};

    if (fabric_fenced(job->place->fabric, job->request->from))
        return PANDO_FENCED;
    if (stamp.lsn != 0 && !page_stamp_below(page_stamp(job->page), stamp)) {
        head[offsetof(struct dex_pushdown_reply, repeated)] =
            1; /* done by an earlier call, and perhaps more since */
        return finish_again(job);
    }
    if (!dex_pushdown_changes(job->head.operation, found))
        return PANDO_OK;
    if (job->head.operation != DEX_PUSHDOWN_DELETE) {
        struct page_pair pair = {job->key, job->value, false};
        if (!page_room(&job->layout, job->page, found ? index : UINT32_MAX, pair.key.size,
                       pair.value.size))
            return PANDO_FULL;
        page_put(&job->layout, job->page, index, found, &pair, job->other);
    } else {
        page_remove(&job->layout, job->page, index);
        head[offsetof(struct dex_pushdown_reply, shrunk)] =
            page_used(&job->layout, job->page) * DEX_UNDERFULL < job->layout.page_bytes;
    }
    page_set_stamp(job->page, stamp);
    return write_leaf(job);
}

static enum pando_status at_leaf(struct job *job, fabric_address leaf)
{
    uint8_t *value = job->other;
    bool found, blob = false;
    uint32_t index, size = 0;

    enum pando_status status = read_page(job, leaf, 0);
    if (status != PANDO_OK)
        return status;
    found = page_find(&job->layout, job->page, job->key, &index);
    if (found)
        size = page_value(&job->layout, job->page, index, value, job->layout.page_bytes, &blob);
    /* Of a change the caller wants to know of the old value only if it has to be freed. */
    if (job->head.operation != DEX_PUSHDOWN_GET && !blob)
        size = 0;
    reply(job, found, blob, slice_of(value, size));
    return job->head.operation == DEX_PUSHDOWN_GET ? PANDO_OK : change_leaf(job, index, found);
}

static enum pando_status run(struct job *job)
{
    fabric_address leaf;
    enum pando_status status = descend(job, &leaf);
    if (status != PANDO_OK)
        return status;
    struct rt_latch *latch = &job->place->latches[(leaf >> 8) % MEMNODE_LATCHES];
    bool changes = job->head.operation != DEX_PUSHDOWN_GET;
    if (changes)
        rt_latch_lock(latch);
    status = at_leaf(job, leaf);
    if (changes)
        rt_latch_unlock(latch);
    return status;
}

enum pando_status dex_memory_pushdown(const struct memnode_place *place,
                                      struct fabric_request *request)
{
    struct job job = {.place = place, .request = request};
    _Alignas(64) uint8_t usual[2 * USUAL_PAGE];
    if (!job_read(&job))
        return PANDO_INVALID;
    bool is_usual = job.layout.page_bytes <= USUAL_PAGE;
    job.page = is_usual ? usual : aligned_alloc(64, 2 * (size_t)job.layout.page_bytes);
    job.intent = job.head.slot != 0 ? aligned_alloc(64, POOL_INTENT_BYTES) : NULL;
    enum pando_status status = PANDO_NO_MEMORY;
    if (job.page != NULL && (job.head.slot == 0 || job.intent != NULL)) {
        job.other = job.page + job.layout.page_bytes;
        status = run(&job);
    }
    if (!is_usual)
        free(job.page);
    free(job.intent);
    if (status != PANDO_OK)
        request->reply_size = 0;
    return status;
}

const struct engine_pushdown dex_memory_side = {.number = DEX_PUSHDOWN, .run = dex_memory_pushdown};
