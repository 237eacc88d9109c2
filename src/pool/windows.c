/*
 * windows.c - which windows a pool consists of.
 *
 * A window has a random id, made when it is formatted and told in every handshake before anything is
 * sent. Node 0 keeps the id of each node's window, so a window that is empty or another pool's is
 * never taken for the one whose place it is in: whoever joins compares before it becomes a member,
 * and an endpoint that connects again compares with what it was connected to (fabric_window_check).
 * Whoever knows which window it wants says so when it connects, and a node that has another one
 * refuses it and says so in its own log (memnode_refusal.c).
 * Node 0's own window goes with the pool's id, which is made with it.
 *
 * Replacing a window. An operator who says that a node's memory is lost starts a new window with
 * `pando memory --replace N`. That sets `replaces` in its superblock; whoever joins next finds it and
 * makes it a part of the pool, with CASes on node 0 whose values never come again, so that any number
 * may be at it and nobody has to be waited for:
 *
 *   1  on N        pool id: 0 -> the pool's
 *   2  on node 0   epoch: e -> e + 1, which is odd
 *   3              window N, since: -> e + 2
 *   4              window N, id: the lost one's -> the new one's
 *   5  on N        replaces: 1 -> 0
 *   6  on node 0   epoch: e + 1 -> e + 2
 *
 * What a crash leaves, and who goes on:
 *   before 2       a pool without node N, and a window that waits: the next to join begins again
 *   after 2, 3     an odd epoch: nobody is let in before it is even. The next to join finds the window
 *                  and goes on. Should it find the lost window there after all, it makes the epoch
 *                  even; from 3 on what tables had there is lost all the same, as the operator said
 *   after 4, 5     the next to join does 5 and 6: all windows are known, the epoch is odd
 *   6              done
 *
 * Members that were there before see another epoch with their next heartbeat, at the latest when their
 * lease ends, and have to join again: they have no address in the lost window left then, and those that
 * are recovered have joined before the epoch from which the window is (recover.c leaves out what their
 * intents say about it). Until then they cannot mistake the new window for the lost one, for their
 * endpoints compare ids. Tables that had memory in the lost window are known by uses.c.
 */
#include <stddef.h>
#include <stdio.h>

#include "base/log.h"
#include "pool/members_int.h"
#include "pool/pool_int.h"

static enum pando_status fail(char *error, size_t error_bytes, enum pando_status status,
                              uint16_t node, const char *what)
{
    snprintf(error, error_bytes, "memory node %u: %s (%s)", node, what, pando_status_text(status));
    return status;
}

enum { JOIN_TRIES = 16 };

static bool directory_ok(const struct pool *pool, const struct pool_superblock *super)
{
    return super->groups > 0 && super->groups <= POOL_GROUPS_MAX && super->directory % 8 == 0 &&
           super->directory >= pool->first + POOL_CHUNK_TABLE &&
           super->directory <= super->heap_offset &&
           super->groups * POOL_GROUP_BYTES <= super->heap_offset - super->directory;
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
    if (node == 0 && !directory_ok(pool, super))
        return fail(error, error_bytes, PANDO_CORRUPT, node, "damaged superblock: its directory");
    return PANDO_OK;
}

/* Sets a superblock word that is 0 until a pool is put together; what it is then. */
static enum pando_status set_if_zero_co(struct fabric_endpoint *endpoint, uint64_t offset,
                                        uint64_t mine, uint64_t *found)
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
                 "with a new --shm name, then this program");
        return PANDO_INVALID;
    }
    status = set_if_zero_co(first, pool->first + offsetof(struct pool_superblock, nodes),
                            pool->nodes, &found);
    if (status == PANDO_OK && found != pool->nodes) {
        snprintf(error, error_bytes,
                 "the pool has %llu memory nodes and %u were named; name them all, in order",
                 (unsigned long long)found, pool->nodes);
        return PANDO_INVALID;
    }
    /* The epoch first: with a later one, the windows may not be older than it. */
    struct fabric_op epoch = fabric_read(pool->first + POOL_EPOCH, &pool->epoch, sizeof(uint64_t));
    struct fabric_op read = fabric_read(pool->first + POOL_WINDOWS, pool->windows,
                                        (uint32_t)pool->nodes * POOL_WINDOW_BYTES);
    if (status == PANDO_OK)
        status = fabric_submit_co(first, &epoch, 1);
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
            "every memory node with a new --shm name",
            node);
    else
        snprintf(error, error_bytes,
                 "memory node %u belongs to another pool; start this pool's window, or if that is "
                 "lost, `pando memory --replace %u` on an empty one",
                 node, node);
    return PANDO_INVALID;
}

/* ---- replacing ------------------------------------------------------------------------------- */

/* A CAS; OK also if the word is as desired already. STALE: it is something else. */
static enum pando_status swap_co(struct fabric_endpoint *endpoint, uint64_t offset,
                                 uint64_t expected, uint64_t desired)
{
    struct fabric_op cas = fabric_cas(offset, expected, desired);
    enum pando_status status = fabric_submit_co(endpoint, &cas, 1);
    return status == PANDO_OK && cas.old != expected && cas.old != desired ? PANDO_STALE : status;
}

static uint64_t super_word(const struct pool *pool, size_t at)
{
    return pool->first + at;
}

/* Steps 2 to 4, once. *epoch: as it was right after step 4. */
static enum pando_status enter_once_co(struct pool *pool, uint16_t node,
                                       struct fabric_endpoint *first, uint64_t id, uint64_t *epoch)
{
    uint64_t at = window_address(pool, node), odd = pool->epoch | 1;
    struct pool_window *known = &pool->windows[node];
    enum pando_status status = PANDO_OK;

    if (odd != pool->epoch)
        status = swap_co(first, pool->first + POOL_EPOCH, pool->epoch, odd);
    if (status == PANDO_OK && known->since < odd + 1)
        status = swap_co(first, at + offsetof(struct pool_window, since), known->since, odd + 1);
    struct fabric_op ops[] = {
        fabric_cas(at + offsetof(struct pool_window, id), known->id, id),
        fabric_read(pool->first + POOL_EPOCH, epoch, sizeof(*epoch)),
    };
    if (status == PANDO_OK)
        status = fabric_submit_co(first, ops, 2);
    if (status == PANDO_OK && ops[0].old != known->id && ops[0].old != id)
        return PANDO_STALE;
    if (status == PANDO_OK) {
        pool->epoch = odd;
        *known = (struct pool_window){.id = id, .since = odd + 1};
    }
    return status;
}

/* Somebody who still finds the lost window may have made the epoch even before step 4, and may have
 * joined with the lost window then: another epoch tells it. */
static enum pando_status enter_window_co(struct pool *pool, uint16_t node,
                                         struct fabric_endpoint *first, uint64_t id)
{
    for (int i = 0; i < JOIN_TRIES; i++) {
        uint64_t epoch = 0;
        if (pool->epoch + 3 >= (uint64_t)1 << POOL_USES_EPOCH)
            return PANDO_FULL;
        enum pando_status status = enter_once_co(pool, node, first, id, &epoch);
        if (status != PANDO_OK || epoch == pool->epoch)
            return status;
        pool->epoch = epoch;
    }
    return PANDO_STALE;
}

/* Steps 1 to 4. AGAIN: look at everything again, which goes on with the rest. */
static enum pando_status replace_co(struct pool *pool, uint16_t node, struct fabric_endpoint *first,
                                    struct fabric_endpoint *endpoint, char *error,
                                    size_t error_bytes)
{
    uint64_t found, lost = pool->windows[node].id;
    enum pando_status status = set_if_zero_co(
        endpoint, super_word(pool, offsetof(struct pool_superblock, pool_id)), pool->id, &found);
    if (status == PANDO_OK && found != pool->id)
        return refuse(pool, node, error, error_bytes);
    if (status == PANDO_OK)
        status = enter_window_co(pool, node, first, fabric_endpoint_window(endpoint));
    if (status == PANDO_OK)
        log_warn("a memory node was replaced: tables with memory in its former window are damaged",
                 log_u64("node", node), log_hex("window", fabric_endpoint_window(endpoint)),
                 log_hex("lost", lost));
    if (status == PANDO_OK || status == PANDO_STALE)
        return PANDO_AGAIN; /* STALE: somebody else is at it */
    return fail(error, error_bytes, status, node, "cannot join it to the pool in place of another");
}

static bool wants_to_replace(const struct pool *pool, uint16_t node)
{
    const struct pool_superblock *super = &pool->supers[node];
    return node != 0 && super->replaces == 1 && (super->pool_id == 0 || super->pool_id == pool->id);
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
        status = set_if_zero_co(endpoint, pool->first + offsetof(struct pool_superblock, pool_id),
                                pool->id, &found);
        if (status == PANDO_OK)
            pool->supers[node].pool_id = found;
        if (status == PANDO_OK && found == pool->id)
            status = set_if_zero_co(first, window_address(pool, node), id, &known->id);
        if (status != PANDO_OK)
            return fail(error, error_bytes, status, node, "cannot join it to the pool");
    }
    if (known->id != id && wants_to_replace(pool, node))
        return replace_co(pool, node, first, endpoint, error, error_bytes);
    if (known->id != id || pool->supers[node].pool_id != pool->id)
        return refuse(pool, node, error, error_bytes);
    if (pool->supers[node].replaces !=
        0) { /* step 5; also of a new pool's node, which replaces none */
        status =
            swap_co(endpoint, super_word(pool, offsetof(struct pool_superblock, replaces)), 1, 0);
        if (status != PANDO_OK)
            return fail(error, error_bytes, status, node, "cannot join it to the pool");
    }
    return PANDO_OK;
}

/* Connects to a node whatever its window is, but asks for the one that the pool knows first, so that a
 * node that has another one says so in its own log. */
static enum pando_status connect_any_co(struct pool *pool, uint16_t node,
                                        struct fabric_endpoint **out)
{
    enum pando_status status =
        fabric_connect_window_co(pool->fabric, node, pool->windows[node].id, out);
    return status == PANDO_INVALID ? fabric_connect_co(pool->fabric, node, out) : status;
}

static enum pando_status check_all_co(struct pool *pool, struct fabric_endpoint *first,
                                      uint64_t expected, char *error, size_t error_bytes)
{
    struct fabric_endpoint *endpoint;
    enum pando_status status = check_first_co(pool, first, expected, error, error_bytes);
    if (status == PANDO_OK)
        status = check_node_co(pool, 0, first, first, error, error_bytes);
    for (uint16_t node = 1; node < pool->nodes && status == PANDO_OK; node++) {
        status = connect_any_co(pool, node, &endpoint);
        if (status != PANDO_OK)
            return pool_connect_failed(pool, node, status, error, error_bytes);
        status = check_node_co(pool, node, first, endpoint, error, error_bytes);
        fabric_disconnect_co(endpoint);
    }
    if (status != PANDO_OK || pool->epoch % 2 == 0)
        return status;
    status = swap_co(first, pool->first + POOL_EPOCH, pool->epoch, pool->epoch + 1); /* step 6 */
    return status == PANDO_OK || status == PANDO_STALE
               ? PANDO_AGAIN
               : fail(error, error_bytes, status, 0, "cannot finish the replacement of a node");
}

enum pando_status pool_windows_join_co(struct pool *pool, struct fabric_endpoint *first,
                                       uint64_t expected, char *error, size_t error_bytes)
{
    enum pando_status status = PANDO_AGAIN;
    for (int i = 0; i < JOIN_TRIES && status == PANDO_AGAIN; i++)
        status = check_all_co(pool, first, expected, error, error_bytes);
    if (status == PANDO_AGAIN)
        return fail(error, error_bytes, PANDO_TIMEOUT, 0, "its nodes are replaced all the time");
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
    enum pando_status status = pool_member_connect_co(pool, node, &endpoint);
    if (status != PANDO_OK)
        return status == PANDO_INVALID ? pool_window_lost(pool, node) : status;
    if (fabric_endpoint_window(endpoint) != pool->windows[node].id) {
        fabric_disconnect_co(endpoint);
        return pool_window_lost(pool, node);
    }
    *out = endpoint;
    return PANDO_OK;
}

/* ---- members that are there meanwhile -------------------------------------------------------- */

enum pando_status pool_epoch_over(struct pool *pool)
{
    if (!pool_fenced(pool))
        log_warn("a memory node was replaced: this member joins again",
                 log_u64("member", pool->identity.member));
    pool_set_fenced(pool);
    return PANDO_FENCED;
}

/* Whether the window that answers now has been made to take the lost one's place. */
static enum pando_status check_window_co(struct pool *pool, uint16_t node, bool *replaced)
{
    struct fabric_endpoint *endpoint;
    struct pool_superblock super = {0};
    enum pando_status status = fabric_connect_co(pool->fabric, node, &endpoint);
    if (status != PANDO_OK)
        return status;
    bool former = fabric_endpoint_window(endpoint) == pool->windows[node].id;
    if (former)
        atomic_store(&pool->window_lost[node], false);
    struct fabric_op read = fabric_read(pool->first, &super, sizeof(super));
    status = fabric_submit_co(endpoint, &read, 1);
    *replaced = status == PANDO_OK && !former && super.magic == POOL_MAGIC && super.replaces == 1 &&
                super.node == node && (super.pool_id == 0 || super.pool_id == pool->id);
    fabric_disconnect_co(endpoint);
    return status;
}

void pool_windows_check_co(struct pool *pool)
{
    for (uint16_t node = 1; node < pool->nodes && !pool_fenced(pool); node++) {
        bool replaced = false;
        if (!atomic_load_explicit(&pool->window_lost[node], memory_order_relaxed))
            continue;
        if (check_window_co(pool, node, &replaced) == PANDO_OK && replaced)
            (void)pool_epoch_over(pool);
    }
}
