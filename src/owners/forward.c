/*
 * forward.c - asking the owner of a key. Long values are written and read here, one-sided: only their
 * addresses travel with a call. A write whose call had no answer may have been done: UNKNOWN.
 */
#include <stdlib.h>
#include <string.h>

#include "owners/call_fmt.h"
#include "owners/owners_int.h"

/* Each owner for itself: calls that others answer say nothing of it. */
static _Atomic uint64_t *unanswered(struct owners *owners, uint64_t owner)
{
    return &owners->unanswered_ns[map_identity(owner).member % OWNERS_ASKED];
}

/* An owner that lives and cannot be called is asked through the pool to give its keys to us. One that is just
 * not reached gets a lease for that, from when it was called: to learn that nobody answers may take longer. */
static void wish_co(struct owners_handle *self, uint64_t owner, uint64_t called_ns, bool mute)
{
    struct owners *owners = self->owners;
    uint64_t now_ns = rt_now_ns(), lease_ns = pool_lease_ns(owners->pool);
    uint64_t since_ns = atomic_load(unanswered(owners, owner)),
             wished_ns = atomic_load(&owners->wished_ns);

    if (since_ns == 0)
        atomic_store(unanswered(owners, owner), since_ns = called_ns);
    if ((mute || now_ns - since_ns > lease_ns) && now_ns - wished_ns > lease_ns / 8) {
        atomic_store(&owners->wished_ns, now_ns);
        pool_wish_co(self->session, map_identity(owner), owners->id);
    }
}

/* Whether to ask again, and perhaps another: the map is to be read anew. */
static struct step judge_co(struct owners_handle *self, uint64_t owner, uint64_t called_ns,
                            enum pando_status status, bool changes)
{
    switch (status) {
    case PANDO_OK:
        if (atomic_load_explicit(unanswered(self->owners, owner), memory_order_relaxed) != 0)
            atomic_store(unanswered(self->owners, owner), 0);
        return step_of(status);
    case PANDO_FENCED:
    case PANDO_NO_MEMORY:
    case PANDO_UNKNOWN:
    case PANDO_FULL:
    case PANDO_CORRUPT:
        return step_of(status);
    case PANDO_BROKEN:
    case PANDO_TIMEOUT:
        wish_co(self, owner, called_ns, false);
        atomic_store(&self->owners->map_stale, true);
        return changes ? step_of(PANDO_UNKNOWN) : step_to(STEP_RESTART);
    case PANDO_NOT_FOUND:
    case PANDO_UNSUPPORTED:
        wish_co(self, owner, called_ns, status == PANDO_UNSUPPORTED);
        atomic_store(&self->owners->map_stale, true);
        return step_to(STEP_RESTART);
    default: /* no longer the owner */
        atomic_store(&self->owners->map_stale, true);
        return step_to(STEP_RESTART);
    }
}

static struct step call_co(struct owners_handle *self, uint64_t owner, enum owners_method method,
                           struct slice body, void *reply, uint32_t capacity, uint32_t *size,
                           bool changes)
{
    uint64_t called_ns = rt_coarse_ns();
    uint32_t got = 0;
    owners_count(&self->owners->forwarded);
    enum pando_status status =
        pool_call_co(self->session, map_identity(owner), self->owners->id, (uint16_t)method, body,
                     reply, capacity, size != NULL ? size : &got);
    return judge_co(self, owner, called_ns, status, changes);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What the owner has, as it lies in its leaf; NOT_FOUND. In a buffer of the scratch. */
static struct step raw_get_co(struct owners_handle *self, uint64_t owner, struct slice key,
                              struct owners_scratch *scratch, struct slice *value, bool *blob)
{
    struct owners_get_reply head;
    uint64_t called_ns = rt_coarse_ns();
    uint32_t size = 0;
    enum pando_status status =
        pool_call_co(self->session, map_identity(owner), self->owners->id, OWNERS_CALL_GET, key,
                     scratch->bytes, POOL_INTENT_BYTES, &size);
    owners_count(&self->owners->forwarded);
    struct step step = judge_co(self, owner, called_ns, status, false);
    if (!step_ok(step))
        return step;
    if (size < sizeof(head) || size > POOL_INTENT_BYTES)
        return step_of(size == 0 ? PANDO_NOT_FOUND : PANDO_CORRUPT);
    memcpy(&head, scratch->bytes, sizeof(head));
    *value = slice_of(scratch->bytes + sizeof(head), size - sizeof(head));
    *blob = head.blob == 1;
    return step_of(head.blob > 1 || (*blob && value->size != 8) ? PANDO_CORRUPT : PANDO_OK);
}

struct step owners_read_blob_co(struct owners_handle *self, struct slice key, blob_ref ref,
                                struct engine_part *part, blob_ref *missing)
{
    enum pando_status status =
        blob_read_found_co(self->session, self->owners->id, key, ref, part, missing);
    return status == PANDO_STALE ? step_to(STEP_RESTART) : step_of(status);
}

void owners_take_part(struct engine_part *part, struct slice value)
{
    size_t left = part->offset < value.size ? value.size - part->offset : 0;
    part->reference = 0;
    part->size = value.size;
    part->got = left < part->capacity ? left : part->capacity;
    if (part->got > 0)
        memcpy(part->to, value.data + part->offset, part->got);
}

struct step owners_forward_get_co(struct owners_handle *self, uint64_t owner, struct slice key,
                                  struct engine_part *part, blob_ref *missing)
{
    struct owners_scratch *scratch = owners_scratch_take(self);
    struct slice found;
    bool blob;
    if (scratch == NULL)
        return step_of(PANDO_NO_MEMORY);
    struct step step = raw_get_co(self, owner, key, scratch, &found, &blob);

    if (step_ok(step) && blob) {
        blob_ref ref;
        memcpy(&ref, found.data, sizeof(ref));
        step = owners_read_blob_co(self, key, ref, part, missing);
    } else if (step_ok(step)) {
        owners_take_part(part, found);
    }
    owners_scratch_give(self, scratch);
    return step;
}

struct step owners_forward_leaf_co(struct owners_handle *self, uint64_t owner, struct slice key,
                                   bool before, void *to, uint32_t capacity, uint32_t *size)
{
    struct owners_leaf_request head = {.before = before};
    uint8_t body[sizeof(head) + ENGINE_KEY_MAX + 8];

    *size = 0;
    memcpy(body, &head, sizeof(head));
    memcpy(body + sizeof(head), key.data, key.size);
    return call_co(self, owner, OWNERS_CALL_LEAF, slice_of(body, sizeof(head) + key.size), to,
                   capacity, size, false);
}

/* ---- changing -------------------------------------------------------------------------------- */

/* An edit as it can be sent: what to do in either case. */
struct parcel {
    struct owners_modify_request head;
    struct slice value;
    struct slice expected;
    blob_ref blob; /* made for it, and to be freed if it is not used */
};

static enum pando_status pack_value_co(struct owners_handle *self, struct slice key,
                                       struct parcel *parcel)
{
    if (parcel->value.size <= self->owners->inline_max)
        return PANDO_OK;
    enum pando_status status =
        blob_write_co(self->session, self->owners->id, key, parcel->value, &parcel->blob);
    parcel->value = slice_of(&parcel->blob, sizeof(parcel->blob));
    parcel->head.blob = 1;
    return status;
}

static struct step send_co(struct owners_handle *self, uint64_t owner, struct slice key,
                           struct parcel *parcel, struct owners_scratch *scratch,
                           struct owners_modify_reply *reply)
{
    uint8_t *body = scratch->bytes;
    uint32_t size = 0;

    parcel->head.key_size = (uint32_t)key.size;
    parcel->head.value_size = (uint32_t)parcel->value.size;
    parcel->head.expected_size = (uint32_t)parcel->expected.size;
    size_t total = sizeof(parcel->head);
    /* What is expected may lie in this very buffer: it goes to its place first. */
    size_t behind = total + key.size + parcel->value.size;
    if (behind + parcel->expected.size > POOL_INTENT_BYTES ||
        behind + parcel->expected.size + 64 > FABRIC_CALL_BYTES_MAX)
        return step_of(PANDO_TOO_LARGE);
    if (parcel->expected.size > 0)
        memmove(body + behind, parcel->expected.data, parcel->expected.size);
    memcpy(body, &parcel->head, sizeof(parcel->head));
    memcpy(body + total, key.data, key.size);
    if (parcel->value.size > 0)
        memcpy(body + total + key.size, parcel->value.data, parcel->value.size);
    struct step step =
        call_co(self, owner, OWNERS_CALL_MODIFY, slice_of(body, behind + parcel->expected.size),
                reply, sizeof(*reply), &size, true);
    /* An answer that says less than it should: it may have been done. */
    return step_ok(step) && size != sizeof(*reply) ? step_of(PANDO_UNKNOWN) : step;
}

static bool stores(const struct parcel *parcel, const struct owners_modify_reply *reply)
{
    uint8_t what = reply->was_there ? parcel->head.if_present : parcel->head.if_absent;
    return !reply->mismatch && what == ENGINE_STORE;
}

/* Sends it, and frees the blob if nobody took it. */
static struct step deliver_co(struct owners_handle *self, uint64_t owner, struct slice key,
                              struct parcel *parcel, struct owners_scratch *scratch,
                              struct owners_modify_reply *reply)
{
    struct step step = step_of(pack_value_co(self, key, parcel));
    if (step_ok(step))
        step = send_co(self, owner, key, parcel, scratch, reply);
    bool kept = step.status == PANDO_UNKNOWN || (step_ok(step) && stores(parcel, reply));
    if (parcel->blob != 0 && !kept) {
        enum pando_status freed = blob_free_co(self->session, self->owners->id, parcel->blob);
        (void)freed;
    }
    return step;
}

/* Puts and deletes: what they do depends on no more than whether the key is there. */
static struct step blind_co(struct owners_handle *self, uint64_t owner, struct slice key,
                            const struct owners_edit *edit, struct owners_scratch *scratch)
{
    struct slice nothing = {0};
    struct engine_change present = edit->fn(edit->context, &nothing);
    struct engine_change absent = edit->fn(edit->context, NULL);
    struct parcel parcel = {
        .head = {.if_absent = (uint8_t)absent.what, .if_present = (uint8_t)present.what}};
    struct owners_modify_reply reply;

    if (present.what == ENGINE_STORE)
        parcel.value = present.value;
    if (absent.what == ENGINE_STORE)
        parcel.value = absent.value;
    struct step step = deliver_co(self, owner, key, &parcel, scratch, &reply);
    if (step_ok(step))
        (void)edit->fn(edit->context, reply.was_there ? &nothing : NULL); /* what it was told */
    return step;
}

/* The long value that `raw` refers to. Restarts: it is gone, so the key has another. */
static struct step fetch_old_co(struct owners_handle *self, struct slice key, struct slice raw,
                                const struct owners_edit *edit, struct owners_scratch *scratch,
                                struct slice *old)
{
    uint16_t table = self->owners->id;
    struct blob_buffer buffer = {0};
    uint64_t most = (edit->how & ENGINE_SHORT) != 0 ? ENGINE_SHORT_MAX : ENGINE_VALUE_MAX;
    blob_ref ref;
    memcpy(&ref, raw.data, sizeof(ref));
    enum pando_status status = blob_fetch_co(self->session, table, key, ref, most, &buffer, old);
    free(scratch->blob);
    scratch->blob = buffer.bytes;
    if (status == PANDO_STALE)
        status = blob_missing(table, ref, edit->missing);
    return status == PANDO_STALE ? step_to(STEP_RESTART) : step_of(status);
}

/* Anything else: what is there is fetched, and replaced only if it is still the same. */
static struct step conditional_co(struct owners_handle *self, uint64_t owner, struct slice key,
                                  const struct owners_edit *edit, struct owners_scratch *scratch)
{
    struct slice raw = {0}, old = {0};
    struct owners_modify_reply reply;
    bool blob = false;

    struct step step = raw_get_co(self, owner, key, scratch, &raw, &blob);
    bool there = step_ok(step);
    if (!there && step.status != PANDO_NOT_FOUND)
        return step;
    old = raw;
    if (there && blob) {
        old.size = 0;
        if ((edit->how & ENGINE_BLIND) == 0) {
            step = fetch_old_co(self, key, raw, edit, scratch, &old);
            if (!step_ok(step))
                return step;
        }
    }
    struct engine_change change = edit->fn(edit->context, there ? &old : NULL);
    if (change.what == ENGINE_KEEP || (change.what == ENGINE_REMOVE && !there))
        return step_of(PANDO_OK);
    struct parcel parcel = {.head = {.if_absent = (uint8_t)change.what,
                                     .if_present = (uint8_t)change.what,
                                     .expect = !there ? OWNERS_EXPECT_ABSENT
                                               : blob ? OWNERS_EXPECT_BLOB
                                                      : OWNERS_EXPECT_VALUE},
                            .expected = raw};
    if (change.what == ENGINE_STORE)
        parcel.value = change.value;
    step = deliver_co(self, owner, key, &parcel, scratch, &reply);
    return step_ok(step) && reply.mismatch ? step_to(STEP_RESTART) : step;
}

/* A swap: what it stores and expects is as it lies in a leaf. */
static struct step raw_co(struct owners_handle *self, uint64_t owner, struct slice key,
                          const struct owners_edit *edit, struct owners_scratch *scratch)
{
    struct slice nothing = {0};
    struct engine_change present = edit->fn(edit->context, &nothing);
    struct engine_change absent = edit->fn(edit->context, NULL);
    struct parcel parcel = {.head = {.if_absent = (uint8_t)absent.what,
                                     .if_present = (uint8_t)present.what,
                                     .blob = edit->raw_blob,
                                     .expect = (uint8_t)edit->expect},
                            .expected = edit->expected};
    struct owners_modify_reply reply;

    parcel.value = present.what == ENGINE_STORE ? present.value : absent.value;
    if (present.what != ENGINE_STORE && absent.what != ENGINE_STORE)
        parcel.value = slice_of(NULL, 0);
    struct step step = send_co(self, owner, key, &parcel, scratch, &reply);
    if (!step_ok(step))
        return step;
    *edit->mismatch = reply.mismatch != 0;
    (void)edit->fn(edit->context, reply.was_there ? &nothing : NULL); /* what it was told */
    return step;
}

struct step owners_forward_modify_co(struct owners_handle *self, uint64_t owner, struct slice key,
                                     const struct owners_edit *edit)
{
    const unsigned put = ENGINE_BLIND | ENGINE_ANYWHERE;
    struct owners_scratch *scratch = owners_scratch_take(self);
    if (scratch == NULL)
        return step_of(PANDO_NO_MEMORY);
    struct step step = edit->raw                  ? raw_co(self, owner, key, edit, scratch)
                       : (edit->how & put) == put ? blind_co(self, owner, key, edit, scratch)
                                                  : conditional_co(self, owner, key, edit, scratch);
    owners_scratch_give(self, scratch);
    return step;
}

/* ---- who takes over --------------------------------------------------------------------------- */

enum pando_status owners_ask_taker_co(struct owners_handle *self, uint64_t taker, struct slice key)
{
    struct owners_scratch *scratch = owners_scratch_take(self);
    uint32_t size;
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    owners_count(&self->owners->forwarded);
    enum pando_status status =
        pool_call_co(self->session, map_identity(taker), self->owners->id, OWNERS_CALL_GET, key,
                     scratch->bytes, POOL_INTENT_BYTES, &size);
    owners_scratch_give(self, scratch);
    return status;
}

/* ---- the rest -------------------------------------------------------------------------------- */

struct step owners_forward_flush_co(struct owners_handle *self, uint64_t owner)
{
    return call_co(self, owner, OWNERS_CALL_FLUSH, slice_of(NULL, 0), NULL, 0, NULL, false);
}

struct step owners_forward_give_co(struct owners_handle *self, uint64_t owner,
                                   const struct owners_range *range, uint64_t to)
{
    struct owners_give_request head = {.to = to,
                                       .low_size = (uint32_t)range->low.size,
                                       .high_size = range->no_high ? OWNERS_GIVE_NO_HIGH
                                                                   : (uint32_t)range->high.size};
    uint8_t body[sizeof(head) + 2 * ENGINE_KEY_MAX];
    size_t size = sizeof(head);

    memcpy(body, &head, sizeof(head));
    memcpy(body + size, range->low.data, range->low.size);
    size += range->low.size;
    if (!range->no_high) {
        memcpy(body + size, range->high.data, range->high.size);
        size += range->high.size;
    }
    return call_co(self, owner, OWNERS_CALL_GIVE, slice_of(body, size), NULL, 0, NULL, false);
}
