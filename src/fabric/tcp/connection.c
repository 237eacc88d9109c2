/*
 * connection.c - the server's side of a connection: bytes in, lists executed, bytes out.
 *
 * Nothing here suspends; what may (calls, fences, admission) is handed to tasks in serve.c. A list
 * is executed when all of it has arrived, and a frame need not have.
 */
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/tcp/tcp_int.h"

enum {
    STRANGER_IN_MAX = 256, /* bytes of input kept for a peer that has proved nothing */
    READS_PER_POLL = 8,
    PREFETCH_LISTS = 64,
};

static struct tcp_fabric *fabric_of(struct connection *connection)
{
    return connection->thread->server->fabric;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void connection_ready(struct rt_fd *fd, uint32_t events)
{
    struct connection *connection = container_of(fd, struct connection, fd);
    (void)events;
    (void)connection_poll(connection);
}

struct connection *connection_create(int fd)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL)
        return NULL;
    connection->stream.fd = fd;
    connection->fd = (struct rt_fd){.fd = fd, .events = EPOLLIN, .ready = connection_ready};
    list_init(&connection->link);
    list_init(&connection->hot_link);
    return connection;
}

static void connection_free(struct connection *connection)
{
    list_remove(&connection->link);
    stream_close(&connection->stream);
    bytes_fini(&connection->in);
    bytes_fini(&connection->out);
    free(connection);
}

void connection_start(struct connection *connection, struct server_thread *thread)
{
    struct tcp_fabric *fabric = thread->server->fabric;

    connection->thread = thread;
    connection->born_ns = connection->input_ns = rt_now_ns();
    connection->state = fabric->server_tls != NULL ? CONNECTION_TLS : CONNECTION_HELLO;
    list_push_back(&thread->connections, &connection->link);
    if (thread->stopping || rt_fd_add(server_loop(thread), &connection->fd) != PANDO_OK) {
        atomic_fetch_sub(&thread->server->strangers, 1);
        atomic_fetch_sub(&thread->server->connections, 1);
        connection_free(connection);
        return;
    }
    if (fabric->server_tls != NULL &&
        tls_attach(&connection->stream, fabric->server_tls, TLS_SERVER, NULL) != PANDO_OK)
        connection_close(connection, "no memory for TLS");
}

void connection_close(struct connection *connection, const char *why)
{
    struct server *server = connection->thread->server;

    if (connection->state == CONNECTION_CLOSED)
        return;
    if (why != NULL)
        log_warn("connection dropped", log_text("why", why),
                 log_u64("member", connection->identity.member));
    if (connection->state < CONNECTION_OPEN)
        atomic_fetch_sub(&server->strangers, 1);
    atomic_fetch_sub(&server->connections, 1);
    connection->state = CONNECTION_CLOSED;
    rt_fd_remove(server_loop(connection->thread), &connection->fd);
    list_remove(&connection->hot_link);
    list_remove(&connection->link);
    if (connection->holds > 0) {
        list_push_back(&connection->thread->closed, &connection->link);
        stream_close(&connection->stream);
        return;
    }
    connection_free(connection);
}

void connection_release(struct connection *connection)
{
    pando_assert(connection->holds > 0);
    if (--connection->holds == 0 && connection->state == CONNECTION_CLOSED)
        connection_free(connection);
}

/* ---- output ---------------------------------------------------------------------------------- */

bool connection_flush(struct connection *connection)
{
    struct bytes *out = &connection->out;

    frame_close(out, &connection->results, WIRE_RESULTS);
    while (bytes_used(out) > 0) {
        ssize_t put = stream_write(&connection->stream, bytes_front(out), bytes_used(out));
        if (put < 0) {
            connection_close(connection, NULL);
            return false;
        }
        if (put == 0)
            break;
        bytes_taken(out, (size_t)put);
    }
    /* While its output is full, more input would only wake us in vain. */
    uint32_t events = connection->throttled ? EPOLLOUT
                      : bytes_used(out) > 0 ? EPOLLIN | EPOLLOUT
                                            : EPOLLIN;
    rt_fd_change(server_loop(connection->thread), &connection->fd, events);
    return true;
}

/* ---- input ----------------------------------------------------------------------------------- */

/* What a step of the input led to. */
enum outcome {
    GO_ON,
    WAIT,   /* for more bytes, or for room in the output */
    GONE,   /* the connection was closed */
    REFUSE, /* close it: no honest peer does that */
};

static enum outcome on_hello(struct connection *connection, const uint8_t *body)
{
    struct handshake *handshake = &connection->handshake;
    if (wire_get_u64(body) != WIRE_MAGIC)
        return REFUSE;
    if (wire_get_u16(body + 8) != WIRE_VERSION) {
        uint8_t *welcome = frame_whole(&connection->out, WIRE_WELCOME, WIRE_WELCOME_BYTES);
        if (welcome == NULL)
            return REFUSE;
        memset(welcome, 0, WIRE_WELCOME_BYTES);
        wire_put_u16(welcome, PANDO_VERSION);
        return connection_flush(connection) ? REFUSE : GONE;
    }
    memcpy(handshake->client_nonce, body + 16, WIRE_NONCE_BYTES);
    uint8_t *challenge = frame_whole(&connection->out, WIRE_CHALLENGE, WIRE_CHALLENGE_BYTES);
    if (challenge == NULL || secret_nonce(handshake->server_nonce, WIRE_NONCE_BYTES) != PANDO_OK ||
        stream_binding(&connection->stream, handshake->binding) != PANDO_OK)
        return REFUSE;
    memcpy(challenge, handshake->server_nonce, WIRE_NONCE_BYTES);
    connection->state = CONNECTION_PROOF;
    return connection_flush(connection) ? GO_ON : GONE;
}

static enum outcome on_proof(struct connection *connection, const uint8_t *body)
{
    uint8_t expected[WIRE_PROOF_BYTES];
    if (handshake_proof(&fabric_of(connection)->secret, HANDSHAKE_CLIENT, &connection->handshake,
                        slice_of(body, 16), expected) != PANDO_OK)
        return REFUSE;
    if (!secret_proof_equal(expected, body + 16)) {
        uint8_t *welcome = frame_whole(&connection->out, WIRE_WELCOME, WIRE_WELCOME_BYTES);
        if (welcome == NULL)
            return REFUSE;
        memset(welcome, 0, WIRE_WELCOME_BYTES);
        wire_put_u16(welcome, PANDO_DENIED);
        if (!connection_flush(connection))
            return GONE;
        connection_close(connection, "wrong secret");
        return GONE;
    }
    connection->state = CONNECTION_ADMIT;
    return connection_admit(connection, body) ? GO_ON : REFUSE;
}

/* Frames with a fixed body, all of it here. */
static enum outcome on_whole_frame(struct connection *connection, const struct wire_frame *frame,
                                   const uint8_t *body)
{
    struct wire_call call;
    switch (frame->type) {
    case WIRE_HELLO:
        if (connection->state != CONNECTION_HELLO || frame->size != WIRE_HELLO_BYTES)
            return REFUSE;
        return on_hello(connection, body);
    case WIRE_PROOF:
        if (connection->state != CONNECTION_PROOF || frame->size != WIRE_PROOF_BODY_BYTES)
            return REFUSE;
        return on_proof(connection, body);
    default:
        break;
    }
    if (connection->state != CONNECTION_OPEN)
        return REFUSE;
    switch (frame->type) {
    case WIRE_CALL:
        if (wire_get_call(body, frame->size, &call) != WIRE_OK)
            return REFUSE;
        return connection_call(connection, &call) ? GO_ON : REFUSE;
    case WIRE_FENCE:
        if (frame->size != WIRE_FENCE_BYTES)
            return REFUSE;
        return connection_fence(connection, body) ? GO_ON : REFUSE;
    case WIRE_PING:
        frame_close(&connection->out, &connection->results, WIRE_RESULTS);
        return frame_whole(&connection->out, WIRE_PONG, 0) != NULL ? GO_ON : REFUSE;
    default:
        return REFUSE;
    }
}

static enum outcome take_frame(struct connection *connection)
{
    struct bytes *in = &connection->in;
    struct wire_frame frame;

    switch (wire_get_frame(bytes_front(in), bytes_used(in), &frame)) {
    case WIRE_BAD:
        return REFUSE;
    case WIRE_MORE:
        return WAIT;
    case WIRE_OK:
        break;
    }
    if (frame.type == WIRE_LISTS) {
        if (connection->state != CONNECTION_OPEN || frame.count == 0)
            return REFUSE;
        connection->lists_bytes_left = frame.size;
        connection->lists_left = frame.count;
        bytes_taken(in, WIRE_FRAME_HEADER);
        return GO_ON;
    }
    uint32_t limit = connection->state == CONNECTION_OPEN ? WIRE_CALL_MAX : STRANGER_IN_MAX;
    if (frame.size > limit)
        return REFUSE;
    if (bytes_used(in) < WIRE_FRAME_HEADER + frame.size)
        return WAIT;
    enum outcome outcome = on_whole_frame(connection, &frame, bytes_front(in) + WIRE_FRAME_HEADER);
    if (outcome != GONE)
        bytes_taken(in, WIRE_FRAME_HEADER + frame.size);
    return outcome;
}

static enum outcome take_list(struct connection *connection)
{
    struct bytes *in = &connection->in;
    struct fabric_op ops[FABRIC_LIST_OPS_MAX];
    struct wire_list list;

    switch (
        wire_get_list(bytes_front(in), bytes_used(in), connection->lists_bytes_left, &list, ops)) {
    case WIRE_BAD:
        return REFUSE;
    case WIRE_MORE:
        return WAIT;
    case WIRE_OK:
        break;
    }
    uint8_t *result =
        frame_room(&connection->out, &connection->results, WIRE_RESULTS, list.result_bytes);
    if (result == NULL) {
        connection->throttled = true;
        return WAIT;
    }
    wire_place_reads(result, ops, list.count);
    enum pando_status status = window_execute(&fabric_of(connection)->window, ops, list.count);
    server_thread_count(connection->thread, list.count);
    uint32_t bytes = wire_finish_result(result, &list, ops, status);
    frame_added(&connection->out, &connection->results, bytes);
    bytes_taken(in, list.bytes);
    connection->lists_bytes_left -= list.bytes;
    connection->lists_left--;
    if ((connection->lists_left == 0) != (connection->lists_bytes_left == 0))
        return REFUSE;
    return GO_ON;
}

/* Asks for the cache lines that the lists at hand begin with: by the time a list is executed they have
 * come. Only a hint: sizes are looked at, not believed, and checked when the list is taken. */
static void prefetch_lists(struct connection *connection)
{
    const struct window *window = &fabric_of(connection)->window;
    const uint8_t *at = bytes_front(&connection->in);
    size_t left = bytes_used(&connection->in);

    if (left > connection->lists_bytes_left)
        left = connection->lists_bytes_left;
    for (int i = 0; i < PREFETCH_LISTS && left >= WIRE_LIST_HEADER + WIRE_OP; i++) {
        uint32_t bytes = wire_get_u32(at);
        uint64_t offset = fabric_address_offset(wire_get_u64(at + WIRE_LIST_HEADER));
        const uint8_t *target = window_at(window, offset, 64);
        if (target != NULL)
            __builtin_prefetch(target);
        /* gcc 12 takes a function that only prefetches for one without effect, and drops the call. */
        __asm__ volatile("");
        if (bytes < WIRE_LIST_HEADER + WIRE_OP || bytes > left)
            return;
        at += bytes;
        left -= bytes;
    }
}

/* False when the connection is gone. */
static bool process(struct connection *connection)
{
    enum outcome outcome = GO_ON;
    unsigned until_prefetch = 0;
    while (outcome == GO_ON && connection->state != CONNECTION_ADMIT &&
           bytes_used(&connection->in) > 0) {
        if (connection->lists_left == 0) {
            outcome = take_frame(connection);
            until_prefetch = 0;
            continue;
        }
        if (until_prefetch-- == 0) {
            prefetch_lists(connection);
            until_prefetch = PREFETCH_LISTS - 1;
        }
        outcome = take_list(connection);
    }
    if (outcome == REFUSE)
        connection_close(connection, "it does not speak the protocol");
    return outcome != REFUSE && outcome != GONE;
}

static bool tls_done(struct connection *connection)
{
    switch (tls_handshake(&connection->stream)) {
    case PANDO_OK:
        connection->state = CONNECTION_HELLO;
        return true;
    case PANDO_AGAIN:
        return false;
    default:
        connection_close(connection, "TLS handshake failed");
        return false;
    }
}

/* As many bytes as are there and wanted; -1 when the peer is gone. */
static ssize_t take_input(struct connection *connection)
{
    struct bytes *in = &connection->in;
    size_t want = connection->state == CONNECTION_OPEN ? TCP_READ_BYTES : STRANGER_IN_MAX;
    /* What is kept is at most one incomplete list or frame, so this never fails for its limit. */
    uint8_t *to = bytes_reserve(in, want, 2 * WIRE_LIST_MAX + TCP_READ_BYTES);
    if (to == NULL)
        return -1;
    ssize_t got = stream_read(&connection->stream, to, want);
    if (got > 0)
        bytes_appended(in, (size_t)got);
    return got;
}

bool connection_poll(struct connection *connection)
{
    bool progress = false;

    if (connection->state == CONNECTION_CLOSED)
        return false;
    if (connection->state == CONNECTION_TLS && !tls_done(connection))
        return false;
    if (connection->state == CONNECTION_ADMIT)
        return false;
    for (int i = 0; i < READS_PER_POLL; i++) {
        if (connection->throttled) {
            if (!connection_flush(connection))
                return true;
            if (bytes_used(&connection->out) > TCP_OUT_LIMIT / 4)
                return progress;
            connection->throttled = false;
        } else {
            ssize_t got = take_input(connection);
            if (got < 0) {
                connection_close(connection, NULL);
                return true;
            }
            if (got == 0)
                break;
        }
        progress = true;
        if (!process(connection))
            return true;
        if (bytes_used(&connection->in) < TCP_READ_BYTES && !connection->throttled)
            break; /* nothing more is waiting, most likely: answer first */
    }
    if (progress) {
        connection->input_ns = rt_turn_ns(server_loop(connection->thread));
        server_thread_heat(connection);
    }
    if (bytes_used(&connection->out) > 0)
        (void)connection_flush(connection);
    return progress;
}
