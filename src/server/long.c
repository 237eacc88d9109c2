/*
 * long.c - making and replacing long values, with memory for pieces of them only. A new value is written
 * beside the old one and takes its place if that is still there.
 */
#include "server/long.h"

#include <stdlib.h>
#include <string.h>

#include "server/tries.h"

enum { PIECE_BYTES = STORE_PART_USUAL };

enum pando_status long_look_co(struct store_table *table, struct slice key, struct long_look *look)
{
    struct store_part part = {.to = look->stored, .capacity = sizeof(look->stored)};
    struct value value;
    look->there = look->found = false;
    look->reference = look->size = look->skip = look->expire_ms = 0;
    look->stored_size = 0;
    enum pando_status status = store_part_co(table, key, &part);
    if (status != PANDO_OK)
        return status == PANDO_NOT_FOUND && !store_table_dropped(table) ? PANDO_OK : status;
    if (!value_read(slice_of(look->stored, part.got), &value))
        return PANDO_VERSION;
    look->there = true;
    look->found = !value_expired(&value);
    look->expire_ms = value.expire_ms;
    look->skip = part.got - value.data.size;
    look->size = part.size - look->skip;
    look->reference = part.reference;
    look->stored_size = part.got;
    return part.reference == 0 && part.got != part.size ? PANDO_TOO_LARGE : PANDO_OK;
}

struct long_source long_source_of(struct store_table *table, struct slice key,
                                  const struct long_look *look)
{
    struct long_source source = {.size = look->found ? look->size : 0};
    if (look->found && look->reference != 0) {
        source.table = table;
        source.key = key;
        source.reference = look->reference;
        source.skip = look->skip;
    } else if (look->found) {
        source.bytes = slice_of(look->stored + look->skip, look->size);
    }
    return source;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Where [from, from + size) of the new value and a source that begins at `begin` overlap: that is read. */
static enum pando_status overlay_co(const struct long_source *source, uint64_t begin, uint64_t from,
                                    uint8_t *to, size_t size)
{
    uint64_t first = from > begin ? from : begin, end = from + size, last = begin + source->size;
    last = last < end ? last : end;
    if (first >= last)
        return PANDO_OK;
    if (source->table == NULL) {
        memcpy(to + (first - from), source->bytes.data + (first - begin), (size_t)(last - first));
        return PANDO_OK;
    }
    struct store_part part = {.offset = source->skip + (first - begin),
                              .to = to + (first - from),
                              .capacity = (size_t)(last - first),
                              .reference = source->reference};
    enum pando_status status = store_part_co(source->table, source->key, &part);
    return status == PANDO_OK && part.got != part.capacity ? PANDO_STALE : status;
}

static enum pando_status fill_co(struct store_stage *stage, const struct long_source *base,
                                 const struct long_source *piece, uint64_t offset, uint64_t size)
{
    uint8_t *bytes = malloc(PIECE_BYTES);
    enum pando_status status = bytes == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    for (uint64_t done = 0; done < size && status == PANDO_OK; done += PIECE_BYTES) {
        size_t step = size - done < PIECE_BYTES ? (size_t)(size - done) : PIECE_BYTES;
        memset(bytes, 0, step);
        status = overlay_co(base, 0, done, bytes, step);
        if (status == PANDO_OK)
            status = overlay_co(piece, offset, done, bytes, step);
        if (status == PANDO_OK)
            status = store_stage_add_co(stage, slice_of(bytes, step));
    }
    free(bytes);
    return status;
}

static enum pando_status seal_co(struct store_stage *stage, uint64_t expire_ms, uint64_t *reference)
{
    uint8_t head[VALUE_HEAD_EXPIRES];
    value_head_write(head, sizeof(head), expire_ms);
    return store_stage_seal_co(stage, slice_of(head, sizeof(head)), reference);
}

struct store_swap long_expecting(const struct long_look *look)
{
    struct store_swap swap = {.expect = !look->there           ? STORE_EXPECT_ABSENT
                                        : look->reference != 0 ? STORE_EXPECT_REFERENCE
                                                               : STORE_EXPECT_VALUE,
                              .expected = slice_of(look->stored, look->stored_size),
                              .expected_reference = look->reference};
    return swap;
}

/* Whether a value that could not be read is its key's all the same: then it was not freed, but is damaged. */
static bool still_refers_co(const struct long_source *base)
{
    struct long_look now;
    return base->table != NULL && base->reference != 0 &&
           long_look_co(base->table, base->key, &now) == PANDO_OK &&
           now.reference == base->reference;
}

enum pando_status long_replace_co(struct store_table *table, struct slice key,
                                  const struct long_look *look, const struct long_source *base,
                                  const struct long_source *piece, uint64_t offset,
                                  uint64_t expire_ms)
{
    uint64_t end = offset + piece->size, size = end > base->size ? end : base->size, reference;
    struct store_swap swap = long_expecting(look);
    struct store_stage *stage = NULL;
    if (size > VALUE_BYTES_MAX)
        return PANDO_TOO_LARGE;
    enum pando_status status = store_stage_open_co(table, key, size, false, &stage);
    if (status == PANDO_OK)
        status = fill_co(stage, base, piece, offset, size);
    if (status == PANDO_STALE && still_refers_co(base))
        status = PANDO_CORRUPT;
    if (status == PANDO_OK)
        status = seal_co(stage, expire_ms, &reference);
    if (status == PANDO_OK)
        status = store_stage_swap_co(stage, &swap);
    store_stage_close_co(stage);
    return status;
}

/* ---- long words ------------------------------------------------------------------------------ */

enum pando_status long_put_co(struct command_call *call, const struct long_look *look,
                              uint64_t expire_ms)
{
    struct incoming *incoming = call->incoming;
    struct store_swap swap = {.expect = STORE_EXPECT_NOTHING, .mode = STORE_UPSERT};
    enum pando_status status = long_seal_co(incoming, expire_ms);
    if (look != NULL)
        swap = long_expecting(look);
    return status == PANDO_OK ? store_stage_swap_co(incoming->stage, &swap) : status;
}

struct long_source long_source_of_word(const struct command_call *call, struct slice key)
{
    return (struct long_source){
        .table = keyspace_table(call, key),
        .key = key,
        .reference = call->incoming->reference,
        .skip = VALUE_HEAD_EXPIRES,
        .size = call->incoming->size,
    };
}

enum pando_status long_seal_co(struct incoming *incoming, uint64_t expire_ms)
{
    if (incoming->status != PANDO_OK)
        return incoming->status;
    if (incoming->reference != 0) /* what it is to say of its end may have changed meanwhile */
        return incoming->expire_ms == expire_ms ? PANDO_OK : PANDO_TIMEOUT;
    incoming->expire_ms = expire_ms;
    return seal_co(incoming->stage, expire_ms, &incoming->reference);
}

/* ---- removing -------------------------------------------------------------------------------- */

enum pando_status long_remove_co(struct store_table *table, struct slice key, bool only_expired,
                                 bool *removed)
{
    struct long_look look;
    enum pando_status status = PANDO_STALE;
    *removed = false;
    for (int i = 0; i < TRIES_TO_CHANGE && status == PANDO_STALE; i++) {
        status = long_look_co(table, key, &look);
        if (status != PANDO_OK || !look.there || (only_expired && look.found))
            return status;
        struct store_swap swap = long_expecting(&look);
        status = store_remove_co(table, key, &swap);
        status = status == PANDO_NOT_FOUND ? PANDO_STALE : status;
        *removed = status == PANDO_OK && (only_expired || look.found);
    }
    return status == PANDO_STALE ? PANDO_TIMEOUT : status;
}
