/*
 * answers.c - calls of other members to this one.
 *
 * They come in on loops of the fabric's, where the member has no session. The first call on a loop
 * opens one, which stays until the member leaves. Who answers is looked up by table, and counted: it
 * does not go away while a call of it runs.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "pool/member_lists.h"
#include "pool/members_int.h"
#include "pool/memnode.h"
#include "pool/peer_fmt.h"
#include "pool/pool_int.h"

_Static_assert((int)POOL_PEER_METHOD >= (int)POOL_METHODS, "a memory node has other methods");
_Static_assert((int)POOL_CALL_BYTES_MAX ==
                   FABRIC_CALL_BYTES_MAX - (int)sizeof(struct pool_peer_request),
               "the rest of a call");

struct pool_answer {
    struct list link;
    uint16_t table;
    atomic_uint running; /* changed under the latch */
    pool_answer_fn fn;
    void *context;
};

/* A loop of the fabric's that answers. */
struct answering {
    struct rt_message message; /* that it is to close */
    struct list link;
    struct rt_loop *loop;
    struct pool_session *session; /* NULL: the last try to open one failed */
    bool opening;
    struct rt_waitq opened; /* or it could not be */
    struct rt_countdown *closed;
};

/* ---- who answers ----------------------------------------------------------------------------- */

static struct list *bucket_of(struct pool *pool, uint16_t table)
{
    return &pool->answers[table % POOL_ANSWER_BUCKETS];
}

/* With the latch held. */
static struct pool_answer *find(struct pool *pool, uint16_t table)
{
    list_for_each (link, bucket_of(pool, table)) {
        struct pool_answer *answer = container_of(link, struct pool_answer, link);
        if (answer->table == table)
            return answer;
    }
    return NULL;
}

enum pando_status pool_answer(struct pool *pool, uint16_t table, pool_answer_fn fn, void *context)
{
    struct pool_answer *answer = calloc(1, sizeof(*answer));
    if (answer == NULL)
        return PANDO_NO_MEMORY;
    answer->table = table;
    answer->fn = fn;
    answer->context = context;
    rt_latch_lock(&pool->latch);
    bool taken = find(pool, table) != NULL;
    if (!taken)
        list_push_back(bucket_of(pool, table), &answer->link);
    rt_latch_unlock(&pool->latch);
    if (taken)
        free(answer);
    return taken ? PANDO_EXISTS : PANDO_OK;
}

static bool runs(const void *answer)
{
    return atomic_load(&((const struct pool_answer *)answer)->running) > 0;
}

void pool_answer_stop_co(struct pool *pool, uint16_t table)
{
    rt_latch_lock(&pool->latch);
    struct pool_answer *answer = find(pool, table);
    if (answer != NULL)
        list_remove(&answer->link);
    rt_latch_unlock(&pool->latch);
    if (answer != NULL)
        (void)rt_waitq_while_co(&pool->answered, runs, answer, RT_NEVER);
    free(answer);
}

static struct pool_answer *enter(struct pool *pool, uint16_t table)
{
    rt_latch_lock(&pool->latch);
    struct pool_answer *answer = find(pool, table);
    if (answer != NULL)
        atomic_fetch_add(&answer->running, 1);
    rt_latch_unlock(&pool->latch);
    return answer;
}

/* The answer may be gone when this returns; the pool is not, its callers see to that. */
static void leave(struct pool *pool, struct pool_answer *answer)
{
    rt_latch_lock(&pool->latch);
    bool awaited = list_empty(&answer->link); /* by pool_answer_stop_co */
    bool last = atomic_fetch_sub(&answer->running, 1) == 1;
    rt_latch_unlock(&pool->latch);
    if (last && awaited)
        rt_waitq_wake_all(&pool->answered);
}

enum pando_status pool_answer_self_co(struct pool_session *session, uint16_t table,
                                      struct fabric_request *request)
{
    struct pool_answer *answer = enter(session->pool, table);
    if (answer == NULL)
        return PANDO_STALE;
    enum pando_status status = answer->fn(answer->context, session, request);
    pando_assert(request->reply_size <= POOL_CALL_BYTES_MAX);
    leave(session->pool, answer);
    return status;
}

/* ---- a session of the loop ------------------------------------------------------------------- */

/* This loop's, made if it is not there; NULL: no memory. */
static struct answering *answering_of_loop(struct pool *pool)
{
    struct rt_loop *loop = rt_loop_self();
    rt_latch_lock(&pool->latch);
    list_for_each (link, &pool->answering) {
        struct answering *found = container_of(link, struct answering, link);
        if (found->loop == loop) {
            rt_latch_unlock(&pool->latch);
            return found;
        }
    }
    rt_latch_unlock(&pool->latch);
    /* Nobody else looks for this loop meanwhile: nothing suspends here. */
    struct answering *answering = calloc(1, sizeof(*answering));
    if (answering == NULL)
        return NULL;
    answering->loop = loop;
    rt_waitq_init(&answering->opened);
    rt_latch_lock(&pool->latch);
    list_push_back(&pool->answering, &answering->link);
    rt_latch_unlock(&pool->latch);
    return answering;
}

static bool opening(const void *answering)
{
    return ((const struct answering *)answering)->opening;
}

static struct pool_session *session_of_loop_co(struct pool *pool)
{
    struct answering *answering = answering_of_loop(pool);
    if (answering == NULL)
        return NULL;
    (void)rt_waitq_while_co(&answering->opened, opening, answering, RT_NEVER);
    if (answering->session != NULL)
        return answering->session;
    struct pool_session *session;
    answering->opening = true;
    enum pando_status status = pool_session_open_co(pool, &session);
    /* The process may have joined again meanwhile: it then connected in another's name. */
    if (status == PANDO_OK && pool_fenced(pool)) {
        pool_session_close_co(session);
        status = PANDO_FENCED;
    }
    if (status == PANDO_OK)
        answering->session = session;
    else
        log_warn("cannot answer another member: no session", log_status("status", status));
    answering->opening = false;
    rt_waitq_wake_all(&answering->opened);
    return answering->session;
}

static void close_task(void *arg)
{
    struct answering *answering = arg;
    pool_session_close_co(answering->session);
    rt_countdown_done(answering->closed);
}

static void close_arrives(struct rt_message *message)
{
    struct answering *answering = container_of(message, struct answering, message);
    /* No stack now: there will be one when some other task has ended. */
    if (rt_spawn(answering->loop, close_task, answering) != PANDO_OK)
        rt_loop_post(answering->loop, message);
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* OK: it is for this member. */
static enum pando_status check(const struct pool *pool, const struct fabric_request *request,
                               struct pool_peer_request *head)
{
    if (request->body.size < sizeof(*head))
        return PANDO_INVALID;
    memcpy(head, request->body.data, sizeof(*head));
    if (head->magic != POOL_PEER_MAGIC || head->zero != 0)
        return PANDO_INVALID;
    if (request->from.member == 0)
        return PANDO_DENIED; /* nobody yet: it could not be shut out */
    if (head->member != pool->identity.member || head->incarnation != pool->identity.incarnation ||
        pool_fenced(pool))
        return PANDO_NOT_FOUND;
    return PANDO_OK;
}

/* What is no table's. */
static enum pando_status answer_own(struct pool *pool, uint16_t method)
{
    if (method == POOL_OWN_FENCES) {
        pool_fences_wake(pool);
        return PANDO_OK;
    }
    return method == POOL_OWN_BIND ? PANDO_OK : PANDO_UNSUPPORTED;
}

static enum pando_status answer_co(struct pool *pool, struct fabric_request *request)
{
    struct pool_peer_request head;
    enum pando_status status = check(pool, request, &head);
    if (status != PANDO_OK)
        return status;
    if (head.table == 0)
        return answer_own(pool, head.method);
    struct pool_answer *answer = enter(pool, head.table);
    if (answer == NULL)
        return PANDO_STALE;
    struct pool_session *session = session_of_loop_co(pool);
    if (session == NULL) {
        status = PANDO_AGAIN;
    } else {
        struct fabric_request inner = {
            .from = request->from,
            .method = head.method,
            .body = slice_of(request->body.data + sizeof(head), request->body.size - sizeof(head)),
            .reply = request->reply + sizeof(struct pool_peer_reply),
        };
        status = answer->fn(answer->context, session, &inner);
        pando_assert(inner.reply_size <= POOL_CALL_BYTES_MAX);
        request->reply_size = inner.reply_size;
        /* Its own end, not the caller's; and how far it came is not known. */
        if (status == PANDO_FENCED)
            status = PANDO_BROKEN;
    }
    leave(pool, answer);
    return status;
}

static enum pando_status serve(void *context, struct fabric_request *request)
{
    struct pool_peer_reply reply = {.magic = POOL_PEER_MAGIC};
    reply.status = (uint16_t)answer_co(context, request);
    memcpy(request->reply, &reply, sizeof(reply));
    request->reply_size += (uint32_t)sizeof(reply);
    return PANDO_OK;
}

/* ---- from joining to leaving ----------------------------------------------------------------- */

void pool_answers_init(struct pool *pool)
{
    for (unsigned i = 0; i < POOL_ANSWER_BUCKETS; i++)
        list_init(&pool->answers[i]);
    list_init(&pool->answering);
    rt_waitq_init(&pool->answered);
    pool->answerer =
        (struct fabric_answerer){.method = POOL_PEER_METHOD, .handler = serve, .context = pool};
}

void pool_answers_begin(struct pool *pool)
{
    fabric_answer(pool->fabric, &pool->answerer);
}

/* Nobody is told any more that this is the member: whoever was told loses the endpoint. */
static void end_window_co(struct pool *pool)
{
    if (pool_own_window_bytes(pool) == 0)
        return;
    enum pando_status status = fabric_window_renew_co(pool->fabric);
    if (status != PANDO_OK && status != PANDO_UNSUPPORTED)
        log_warn("others may still be connected to this member's window",
                 log_status("status", status));
}

void pool_answers_end_co(struct pool *pool)
{
    struct list *link;
    fabric_answer_end_co(pool->fabric, &pool->answerer);
    end_window_co(pool);
    /* No call is running and none comes: the lists are ours alone. */
    while ((link = list_pop_front(&pool->answering)) != NULL) {
        struct answering *answering = container_of(link, struct answering, link);
        if (answering->session != NULL) {
            struct rt_countdown closed;
            rt_countdown_init(&closed, 1);
            answering->closed = &closed;
            answering->message.deliver = close_arrives;
            rt_loop_post(answering->loop, &answering->message);
            rt_countdown_wait_co(&closed);
        }
        free(answering);
    }
    for (unsigned i = 0; i < POOL_ANSWER_BUCKETS; i++) {
        while ((link = list_pop_front(&pool->answers[i])) != NULL)
            free(container_of(link, struct pool_answer, link));
    }
}
