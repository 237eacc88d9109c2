/*
 * alloc.c - the client's part of memory management: blocks carved from chunks, freed blocks kept
 * until nobody can be reading them any more, then used again or returned to their node.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "pool/block_fmt.h"
#include "pool/broken.h"
#include "pool/pool_int.h"

enum {
    CLASSES_MAX = 32,
    READY_MAX = 2048, /* blocks at hand per class and node; more go back to the node */
    READY_LEAST = 64, /* so many may be however large they are */
    READY_BYTES = 2 * 1024 * 1024,
    RETURN_BLOCKS = 1024,
    REFILL_BLOCKS = 256,
    DEFERRED_MAX = 1 << 18, /* blocks waiting for the end of their grace period */
};

static const uint64_t SILENT_NS = RT_NS_PER_S;

/* Blocks of one size on one node. */
struct shelf {
    uint32_t block_bytes;
    uint64_t carve_next, carve_end; /* addresses in the chunk being carved */
    uint64_t carve_floor;
    uint32_t ready_count, ready_capacity;
    struct pool_block *ready;
    bool refilling;
};

struct deferred {
    struct pool_block block;
    uint32_t block_bytes;
    uint64_t ready_ns;
};

struct allocator {
    struct list link;
    uint16_t nodes, next_node;
    size_t class_count;
    uint32_t classes[CLASSES_MAX];
    struct shelf *shelves;     /* CLASSES_MAX per node */
    uint64_t *silent_until_ns; /* of each node: it did not answer, and is left alone until then */
    struct deferred *deferred; /* a ring, oldest first */
    size_t deferred_head, deferred_count, deferred_capacity;
};

struct allocator *allocator_create(uint16_t nodes)
{
    struct allocator *allocator = calloc(1, sizeof(*allocator));
    if (allocator == NULL)
        return NULL;
    allocator->nodes = nodes;
    list_init(&allocator->link);
    allocator->shelves = calloc((size_t)nodes * CLASSES_MAX, sizeof(struct shelf));
    allocator->silent_until_ns = calloc(nodes, sizeof(uint64_t));
    if (allocator->shelves == NULL || allocator->silent_until_ns == NULL) {
        free(allocator->shelves);
        free(allocator->silent_until_ns);
        free(allocator);
        return NULL;
    }
    return allocator;
}

void allocator_destroy(struct allocator *allocator)
{
    for (size_t i = 0; i < (size_t)allocator->nodes * CLASSES_MAX; i++)
        free(allocator->shelves[i].ready);
    free(allocator->shelves);
    free(allocator->silent_until_ns);
    free(allocator->deferred);
    free(allocator);
}

struct list *allocator_link(struct allocator *allocator)
{
    return &allocator->link;
}

struct allocator *allocator_of_link(struct list *link)
{
    return container_of(link, struct allocator, link);
}

static struct shelf *shelf_of(struct allocator *allocator, uint16_t node, uint32_t block_bytes)
{
    size_t class = 0;
    while (class < allocator->class_count && allocator->classes[class] != block_bytes)
        class ++;
    if (class == allocator->class_count) {
        if (class == CLASSES_MAX)
            return NULL;
        allocator->classes[allocator->class_count++] = block_bytes;
    }
    struct shelf *shelf = &allocator->shelves[(size_t)node * CLASSES_MAX + class];
    shelf->block_bytes = block_bytes;
    return shelf;
}

static bool ready_push(struct shelf *shelf, struct pool_block block)
{
    if (shelf->ready_count == shelf->ready_capacity) {
        uint32_t capacity = shelf->ready_capacity == 0 ? 64 : shelf->ready_capacity * 2;
        struct pool_block *ready = realloc(shelf->ready, capacity * sizeof(*ready));
        if (ready == NULL)
            return false;
        shelf->ready = ready;
        shelf->ready_capacity = capacity;
    }
    shelf->ready[shelf->ready_count++] = block;
    return true;
}

/* Who frees is not always who allocates: what one has no use for is another's. */
static uint32_t ready_max(const struct shelf *shelf)
{
    uint32_t most = READY_BYTES / shelf->block_bytes;
    return most > READY_MAX ? READY_MAX : most < READY_LEAST ? READY_LEAST : most;
}

/* ---- freed blocks ---------------------------------------------------------------------------- */

/* Gives half of a shelf back to its node. They stay if the node cannot be reached, or for want of memory. */
static void return_blocks_co(struct pool_session *session, struct shelf *shelf, uint16_t node)
{
    if (fabric_broken(pool_endpoint(session, node)))
        return;
    uint8_t *body =
        malloc(sizeof(struct pool_return_request) + RETURN_BLOCKS * sizeof(struct pool_block));
    if (body == NULL)
        return;
    uint32_t half = shelf->ready_count / 2, count = half < RETURN_BLOCKS ? half : RETURN_BLOCKS;
    struct pool_return_request request = {.block_bytes = shelf->block_bytes, .blocks = count};
    /* Off the shelf before the call: another task must not take them meanwhile. If it fails they
     * are swept with this member one day. */
    shelf->ready_count -= count;
    memcpy(body, &request, sizeof(request));
    memcpy(body + sizeof(request), shelf->ready + shelf->ready_count,
           count * sizeof(struct pool_block));
    enum pando_status status = fabric_call_co(
        pool_endpoint(session, node), POOL_RETURN,
        slice_of(body, sizeof(request) + count * sizeof(struct pool_block)), NULL, 0, NULL);
    free(body);
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
}

/* Moves what has waited long enough to its shelf. */
static enum pando_status ripen_co(struct pool_session *session)
{
    struct allocator *allocator = session->allocator;
    uint64_t now = rt_now_ns();

    while (allocator->deferred_count > 0) {
        struct deferred *oldest = &allocator->deferred[allocator->deferred_head];
        if (oldest->ready_ns > now)
            break;
        uint16_t node = fabric_address_node(oldest->block.address);
        struct shelf *shelf = shelf_of(allocator, node, oldest->block_bytes);
        if (shelf == NULL || !ready_push(shelf, oldest->block))
            return PANDO_NO_MEMORY;
        allocator->deferred_head = (allocator->deferred_head + 1) % allocator->deferred_capacity;
        allocator->deferred_count--;
        if (shelf->ready_count > ready_max(shelf))
            return_blocks_co(session, shelf, node);
    }
    return PANDO_OK;
}

static bool deferred_grow(struct allocator *allocator)
{
    size_t capacity = allocator->deferred_capacity == 0 ? 256 : allocator->deferred_capacity * 2;
    struct deferred *ring = malloc(capacity * sizeof(*ring));
    if (ring == NULL)
        return false;
    for (size_t i = 0; i < allocator->deferred_count; i++)
        ring[i] =
            allocator->deferred[(allocator->deferred_head + i) % allocator->deferred_capacity];
    free(allocator->deferred);
    allocator->deferred = ring;
    allocator->deferred_head = 0;
    allocator->deferred_capacity = capacity;
    return true;
}

enum pando_status pool_tenure_free_co(struct pool_session *session, const struct pool_block *block)
{
    struct pool_tenure tenure = {.state = POOL_BLOCK_FREE, .holder = session->pool->identity};
    uint64_t words[2] = {block->version, pool_tenure_pack(tenure)};
    struct fabric_op write = fabric_write(
        fabric_address_offset(block->address) + POOL_BLOCK_VERSION, words, sizeof(words));
    return pool_submit_co(session, fabric_address_node(block->address), &write, 1);
}

enum pando_status pool_free_co(struct pool_session *session, const struct pool_block *block,
                               uint32_t block_bytes, bool tenure_written)
{
    struct pool *pool = session->pool;
    struct allocator *allocator = session->allocator;
    enum pando_status status = PANDO_OK;

    if (!tenure_written)
        status = pool_tenure_free_co(session, block);
    if (status != PANDO_OK)
        return status;
    /* Too many at once: wait until the oldest may be used again. */
    while (allocator->deferred_count >= DEFERRED_MAX) {
        rt_sleep_co(RT_NS_PER_MS);
        status = ripen_co(session);
        if (status != PANDO_OK)
            return status;
    }
    if (allocator->deferred_count == allocator->deferred_capacity && !deferred_grow(allocator))
        return PANDO_NO_MEMORY;
    size_t at =
        (allocator->deferred_head + allocator->deferred_count++) % allocator->deferred_capacity;
    allocator->deferred[at] = (struct deferred){
        .block = *block, .block_bytes = block_bytes, .ready_ns = rt_now_ns() + pool_grace_ns(pool)};
    return ripen_co(session);
}

/* ---- allocation ------------------------------------------------------------------------------ */

static bool take_at_hand(struct shelf *shelf, struct pool_block *block)
{
    if (shelf->ready_count > 0) {
        *block = shelf->ready[--shelf->ready_count];
        if (pool_broken.floor)
            block->version = 0;
        return true;
    }
    if (shelf->carve_next + shelf->block_bytes > shelf->carve_end)
        return false;
    *block = (struct pool_block){.address = shelf->carve_next, .version = shelf->carve_floor};
    shelf->carve_next += shelf->block_bytes;
    return true;
}

/* The reply comes from another process: nothing outside the node's heap is taken. */
bool pool_granted_ok(const struct pool *pool, uint16_t node, uint64_t address, uint64_t bytes)
{
    const struct pool_superblock *super = &pool->supers[node];
    uint64_t offset = fabric_address_offset(address);
    uint64_t end = super->heap_offset + super->chunks * POOL_CHUNK_BYTES;
    return fabric_address_node(address) == node && offset >= super->heap_offset && offset <= end &&
           bytes <= end - offset;
}

static enum pando_status shelve(struct pool_session *session, struct shelf *shelf, uint16_t node,
                                const uint8_t *bytes, uint32_t size)
{
    struct pool_grant_reply reply;
    struct pool_block block;

    if (size < sizeof(reply))
        return PANDO_CORRUPT;
    memcpy(&reply, bytes, sizeof(reply));
    if (reply.blocks > REFILL_BLOCKS ||
        size != sizeof(reply) + (size_t)reply.blocks * sizeof(block))
        return PANDO_CORRUPT;
    for (uint32_t i = 0; i < reply.blocks; i++) {
        memcpy(&block, bytes + sizeof(reply) + i * sizeof(block), sizeof(block));
        if (!pool_granted_ok(session->pool, node, block.address, shelf->block_bytes))
            return PANDO_CORRUPT;
        if (!ready_push(shelf, block))
            return PANDO_NO_MEMORY;
    }
    if (reply.chunk == 0)
        return reply.blocks > 0 ? PANDO_OK : PANDO_FULL;
    if (!pool_granted_ok(session->pool, node, reply.chunk, POOL_CHUNK_BYTES))
        return PANDO_CORRUPT;
    shelf->carve_next = reply.chunk;
    shelf->carve_end = reply.chunk + POOL_CHUNK_BYTES;
    shelf->carve_floor = reply.version_floor;
    return PANDO_OK;
}

static enum pando_status refill_co(struct pool_session *session, struct shelf *shelf, uint16_t node)
{
    struct pool_grant_request request = {
        .block_bytes = shelf->block_bytes, .blocks_max = REFILL_BLOCKS, .kind = POOL_CHUNK_BLOCKS};
    uint32_t capacity = sizeof(struct pool_grant_reply) + REFILL_BLOCKS * sizeof(struct pool_block);
    uint32_t size;
    enum pando_status status = pool_reconnect_co(session, node);
    if (status != PANDO_OK)
        return status;
    uint8_t *reply = malloc(capacity);
    if (reply == NULL)
        return PANDO_NO_MEMORY;
    shelf->refilling = true;
    status = fabric_call_co(pool_endpoint(session, node), POOL_GRANT,
                            slice_of(&request, sizeof(request)), reply, capacity, &size);
    shelf->refilling = false;
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    if (status == PANDO_OK)
        status = shelve(session, shelf, node, reply, size);
    free(reply);
    return status;
}

static enum pando_status alloc_on_co(struct pool_session *session, uint16_t node,
                                     uint32_t block_bytes, struct pool_block *block)
{
    struct shelf *shelf = shelf_of(session->allocator, node, block_bytes);
    if (shelf == NULL)
        return PANDO_TOO_LARGE;
    while (!take_at_hand(shelf, block)) {
        if (shelf->refilling) {
            rt_sleep_co(RT_NS_PER_US); /* another task of this thread is at it */
            continue;
        }
        enum pando_status status = refill_co(session, shelf, node);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

/* Whether it is the node's fault alone. */
static bool unreachable(enum pando_status status)
{
    switch (status) {
    case PANDO_OK:
    case PANDO_FULL:
    case PANDO_FENCED:
    case PANDO_NO_MEMORY:
    case PANDO_TOO_LARGE:
        return false;
    default:
        return true;
    }
}

/* Whether a node did not answer a moment ago, or somebody is just finding out whether it does. */
static bool silent(const struct pool_session *session, uint16_t node)
{
    uint64_t until_ns = session->allocator->silent_until_ns[node];
    return session->reconnecting[node] || (until_ns != 0 && rt_now_ns() < until_ns);
}

/* Blocks at hand are of no use if their node cannot be reached: that is looked at before. */
static enum pando_status ask_co(struct pool_session *session, uint16_t node, pool_alloc_fn fn,
                                uint32_t block_bytes, struct pool_block *block)
{
    uint64_t *until_ns = &session->allocator->silent_until_ns[node];
    enum pando_status status = PANDO_OK;
    if (fabric_broken(pool_endpoint(session, node)))
        status = pool_reconnect_co(session, node);
    if (status == PANDO_OK)
        status = fn(session, node, block_bytes, block);
    *until_ns = unreachable(status) ? rt_now_ns() + SILENT_NS : 0;
    return status;
}

enum pando_status pool_alloc_anywhere_co(struct pool_session *session, uint16_t first,
                                         pool_alloc_fn fn, uint32_t block_bytes,
                                         struct pool_block *block)
{
    uint16_t nodes = session->pool->nodes, left_out = POOL_ANY_NODE;
    enum pando_status status = PANDO_FULL, failed = PANDO_FULL;

    for (uint16_t i = 0; i < nodes; i++) {
        uint16_t node = (uint16_t)((first + i) % nodes);
        if (silent(session, node)) {
            if (left_out != POOL_ANY_NODE)
                failed = PANDO_BROKEN; /* of several, one is asked below */
            else
                left_out = node;
            continue;
        }
        status = ask_co(session, node, fn, block_bytes, block);
        if (unreachable(status))
            failed = status;
        else if (status != PANDO_FULL)
            return status;
    }
    /* The others have nothing: one that was silent may be back. */
    if (left_out != POOL_ANY_NODE) {
        status = ask_co(session, left_out, fn, block_bytes, block);
        if (unreachable(status))
            failed = status;
        else if (status != PANDO_FULL)
            return status;
    }
    return failed;
}

enum pando_status pool_alloc_co(struct pool_session *session, uint16_t node, uint32_t block_bytes,
                                struct pool_block *block)
{
    struct allocator *allocator = session->allocator;
    if (block_bytes == 0 || block_bytes % 64 != 0 || block_bytes > POOL_CHUNK_BYTES)
        return PANDO_INVALID;
    if (pool_alloc_fails(session->pool, true))
        return PANDO_FULL;
    enum pando_status status = ripen_co(session);
    if (status != PANDO_OK)
        return status;
    if (node != POOL_ANY_NODE)
        return node < allocator->nodes ? alloc_on_co(session, node, block_bytes, block)
                                       : PANDO_RANGE;
    uint16_t first = allocator->next_node;
    allocator->next_node = (uint16_t)((first + 1) % allocator->nodes);
    status = pool_alloc_anywhere_co(session, first, alloc_on_co, block_bytes, block);
    if (status == PANDO_OK && fabric_address_node(block->address) != first)
        allocator->next_node =
            (uint16_t)((fabric_address_node(block->address) + 1) % allocator->nodes);
    return status;
}
