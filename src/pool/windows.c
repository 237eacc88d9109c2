/*
 * windows.c - which windows a pool consists of.
 *
 * A window has a random id, made when it is formatted and told in every handshake before anything is
 * sent. Node 0 keeps the id of each node's window, so a window that is empty or another pool's is
 * never taken for the one whose place it is in: whoever joins compares before it becomes a member,
 * and an endpoint that connects again compares with what it was connected to (fabric_window_check).
 * Node 0's own window goes with the pool's id, which is made with it.
 */
#include <stddef.h>
#include <stdio.h>

#include "base/log.h"
#include "pool/pool_int.h"

static enum pando_status fail(char *error, size_t error_bytes, enum pando_status status,
                              uint16_t node, const char *what)
{
    snprintf(error, error_bytes, "memory node %u: %s (%s)", node, what, pando_status_text(status));
    return status;
}

/* The superblock of a node, checked. */
static enum pando_status read_superblock_co(struct pool *pool, struct fabric_endpoint *endpoint,
                                            uint16_t node, char *error, size_t error_bytes)
{
    struct pool_superblock *super = &pool->supers[node];
    struct fabric_op read = fabric_read(pool->first, super, sizeof(*super));
    enum pando_status status = fabric_submit_co(endpoint, &read, 1);
    if (status != PANDO_OK)
        return fail(error, error_bytes, status, node, "cannot read its superblock");
    if (super->magic != POOL_MAGIC)
        return fail(error, error_bytes, PANDO_INVALID, node, "no pool in its window");
    if (super->version != POOL_VERSION)
        return fail(
            error, error_bytes, PANDO_VERSION, node,
            "its pool has another format version: dump its tables with the program that made it "
            "(pando dump), load them with this one into a new pool (pando load)");
    if (super->node != node || super->locks == 0 || super->locks > POOL_LOCKS ||
        super->heap_offset >= FABRIC_DEVICE || super->chunks > FABRIC_DEVICE / POOL_CHUNK_BYTES)
        return fail(error, error_bytes, PANDO_CORRUPT, node, "damaged superblock");
    return PANDO_OK;
}

/* Sets a superblock word that is 0 until a pool is put together; what it is then. */
static enum pando_status claim_co(struct fabric_endpoint *endpoint, uint64_t offset, uint64_t mine,
                                  uint64_t *found)
{
    struct fabric_op cas = fabric_cas(offset, 0, mine);
    enum pando_status status = fabric_submit_co(endpoint, &cas, 1);
    *found = cas.old == 0 ? mine : cas.old;
    return status;
}

/* ---- joining --------------------------------------------------------------------------------- */

static fabric_address window_address(const struct pool *pool, uint16_t node)
{
    return pool->first + POOL_WINDOWS + (uint64_t)node * POOL_WINDOW_BYTES;
}

static enum pando_status check_first_co(struct pool *pool, struct fabric_endpoint *first,
                                        uint64_t expected, char *error, size_t error_bytes)
{
    uint64_t found;
    enum pando_status status = read_superblock_co(pool, first, 0, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    pool->id = pool->supers[0].pool_id;
    if (expected != 0 && pool->id != expected) {
        snprintf(error, error_bytes,
                 "memory node 0 has come back empty, or is another pool's: the pool is lost unless "
                 "its former window can be started again; to begin anew, start every memory node "
                 "with an empty window, then this program");
        return PANDO_INVALID;
    }
    status =
        claim_co(first, pool->first + offsetof(struct pool_superblock, nodes), pool->nodes, &found);
    if (status == PANDO_OK && found != pool->nodes) {
        snprintf(error, error_bytes,
                 "the pool has %llu memory nodes and %u were named; name them all, in order",
                 (unsigned long long)found, pool->nodes);
        return PANDO_INVALID;
    }
    struct fabric_op read = fabric_read(pool->first + POOL_WINDOWS, pool->windows,
                                        (uint32_t)pool->nodes * POOL_WINDOW_BYTES);
    if (status == PANDO_OK)
        status = fabric_submit_co(first, &read, 1);
    return status == PANDO_OK ? PANDO_OK
                              : fail(error, error_bytes, status, 0, "cannot join the pool");
}

/* The window that answers is not the one that the pool knows. */
static enum pando_status refuse(const struct pool *pool, uint16_t node, char *error,
                                size_t error_bytes)
{
    uint64_t of = pool->supers[node].pool_id;
    if (of == 0)
        snprintf(
            error, error_bytes,
            "memory node %u has come back empty: what it held is lost unless its former window "
            "can be started again; if not, `pando memory --replace %u`: tables with data there "
            "answer CORRUPT until they are dropped",
            node, node);
    else if (of == pool->id)
        snprintf(
            error, error_bytes,
            "memory node %u: this window was replaced by another one (or is a copy); start the "
            "one with the id %016llx",
            node, (unsigned long long)pool->windows[node].id);
    else if (pool->windows[node].id == 0)
        snprintf(
            error, error_bytes,
            "memory node %u belongs to another pool than node 0. If node 0 has come back empty, "
            "all is lost unless its former window can be started again; to begin anew, start "
            "every memory node with an empty window",
            node);
    else
        snprintf(error, error_bytes,
                 "memory node %u belongs to another pool; start this pool's window, or if that is "
                 "lost, `pando memory --replace %u` on an empty one",
                 node, node);
    return PANDO_INVALID;
}

static enum pando_status check_node_co(struct pool *pool, uint16_t node,
                                       struct fabric_endpoint *first,
                                       struct fabric_endpoint *endpoint, char *error,
                                       size_t error_bytes)
{
    uint64_t id = fabric_endpoint_window(endpoint), found;
    struct pool_window *known = &pool->windows[node];
    enum pando_status status = read_superblock_co(pool, endpoint, node, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    if (known->id == 0) { /* nobody has joined it yet; its pool's id first */
        status = claim_co(endpoint, pool->first + offsetof(struct pool_superblock, pool_id),
                          pool->id, &found);
        if (status == PANDO_OK)
            pool->supers[node].pool_id = found;
        if (status == PANDO_OK && found == pool->id)
            status = claim_co(first, window_address(pool, node), id, &known->id);
        if (status != PANDO_OK)
            return fail(error, error_bytes, status, node, "cannot join it to the pool");
    }
    if (known->id != id || pool->supers[node].pool_id != pool->id)
        return refuse(pool, node, error, error_bytes);
    return PANDO_OK;
}

enum pando_status pool_windows_join_co(struct pool *pool, struct fabric_endpoint *first,
                                       uint64_t expected, char *error, size_t error_bytes)
{
    struct fabric_endpoint *endpoint;
    enum pando_status status = check_first_co(pool, first, expected, error, error_bytes);
    if (status == PANDO_OK)
        status = check_node_co(pool, 0, first, first, error, error_bytes);
    for (uint16_t node = 1; node < pool->nodes && status == PANDO_OK; node++) {
        status = fabric_connect_co(pool->fabric, node, &endpoint);
        if (status != PANDO_OK)
            return fail(error, error_bytes, status, node, "cannot connect");
        status = check_node_co(pool, node, first, endpoint, error, error_bytes);
        fabric_disconnect_co(endpoint);
    }
    return status;
}

/* ---- connecting ------------------------------------------------------------------------------ */

enum pando_status pool_window_lost(struct pool *pool, uint16_t node)
{
    if (!atomic_exchange(&pool->window_lost[node], true))
        log_error("a memory node has come back empty or with another window: it is not used. Start "
                  "its former window again; if that is lost, use `pando memory --replace`",
                  log_u64("node", node), log_hex("expected", pool->windows[node].id));
    return PANDO_BROKEN;
}

enum pando_status pool_connect_co(struct pool *pool, uint16_t node, struct fabric_endpoint **out)
{
    struct fabric_endpoint *endpoint;
    enum pando_status status = fabric_connect_co(pool->fabric, node, &endpoint);
    if (status != PANDO_OK)
        return status;
    if (fabric_endpoint_window(endpoint) != pool->windows[node].id) {
        fabric_disconnect_co(endpoint);
        return pool_window_lost(pool, node);
    }
    *out = endpoint;
    return PANDO_OK;
}
