/*
 * Frames of the tcp fabric: what is encoded is decoded to the same, and what is cut, lengthened or
 * out of bounds is refused without reading past its end.
 */
#include "fabric/tcp/wire.h"

#include "base/prng.h"
#include "lib/check.h"

static struct prng prng;
static uint8_t data[FABRIC_LIST_BYTES_MAX];

static uint32_t random_list(struct fabric_op *ops)
{
    uint32_t count = 1 + (uint32_t)prng_below(&prng, 6);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t offset = prng_next(&prng) >> 16;
        uint32_t size = 1 + (uint32_t)prng_below(&prng, 200);
        switch (prng_below(&prng, 4)) {
        case 0:
            ops[i] = fabric_read(offset, data, size);
            break;
        case 1:
            ops[i] = fabric_write(offset, data + prng_below(&prng, 1000), size);
            break;
        case 2:
            ops[i] = fabric_cas(offset, prng_next(&prng), prng_next(&prng));
            break;
        default:
            ops[i] = fabric_faa(offset, prng_next(&prng));
            break;
        }
    }
    return count;
}

static void check_same(const struct fabric_op *a, const struct fabric_op *b)
{
    CHECK(a->kind == b->kind && a->size == b->size && a->offset == b->offset);
    if (a->kind == FABRIC_WRITE)
        CHECK(memcmp(a->write_from, b->write_from, a->size) == 0);
    if (a->kind == FABRIC_CAS)
        CHECK(a->expected == b->expected);
    if (a->kind == FABRIC_CAS || a->kind == FABRIC_FAA)
        CHECK(a->operand == b->operand);
}

static void test_round_trip(void)
{
    struct fabric_op sent[8], got[FABRIC_LIST_OPS_MAX];
    for (int round = 0; round < 2000; round++) {
        uint32_t count = random_list(sent);
        uint32_t bytes = wire_list_bytes(sent, count);
        uint8_t *wire = malloc(bytes);
        struct wire_list list;
        wire_put_list(wire, bytes, (uint16_t)round, sent, count);
        CHECK(wire_get_list(wire, bytes, bytes, &list, got) == WIRE_OK);
        CHECK(list.bytes == bytes && list.count == count && list.tag == (uint16_t)round);
        for (uint32_t i = 0; i < count; i++)
            check_same(&sent[i], &got[i]);
        /* Every shorter piece: more is wanted, never less read. */
        for (uint32_t part = 0; part < bytes; part++) {
            uint8_t *piece = malloc(part == 0 ? 1 : part);
            memcpy(piece, wire, part);
            CHECK(wire_get_list(piece, part, bytes, &list, got) == WIRE_MORE);
            free(piece);
        }
        /* A frame that ends before the list does is a lie. */
        CHECK(wire_get_list(wire, bytes, bytes - 8, &list, got) == WIRE_BAD);
        free(wire);
    }
}

/* The short way for a single READ makes and takes the same bytes as the way of all lists. */
static void test_single_reads(void)
{
    struct fabric_op sent[8], got[FABRIC_LIST_OPS_MAX];
    struct wire_list list;
    uint64_t offset, size;
    uint16_t tag;

    for (int round = 0; round < 20000; round++) {
        uint8_t wire[4096] = {0};
        uint8_t read[WIRE_READ_LIST];
        uint32_t count = random_list(sent);
        if (round % 2 == 0) {
            sent[0] = fabric_read(prng_below(&prng, (uint64_t)1 << 48), NULL,
                                  1 + (uint32_t)prng_below(&prng, FABRIC_LIST_BYTES_MAX));
            count = 1;
        }
        bool single = count == 1 && sent[0].kind == FABRIC_READ;
        wire_put_list(wire, wire_list_bytes(sent, count), (uint16_t)round, sent, count);
        CHECK(wire_get_read(wire, &tag, &offset, &size) == single);
        if (!single)
            continue;
        CHECK(tag == (uint16_t)round && offset == sent[0].offset && size == sent[0].size);
        wire_put_read(read, (uint16_t)round, &sent[0]);
        CHECK(memcmp(read, wire, WIRE_READ_LIST) == 0);
        /* With a bit turned: if it is taken, then so it is by the other. */
        read[prng_below(&prng, WIRE_READ_LIST)] ^= (uint8_t)(1 << prng_below(&prng, 8));
        if (!wire_get_read(read, &tag, &offset, &size))
            continue;
        CHECK(wire_get_list(read, sizeof(read), sizeof(read), &list, got) == WIRE_OK);
        CHECK(list.count == 1 && list.tag == tag && got[0].kind == FABRIC_READ);
        CHECK(got[0].offset == offset && got[0].size == size);
    }
}

static void test_results(void)
{
    uint8_t first[40], second[40];
    struct fabric_op ops[] = {fabric_read(0, first, 13), fabric_cas(8, 1, 2),
                              fabric_write(16, data, 24), fabric_read(0, second, 40)};
    struct fabric_op executed[4];
    struct wire_list list = {.count = 4, .tag = 9, .result_bytes = wire_result_bytes(ops, 4)};
    uint8_t result[256];
    uint32_t bytes;
    enum pando_status status;

    CHECK_EQ_U64(list.result_bytes, 8 + 16 + 8 + 40);
    memcpy(executed, ops, sizeof(ops));
    wire_place_reads(result, executed, 4);
    memset(executed[0].read_to, 'a', 13);
    memset(executed[3].read_to, 'b', 40);
    executed[1].old = 77;
    CHECK(wire_finish_result(result, &list, executed, PANDO_OK) == list.result_bytes);
    CHECK(wire_get_result(result, list.result_bytes, list.result_bytes, 9, ops, 4, &bytes,
                          &status) == WIRE_OK);
    CHECK(bytes == list.result_bytes && status == PANDO_OK && ops[1].old == 77);
    CHECK(first[0] == 'a' && first[12] == 'a' && second[39] == 'b');
    /* Another tag, another size, an unknown status. */
    CHECK(wire_get_result(result, bytes, bytes, 8, ops, 4, &bytes, &status) == WIRE_BAD);
    CHECK(wire_get_result(result, 72, 72, 9, ops, 3, &bytes, &status) == WIRE_BAD);
    wire_put_u16(result + 4, PANDO_STATUS_COUNT);
    CHECK(wire_get_result(result, 72, 72, 9, ops, 4, &bytes, &status) == WIRE_BAD);
    /* A failure is the header alone. */
    CHECK(wire_finish_result(result, &list, executed, PANDO_RANGE) == WIRE_LIST_HEADER);
    CHECK(wire_get_result(result, 8, 8, 9, ops, 4, &bytes, &status) == WIRE_OK);
    CHECK(status == PANDO_RANGE && bytes == 8);
}

static void check_refused(const struct fabric_op *op)
{
    struct fabric_op got[FABRIC_LIST_OPS_MAX];
    struct wire_list list;
    static uint8_t wire[4096];
    wire_put_list(wire, 8 + 16 + 16, 0, op, 1);
    CHECK(wire_get_list(wire, sizeof(wire), sizeof(wire), &list, got) == WIRE_BAD);
}

static void test_refusals(void)
{
    struct wire_frame frame;
    struct wire_call call;
    uint8_t bytes[64] = {0};
    struct fabric_op bad = {.kind = FABRIC_READ, .size = 0};
    check_refused(&bad);
    bad = (struct fabric_op){.kind = FABRIC_CAS, .size = 4};
    check_refused(&bad);
    bad = (struct fabric_op){.kind = 9, .size = 8};
    check_refused(&bad);
    bad = (struct fabric_op){.kind = FABRIC_READ, .size = FABRIC_LIST_BYTES_MAX + 1};
    check_refused(&bad);

    wire_put_frame(bytes, WIRE_FRAME_MAX + 8, WIRE_LISTS, 1);
    CHECK(wire_get_frame(bytes, 8, &frame) == WIRE_BAD);
    wire_put_frame(bytes, 12, WIRE_LISTS, 1);
    CHECK(wire_get_frame(bytes, 8, &frame) == WIRE_BAD);
    CHECK(wire_get_frame(bytes, 7, &frame) == WIRE_MORE);

    wire_put_call(bytes, 1, 2, "abc", 3);
    CHECK(wire_get_call(bytes, 24, &call) == WIRE_OK && call.size == 3);
    CHECK(wire_get_call(bytes, 32, &call) == WIRE_BAD);
    CHECK(wire_get_call(bytes, 8, &call) == WIRE_BAD);
    wire_put_u32(bytes + 12, 0xffffffff);
    CHECK(wire_get_call(bytes, 24, &call) == WIRE_BAD);
}

int main(void)
{
    prng_seed(&prng, 1);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)prng_next(&prng);
    test_round_trip();
    test_single_reads();
    test_results();
    test_refusals();
    return 0;
}
