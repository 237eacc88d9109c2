/*
 * server.c - starting, accepting, stopping.
 *
 * The first thread joins the pool and accepts connections; it hands them to the threads in turn.
 * Threads wait for each other at four points: the store is open, all serve, all have closed their
 * clients, all have left the store.
 */
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/cursor.h"
#include "server/keyspace.h"

enum { PLAIN, TLS, PORTS };
enum { POINT_STORE, POINT_SERVING, POINT_CLOSED, POINT_LEFT };
enum { ACCEPTS_PER_TURN = 64, STOP_PATIENCE_S = 5, ACCEPT_PAUSE_MS = 100 };

/* ---- creating -------------------------------------------------------------------------------- */

static enum pando_status listen_on(struct server *server, int port, const char *text, char *error,
                                   size_t error_bytes)
{
    if (text == NULL)
        return PANDO_OK;
    enum pando_status status =
        socket_resolve(text, true, &server->addresses[port], error, error_bytes);
    if (status == PANDO_OK)
        status = socket_listen(&server->addresses[port], text, &server->listeners[port], error,
                               error_bytes);
    if (status == PANDO_OK)
        socket_name(server->listeners[port], server->address_text[port],
                    sizeof(server->address_text[port]));
    return status;
}

static enum pando_status load_passwords(struct server *server, char *error, size_t error_bytes)
{
    const struct server_options *options = &server->options;
    enum pando_status status = PANDO_OK;
    if (options->password_file != NULL) {
        status = secret_load(&server->password, options->password_file, error, error_bytes);
        server->has_password = status == PANDO_OK;
    }
    if (status == PANDO_OK && options->readonly_password_file != NULL) {
        status = secret_load(&server->readonly_password, options->readonly_password_file, error,
                             error_bytes);
        server->has_readonly_password = status == PANDO_OK;
    }
    return status;
}

static enum pando_status create_threads(struct server *server)
{
    server->threads = calloc(server->options.threads, sizeof(*server->threads));
    if (server->threads == NULL)
        return PANDO_NO_MEMORY;
    for (unsigned i = 0; i < server->options.threads; i++) {
        struct server_thread *thread = &server->threads[i];
        thread->server = server;
        thread->index = i;
        list_init(&thread->clients);
        list_init(&thread->inputs);
        list_init(&thread->outputs);
        list_init(&thread->windows);
    }
    return PANDO_OK;
}

enum pando_status server_open(const struct server_options *options, struct server **out,
                              char *error, size_t error_bytes)
{
    struct server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return PANDO_NO_MEMORY;
    }
    server->options = *options;
    server->listeners[PLAIN] = server->listeners[TLS] = -1;
    rt_waitq_init(&server->changed);
    command_prepare();
    snprintf(server->run_id, sizeof(server->run_id), "%016llx%016llx%08llx",
             (unsigned long long)rt_entropy(), (unsigned long long)rt_entropy(),
             (unsigned long long)(rt_entropy() & 0xffffffff));
    enum pando_status status = create_threads(server);
    if (status == PANDO_OK)
        status = load_passwords(server, error, error_bytes);
    if (status == PANDO_OK && options->tls_listen != NULL) {
        server->tls = tls_context_create(TLS_SERVER, options->tls_cert, options->tls_key,
                                         options->tls_ca, error, error_bytes);
        status = server->tls == NULL ? PANDO_INVALID : PANDO_OK;
    }
    if (status == PANDO_OK)
        status = listen_on(server, PLAIN, options->listen, error, error_bytes);
    if (status == PANDO_OK)
        status = listen_on(server, TLS, options->tls_listen, error, error_bytes);
    if (status == PANDO_OK)
        status = metrics_open(server, error, error_bytes);
    if (status != PANDO_OK) {
        server_close(server);
        return status;
    }
    *out = server;
    return PANDO_OK;
}

void server_close(struct server *server)
{
    for (int i = 0; i < PORTS; i++) {
        struct stream listener = {.fd = server->listeners[i]};
        stream_close(&listener);
    }
    metrics_close(server);
    if (server->tls != NULL)
        tls_context_destroy(server->tls);
    secret_forget(&server->password);
    secret_forget(&server->readonly_password);
    free(server->threads);
    free(server);
}

const char *server_address(const struct server *server)
{
    return server->address_text[PLAIN];
}

const char *server_tls_address(const struct server *server)
{
    return server->address_text[TLS];
}

void server_on_ready(struct server *server, void (*ready)(void *context), void *context)
{
    server->ready = ready;
    server->ready_context = context;
}

const char *server_error(const struct server *server)
{
    return server->error;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void client_arrives(struct rt_message *message)
{
    struct client *client = container_of(message, struct client, handover);
    client_open(client->thread, client);
}

/* The least busy thread, in turn among equals. */
static struct server_thread *choose_thread(struct server *server)
{
    struct server_thread *best = &server->threads[0];
    uint64_t fewest = UINT64_MAX;
    for (unsigned i = 0; i < server->options.threads; i++) {
        struct server_thread *thread =
            &server->threads[(server->next_thread + i) % server->options.threads];
        uint64_t clients = stats_get(&thread->stats.clients);
        if (clients < fewest) {
            best = thread;
            fewest = clients;
        }
    }
    server->next_thread = best->index + 1;
    return best;
}

static void refuse(struct server *server, int fd, int port)
{
    static const char text[] = "-ERR max number of clients reached\r\n";
    struct stream stream = {.fd = fd};
    if (port == PLAIN) {
        ssize_t written = stream_write(&stream, text, sizeof(text) - 1);
        (void)written;
    }
    stream_close(&stream);
    stats_add(&server->threads[0].stats.rejected, 1);
}

static void accept_one(struct server *server, int fd, int port)
{
    if (atomic_load(&server->connected) >= server->options.max_clients) {
        refuse(server, fd, port);
        return;
    }
    struct client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        refuse(server, fd, port);
        return;
    }
    atomic_fetch_add(&server->connected, 1);
    client->stream.fd = fd;
    client->tls = port == TLS;
    client->id = atomic_fetch_add(&server->next_client, 1) + 1;
    client->thread = choose_thread(server);
    list_init(&client->link);
    client->handover.deliver = client_arrives;
    if (client->thread->index == 0)
        client_open(client->thread, client);
    else
        rt_loop_post(client->thread->loop, &client->handover);
}

static void accept_ready(struct server *server, int port)
{
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = socket_accept(server->listeners[port]);
        if (fd == SOCKET_LIMIT) {
            log_error("cannot accept a connection: too many open files",
                      log_u64("clients", atomic_load(&server->connected)));
            /* It waits in the queue and would wake us at once: look again a little later. */
            rt_fd_change(rt_loop_self(), &server->accepting[port], 0);
        }
        if (fd < 0)
            return;
        accept_one(server, fd, port);
    }
}

static void accept_plain(struct rt_fd *io, uint32_t events)
{
    (void)events;
    accept_ready(container_of(io, struct server, accepting[PLAIN]), PLAIN);
}

static void accept_tls(struct rt_fd *io, uint32_t events)
{
    (void)events;
    accept_ready(container_of(io, struct server, accepting[TLS]), TLS);
}

static bool accept_start(struct server *server)
{
    for (int i = 0; i < PORTS; i++) {
        if (server->listeners[i] < 0)
            continue;
        server->accepting[i] = (struct rt_fd){.fd = server->listeners[i],
                                              .events = RT_READABLE,
                                              .ready = i == PLAIN ? accept_plain : accept_tls};
        if (rt_fd_add(rt_loop_self(), &server->accepting[i]) != PANDO_OK)
            return false;
    }
    return true;
}

static void accept_resume(struct server *server)
{
    for (int i = 0; i < PORTS; i++) {
        if (server->listeners[i] >= 0)
            rt_fd_change(rt_loop_self(), &server->accepting[i], RT_READABLE);
    }
}

static void accept_stop(struct server *server)
{
    for (int i = 0; i < PORTS; i++) {
        if (server->listeners[i] >= 0 && server->accepting[i].ready != NULL)
            rt_fd_remove(rt_loop_self(), &server->accepting[i]);
        struct stream listener = {.fd = server->listeners[i]};
        stream_close(&listener);
        server->listeners[i] = -1;
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Waits until all threads have come to this point. */
static void meet_co(struct server *server, int point)
{
    atomic_fetch_add(&server->arrived[point], 1);
    rt_waitq_wake_all(&server->changed);
    while (atomic_load(&server->arrived[point]) < server->options.threads)
        (void)rt_waitq_wait_co(&server->changed, rt_now_ns() + 5 * RT_NS_PER_MS);
}

static void fail(struct server *server, enum pando_status status, const char *error)
{
    if (atomic_exchange(&server->failed, true))
        return;
    snprintf(server->error, sizeof(server->error), "%s",
             error[0] != '\0' ? error : pando_status_text(status));
    atomic_store(&server->stopping, true);
}

static void open_store_co(struct server *server, const struct env_place *place)
{
    struct store_options options = {.env = place->env,
                                    .fabric = place->fabric,
                                    .name = "pando serve",
                                    .cache_bytes = server->options.cache_bytes,
                                    .not_durable = server->options.not_durable};
    char error[SERVER_ERROR_BYTES] = "";
    enum pando_status status = store_open_co(&options, &server->store, error, sizeof(error));
    if (status != PANDO_OK) {
        server->store = NULL;
        fail(server, status, error);
    }
}

static void open_thread_co(struct server_thread *thread)
{
    struct server *server = thread->server;
    char error[SERVER_ERROR_BYTES] = "";
    enum pando_status status = store_thread_open_co(server->store, &thread->store);
    if (status != PANDO_OK) {
        thread->store = NULL;
        fail(server, status, "");
        return;
    }
    status = keyspace_open_co(thread, 0, error, sizeof(error));
    if (status == PANDO_OK)
        status = cursors_open_co(thread, error, sizeof(error));
    if (status != PANDO_OK)
        fail(server, status, error);
}

/* Once a second: clients that take too long. */
static void look_after_co(struct server_thread *thread)
{
    uint64_t now_ns = rt_now_ns();
    list_for_each_safe (link, &thread->clients)
        client_look_after(container_of(link, struct client, link), now_ns);
}

static void serve_co(struct server_thread *thread)
{
    struct server *server = thread->server;
    while (!server_stopping(server)) {
        bool paused = thread->index == 0 &&
                      (server->accepting[PLAIN].events == 0 || server->accepting[TLS].events == 0);
        (void)rt_park_co(rt_now_ns() + (paused ? ACCEPT_PAUSE_MS * RT_NS_PER_MS : RT_NS_PER_S));
        if (thread->index == 0)
            accept_resume(server);
        look_after_co(thread);
        keyspace_refresh_co(thread);
    }
}

/* Idle clients at once, busy ones when their requests are answered; after a while all of them. */
static void close_clients_co(struct server_thread *thread)
{
    uint64_t limit_ns = rt_now_ns() + STOP_PATIENCE_S * RT_NS_PER_S;
    list_for_each_safe (link, &thread->clients) {
        struct client *client = container_of(link, struct client, link);
        if (!client->running)
            client_close(client);
    }
    while (thread->clients_left > 0 && rt_park_co(limit_ns) == PANDO_OK)
        continue;
    if (thread->clients_left > 0 && thread->server->store != NULL)
        store_hurry(thread->server->store); /* the pool may stay away for hours */
    list_for_each_safe (link, &thread->clients)
        client_close(container_of(link, struct client, link));
    while (thread->clients_left > 0)
        (void)rt_park_co(rt_now_ns() + RT_NS_PER_S);
}

void server_run_co(struct server *server, const struct env_place *place)
{
    struct server_thread *thread = &server->threads[place->thread];

    thread->loop = rt_loop_self();
    thread->task = rt_task_self();
    thread->overlap =
        strcmp(env_kind(place->env), "embedded") != 0 && strcmp(env_kind(place->env), "shm") != 0;
    if (thread->index == 0) {
        server->started_ms = rt_wall_ms();
        open_store_co(server, place);
    }
    meet_co(server, POINT_STORE);
    if (server->store != NULL)
        open_thread_co(thread);
    meet_co(server, POINT_SERVING);
    if (thread->index == 0 && !atomic_load(&server->failed)) {
        if (!accept_start(server) || metrics_start(server) != PANDO_OK)
            fail(server, PANDO_NO_MEMORY, "");
        else if (server->ready != NULL)
            server->ready(server->ready_context);
        sweep_start(thread);
    }
    serve_co(thread);
    if (thread->index == 0) {
        accept_stop(server);
        metrics_stop_co(server);
    }
    close_clients_co(thread);
    meet_co(server, POINT_CLOSED);
    rt_sleep_co(RT_NS_PER_MS); /* a connection may be on its way here from the accepting thread */
    close_clients_co(thread);
    if (thread->index == 0)
        sweep_stop_co(thread);
    if (thread->store != NULL)
        store_thread_close_co(thread->store);
    meet_co(server, POINT_LEFT);
    if (thread->index == 0 && server->store != NULL)
        store_close_co(server->store);
    buffers_free(thread);
}

void server_stop(struct server *server)
{
    if (atomic_exchange(&server->stopping, true))
        return;
    for (unsigned i = 0; i < server->options.threads; i++) {
        if (server->threads[i].task != NULL)
            rt_unpark(server->threads[i].task);
    }
}
