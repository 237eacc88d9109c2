/*
 * blob_int.h - what reading and writing blobs share.
 */
#ifndef BLOB_BLOB_INT_H
#define BLOB_BLOB_INT_H

#include "base/crc32c.h"
#include "blob/blob.h"
#include "pool/block_fmt.h"
#include "pool/cell.h"

enum {
    BLOB_HEAD_BYTES = sizeof(struct blob_head),
    BLOB_LIST_AT = BLOB_HEAD_BYTES + (int)sizeof(struct blob_prefix),
};

_Static_assert((int)ENGINE_PART_USUAL == (int)BLOB_SEGMENT_VALUE &&
                   (int)ENGINE_STAGE_HEAD_MAX == (int)BLOB_PREFIX_MAX,
               "engine.h");
_Static_assert(POOL_NODES_MAX <= 256, "a reference has 8 bits for the node");

/* What a blob says of the key it belongs to. */
static inline uint64_t blob_key_word(struct slice key)
{
    return (uint64_t)key.size << 32 | crc32c(0, key.data, key.size);
}

static inline uint32_t blob_segments_of(uint64_t body)
{
    return (uint32_t)((body + BLOB_SEGMENT_VALUE - 1) / BLOB_SEGMENT_VALUE);
}

/* Bytes of a head block with that many segments, or with a short value. */
static inline uint64_t blob_head_size(uint32_t segments, uint64_t value_size)
{
    return segments > 0 ? BLOB_LIST_AT + (uint64_t)segments * sizeof(blob_ref)
                        : BLOB_HEAD_BYTES + value_size;
}

/* Bytes of a segment's value. */
static inline uint32_t blob_segment_size(uint64_t body, uint32_t number)
{
    uint64_t left = body - (uint64_t)number * BLOB_SEGMENT_VALUE;
    return left < BLOB_SEGMENT_VALUE ? (uint32_t)left : BLOB_SEGMENT_VALUE;
}

/* Bytes of the block that a segment lies in: the last one is no larger than it has to be. */
static inline uint32_t blob_segment_block(uint64_t body, uint32_t number)
{
    return pool_block_bytes(BLOB_SEGMENT_HEAD + (uint64_t)blob_segment_size(body, number));
}

/* Bytes of all blocks of a value of `size` bytes, `body` of them in segments. */
static inline uint64_t blob_blocks(uint64_t size, uint64_t body, uint32_t segments)
{
    uint64_t bytes = pool_block_bytes(blob_head_size(segments, size));
    if (segments > 0)
        bytes +=
            (uint64_t)(segments - 1) * BLOB_SEGMENT_BYTES + blob_segment_block(body, segments - 1);
    return bytes;
}

static inline uint32_t blob_segment_crc(const struct pool_session *session, uint16_t table,
                                        const struct blob_head *head, fabric_address address,
                                        uint32_t number, const uint8_t *bytes, uint32_t size)
{
    struct blob_seal seal = {.pool = pool_id(pool_session_pool(session)),
                             .address = address,
                             .head_address = head->address,
                             .head_version = head->version,
                             .key = head->key,
                             .table = table,
                             .kind = BLOB_KIND,
                             .number = number,
                             .size = size};
    return crc32c(crc32c(0, &seal, sizeof(seal)), bytes, size);
}

/* The cell header that a head is to have. */
static inline uint64_t blob_head_cell(const struct pool_session *session, uint16_t table,
                                      const struct blob_head *head)
{
    struct cell_place place = {.pool = pool_id(pool_session_pool(session)),
                               .table = table,
                               .kind = BLOB_KIND,
                               .address = head->address};
    struct blob_head sealed = *head;
    if (head->segments > 0)
        sealed.tenure = 0;
    return cell_header(&place, (uint16_t)head->version, 0, &sealed.address,
                       BLOB_HEAD_BYTES - CELL_HEADER);
}

static inline struct pool_tenure blob_tenure(const struct pool_session *session, uint16_t table)
{
    return (struct pool_tenure){.state = POOL_BLOCK_LIVE,
                                .kind = BLOB_KIND,
                                .table = table,
                                .holder = pool_identity(pool_session_pool(session))};
}

#endif
