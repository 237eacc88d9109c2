/*
 * Arbitrary bytes from a server that a client has connected to: before it has proved that it knows the
 * secret, and afterwards, when results and replies are expected. Whatever comes, the client neither
 * fails nor waits for ever, and it believes only a server that gave the proof for this very connection.
 *
 * The input is what the server does: a byte that says how far it plays its part, then for each frame
 * how a sound one is made and damaged, or what bytes are sent instead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/session/channel.h"
#include "fabric/session/session_int.h"
#include "fabric/tcp/tcp_int.h"
#include "fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { NODE = 1, WINDOW = 7, FRAMES_MAX = 64, TAIL_MAX = 4096, METHOD = 5, REPLY_BYTES = 40 };

/* Longer than a test may take: the server hangs up at its end, so nobody waits for that. */
static const uint64_t TIMEOUT_NS = 60 * RT_NS_PER_S;

static struct rt_loop *loop;
static struct socket_fabric fabric;
static struct credentials *credentials;
static struct credential_set *set;
static struct input input;

/* What the server has said. */
static struct {
    struct stream stream;
    struct handshake handshake;
    bool sound;  /* every frame so far is what an honest server sends */
    bool proved; /* and the last was a WELCOME */
    bool ended;
} server;

static struct client_connect connect_made;

/* ---- the server ------------------------------------------------------------------------------ */

/* Changes a few bytes of what is sound. How many lists a frame has counts for nothing here. */
static void damage(uint8_t *frame, size_t size)
{
    enum { COUNT_AT = 6, COUNT_END = 8 };
    uint8_t before[WIRE_FRAME_HEADER + HANDSHAKE_BODY_MAX];
    uint8_t count = input_byte(&input) % 4;

    pando_assert(size <= sizeof(before));
    memcpy(before, frame, size);
    for (uint8_t i = 0; i < count; i++) {
        size_t at = input_word(&input, 2) % size;
        frame[at] ^= input_byte(&input);
    }
    if (memcmp(before, frame, COUNT_AT) != 0 ||
        memcmp(before + COUNT_END, frame + COUNT_END, size - COUNT_END) != 0)
        server.sound = false;
}

/* The client may have hung up: then nobody reads it. */
static void say(const uint8_t *bytes, size_t size)
{
    (void)!channel_send_co(&server.stream, bytes, size, rt_now_ns() + TIMEOUT_NS);
}

static void say_frame(enum wire_type type, const uint8_t *body, uint32_t size)
{
    uint8_t frame[WIRE_FRAME_HEADER + HANDSHAKE_BODY_MAX];
    uint8_t choice = input_byte(&input);
    size_t bytes = WIRE_FRAME_HEADER + size;

    wire_put_frame(frame, size, type, 0);
    memcpy(frame + WIRE_FRAME_HEADER, body, size);
    if (choice == 0xff) { /* something else */
        bytes = input_byte(&input);
        input_copy(&input, frame, bytes);
        server.sound = false;
    } else {
        damage(frame, bytes);
    }
    say(frame, bytes);
}

static bool hear(enum wire_type type, uint8_t *body)
{
    struct wire_frame frame;
    return channel_receive_frame_co(&server.stream, &frame, body, HANDSHAKE_BODY_MAX,
                                    rt_now_ns() + TIMEOUT_NS) == PANDO_OK &&
           frame.type == type;
}

static void server_handshake(void)
{
    uint8_t body[HANDSHAKE_BODY_MAX];
    struct handshake_welcome welcome = {
        .node = NODE, .window_bytes = 1 << 20, .window = WINDOW, .target = FABRIC_MEMORY};

    server.handshake = (struct handshake){.protocol = &tcp_protocol, .secrets = set->secrets};
    if (!hear(WIRE_HELLO, body) || handshake_get_hello(&server.handshake, body) != PANDO_OK)
        return;
    input_copy(&input, server.handshake.server_nonce, WIRE_NONCE_BYTES);
    say_frame(WIRE_CHALLENGE, server.handshake.server_nonce, WIRE_CHALLENGE_BYTES);
    /* The client may be waiting for more of a damaged one. */
    if (server.sound && !hear(WIRE_PROOF, body))
        return;
    uint8_t choice = input_byte(&input);
    welcome.status = choice % 8 == 7 ? PANDO_FENCED : PANDO_OK;
    welcome.refusal = choice / 8 % WIRE_REFUSALS;
    pando_assert(handshake_put_welcome(&server.handshake, &welcome, body) == PANDO_OK);
    say_frame(WIRE_WELCOME, body, handshake_welcome_bytes(&tcp_protocol));
    server.proved = server.sound && welcome.status == PANDO_OK;
}

/* Frames of results and replies, sound but for the damage, or any bytes. */
static void server_answers(void)
{
    static uint8_t bytes[TAIL_MAX], zeroes[32];
    size_t size = 0;

    for (int i = 0; i < FRAMES_MAX && input.size > 0 && size < TAIL_MAX / 2; i++) {
        uint8_t choice = input_byte(&input), *frame = bytes + size;
        uint32_t body = choice / 8 * 8;
        memset(frame, 0, WIRE_FRAME_HEADER + 256);
        switch (choice % 8) {
        case 0:
            wire_put_frame(frame, 0, WIRE_PONG, 0);
            body = 0;
            break;
        case 1: /* a reply to the call */
        case 2:
            body = WIRE_CALL_HEADER + wire_padded(choice / 8);
            wire_put_frame(frame, body, WIRE_REPLY, 0);
            wire_put_call(frame + WIRE_FRAME_HEADER, input_byte(&input) % 2, PANDO_OK, zeroes,
                          choice / 8);
            break;
        case 3:
        case 4: /* the result of the first list, and what may be those of others */
            body = WIRE_LIST_HEADER + choice / 8 * 8;
            wire_put_frame(frame, body, WIRE_RESULTS, 1 + choice % 2);
            wire_put_u64(frame + WIRE_FRAME_HEADER,
                         wire_header_word(body, PANDO_OK, input_byte(&input) % 4));
            break;
        default:
            body = input_byte(&input);
            input_copy(&input, frame, WIRE_FRAME_HEADER + body);
        }
        damage(frame, WIRE_FRAME_HEADER + body);
        size += WIRE_FRAME_HEADER + body;
    }
    say(bytes, size);
}

static void server_task(void *arg)
{
    bool greet = *(const bool *)arg;
    if (greet)
        server_handshake();
    if (!greet || server.proved)
        server_answers();
    (void)shutdown(server.stream.fd, SHUT_WR);
    server.ended = true;
}

/* ---- the client ------------------------------------------------------------------------------ */

static unsigned waiting; /* tasks with something under way */

static void ask_lists(void *arg)
{
    struct fabric_endpoint *endpoint = arg;
    uint8_t buffers[3][64];
    struct fabric_op one = fabric_read(WINDOW_FIRST, buffers[0], 32);
    struct fabric_op mixed[] = {
        fabric_read(WINDOW_FIRST, buffers[1], 37),
        fabric_write(WINDOW_FIRST, buffers[2], 8),
        fabric_cas(WINDOW_FIRST, 1, 2),
    };
    memset(buffers, 0, sizeof(buffers));
    if (fabric_submit_co(endpoint, &one, 1) == PANDO_OK)
        (void)!fabric_submit_co(endpoint, mixed, 3);
    waiting--;
}

static void ask_call(void *arg)
{
    struct fabric_endpoint *endpoint = arg;
    uint8_t reply[REPLY_BYTES + 1];
    uint32_t size = 0;
    reply[REPLY_BYTES] = 0x5a;
    (void)!client_endpoint_call_co(endpoint, METHOD, slice_of_text("question"), reply, REPLY_BYTES,
                                   &size);
    pando_assert(reply[REPLY_BYTES] == 0x5a && size <= FABRIC_CALL_BYTES_MAX);
    waiting--;
}

static void use(struct stream stream)
{
    struct tcp_endpoint *endpoint = tcp_endpoint_create(&fabric.base, NODE);
    struct fabric_endpoint *base = &endpoint->client.base;
    pando_assert(endpoint != NULL);
    endpoint->client.stream = stream;
    pando_assert(tcp_endpoint_open(endpoint) == PANDO_OK);
    waiting = 3;
    pando_assert(rt_spawn(loop, ask_lists, base) == PANDO_OK);
    pando_assert(rt_spawn(loop, ask_lists, base) == PANDO_OK);
    pando_assert(rt_spawn(loop, ask_call, base) == PANDO_OK);
    while (waiting > 0)
        rt_yield_co();
    tcp_disconnect_co(base);
}

static bool greet(int fd, uint64_t expects)
{
    connect_made = (struct client_connect){.protocol = &tcp_protocol,
                                           .credentials = credentials,
                                           .timeout_ns = TIMEOUT_NS,
                                           .location = "127.0.0.1:1",
                                           .node = NODE,
                                           .claim.window = expects};
    struct client_attempt attempt = {
        .connect = &connect_made,
        .credentials = set,
        .handshake = {.protocol = &tcp_protocol, .secrets = set->secrets},
        .stream = {.fd = fd},
        .deadline_ns = rt_now_ns() + TIMEOUT_NS,
    };
    enum pando_status status = client_hello_co(&attempt);
    if (status == PANDO_OK)
        status = client_prove_co(&attempt);
    pando_assert(strnlen(connect_made.trouble, CONNECTION_TROUBLE_BYTES) <
                 CONNECTION_TROUBLE_BYTES);
    pando_assert(status >= PANDO_OK && status < PANDO_STATUS_COUNT && status != PANDO_TIMEOUT);
    pando_assert((status == PANDO_OK) == (server.proved && (expects == 0 || expects == WINDOW)));
    return status == PANDO_OK;
}

static void steps(void *arg)
{
    int fds[2];
    static const uint64_t windows[] = {0, WINDOW, WINDOW + 1};
    uint8_t choice = input_byte(&input);
    bool with_handshake = choice % 4 != 0;

    (void)arg;
    pando_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    memset(&server, 0, sizeof(server));
    server.stream.fd = fds[1];
    server.sound = true;
    pando_assert(rt_spawn(loop, server_task, &with_handshake) == PANDO_OK);
    if (!with_handshake || greet(fds[0], windows[choice / 4 % 3]))
        use((struct stream){.fd = fds[0]});
    else
        close(fds[0]);
    while (!server.ended)
        rt_yield_co();
    close(fds[1]);
}

/* The secret comes from a file without a name. */
static void credentials_build(void)
{
    static const char text[] = "0123456789abcdef";
    struct fabric_tls tls = {.insecure = true};
    char path[64], error[256];
    int fd = memfd_create("secret", MFD_CLOEXEC);

    pando_assert(fd >= 0 && fchmod(fd, 0600) == 0);
    pando_assert(write(fd, text, sizeof(text) - 1) == (ssize_t)sizeof(text) - 1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    pando_assert(credentials_open(path, &tls, false, &credentials, error, sizeof(error)) ==
                 PANDO_OK);
    set = credentials_hold(credentials);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (loop == NULL) {
        log_set_level(LOG_LEVEL_ERROR);
        credentials_build();
        fabric.base.ops = &tcp_fabric_ops;
        fabric.timeout_ns = TIMEOUT_NS;
        loop = rt_loop_create();
        pando_assert(loop != NULL);
    }
    input = (struct input){data, size};
    pando_assert(rt_loop_call(loop, steps, NULL) == PANDO_OK);
    return 0;
}
