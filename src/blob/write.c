/*
 * write.c - writing values that are too long for a leaf: short ones with one WRITE, long ones a segment at
 * a time. Nothing refers to a value before all of it is in the pool.
 *
 * State after the writer's death:
 *   before blob_finish_co   blocks with FREE tenures of the dead: the sweep takes them back
 *   in blob_finish_co       LIVE segments that nothing refers to, until the table is dropped
 *   after it                the same, with a head; or the value, if a leaf refers to it
 */
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "blob/blob_int.h"

enum { FLIPS_MAX = 64 };

static enum pando_status block_co(struct pool_session *session, uint16_t table, uint32_t bytes,
                                  struct pool_block *out)
{
    struct pool_block block = {0};
    enum pando_status status = pool_table_alloc_co(session, table, POOL_ANY_NODE, bytes, &block);
    if (status == PANDO_OK && (block.address & BLOB_REF_VERSION) != 0)
        status = PANDO_CORRUPT; /* no reference can name it */
    *out = (struct pool_block){0};
    if (status == PANDO_OK)
        *out = (struct pool_block){.address = block.address, .version = block.version + 1};
    return status;
}

/* Gives back a block of a value that was not finished: nobody knows of it. */
static void give_back_co(struct pool_session *session, const struct pool_block *block,
                         uint32_t bytes)
{
    if (block->address == 0)
        return;
    enum pando_status status = pool_free_co(session, block, bytes, false);
    (void)status; /* a block without a LIVE tenure is swept when this member is gone */
}

static enum pando_status write_co(struct pool_session *session, fabric_address address,
                                  const void *bytes, uint64_t size)
{
    struct fabric_op write = fabric_write(fabric_address_offset(address), bytes, (uint32_t)size);
    return pool_write_unseen_co(session, address, &write, 1);
}

/* ---- short values ---------------------------------------------------------------------------- */

/* A value in two pieces, in one block. */
static enum pando_status write_short_co(struct pool_session *session, uint16_t table, uint64_t key,
                                        struct slice first, struct slice rest, blob_ref *blob)
{
    uint64_t size = first.size + rest.size, bytes = BLOB_HEAD_BYTES + size;
    struct blob_head head = {.size = size, .key = key};
    struct pool_block block = {0};
    uint8_t *buffer = malloc(bytes);
    enum pando_status status = buffer == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    if (status == PANDO_OK)
        status = block_co(session, table, pool_block_bytes(bytes), &block);
    if (status == PANDO_OK) {
        head.crc = crc32c(crc32c(0, first.data, first.size), rest.data, rest.size);
        head.address = block.address;
        head.version = block.version;
        head.tenure = pool_tenure_pack(blob_tenure(session, table));
        head.cell = blob_head_cell(session, table, &head);
        memcpy(buffer, &head, BLOB_HEAD_BYTES);
        if (first.size > 0)
            memcpy(buffer + BLOB_HEAD_BYTES, first.data, first.size);
        if (rest.size > 0)
            memcpy(buffer + BLOB_HEAD_BYTES + first.size, rest.data, rest.size);
        status = write_co(session, block.address, buffer, bytes);
    }
    free(buffer);
    *blob = status == PANDO_OK ? blob_ref_make(block.address, block.version) : 0;
    if (status != PANDO_OK)
        give_back_co(session, &block, pool_block_bytes(bytes));
    return status;
}

/* ---- long ones ------------------------------------------------------------------------------- */

enum pando_status blob_begin_co(struct blob_writer *writer, struct pool_session *session,
                                uint16_t table, struct slice key, uint64_t body)
{
    struct pool_block block = {0};
    *writer = (struct blob_writer){
        .session = session, .table = table, .key = blob_key_word(key), .body = body};
    if (body > ENGINE_VALUE_MAX)
        return PANDO_TOO_LARGE;
    if (body + BLOB_PREFIX_MAX > BLOB_SHORT_MAX)
        writer->segments = blob_segments_of(body);
    if (writer->segments == 0)
        return PANDO_OK;
    /* What cannot fit would take all that is free on its way, and keep it until its grace period is over. */
    if (blob_blocks(body, body, writer->segments) > pool_capacity(pool_session_pool(session)))
        return PANDO_FULL;
    writer->head_bytes = blob_head_size(writer->segments, 0);
    writer->blocks = calloc(writer->segments, sizeof(*writer->blocks));
    if (writer->blocks == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status =
        block_co(session, table, pool_block_bytes(writer->head_bytes), &block);
    if (status != PANDO_OK) {
        blob_forget(writer);
        return status;
    }
    writer->head = (struct blob_head){.address = block.address,
                                      .version = block.version,
                                      .tenure = pool_tenure_pack(blob_tenure(session, table)),
                                      .segments = writer->segments,
                                      .key = writer->key};
    return PANDO_OK;
}

/* Writes the next segment from these bytes. */
static enum pando_status write_segment_co(struct blob_writer *writer, const uint8_t *bytes)
{
    uint32_t number = writer->done, size = blob_segment_size(writer->body, number);
    struct pool_tenure mine = {.state = POOL_BLOCK_FREE,
                               .holder = pool_identity(pool_session_pool(writer->session))};
    struct pool_block *block = &writer->blocks[number];
    enum pando_status status =
        block_co(writer->session, writer->table, blob_segment_block(writer->body, number), block);
    if (status != PANDO_OK)
        return status;
    writer->done++;
    struct blob_segment segment = {
        .address = block->address,
        .version = block->version,
        .tenure = pool_tenure_pack(mine),
        .head = blob_ref_make(writer->head.address, writer->head.version),
        .crc = blob_segment_crc(writer->session, writer->table, &writer->head, block->address,
                                number, bytes, size),
        .number = number};
    uint64_t offset = fabric_address_offset(block->address);
    struct fabric_op ops[2] = {fabric_write(offset, &segment, sizeof(segment)),
                               fabric_write(offset + sizeof(segment), bytes, size)};
    return pool_write_unseen_co(writer->session, block->address, ops, 2);
}

static bool buffer_ready(struct blob_writer *writer)
{
    if (writer->buffer == NULL)
        writer->buffer =
            malloc(writer->segments > 0 ? (size_t)BLOB_SEGMENT_VALUE : writer->body + 1);
    return writer->buffer != NULL;
}

enum pando_status blob_append_co(struct blob_writer *writer, struct slice piece)
{
    enum pando_status status = PANDO_OK;
    if (piece.size > writer->body - writer->written)
        return PANDO_INVALID;
    while (piece.size > 0 && status == PANDO_OK) {
        uint32_t room = writer->segments > 0 ? blob_segment_size(writer->body, writer->done)
                                             : (uint32_t)writer->body;
        bool whole = writer->segments > 0 && writer->filled == 0 && piece.size >= room;
        size_t taken = piece.size < room - writer->filled ? piece.size : room - writer->filled;
        if (whole) {
            status = write_segment_co(writer, piece.data);
        } else {
            if (!buffer_ready(writer))
                return PANDO_NO_MEMORY;
            memcpy(writer->buffer + writer->filled, piece.data, taken);
            writer->filled += (uint32_t)taken;
            if (writer->segments > 0 && writer->filled == room) {
                status = write_segment_co(writer, writer->buffer);
                writer->filled = 0;
            }
        }
        writer->written += taken;
        piece = slice_of(piece.data + taken, piece.size - taken);
    }
    if (writer->segments > 0 && writer->written == writer->body) { /* it may wait for long */
        free(writer->buffer);
        writer->buffer = NULL;
    }
    return status;
}

/* Makes the segments live: one word each, many in a list. */
static enum pando_status make_live_co(struct blob_writer *writer)
{
    struct fabric_op ops[FLIPS_MAX];
    enum pando_status status = PANDO_OK;
    uint16_t banks = pool_banks(pool_session_pool(writer->session));

    for (uint16_t bank = 0; bank < banks; bank++) {
        uint32_t count = 0;
        fabric_address at = 0; /* of one of them */
        for (uint32_t i = 0; i < writer->segments && status == PANDO_OK; i++) {
            fabric_address address = writer->blocks[i].address;
            if (pool_bank(address) == bank) {
                ops[count++] = fabric_write(fabric_address_offset(address) + POOL_BLOCK_TENURE,
                                            &writer->head.tenure, sizeof(writer->head.tenure));
                at = address;
            }
            if (count == FLIPS_MAX || (count > 0 && i + 1 == writer->segments)) {
                status = pool_write_unseen_co(writer->session, at, ops, count);
                count = 0;
            }
        }
    }
    return status;
}

static enum pando_status write_head_co(struct blob_writer *writer, struct slice prefix)
{
    uint8_t *bytes = malloc(writer->head_bytes);
    struct blob_head *head = &writer->head;
    struct blob_prefix front = {.size = prefix.size};
    if (bytes == NULL)
        return PANDO_NO_MEMORY;
    if (prefix.size > 0)
        memcpy(front.bytes, prefix.data, prefix.size);
    head->size = prefix.size + writer->body;
    head->crc = crc32c(0, &front, sizeof(front));
    head->cell = blob_head_cell(writer->session, writer->table, head);
    memcpy(bytes, head, BLOB_HEAD_BYTES);
    memcpy(bytes + BLOB_HEAD_BYTES, &front, sizeof(front));
    for (uint32_t i = 0; i < writer->segments; i++) {
        blob_ref segment = blob_ref_make(writer->blocks[i].address, writer->blocks[i].version);
        memcpy(bytes + BLOB_LIST_AT + (size_t)i * sizeof(segment), &segment, sizeof(segment));
    }
    enum pando_status status = write_co(writer->session, head->address, bytes, writer->head_bytes);
    free(bytes);
    return status;
}

enum pando_status blob_finish_co(struct blob_writer *writer, struct slice prefix, blob_ref *blob)
{
    enum pando_status status = PANDO_OK;
    *blob = 0;
    if (prefix.size > BLOB_PREFIX_MAX || writer->written != writer->body)
        return PANDO_INVALID;
    if (prefix.size + writer->body > ENGINE_VALUE_MAX)
        return PANDO_TOO_LARGE;
    if (writer->segments == 0) {
        status = write_short_co(writer->session, writer->table, writer->key, prefix,
                                slice_of(writer->buffer, writer->filled), blob);
    } else {
        status = make_live_co(writer);
        if (status == PANDO_OK)
            status = write_head_co(writer, prefix);
        if (status == PANDO_OK)
            *blob = blob_ref_make(writer->head.address, writer->head.version);
    }
    if (status == PANDO_OK)
        blob_forget(writer);
    return status;
}

void blob_abort_co(struct blob_writer *writer)
{
    if (writer->blocks != NULL) {
        struct pool_block head = {.address = writer->head.address, .version = writer->head.version};
        give_back_co(writer->session, &head, pool_block_bytes(writer->head_bytes));
        for (uint32_t i = 0; i < writer->done; i++)
            give_back_co(writer->session, &writer->blocks[i], blob_segment_block(writer->body, i));
    }
    blob_forget(writer);
}

void blob_forget(struct blob_writer *writer)
{
    free(writer->blocks);
    free(writer->buffer);
    writer->blocks = NULL;
    writer->buffer = NULL;
}

enum pando_status blob_write_co(struct pool_session *session, uint16_t table, struct slice key,
                                struct slice value, blob_ref *blob)
{
    struct blob_writer writer;
    *blob = 0;
    if (value.size <= BLOB_SHORT_MAX)
        return write_short_co(session, table, blob_key_word(key), value, slice_of(NULL, 0), blob);
    /* Who looks at the first bytes alone finds them with the head. */
    size_t body = value.size - BLOB_PREFIX_MAX;
    enum pando_status status = blob_begin_co(&writer, session, table, key, body);
    if (status == PANDO_OK)
        status = blob_append_co(&writer, slice_of(value.data + BLOB_PREFIX_MAX, body));
    if (status == PANDO_OK)
        status = blob_finish_co(&writer, slice_of(value.data, BLOB_PREFIX_MAX), blob);
    if (status != PANDO_OK)
        blob_abort_co(&writer);
    return status;
}

/* ---- staged values --------------------------------------------------------------------------- */

struct stage {
    struct engine_stage base;
    struct blob_writer writer;
    blob_ref sealed;
};

static struct stage *stage_of(struct engine_stage *base)
{
    return container_of(base, struct stage, base);
}

enum pando_status blob_stage_open_co(struct pool_session *session, uint16_t table, struct slice key,
                                     uint64_t size, struct engine_stage **out)
{
    struct stage *stage = calloc(1, sizeof(*stage));
    if (stage == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = blob_begin_co(&stage->writer, session, table, key, size);
    if (status == PANDO_OK)
        *out = &stage->base;
    else
        free(stage);
    return status;
}

enum pando_status blob_stage_add_co(struct engine_stage *base, struct slice bytes)
{
    return blob_append_co(&stage_of(base)->writer, bytes);
}

enum pando_status blob_stage_seal_co(struct engine_stage *base, struct slice head,
                                     uint64_t *reference)
{
    struct stage *stage = stage_of(base);
    enum pando_status status = blob_finish_co(&stage->writer, head, &stage->sealed);
    *reference = stage->sealed;
    return status;
}

void blob_stage_close_co(struct engine_stage *base, enum engine_stage_end end)
{
    struct stage *stage = stage_of(base);
    struct blob_writer *writer = &stage->writer;
    if (end == ENGINE_STAGE_FREE && stage->sealed != 0) {
        enum pando_status freed = blob_free_co(writer->session, writer->table, stage->sealed);
        (void)freed; /* it stays until the table is dropped */
    } else if (end == ENGINE_STAGE_FREE) {
        blob_abort_co(writer);
    } else {
        blob_forget(writer);
    }
    free(stage);
}
