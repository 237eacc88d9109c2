/*
 * server.h - a server of the Redis protocol on a pool: RESP2 and RESP3, numbered databases, and
 * ordered tables (RI commands).
 *
 * One loop per thread; a connection belongs to one loop. Several servers on one pool see the same
 * data: a command that reads and then writes one key is one atomic change in the pool.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "pando/pando.h"
#include "server/stats.h"
#include "store/env.h"

struct server;

enum { SERVER_THREADS_MAX = 64, SERVER_LISTEN_MAX = 4 };

struct server_options {
    struct env *env;
    const char *listen; /* "host:port"; NULL: no plain port */
    unsigned threads;
    uint64_t max_clients;
    uint64_t clients_possible;   /* what CONFIG SET may make of it; 0: anything */
    uint64_t output_limit_bytes; /* of one client's unsent replies */
    uint64_t idle_timeout_ms;    /* 0: idle clients stay */
    uint64_t stalled_timeout_ms; /* a client that does not take its replies */
    uint64_t pool_wait_ns;       /* for memory nodes that do not answer yet, at the start */
    uint64_t cache_bytes;        /* of each table's index; 0: the engine's default */
    bool not_durable;            /* what was acknowledged may be lost with the server */
    const char *engine;          /* of the databases' tables; NULL: the default */
    const char *password_file;   /* NULL: none is asked for */
    const char *readonly_password_file;
    bool protected_mode;    /* without a password: only from this machine */
    const char *tls_listen; /* "host:port"; NULL: no TLS port */
    const char *tls_cert, *tls_key;
    const char *tls_ca;         /* ask clients for certificates of this authority */
    const char *metrics_listen; /* "host:port" of GET /metrics; NULL: nowhere */
};

/* Reads passwords and certificates and opens the listening sockets; connections wait there until
 * server_run_co. Errors as one line for a person. Not from a task. Texts live as long as the server.
 */
PANDO_MUST_CHECK enum pando_status server_open(const struct server_options *options,
                                               struct server **out, char *error,
                                               size_t error_bytes);
void server_close(struct server *server);

/* "host:port" where it listens; "" without that port. */
const char *server_address(const struct server *server);
const char *server_tls_address(const struct server *server);
const char *server_metrics_address(const struct server *server);

/* One thread's part, as the work of env_run; returns after server_stop. `ready` is called once, on
 * the first thread, when connections are served; a failure to start is in *error of the first. */
void server_run_co(struct server *server, const struct env_place *place);

/* Called on the first thread when all threads serve. */
void server_on_ready(struct server *server, void (*ready)(void *context), void *context);

/* Called once, on the first thread, if the pool is waited for; `why` is one line. */
void server_on_waiting(struct server *server, void (*waiting)(void *context, const char *why),
                       void *context);

/* Reads the certificates for clients and the files of passwords again; connections that are open go on.
 * A file whose password has changed ends what CONFIG SET requirepass set. An error, with one line for a
 * person: of what it names the former stays. Any thread. */
PANDO_MUST_CHECK enum pando_status server_reload(struct server *server, char *error,
                                                 size_t error_bytes);

/* Why it could not start; "" if it could. After env_run. */
const char *server_error(const struct server *server);

/* A line for each command: its group, its name, and its subcommands or options, with tabs between. As snprintf:
 * the size of all of it. */
size_t server_commands_text(char *out, size_t out_bytes);

/* Stops accepting, lets what runs end, closes connections, leaves the pool. Any thread. */
void server_stop(struct server *server);

#endif
