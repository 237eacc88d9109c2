/*
 * A peer that knows the secret and lies in its frames of lists: counts, sizes and places that do not
 * fit each other. What is true in a frame may be answered; at the lie the server closes the
 * connection, and nothing else suffers.
 */
#include "fabric/window/window_fmt.h"
#include "unit/tcp_world.h"

enum { NODE = 3, HOST_BYTES = 4 * 1024 * 1024, READ_BYTES = 64 };

static const uint64_t ANSWER_NS = 5 * RT_NS_PER_S;

static struct fabric *server;

static struct stream connect_co(void)
{
    struct socket_fabric *fabric = socket_fabric_of(client);
    struct client_connect connect = {
        .protocol = &tcp_protocol,
        .credentials = fabric->credentials,
        .timeout_ns = ANSWER_NS,
        .location = fabric_location(server),
        .node = NODE,
        .claim = {.endpoint_id = rt_random()},
    };
    struct stream stream;
    CHECK_OK(client_connect_co(&connect, &stream));
    return stream;
}

/* A frame that says it has `count` lists in `size` bytes, and has `lists` READs in it. */
static size_t make_frame(uint8_t *to, uint32_t size, uint16_t count, unsigned lists,
                         uint64_t offset)
{
    struct fabric_op op = fabric_read(offset, NULL, READ_BYTES);
    wire_put_frame(to, size, WIRE_LISTS, count);
    to += WIRE_FRAME_HEADER;
    for (unsigned i = 0; i < lists; i++)
        wire_put_read(to + (size_t)i * WIRE_READ_LIST, (uint16_t)i, &op);
    return WIRE_FRAME_HEADER + (size_t)lists * WIRE_READ_LIST;
}

/* Bytes that come back until `wanted` are there; -1: the connection was closed first. */
static ssize_t receive_co(struct stream *stream, size_t wanted)
{
    uint64_t deadline_ns = rt_now_ns() + ANSWER_NS;
    uint8_t bytes[4096];
    size_t got = 0;

    while (got < wanted) {
        ssize_t more = stream_read(stream, bytes, sizeof(bytes));
        if (more < 0)
            return -1;
        got += (size_t)more;
        CHECK(rt_now_ns() < deadline_ns);
        rt_sleep_co(RT_NS_PER_MS / 10);
    }
    return (ssize_t)got;
}

static void send_all(struct stream *stream, const uint8_t *bytes, size_t size)
{
    CHECK(stream_write(stream, bytes, size) == (ssize_t)size);
}

static void expect_closed_co(const char *what, const uint8_t *bytes, size_t size)
{
    struct stream stream = connect_co();
    send_all(&stream, bytes, size);
    if (receive_co(&stream, SIZE_MAX) != -1)
        CHECK_FAIL("%s: not closed", what);
    stream_close(&stream);
}

static void expect_answered_co(const uint8_t *bytes, size_t size, size_t answer)
{
    struct stream stream = connect_co();
    send_all(&stream, bytes, size);
    CHECK(receive_co(&stream, answer) == (ssize_t)answer);
    stream_close(&stream);
}

static void lies_co(void *arg)
{
    uint8_t frame[4096] = {0};
    size_t size;
    (void)arg;

    for (unsigned lists = 1; lists <= 40; lists += 3) {
        uint32_t bytes = lists * WIRE_READ_LIST;
        size = make_frame(frame, bytes, (uint16_t)lists, lists, WINDOW_FIRST);
        expect_answered_co(frame, size,
                           WIRE_FRAME_HEADER + (size_t)lists * (WIRE_LIST_HEADER + READ_BYTES));
        /* A place that is not there fails its list alone. */
        size = make_frame(frame, bytes, (uint16_t)lists, lists, HOST_BYTES - 8);
        expect_answered_co(frame, size, WIRE_FRAME_HEADER + (size_t)lists * WIRE_LIST_HEADER);

        size = make_frame(frame, bytes, (uint16_t)(lists + 1), lists + 1, WINDOW_FIRST);
        expect_closed_co("more lists than bytes", frame, size);
        size = make_frame(frame, bytes + WIRE_READ_LIST, (uint16_t)lists, lists + 1, WINDOW_FIRST);
        expect_closed_co("more bytes than lists", frame, size);
        size = make_frame(frame, bytes - 8, (uint16_t)lists, lists, WINDOW_FIRST);
        expect_closed_co("the last list cut", frame, size);
        size = make_frame(frame, 0, (uint16_t)lists, lists, WINDOW_FIRST);
        expect_closed_co("no bytes at all", frame, size);
        size = make_frame(frame, bytes, 0, lists, WINDOW_FIRST);
        expect_closed_co("no lists", frame, size);
        size = make_frame(frame, bytes, (uint16_t)lists, lists, WINDOW_FIRST);
        wire_put_u64(frame + size - 8, 0);
        expect_closed_co("a READ of nothing", frame, size);
        wire_put_u64(frame + size - 8, FABRIC_LIST_BYTES_MAX + 8);
        expect_closed_co("a READ of too much", frame, size);
    }
}

int main(void)
{
    world_open(NODE + 1);
    server = open_fabric((struct fabric_socket_options){
        .node = NODE, .target = FABRIC_MEMORY, .listen = "127.0.0.1:0", .host_bytes = HOST_BYTES});
    CHECK_OK(fabric_tcp_start(server));
    run(lies_co);
    fabric_close(server);
    world_close();
    return 0;
}
