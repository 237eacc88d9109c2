/*
 * The client's side of a connection against a server that this test plays: results that come in
 * pieces, of which none is taken before all of it is there; and results that lie, which break the
 * endpoint and touch nothing else.
 */
#include <sys/socket.h>

#include "unit/tcp_world.h"

enum { READS = 5, READ_BYTES = 64, RESULT = WIRE_LIST_HEADER + READ_BYTES, GUARD = 0xa5 };

struct line {
    struct fabric_endpoint *endpoint;
    int far;
};

/* An endpoint whose server is the other end of a pair of sockets. */
static struct line open_line(void)
{
    struct tcp_endpoint *endpoint = tcp_endpoint_create(client, 1);
    int fds[2];
    CHECK(endpoint != NULL && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    endpoint->client.stream.fd = fds[0];
    CHECK_OK(tcp_endpoint_open(endpoint));
    return (struct line){.endpoint = &endpoint->client.base, .far = fds[1]};
}

static void close_line_co(struct line *line)
{
    fabric_disconnect_co(line->endpoint);
    close(line->far);
}

static void say_co(struct line *line, const uint8_t *bytes, size_t size)
{
    CHECK(send(line->far, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
    rt_yield_co();
    rt_yield_co();
}

struct reads {
    struct fabric_op ops[READS];
    struct fabric_list lists[READS];
    uint8_t buffers[READS][READ_BYTES + 64]; /* the rest is to stay as it is */
};

static void reads_post(struct line *line, struct reads *reads, unsigned first, unsigned count,
                       uint32_t size)
{
    for (unsigned i = first; i < first + count; i++) {
        memset(reads->buffers[i], GUARD, sizeof(reads->buffers[i]));
        reads->ops[i] = fabric_read(0, reads->buffers[i], size);
        reads->lists[i] = (struct fabric_list){.ops = &reads->ops[i], .count = 1};
        fabric_post(line->endpoint, &reads->lists[i]);
    }
}

static unsigned reads_done(const struct reads *reads, unsigned count)
{
    unsigned done = 0;
    for (unsigned i = 0; i < count; i++)
        done += !reads->lists[i].pending;
    return done;
}

static void check_read(const struct reads *reads, unsigned i)
{
    CHECK_OK(reads->lists[i].status);
    for (unsigned j = 0; j < sizeof(reads->buffers[i]); j++)
        CHECK_EQ_U64(reads->buffers[i][j], j < READ_BYTES ? i + 1 : GUARD);
}

static void check_untouched(const struct reads *reads, unsigned i)
{
    CHECK_STATUS(reads->lists[i].status, PANDO_BROKEN);
    for (unsigned j = 0; j < sizeof(reads->buffers[i]); j++)
        CHECK_EQ_U64(reads->buffers[i][j], GUARD);
}

static uint8_t *put_result(uint8_t *to, unsigned i, uint16_t tag, uint32_t bytes)
{
    wire_put_u64(to, wire_header_word(bytes, PANDO_OK, tag));
    memset(to + WIRE_LIST_HEADER, (int)i + 1, bytes - WIRE_LIST_HEADER);
    return to + bytes;
}

/* A frame that says it has `count` results in `size` bytes, and has `results`. */
static size_t put_results(uint8_t *to, uint32_t size, uint16_t count, unsigned results)
{
    uint8_t *at = to + WIRE_FRAME_HEADER;
    wire_put_frame(to, size, WIRE_RESULTS, count);
    for (unsigned i = 0; i < results; i++)
        at = put_result(at, i, (uint16_t)i, RESULT);
    return (size_t)(at - to);
}

static void pieces_co(void *arg)
{
    uint8_t frame[WIRE_FRAME_HEADER + READS * RESULT];
    (void)arg;
    for (size_t cut = 0; cut < sizeof(frame); cut++) {
        struct line line = open_line();
        struct reads reads;
        reads_post(&line, &reads, 0, READS, READ_BYTES);
        size_t size = put_results(frame, READS * RESULT, READS, READS);
        size_t whole = cut < WIRE_FRAME_HEADER ? 0 : (cut - WIRE_FRAME_HEADER) / RESULT;
        say_co(&line, frame, cut);
        CHECK_EQ_U64(reads_done(&reads, READS), whole);
        say_co(&line, frame + cut, size - cut);
        CHECK_EQ_U64(reads_done(&reads, READS), READS);
        for (unsigned i = 0; i < READS; i++)
            check_read(&reads, i);
        close_line_co(&line);
    }
}

/* A frame may be announced before all of its lists were even posted. */
static void early_frame_co(void *arg)
{
    uint8_t frame[WIRE_FRAME_HEADER + READS * RESULT];
    struct line line = open_line();
    struct reads reads;
    (void)arg;
    put_results(frame, READS * RESULT, READS, READS);
    for (unsigned i = 0; i < READS; i++) {
        size_t from = i == 0 ? 0 : WIRE_FRAME_HEADER + (size_t)i * RESULT;
        size_t to = WIRE_FRAME_HEADER + (size_t)(i + 1) * RESULT;
        reads_post(&line, &reads, i, 1, READ_BYTES);
        say_co(&line, frame + from, to - from);
        CHECK(!reads.lists[i].pending);
        check_read(&reads, i);
        /* Whoever waited has reused the memory by now. */
        memset(&reads.lists[i], 0xff, sizeof(reads.lists[i]));
    }
    CHECK(!fabric_broken(line.endpoint));
    close_line_co(&line);
}

/* The first `good` lists succeed, the others fail with the endpoint. */
static void expect_broken_co(const char *what, const uint8_t *bytes, size_t size, unsigned good,
                             uint32_t read_bytes)
{
    struct line line = open_line();
    struct reads reads;
    reads_post(&line, &reads, 0, READS, read_bytes);
    say_co(&line, bytes, size);
    if (!fabric_broken(line.endpoint) || reads_done(&reads, READS) != READS)
        CHECK_FAIL("%s: not broken", what);
    for (unsigned i = 0; i < good; i++)
        check_read(&reads, i);
    for (unsigned i = good; i < READS; i++)
        check_untouched(&reads, i);
    close_line_co(&line);
}

static void lies_co(void *arg)
{
    uint8_t frame[1024];
    size_t size;
    (void)arg;
    for (unsigned i = 0; i < READS; i++) {
        uint8_t *result = frame + WIRE_FRAME_HEADER + (size_t)i * RESULT;
        size = put_results(frame, READS * RESULT, READS, READS);
        put_result(result, i, (uint16_t)(i + 1), RESULT);
        expect_broken_co("another's tag", frame, size, i, READ_BYTES);
        size = put_results(frame, READS * RESULT, READS, READS);
        put_result(result, i, (uint16_t)i, RESULT - 8);
        expect_broken_co("too short", frame, size, i, READ_BYTES);
        size = put_results(frame, READS * RESULT, READS, READS);
        put_result(result, i, (uint16_t)i, RESULT + 8);
        expect_broken_co("too long", frame, size, i, READ_BYTES);
        if (i == 0)
            continue;
        size = put_results(frame, i * RESULT, READS, READS);
        expect_broken_co("beyond the frame", frame, size, i, READ_BYTES);
    }
    /* 20 bytes take 24 on the wire: a result that is not padded is none. */
    put_results(frame, READS * RESULT, READS, READS);
    put_result(frame + WIRE_FRAME_HEADER, 0, 0, WIRE_LIST_HEADER + 20);
    expect_broken_co("not whole words", frame, sizeof(frame), 0, 20);

    size = put_results(frame, READS * RESULT, READS + 1, READS);
    expect_broken_co("more results than bytes", frame, size, READS, READ_BYTES);
    size = put_results(frame, (READS + 1) * RESULT, READS, READS + 1);
    expect_broken_co("more bytes than results", frame, size, READS, READ_BYTES);
    size = put_results(frame, (READS + 1) * RESULT, READS + 1, READS + 1);
    expect_broken_co("more results than lists", frame, size, READS, READ_BYTES);
    size = put_results(frame, 0, 0, 0);
    expect_broken_co("no results", frame, size, 0, READ_BYTES);
}

int main(void)
{
    world_open(2);
    run(pieces_co);
    run(early_frame_co);
    run(lies_co);
    world_close();
    return 0;
}
