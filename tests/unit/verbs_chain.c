/*
 * Lists as chains of work requests, without a device: their order, what is signalled, fenced and inlined,
 * where they point, and that nothing outside of the window is asked for.
 */
#include "fabric/verbs/chain.h"

#include "fabric/window/window_fmt.h"
#include "lib/check.h"

enum { HOST = 1 << 20, CHIP = 4096, KEY = 7, ID = 99 };

static struct ibv_send_wr requests[FABRIC_LIST_OPS_MAX];
static struct ibv_sge pieces[FABRIC_LIST_OPS_MAX];
static struct chain chain = {.requests = requests, .pieces = pieces};
static uint8_t buffer[1 << 16];

static struct chain_target target = {
    .window = {.host_address = 0x10000000,
               .device_address = 0x50000000,
               .host_key = 11,
               .device_key = 22},
    .host_bytes = HOST,
    .device_bytes = CHIP,
    .inline_max = 64,
};

static void build(const struct fabric_op *ops, uint32_t count)
{
    memset(requests, 0xee, sizeof(requests));
    CHECK_OK(chain_check(&target, ops, count));
    CHECK(chain_buffer_bytes(&target, ops, count) <= sizeof(buffer));
    chain_build(&target, ops, count, buffer, KEY, ID, &chain);
    for (uint32_t i = 0; i < count; i++) {
        bool last = i + 1 == count;
        CHECK(requests[i].next == (last ? NULL : &requests[i + 1]));
        CHECK(((requests[i].send_flags & IBV_SEND_SIGNALED) != 0) == last);
        CHECK(requests[i].wr_id == ID && requests[i].num_sge == 1);
        CHECK_EQ_U64(requests[i].sg_list->length, ops[i].size);
    }
}

static void test_shapes(void)
{
    uint64_t word = 5, seen;
    uint8_t large[100] = {1, 2, 3}, in[50];
    struct fabric_op ops[] = {
        fabric_cas(FABRIC_DEVICE + 8, 3, 4),   fabric_read(WINDOW_FIRST, in, sizeof(in)),
        fabric_faa(WINDOW_FIRST + 64, 9),      fabric_write(HOST - 100, large, sizeof(large)),
        fabric_write(FABRIC_DEVICE, &word, 8), fabric_read(FABRIC_DEVICE + CHIP - 8, &seen, 8),
    };
    /* 8 + 56 + 8 + 104 + inline + 8 */
    CHECK_EQ_U64(chain_buffer_bytes(&target, ops, 6), 184);
    build(ops, 6);
    CHECK(requests[0].opcode == IBV_WR_ATOMIC_CMP_AND_SWP);
    CHECK(requests[0].wr.atomic.compare_add == 3 && requests[0].wr.atomic.swap == 4);
    CHECK(requests[0].wr.atomic.remote_addr == 0x50000008 && requests[0].wr.atomic.rkey == 22);
    CHECK(requests[1].opcode == IBV_WR_RDMA_READ);
    CHECK(requests[1].wr.rdma.remote_addr == 0x10000000 + WINDOW_FIRST);
    CHECK(requests[1].wr.rdma.rkey == 11 && pieces[1].addr == (uintptr_t)buffer + 8);
    CHECK(requests[2].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD);
    CHECK(requests[2].wr.atomic.compare_add == 9);
    CHECK(requests[3].opcode == IBV_WR_RDMA_WRITE && pieces[3].addr == (uintptr_t)buffer + 72);
    CHECK((requests[3].send_flags & IBV_SEND_INLINE) == 0 && pieces[3].lkey == KEY);
    CHECK(memcmp(buffer + 72, large, sizeof(large)) == 0);
    CHECK((requests[4].send_flags & IBV_SEND_INLINE) != 0);
    CHECK(pieces[4].addr == (uintptr_t)&word);
    CHECK(chain.inlined == 1 && chain.fences == 0);

    /* What came back goes where it is wanted. */
    for (unsigned i = 0; i < 184; i++)
        buffer[i] = (uint8_t)i;
    chain_finish(&target, ops, 6, buffer);
    CHECK_EQ_U64(ops[0].old, 0x0706050403020100);
    CHECK(in[0] == 8 && in[49] == 57);
    CHECK_EQ_U64(ops[2].old, 0x4746454443424140);
    CHECK_EQ_U64(seen, 0xb7b6b5b4b3b2b1b0);
    CHECK_EQ_U64(word, 5);
}

/* Bit i: operation i is fenced. */
static unsigned fenced(const struct fabric_op *ops, uint32_t count)
{
    unsigned mask = 0;
    build(ops, count);
    for (uint32_t i = 0; i < count; i++)
        mask |= (requests[i].send_flags & IBV_SEND_FENCE) != 0 ? 1u << i : 0;
    CHECK_EQ_U64(chain.fences, (unsigned)__builtin_popcount(mask));
    return mask;
}

static void test_fences(void)
{
    uint64_t word = 0;
    struct fabric_op read = fabric_read(WINDOW_FIRST, &word, 8);
    struct fabric_op write = fabric_write(WINDOW_FIRST, &word, 8);
    struct fabric_op cas = fabric_cas(WINDOW_FIRST, 0, 1), faa = fabric_faa(WINDOW_FIRST, 1);

    for (int ordered = 0; ordered < 2; ordered++) {
        target.fence_reads = ordered == 0;
        CHECK_EQ_U64(fenced((struct fabric_op[]){cas, read}, 2), ordered ? 0 : 2);
        CHECK_EQ_U64(fenced((struct fabric_op[]){faa, write, read, read}, 4), ordered ? 0 : 4);
        CHECK_EQ_U64(fenced((struct fabric_op[]){cas, read, faa, read}, 4), ordered ? 0 : 10);
        CHECK_EQ_U64(fenced((struct fabric_op[]){write, read, write, cas, faa, write}, 6), 0);
        CHECK_EQ_U64(fenced((struct fabric_op[]){read, cas}, 2), 0);
    }
    target.fence_reads = false;
}

static void test_ranges(void)
{
    static const struct {
        uint64_t offset;
        uint32_t size;
        bool good;
    } cases[] = {
        {WINDOW_FIRST, 8, true},
        {WINDOW_FIRST - 1, 1, false},
        {0, 8, false},
        {HOST - 8, 8, true},
        {HOST - 7, 8, false},
        {HOST, 1, false},
        {WINDOW_FIRST, HOST, false},
        {FABRIC_DEVICE - 1, 1, false},
        {FABRIC_DEVICE, CHIP, true},
        {FABRIC_DEVICE, CHIP + 1, false},
        {FABRIC_DEVICE + CHIP - 8, 8, true},
        {FABRIC_DEVICE + CHIP, 1, false},
        {((uint64_t)1 << 48) - 1, UINT32_MAX, false},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fabric_op ops[] = {fabric_read(WINDOW_FIRST, buffer, 1),
                                  fabric_read(cases[i].offset, buffer, cases[i].size)};
        CHECK_STATUS(chain_check(&target, ops, 2), cases[i].good ? PANDO_OK : PANDO_RANGE);
    }
}

int main(void)
{
    test_shapes();
    test_fences();
    test_ranges();
    return 0;
}
