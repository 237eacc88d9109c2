#include "pool/stock.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"

enum {
    SHELVES_MAX = 128, /* of each node; sizes in use */
    KEPT_BLOCKS = 256, /* of a size that is in use, of freed ones */
    KEPT_BYTES = 256 * 1024,
    FREED_MAX = 1 << 18, /* blocks that wait for the end of their grace period; freed_room */
    RETURN_BLOCKS = POOL_GRANT_BLOCKS_MAX,
};

static const uint64_t IDLE_NS = RT_NS_PER_S / 4;   /* a size that nobody took is not in use */
static const uint64_t UNREACHED_NS = RT_NS_PER_MS; /* what is ripe did not get to its node */

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
    uint64_t freed_bytes;
    uint64_t told_bytes; /* of these, as the node knows; the telling task's */
};

struct pool_stock {
    struct rt_latch latch;
    uint16_t nodes;
    struct node_stock *by_node;
    size_t freed_count, freed_max;
    atomic_bool returning; /* some task is */
    bool lost;
    _Atomic uint32_t changes; /* blocks were had, or room for freed ones; or the member is fenced */
    struct rt_waitq changed;  /* that, or nobody returns any more */
};

struct stock_look {
    const struct pool_stock *stock;
    uint32_t changes; /* at the last look */
};

struct pool_stock *stock_create(uint16_t nodes, uint32_t freed_max)
{
    struct pool_stock *stock = calloc(1, sizeof(*stock));
    if (stock == NULL)
        return NULL;
    stock->nodes = nodes;
    stock->freed_max = freed_max != 0 ? freed_max : FREED_MAX;
    stock->by_node = calloc(nodes, sizeof(struct node_stock));
    rt_waitq_init(&stock->changed);
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

/* ---- waiting --------------------------------------------------------------------------------- */

/* Taken before, or under the same latch as, the look that finds something in the way. */
static struct stock_look look(const struct pool_stock *stock)
{
    return (struct stock_look){stock, atomic_load(&stock->changes)};
}

static bool unchanged(const void *context)
{
    const struct stock_look *look = context;
    return atomic_load(&look->stock->changes) == look->changes;
}

static void await_change_co(struct pool_stock *stock, const struct stock_look *look,
                            uint64_t deadline_ns)
{
    (void)rt_waitq_while_co(&stock->changed, unchanged, look, deadline_ns);
}

void stock_wake(struct pool_stock *stock)
{
    atomic_fetch_add(&stock->changes, 1);
    rt_waitq_wake_all(&stock->changed);
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
    struct stock_look now = look(stock);
    rt_latch_unlock(&stock->latch);
    if (!begin)
        await_change_co(stock, &now, RT_NEVER);
    return begin;
}

void stock_refill_end(struct pool_stock *stock, uint16_t node, uint32_t block_bytes)
{
    rt_latch_lock(&stock->latch);
    struct shelf *shelf = shelf_of(stock, node, block_bytes);
    if (shelf != NULL)
        shelf->refilling = false;
    rt_latch_unlock(&stock->latch);
    stock_wake(stock);
}

bool stock_keeps(struct pool_stock *stock, uint16_t node, uint32_t block_bytes)
{
    rt_latch_lock(&stock->latch);
    bool keeps = shelf_of(stock, node, block_bytes) != NULL;
    rt_latch_unlock(&stock->latch);
    return keeps;
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

/* Each node may have its share also when there are too many: those of a node that does not answer wait for long,
 * and blocks of the others are freed meanwhile. So there are fewer than twice as many at most. */
static bool freed_room(const struct pool_stock *stock, const struct node_stock *at)
{
    return stock->freed_count < stock->freed_max ||
           at->freed_count < stock->freed_max / stock->nodes;
}

/* AGAIN: there are too many. */
static enum pando_status freed_push(struct pool_stock *stock, const struct freed *freed)
{
    struct node_stock *at = &stock->by_node[fabric_address_node(freed->block.address)];
    enum pando_status status = PANDO_OK;
    rt_latch_lock(&stock->latch);
    if (!freed_room(stock, at))
        status = PANDO_AGAIN;
    else if (at->freed_count == at->freed_capacity && !freed_grow(at))
        status = PANDO_NO_MEMORY;
    if (status == PANDO_OK) {
        at->freed[(at->freed_head + at->freed_count++) % at->freed_capacity] = *freed;
        stock->freed_count++;
        at->freed_bytes += freed->block_bytes;
    }
    stock->lost |= status == PANDO_NO_MEMORY;
    rt_latch_unlock(&stock->latch);
    return status;
}

/* Puts a block in line that nobody can be reading: it is the next to go back. Under the latch. False: no memory. */
static bool freed_push_first(struct pool_stock *stock, const struct pool_block *block,
                             uint32_t block_bytes)
{
    struct node_stock *at = &stock->by_node[fabric_address_node(block->address)];
    if (at->freed_count == at->freed_capacity && !freed_grow(at))
        return false;
    at->freed_head = (at->freed_head + at->freed_capacity - 1) % at->freed_capacity;
    at->freed[at->freed_head] = (struct freed){
        .block = *block, .block_bytes = block_bytes, .vital = true, .ready_ns = rt_now_ns()};
    at->freed_count++;
    stock->freed_count++;
    at->freed_bytes += block_bytes;
    return true;
}

void stock_add(struct pool_stock *stock, uint32_t block_bytes, const struct pool_block *block)
{
    rt_latch_lock(&stock->latch);
    struct shelf *shelf = shelf_of(stock, fabric_address_node(block->address), block_bytes);
    if ((shelf == NULL || !shelf_push(shelf, block)) &&
        !freed_push_first(stock, block, block_bytes))
        stock->lost = true;
    rt_latch_unlock(&stock->latch);
}

void stock_hand_back(struct pool_stock *stock, uint32_t block_bytes, const struct pool_block *block)
{
    rt_latch_lock(&stock->latch);
    if (!freed_push_first(stock, block, block_bytes))
        stock->lost = true;
    rt_latch_unlock(&stock->latch);
}

static void freed_pop(struct pool_stock *stock, struct node_stock *at)
{
    at->freed_bytes -= at->freed[at->freed_head].block_bytes;
    stock->freed_count--;
    at->freed_head = (at->freed_head + 1) % at->freed_capacity;
    at->freed_count--;
}

/* When to try again to give something back, if no other task does before: when the next block is ripe, or soon, if
 * one is that did not get to its node. Not too late to see that the process is to end. */
static uint64_t ripe_ns(struct pool *pool)
{
    struct pool_stock *stock = pool->stock;
    uint64_t now_ns = rt_now_ns(), first_ns = now_ns + pool->lease_ns / 8;
    rt_latch_lock(&stock->latch);
    for (uint16_t node = 0; node < stock->nodes; node++) {
        const struct node_stock *at = &stock->by_node[node];
        if (at->freed_count > 0 && at->freed[at->freed_head].ready_ns < first_ns)
            first_ns = at->freed[at->freed_head].ready_ns;
    }
    rt_latch_unlock(&stock->latch);
    return first_ns > now_ns ? first_ns : now_ns + UNREACHED_NS;
}

enum pando_status stock_free_co(struct pool_session *session, const struct pool_block *block,
                                uint32_t block_bytes, bool vital)
{
    struct pool *pool = session->pool;
    struct freed freed = {.block = *block,
                          .block_bytes = block_bytes,
                          .vital = vital,
                          .ready_ns = rt_now_ns() + pool_grace_ns(pool)};
    enum pando_status status = freed_push(pool->stock, &freed);
    uint64_t deadline_ns = 0;
    while (status == PANDO_AGAIN) {
        uint64_t returned = stock_return_co(session, false);
        struct stock_look now = look(pool->stock);
        status = freed_push(pool->stock, &freed);
        if (status != PANDO_AGAIN)
            break;
        if (returned == 0)
            await_change_co(pool->stock, &now, ripe_ns(pool));
        if (pool_fenced(pool))
            return PANDO_FENCED;
        if (pool_past(pool, false, &deadline_ns)) {
            stock_lost(pool->stock);
            return PANDO_TIMEOUT;
        }
    }
    return status;
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* Blocks of one node on their way back. */
struct parcel {
    struct pool_return_request head;
    struct pool_block blocks[RETURN_BLOCKS];
};
_Static_assert(offsetof(struct parcel, blocks) == sizeof(struct pool_return_request),
               "as the call wants it");

/* What a round gives back: which freed ones, and whether shelves are emptied, too. */
enum round { ROUND_RIPE, ROUND_RIPE_AND_SHELVES, ROUND_ALL };

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

static void pack_freed(struct pool_stock *stock, uint16_t node, enum round round, uint64_t now_ns,
                       struct parcel *parcel)
{
    struct node_stock *at = &stock->by_node[node];
    bool kept = false;
    rt_latch_lock(&stock->latch);
    while (at->freed_count > 0 && parcel->head.blocks < RETURN_BLOCKS) {
        struct freed freed = at->freed[at->freed_head];
        uint32_t hold = freed.ready_ns > now_ns;
        if ((hold != 0 && round != ROUND_ALL) ||
            (parcel->head.blocks > 0 && parcel->head.hold != hold))
            break;
        freed_pop(stock, at);
        if (round == ROUND_RIPE && keep(stock, node, &freed, now_ns)) {
            kept = true;
            continue;
        }
        parcel->head.hold = hold;
        parcel->blocks[parcel->head.blocks++] = freed.block;
    }
    rt_latch_unlock(&stock->latch);
    if (kept)
        stock_wake(stock);
}

static void pack_shelves(struct pool_stock *stock, uint16_t node, enum round round, uint64_t now_ns,
                         struct parcel *parcel)
{
    rt_latch_lock(&stock->latch);
    for (int i = 0; i < SHELVES_MAX && parcel->head.hold == 0; i++) {
        struct shelf *shelf = &stock->by_node[node].shelves[i];
        if (round == ROUND_RIPE && shelf->taken_ns + IDLE_NS > now_ns)
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

static enum pando_status send_co(struct pool_session *session, uint16_t node, struct parcel *parcel)
{
    struct pool *pool = session->pool;
    size_t size = offsetof(struct parcel, blocks) + parcel->head.blocks * sizeof(struct pool_block);
    enum pando_status status = pool_reconnect_co(session, node);
    if (status != PANDO_OK) {
        unpack(pool->stock, parcel, rt_now_ns());
        return status;
    }
    const struct pool_member_call call = {
        .method = POOL_RETURN, .body = slice_of(parcel, size), .pass = parcel->head.pass};
    status = pool_call_as_member_co(session, node, &call);
    if (status == PANDO_FENCED)
        pool_set_fenced(pool);
    /* Not again if that failed: the node may have them, and have given them to us anew. */
    if (status != PANDO_OK)
        stock_lost(pool->stock);
    return status;
}

static enum pando_status return_node_co(struct pool_session *session, uint16_t node,
                                        enum round round, struct parcel *parcel, uint64_t *returned)
{
    struct pool_stock *stock = session->pool->stock;
    enum pando_status status = PANDO_OK;
    do {
        uint64_t now_ns = rt_now_ns();
        parcel->head = (struct pool_return_request){0};
        pack_freed(stock, node, round, now_ns, parcel);
        pack_shelves(stock, node, round, now_ns, parcel);
        if (parcel->head.blocks == 0)
            return PANDO_OK;
        status = send_co(session, node, parcel);
        *returned += status == PANDO_OK ? parcel->head.blocks : 0;
    } while (status == PANDO_OK && (parcel->head.blocks == RETURN_BLOCKS || round == ROUND_ALL));
    return status;
}

static bool returning(const void *stock)
{
    return atomic_load(&((const struct pool_stock *)stock)->returning);
}

static bool returning_begin(struct pool_stock *stock)
{
    rt_latch_lock(&stock->latch);
    bool begin = !stock->returning;
    stock->returning = true;
    rt_latch_unlock(&stock->latch);
    return begin;
}

/* Without room made nothing has changed: those who wait for some would only wake each other. */
static void returning_end(struct pool_stock *stock, uint64_t returned)
{
    rt_latch_lock(&stock->latch);
    stock->returning = false;
    rt_latch_unlock(&stock->latch);
    if (returned > 0)
        atomic_fetch_add(&stock->changes, 1);
    rt_waitq_wake_all(&stock->changed);
}

/* Whether everything went where it belongs. */
static bool return_co(struct pool_session *session, enum round round, uint64_t *returned)
{
    struct pool_stock *stock = session->pool->stock;
    struct parcel *parcel = malloc(sizeof(*parcel));
    bool all = parcel != NULL;
    for (uint16_t node = 0; node < stock->nodes && parcel != NULL; node++) {
        /* Connecting again may take long: the member's own task does that, nobody who needs a block. */
        if (session != session->pool->own && fabric_broken(pool_endpoint(session, node)))
            continue;
        all = return_node_co(session, node, round, parcel, returned) == PANDO_OK && all;
    }
    free(parcel);
    return all;
}

uint64_t stock_return_co(struct pool_session *session, bool all)
{
    uint64_t returned = 0;
    if (!returning_begin(session->pool->stock))
        return 0;
    (void)return_co(session, all ? ROUND_RIPE_AND_SHELVES : ROUND_RIPE, &returned);
    returning_end(session->pool->stock, returned);
    return returned;
}

bool stock_return_all_co(struct pool_session *session)
{
    struct pool_stock *stock = session->pool->stock;
    uint64_t returned = 0;
    while (!returning_begin(stock))
        (void)rt_waitq_while_co(&stock->changed, returning, stock, RT_NEVER);
    bool all = return_co(session, ROUND_ALL, &returned);
    returning_end(stock, returned);
    return all && !stock->lost;
}

/* ---- telling --------------------------------------------------------------------------------- */

static uint64_t waiting_bytes(struct pool_stock *stock, uint16_t node)
{
    rt_latch_lock(&stock->latch);
    uint64_t bytes = stock->by_node[node].freed_bytes;
    rt_latch_unlock(&stock->latch);
    return bytes;
}

static bool worth_telling(uint64_t bytes, uint64_t told)
{
    uint64_t off = bytes > told ? bytes - told : told - bytes;
    return off >= POOL_CHUNK_BYTES || (bytes == 0 && told != 0);
}

void stock_tell_co(struct pool_session *session)
{
    struct pool_stock *stock = session->pool->stock;
    for (uint16_t node = 0; node < stock->nodes; node++) {
        struct pool_waiting_request request = {.bytes = waiting_bytes(stock, node)};
        uint64_t *told = &stock->by_node[node].told_bytes;
        if (!worth_telling(request.bytes, *told) || fabric_broken(pool_endpoint(session, node)))
            continue;
        if (fabric_call_co(pool_endpoint(session, node), POOL_WAITING,
                           slice_of(&request, sizeof(request)), NULL, 0, NULL) == PANDO_OK)
            *told = request.bytes;
    }
}
