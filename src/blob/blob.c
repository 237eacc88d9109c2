/*
 * blob.c - reading and freeing values that are too long for a leaf. A part is read and checked without
 * the rest; blob_fmt.h has the bytes.
 */
#include "blob/blob.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "blob/blob_int.h"

enum {
    FIRST_READ = 1024, /* most blobs are short: one READ is enough */
    LIST_PIECE = 64,   /* references that are read at a time */
};

static enum pando_status read_co(struct pool_session *session, fabric_address address, void *bytes,
                                 uint64_t size)
{
    struct fabric_op read = fabric_read(fabric_address_offset(address), bytes, (uint32_t)size);
    enum pando_status status = pool_read_list_co(session, address, &read, 1);
    return status == PANDO_RANGE ? PANDO_STALE : status;
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* A blob's head and what came with it: the prefix of a long value, or the beginning of a short one. */
struct first_read {
    struct blob_head head;
    struct blob_prefix prefix; /* of a long value */
    uint8_t bytes[FIRST_READ];
    uint32_t got;
};

static uint64_t body_of(const struct first_read *first)
{
    return first->head.size - first->prefix.size;
}

static bool prefix_ok(struct first_read *first)
{
    const struct blob_head *head = &first->head;
    struct blob_prefix *prefix = &first->prefix;
    *prefix = (struct blob_prefix){0};
    if (head->segments == 0)
        return head->size <= BLOB_SHORT_MAX;
    if (first->got < BLOB_LIST_AT)
        return false;
    memcpy(prefix, first->bytes + BLOB_HEAD_BYTES, sizeof(*prefix));
    return crc32c(0, prefix, sizeof(*prefix)) == head->crc && prefix->size <= BLOB_PREFIX_MAX &&
           prefix->size <= head->size && blob_segments_of(body_of(first)) == head->segments;
}

static bool head_ok(struct pool_session *session, uint16_t table, blob_ref blob, bool freed_too,
                    struct first_read *first)
{
    const struct blob_head *head = &first->head;
    struct pool_tenure tenure = pool_tenure_unpack(head->tenure);
    if (head->address != blob_ref_address(blob) || !blob_ref_means(blob, head->version) ||
        head->size > ENGINE_VALUE_MAX || head->cell != blob_head_cell(session, table, head))
        return false;
    bool live =
        tenure.state == POOL_BLOCK_LIVE && tenure.kind == BLOB_KIND && tenure.table == table;
    return (live || (freed_too && head->segments > 0)) && prefix_ok(first);
}

static enum pando_status read_first_co(struct pool_session *session, uint16_t table, blob_ref blob,
                                       bool freed_too, struct first_read *first)
{
    fabric_address address = blob_ref_address(blob);
    struct fabric_op read = fabric_read(fabric_address_offset(address), first->bytes, FIRST_READ);
    enum pando_status status = pool_read_list_co(session, address, &read, 1);
    first->got = FIRST_READ;
    if (status == PANDO_RANGE) { /* at the very end of the window: a short value */
        read.size = first->got = BLOB_HEAD_BYTES;
        status = pool_read_list_co(session, address, &read, 1);
    }
    if (status != PANDO_OK)
        return status == PANDO_RANGE ? PANDO_STALE : status;
    memcpy(&first->head, first->bytes, sizeof(first->head));
    if (first->got < BLOB_LIST_AT && first->head.segments > 0) {
        read.size = first->got = BLOB_LIST_AT;
        status = pool_read_list_co(session, address, &read, 1);
        if (status != PANDO_OK)
            return status == PANDO_RANGE ? PANDO_STALE : status;
        memcpy(&first->head, first->bytes, sizeof(first->head));
    }
    return head_ok(session, table, blob, freed_too, first) ? PANDO_OK : PANDO_STALE;
}

static enum pando_status read_own_co(struct pool_session *session, uint16_t table, struct slice key,
                                     blob_ref blob, bool freed_too, struct first_read *first)
{
    enum pando_status status = read_first_co(session, table, blob, freed_too, first);
    return status == PANDO_OK && first->head.key != blob_key_word(key) ? PANDO_STALE : status;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* References of a long value, a few at hand. */
struct list_read {
    uint32_t begin, count;
    blob_ref refs[LIST_PIECE];
};

/* What the first READ brought of the list is not read again. */
static void list_begin(struct list_read *list, const struct first_read *first)
{
    uint32_t came =
        first->got > BLOB_LIST_AT ? (first->got - BLOB_LIST_AT) / (uint32_t)sizeof(blob_ref) : 0;
    list->begin = 0;
    list->count = came < first->head.segments ? came : first->head.segments;
    list->count = list->count < LIST_PIECE ? list->count : LIST_PIECE;
    memcpy(list->refs, first->bytes + BLOB_LIST_AT, list->count * sizeof(list->refs[0]));
}

static enum pando_status list_at_co(struct list_read *list, struct pool_session *session,
                                    const struct blob_head *head, uint32_t number, blob_ref *ref)
{
    if (number < list->begin || number >= list->begin + list->count) {
        uint32_t left = head->segments - number;
        list->begin = number;
        list->count = 0;
        enum pando_status status =
            read_co(session, head->address + BLOB_LIST_AT + (uint64_t)number * sizeof(*ref),
                    list->refs, (left < LIST_PIECE ? left : LIST_PIECE) * sizeof(*ref));
        if (status != PANDO_OK)
            return status;
        list->count = left < LIST_PIECE ? left : LIST_PIECE;
    }
    *ref = list->refs[number - list->begin];
    return PANDO_OK;
}

/* ---- segments -------------------------------------------------------------------------------- */

/* Reads a segment's bytes, all of them, and checks them. */
static enum pando_status read_segment_co(struct pool_session *session, uint16_t table,
                                         const struct first_read *first, uint32_t number,
                                         blob_ref ref, uint8_t *bytes)
{
    struct blob_segment segment;
    fabric_address address = blob_ref_address(ref);
    uint64_t offset = fabric_address_offset(address);
    uint32_t size = blob_segment_size(body_of(first), number);
    struct fabric_op ops[2] = {fabric_read(offset, &segment, sizeof(segment)),
                               fabric_read(offset + sizeof(segment), bytes, size)};
    if (pool_bank(address) >= pool_banks(pool_session_pool(session)))
        return PANDO_STALE;
    enum pando_status status = pool_read_list_co(session, address, ops, 2);
    if (status != PANDO_OK)
        return status == PANDO_RANGE ? PANDO_STALE : status;
    uint32_t crc = blob_segment_crc(session, table, &first->head, address, number, bytes, size);
    return segment.crc == crc ? PANDO_OK : PANDO_STALE;
}

/* The part [offset, offset + size) of the segments' bytes, which is there. Whole segments are read to where
 * they belong, others beside it. */
static enum pando_status read_body_co(struct pool_session *session, uint16_t table,
                                      const struct first_read *first, uint64_t offset, uint8_t *to,
                                      size_t size)
{
    struct list_read list = {0};
    uint8_t *beside = NULL;
    enum pando_status status = PANDO_OK;

    list_begin(&list, first);
    while (size > 0 && status == PANDO_OK) {
        uint32_t number = (uint32_t)(offset / BLOB_SEGMENT_VALUE);
        uint32_t skip = (uint32_t)(offset % BLOB_SEGMENT_VALUE);
        uint32_t whole = blob_segment_size(body_of(first), number);
        size_t taken = size < whole - skip ? size : whole - skip;
        bool direct = taken == whole;
        blob_ref ref = 0;
        if (!direct && beside == NULL)
            beside = malloc(BLOB_SEGMENT_VALUE);
        if (!direct && beside == NULL)
            return PANDO_NO_MEMORY;
        status = list_at_co(&list, session, &first->head, number, &ref);
        if (status == PANDO_OK)
            status = read_segment_co(session, table, first, number, ref, direct ? to : beside);
        if (status == PANDO_OK && !direct)
            memcpy(to, beside + skip, taken);
        offset += taken;
        to += taken;
        size -= taken;
    }
    free(beside);
    return status;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A short value is read whole: only the whole can be checked. */
static enum pando_status read_short_co(struct pool_session *session, const struct first_read *first,
                                       uint8_t *value)
{
    const struct blob_head *head = &first->head;
    uint64_t came = first->got - BLOB_HEAD_BYTES;
    uint64_t here = came < head->size ? came : head->size;
    enum pando_status status = PANDO_OK;
    if (here > 0)
        memcpy(value, first->bytes + BLOB_HEAD_BYTES, here);
    if (here < head->size)
        status = read_co(session, head->address + BLOB_HEAD_BYTES + here, value + here,
                         head->size - here);
    if (status == PANDO_OK && crc32c(0, value, head->size) != head->crc)
        status = PANDO_STALE;
    return status;
}

static enum pando_status short_part_co(struct pool_session *session, const struct first_read *first,
                                       uint64_t offset, uint8_t *to, size_t size)
{
    if (offset == 0 && size == first->head.size)
        return read_short_co(session, first, to);
    uint8_t *value = malloc(first->head.size);
    if (value == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = read_short_co(session, first, value);
    if (status == PANDO_OK)
        memcpy(to, value + offset, size);
    free(value);
    return status;
}

/* A part that is there. */
static enum pando_status part_co(struct pool_session *session, uint16_t table,
                                 const struct first_read *first, uint64_t offset, uint8_t *to,
                                 size_t size)
{
    const struct blob_prefix *prefix = &first->prefix;
    if (first->head.segments == 0)
        return short_part_co(session, first, offset, to, size);
    if (offset < prefix->size) {
        size_t taken = size < prefix->size - offset ? size : prefix->size - offset;
        memcpy(to, prefix->bytes + offset, taken);
        offset += taken;
        to += taken;
        size -= taken;
    }
    return read_body_co(session, table, first, offset - prefix->size, to, size);
}

enum pando_status blob_read_co(struct pool_session *session, uint16_t table, struct slice key,
                               blob_ref blob, struct blob_part *part)
{
    struct first_read first;
    enum pando_status status = read_own_co(session, table, key, blob, part->freed_too, &first);

    if (status != PANDO_OK)
        return status;
    uint64_t whole = first.head.size;
    uint64_t left = part->offset < whole ? whole - part->offset : 0;
    part->size = whole;
    part->got = part->capacity < left ? part->capacity : left;
    return part->got == 0 ? PANDO_OK
                          : part_co(session, table, &first, part->offset, part->to, part->got);
}

enum pando_status blob_check_co(struct pool_session *session, uint16_t table, struct slice key,
                                blob_ref blob, uint64_t *pool_bytes)
{
    struct first_read first;
    enum pando_status status = read_own_co(session, table, key, blob, false, &first);
    if (status != PANDO_OK)
        return status;
    *pool_bytes = blob_blocks(first.head.size, body_of(&first), first.head.segments);
    uint64_t step = first.head.segments > 0 ? BLOB_SEGMENT_VALUE : first.head.size;
    uint8_t *bytes = malloc(step + 1);
    if (bytes == NULL)
        return PANDO_NO_MEMORY;
    if (first.head.segments == 0)
        status = read_short_co(session, &first, bytes);
    for (uint64_t at = 0; first.head.segments > 0 && at < body_of(&first) && status == PANDO_OK;
         at += step) {
        uint64_t left = body_of(&first) - at;
        status = read_body_co(session, table, &first, at, bytes, left < step ? left : step);
    }
    free(bytes);
    return status;
}

static bool buffer_room(struct blob_buffer *buffer, size_t size)
{
    if (size <= buffer->capacity)
        return true;
    uint8_t *grown = realloc(buffer->bytes, size);
    if (grown == NULL)
        return false;
    *buffer = (struct blob_buffer){.bytes = grown, .capacity = size};
    return true;
}

static enum pando_status buffer_fill(struct blob_buffer *buffer, const uint8_t *from, uint64_t size,
                                     struct slice *value)
{
    if (!buffer_room(buffer, size))
        return PANDO_NO_MEMORY;
    if (size > 0)
        memcpy(buffer->bytes, from, size);
    *value = slice_of(buffer->bytes, size);
    return PANDO_OK;
}

enum pando_status blob_glance_co(struct pool_session *session, uint16_t table, struct slice key,
                                 blob_ref blob, struct blob_buffer *buffer, struct slice *value)
{
    struct first_read first;
    enum pando_status status = read_own_co(session, table, key, blob, false, &first);

    if (status != PANDO_OK)
        return status;
    if (first.head.segments > 0)
        return buffer_fill(buffer, first.prefix.bytes, first.prefix.size, value);
    uint64_t size = first.got - BLOB_HEAD_BYTES;
    return buffer_fill(buffer, first.bytes + BLOB_HEAD_BYTES,
                       size < first.head.size ? size : first.head.size, value);
}

enum pando_status blob_front_co(struct pool_session *session, uint16_t table, struct slice key,
                                blob_ref blob, struct blob_buffer *buffer, struct slice *value)
{
    struct first_read first;
    enum pando_status status = read_own_co(session, table, key, blob, false, &first);

    if (status != PANDO_OK)
        return status;
    uint64_t size = first.head.size;
    if (first.head.segments > 0)
        return buffer_fill(buffer, first.prefix.bytes, first.prefix.size, value);
    if (!buffer_room(buffer, size))
        return PANDO_NO_MEMORY;
    *value = slice_of(buffer->bytes, size);
    return size == 0 ? PANDO_OK : part_co(session, table, &first, 0, buffer->bytes, size);
}

enum pando_status blob_fetch_co(struct pool_session *session, uint16_t table, struct slice key,
                                blob_ref blob, uint64_t most, struct blob_buffer *buffer,
                                struct slice *value)
{
    struct first_read first;
    enum pando_status status = read_own_co(session, table, key, blob, false, &first);

    if (status != PANDO_OK)
        return status;
    uint64_t size = first.head.size;
    *value = slice_of(NULL, size);
    if (size > most)
        return PANDO_RANGE;
    if (!buffer_room(buffer, size))
        return PANDO_NO_MEMORY;
    value->data = buffer->bytes;
    return size == 0 ? PANDO_OK : part_co(session, table, &first, 0, buffer->bytes, size);
}

enum pando_status blob_missing(uint16_t table, blob_ref blob, blob_ref *last)
{
    if (blob != *last) {
        *last = blob;
        return PANDO_STALE;
    }
    log_error("a long value is damaged: its key cannot be read until it is written again",
              log_u64("table", table), log_u64("bank", pool_bank(blob_ref_address(blob))),
              log_hex("offset", fabric_address_offset(blob_ref_address(blob))));
    return PANDO_CORRUPT;
}

/* ---- an engine's parts ----------------------------------------------------------------------- */

static enum pando_status read_part_co(struct pool_session *session, uint16_t table,
                                      struct slice key, bool freed_too, struct engine_part *part)
{
    struct blob_part piece = {
        .offset = part->offset, .to = part->to, .capacity = part->capacity, .freed_too = freed_too};
    enum pando_status status = blob_read_co(session, table, key, part->reference, &piece);
    part->size = piece.size;
    part->got = piece.got;
    return status;
}

enum pando_status blob_read_found_co(struct pool_session *session, uint16_t table, struct slice key,
                                     blob_ref blob, struct engine_part *part, blob_ref *missing)
{
    part->reference = blob;
    enum pando_status status = read_part_co(session, table, key, false, part);
    return status == PANDO_STALE ? blob_missing(table, blob, missing) : status;
}

enum pando_status blob_read_again_co(struct pool_session *session, uint16_t table, struct slice key,
                                     struct engine_part *part)
{
    return read_part_co(session, table, key, true, part);
}

uint64_t blob_pool_bytes(uint64_t size)
{
    uint64_t body = size > BLOB_SHORT_MAX ? size - BLOB_PREFIX_MAX : 0;
    return blob_blocks(size, body, blob_segments_of(body));
}

/* ---- freeing --------------------------------------------------------------------------------- */

/* A segment may have been freed before, by somebody who died before it came to the head, and be in
 * use elsewhere by now; and a reference may be damaged. Only a segment that names this value is freed. */
static enum pando_status free_segment_co(struct pool_session *session, uint16_t table,
                                         blob_ref head, blob_ref ref, uint32_t block_bytes)
{
    struct blob_segment segment;
    fabric_address address = blob_ref_address(ref);
    if (pool_bank(address) >= pool_banks(pool_session_pool(session)))
        return PANDO_OK;
    enum pando_status status = read_co(session, address, &segment, sizeof(segment));
    if (status != PANDO_OK)
        return status == PANDO_STALE ? PANDO_OK : status;
    struct pool_tenure tenure = pool_tenure_unpack(segment.tenure);
    if (segment.address != address || !blob_ref_means(ref, segment.version) ||
        tenure.state != POOL_BLOCK_LIVE || tenure.kind != BLOB_KIND || tenure.table != table ||
        segment.head != head)
        return PANDO_OK;
    struct pool_block block = {.address = address, .version = segment.version};
    return pool_free_co(session, &block, block_bytes, false);
}

enum pando_status blob_free_co(struct pool_session *session, uint16_t table, blob_ref blob)
{
    struct first_read first;
    struct list_read list = {0};
    const struct blob_head *head = &first.head;
    enum pando_status status = read_first_co(session, table, blob, false, &first);

    if (status != PANDO_OK)
        return status;
    list_begin(&list, &first);
    enum pando_status failed = PANDO_OK; /* of a segment: its node is away, but others are not */
    for (uint32_t i = 0; i < head->segments && status == PANDO_OK && failed != PANDO_FENCED; i++) {
        blob_ref ref = 0;
        status = list_at_co(&list, session, head, i, &ref);
        enum pando_status freed = PANDO_OK;
        if (status == PANDO_OK)
            freed =
                free_segment_co(session, table, blob, ref, blob_segment_block(body_of(&first), i));
        if (freed != PANDO_OK)
            failed = freed;
    }
    if (status != PANDO_OK || failed == PANDO_FENCED)
        return status != PANDO_OK ? status : failed;
    struct pool_block block = {.address = head->address, .version = head->version};
    status = pool_free_co(session, &block,
                          pool_block_bytes(blob_head_size(head->segments, head->size)), false);
    return status != PANDO_OK ? status : failed;
}
