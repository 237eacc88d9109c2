/*
 * lists.c - that lists do what they say and nothing else: sizes and alignments, many in flight,
 * limits, lists that are refused, counters.
 */
#include <stdlib.h>

#include "base/prng.h"
#include "conformance/suite.h"

/* ---- round trips ----------------------------------------------------------------------------- */

enum { MARGIN = 64 };

/* Writes `size` bytes at `offset` between margins that have to stay, and reads all of it back. The
 * local buffer is as ragged as the remote range. */
static void round_trip_co(struct client *client, uint64_t offset, uint32_t size, uint64_t stream)
{
    uint8_t left[MARGIN], right[MARGIN];
    uint8_t *buffer = allocate(size + 16);
    uint8_t *bytes = buffer + stream % 8;

    pattern_fill(left, stream + 1, 0, MARGIN);
    pattern_fill(right, stream + 2, 0, MARGIN);
    write_co(client, offset - MARGIN, left, MARGIN);
    write_co(client, offset + size, right, MARGIN);
    pattern_fill(bytes, stream, 0, size);
    write_co(client, offset, bytes, size);

    memset(buffer, 0, size + 16);
    read_co(client, offset, bytes, size);
    pattern_check(bytes, stream, 0, size);
    for (uint8_t *other = buffer; other < bytes; other++)
        CHECK(*other == 0);
    for (uint8_t *other = bytes + size; other < buffer + size + 16; other++)
        CHECK(*other == 0);
    read_co(client, offset - MARGIN, left, MARGIN);
    pattern_check(left, stream + 1, 0, MARGIN);
    read_co(client, offset + size, right, MARGIN);
    pattern_check(right, stream + 2, 0, MARGIN);
    free(buffer);
}

static void small_sizes(struct client *client)
{
    for (uint32_t size = 1; size <= 300; size++) {
        round_trip_co(client, AT + size * 7 % 64, size, size);
        if (size % 7 == 0)
            round_trip_co(client, at_device(client->env) + size * 5 % 64, size, size);
    }
}

static void small_round_trips(struct env *env)
{
    suite_clients(env, 1, small_sizes, NULL);
}

static void large_sizes(struct client *client)
{
    static const uint32_t sizes[] = {4096, 64 * 1024, 1024 * 1024};
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned shift = 0; shift < 8; shift += 3)
            round_trip_co(client, AT + shift, sizes[i], 1000 + 10 * i + shift);
    }
    round_trip_co(client, at_device(client->env) + 5, 64 * 1024 + 3, 2000);
    round_trip_co(client, env_device(client->env) + MARGIN, ENV_DEVICE_BYTES - 2 * MARGIN, 2001);
    uint64_t first = fabric_window_first(client->fabric);
    round_trip_co(client, first + MARGIN, 4096, 2002);
    round_trip_co(client, ENV_HOST_BYTES - MARGIN - 4099, 4099, 2003);
}

static void large_round_trips(struct env *env)
{
    suite_clients(env, 1, large_sizes, NULL);
}

/* ---- much at once ---------------------------------------------------------------------------- */

enum { PIECES = 32 }; /* in flight */

struct piece {
    struct fabric_list list;
    struct fabric_op op;
    uint8_t *bytes;
    uint64_t offset;
    bool used;
};

static uint64_t piece_stream(uint64_t offset)
{
    return offset / 65536;
}

static void piece_finish_co(struct piece *piece)
{
    if (!piece->used)
        return;
    CHECK_OK(fabric_wait_co(&piece->list));
    if (piece->op.kind == FABRIC_READ)
        pattern_check(piece->bytes, piece_stream(piece->offset), piece->offset, piece->op.size);
    piece->used = false;
}

static void pass_co(struct client *client, enum fabric_kind kind, uint64_t total, uint32_t size,
                    struct piece *pieces)
{
    unsigned at = 0;
    for (uint64_t done = 0; done < total; done += size) {
        struct piece *piece = &pieces[at++ % PIECES];
        piece_finish_co(piece);
        piece->offset = AT + done;
        if (kind == FABRIC_WRITE) {
            pattern_fill(piece->bytes, piece_stream(piece->offset), piece->offset, size);
            piece->op = fabric_write(piece->offset, piece->bytes, size);
        } else {
            memset(piece->bytes, 0, size);
            piece->op = fabric_read(piece->offset, piece->bytes, size);
        }
        piece->list = (struct fabric_list){.ops = &piece->op, .count = 1};
        piece->used = true;
        fabric_post(client->endpoint, &piece->list);
    }
    for (unsigned i = 0; i < PIECES; i++)
        piece_finish_co(&pieces[i]);
}

static void large_client(struct client *client)
{
    uint64_t total = client->env->ops->simulated || ENV_SLOWDOWN > 1 ? 8 << 20 : 64 << 20;
    struct piece *pieces = allocate(PIECES * sizeof(*pieces));

    for (unsigned i = 0; i < PIECES; i++)
        pieces[i].bytes = allocate(65536);
    pass_co(client, FABRIC_WRITE, total, 65536, pieces);
    pass_co(client, FABRIC_READ, total, 65536, pieces);
    for (unsigned i = 0; i < PIECES; i++)
        free(pieces[i].bytes);
    free(pieces);
}

static void large_transfer(struct env *env)
{
    suite_clients(env, 1, large_client, NULL);
}

/* ---- the longest list ------------------------------------------------------------------------ */

static void longest_client(struct client *client)
{
    struct fabric_op *ops = allocate(FABRIC_LIST_OPS_MAX * sizeof(*ops));
    uint64_t *values = allocate(FABRIC_LIST_OPS_MAX * sizeof(*values));

    fill_words_co(client, AT, 7, FABRIC_LIST_OPS_MAX);
    for (unsigned i = 0; i < FABRIC_LIST_OPS_MAX; i++) {
        uint64_t offset = AT + 8 * i;
        values[i] = 1000 + i;
        switch (i % 4) {
        case 0:
            ops[i] = fabric_write(offset, &values[i], 8);
            break;
        case 1:
            ops[i] = fabric_read(offset, &values[i], 8);
            break;
        case 2:
            ops[i] = fabric_cas(offset, 7, 1000 + i);
            break;
        default:
            ops[i] = fabric_faa(offset, i);
            break;
        }
    }
    CHECK_OK(fabric_submit_co(client->endpoint, ops, FABRIC_LIST_OPS_MAX));
    for (unsigned i = 0; i < FABRIC_LIST_OPS_MAX; i++) {
        uint64_t word = get_co(client, AT + 8 * i);
        CHECK_EQ_U64(word, i % 4 == 1 ? 7 : i % 4 == 3 ? 7 + i : 1000 + i);
        if (i % 4 == 1)
            CHECK_EQ_U64(values[i], 7);
        if (i % 4 >= 2)
            CHECK_EQ_U64(ops[i].old, 7);
    }
    free(values);
    free(ops);
}

static void longest_list(struct env *env)
{
    suite_clients(env, 1, longest_client, NULL);
}

/* ---- many in flight -------------------------------------------------------------------------- */

struct small_list {
    struct fabric_list list;
    struct fabric_op ops[2];
    uint64_t value;
};

static void small_post(struct client *client, struct small_list *small, unsigned i)
{
    small->value = i + 1;
    small->ops[0] = fabric_write(AT + 8 * i, &small->value, 8);
    small->ops[1] = fabric_faa(AT_FLAG, 1);
    small->list = (struct fabric_list){.ops = small->ops, .count = 2};
    fabric_post(client->endpoint, &small->list);
}

static void ten_thousand_client(struct client *client)
{
    enum { COUNT = 10000 };
    struct small_list *lists = allocate(COUNT * sizeof(*lists));
    uint64_t *words = allocate(COUNT * sizeof(*words));

    for (unsigned i = 0; i < COUNT; i++)
        small_post(client, &lists[i], i);
    for (unsigned i = 0; i < COUNT; i++)
        CHECK_OK(fabric_wait_co(&lists[i].list));
    CHECK_EQ_U64(get_co(client, AT_FLAG), COUNT);
    read_co(client, AT, words, COUNT * sizeof(*words));
    for (unsigned i = 0; i < COUNT; i++)
        CHECK_EQ_U64(words[i], i + 1);
    free(words);
    free(lists);
}

static void ten_thousand_in_flight(struct env *env)
{
    suite_clients(env, 1, ten_thousand_client, NULL);
}

/* ---- a crowd of all kinds -------------------------------------------------------------------- */

enum { CROWD = 600, CROWD_BYTES = 64 * 1024 };

struct in_crowd {
    struct fabric_list list;
    struct fabric_op ops[2];
    uint8_t bytes[2][264];
    enum pando_status expected;
};

/* Mostly single READs: of whole words, of other sizes, of places that are not there; and now and then
 * something else. The ranges that are read stay as they are. */
static void crowd_list(struct in_crowd *one, unsigned i, uint64_t seed)
{
    uint64_t random = hash_u64(seed << 32 | i);
    uint32_t size = 1 + (uint32_t)(random >> 8) % 256;
    uint64_t offset = AT + (random >> 32) % (CROWD_BYTES - 256);

    if (random % 4 > 0)
        size = (size + 7) & ~7u;
    memset(one->bytes, 0, sizeof(one->bytes));
    one->ops[0] = fabric_read(offset, one->bytes[0], size);
    one->list = (struct fabric_list){.ops = one->ops, .count = 1};
    one->expected = PANDO_OK;
    switch (random >> 16 & 15) {
    case 0:
        one->ops[0].offset = ENV_HOST_BYTES - size / 2;
        one->expected = PANDO_RANGE;
        break;
    case 1:
        one->ops[1] = fabric_read(offset + 1, one->bytes[1], size);
        one->list.count = 2;
        break;
    case 2:
        one->ops[1] = fabric_faa(AT_FLAG, 1);
        one->list.count = 2;
        break;
    case 3:
        one->ops[0] = fabric_write(AT + CROWD_BYTES + 8 * i, &one->bytes[1], 8);
        break;
    }
}

static void crowd_check(const struct in_crowd *one)
{
    CHECK_STATUS(one->list.status, one->expected);
    for (unsigned i = 0; i < one->list.count; i++) {
        const struct fabric_op *op = &one->ops[i];
        if (one->expected != PANDO_OK || op->kind != FABRIC_READ)
            continue;
        pattern_check(one->bytes[i], 5, op->offset - AT, op->size);
        CHECK(one->bytes[i][op->size] == 0);
    }
}

static void crowd_client(struct client *client)
{
    struct in_crowd *lists = allocate(CROWD * sizeof(*lists));
    uint8_t *bytes = allocate(CROWD_BYTES);

    pattern_fill(bytes, 5, 0, CROWD_BYTES);
    write_co(client, AT, bytes, CROWD_BYTES);
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < CROWD; i++) {
            crowd_list(&lists[i], i, round);
            fabric_post(client->endpoint, &lists[i].list);
        }
        for (unsigned i = 0; i < CROWD; i++) {
            enum pando_status status = fabric_wait_co(&lists[i].list);
            CHECK_STATUS(status, lists[i].expected);
            crowd_check(&lists[i]);
        }
    }
    CHECK(!fabric_broken(client->endpoint));
    free(bytes);
    free(lists);
}

static void crowd(struct env *env)
{
    suite_clients(env, 1, crowd_client, NULL);
}

/* A backend that completes lists as they are posted never reaches the limit. */
static void limit_client(struct client *client)
{
    enum { COUNT = FABRIC_OUTSTANDING_MAX + 100 };
    struct small_list *lists = allocate(COUNT * sizeof(*lists));
    unsigned refused = 0;

    for (unsigned i = 0; i < COUNT; i++) {
        small_post(client, &lists[i], i);
        if (lists[i].list.pending || lists[i].list.status == PANDO_OK)
            continue;
        CHECK_STATUS(lists[i].list.status, PANDO_AGAIN);
        refused++;
        if (refused == 1) {
            unsigned pending = 0;
            for (unsigned j = 0; j < i; j++)
                pending += lists[j].list.pending;
            CHECK_EQ_U64(pending, FABRIC_OUTSTANDING_MAX);
        }
    }
    unsigned pending = 0;
    for (unsigned i = 0; i < COUNT; i++)
        pending += lists[i].list.pending;
    CHECK(pending <= FABRIC_OUTSTANDING_MAX);
    for (unsigned i = 0; i < COUNT; i++) {
        enum pando_status status = fabric_wait_co(&lists[i].list);
        CHECK(status == PANDO_OK || status == PANDO_AGAIN);
    }
    /* Refused ones had no effect, and it goes on. */
    CHECK_EQ_U64(get_co(client, AT_FLAG), COUNT - refused);
    CHECK(!fabric_broken(client->endpoint));
    free(lists);
}

static void outstanding_limit(struct env *env)
{
    suite_clients(env, 1, limit_client, NULL);
}

/* ---- lists that are refused ------------------------------------------------------------------ */

/* Submits it between two good lists that are in flight at the same time. */
static void refuse_co(struct client *client, const char *what, struct fabric_op *ops,
                      uint32_t count, enum pando_status expected)
{
    struct fabric_list lists[3];
    struct fabric_op faa[2] = {fabric_faa(AT_FLAG, 1), fabric_faa(AT_FLAG, 1)};
    uint64_t before = get_co(client, AT_FLAG);

    lists[0] = (struct fabric_list){.ops = &faa[0], .count = 1};
    lists[1] = (struct fabric_list){.ops = ops, .count = count};
    lists[2] = (struct fabric_list){.ops = &faa[1], .count = 1};
    for (int i = 0; i < 3; i++)
        fabric_post(client->endpoint, &lists[i]);
    enum pando_status status = fabric_wait_co(&lists[1]);
    if (status != expected)
        CHECK_FAIL("%s: '%s', not '%s'", what, pando_status_text(status),
                   pando_status_text(expected));
    CHECK_OK(fabric_wait_co(&lists[0]));
    CHECK_OK(fabric_wait_co(&lists[2]));
    CHECK(!fabric_broken(client->endpoint));
    CHECK_EQ_U64(get_co(client, AT_FLAG), before + 2);
}

static void bad_shapes_co(struct client *client, uint8_t *buffer)
{
    struct fabric_op *ops = allocate((FABRIC_LIST_OPS_MAX + 1) * sizeof(*ops));
    struct fabric_op op;

    for (unsigned i = 0; i <= FABRIC_LIST_OPS_MAX; i++)
        ops[i] = fabric_faa(AT, 1);
    refuse_co(client, "no operations", ops, 0, PANDO_INVALID);
    refuse_co(client, "257 operations", ops, FABRIC_LIST_OPS_MAX + 1, PANDO_INVALID);
    refuse_co(client, "2^32-1 operations", ops, UINT32_MAX, PANDO_INVALID);

    memset(buffer, 0xff, FABRIC_LIST_BYTES_MAX + 1);
    op = fabric_write(AT, buffer, FABRIC_LIST_BYTES_MAX + 1);
    refuse_co(client, "one WRITE too large", &op, 1, PANDO_TOO_LARGE);
    op = fabric_read(AT, buffer, FABRIC_LIST_BYTES_MAX + 1);
    refuse_co(client, "one READ too large", &op, 1, PANDO_TOO_LARGE);
    op = fabric_write(AT, buffer, UINT32_MAX);
    refuse_co(client, "a WRITE of 4 GiB", &op, 1, PANDO_TOO_LARGE);
    ops[0] = fabric_write(AT, buffer, FABRIC_LIST_BYTES_MAX / 2);
    ops[1] = fabric_read(AT, buffer + FABRIC_LIST_BYTES_MAX / 2, FABRIC_LIST_BYTES_MAX / 2);
    ops[2] = fabric_write(AT, buffer, 1);
    refuse_co(client, "too large together", ops, 3, PANDO_TOO_LARGE);

    ops[0] = fabric_faa(AT, 1);
    ops[1] = fabric_write(AT, buffer, 0);
    refuse_co(client, "a WRITE of nothing", ops, 2, PANDO_INVALID);
    ops[1] = fabric_read(AT, buffer, 0);
    refuse_co(client, "a READ of nothing", ops, 2, PANDO_INVALID);
    for (int kind = FABRIC_CAS; kind <= FABRIC_FAA; kind++) {
        ops[1] = fabric_cas(AT, 0, 1);
        ops[1].kind = (enum fabric_kind)kind;
        ops[1].size = 4;
        refuse_co(client, "a small atomic", ops, 2, PANDO_INVALID);
        ops[1].size = 16;
        refuse_co(client, "a big atomic", ops, 2, PANDO_INVALID);
        ops[1].size = 8;
        ops[1].offset = AT + 4;
        refuse_co(client, "an unaligned atomic", ops, 2, PANDO_RANGE);
        ops[1].offset = at_device(client->env) + 1;
        refuse_co(client, "an unaligned atomic on the device", ops, 2, PANDO_RANGE);
    }
    ops[1] = fabric_write(AT, buffer, 8);
    ops[1].kind = (enum fabric_kind)4;
    refuse_co(client, "an unknown kind", ops, 2, PANDO_INVALID);
    ops[1].kind = (enum fabric_kind) - 1;
    refuse_co(client, "a negative kind", ops, 2, PANDO_INVALID);
    /* Nothing of a list refused for its shape was done. */
    CHECK_EQ_U64(get_co(client, AT), 0);
    free(ops);
}

/* [offset, offset + size) is not all the users' memory. */
static void bad_range_co(struct client *client, uint64_t offset, uint32_t size, uint8_t *buffer)
{
    struct fabric_op ops[3];
    char what[64];

    snprintf(what, sizeof(what), "%u bytes at 0x%" PRIx64, size, offset);
    memset(buffer, 0xff, size);
    for (int kind = FABRIC_READ; kind <= FABRIC_FAA; kind++) {
        bool atomic = kind >= FABRIC_CAS;
        if (atomic && (size != 8 || offset % 8 != 0))
            continue;
        ops[1] = atomic ? fabric_cas(offset, 0, 1) : fabric_write(offset, buffer, size);
        ops[1].kind = (enum fabric_kind)kind;
        put_co(client, AT, 1);
        put_co(client, AT + 8, 1);
        ops[0] = fabric_faa(AT, 1);
        ops[2] = fabric_faa(AT + 8, 1);
        refuse_co(client, what, ops, 3, PANDO_RANGE);
        /* What came before may have been done, what came after has not. */
        uint64_t before = get_co(client, AT);
        CHECK(before == 1 || before == 2);
        CHECK_EQ_U64(get_co(client, AT + 8), 1);
    }
}

static void bad_ranges_co(struct client *client, uint8_t *buffer)
{
    uint64_t first = fabric_window_first(client->fabric);
    const uint64_t starts[] = {
        0,
        8,
        4096,
        first - 8,
        ENV_HOST_BYTES,
        ENV_HOST_BYTES + ENV_DEVICE_BYTES,
        (uint64_t)1 << 40,
        FABRIC_DEVICE - 8,
        FABRIC_DEVICE + ENV_DEVICE_BYTES,
        FABRIC_DEVICE + ENV_HOST_BYTES,
        (uint64_t)1 << 48,
        ((uint64_t)1 << 48) + AT,
        ((uint64_t)1 << 63) + AT,
        UINT64_MAX - 7,
    };
    for (unsigned i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
        bad_range_co(client, starts[i], 8, buffer);

    bad_range_co(client, first - 1, 1, buffer);
    bad_range_co(client, first - 1, 2, buffer);
    bad_range_co(client, ENV_HOST_BYTES - 4, 8, buffer);
    bad_range_co(client, ENV_HOST_BYTES - 4096, 4097, buffer);
    bad_range_co(client, FABRIC_DEVICE - 4, 8, buffer);
    if (client->env->ops->compute)
        bad_range_co(client, FABRIC_DEVICE, 8, buffer);
    bad_range_co(client, FABRIC_DEVICE + ENV_DEVICE_BYTES - 4, 8, buffer);
    bad_range_co(client, UINT64_MAX - 3, 8, buffer);
    bad_range_co(client, UINT64_MAX, 1, buffer);
    bad_range_co(client, UINT64_MAX - 100, 1000000, buffer);
    bad_range_co(client, 0, 1000000, buffer);
}

static void bad_client(struct client *client)
{
    uint8_t *buffer = allocate(FABRIC_LIST_BYTES_MAX + 1);

    /* The last good bytes are next to the first bad ones. */
    put_co(client, ENV_HOST_BYTES - 8, 1234);
    put_co(client, env_device(client->env) + ENV_DEVICE_BYTES - 8, 1234);
    put_co(client, fabric_window_first(client->fabric), 1234);
    bad_shapes_co(client, buffer);
    bad_ranges_co(client, buffer);
    CHECK_EQ_U64(get_co(client, ENV_HOST_BYTES - 8), 1234);
    CHECK_EQ_U64(get_co(client, env_device(client->env) + ENV_DEVICE_BYTES - 8), 1234);
    CHECK_EQ_U64(get_co(client, fabric_window_first(client->fabric)), 1234);
    free(buffer);
}

static void bad_lists(struct env *env)
{
    suite_clients(env, 1, bad_client, NULL);
}

/* ---- counters -------------------------------------------------------------------------------- */

static void expect_counters(struct client *client, const struct fabric_counters *expected)
{
    const struct fabric_counters *now = fabric_endpoint_counters(client->endpoint);
    CHECK_EQ_U64(now->lists, expected->lists);
    CHECK_EQ_U64(now->reads, expected->reads);
    CHECK_EQ_U64(now->writes, expected->writes);
    CHECK_EQ_U64(now->atomics, expected->atomics);
    CHECK_EQ_U64(now->calls, expected->calls);
    CHECK_EQ_U64(now->bytes_out, expected->bytes_out);
    CHECK_EQ_U64(now->bytes_in, expected->bytes_in);
    CHECK_EQ_U64(now->retries, expected->retries);
}

static void counting_client(struct client *client)
{
    struct fabric_counters expected = {0}, sum = {.lists = 1, .retries = 2};
    uint8_t bytes[300] = {0};
    uint32_t reply_size;

    expect_counters(client, &expected);
    struct fabric_op ops[] = {
        fabric_write(AT, bytes, 100), fabric_write(AT, bytes, 1),
        fabric_cas(AT, 0, 0),         fabric_faa(AT, 0),
        fabric_read(AT, bytes, 300),
    };
    CHECK_OK(fabric_submit_co(client->endpoint, ops, 5));
    /* A CAS carries two operands, a FAA one, and each brings a word back. */
    expected = (struct fabric_counters){.lists = 1,
                                        .reads = 1,
                                        .writes = 2,
                                        .atomics = 2,
                                        .bytes_out = 100 + 1 + 16 + 8,
                                        .bytes_in = 300 + 8 + 8};
    expect_counters(client, &expected);

    /* What is refused is not a round trip. */
    CHECK_STATUS(fabric_submit_co(client->endpoint, ops, 0), PANDO_INVALID);
    expect_counters(client, &expected);

    for (int i = 0; i < 10; i++)
        CHECK_OK(fabric_submit_co(client->endpoint, &ops[4], 1));
    expected.lists += 10;
    expected.reads += 10;
    expected.bytes_in += 3000;
    expect_counters(client, &expected);

    CHECK_OK(fabric_call_co(client->endpoint, METHOD_ECHO, slice_of(bytes, 77), bytes,
                            sizeof(bytes), &reply_size));
    expected.calls = 1;
    expected.bytes_out += 77;
    expected.bytes_in += 77;
    expect_counters(client, &expected);

    fabric_endpoint_counters(client->endpoint)->retries += 3;
    expected.retries = 3;
    expect_counters(client, &expected);
    fabric_counters_add(&sum, fabric_endpoint_counters(client->endpoint));
    CHECK_EQ_U64(sum.lists, 12);
    CHECK_EQ_U64(sum.retries, 5);
}

static void counters(struct env *env)
{
    suite_clients(env, 1, counting_client, NULL);
}

const struct suite_case lists_cases[] = {
    {.name = "small_round_trips", .run = small_round_trips},
    {.name = "large_round_trips", .run = large_round_trips, .seeds_max = 4},
    {.name = "large_transfer", .run = large_transfer, .seeds_max = 3},
    {.name = "longest_list", .run = longest_list},
    {.name = "ten_thousand_in_flight", .run = ten_thousand_in_flight, .seeds_max = 4},
    {.name = "crowd", .run = crowd, .seeds_max = 4},
    {.name = "outstanding_limit", .run = outstanding_limit, .seeds_max = 3},
    {.name = "bad_lists", .run = bad_lists},
    {.name = "counters", .run = counters},
    {0},
};
