#include "fabric/verbs/chain.h"

#include <string.h>

#include "fabric/window/window_fmt.h"

static uint32_t padded(uint32_t size)
{
    return (size + 7) & ~(uint32_t)7;
}

static bool is_atomic(const struct fabric_op *op)
{
    return op->kind == FABRIC_CAS || op->kind == FABRIC_FAA;
}

static bool is_inline(const struct chain_target *target, const struct fabric_op *op)
{
    return op->kind == FABRIC_WRITE && op->size <= target->inline_max;
}

/* Of the list's buffer. */
static uint32_t op_bytes(const struct chain_target *target, const struct fabric_op *op)
{
    return is_inline(target, op) ? 0 : padded(op->size);
}

static bool in_range(const struct chain_target *target, const struct fabric_op *op)
{
    uint64_t offset = op->offset, bytes = target->host_bytes;
    if (offset >= FABRIC_DEVICE) {
        offset -= FABRIC_DEVICE;
        bytes = target->device_bytes;
    } else if (offset < WINDOW_FIRST) {
        return false;
    }
    return op->size <= bytes && offset <= bytes - op->size;
}

enum pando_status chain_check(const struct chain_target *target, const struct fabric_op *ops,
                              uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!in_range(target, &ops[i]))
            return PANDO_RANGE;
    }
    return PANDO_OK;
}

uint32_t chain_buffer_bytes(const struct chain_target *target, const struct fabric_op *ops,
                            uint32_t count)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += op_bytes(target, &ops[i]);
    return bytes;
}

static void place(const struct chain_target *target, const struct fabric_op *op, uint64_t *address,
                  uint32_t *key)
{
    const struct verbs_remote_window *window = &target->window;
    bool device = op->offset >= FABRIC_DEVICE;
    *address = device ? window->device_address + (op->offset - FABRIC_DEVICE)
                      : window->host_address + op->offset;
    *key = device ? window->device_key : window->host_key;
}

static void put_atomic(const struct chain_target *target, const struct fabric_op *op,
                       struct ibv_send_wr *request)
{
    bool cas = op->kind == FABRIC_CAS;
    request->opcode = cas ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD;
    request->wr.atomic.compare_add = cas ? op->expected : op->operand;
    request->wr.atomic.swap = cas ? op->operand : 0;
    place(target, op, &request->wr.atomic.remote_addr, &request->wr.atomic.rkey);
}

/* `local` is its part of the buffer. */
static void put_transfer(const struct chain_target *target, const struct fabric_op *op,
                         uint8_t *local, struct ibv_send_wr *request, struct ibv_sge *piece)
{
    place(target, op, &request->wr.rdma.remote_addr, &request->wr.rdma.rkey);
    if (op->kind == FABRIC_READ) {
        request->opcode = IBV_WR_RDMA_READ;
        return;
    }
    request->opcode = IBV_WR_RDMA_WRITE;
    if (is_inline(target, op)) {
        request->send_flags |= IBV_SEND_INLINE;
        piece->addr = (uintptr_t)op->write_from;
        return;
    }
    memcpy(local, op->write_from, op->size);
}

void chain_build(const struct chain_target *target, const struct fabric_op *ops, uint32_t count,
                 uint8_t *buffer, uint32_t key, uint64_t id, struct chain *chain)
{
    bool atomic_before = false; /* and no fence since */

    chain->fences = chain->inlined = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct fabric_op *op = &ops[i];
        struct ibv_send_wr *request = &chain->requests[i];
        struct ibv_sge *piece = &chain->pieces[i];

        *piece = (struct ibv_sge){.addr = (uintptr_t)buffer, .length = op->size, .lkey = key};
        *request =
            (struct ibv_send_wr){.wr_id = id, .next = request + 1, .sg_list = piece, .num_sge = 1};
        if (is_atomic(op))
            put_atomic(target, op, request);
        else
            put_transfer(target, op, buffer, request, piece);
        if (op->kind == FABRIC_READ && atomic_before && target->fence_reads) {
            request->send_flags |= IBV_SEND_FENCE;
            atomic_before = false;
            chain->fences++;
        }
        atomic_before |= is_atomic(op);
        chain->inlined += is_inline(target, op);
        buffer += op_bytes(target, op);
    }
    chain->requests[count - 1].next = NULL;
    chain->requests[count - 1].send_flags |= IBV_SEND_SIGNALED;
}

void chain_finish(const struct chain_target *target, struct fabric_op *ops, uint32_t count,
                  const uint8_t *buffer)
{
    for (uint32_t i = 0; i < count; i++) {
        struct fabric_op *op = &ops[i];
        if (op->kind == FABRIC_READ)
            memcpy(op->read_to, buffer, op->size);
        else if (is_atomic(op))
            memcpy(&op->old, buffer, 8);
        buffer += op_bytes(target, op);
    }
}
