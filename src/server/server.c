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
#include "rt/undumped.h"
#include "server/census.h"
#include "server/cursor.h"
#include "server/keyspace.h"

enum { PLAIN, TLS, PORTS };
enum { POINT_STORE, POINT_SERVING, POINT_CLOSED, POINT_LEFT };
enum { STOP_PATIENCE_S = 5 };

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

/* Takes the password that a file has into use, if it is another than when the file was read last: one
 * that CONFIG SET has set since gives way to a file that was changed, not to one that was not. */
static enum pando_status read_password(struct server *server, const char *path,
                                       struct secret *former, struct secret *in_use, char *error,
                                       size_t error_bytes)
{
    struct secret *read = rt_undumped_alloc(sizeof(*read));
    if (read == NULL) {
        snprintf(error, error_bytes, "secret file %s: out of memory", path);
        return PANDO_NO_MEMORY;
    }
    enum pando_status status = secret_load(read, path, error, error_bytes);
    if (status == PANDO_OK) {
        rt_latch_lock(&server->settings.latch);
        if (read->size != former->size || memcmp(read->bytes, former->bytes, read->size) != 0) {
            *former = *read;
            *in_use = *read;
            if (in_use == &server->password)
                server->has_password = true;
        }
        rt_latch_unlock(&server->settings.latch);
        secret_forget(read);
    }
    rt_undumped_free(read);
    return status;
}

static enum pando_status read_default_password(struct server *server, char *error,
                                               size_t error_bytes)
{
    const char *path = server->options.password_file;
    return path == NULL ? PANDO_OK
                        : read_password(server, path, &server->password_file, &server->password,
                                        error, error_bytes);
}

static enum pando_status read_readonly_password(struct server *server, char *error,
                                                size_t error_bytes)
{
    const char *path = server->options.readonly_password_file;
    return path == NULL ? PANDO_OK
                        : read_password(server, path, &server->readonly_password_file,
                                        &server->readonly_password, error, error_bytes);
}

static enum pando_status load_passwords(struct server *server, char *error, size_t error_bytes)
{
    rt_undumped(&server->password, sizeof(server->password)); /* it may be set later */
    rt_undumped(&server->readonly_password, sizeof(server->readonly_password));
    rt_undumped(&server->password_file, sizeof(server->password_file));
    rt_undumped(&server->readonly_password_file, sizeof(server->readonly_password_file));
    enum pando_status status = read_default_password(server, error, error_bytes);
    if (status == PANDO_OK)
        status = read_readonly_password(server, error, error_bytes);
    server->has_readonly_password = server->options.readonly_password_file != NULL;
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
        list_init(&thread->pipelines);
    }
    return PANDO_OK;
}

/* Of both ports. They give way to others also when there are as many clients as may be: silent ones hardly
 * before, as they take no more than their place. */
static enum pando_status create_strangers(struct server *server)
{
    const char *name = server->address_text[server->options.listen != NULL ? PLAIN : TLS];
    uint64_t most = atomic_load(&server->settings.max_clients);
    unsigned silent = most < SILENT_MAX ? (unsigned)most : (unsigned)SILENT_MAX;
    server->strangers =
        strangers_create(name, most < STRANGERS_MAX ? (unsigned)most : (unsigned)STRANGERS_MAX);
    server->silent = strangers_create(name, silent);
    if (server->strangers == NULL || server->silent == NULL)
        return PANDO_NO_MEMORY;
    strangers_set_share(server->silent,
                        silent / 2 > SILENT_SHARE_MIN ? silent / 2 : SILENT_SHARE_MIN);
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
    settings_init(server);
    snprintf(server->run_id, sizeof(server->run_id), "%016llx%016llx%08llx",
             (unsigned long long)rt_entropy(), (unsigned long long)rt_entropy(),
             (unsigned long long)(rt_entropy() & 0xffffffff));
    server->guesses = guesses_create();
    server->census = census_create();
    enum pando_status status = server->guesses == NULL || server->census == NULL
                                   ? PANDO_NO_MEMORY
                                   : create_threads(server);
    if (status == PANDO_OK)
        status = slow_init(server);
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
        status = create_strangers(server);
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
    strangers_destroy(server->strangers);
    strangers_destroy(server->silent);
    guesses_destroy(server->guesses);
    if (server->tls != NULL)
        tls_context_destroy(server->tls);
    secret_forget(&server->password);
    secret_forget(&server->readonly_password);
    secret_forget(&server->password_file);
    secret_forget(&server->readonly_password_file);
    slow_fini(server);
    if (server->census != NULL)
        census_destroy(server->census);
    free(server->at_reset);
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

void server_on_waiting(struct server *server, void (*waiting)(void *context, const char *why),
                       void *context)
{
    server->waiting = waiting;
    server->waiting_context = context;
}

static enum pando_status reload_certificates(struct server *server, char *error, size_t error_bytes)
{
    return tls_context_reload(server->tls, error, error_bytes);
}

enum pando_status server_reload(struct server *server, char *error, size_t error_bytes)
{
    static enum pando_status (*const parts[])(struct server *, char *, size_t) = {
        reload_certificates, read_default_password, read_readonly_password};
    enum pando_status status = PANDO_OK;
    size_t used = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char text[SERVER_ERROR_BYTES] = "";
        enum pando_status part = parts[i](server, text, sizeof(text));
        if (part == PANDO_OK)
            continue;
        if (used < error_bytes)
            used += (size_t)snprintf(error + used, error_bytes - used, "%s%s",
                                     status == PANDO_OK ? "" : "; ", text);
        status = part;
    }
    return status;
}

const char *server_error(const struct server *server)
{
    return server->error;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static void client_arrives(struct rt_message *message)
{
    struct client *client = container_of(message, struct client, handover);
    struct server_thread *thread = client->thread;
    client_open(thread, client);
    if (atomic_fetch_sub(&thread->handovers, 1) == 1 && server_stopping(thread->server))
        rt_waitq_wake_all(&thread->handed_over);
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

/* Strangers give way. Those that were evicted are counted until their threads have noticed. */
static bool room_for_one(struct server *server)
{
    uint64_t connected = atomic_load(&server->connected),
             most = atomic_load(&server->settings.max_clients);
    return connected < most ||
           ((strangers_evict(server->strangers) || strangers_evict(server->silent)) &&
            connected < most + STRANGERS_MAX);
}

static void accept_one(struct server *server, int fd, int port)
{
    if (!room_for_one(server)) {
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
    client_arrived(server, client);
    if (client->thread->index == 0)
        client_open(client->thread, client);
    else {
        atomic_fetch_add(&client->thread->handovers, 1);
        rt_loop_post(client->thread->loop, &client->handover);
    }
}

static void accept_plain(struct acceptor *acceptor, int fd)
{
    accept_one(container_of(acceptor, struct server, accepting[PLAIN]), fd, PLAIN);
}

static void accept_tls(struct acceptor *acceptor, int fd)
{
    accept_one(container_of(acceptor, struct server, accepting[TLS]), fd, TLS);
}

static bool accept_start(struct server *server)
{
    for (int i = 0; i < PORTS; i++) {
        if (server->listeners[i] >= 0 &&
            acceptor_start(&server->accepting[i], server->listeners[i], server->strangers,
                           i == PLAIN ? accept_plain : accept_tls) != PANDO_OK)
            return false;
    }
    return true;
}

static void accept_stop(struct server *server)
{
    for (int i = 0; i < PORTS; i++) {
        acceptor_stop(&server->accepting[i]);
        struct stream listener = {.fd = server->listeners[i]};
        stream_close(&listener);
        server->listeners[i] = -1;
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

struct meeting {
    const struct server *server;
    int point;
};

static bool incomplete(const void *context)
{
    const struct meeting *meeting = context;
    const struct server *server = meeting->server;
    return atomic_load(&server->arrived[meeting->point]) < server->options.threads;
}

/* Waits until all threads have come to this point. */
static void meet_co(struct server *server, int point)
{
    struct meeting meeting = {server, point};
    atomic_fetch_add(&server->arrived[point], 1);
    rt_waitq_wake_all(&server->changed);
    (void)rt_waitq_while_co(&server->changed, incomplete, &meeting, RT_NEVER);
}

void server_fail(struct server *server, enum pando_status status, const char *error)
{
    if (atomic_exchange(&server->failed, true))
        return;
    snprintf(server->error, sizeof(server->error), "%s",
             error[0] != '\0' ? error : pando_status_text(status));
    atomic_store(&server->stopping, true);
}

static void open_thread_co(struct server_thread *thread)
{
    struct server *server = thread->server;
    char error[SERVER_ERROR_BYTES] = "";
    enum pando_status status = store_thread_open_co(server->store, &thread->store);
    if (status != PANDO_OK) {
        thread->store = NULL;
        server_fail(server, status, "");
        return;
    }
    status = keyspace_open_co(thread, 0, error, sizeof(error));
    if (status == PANDO_OK)
        status = cursors_open_co(thread, error, sizeof(error));
    if (status != PANDO_OK)
        server_fail(server, status, error);
}

/* Once a second: clients that take too long. */
static void look_after_co(struct server_thread *thread)
{
    uint64_t now_ns = rt_now_ns();
    list_for_each_safe (link, &thread->clients)
        client_look_after(container_of(link, struct client, link), now_ns);
}

/* How many commands are executed in a second. */
static void sample(struct server *server)
{
    uint64_t now_ns = rt_now_ns(), commands = 0, passed_ns = now_ns - server->sampled_ns;
    if (passed_ns < RT_NS_PER_S)
        return;
    for (unsigned i = 0; i < server->options.threads; i++)
        commands += stats_get(&server->threads[i].stats.commands);
    atomic_store(&server->commands_per_second,
                 (uint64_t)((double)(commands - server->sampled_commands) * RT_NS_PER_S /
                            (double)passed_ns));
    server->sampled_ns = now_ns;
    server->sampled_commands = commands;
}

static void serve_co(struct server_thread *thread)
{
    struct server *server = thread->server;
    while (!server_stopping(server)) {
        (void)rt_park_co(rt_now_ns() + RT_NS_PER_S);
        if (thread->index == 0)
            sample(server);
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
        else
            client_wake(client);
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

static bool some_on_their_way(const void *thread)
{
    return atomic_load(&((const struct server_thread *)thread)->handovers) > 0;
}

/* From here on nobody in the pool waits for this server; its memory may still have to be unmapped. */
static void leave_pool_co(struct server *server)
{
    uint64_t begin_ns = rt_now_ns();
    store_close_co(server->store);
    log_info("left the pool", log_u64("took_us", (rt_now_ns() - begin_ns) / RT_NS_PER_US));
}

void server_run_co(struct server *server, const struct env_place *place)
{
    struct server_thread *thread = &server->threads[place->thread];

    thread->loop = rt_loop_self();
    rt_waitq_init(&thread->upload_ended);
    rt_waitq_init(&thread->handed_over);
    thread->task = rt_task_self();
    thread->overlap =
        strcmp(env_kind(place->env), "embedded") != 0 && strcmp(env_kind(place->env), "shm") != 0;
    if (thread->index == 0) {
        server->started_ms = rt_wall_ms();
        server_join_co(server, place);
    }
    meet_co(server, POINT_STORE);
    if (server->store != NULL)
        open_thread_co(thread);
    meet_co(server, POINT_SERVING);
    if (thread->index == 0 && server->store != NULL && !atomic_load(&server->failed)) {
        if (!accept_start(server) || metrics_start(server) != PANDO_OK)
            server_fail(server, PANDO_NO_MEMORY, "");
        else if (server->ready != NULL)
            server->ready(server->ready_context);
        sweep_start(thread);
        census_start(thread);
    }
    serve_co(thread);
    if (thread->index == 0) {
        accept_stop(server);
        metrics_stop_co(server);
    }
    close_clients_co(thread);
    meet_co(server, POINT_CLOSED);
    /* Nobody accepts any more, but a connection may still be on its way here. */
    (void)rt_waitq_while_co(&thread->handed_over, some_on_their_way, thread, RT_NEVER);
    close_clients_co(thread);
    if (thread->index == 0) {
        census_stop_co(thread);
        sweep_stop_co(thread);
    }
    if (thread->store != NULL)
        store_thread_close_co(thread->store);
    meet_co(server, POINT_LEFT);
    if (thread->index == 0 && server->store != NULL)
        leave_pool_co(server);
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
