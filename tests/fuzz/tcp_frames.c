/*
 * Arbitrary bytes where a server expects frames of lists and calls, and where a client expects
 * results. What is accepted is executed on a small window; memory errors are the sanitizers' to
 * find, and what is said of sizes is checked here.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fabric/tcp/wire.h"
#include "fabric/window/window.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct window window;

/* Input in memory of its own, so that reading past its end is noticed. */
static uint8_t *exact_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size == 0 ? 1 : size);
    pando_assert(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

static void execute(const struct wire_list *list, struct fabric_op *ops)
{
    uint8_t *result = malloc(list->result_bytes);
    pando_assert(result != NULL && list->result_bytes <= WIRE_LIST_MAX);
    wire_place_reads(result, ops, list->count);
    enum pando_status status = window_execute(&window, ops, list->count);
    uint32_t bytes = wire_finish_result(result, list, ops, status);
    pando_assert(bytes == (status == PANDO_OK ? list->result_bytes : (uint32_t)WIRE_LIST_HEADER));

    /* The client that sent this list takes the result. */
    uint32_t taken;
    enum pando_status seen;
    for (uint32_t i = 0; i < list->count; i++) {
        if (ops[i].kind == FABRIC_READ) {
            ops[i].read_to = malloc(ops[i].size);
            pando_assert(ops[i].read_to != NULL);
        }
    }
    pando_assert(wire_get_result(result, bytes, bytes, list->tag, ops, list->count, &taken,
                                 &seen) == WIRE_OK);
    pando_assert(taken == bytes && seen == status);
    for (uint32_t i = 0; i < list->count; i++) {
        if (ops[i].kind == FABRIC_READ)
            free(ops[i].read_to);
    }
    free(result);
}

/* As connection.c takes them. */
static void as_server(const uint8_t *data, size_t size)
{
    static struct fabric_op ops[FABRIC_LIST_OPS_MAX];
    struct wire_frame frame;
    struct wire_call call;

    while (wire_get_frame(data, size, &frame) == WIRE_OK) {
        data += WIRE_FRAME_HEADER;
        size -= WIRE_FRAME_HEADER;
        if (frame.type != WIRE_LISTS) {
            if (size < frame.size)
                return;
            if (frame.type == WIRE_CALL && wire_get_call(data, frame.size, &call) == WIRE_OK)
                pando_assert(call.body + call.size <= data + frame.size);
            data += frame.size;
            size -= frame.size;
            continue;
        }
        uint32_t left = frame.size;
        for (uint16_t i = 0; i < frame.count; i++) {
            struct wire_list list;
            uint64_t offset, bytes;
            uint16_t tag;
            bool read = size >= WIRE_READ_LIST && left >= WIRE_READ_LIST &&
                        wire_get_read(data, &tag, &offset, &bytes);
            if (wire_get_list(data, size, left, &list, ops) != WIRE_OK) {
                pando_assert(!read);
                return;
            }
            pando_assert(!read ||
                         (list.count == 1 && list.tag == tag && ops[0].kind == FABRIC_READ &&
                          ops[0].offset == offset && ops[0].size == bytes));
            pando_assert(list.bytes <= size && list.bytes <= left);
            execute(&list, ops);
            data += list.bytes;
            size -= list.bytes;
            left -= list.bytes;
        }
        if (left != 0)
            return;
    }
}

/* A result for a list of a READ, a WRITE and a CAS. */
static void as_client(const uint8_t *data, size_t size)
{
    uint8_t buffer[40];
    struct fabric_op ops[] = {
        fabric_read(WINDOW_FIRST, buffer, 37),
        fabric_write(WINDOW_FIRST, buffer, 8),
        fabric_cas(WINDOW_FIRST, 1, 2),
    };
    uint32_t bytes;
    enum pando_status status;
    (void)wire_get_result(data, size, size, 7, ops, 3, &bytes, &status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (window.base == NULL)
        pando_assert(window_map_private(&window, 0, 1 << 20, 4096) == PANDO_OK);
    if (size == 0)
        return 0;
    uint8_t *input = exact_copy(data + 1, size - 1);
    if (data[0] % 4 == 0)
        as_client(input, size - 1);
    else
        as_server(input, size - 1);
    free(input);
    return 0;
}
