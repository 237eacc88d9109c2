#include "fabric/tcp/wire.h"

#include "base/assert.h"

enum { KIND_SHIFT = 48 };

/* ---- lists ----------------------------------------------------------------------------------- */

static uint32_t operand_bytes(const struct fabric_op *op)
{
    switch (op->kind) {
    case FABRIC_WRITE:
        return wire_padded(op->size);
    case FABRIC_CAS:
        return 16;
    case FABRIC_FAA:
        return 8;
    default:
        return 0;
    }
}

uint32_t wire_list_bytes(const struct fabric_op *ops, uint32_t count)
{
    uint32_t bytes = WIRE_LIST_HEADER;
    for (uint32_t i = 0; i < count; i++)
        bytes += WIRE_OP + operand_bytes(&ops[i]);
    return bytes;
}

static uint8_t *put_op(uint8_t *to, const struct fabric_op *op)
{
    wire_put_u64(to, op->offset | (uint64_t)op->kind << KIND_SHIFT);
    wire_put_u64(to + 8, op->size);
    to += WIRE_OP;
    switch (op->kind) {
    case FABRIC_WRITE:
        wire_put_u64(to + wire_padded(op->size) - 8, 0); /* padding; overwritten where not */
        memcpy(to, op->write_from, op->size);
        break;
    case FABRIC_CAS:
        wire_put_u64(to, op->expected);
        wire_put_u64(to + 8, op->operand);
        break;
    case FABRIC_FAA:
        wire_put_u64(to, op->operand);
        break;
    default:
        break;
    }
    return to + operand_bytes(op);
}

void wire_put_list(uint8_t *to, uint32_t bytes, uint16_t tag, const struct fabric_op *ops,
                   uint32_t count)
{
    wire_put_u32(to, bytes);
    wire_put_u16(to + 4, (uint16_t)count);
    wire_put_u16(to + 6, tag);
    to += WIRE_LIST_HEADER;
    for (uint32_t i = 0; i < count; i++)
        to = put_op(to, &ops[i]);
}

static bool get_op(const uint8_t **from, const uint8_t *end, struct fabric_op *op, uint64_t *moved)
{
    if (end - *from < WIRE_OP)
        return false;
    uint64_t word = wire_get_u64(*from);
    uint64_t size = wire_get_u64(*from + 8);
    uint64_t kind = word >> KIND_SHIFT;
    if (kind > FABRIC_FAA || size == 0 || size > FABRIC_LIST_BYTES_MAX)
        return false;
    op->kind = (enum fabric_kind)kind;
    op->size = (uint32_t)size;
    op->offset = fabric_address_offset(word);
    *from += WIRE_OP;
    uint32_t operands = operand_bytes(op);
    if ((uint64_t)(end - *from) < operands)
        return false;
    *moved += size;
    switch (op->kind) {
    case FABRIC_WRITE:
        op->write_from = *from;
        break;
    case FABRIC_CAS:
        op->expected = wire_get_u64(*from);
        op->operand = wire_get_u64(*from + 8);
        break;
    case FABRIC_FAA:
        op->operand = wire_get_u64(*from);
        break;
    case FABRIC_READ:
        op->read_to = NULL;
        break;
    }
    *from += operands;
    return op->kind == FABRIC_READ || op->kind == FABRIC_WRITE || op->size == 8;
}

enum wire_parse wire_get_list(const uint8_t *from, size_t available, size_t limit,
                              struct wire_list *out, struct fabric_op *ops)
{
    if (limit < WIRE_LIST_HEADER)
        return WIRE_BAD;
    if (available < WIRE_LIST_HEADER)
        return WIRE_MORE;
    out->bytes = wire_get_u32(from);
    out->count = wire_get_u16(from + 4);
    out->tag = wire_get_u16(from + 6);
    if (out->bytes % 8 != 0 || out->bytes < WIRE_LIST_HEADER + WIRE_OP || out->bytes > limit ||
        out->bytes > WIRE_LIST_MAX || out->count == 0 || out->count > FABRIC_LIST_OPS_MAX)
        return WIRE_BAD;
    if (available < out->bytes)
        return WIRE_MORE;

    const uint8_t *at = from + WIRE_LIST_HEADER, *end = from + out->bytes;
    uint64_t moved = 0;
    for (uint32_t i = 0; i < out->count; i++) {
        if (!get_op(&at, end, &ops[i], &moved))
            return WIRE_BAD;
    }
    if (at != end || moved > FABRIC_LIST_BYTES_MAX)
        return WIRE_BAD;
    out->result_bytes = wire_result_bytes(ops, out->count);
    return WIRE_OK;
}

/* ---- results --------------------------------------------------------------------------------- */

static uint32_t op_result_bytes(const struct fabric_op *op)
{
    switch (op->kind) {
    case FABRIC_READ:
        return wire_padded(op->size);
    case FABRIC_WRITE:
        return 0;
    default:
        return 8;
    }
}

uint32_t wire_result_bytes(const struct fabric_op *ops, uint32_t count)
{
    uint32_t bytes = WIRE_LIST_HEADER;
    for (uint32_t i = 0; i < count; i++)
        bytes += op_result_bytes(&ops[i]);
    return bytes;
}

void wire_place_reads(uint8_t *to, struct fabric_op *ops, uint32_t count)
{
    to += WIRE_LIST_HEADER;
    for (uint32_t i = 0; i < count; i++) {
        if (ops[i].kind == FABRIC_READ)
            ops[i].read_to = to;
        to += op_result_bytes(&ops[i]);
    }
}

uint32_t wire_finish_result(uint8_t *to, const struct wire_list *list, const struct fabric_op *ops,
                            enum pando_status status)
{
    uint32_t bytes = status == PANDO_OK ? list->result_bytes : WIRE_LIST_HEADER;
    wire_put_u32(to, bytes);
    wire_put_u16(to + 4, (uint16_t)status);
    wire_put_u16(to + 6, list->tag);
    if (status != PANDO_OK)
        return bytes;
    uint8_t *at = to + WIRE_LIST_HEADER;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fabric_op *op = &ops[i];
        uint32_t size = op_result_bytes(op);
        if (op->kind == FABRIC_READ)
            memset(at + op->size, 0, size - op->size); /* nothing of ours leaks in the padding */
        else if (op->kind != FABRIC_WRITE)
            wire_put_u64(at, op->old);
        at += size;
    }
    return bytes;
}

enum wire_parse wire_get_result(const uint8_t *from, size_t available, size_t limit, uint16_t tag,
                                struct fabric_op *ops, uint32_t count, uint32_t *bytes,
                                enum pando_status *status)
{
    if (limit < WIRE_LIST_HEADER)
        return WIRE_BAD;
    if (available < WIRE_LIST_HEADER)
        return WIRE_MORE;
    uint32_t size = wire_get_u32(from);
    uint16_t code = wire_get_u16(from + 4);
    if (code >= PANDO_STATUS_COUNT || wire_get_u16(from + 6) != tag || size > limit)
        return WIRE_BAD;
    if (size != (code == PANDO_OK ? wire_result_bytes(ops, count) : (uint32_t)WIRE_LIST_HEADER))
        return WIRE_BAD;
    if (available < size)
        return WIRE_MORE;
    *bytes = size;
    *status = (enum pando_status)code;
    if (code != PANDO_OK)
        return WIRE_OK;
    const uint8_t *at = from + WIRE_LIST_HEADER;
    for (uint32_t i = 0; i < count; i++) {
        struct fabric_op *op = &ops[i];
        if (op->kind == FABRIC_READ)
            memcpy(op->read_to, at, op->size);
        else if (op->kind != FABRIC_WRITE)
            op->old = wire_get_u64(at);
        at += op_result_bytes(op);
    }
    return WIRE_OK;
}
