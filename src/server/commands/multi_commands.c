/*
 * multi_commands.c - MGET, MSET, MSETNX: several keys at a time.
 */
#include <stdlib.h>

#include "server/keyspace.h"
#include "server/long.h"
#include "server/parallel.h"

/* ---- reading --------------------------------------------------------------------------------- */

struct mget {
    struct command_call *call;
    struct pipeline *pipeline;
    size_t first; /* word */
};

/* As GET would, into the slot's own reply. */
static bool mget_one_co(void *context, size_t index)
{
    struct mget *mget = context;
    struct slot *slot = &mget->pipeline->slots[index];
    slot->reply.resp3 = mget->call->reply->resp3;
    slot->reply.errors = 0;
    slot->call = *mget->call;
    slot->call.words = mget->call->words + mget->first + index - 1;
    slot->call.reply = &slot->reply;
    slot->call.streams = false; /* an error takes the place of all */
    command_get_co(&slot->call);
    return true; /* there are few, and each has a reply */
}

/* Errors cannot stand inside an array that clients take for values: the first becomes the reply. */
static bool take_slot(struct command_call *call, struct slot *slot, size_t mark)
{
    struct bytes *bytes = &slot->reply.bytes;
    bool failed = slot->reply.errors > 0;
    if (failed)
        reply_rewind(call->reply, mark);
    call->reply->overflow |= slot->reply.overflow;
    call->reply->errors += slot->reply.errors;
    reply_raw(call->reply, bytes_front(bytes), bytes_used(bytes));
    bytes->head = bytes->tail = 0;
    slot->reply.overflow = false;
    if (bytes->capacity > OUTPUT_BYTES)
        bytes_fini(bytes);
    return !failed;
}

static void mget_overlapped_co(struct command_call *call, struct pipeline *pipeline, size_t mark)
{
    struct mget mget = {.call = call, .pipeline = pipeline};
    bool going = true;
    for (mget.first = 1; mget.first < call->count && going; mget.first += PIPELINE_WIDTH) {
        size_t left = call->count - mget.first;
        size_t count = left < PIPELINE_WIDTH ? left : PIPELINE_WIDTH;
        parallel_co(call->thread, count, mget_one_co, &mget);
        for (size_t i = 0; i < count; i++) {
            if (going)
                going = take_slot(call, &pipeline->slots[i], mark);
            else
                pipeline->slots[i].reply.bytes.head = pipeline->slots[i].reply.bytes.tail = 0;
        }
    }
}

void command_mget_co(struct command_call *call)
{
    size_t mark = reply_mark(call->reply);
    unsigned errors = call->reply->errors;
    struct pipeline *pipeline = call->thread->overlap ? pipeline_take(call->thread) : NULL;

    reply_array(call->reply, call->count - 1);
    if (pipeline != NULL) {
        mget_overlapped_co(call, pipeline, mark);
        pipeline_give(call->thread, pipeline);
        return;
    }
    struct command_call one = *call;
    one.streams = false;
    for (size_t i = 1; i < call->count; i++) {
        size_t before = reply_mark(call->reply);
        one.words = call->words + i - 1;
        command_get_co(&one);
        if (call->reply->errors == errors)
            continue;
        /* The error alone. */
        size_t size = reply_mark(call->reply) - before;
        uint8_t *front = bytes_front(&call->reply->bytes);
        memmove(front + mark, front + before, size);
        reply_rewind(call->reply, mark + size);
        return;
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

struct mset {
    struct command_call *call;
    const uint32_t *pairs; /* which pairs to write: word of the key */
    size_t count;
    bool only_new;
    bool *placed;
    bool clash; /* one was there */
    uint64_t changed;
    enum pando_status status;
};

/* The last of pairs with one key is the one that counts. Returns how many are left. */
static size_t last_of_each(const struct command_call *call, uint32_t *pairs)
{
    size_t count = (call->count - 1) / 2, slots = 16, kept = 0;
    while (slots < count * 2)
        slots *= 2;
    uint32_t *seen = calloc(slots, sizeof(*seen));
    if (seen == NULL)
        return 0;
    for (size_t i = count; i-- > 0;) {
        uint32_t word = (uint32_t)(1 + 2 * i);
        struct slice key = call_word(call, word);
        uint64_t hash = key.size;
        for (size_t j = 0; j < key.size; j++)
            hash = (hash ^ key.data[j]) * UINT64_C(0x100000001b3);
        size_t slot = (hash ^ hash >> 29) & (slots - 1);
        while (seen[slot] != 0 && !slice_equal(call_word(call, seen[slot]), key))
            slot = (slot + 1) & (slots - 1);
        if (seen[slot] == 0) {
            seen[slot] = word;
            pairs[kept++] = word;
        }
    }
    free(seen);
    return kept;
}

static bool mset_one_co(void *context, size_t index)
{
    struct mset *mset = context;
    struct slice key = call_word(mset->call, mset->pairs[index]);
    struct value_stored stored;
    enum pando_status status =
        value_store_begin(&stored, call_word(mset->call, mset->pairs[index] + 1), 0);
    if (status == PANDO_OK)
        status = store_put_co(keyspace_table(mset->call, key), key, stored.bytes, STORE_UPSERT);
    value_store_end(&stored);
    if (status == PANDO_OK)
        mset->changed++;
    else
        mset->status = failure_of(mset->status, status);
    return mset->status == PANDO_OK;
}

static bool mset_begin(struct command_call *call, struct mset *mset, uint32_t **pairs)
{
    if (call->count % 2 == 0) {
        reply_errorf(call->reply, "ERR wrong number of arguments for '%s' command",
                     call->command->name);
        return false;
    }
    for (size_t i = 1; i < call->count; i += 2) {
        if (!call_key_fits(call, call_word(call, i)))
            return false;
        if (call_word(call, i + 1).size > VALUE_BYTES_MAX) {
            reply_failure(call->reply, PANDO_TOO_LARGE);
            return false;
        }
    }
    *pairs = malloc((call->count / 2 + 1) * sizeof(**pairs));
    *mset = (struct mset){.call = call, .pairs = *pairs};
    mset->count = *pairs == NULL ? 0 : last_of_each(call, *pairs);
    if (mset->count > 0)
        return true;
    free(*pairs);
    reply_failure(call->reply, PANDO_NO_MEMORY);
    return false;
}

void command_mset_co(struct command_call *call)
{
    struct mset mset;
    uint32_t *pairs;
    if (!mset_begin(call, &mset, &pairs))
        return;
    parallel_co(call->thread, mset.count, mset_one_co, &mset);
    free(pairs);
    if (mset.status == PANDO_OK)
        reply_ok(call->reply);
    else
        reply_failure_after(call->reply, mset.status, mset.changed);
}

static bool msetnx_look_co(void *context, size_t index)
{
    struct mset *mset = context;
    struct slice key = call_word(mset->call, mset->pairs[index]);
    struct glance glance;
    enum pando_status status;
    if (keyspace_glance_co(keyspace_table(mset->call, key), key, &glance, &status))
        mset->clash = true;
    else if (status != PANDO_NOT_FOUND)
        mset->status = status;
    return mset->status == PANDO_OK && !mset->clash;
}

struct place {
    struct slice bytes;
    bool placed;
};

static struct store_change place_new(void *context, const struct slice *old)
{
    struct place *place = context;
    struct value value;
    place->placed = old == NULL || (value_read(*old, &value) && value_expired(&value));
    return place->placed ? (struct store_change){.what = STORE_REPLACE, .value = place->bytes}
                         : edit_keep();
}

static struct store_change take_back(void *context, const struct slice *old)
{
    const struct place *place = context;
    return old != NULL && slice_equal(*old, place->bytes) ? edit_remove() : edit_keep();
}

/* Places one pair, or takes it back. */
static void msetnx_change_co(struct mset *mset, size_t index, bool back)
{
    struct slice key = call_word(mset->call, mset->pairs[index]);
    struct slice data = call_word(mset->call, mset->pairs[index] + 1);
    size_t head = value_head_size(data, 0);
    uint8_t *bytes = malloc(head + data.size + 1);
    enum pando_status status = PANDO_NO_MEMORY;

    if (bytes != NULL) {
        struct place place = {.bytes = slice_of(bytes, head + data.size)};
        value_head_write(bytes, head, 0);
        memcpy(bytes + head, data.data, data.size);
        struct store_table *table = keyspace_table(mset->call, key);
        store_modify_fn change = back ? take_back : place_new;
        bool expired = false;
        status = store_modify_co(table, key, STORE_SHORT, change, &place);
        if (status == PANDO_RANGE && !back &&
            long_remove_co(table, key, true, &expired) == PANDO_OK && expired)
            status = store_modify_co(table, key, STORE_SHORT, change, &place);
        if (status == PANDO_RANGE) { /* it is longer than ours */
            status = PANDO_OK;
            place.placed = false;
        }
        if (!back)
            mset->placed[index] = status == PANDO_OK && place.placed;
        else
            mset->changed += status != PANDO_OK; /* and not taken back */
        mset->clash |= !back && status == PANDO_OK && !place.placed;
    }
    free(bytes);
    if (status != PANDO_OK)
        mset->status = failure_of(mset->status, status);
}

void command_msetnx_co(struct command_call *call)
{
    struct mset mset;
    uint32_t *pairs;
    if (!mset_begin(call, &mset, &pairs))
        return;
    mset.placed = calloc(mset.count, sizeof(*mset.placed));
    if (mset.placed == NULL)
        mset.status = PANDO_NO_MEMORY;
    else
        parallel_co(call->thread, mset.count, msetnx_look_co, &mset);
    size_t done = 0;
    while (mset.status == PANDO_OK && !mset.clash && done < mset.count)
        msetnx_change_co(&mset, done++, false);
    /* Somebody else was quicker with one of them: all or none. */
    for (size_t i = 0; (mset.clash || mset.status != PANDO_OK) && i < done; i++) {
        if (mset.placed[i])
            msetnx_change_co(&mset, i, true);
    }
    free(mset.placed);
    free(pairs);
    if (mset.status != PANDO_OK)
        reply_failure_after(call->reply, mset.status, mset.changed);
    else
        reply_integer(call->reply, !mset.clash);
}
