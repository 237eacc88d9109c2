/*
 * env.h - the world behind a pool's URI: which fabric, where its memory nodes are, and which
 * threads of which compute nodes run the caller's work.
 *
 *   embedded:SIZE                              one process, memory of its own
 *   shm:NAME[,NAME...]                         memory nodes on this machine, by name or path
 *   tcp:host:port[,host:port...]               the i-th is node i
 *   verbs:host:port[,host:port...]             the same over RDMA
 *   sim:nic=cx5,compute=8,memory=8,seed=1,...  a simulated cluster, all of it inside this process
 *
 * Real or simulated, work is a function that runs as the first task of every thread of every
 * compute node; on a real pool this process is the only compute node.
 */
#ifndef STORE_ENV_H
#define STORE_ENV_H

#include "fabric/fabric.h"

struct env;

enum { ENV_WINDOW_BYTES_MIN = 128 * 1024 };

struct env_options {
    const char *uri;
    const char *secret_file; /* tcp, verbs */
    const char *verbs;       /* verbs: the RDMA device, as in fabric_socket_options; NULL: any */
    bool require_tls;        /* tcp, verbs: TLS on loopback, too */
    bool insecure_tcp;       /* and no TLS elsewhere either: credentials.h */
    const char *tls_ca, *tls_cert, *tls_key;

    /* The window of this process, or of each simulated compute node: its memory is taken at open.
     * 0: a small one, for being called alone. INVALID: less than ENV_WINDOW_BYTES_MIN, or nobody
     * could reach it; NO_MEMORY: more than there is. */
    uint64_t window_bytes;

    /* Where other members call this process. tcp, verbs: HOST:PORT to listen at, and to tell them; NULL:
     * any port of the address from which memory node 0 is reached. "none": it cannot be called. */
    const char *peer_listen, *peer_advertise;
    bool no_member; /* it does not join: nobody will call it */
};

/* Opens what the URI names; memory nodes of embedded and simulated pools are started here. Errors
 * as one line for a person. Not from a task. */
PANDO_MUST_CHECK enum pando_status env_open(const struct env_options *options, struct env **out,
                                            char *error, size_t error_bytes);
void env_close(struct env *env);

unsigned env_memory_nodes(const struct env *env);  /* their ids are 0 .. n-1 */
unsigned env_compute_nodes(const struct env *env); /* in this process */
uint64_t env_window_bytes(const struct env *env);  /* as asked for, of each of these; 0: none */
bool env_simulated(const struct env *env);
struct fabric *env_fabric(const struct env *env); /* this process's; NULL of a simulated pool */
const char *env_kind(const struct env *env);      /* "embedded", "shm", "tcp", "verbs", "sim" */

/* fabric_reload of this process's fabric. */
PANDO_MUST_CHECK enum pando_status env_reload(struct env *env, char *text, size_t text_bytes);

/* Where a memory node is, as the URI says it: "demo", "10.0.0.1:7000"; "this process" for one that
 * runs in here. Lives as long as the env. */
const char *env_memory_place(const struct env *env, unsigned node);

/* One line: why a memory node cannot be reached, and what to do. */
void env_explain_connect(const struct env *env, unsigned node, enum pando_status status, char *out,
                         size_t out_bytes);

/* How much of a node's memory can be reached, found by reading at its edges. */
struct env_window {
    uint64_t first;        /* first byte of the users */
    uint64_t host_bytes;   /* end of the ordinary memory */
    uint64_t device_bytes; /* on-chip memory, from FABRIC_DEVICE on */
};
PANDO_MUST_CHECK enum pando_status env_window_co(struct fabric_endpoint *endpoint,
                                                 struct env_window *out);

/* One thread's part in a run. */
struct env_place {
    struct env *env;
    struct fabric *fabric;
    unsigned compute_node; /* 0 .. env_compute_nodes-1 */
    unsigned thread;       /* 0 .. threads-1 */
};

typedef void (*env_fn)(void *context, const struct env_place *place);

/* Runs fn(context, place) as a task on `threads` loops of every compute node and returns when all
 * tasks they started have ended. NO_MEMORY: not one of them has begun. The first run of a simulated
 * pool decides how many threads its compute nodes have: a later one may use fewer, and gets
 * TOO_LARGE for more. Not from a task. */
PANDO_MUST_CHECK enum pando_status env_run(struct env *env, unsigned threads, env_fn fn,
                                           void *context);

/* Virtual time spent in runs so far; 0 on a real pool. */
uint64_t env_virtual_ns(const struct env *env);

#endif
