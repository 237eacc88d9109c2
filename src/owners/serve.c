/*
 * serve.c - what this process does for others: operations on keys that it owns, and changes of
 * ownership. Requests are checked like everything from outside.
 */
#include <string.h>

#include "owners/call_fmt.h"
#include "owners/owners_int.h"

/* The handle that answers in a session, or any that answers; NULL: there is none. */
static struct owners_handle *serving(struct owners *owners, const struct pool_session *session)
{
    struct owners_handle *found = NULL;
    rt_latch_lock(&owners->handles_latch);
    list_for_each (link, &owners->handles) {
        struct owners_handle *handle = container_of(link, struct owners_handle, link);
        if (handle->serves && (session == NULL || handle->session == session))
            found = handle;
    }
    rt_latch_unlock(&owners->handles_latch);
    return found;
}

/* One handle for every session that answers. */
static struct owners_handle *handle_for(struct owners *owners, struct pool_session *session)
{
    struct owners_handle *found = serving(owners, session);
    if (found == NULL && owners->engine->attach(owners, session, &found) == PANDO_OK)
        found->serves = true;
    return found;
}

/* Enters if the key is ours, perhaps since a moment ago. STALE: it is not. CORRUPT: the map may say
 * that it is, but what has to be read first is damaged. */
static enum pando_status enter_ours_co(struct owners_handle *self, struct slice key,
                                       struct owners_guard *guard)
{
    uint64_t owner;
    for (int i = 0; i < 2; i++) {
        owners_enter(self, key, guard);
        if (owners_mine(self->owners, guard->part))
            return PANDO_OK;
        bool frozen = guard->part->frozen;
        owners_leave(self, guard);
        if (i > 0 || frozen)
            break;
        atomic_store(&self->owners->map_stale, true);
        struct step step = owners_claim_co(self, key, &owner);
        if (step.status == PANDO_CORRUPT)
            return step.status;
        if (!step_ok(step) || owner != owners_self(self->owners))
            break;
    }
    return PANDO_STALE;
}

static bool key_sound(const struct owners_handle *self, size_t size)
{
    const struct engine_shape *shape = self->owners->shape;
    return size <= shape->key_max && (shape->key_size == 0 || size == shape->key_size);
}

static enum pando_status serve_get_co(struct owners_handle *self, struct fabric_request *request)
{
    struct owners_get_reply head = {0};
    struct owners_guard guard;
    size_t size = 0;
    bool blob;

    if (!key_sound(self, request->body.size))
        return PANDO_INVALID;
    enum pando_status status = enter_ours_co(self, request->body, &guard);
    if (status != PANDO_OK)
        return status;
    status = self->owners->engine->get_co(self, guard.part, request->body, &blob,
                                          request->reply + sizeof(head),
                                          FABRIC_CALL_BYTES_MAX - sizeof(head) - 64, &size);
    owners_leave(self, &guard);
    if (status == PANDO_NOT_FOUND)
        return PANDO_OK; /* an empty reply */
    if (status != PANDO_OK)
        return status;
    head.blob = blob;
    memcpy(request->reply, &head, sizeof(head));
    request->reply_size = (uint32_t)(sizeof(head) + size);
    return PANDO_OK;
}

/* ---- changes --------------------------------------------------------------------------------- */

struct forwarded {
    struct owners_modify_request head;
    struct slice value, expected;
    struct owners_modify_reply reply;
};

static struct engine_change run_forwarded(void *context, const struct slice *old)
{
    struct forwarded *forwarded = context;
    uint8_t what = old != NULL ? forwarded->head.if_present : forwarded->head.if_absent;
    forwarded->reply.was_there = old != NULL;
    return (struct engine_change){.what = what, .value = forwarded->value};
}

static bool forwarded_read(const struct owners_handle *self, struct slice body,
                           struct forwarded *forwarded, struct slice *key)
{
    const struct engine_shape *shape = self->owners->shape;
    struct owners_modify_request *head = &forwarded->head;
    if (body.size < sizeof(*head))
        return false;
    memcpy(head, body.data, sizeof(*head));
    size_t rest = body.size - sizeof(*head);
    if (head->key_size > rest || head->value_size > rest - head->key_size ||
        head->expected_size != rest - head->key_size - head->value_size ||
        !key_sound(self, head->key_size) || head->if_absent > ENGINE_REMOVE ||
        head->if_present > ENGINE_REMOVE || head->expect > OWNERS_EXPECT_BLOB || head->blob > 1)
        return false;
    *key = slice_of(body.data + sizeof(*head), head->key_size);
    forwarded->value = slice_of(key->data + key->size, head->value_size);
    forwarded->expected = slice_of(forwarded->value.data + head->value_size, head->expected_size);
    if (head->if_absent != ENGINE_STORE && head->if_present != ENGINE_STORE)
        return true;
    if (head->blob)
        return self->owners->blobs && head->value_size == 8;
    return shape->value_size != 0 ? head->value_size == shape->value_size
                                  : head->value_size <= self->owners->inline_max;
}

static enum pando_status serve_modify_co(struct owners_handle *self, struct fabric_request *request)
{
    struct forwarded forwarded = {0};
    struct owners_guard guard;
    struct slice key;

    if (!forwarded_read(self, request->body, &forwarded, &key))
        return PANDO_INVALID;
    struct owners_edit edit = {.how = ENGINE_BLIND,
                               .fn = run_forwarded,
                               .context = &forwarded,
                               .raw = true,
                               .raw_blob = forwarded.head.blob == 1,
                               .expect = forwarded.head.expect,
                               .expected = forwarded.expected,
                               .mismatch = &forwarded.reply.mismatch};
    enum pando_status status = enter_ours_co(self, key, &guard);
    if (status != PANDO_OK)
        return status;
    status = self->owners->engine->modify_co(self, guard.part, key, &edit);
    owners_leave(self, &guard);
    if (status != PANDO_OK)
        return status == PANDO_BROKEN || status == PANDO_TIMEOUT ? PANDO_STALE : status;
    memcpy(request->reply, &forwarded.reply, sizeof(forwarded.reply));
    request->reply_size = sizeof(forwarded.reply);
    return PANDO_OK;
}

/* ---- leaves, ownership ----------------------------------------------------------------------- */

static enum pando_status serve_leaf_co(struct owners_handle *self, struct fabric_request *request)
{
    struct owners_leaf_request head;
    struct owners_guard guard;

    if (request->body.size < sizeof(head) || request->body.size > sizeof(head) + ENGINE_KEY_MAX + 8)
        return PANDO_INVALID;
    memcpy(&head, request->body.data, sizeof(head));
    struct slice key =
        slice_of(request->body.data + sizeof(head), request->body.size - sizeof(head));
    owners_enter(self, key, &guard);
    const struct map_partition *part = map_partition_of(guard.map, key, head.before != 0);
    uint8_t low[ENGINE_KEY_MAX];
    struct slice in = head.before ? slice_of(low, part->low.size) : key;
    memcpy(low, part->low.data, part->low.size);
    owners_leave(self, &guard);
    enum pando_status status = enter_ours_co(self, in, &guard);
    if (status != PANDO_OK)
        return status;
    /* It may have been cut meanwhile: leaves of others are never looked at. */
    if (guard.part != map_partition_of(guard.map, key, head.before != 0)) {
        owners_leave(self, &guard);
        return PANDO_STALE;
    }
    status = self->owners->engine->leaf_co(self, key, head.before != 0, request->reply,
                                           &request->reply_size);
    owners_leave(self, &guard);
    return status;
}

static enum pando_status serve_give_co(struct owners_handle *self, struct fabric_request *request)
{
    struct owners_give_request head;
    struct owners_range range = {0};

    if (request->body.size < sizeof(head))
        return PANDO_INVALID;
    memcpy(&head, request->body.data, sizeof(head));
    size_t rest = request->body.size - sizeof(head);
    range.no_high = (head.high_size & OWNERS_GIVE_NO_HIGH) != 0;
    uint32_t high_size = range.no_high ? 0 : head.high_size;
    if (head.low_size > rest || high_size != rest - head.low_size ||
        head.low_size > self->owners->shape->key_max || high_size > self->owners->shape->key_max)
        return PANDO_INVALID;
    range.low = slice_of(request->body.data + sizeof(head), head.low_size);
    range.high = slice_of(range.low.data + head.low_size, high_size);
    return step_status(owners_give_co(self, &range, head.to));
}

/* It cannot call us: all that is ours shall be its. What has just come stays for half a lease: two that cannot be called
 * would else do nothing but hand all keys to and fro, and an operation that waits for them might never find them here.
 * The other wishes again. */
static enum pando_status serve_wish_co(struct owners_handle *self, struct fabric_identity from)
{
    struct owners *owners = self->owners;
    struct owners_range all = {.no_high = true};
    uint64_t owner;

    /* Keys may have become ours that nobody could tell us of. */
    atomic_store(&owners->map_stale, true);
    struct step step = owners_claim_co(self, all.low, &owner);
    if (!step_ok(step))
        return step_status(step);
    uint64_t received_ns = atomic_load(&owners->received_ns);
    if (received_ns != 0 && rt_now_ns() - received_ns < pool_lease_ns(owners->pool) / 2)
        return PANDO_AGAIN;
    return step_status(owners_give_quietly_co(self, &all, map_member(from)));
}

static enum pando_status answer_co(void *context, struct pool_session *session,
                                   struct fabric_request *request)
{
    struct owners *owners = context;
    struct owners_handle *self = handle_for(owners, session);
    enum pando_status status = PANDO_INVALID;

    if (self == NULL)
        return PANDO_NO_MEMORY;
    request->reply_size = 0;
    switch (request->method) {
    case OWNERS_CALL_GET:
        status = serve_get_co(self, request);
        break;
    case OWNERS_CALL_MODIFY:
        status = serve_modify_co(self, request);
        break;
    case OWNERS_CALL_LEAF:
        status = serve_leaf_co(self, request);
        break;
    case OWNERS_CALL_FLUSH:
        status = owners->engine->flush_co(self, NULL);
        break;
    case OWNERS_CALL_GIVE:
        status = serve_give_co(self, request);
        break;
    case OWNERS_CALL_TAKE: {
        uint64_t owner;
        atomic_store(&owners->map_stale, true);
        status = key_sound(self, request->body.size) || request->body.size == 0
                     ? step_status(owners_claim_co(self, request->body, &owner))
                     : PANDO_INVALID;
        break;
    }
    case OWNERS_CALL_PING: {
        uint64_t load = atomic_load(&owners->load);
        memcpy(request->reply, &load, sizeof(load));
        request->reply_size = sizeof(load);
        status = PANDO_OK;
        break;
    }
    case POOL_WISH_METHOD:
        status = serve_wish_co(self, request->from);
        break;
    default:
        break;
    }
    return status;
}

enum pando_status owners_serve(struct owners *owners)
{
    return pool_answer(owners->pool, owners->id, answer_co, owners);
}

void owners_serve_stop_co(struct owners *owners)
{
    pool_answer_stop_co(owners->pool, owners->id);
    /* Nobody answers any more: their handles go. */
    struct owners_handle *found;
    while ((found = serving(owners, NULL)) != NULL)
        owners->engine->detach(found);
}
