/*
 * pool.c - joining, leaving, sessions.
 */
#include "pool/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "pool/broken.h"
#include "pool/directory_int.h"
#include "pool/members_int.h"
#include "pool/memory_int.h"
#include "pool/pool_int.h"

static const uint64_t LEASE_NS = RT_NS_PER_S;
static const uint32_t DRIFT_PPM = 10000;
static const uint64_t RECONNECT_PAUSE_NS = 10 * RT_NS_PER_MS;
enum { RECONNECT_TRIES = 3 };

/* ---- joining --------------------------------------------------------------------------------- */

static enum pando_status fail(char *error, size_t error_bytes, enum pando_status status,
                              uint16_t node, const char *what)
{
    snprintf(error, error_bytes, "memory node %u: %s (%s)", node, what, pando_status_text(status));
    return status;
}

enum pando_status pool_connect_failed(struct pool *pool, uint16_t node, enum pando_status status,
                                      char *error, size_t error_bytes)
{
    char trouble[256];
    fabric_connect_error(pool->fabric, node, trouble, sizeof(trouble));
    if (trouble[0] == '\0')
        return fail(error, error_bytes, status, node, "cannot connect");
    snprintf(error, error_bytes, "memory node %u: cannot connect (%s): %s", node,
             pando_status_text(status), trouble);
    return status;
}

/* With endpoints of nobody: the identity comes from the members table on node 0. */
static enum pando_status introduce_co(struct pool *pool, const char *name, uint64_t expected,
                                      char *error, size_t error_bytes)
{
    struct fabric_endpoint *endpoint;
    enum pando_status status;

    fabric_set_identity(pool->fabric, (struct fabric_identity){0});
    status = fabric_connect_co(pool->fabric, 0, &endpoint);
    if (status != PANDO_OK)
        return pool_connect_failed(pool, 0, status, error, error_bytes);
    status = pool_windows_join_co(pool, endpoint, expected, error, error_bytes);
    if (status != PANDO_OK) {
        fabric_disconnect_co(endpoint);
        return status;
    }
    fabric_set_pool(pool->fabric, pool->id);
    status = pool_member_join_co(pool, endpoint, name);
    fabric_disconnect_co(endpoint);
    if (status != PANDO_OK)
        return fail(error, error_bytes, status, 0, "cannot become a member");
    return PANDO_OK;
}

static void pool_free(struct pool *pool)
{
    stock_destroy(pool->stock);
    intent_slots_destroy(pool->intents);
    free(pool->uses);
    free(pool);
}

enum pando_status pool_join_co(struct fabric *fabric, const struct pool_options *options,
                               struct pool **out, char *error, size_t error_bytes)
{
    if (options->memory_nodes == 0 || options->memory_nodes > POOL_NODES_MAX) {
        snprintf(error, error_bytes, "a pool has 1 to %d memory nodes, not %u", POOL_NODES_MAX,
                 options->memory_nodes);
        return PANDO_INVALID;
    }
    struct pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return PANDO_NO_MEMORY;
    pool->fabric = fabric;
    pool->nodes = options->memory_nodes;
    pool->first = fabric_window_first(fabric);
    pool->lease_ns = options->lease_ns == 0 ? LEASE_NS : options->lease_ns;
    pool->drift_ppm = options->drift_ppm == 0 ? DRIFT_PPM : options->drift_ppm;
    pool->no_recovery = options->no_recovery;
    pool->ending = options->ending;
    pool->intents = intent_slots_create(pool->nodes);
    pool->stock = stock_create(pool->nodes, options->freed_max);
    pool->uses = pool_uses_create();
    list_init(&pool->sessions);
    if (pool->intents == NULL || pool->stock == NULL || pool->uses == NULL) {
        pool_free(pool);
        return PANDO_NO_MEMORY;
    }
    rt_waitq_init(&pool->wake);
    rt_waitq_init(&pool->ended);
    rt_waitq_init(&pool->fences_wake);
    rt_waitq_init(&pool->holding);
    pool_answers_init(pool);

    enum pando_status status = introduce_co(pool, options->name == NULL ? "" : options->name,
                                            options->pool, error, error_bytes);
    if (status == PANDO_OK) {
        pool_rooms_init(pool);
        status = pool_session_open_co(pool, &pool->own);
        for (uint16_t node = 1; node < pool->nodes && status == PANDO_OK; node++)
            status = pool_pass_show_co(pool, pool_endpoint(pool->own, node));
        if (status == PANDO_OK)
            status = pool_member_start(pool);
        if (status != PANDO_OK)
            fail(error, error_bytes, status, 0, "cannot open a session");
    }
    if (status != PANDO_OK) {
        pool_answers_end_co(pool);
        if (pool->own != NULL)
            pool_session_close_co(pool->own);
        pool_free(pool);
        return status;
    }
    *out = pool;
    return PANDO_OK;
}

void pool_leave_co(struct pool *pool)
{
    pool_answers_end_co(pool);
    bool ended = pool_member_end_co(pool);
    rt_stall_point();
    if (pool->grants != NULL)
        pool_session_close_co(pool->grants);
    pool_session_close_co(pool->own);
    pando_assert(list_empty(&pool->sessions));
    rt_stall_point();
    if (ended)
        pool_member_free_slot_co(pool);
    pool_free(pool);
}

/* ---- what it is ------------------------------------------------------------------------------ */

struct fabric_identity pool_identity(const struct pool *pool)
{
    return pool->identity;
}

uint64_t pool_id(const struct pool *pool)
{
    return pool->id;
}

uint16_t pool_nodes(const struct pool *pool)
{
    return pool->nodes;
}

uint16_t pool_banks(const struct pool *pool)
{
    return pool->nodes;
}

struct pool_window pool_window(const struct pool *pool, uint16_t node)
{
    pando_assert(node < pool->nodes);
    return pool->windows[node];
}

uint64_t pool_lease_ns(const struct pool *pool)
{
    return pool->lease_ns;
}

uint64_t pool_grace_ns(const struct pool *pool)
{
    return pool_broken.grace ? 0 : pool->lease_ns + RT_NS_PER_S;
}

struct fabric *pool_fabric(const struct pool *pool)
{
    return pool->fabric;
}

_Atomic uint64_t *pool_shared_bytes(struct pool *pool)
{
    return &pool->shared_bytes;
}

bool pool_private(const struct pool *pool)
{
    return pool->nodes == 1 && fabric_self(pool->fabric) == 0 &&
           fabric_location(pool->fabric)[0] == '\0';
}

bool pool_lease_valid(const struct pool *pool)
{
    uint64_t until_ns = atomic_load_explicit(&pool->lease_until_ns, memory_order_acquire);
    if (pool_fenced(pool))
        return false;
    /* The cheap clock is enough until shortly before the end. */
    return rt_tick_ns() + RT_TICK_NS < until_ns || rt_now_ns() < until_ns;
}

bool pool_fenced(const struct pool *pool)
{
    return atomic_load_explicit(&pool->fenced, memory_order_acquire);
}

void pool_resign(struct pool *pool)
{
    log_warn("a change could not be finished: this member gives itself up",
             log_u64("member", pool->identity.member));
    pool_set_fenced(pool);
}

void pool_set_fenced(struct pool *pool)
{
    if (atomic_exchange(&pool->fenced, true))
        return;
    log_warn("this member was declared dead: it must join again",
             log_u64("member", pool->identity.member),
             log_u64("incarnation", pool->identity.incarnation));
    pool_intents_wake(pool);
    stock_wake(pool->stock);
}

const struct pool_superblock *pool_superblock(const struct pool *pool, uint16_t node)
{
    pando_assert(node < pool->nodes);
    return &pool->supers[node];
}

uint64_t pool_departures(const struct pool *pool)
{
    return atomic_load_explicit(&pool->departures, memory_order_acquire);
}

uint64_t pool_recoveries(const struct pool *pool)
{
    return atomic_load_explicit(&pool->recoveries, memory_order_relaxed);
}

uint64_t pool_unreadable_intents(const struct pool *pool)
{
    return atomic_load_explicit(&pool->unreadable_intents, memory_order_relaxed);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void session_free(struct pool_session *session)
{
    free(session->endpoints);
    free(session->reconnecting);
    free(session->silent_until_ns);
    free(session->credits);
    free(session);
}

static struct pool_session *session_create(struct pool *pool)
{
    struct pool_session *session = calloc(1, sizeof(*session));
    if (session == NULL)
        return NULL;
    session->pool = pool;
    session->loop = rt_loop_self();
    session->endpoints = calloc(pool->nodes, sizeof(*session->endpoints));
    session->reconnecting = calloc(pool->nodes, sizeof(*session->reconnecting));
    session->silent_until_ns = calloc(pool->nodes, sizeof(*session->silent_until_ns));
    session->credits = calloc(pool->nodes, sizeof(*session->credits));
    rt_waitq_init(&session->wake);
    rt_waitq_init(&session->ended);
    rt_waitq_init(&session->connected);
    list_init(&session->link);
    if (session->endpoints == NULL || session->reconnecting == NULL ||
        session->silent_until_ns == NULL || session->credits == NULL) {
        session_free(session);
        return NULL;
    }
    pool_turns_begin(pool, session->credits);
    atomic_store(&session->ticked_ns, rt_now_ns());
    return session;
}

/* After every connect, before anything else is sent. If a node has lost its lock table, locks that this
 * member took there are others' now, and what it would write under them must not arrive
 * (rule resolve-unknown). Nobody knows which lists those are, so the member ends: it joins again,
 * and its former life is recovered. */
static enum pando_status check_life_co(struct pool_session *session, uint16_t node)
{
    struct pool *pool = session->pool;
    uint64_t life;
    struct fabric_op read = fabric_read(pool->first + offsetof(struct pool_superblock, locks_life),
                                        &life, sizeof(life));
    enum pando_status status = fabric_submit_co(session->endpoints[node], &read, 1);
    if (status != PANDO_OK || life == pool->supers[node].locks_life || pool_broken.lost_locks)
        return status;
    log_warn("a memory node has lost its lock table, and this member's locks with it",
             log_u64("node", node));
    pool_resign(pool);
    return PANDO_FENCED;
}

enum pando_status pool_session_open_co(struct pool *pool, struct pool_session **out)
{
    struct pool_session *session = session_create(pool);
    if (session == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = PANDO_OK;
    for (uint16_t node = 0; node < pool->nodes && status == PANDO_OK; node++) {
        status = pool_connect_co(pool, node, &session->endpoints[node]);
        if (status == PANDO_OK)
            status = check_life_co(session, node);
    }
    if (status == PANDO_OK)
        status = rt_spawn(session->loop, pool_session_ticker_task, session);
    session->ticker_done = status != PANDO_OK;
    rt_latch_lock(&pool->latch);
    list_push_back(&pool->sessions, &session->link);
    rt_latch_unlock(&pool->latch);
    if (status != PANDO_OK) {
        if (status == PANDO_FENCED)
            pool_set_fenced(pool);
        pool_session_close_co(session);
        return status;
    }
    *out = session;
    return PANDO_OK;
}

static bool any_task(const void *context)
{
    const struct pool_session *session = context;
    return !session->ticker_done || session->fencing > 0 || session->owed > 0 || session->held > 0;
}

void pool_session_close_co(struct pool_session *session)
{
    struct pool *pool = session->pool;

    pool_owed_settle_co(session);
    session->closing = true;
    rt_waitq_wake_all(&session->wake);
    (void)rt_waitq_while_co(&session->ended, any_task, session, RT_NEVER);
    pool_peers_close_co(session);
    for (uint16_t node = 0; node < pool->nodes; node++) {
        if (session->endpoints[node] == NULL)
            continue;
        if (fabric_broken(session->endpoints[node])) {
            stock_lost(pool->stock);
            atomic_store(&pool->unknown_left, true);
        }
        fabric_disconnect_co(session->endpoints[node]);
    }
    rt_latch_lock(&pool->latch);
    list_remove(&session->link);
    rt_latch_unlock(&pool->latch);
    session_free(session);
}

void pool_session_hold(struct pool_session *session)
{
    session->held++;
}

void pool_session_release(struct pool_session *session)
{
    pando_dassert(session->held > 0);
    if (--session->held == 0)
        rt_waitq_wake_all(&session->ended);
}

/* ---- lists of unknown outcome ---------------------------------------------------------------- */

bool pool_session_whole(const struct pool_session *session)
{
    bool whole = true;
    for (uint16_t node = 0; node < session->pool->nodes; node++)
        whole = whole && !fabric_broken(session->endpoints[node]);
    return whole;
}

void pool_session_settle(struct pool_session *session)
{
    uint64_t now_ns = rt_now_ns();
    if (pool_session_whole(session))
        atomic_store(&session->settled_ns, now_ns);
}

bool pool_settled(struct pool *pool, uint64_t since_ns)
{
    bool all = !atomic_load(&pool->unknown_left);
    rt_latch_lock(&pool->latch);
    list_for_each (link, &pool->sessions) {
        struct pool_session *session = container_of(link, struct pool_session, link);
        bool paused = atomic_load(&session->paused);
        bool settled = paused ? atomic_load(&session->paused_settled)
                              : atomic_load(&session->settled_ns) >= since_ns;
        if (!settled && !paused)
            rt_waitq_wake_all(&session->wake); /* it looks soon */
        all = all && settled;
    }
    rt_latch_unlock(&pool->latch);
    return all;
}

void pool_session_pause(struct pool_session *session)
{
    if (session->owed != 0)
        return;
    atomic_store(&session->paused_settled, pool_session_whole(session));
    atomic_store_explicit(&session->paused, true, memory_order_release);
}

void pool_session_resume(struct pool_session *session)
{
    atomic_store_explicit(&session->ticked_ns, rt_now_ns(), memory_order_release);
    atomic_store_explicit(&session->paused, false, memory_order_release);
}

struct pool *pool_session_pool(const struct pool_session *session)
{
    return session->pool;
}

struct fabric_endpoint *pool_endpoint(struct pool_session *session, uint16_t node)
{
    pando_assert(node < session->pool->nodes);
    return session->endpoints[node];
}

static bool is_set(const void *flag)
{
    return *(const bool *)flag;
}

enum pando_status pool_reconnect_co(struct pool_session *session, uint16_t node)
{
    struct fabric_endpoint *endpoint = pool_endpoint(session, node);
    enum pando_status status = PANDO_BROKEN;

    /* The member's own tasks come again by themselves, and must not sleep over the end of an outage. */
    bool own = session == session->pool->own && node == 0;

    /* One task reconnects, the others of this loop wait for it. */
    (void)rt_waitq_while_co(&session->connected, is_set, &session->reconnecting[node], RT_NEVER);
    if (pool_node_avoided(session->pool, node) && session != session->pool->own &&
        pool_partial_check_co(session, node) != PANDO_OK)
        return PANDO_BROKEN;
    /* The one that reconnected may have found that the lock table was lost. */
    if (pool_fenced(session->pool))
        return PANDO_FENCED;
    if (!fabric_broken(endpoint))
        return PANDO_OK;
    stock_lost(session->pool->stock); /* the fate of blocks that lists were about is unknown */
    session->reconnecting[node] = true;
    session->breaks += node == 0;
    for (int i = 0; i < RECONNECT_TRIES && !session->closing; i++) {
        status = fabric_reconnect_co(endpoint);
        if (status == PANDO_OK)
            status = check_life_co(session, node);
        if (status == PANDO_INVALID)
            status = pool_window_lost(session->pool, node);
        if (own || status == PANDO_OK || status == PANDO_FENCED || status == PANDO_DENIED)
            break;
        rt_sleep_co(RECONNECT_PAUSE_NS << i); /* nobody says when the node is back */
    }
    session->reconnecting[node] = false;
    rt_waitq_wake_all(&session->connected);
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    /* The process may have joined again meanwhile: this then was done in the new member's name. */
    if (status == PANDO_OK && pool_fenced(session->pool))
        status = PANDO_FENCED;
    return status;
}

enum pando_status pool_submit_co(struct pool_session *session, uint16_t node, struct fabric_op *ops,
                                 uint32_t count)
{
    if (node >= session->pool->nodes)
        return PANDO_RANGE;
    /* Also one that resigned: whoever recovers it must find things as they are now. */
    if (pool_fenced(session->pool))
        return PANDO_FENCED;
    /* An endpoint that another task is reconnecting may be whole already, and its node's lock table may
     * be lost: nothing is sent before that is known. */
    if (fabric_broken(session->endpoints[node]) || session->reconnecting[node] ||
        pool_node_avoided(session->pool, node)) {
        enum pando_status status = pool_reconnect_co(session, node);
        if (status != PANDO_OK)
            return status;
    }
    enum pando_status status = fabric_submit_co(session->endpoints[node], ops, count);
    if (status == PANDO_FENCED)
        pool_set_fenced(session->pool);
    return status;
}

enum pando_status pool_word_read_co(struct pool_session *session, fabric_address address,
                                    uint64_t *out)
{
    struct fabric_op read = fabric_read(fabric_address_offset(address), out, sizeof(*out));
    return pool_submit_co(session, pool_node_of(session->pool, address), &read, 1);
}

void pool_session_counters(const struct pool_session *session,
                           struct fabric_counters out[FABRIC_TARGETS])
{
    memset(out, 0, sizeof(struct fabric_counters) * FABRIC_TARGETS);
    for (uint16_t node = 0; node < session->pool->nodes; node++) {
        struct fabric_endpoint *endpoint = session->endpoints[node];
        fabric_counters_add(&out[fabric_endpoint_target(endpoint)],
                            fabric_endpoint_counters(endpoint));
    }
    pool_peers_counters(session, &out[FABRIC_COMPUTE]);
}

enum pando_status pool_node_stats_co(struct pool_session *session, uint16_t node,
                                     struct pool_node_stats *out)
{
    uint32_t size;
    enum pando_status status = pool_reconnect_co(session, node);
    if (status != PANDO_OK)
        return status;
    status = fabric_call_co(pool_endpoint(session, node), POOL_STATS, slice_of(NULL, 0), out,
                            sizeof(*out), &size);
    return status == PANDO_OK && size != sizeof(*out) ? PANDO_VERSION : status;
}
