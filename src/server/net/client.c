/*
 * client.c - one connection: reading, writing, and when it is served.
 *
 * Readable bytes start a task, which reads once, runs what is complete, writes all replies at once and
 * ends; the buffers go back to the thread. While replies wait to be taken nothing more is read: a slow
 * reader costs what one round of requests produced.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/long.h"

enum { READ_MIN = 16 * 1024, STRANGER_LIMIT_S = 10, TIMEOUT_MS = 30000 };

static void client_ready(struct rt_fd *io, uint32_t events);

/* ---- opening and closing --------------------------------------------------------------------- */

/* Few words for somebody who will not be served; whether they arrive does not matter. */
static void say(struct client *client, const char *text)
{
    ssize_t written = stream_write(&client->stream, text, strlen(text));
    (void)written;
}

static bool admit(struct client *client)
{
    struct server *server = client->thread->server;
    if (server->options.protected_mode && !server->has_password &&
        !socket_peer_is_local(client->stream.fd)) {
        if (!client->tls)
            say(client,
                "-DENIED Pando is running in protected mode because no password is set: only "
                "clients of its own machine are served. Start it with --password-file FILE, or "
                "with "
                "--no-protected-mode if everybody who can reach it may use it.\r\n");
        return false;
    }
    return true;
}

static void client_free(struct client *client)
{
    struct server_thread *thread = client->thread;
    if (client->watched)
        rt_fd_remove(thread->loop, &client->io);
    if (client->input != NULL)
        input_give(thread, client->input);
    if (client->output != NULL)
        output_give(thread, client->output);
    if (client->among != NULL)
        (void)strangers_leave(client->among, &client->stranger);
    stream_close(&client->stream);
    list_remove(&client->link);
    thread->clients_left--;
    stats_add(&thread->stats.clients, UINT64_MAX);
    atomic_fetch_sub(&thread->server->connected, 1);
    free(client);
    if (thread->clients_left == 0 && server_stopping(thread->server))
        rt_unpark(thread->task);
}

void client_open(struct server_thread *thread, struct client *client)
{
    client->thread = thread;
    client->created_ns = client->used_ns = client->taken_ns = client->stranger_ns = rt_now_ns();
    list_push_back(&thread->clients, &client->link);
    thread->clients_left++;
    stats_add(&thread->stats.clients, 1);
    stats_add(&thread->stats.connections, 1);
    socket_tune(client->stream.fd, TIMEOUT_MS);
    socket_peer_name(client->stream.fd, client->address, sizeof(client->address));
    socket_name(client->stream.fd, client->local_address, sizeof(client->local_address));
    client->io =
        (struct rt_fd){.fd = client->stream.fd, .events = RT_READABLE, .ready = client_ready};
    client->handshaking = client->tls;
    if (server_stopping(thread->server) || !admit(client) ||
        rt_fd_add(thread->loop, &client->io) != PANDO_OK) {
        client_free(client);
        return;
    }
    client->watched = true;
}

void client_close(struct client *client)
{
    if (!client->running) {
        client_free(client);
        return;
    }
    client->closing = true;
    socket_shutdown(client->stream.fd);
    client_wake(client);
}

void client_wake(struct client *client)
{
    if (client->waiter != NULL)
        rt_unpark(client->waiter);
    if (client->queued)
        rt_waitq_wake_all(&client->thread->upload_ended);
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool pending(const struct client *client)
{
    return client->output != NULL && bytes_used(&client->output->reply.bytes) > 0;
}

bool client_flush(struct client *client)
{
    struct server_thread *thread = client->thread;
    if (client->output == NULL || client->closing) /* a reply may have ended in its middle */
        return !client->closing;
    struct bytes *bytes = &client->output->reply.bytes;
    if (client->output->reply.overflow) {
        log_warn("client closed: its replies are over the limit", log_u64("client", client->id),
                 log_text("address", client->address),
                 log_u64("limit", client->output->reply.limit));
        client->closing = true;
        return false;
    }
    while (bytes_used(bytes) > 0) {
        ssize_t put = stream_write(&client->stream, bytes_front(bytes), bytes_used(bytes));
        if (put < 0) {
            client->closing = true;
            return false;
        }
        if (put == 0)
            break;
        client->taken_ns = rt_coarse_ns();
        stats_add(&thread->stats.bytes_out, (uint64_t)put);
        bytes_taken(bytes, (size_t)put);
    }
    if (bytes_used(bytes) == 0)
        output_forget(client->output);
    if (bytes_used(bytes) == 0 && client->close_after)
        client->closing = true;
    return !client->closing;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Without the password a request is short, or no request: nothing larger is held for it. */
static ssize_t read_stranger(struct client *client, bool *drained)
{
    struct bytes *bytes = &client->input->bytes;
    uint8_t *room = bytes_reserve(bytes, STRANGER_READ_BYTES, STRANGER_BYTES_MAX);
    if (room == NULL) {
        say(client, "-NOAUTH Authentication required.\r\n");
        return -1;
    }
    size_t size = bytes->capacity - bytes->tail;
    ssize_t got = stream_read(&client->stream, room, size);
    if (got > 0) {
        bytes_appended(bytes, (size_t)got);
        stats_add(&client->thread->stats.bytes_in, (uint64_t)got);
    }
    *drained = !client->tls && got >= 0 && (size_t)got < size;
    return got;
}

/* Bytes read; 0: none now, negative: it is over. */
static ssize_t read_some(struct client *client, bool *drained)
{
    struct input *input = client->input;
    size_t used = bytes_used(&input->bytes), wanted = resp_wanted(&input->parser);
    size_t missing = wanted > used ? wanted - used : 0;
    size_t most =
        used > READ_MIN ? used : READ_MIN; /* announced bytes are not believed in advance */
    size_t size = missing < READ_MIN ? READ_MIN : missing < most ? missing : most;
    uint8_t *room = bytes_reserve(&input->bytes, size, REQUEST_BYTES_MAX);
    if (room == NULL) {
        reply_error(&client->output->reply, "ERR Protocol error: request longer than 64mb");
        client->close_after = client->linger = true;
        (void)client_flush(client);
        return -1;
    }
    size = input->bytes.capacity - input->bytes.tail;
    ssize_t got = stream_read(&client->stream, room, size);
    if (got > 0) {
        bytes_appended(&input->bytes, (size_t)got);
        stats_add(&client->thread->stats.bytes_in, (uint64_t)got);
    }
    *drained = !client->tls && got >= 0 && (size_t)got < size;
    return got;
}

/* Without TLS a hello of it is no request, and its sender waits for an answer. */
static bool speaks_tls(struct client *client)
{
    struct input *input = client->input;
    if (client->tls || client->last_command != NULL || bytes_used(&input->bytes) == 0 ||
        *bytes_front(&input->bytes) != TLS_FIRST_BYTE)
        return false;
    say(client, "-ERR Protocol error: this port does not speak TLS\r\n");
    return true;
}

static bool buffers_ready(struct client *client)
{
    bool stranger = client->user == USER_NONE;
    if (client->input == NULL)
        client->input = input_take(client->thread, stranger);
    if (client->output == NULL)
        client->output = output_take(client->thread, stranger);
    if (client->input == NULL || client->output == NULL) {
        log_error("client closed: out of memory", log_u64("client", client->id));
        return false;
    }
    client->output->reply.resp3 = client->resp3;
    return true;
}

static void serve_co(struct client *client)
{
    bool drained = false;
    uint64_t since_ns = rt_now_ns();
    if (!buffers_ready(client)) {
        client->closing = true;
        return;
    }
    while (!client->closing && (!drained || client->backlog || client->incoming.active)) {
        if (!client->backlog) {
            ssize_t got = client->user == USER_NONE ? read_stranger(client, &drained)
                                                    : read_some(client, &drained);
            if (got == 0 && client->incoming.active &&
                client_wait_co(client, RT_READABLE, since_ns))
                continue; /* the rest of a request whose long word has come */
            if (got == 0)
                return;
            if (got < 0 || speaks_tls(client)) {
                client->closing = true;
                return;
            }
        }
        client->backlog = false;
        requests_run_co(client);
        if (!client_flush(client) || (pending(client) && !client->incoming.active))
            return;
        if (client->input->parser.at_long) {
            if (!incoming_receive_co(client))
                return;
            client->backlog = client->incoming.active;
            drained = false;
            since_ns = rt_now_ns();
        }
        if (!drained)
            rt_yield_co(); /* others have waited */
    }
}

static void buffers_return(struct client *client)
{
    struct server_thread *thread = client->thread;
    if (client->input != NULL && bytes_used(&client->input->bytes) == 0 &&
        !client->input->parser.in_request) {
        input_give(thread, client->input);
        client->input = NULL;
    }
    if (client->output != NULL && bytes_used(&client->output->reply.bytes) == 0) {
        output_give(thread, client->output);
        client->output = NULL;
    }
}

static void client_task(void *arg)
{
    struct client *client = arg;
    serve_co(client);
    if (client->incoming.active) { /* its request will not be completed */
        incoming_end_co(client);
        client->closing = true;
    }
    if (client->closing && client->linger)
        client_linger_co(client);
    client->closing |= !client->watched;                             /* the other side is gone */
    client->closing |= client->user == USER_NONE && pending(client); /* it takes no replies */
    client->running = false;
    if (client->closing || (server_stopping(client->thread->server) && !pending(client))) {
        client_free(client);
        return;
    }
    buffers_return(client);
    rt_fd_change(client->thread->loop, &client->io, pending(client) ? RT_WRITABLE : RT_READABLE);
}

static void client_start(struct client *client)
{
    client->running = true;
    if (rt_spawn(client->thread->loop, client_task, client) == PANDO_OK)
        return;
    log_error("client closed: no memory for a task", log_u64("client", client->id));
    client->running = false;
    client_free(client);
}

/* ---- what the socket says -------------------------------------------------------------------- */

/* True when TLS is established. */
static bool shake_hands(struct client *client)
{
    if (client->stream.ssl == NULL) {
        int first = socket_peek(client->stream.fd);
        if (first >= 0 && first != TLS_FIRST_BYTE)
            say(client, "-ERR Protocol error: this port speaks TLS only\r\n");
        if (first != TLS_FIRST_BYTE || tls_attach(&client->stream, client->thread->server->tls,
                                                  TLS_SERVER, NULL) != PANDO_OK) {
            client_free(client);
            return false;
        }
    }
    enum pando_status status = tls_handshake(&client->stream);
    if (status == PANDO_OK) {
        client_shook_hands(client);
        return true;
    }
    if (status != PANDO_AGAIN)
        client_free(client);
    return false;
}

static void client_ready(struct rt_fd *io, uint32_t events)
{
    struct client *client = container_of(io, struct client, io);
    struct rt_loop *loop = client->thread->loop;

    if (client->running && client->waiter != NULL) {
        rt_fd_change(loop, io, 0);
        if ((events & RT_HANG_UP) != 0) {
            rt_fd_remove(loop, io);
            client->watched = false;
        }
        rt_unpark(client->waiter);
        return;
    }
    if (client->running) {
        /* Its task waits for the pool and will look again; until then this would only spin. */
        if (io->events != 0) {
            rt_fd_change(loop, io, 0);
        } else if ((events & RT_HANG_UP) != 0) {
            rt_fd_remove(loop, io);
            client->watched = false;
            client->closing = true;
            client_wake(client);
        }
        return;
    }
    if (client->handshaking && !shake_hands(client))
        return;
    if (pending(client)) {
        if (!client_flush(client) && (!client->linger || pending(client))) {
            client_free(client);
            return;
        }
        if (pending(client))
            return;
    }
    client_start(client);
}

/* Who needs no password may stay without a word, as long as nobody needs the place. */
static bool owes_proof(const struct client *client)
{
    return client->among != NULL && client->among == client->thread->server->strangers;
}

void client_look_after(struct client *client, uint64_t now_ns)
{
    const struct server_options *options = &client->thread->server->options;
    uint64_t idle_ms = atomic_load(&client->thread->server->settings.idle_timeout_ms);
    if (client->running)
        return;
    if (pending(client)) {
        if (options->stalled_timeout_ms == 0 ||
            now_ns - client->taken_ns < options->stalled_timeout_ms * RT_NS_PER_MS)
            return;
        log_warn("client closed: it does not take its replies", log_u64("client", client->id),
                 log_text("address", client->address));
        client_free(client);
    } else if (owes_proof(client)
                   ? now_ns - client->stranger_ns > STRANGER_LIMIT_S * RT_NS_PER_S
                   : idle_ms != 0 && now_ns - client->used_ns > idle_ms * RT_NS_PER_MS) {
        client_free(client);
    }
}
