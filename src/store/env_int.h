/*
 * env_int.h - what the files of env share: the two kinds of worlds.
 */
#ifndef STORE_ENV_INT_H
#define STORE_ENV_INT_H

#include "pool/memnode.h"
#include "store/env.h"
#include "store/uri.h"

enum { ENV_THREADS_MAX = 256 };

struct fabric_sim;

struct env {
    struct uri uri;
    uint64_t compute_bytes; /* of each compute node's window */

    /* Real: one fabric, shared by all threads. */
    struct fabric *fabric;
    struct memnode *memnode; /* embedded */

    /* Simulated. */
    struct fabric_sim *net;
    struct memnode *memnodes[URI_MEMORY_MAX];
    struct fabric *computes[URI_COMPUTE_MAX];
    unsigned compute_threads; /* 0 until the first run */
    uint64_t virtual_ns;
};

/* One first task. */
struct env_job {
    struct env_place place;
    env_fn fn;
    void *context;
    struct env_sim_run *run; /* sim */
};

/* The parts of env_open, env_close and env_run that differ. What an open that failed has made is
 * undone by the close. */
PANDO_MUST_CHECK enum pando_status env_real_open(struct env *env, const struct env_options *options,
                                                 char *error, size_t error_bytes);
void env_real_close(struct env *env);
PANDO_MUST_CHECK enum pando_status env_real_run(struct env *env, struct env_job *jobs,
                                                unsigned threads);

PANDO_MUST_CHECK enum pando_status env_sim_open(struct env *env, char *error, size_t error_bytes);
void env_sim_close(struct env *env);
PANDO_MUST_CHECK enum pando_status env_sim_run(struct env *env, struct env_job *jobs,
                                               unsigned threads);

#endif
