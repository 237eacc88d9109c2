#include "pool/stock.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "pool/pool_int.h"

enum {
    SHELVES_MAX = 128, /* of each node; sizes in use */
    KEPT_BLOCKS = 256, /* of a size that is in use, of freed ones */
    KEPT_BYTES = 256 * 1024,
    FREED_MAX = 1 << 18, /* blocks that wait for the end of their grace period */
    RETURN_BLOCKS = POOL_GRANT_BLOCKS_MAX,
};

static const uint64_t IDLE_NS = RT_NS_PER_S / 4; /* a size that nobody took is not in use */
static const uint64_t REFILL_LOOK_NS = RT_NS_PER_MS;

/* Blocks of one size on one node; one that is empty may become another size's. */
struct shelf {
    uint32_t block_bytes;
    uint32_t count, capacity;
    struct pool_block *blocks;
    uint64_t taken_ns; /* when the last was asked for */
    bool refilling;
};

struct freed {
    struct pool_block block;
    uint32_t block_bytes;
    bool vital;
    uint64_t ready_ns;
};

/* Blocks of one node. */
struct node_stock {
    struct shelf shelves[SHELVES_MAX];
    struct freed *freed; /* a ring, oldest first */
    size_t freed_head, freed_count, freed_capacity;
};

struct pool_stock {
    struct rt_latch latch;
    uint16_t nodes;
    struct node_stock *by_node;
    size_t freed_count;
    uint64_t freed_bytes;
    bool returning; /* some task is */
    bool lost;
    struct rt_waitq refilled;
};

struct pool_stock *stock_create(uint16_t nodes)
{
    struct pool_stock *stock = calloc(1, sizeof(*stock));
    if (stock == NULL)
        return NULL;
    stock->nodes = nodes;
    stock->by_node = calloc(nodes, sizeof(struct node_stock));
    rt_waitq_init(&stock->refilled);
    if (stock->by_node != NULL)
        return stock;
    free(stock);
    return NULL;
}

void stock_destroy(struct pool_stock *stock)
{
    if (stock == NULL)
        return;
    for (uint16_t node = 0; node < stock->nodes; node++) {
        for (int i = 0; i < SHELVES_MAX; i++)
            free(stock->by_node[node].shelves[i].blocks);
        free(stock->by_node[node].freed);
    }
    free(stock->by_node);
    free(stock);
}

/* ---- shelves (under the latch) --------------------------------------------------------------- */

/* NULL: too many sizes are in use. */
static struct shelf *shelf_of(struct pool_stock *stock, uint16_t node, uint32_t block_bytes)
{
    struct shelf *shelves = stock->by_node[node].shelves, *unused = NULL;
    for (int i = 0; i < SHELVES_MAX; i++) {
        struct shelf *shelf = &shelves[i];
        if (shelf->block_bytes == block_bytes)
            return shelf;
        if (unused == NULL && shelf->count == 0 && !shelf->refilling &&
            (shelf->block_bytes == 0 || shelf->taken_ns + IDLE_NS < rt_now_ns()))
            unused = shelf;
        if (shelf->block_bytes == 0)
            break; /* none behind it was ever used */
    }
    if (unused != NULL) {
        unused->block_bytes = block_bytes;
        unused->taken_ns = 0;
    }
    return unused;
}

static bool shelf_push(struct shelf *shelf, const struct pool_block *block)
{
    if (shelf->count == shelf->capacity) {
        uint32_t capacity = shelf->capacity == 0 ? 64 : shelf->capacity * 2;
        struct pool_block *blocks = realloc(shelf->blocks, capacity * sizeof(*blocks));
        if (blocks == NULL)
            return false;
        shelf->blocks = blocks;
        shelf->capacity = capacity;
    }
    shelf->blocks[shelf->count++] = *block;
    return true;
}

static uint32_t kept_max(uint32_t block_bytes)
{
    uint32_t most = KEPT_BYTES / block_bytes;
    return most > KEPT_BLOCKS ? KEPT_BLOCKS : most;
}

/* ---- taking ---------------------------------------------------------------------------------- */

bool stock_take(struct pool_stock *stock, uint16_t node, uint32_t block_bytes,
                struct pool_block *out)
{
    rt_latch_lock(&stock->latch);
    struct shelf *shelf = shelf_of(stock, node, block_bytes);
    bool found = shelf != NULL && shelf->count > 0;
    if (found)
        *out = shelf->blocks[--shelf->count];
    if (shelf != NULL)
        shelf->taken_ns = rt_tick_ns();
    rt_latch_unlock(&stock->latch);
    return found;
}

bool stock_refill_begin_co(struct pool_stock *stock, uint16_t node, uint32_t block_bytes)
{
    rt_latch_lock(&stock->latch);
    struct shelf *shelf = shelf_of(stock, node, block_bytes);
    bool begin = shelf == NULL || !shelf->refilling;
    if (shelf != NULL && begin)
        shelf->refilling = true;
    rt_latch_unlock(&stock->latch);
    if (!begin)
        (void)rt_waitq_wait_co(&stock->refilled, rt_now_ns() + REFILL_LOOK_NS);
    return begin;
}

void stock_refill_end(struct pool_stock *stock, uint16_t node, uint32_t block_bytes)
{
    rt_latch_lock(&stock->latch);
    struct shelf *shelf = shelf_of(stock, node, block_bytes);
    if (shelf != NULL)
        shelf->refilling = false;
    rt_latch_unlock(&stock->latch);
    rt_waitq_wake_all(&stock->refilled);
}

bool stock_add(struct pool_stock *stock, uint32_t block_bytes, const struct pool_block *block)
{
    rt_latch_lock(&stock->latch);
    struct shelf *shelf = shelf_of(stock, fabric_address_node(block->address), block_bytes);
    bool added = shelf != NULL && shelf_push(shelf, block);
    stock->lost |= !added;
    rt_latch_unlock(&stock->latch);
    return added;
}

void stock_lost(struct pool_stock *stock)
{
    rt_latch_lock(&stock->latch);
    stock->lost = true;
    rt_latch_unlock(&stock->latch);
}

/* ---- freeing --------------------------------------------------------------------------------- */

static bool freed_grow(struct node_stock *at)
{
    size_t capacity = at->freed_capacity == 0 ? 256 : at->freed_capacity * 2;
    struct freed *ring = malloc(capacity * sizeof(*ring));
    if (ring == NULL)
        return false;
    for (size_t i = 0; i < at->freed_count; i++)
        ring[i] = at->freed[(at->freed_head + i) % at->freed_capacity];
    free(at->freed);
    at->freed = ring;
    at->freed_head = 0;
    at->freed_capacity = capacity;
    return true;
}

/* AGAIN: there are too many. */
static enum pando_status freed_push(struct pool_stock *stock, const struct freed *freed)
{
    struct node_stock *at = &stock->by_node[fabric_address_node(freed->block.address)];
    enum pando_status status = PANDO_OK;
    rt_latch_lock(&stock->latch);
    if (stock->freed_count >= FREED_MAX)
        status = PANDO_AGAIN;
    else if (at->freed_count == at->freed_capacity && !freed_grow(at))
        status = PANDO_NO_MEMORY;
    if (status == PANDO_OK) {
        at->freed[(at->freed_head + at->freed_count++) % at->freed_capacity] = *freed;
        stock->freed_count++;
        stock->freed_bytes += freed->block_bytes;
    }
    stock->lost |= status == PANDO_NO_MEMORY;
    rt_latch_unlock(&stock->latch);
    return status;
}

static void freed_pop(struct pool_stock *stock, struct node_stock *at)
{
    stock->freed_bytes -= at->freed[at->freed_head].block_bytes;
    stock->freed_count--;
    at->freed_head = (at->freed_head + 1) % at->freed_capacity;
    at->freed_count--;
}

enum pando_status stock_free_co(struct pool_session *session, const struct pool_block *block,
                                uint32_t block_bytes, bool vital)
{
    struct pool *pool = session->pool;
    struct freed freed = {.block = *block,
                          .block_bytes = block_bytes,
                          .vital = vital,
                          .ready_ns = rt_now_ns() + pool_grace_ns(pool)};
    enum pando_status status;
    while ((status = freed_push(pool->stock, &freed)) == PANDO_AGAIN) {
        if (stock_return_co(session, false) == 0)
            rt_sleep_co(RT_NS_PER_MS);
        if (pool_fenced(pool))
            return PANDO_FENCED;
    }
    return status;
}

uint64_t stock_waiting_bytes(struct pool_stock *stock)
{
    rt_latch_lock(&stock->latch);
    uint64_t bytes = stock->freed_bytes;
    rt_latch_unlock(&stock->latch);
    return bytes;
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* Blocks of one node on their way back. */
struct parcel {
    struct pool_return_request head;
    struct pool_block blocks[RETURN_BLOCKS];
};
_Static_assert(offsetof(struct parcel, blocks) == sizeof(struct pool_return_request),
               "as the call wants it");

/* What a pass gives back: which freed ones, and whether shelves are emptied, too. */
enum pass { PASS_RIPE, PASS_RIPE_AND_SHELVES, PASS_ALL };

/* Whether a freed block stays here, on the shelf of a size that is in use. */
static bool keep(struct pool_stock *stock, uint16_t node, const struct freed *freed,
                 uint64_t now_ns)
{
    if (freed->vital)
        return false;
    struct shelf *shelf = shelf_of(stock, node, freed->block_bytes);
    return shelf != NULL && shelf->taken_ns + IDLE_NS > now_ns &&
           shelf->count < kept_max(freed->block_bytes) && shelf_push(shelf, &freed->block);
}

static void pack_freed(struct pool_stock *stock, uint16_t node, enum pass pass, uint64_t now_ns,
                       struct parcel *parcel)
{
    struct node_stock *at = &stock->by_node[node];
    rt_latch_lock(&stock->latch);
    while (at->freed_count > 0 && parcel->head.blocks < RETURN_BLOCKS) {
        struct freed freed = at->freed[at->freed_head];
        uint32_t hold = freed.ready_ns > now_ns;
        if ((hold != 0 && pass != PASS_ALL) ||
            (parcel->head.blocks > 0 && parcel->head.hold != hold))
            break;
        freed_pop(stock, at);
        if (pass == PASS_RIPE && keep(stock, node, &freed, now_ns))
            continue;
        parcel->head.hold = hold;
        parcel->blocks[parcel->head.blocks++] = freed.block;
    }
    rt_latch_unlock(&stock->latch);
}

static void pack_shelves(struct pool_stock *stock, uint16_t node, enum pass pass, uint64_t now_ns,
                         struct parcel *parcel)
{
    rt_latch_lock(&stock->latch);
    for (int i = 0; i < SHELVES_MAX && parcel->head.hold == 0; i++) {
        struct shelf *shelf = &stock->by_node[node].shelves[i];
        if (pass == PASS_RIPE && shelf->taken_ns + IDLE_NS > now_ns)
            continue;
        while (shelf->count > 0 && parcel->head.blocks < RETURN_BLOCKS)
            parcel->blocks[parcel->head.blocks++] = shelf->blocks[--shelf->count];
    }
    rt_latch_unlock(&stock->latch);
}

/* Puts blocks back in line that their node was not told of. */
static void unpack(struct pool_stock *stock, const struct parcel *parcel, uint64_t now_ns)
{
    for (uint32_t i = 0; i < parcel->head.blocks; i++) {
        struct freed freed = {.block = parcel->blocks[i], .vital = true, .ready_ns = now_ns};
        if (freed_push(stock, &freed) != PANDO_OK)
            stock_lost(stock);
    }
}

static enum pando_status send_co(struct pool_session *session, uint16_t node,
                                 const struct parcel *parcel)
{
    struct pool *pool = session->pool;
    size_t size = offsetof(struct parcel, blocks) + parcel->head.blocks * sizeof(struct pool_block);
    enum pando_status status = pool_reconnect_co(session, node);
    if (status != PANDO_OK) {
        unpack(pool->stock, parcel, rt_now_ns());
        return status;
    }
    status = fabric_call_co(pool_endpoint(session, node), POOL_RETURN, slice_of(parcel, size), NULL,
                            0, NULL);
    if (status == PANDO_FENCED)
        pool_set_fenced(pool);
    /* Not again if that failed: the node may have them, and have given them to us anew. */
    if (status != PANDO_OK)
        stock_lost(pool->stock);
    return status;
}

static enum pando_status return_node_co(struct pool_session *session, uint16_t node, enum pass pass,
                                        struct parcel *parcel, uint64_t *returned)
{
    struct pool_stock *stock = session->pool->stock;
    enum pando_status status = PANDO_OK;
    do {
        uint64_t now_ns = rt_now_ns();
        parcel->head = (struct pool_return_request){0};
        pack_freed(stock, node, pass, now_ns, parcel);
        pack_shelves(stock, node, pass, now_ns, parcel);
        if (parcel->head.blocks == 0)
            return PANDO_OK;
        status = send_co(session, node, parcel);
        *returned += status == PANDO_OK ? parcel->head.blocks : 0;
    } while (status == PANDO_OK && (parcel->head.blocks == RETURN_BLOCKS || pass == PASS_ALL));
    return status;
}

static bool returning_begin(struct pool_stock *stock)
{
    rt_latch_lock(&stock->latch);
    bool begin = !stock->returning;
    stock->returning = true;
    rt_latch_unlock(&stock->latch);
    return begin;
}

static void returning_end(struct pool_stock *stock)
{
    rt_latch_lock(&stock->latch);
    stock->returning = false;
    rt_latch_unlock(&stock->latch);
}

/* Whether everything went where it belongs. */
static bool return_co(struct pool_session *session, enum pass pass, uint64_t *returned)
{
    struct pool_stock *stock = session->pool->stock;
    struct parcel *parcel = malloc(sizeof(*parcel));
    bool all = parcel != NULL;
    for (uint16_t node = 0; node < stock->nodes && parcel != NULL; node++) {
        /* Connecting again may take long: the member's own task does that, nobody who needs a block. */
        if (session != session->pool->own && fabric_broken(pool_endpoint(session, node)))
            continue;
        all = return_node_co(session, node, pass, parcel, returned) == PANDO_OK && all;
    }
    free(parcel);
    return all;
}

uint64_t stock_return_co(struct pool_session *session, bool all)
{
    uint64_t returned = 0;
    if (!returning_begin(session->pool->stock))
        return 0;
    (void)return_co(session, all ? PASS_RIPE_AND_SHELVES : PASS_RIPE, &returned);
    returning_end(session->pool->stock);
    return returned;
}

bool stock_return_all_co(struct pool_session *session)
{
    struct pool_stock *stock = session->pool->stock;
    uint64_t returned = 0;
    while (!returning_begin(stock))
        rt_sleep_co(RT_NS_PER_MS);
    bool all = return_co(session, PASS_ALL, &returned);
    returning_end(stock);
    return all && !stock->lost;
}
