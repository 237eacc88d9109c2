/*
 * room.c - how much room memory nodes have, as this process knows it, and taking them in turn by it.
 *
 * A node tells with each grant how many chunks it could still open; a refusal tells that there is none. The
 * member's own task asks now and then, so that a node that is seldom asked for blocks is not taken for what
 * it once was. None of that costs whoever needs a block a message.
 *
 * Turns are taken so that each node gets blocks in proportion to its room: all are full at the same time.
 * Each turn gives every node a credit by its part of all room, and is taken by the node with most, who pays
 * one turn for it. With equal nodes that is one after the other; what a node was given too much or too little
 * is made up for by the next turns.
 */
#include "pool/memory_int.h"
#include "pool/pool_int.h"

enum { TURN = 1 << 16 };

static const uint64_t REFUSED_NS = RT_NS_PER_S; /* so long a node that is full is not asked again */

void pool_rooms_init(struct pool *pool)
{
    for (uint16_t node = 0; node < pool->nodes; node++)
        atomic_store(&pool->rooms[node].chunks, (uint32_t)pool->supers[node].chunks);
}

void pool_room_granted(struct pool *pool, uint16_t node, uint32_t chunks)
{
    struct pool_room *room = &pool->rooms[node];
    atomic_store_explicit(&room->chunks, chunks, memory_order_relaxed);
}

void pool_room_refused(struct pool *pool, uint16_t node, uint32_t block_bytes)
{
    struct pool_room *room = &pool->rooms[node];
    uint32_t before = atomic_load_explicit(&room->refused_bytes, memory_order_relaxed);
    bool lately = rt_now_ns() < atomic_load_explicit(&room->refused_until_ns, memory_order_relaxed);
    /* A block of several chunks may be refused although there are some, but not in a row. */
    if (block_bytes <= POOL_CHUNK_BYTES)
        atomic_store_explicit(&room->chunks, 0, memory_order_relaxed);
    if (!lately || block_bytes < before)
        atomic_store_explicit(&room->refused_bytes, block_bytes, memory_order_relaxed);
    atomic_store_explicit(&room->refused_until_ns, rt_now_ns() + REFUSED_NS, memory_order_relaxed);
}

bool pool_room_none(const struct pool *pool, uint16_t node, uint32_t block_bytes)
{
    const struct pool_room *room = &pool->rooms[node];
    uint64_t until_ns = atomic_load_explicit(&room->refused_until_ns, memory_order_relaxed);
    return until_ns != 0 && rt_now_ns() < until_ns &&
           block_bytes >= atomic_load_explicit(&room->refused_bytes, memory_order_relaxed);
}

uint64_t pool_capacity(const struct pool *pool)
{
    uint64_t chunks = 0;
    for (uint16_t node = 0; node < pool->nodes; node++)
        chunks += pool->supers[node].chunks - pool_reserve_chunks(pool->supers[node].chunks);
    return chunks * POOL_CHUNK_BYTES;
}

/* ---- turns ----------------------------------------------------------------------------------- */

void pool_turns_begin(const struct pool *pool, int32_t *credits)
{
    for (uint16_t node = 0; node < pool->nodes; node++)
        credits[node] = (int32_t)(rt_random() % TURN);
}

uint16_t pool_turn_next(struct pool *pool, int32_t *credits)
{
    uint64_t all = 0;
    int32_t given = 0;
    uint16_t next = POOL_ANY_NODE;

    atomic_store_explicit(&pool->turns_taken, true, memory_order_relaxed);
    for (uint16_t node = 0; node < pool->nodes; node++)
        all += atomic_load_explicit(&pool->rooms[node].chunks, memory_order_relaxed);
    for (uint16_t node = 0; node < pool->nodes; node++) {
        uint64_t part = atomic_load_explicit(&pool->rooms[node].chunks, memory_order_relaxed);
        int32_t credit = all == 0      ? TURN / pool->nodes
                         : part >= all ? TURN /* others have learned while we counted */
                                       : (int32_t)(part * TURN / all);
        credits[node] += credit;
        given += credit;
        if ((all == 0 || part > 0) && (next == POOL_ANY_NODE || credits[node] > credits[next]))
            next = node;
    }
    if (next == POOL_ANY_NODE)
        return 0; /* likewise: all were full a moment ago */
    credits[next] -= given;
    return next;
}

void pool_turn_moved(const struct pool *pool, int32_t *credits, uint16_t from, uint16_t to)
{
    if (from >= pool->nodes || to >= pool->nodes)
        return;
    /* No node is owed more than a turn for having been full, or away. */
    credits[from] = credits[from] + TURN > TURN ? TURN : credits[from] + TURN;
    credits[to] = credits[to] - TURN < -TURN ? -TURN : credits[to] - TURN;
}

/* ---- looking --------------------------------------------------------------------------------- */

void pool_rooms_refresh_co(struct pool *pool)
{
    if (pool->nodes == 1 || rt_now_ns() < pool->rooms_look_ns ||
        !atomic_exchange(&pool->turns_taken, false))
        return;
    for (uint16_t node = 0; node < pool->nodes && !pool->leaving; node++) {
        struct pool_node_stats stats;
        if (fabric_broken(pool_endpoint(pool->own, node)) ||
            pool_node_stats_co(pool->own, node, &stats) != PANDO_OK)
            continue;
        uint64_t chunks = stats.chunks_free > stats.chunks_reserved
                              ? stats.chunks_free - stats.chunks_reserved
                              : 0;
        pool_room_granted(pool, node, chunks < UINT32_MAX ? (uint32_t)chunks : UINT32_MAX);
    }
    pool->rooms_look_ns = rt_now_ns() + pool->lease_ns;
}
