/*
 * server_int.h - what the files of the server share: the server and its threads. net/client.h has its clients.
 */
#ifndef SERVER_SERVER_INT_H
#define SERVER_SERVER_INT_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/log_limit.h"
#include "fabric/stream/acceptor.h"
#include "fabric/stream/secret.h"
#include "fabric/stream/stream.h"
#include "rt/rt.h"
#include "server/server.h"
#include "server/settings.h"
#include "server/slow.h"
#include "store/store.h"

enum {
    SERVER_DATABASES = 16,
    SERVER_RANGE_TABLES_MAX = 64, /* RI tables that a thread has open */
    SERVER_ERROR_BYTES = 512,
    SERVER_NAME_BYTES = 64,       /* of a client, its library, its address */
    REQUEST_BYTES_MAX = 64 << 20, /* a whole request, all its words */
    VALUE_BYTES_MAX = 512 << 20,  /* of a client's value: the engine's less our header */
    LONG_BYTES = 1 << 20,         /* longer words and values are not held in memory */
    BUFFERED_BYTES =
        STORE_SHORT_MAX,   /* but for old values of commands that need them, to this size */
    LONG_LOOK_BYTES = 512, /* more than lies in a leaf of the databases */
};

/* Whose behaviour is meant; clients look at it. */
#define SERVER_REDIS_VERSION "7.0.15"

/* Largest bulk string, as in Redis (proto-max-bulk-len). */
#define SERVER_BULK_MAX ((size_t)512 << 20)
_Static_assert(VALUE_BYTES_MAX + STORE_STAGE_HEAD_MAX <= STORE_VALUE_MAX, "limits");

/* ---- threads --------------------------------------------------------------------------------- */

/* A numbered database is two tables: nodes that hold only short keys are a third the size, and a
 * lookup reads a whole node. */
struct database {
    struct store_table *tables[2];
};

struct range_table {
    char name[STORE_NAME_MAX];
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
    struct list inputs, outputs, pipelines; /* not in use */
    unsigned clients_left;
    unsigned lingering;
    unsigned uploads; /* long words on their way into the pool */
    struct rt_waitq upload_ended;
    atomic_uint handovers; /* connections on their way here from the accepting thread */
    struct rt_waitq handed_over;
    bool overlap;          /* operations wait for a network: worth having several in flight */
    struct rt_task *sweep; /* NULL: not running */
    struct stats_thread stats;
};

struct server {
    struct server_options options;
    struct socket_address addresses[2]; /* plain, TLS */
    char address_text[2][SERVER_NAME_BYTES];
    int listeners[2];
    struct acceptor accepting[2];
    struct strangers *strangers; /* without the password that is asked for, or in TLS' handshake */
    struct strangers *silent;    /* who may send commands, and has sent none yet */
    struct guesses *guesses;
    struct log_limit auth_log, http_log;
    SSL_CTX *tls;
    struct http *http; /* GET /metrics; NULL: not asked for */
    struct server_settings settings;
    struct secret password, readonly_password;           /* in use; under the settings' latch */
    struct secret password_file, readonly_password_file; /* what the files had when read last */
    atomic_bool has_password;
    bool has_readonly_password;
    struct slow slow;
    struct census *census;
    uint64_t sampled_ns, sampled_commands; /* by the first thread, once a second */
    _Atomic uint64_t commands_per_second;
    struct rt_latch reset_latch;
    struct stats_sum *at_reset; /* counters when they were reset last; NULL: never */

    struct store *store;
    struct server_thread *threads;
    struct rt_waitq changed; /* threads wait for each other at the beginning and the end */
    atomic_uint arrived[4];
    atomic_bool failed, stopping;
    char error[SERVER_ERROR_BYTES];
    void (*ready)(void *context);
    void *ready_context;
    void (*waiting)(void *context, const char *why);
    void *waiting_context;

    atomic_ulong connected, next_client;
    unsigned next_thread;
    uint64_t started_ms;
    uint64_t cursor_tag;
    _Atomic uint64_t cursor_count;
    atomic_bool expiry_written; /* since the sweep looked last */
    char run_id[41];
};

/* metrics.c: GET /metrics, on the first thread. */
PANDO_MUST_CHECK enum pando_status metrics_open(struct server *server, char *error,
                                                size_t error_bytes);
PANDO_MUST_CHECK enum pando_status metrics_start(struct server *server);
void metrics_stop_co(struct server *server);
void metrics_close(struct server *server);

/* sweep.c: removes what has expired. On the first thread. */
void sweep_start(struct server_thread *thread);
void sweep_stop_co(struct server_thread *thread);

/* Ends the server for this reason; the first one counts. "" stands for the status' own text. */
void server_fail(struct server *server, enum pando_status status, const char *error);

/* Joins the pool, which is waited for; without server->store afterwards the server is to end. */
void server_join_co(struct server *server, const struct env_place *place);

static inline bool server_stopping(const struct server *server)
{
    return atomic_load_explicit(&server->stopping, memory_order_relaxed);
}

#endif
