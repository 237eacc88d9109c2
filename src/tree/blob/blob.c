/*
 * blob.c - values that are too long for a leaf. A blob is written whole before a slot refers to it, and
 * never changed; blob_fmt.h has its bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "engine/engine.h"
#include "pool/block_fmt.h"
#include "pool/cell.h"
#include "tree/blob/blob.h"

enum {
    HEAD_BYTES = sizeof(struct blob_head),
    SEGMENT_HEAD = 32,
    SEGMENT_BYTES = 256 * 1024, /* four in a chunk */
    SEGMENT_VALUE = SEGMENT_BYTES - SEGMENT_HEAD,
    HEAD_VALUE_MAX = SEGMENT_BYTES - HEAD_BYTES,
    SEGMENTS_MAX = ENGINE_VALUE_MAX / SEGMENT_VALUE + 1,
    PIECE_BYTES = 256 * 1024,
    FIRST_READ = 1024, /* most blobs are short: one READ is enough */
};

_Static_assert(POOL_NODES_MAX <= 256, "a reference has 8 bits for the node");

static uint64_t head_size(uint64_t value_size, uint32_t *segments)
{
    *segments = 0;
    if (value_size <= HEAD_VALUE_MAX)
        return HEAD_BYTES + value_size;
    *segments = (uint32_t)((value_size + SEGMENT_VALUE - 1) / SEGMENT_VALUE);
    return HEAD_BYTES + (uint64_t)*segments * 8;
}

static enum pando_status write_pieces_co(struct pool_session *session, fabric_address address,
                                         const uint8_t *bytes, uint64_t size)
{
    enum pando_status status = PANDO_OK;
    for (uint64_t done = 0; done < size && status == PANDO_OK; done += PIECE_BYTES) {
        uint64_t piece = size - done < PIECE_BYTES ? size - done : PIECE_BYTES;
        struct fabric_op write =
            fabric_write(fabric_address_offset(address) + done, bytes + done, (uint32_t)piece);
        status = pool_submit_again_co(session, fabric_address_node(address), &write, 1);
    }
    return status;
}

static enum pando_status read_pieces_co(struct pool_session *session, fabric_address address,
                                        uint8_t *bytes, uint64_t size)
{
    enum pando_status status = PANDO_OK;
    for (uint64_t done = 0; done < size && status == PANDO_OK; done += PIECE_BYTES) {
        uint64_t piece = size - done < PIECE_BYTES ? size - done : PIECE_BYTES;
        struct fabric_op read =
            fabric_read(fabric_address_offset(address) + done, bytes + done, (uint32_t)piece);
        status = pool_submit_again_co(session, fabric_address_node(address), &read, 1);
    }
    return status == PANDO_RANGE ? PANDO_STALE : status;
}

static struct cell_place place_of(struct pool_session *session, uint16_t table,
                                  fabric_address address)
{
    return (struct cell_place){.pool = pool_id(pool_session_pool(session)),
                               .table = table,
                               .kind = BLOB_KIND,
                               .address = address};
}

/* ---- writing --------------------------------------------------------------------------------- */

/* What a blob says of the key it belongs to. */
static uint64_t key_word(struct slice key)
{
    return (uint64_t)key.size << 32 | crc32c(0, key.data, key.size);
}

static enum pando_status block_co(struct pool_session *session, uint16_t table, uint32_t bytes,
                                  struct blob_head *head)
{
    struct pool_block block = {0};
    struct pool_tenure tenure = {.state = POOL_BLOCK_LIVE,
                                 .kind = BLOB_KIND,
                                 .table = table,
                                 .holder = pool_identity(pool_session_pool(session))};
    enum pando_status status = pool_table_alloc_co(session, table, POOL_ANY_NODE, bytes, &block);
    if (status == PANDO_OK && (block.address & BLOB_REF_VERSION) != 0)
        status = PANDO_CORRUPT; /* no reference can name it */
    head->address = status == PANDO_OK ? block.address : 0;
    head->version = block.version + 1;
    head->tenure = pool_tenure_pack(tenure);
    return status;
}

static enum pando_status write_segment_co(struct pool_session *session, uint16_t table,
                                          const uint8_t *value, uint64_t size,
                                          struct pool_block *segment, uint8_t *buffer)
{
    struct blob_head head = {0};
    enum pando_status status = block_co(session, table, SEGMENT_BYTES, &head);
    if (status != PANDO_OK)
        return status;
    memcpy(buffer, &head, SEGMENT_HEAD);
    memcpy(buffer + SEGMENT_HEAD, value, size);
    *segment = (struct pool_block){.address = head.address, .version = head.version};
    return write_pieces_co(session, head.address, buffer, SEGMENT_HEAD + size);
}

/* Of a blob that could not be written whole: nobody knows of them. */
static void give_back_co(struct pool_session *session, const struct pool_block *block,
                         uint32_t bytes)
{
    if (block->address == 0)
        return;
    enum pando_status status = pool_free_co(session, block, bytes, false);
    (void)status; /* a block without a LIVE tenure is swept when this member is gone */
}

static enum pando_status write_head_co(struct pool_session *session, uint16_t table,
                                       struct blob_head *head, const struct pool_block *segments,
                                       struct slice value, uint8_t *buffer, uint64_t bytes)
{
    struct cell_place place = place_of(session, table, head->address);
    head->cell =
        cell_header(&place, (uint16_t)head->version, 0, &head->address, HEAD_BYTES - CELL_HEADER);
    memcpy(buffer, head, HEAD_BYTES);
    for (uint32_t i = 0; i < head->segments; i++) {
        blob_ref segment = blob_ref_make(segments[i].address, segments[i].version);
        memcpy(buffer + HEAD_BYTES + (size_t)i * sizeof(segment), &segment, sizeof(segment));
    }
    if (head->segments == 0)
        memcpy(buffer + HEAD_BYTES, value.data, value.size);
    return write_pieces_co(session, head->address, buffer, bytes);
}

enum pando_status blob_write_co(struct pool_session *session, uint16_t table, struct slice key,
                                struct slice value, blob_ref *blob)
{
    struct blob_head head = {
        .size = value.size, .crc = crc32c(0, value.data, value.size), .key = key_word(key)};
    struct pool_block segments[SEGMENTS_MAX] = {0};
    uint64_t bytes = head_size(value.size, &head.segments);
    uint8_t *buffer = malloc(head.segments > 0 ? SEGMENT_BYTES : bytes);
    enum pando_status status = buffer == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    for (uint32_t i = 0; i < head.segments && status == PANDO_OK; i++) {
        uint64_t done = (uint64_t)i * SEGMENT_VALUE;
        uint64_t size = value.size - done < SEGMENT_VALUE ? value.size - done : SEGMENT_VALUE;
        status = write_segment_co(session, table, value.data + done, size, &segments[i], buffer);
    }
    if (status == PANDO_OK)
        status = block_co(session, table, pool_block_bytes(bytes), &head);
    if (status == PANDO_OK)
        status = write_head_co(session, table, &head, segments, value, buffer, bytes);
    free(buffer);
    *blob = status == PANDO_OK ? blob_ref_make(head.address, head.version) : 0;
    if (status != PANDO_OK) {
        struct pool_block block = {.address = head.address, .version = head.version};
        give_back_co(session, &block, pool_block_bytes(bytes));
        for (uint32_t i = 0; i < head.segments; i++)
            give_back_co(session, &segments[i], SEGMENT_BYTES);
    }
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool head_ok(struct pool_session *session, uint16_t table, blob_ref blob,
                    const struct blob_head *head)
{
    fabric_address address = blob_ref_address(blob);
    struct cell_place place = place_of(session, table, address);
    uint32_t segments;
    if (!cell_valid(&place, head, HEAD_BYTES) ||
        cell_payload_bytes(head->cell) != HEAD_BYTES - CELL_HEADER || head->address != address ||
        !blob_ref_means(blob, head->version) || head->size > ENGINE_VALUE_MAX ||
        pool_tenure_unpack(head->tenure).state != POOL_BLOCK_LIVE)
        return false;
    (void)head_size(head->size, &segments);
    return segments == head->segments;
}

/* A blob's head and, of a short one, as much of the value as came with it. */
struct first_read {
    struct blob_head head;
    uint8_t bytes[FIRST_READ];
    uint32_t got;
};

static enum pando_status read_first_co(struct pool_session *session, uint16_t table, blob_ref blob,
                                       struct first_read *first)
{
    fabric_address address = blob_ref_address(blob);
    uint16_t node = fabric_address_node(address);
    struct fabric_op read = fabric_read(fabric_address_offset(address), first->bytes, FIRST_READ);
    enum pando_status status = pool_submit_again_co(session, node, &read, 1);
    first->got = FIRST_READ;
    if (status == PANDO_RANGE) { /* at the very end of the window */
        read.size = first->got = HEAD_BYTES;
        status = pool_submit_again_co(session, node, &read, 1);
    }
    if (status != PANDO_OK)
        return status == PANDO_RANGE ? PANDO_STALE : status;
    memcpy(&first->head, first->bytes, sizeof(first->head));
    return head_ok(session, table, blob, &first->head) ? PANDO_OK : PANDO_STALE;
}

static enum pando_status read_segments_co(struct pool_session *session,
                                          const struct blob_head *head,
                                          blob_ref segments[SEGMENTS_MAX])
{
    return read_pieces_co(session, head->address + HEAD_BYTES, (uint8_t *)segments,
                          head->segments * sizeof(segments[0]));
}

static enum pando_status read_value_co(struct pool_session *session, const struct first_read *first,
                                       uint8_t *value)
{
    const struct blob_head *head = &first->head;
    if (head->segments == 0) {
        uint64_t came = first->got - HEAD_BYTES;
        uint64_t here = came < head->size ? came : head->size;
        memcpy(value, first->bytes + HEAD_BYTES, here);
        return read_pieces_co(session, head->address + HEAD_BYTES + here, value + here,
                              head->size - here);
    }
    blob_ref segments[SEGMENTS_MAX];
    enum pando_status status = read_segments_co(session, head, segments);
    for (uint32_t i = 0; i < head->segments && status == PANDO_OK; i++) {
        uint64_t done = (uint64_t)i * SEGMENT_VALUE;
        uint64_t size = head->size - done < SEGMENT_VALUE ? head->size - done : SEGMENT_VALUE;
        status = read_pieces_co(session, blob_ref_address(segments[i]) + SEGMENT_HEAD, value + done,
                                size);
    }
    return status;
}

/* The value of a blob whose head has been read, into memory for all of it. Segments are not looked at one by
 * one: if any was used again meanwhile, the check of the whole value fails. */
static enum pando_status read_checked_co(struct pool_session *session,
                                         const struct first_read *first, uint8_t *value)
{
    enum pando_status status = read_value_co(session, first, value);
    if (status == PANDO_OK && crc32c(0, value, first->head.size) != first->head.crc)
        status = PANDO_STALE;
    return status;
}

static enum pando_status read_own_co(struct pool_session *session, uint16_t table, struct slice key,
                                     blob_ref blob, struct first_read *first)
{
    enum pando_status status = read_first_co(session, table, blob, first);
    return status == PANDO_OK && first->head.key != key_word(key) ? PANDO_STALE : status;
}

enum pando_status blob_read_co(struct pool_session *session, uint16_t table, struct slice key,
                               blob_ref blob, void *to, size_t capacity, size_t *size)
{
    struct first_read first;
    const struct blob_head *head = &first.head;
    enum pando_status status = read_own_co(session, table, key, blob, &first);

    if (status != PANDO_OK)
        return status;
    *size = head->size;
    if (capacity == 0)
        return PANDO_OK;
    /* All of it is read even for a part: only all of it can be checked. */
    uint8_t *value = capacity >= head->size ? to : malloc(head->size);
    if (value == NULL)
        return PANDO_NO_MEMORY;
    status = read_checked_co(session, &first, value);
    if (value != to) {
        if (status == PANDO_OK)
            memcpy(to, value, capacity);
        free(value);
    }
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

enum pando_status blob_glance_co(struct pool_session *session, uint16_t table, struct slice key,
                                 blob_ref blob, struct blob_buffer *buffer, struct slice *value)
{
    struct first_read first;
    enum pando_status status = read_own_co(session, table, key, blob, &first);

    if (status != PANDO_OK)
        return status;
    uint64_t came = first.head.segments > 0 ? 0 : first.got - HEAD_BYTES;
    uint64_t size = came < first.head.size ? came : first.head.size;
    if (!buffer_room(buffer, size))
        return PANDO_NO_MEMORY;
    if (size > 0)
        memcpy(buffer->bytes, first.bytes + HEAD_BYTES, size);
    *value = slice_of(buffer->bytes, size);
    return PANDO_OK;
}

enum pando_status blob_fetch_co(struct pool_session *session, uint16_t table, struct slice key,
                                blob_ref blob, struct blob_buffer *buffer, struct slice *value)
{
    struct first_read first;
    enum pando_status status = read_own_co(session, table, key, blob, &first);

    if (status != PANDO_OK)
        return status;
    if (!buffer_room(buffer, first.head.size))
        return PANDO_NO_MEMORY;
    *value = slice_of(buffer->bytes, first.head.size);
    return first.head.size == 0 ? PANDO_OK : read_checked_co(session, &first, buffer->bytes);
}

enum pando_status blob_missing(uint16_t table, blob_ref blob, blob_ref *last)
{
    if (blob != *last) {
        *last = blob;
        return PANDO_STALE;
    }
    log_error("a long value is damaged: its key cannot be read until it is written again",
              log_u64("table", table), log_u64("node", fabric_address_node(blob_ref_address(blob))),
              log_hex("offset", fabric_address_offset(blob_ref_address(blob))));
    return PANDO_CORRUPT;
}

/* ---- freeing --------------------------------------------------------------------------------- */

/* A segment may have been freed before, by somebody who died before it came to the head, and be in
 * use elsewhere by now. */
static enum pando_status free_segment_co(struct pool_session *session, uint16_t table, blob_ref ref)
{
    struct pool_block segment = {.address = blob_ref_address(ref)};
    uint64_t words[2]; /* version, tenure */
    struct fabric_op read = fabric_read(fabric_address_offset(segment.address) + POOL_BLOCK_VERSION,
                                        words, sizeof(words));
    enum pando_status status =
        pool_submit_again_co(session, fabric_address_node(segment.address), &read, 1);
    if (status != PANDO_OK)
        return status == PANDO_RANGE ? PANDO_CORRUPT : status;
    struct pool_tenure tenure = pool_tenure_unpack(words[1]);
    if (!blob_ref_means(ref, words[0]) || tenure.state != POOL_BLOCK_LIVE ||
        tenure.kind != BLOB_KIND || tenure.table != table)
        return PANDO_OK;
    segment.version = words[0];
    return pool_free_co(session, &segment, SEGMENT_BYTES, false);
}

enum pando_status blob_free_co(struct pool_session *session, uint16_t table, blob_ref blob)
{
    struct first_read first;
    const struct blob_head *head = &first.head;
    blob_ref refs[SEGMENTS_MAX];
    enum pando_status status = read_first_co(session, table, blob, &first);

    if (status != PANDO_OK)
        return status;
    if (head->segments > 0)
        status = read_segments_co(session, head, refs);
    for (uint32_t i = 0; i < head->segments && status == PANDO_OK; i++)
        status = free_segment_co(session, table, refs[i]);
    if (status != PANDO_OK)
        return status;
    struct pool_block block = {.address = head->address, .version = head->version};
    uint32_t segments;
    return pool_free_co(session, &block, pool_block_bytes(head_size(head->size, &segments)), false);
}

uint64_t blob_bytes(uint64_t value_size)
{
    uint32_t segments;
    uint64_t head = pool_block_bytes(head_size(value_size, &segments));
    return head + (uint64_t)segments * SEGMENT_BYTES;
}
