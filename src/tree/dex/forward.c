/*
 * forward.c - asking the owner of a key. Long values are written and read here, one-sided: only their
 * addresses travel with a call. A write whose call had no answer may have been done: UNKNOWN.
 */
#include <stdlib.h>
#include <string.h>

#include "tree/dex/call_fmt.h"
#include "tree/dex/dex_int.h"

/* An owner that lives and cannot be called is asked through the pool to give its keys to us. One that is just
 * not reached gets a lease for that. */
static void wish_co(struct dex *self, uint64_t owner, bool mute)
{
    struct dex_table *table = self->table;
    uint64_t now_ns = rt_now_ns(), lease_ns = pool_lease_ns(table->pool);
    uint64_t since_ns = atomic_load(&table->unanswered_ns),
             wished_ns = atomic_load(&table->wished_ns);

    if (since_ns == 0)
        atomic_store(&table->unanswered_ns, since_ns = now_ns);
    if ((mute || now_ns - since_ns > lease_ns) && now_ns - wished_ns > lease_ns / 8) {
        atomic_store(&table->wished_ns, now_ns);
        pool_wish_co(self->base.session, map_identity(owner), table->id);
    }
}

/* Whether to ask again, and perhaps another: the map is to be read anew. */
static enum pando_status judge_co(struct dex *self, uint64_t owner, enum pando_status status,
                                  bool changes)
{
    switch (status) {
    case PANDO_OK:
        if (atomic_load_explicit(&self->table->unanswered_ns, memory_order_relaxed) != 0)
            atomic_store(&self->table->unanswered_ns, 0);
        return status;
    case PANDO_FENCED:
    case PANDO_NO_MEMORY:
    case PANDO_UNKNOWN:
    case PANDO_FULL:
    case PANDO_CORRUPT:
        return status;
    case PANDO_BROKEN:
    case PANDO_TIMEOUT:
        atomic_store(&self->table->doubt, true);
        return changes ? PANDO_UNKNOWN : PANDO_AGAIN;
    case PANDO_NOT_FOUND:
    case PANDO_UNSUPPORTED:
        wish_co(self, owner, status == PANDO_UNSUPPORTED);
        atomic_store(&self->table->doubt, true);
        return PANDO_AGAIN;
    default: /* no longer the owner */
        atomic_store(&self->table->doubt, true);
        return PANDO_AGAIN;
    }
}

static enum pando_status call_co(struct dex *self, uint64_t owner, enum dex_method method,
                                 struct slice body, void *reply, uint32_t capacity, uint32_t *size,
                                 bool changes)
{
    uint32_t got = 0;
    dex_count(&self->table->stats.forwarded);
    enum pando_status status =
        pool_call_co(self->base.session, map_identity(owner), self->table->id, (uint16_t)method,
                     body, reply, capacity, size != NULL ? size : &got);
    return judge_co(self, owner, status, changes);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* What the owner has, as it lies in its leaf; NOT_FOUND. In a buffer of the scratch. */
static enum pando_status raw_get_co(struct dex *self, uint64_t owner, struct slice key,
                                    struct dex_scratch *scratch, struct slice *value, bool *blob)
{
    struct dex_get_reply head;
    uint32_t size = 0;
    enum pando_status status =
        pool_call_co(self->base.session, map_identity(owner), self->table->id, DEX_CALL_GET, key,
                     scratch->intent, POOL_INTENT_BYTES, &size);
    dex_count(&self->table->stats.forwarded);
    status = judge_co(self, owner, status, false);
    if (status != PANDO_OK)
        return status;
    if (size < sizeof(head) || size > POOL_INTENT_BYTES)
        return size == 0 ? PANDO_NOT_FOUND : PANDO_CORRUPT;
    memcpy(&head, scratch->intent, sizeof(head));
    *value = slice_of(scratch->intent + sizeof(head), size - sizeof(head));
    *blob = head.blob == 1;
    return head.blob > 1 || (*blob && value->size != 8) ? PANDO_CORRUPT : PANDO_OK;
}

enum pando_status dex_forward_get_co(struct dex *self, uint64_t owner, struct slice key,
                                     void *value, size_t capacity, size_t *size, blob_ref *missing)
{
    struct dex_scratch *scratch = dex_scratch_take(self);
    struct slice found;
    bool blob;
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = raw_get_co(self, owner, key, scratch, &found, &blob);

    if (status == PANDO_OK && blob) {
        blob_ref ref;
        memcpy(&ref, found.data, sizeof(ref));
        status = dex_read_blob_co(self, key, ref, value, capacity, size, missing);
    } else if (status == PANDO_OK) {
        *size = found.size;
        size_t stored = found.size < capacity ? found.size : capacity;
        if (stored > 0)
            memcpy(value, found.data, stored);
    }
    dex_scratch_give(self, scratch);
    return status;
}

enum pando_status dex_forward_leaf_co(struct dex *self, uint64_t owner, struct slice key,
                                      bool before, struct dex_scratch *scratch)
{
    struct dex_leaf_request head = {.before = before};
    uint8_t body[sizeof(head) + PAGE_KEY_ROOM + 8];
    uint32_t size = 0, page_bytes = self->table->layout.page_bytes;

    memcpy(body, &head, sizeof(head));
    memcpy(body + sizeof(head), key.data, key.size);
    enum pando_status status =
        call_co(self, owner, DEX_CALL_LEAF, slice_of(body, sizeof(head) + key.size), scratch->page,
                page_bytes, &size, false);
    if (status != PANDO_OK)
        return status;
    if (size != page_bytes ||
        !page_check(&self->table->layout, page_address(scratch->page), scratch->page))
        return PANDO_CORRUPT;
    return PANDO_OK;
}

/* ---- changing -------------------------------------------------------------------------------- */

/* An edit as it can be sent: what to do in either case. */
struct parcel {
    struct dex_modify_request head;
    struct slice value;
    struct slice expected;
    blob_ref blob; /* made for it, and to be freed if it is not used */
};

static enum pando_status pack_value_co(struct dex *self, struct slice key, struct parcel *parcel)
{
    if (parcel->value.size <= self->table->inline_max)
        return PANDO_OK;
    enum pando_status status =
        blob_write_co(self->base.session, self->table->id, key, parcel->value, &parcel->blob);
    parcel->value = slice_of(&parcel->blob, sizeof(parcel->blob));
    parcel->head.blob = 1;
    return status;
}

static enum pando_status send_co(struct dex *self, uint64_t owner, struct slice key,
                                 struct parcel *parcel, struct dex_scratch *scratch,
                                 struct dex_modify_reply *reply)
{
    uint8_t *body = scratch->intent;
    uint32_t size = 0;

    parcel->head.key_size = (uint32_t)key.size;
    parcel->head.value_size = (uint32_t)parcel->value.size;
    parcel->head.expected_size = (uint32_t)parcel->expected.size;
    size_t total = sizeof(parcel->head);
    /* What is expected may lie in this very buffer: it goes to its place first. */
    size_t behind = total + key.size + parcel->value.size;
    if (behind + parcel->expected.size > POOL_INTENT_BYTES ||
        behind + parcel->expected.size + 64 > FABRIC_CALL_BYTES_MAX)
        return PANDO_TOO_LARGE;
    if (parcel->expected.size > 0)
        memmove(body + behind, parcel->expected.data, parcel->expected.size);
    memcpy(body, &parcel->head, sizeof(parcel->head));
    memcpy(body + total, key.data, key.size);
    if (parcel->value.size > 0)
        memcpy(body + total + key.size, parcel->value.data, parcel->value.size);
    enum pando_status status =
        call_co(self, owner, DEX_CALL_MODIFY, slice_of(body, behind + parcel->expected.size), reply,
                sizeof(*reply), &size, true);
    /* An answer that says less than it should: it may have been done. */
    return status == PANDO_OK && size != sizeof(*reply) ? PANDO_UNKNOWN : status;
}

static bool stores(const struct parcel *parcel, const struct dex_modify_reply *reply)
{
    uint8_t what = reply->was_there ? parcel->head.if_present : parcel->head.if_absent;
    return !reply->mismatch && what == ENGINE_STORE;
}

/* Sends it, and frees the blob if nobody took it. */
static enum pando_status deliver_co(struct dex *self, uint64_t owner, struct slice key,
                                    struct parcel *parcel, struct dex_scratch *scratch,
                                    struct dex_modify_reply *reply)
{
    enum pando_status status = pack_value_co(self, key, parcel);
    if (status == PANDO_OK)
        status = send_co(self, owner, key, parcel, scratch, reply);
    bool kept = status == PANDO_UNKNOWN || (status == PANDO_OK && stores(parcel, reply));
    if (parcel->blob != 0 && !kept) {
        enum pando_status freed = blob_free_co(self->base.session, self->table->id, parcel->blob);
        (void)freed;
    }
    return status;
}

/* Puts and deletes: what they do depends on no more than whether the key is there. */
static enum pando_status blind_co(struct dex *self, uint64_t owner, struct slice key,
                                  const struct dex_edit *edit, struct dex_scratch *scratch)
{
    struct slice nothing = {0};
    struct engine_change present = edit->fn(edit->context, &nothing);
    struct engine_change absent = edit->fn(edit->context, NULL);
    struct parcel parcel = {
        .head = {.if_absent = (uint8_t)absent.what, .if_present = (uint8_t)present.what}};
    struct dex_modify_reply reply;

    if (present.what == ENGINE_STORE)
        parcel.value = present.value;
    if (absent.what == ENGINE_STORE)
        parcel.value = absent.value;
    enum pando_status status = deliver_co(self, owner, key, &parcel, scratch, &reply);
    if (status == PANDO_OK)
        (void)edit->fn(edit->context, reply.was_there ? &nothing : NULL); /* what it was told */
    return status;
}

/* The long value that `raw` refers to. AGAIN: it is gone, so the key has another. */
static enum pando_status fetch_old_co(struct dex *self, struct slice key, struct slice raw,
                                      const struct dex_edit *edit, struct dex_scratch *scratch,
                                      struct slice *old)
{
    uint16_t table = self->table->id;
    struct blob_buffer buffer = {0};
    blob_ref ref;
    memcpy(&ref, raw.data, sizeof(ref));
    enum pando_status status = blob_fetch_co(self->base.session, table, key, ref, &buffer, old);
    free(scratch->blob);
    scratch->blob = buffer.bytes;
    if (status == PANDO_STALE)
        status = blob_missing(table, ref, edit->missing);
    return status == PANDO_STALE ? PANDO_AGAIN : status;
}

/* Anything else: what is there is fetched, and replaced only if it is still the same. */
static enum pando_status conditional_co(struct dex *self, uint64_t owner, struct slice key,
                                        const struct dex_edit *edit, struct dex_scratch *scratch)
{
    struct slice raw = {0}, old = {0};
    struct dex_modify_reply reply;
    bool blob = false;

    enum pando_status status = raw_get_co(self, owner, key, scratch, &raw, &blob);
    bool there = status == PANDO_OK;
    if (!there && status != PANDO_NOT_FOUND)
        return status;
    old = raw;
    if (there && blob) {
        old.size = 0;
        if ((edit->how & ENGINE_BLIND) == 0) {
            status = fetch_old_co(self, key, raw, edit, scratch, &old);
            if (status != PANDO_OK)
                return status;
        }
    }
    struct engine_change change = edit->fn(edit->context, there ? &old : NULL);
    if (change.what == ENGINE_KEEP || (change.what == ENGINE_REMOVE && !there))
        return PANDO_OK;
    struct parcel parcel = {.head = {.if_absent = (uint8_t)change.what,
                                     .if_present = (uint8_t)change.what,
                                     .expect = !there ? DEX_EXPECT_ABSENT
                                               : blob ? DEX_EXPECT_BLOB
                                                      : DEX_EXPECT_VALUE},
                            .expected = raw};
    if (change.what == ENGINE_STORE)
        parcel.value = change.value;
    status = deliver_co(self, owner, key, &parcel, scratch, &reply);
    return status == PANDO_OK && reply.mismatch ? PANDO_AGAIN : status;
}

enum pando_status dex_forward_modify_co(struct dex *self, uint64_t owner, struct slice key,
                                        const struct dex_edit *edit)
{
    const unsigned put = ENGINE_BLIND | ENGINE_ANYWHERE;
    struct dex_scratch *scratch = dex_scratch_take(self);
    if (scratch == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = (edit->how & put) == put
                                   ? blind_co(self, owner, key, edit, scratch)
                                   : conditional_co(self, owner, key, edit, scratch);
    dex_scratch_give(self, scratch);
    return status;
}

/* ---- the rest -------------------------------------------------------------------------------- */

enum pando_status dex_forward_flush_co(struct dex *self, uint64_t owner)
{
    return call_co(self, owner, DEX_CALL_FLUSH, slice_of(NULL, 0), NULL, 0, NULL, false);
}

enum pando_status dex_forward_give_co(struct dex *self, uint64_t owner,
                                      const struct dex_range *range, uint64_t to)
{
    struct dex_give_request head = {.to = to,
                                    .low_size = (uint32_t)range->low.size,
                                    .high_size = range->no_high ? DEX_GIVE_NO_HIGH
                                                                : (uint32_t)range->high.size};
    uint8_t body[sizeof(head) + 2 * PAGE_KEY_ROOM];
    size_t size = sizeof(head);

    memcpy(body, &head, sizeof(head));
    memcpy(body + size, range->low.data, range->low.size);
    size += range->low.size;
    if (!range->no_high) {
        memcpy(body + size, range->high.data, range->high.size);
        size += range->high.size;
    }
    return call_co(self, owner, DEX_CALL_GIVE, slice_of(body, size), NULL, 0, NULL, false);
}
