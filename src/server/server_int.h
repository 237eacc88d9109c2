/*
 * server_int.h - what the files of the server share: the server, its threads, its clients.
 */
#ifndef SERVER_SERVER_INT_H
#define SERVER_SERVER_INT_H

#include <stdatomic.h>

#include "base/list.h"
#include "fabric/stream/secret.h"
#include "fabric/stream/stream.h"
#include "rt/io.h"
#include "rt/rt.h"
#include "server/command.h"
#include "server/resp.h"
#include "server/server.h"
#include "store/store.h"

enum {
    SERVER_DATABASES = 16,
    SERVER_RANGE_TABLES_MAX = 64, /* RI tables that a thread has open */
    SERVER_ERROR_BYTES = 512,
    SERVER_NAME_BYTES = 64, /* of a client, its library, its address */

    INPUT_BYTES = 32 * 1024,           /* of a pooled buffer; larger ones are freed after use */
    OUTPUT_BYTES = 16 * 1024,          /* the same */
    OUTPUT_FLUSH_BYTES = 64 * 1024,    /* replies are sent before there are more than these */
    REQUEST_BYTES_MAX = 64 << 20,      /* a whole request, all its words */
    VALUE_BYTES_MAX = (16 << 20) - 16, /* of a client's value: the engine's less our header */
    WINDOW_WIDTH = 64,                 /* calls of one connection that overlap */
};

/* Whose behaviour is meant; clients look at it. */
#define SERVER_REDIS_VERSION "7.0.15"

/* Largest bulk string: a value, or anything that will be refused more politely. */
#define SERVER_BULK_MAX ((size_t)16 << 20)

/* ---- buffers --------------------------------------------------------------------------------- */

/* Idle clients have none of these: they come from the thread's pool. */
struct input {
    struct list link;
    struct bytes bytes;
    struct resp_parser parser;
};

struct output {
    struct list link;
    struct reply reply;
};

struct slot {
    struct call call;
    struct reply reply;
    struct window *window;
};

/* Calls of one connection that run at the same time. */
struct window {
    struct list link;
    unsigned count;
    struct rt_countdown left;
    uint64_t hashes[WINDOW_WIDTH];
    struct slot slots[WINDOW_WIDTH];
};

/* ---- threads --------------------------------------------------------------------------------- */

/* A numbered database is two tables: nodes that hold only short keys are a third the size, and a
 * lookup reads a whole node. */
struct database {
    struct store_table *tables[2];
};

struct range_table {
    char name[POOL_NAME_MAX];
    struct store_table *table;
};

struct server_thread {
    struct server *server;
    unsigned index;
    struct rt_loop *loop;
    struct rt_task *task; /* the first: waits for the end */
    struct store_thread *store;
    struct database databases[SERVER_DATABASES];
    struct range_table range_tables[SERVER_RANGE_TABLES_MAX];
    unsigned range_table_count;
    struct store_table *cursors; /* of SCAN */
    struct list clients;
    struct list inputs, outputs, windows; /* not in use */
    unsigned clients_left;
    bool overlap;          /* operations wait for a network: worth having several in flight */
    struct rt_task *sweep; /* NULL: not running */
    struct stats_thread stats;
};

struct server {
    struct server_options options;
    struct socket_address addresses[2]; /* plain, TLS */
    char address_text[2][SERVER_NAME_BYTES];
    int listeners[2];
    struct rt_fd accepting[2];
    SSL_CTX *tls;
    struct http *http; /* GET /metrics; NULL: not asked for */
    struct secret password, readonly_password;
    bool has_password, has_readonly_password;

    struct store *store;
    struct server_thread *threads;
    struct rt_waitq changed; /* threads wait for each other at the beginning and the end */
    atomic_uint arrived[4];
    atomic_bool failed, stopping;
    char error[SERVER_ERROR_BYTES];
    void (*ready)(void *context);
    void *ready_context;

    atomic_ulong connected, next_client;
    unsigned next_thread;
    uint64_t started_ms;
    uint64_t cursor_tag;
    _Atomic uint64_t cursor_count;
    atomic_bool expiry_written; /* since the sweep looked last */
    char run_id[41];
};

/* ---- clients --------------------------------------------------------------------------------- */

enum client_user { USER_NONE, USER_DEFAULT, USER_READONLY };

struct client {
    struct rt_fd io;
    struct stream stream;
    struct list link;
    struct server_thread *thread;
    struct rt_message handover; /* from the accepting thread */
    struct input *input;        /* NULL: nothing is pending */
    struct output *output;
    uint64_t id;
    uint64_t created_ns, used_ns;
    uint64_t taken_ns; /* when the other side took bytes last, or there was nothing to take */
    unsigned database;
    enum client_user user;
    const struct command *last_command;
    bool watched; /* io is in the loop */
    bool tls, handshaking;
    bool running;     /* its task is alive */
    bool backlog;     /* there may be whole requests in the input */
    bool closing;     /* close it as soon as its task has ended */
    bool close_after; /* when the replies are out */
    bool resp3;
    bool quiet, skip_next; /* CLIENT REPLY */
    bool no_evict, no_touch;
    char name[SERVER_NAME_BYTES], library[SERVER_NAME_BYTES], library_version[SERVER_NAME_BYTES];
    char address[SERVER_NAME_BYTES], local_address[SERVER_NAME_BYTES];
};

/* client.c. A socket that was accepted, on the loop that will serve it. */
void client_open(struct server_thread *thread, struct client *client);
/* Now, or as soon as its task has ended. */
void client_close(struct client *client);
/* Sends what there is; false: it is closing. */
bool client_flush(struct client *client);
/* Once a second. */
void client_look_after(struct client *client, uint64_t now_ns);

/* connection_commands.c. Whether it may be a client's name; if not that was replied. */
bool client_name_fits(struct call *call, struct slice name);

/* run.c: executes what the input holds. */
void requests_run_co(struct client *client);

/* buffers.c */
struct input *input_take(struct server_thread *thread);
void input_give(struct server_thread *thread, struct input *input);
struct output *output_take(struct server_thread *thread);
void output_give(struct server_thread *thread, struct output *output);
struct window *window_take(struct server_thread *thread);
void window_give(struct server_thread *thread, struct window *window);
void buffers_free(struct server_thread *thread);

/* metrics.c: GET /metrics, on the first thread. */
PANDO_MUST_CHECK enum pando_status metrics_open(struct server *server, char *error,
                                                size_t error_bytes);
PANDO_MUST_CHECK enum pando_status metrics_start(struct server *server);
void metrics_stop_co(struct server *server);
void metrics_close(struct server *server);

/* sweep.c: removes what has expired. On the first thread. */
void sweep_start(struct server_thread *thread);
void sweep_stop_co(struct server_thread *thread);

static inline bool server_stopping(const struct server *server)
{
    return atomic_load_explicit(&server->stopping, memory_order_relaxed);
}

#endif
