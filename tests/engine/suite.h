/*
 * suite.h - what the cases of the engine suite share: a pool on some fabric, compute nodes with
 * threads that have joined it, tables, and keys and values to fill them with.
 *
 * A case runs outside of every loop and lets functions run on all threads of all compute nodes with
 * suite_run. In the simulator there are two compute nodes and the adversary is awake; on a real
 * fabric this process is the only compute node. Whatever goes wrong ends the process with status 1.
 */
#ifndef ENGINE_SUITE_H
#define ENGINE_SUITE_H

#include "base/prng.h"
#include "engine/engine.h"
#include "lib/check.h"
#include "lib/model_engine.h"
#include "rt/rt.h"
#include "store/env.h"

enum {
    SUITE_THREADS = 2, /* of each compute node, at the most */
    SUITE_TASKS_MAX = 32,
    SUITE_NAME_BYTES = 32,
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SUITE_SLOWDOWN 4
#else
#define SUITE_SLOWDOWN 1
#endif

struct suite {
    const struct engine_ops *ops;
    const char *fabric;     /* "sim", "shm", "tcp" or "verbs" */
    const char *techniques; /* of the engine, separated by commas */
    uint64_t seed;
    struct env *env;
    struct memory_processes *memory; /* tcp, verbs */
};

struct suite_case {
    const char *name;
    void (*run)(struct suite *suite);
    bool model_only;
};

/* Ended by one without a name. */
extern const struct suite_case basic_cases[], random_cases[], concurrent_cases[], memory_cases[],
    full_cases[], checker_cases[];

void suite_open(struct suite *suite);
void suite_close(struct suite *suite);

/* So many for the simulator; more where operations are cheap, fewer under a sanitizer. RDMA is tested
 * in an emulated machine, where nothing is cheap. */
static inline unsigned suite_scaled(const struct suite *suite, unsigned simulated)
{
    unsigned count = simulated * 4;
    if (strcmp(suite->fabric, "sim") == 0)
        count = simulated;
    else if (strcmp(suite->fabric, "verbs") == 0)
        count = simulated / 2;
    return count / SUITE_SLOWDOWN > 0 ? count / SUITE_SLOWDOWN : 1;
}

/* ---- running --------------------------------------------------------------------------------- */

/* One thread of a compute node that has joined the pool. */
struct place {
    struct suite *suite;
    unsigned index, count; /* among all threads of all compute nodes */
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table; /* NULL, as the next, if none was asked for */
    struct engine *engine;
    struct prng prng;
};

typedef void (*suite_fn)(struct place *place, void *context);

struct suite_run {
    const char *table;   /* opened and attached by every compute node; NULL for none */
    const char *without; /* as in struct engine_config, like the next */
    uint64_t cache_bytes;
    unsigned threads; /* of each compute node; 0 for SUITE_THREADS */
    bool alone;       /* on the first compute node only, and one thread */
};

/* Everybody joins, works, and leaves again: caches are cold every time. */
void suite_run(struct suite *suite, const struct suite_run *run, suite_fn fn, void *context);

/* Until everybody is here. Threads that do not take part must not exist. */
void suite_barrier_co(struct place *place);

/* Runs fn(context, i) as `count` tasks of this loop. */
typedef void (*suite_task_fn)(struct place *place, void *context, unsigned task);
void suite_tasks_co(struct place *place, unsigned count, suite_task_fn fn, void *context);

/* ---- tables ---------------------------------------------------------------------------------- */

/* With node_bytes as given, or the next larger power of two that the engine can do. */
void suite_create(struct suite *suite, const char *table, const struct engine_shape *shape);
void suite_drop(struct suite *suite, const char *table);

/* Bytes of the pool that are in anybody's hands while nobody is a member. */
uint64_t suite_used_bytes(struct suite *suite);

/* Checks the structure and that it has so many pairs. */
void verify_co(struct place *place, uint64_t pairs);

/* ---- keys and values ------------------------------------------------------------------------- */

struct key_set {
    struct slice *keys; /* in order, different */
    unsigned count;
};

/* Keys that fit the shape: numbers for keys of 8 bytes; else all lengths, more short ones, the
 * empty one among them, and many that begin alike. */
struct key_set keys_make(const struct engine_shape *shape, unsigned count, uint64_t seed);
void keys_free(struct key_set *set);

/* Random bytes; the size is in [0, most], mostly small, or the table's fixed one. */
struct slice value_make(struct prng *prng, const struct engine_shape *shape, size_t most);
void bytes_free(struct slice bytes);

/* The same bytes every time. */
struct slice value_of(uint64_t number, size_t size);

/* ---- comparing with the model ---------------------------------------------------------------- */

/* A get, which must say the same as the map. */
void compare_get_co(struct place *place, const struct model_map *map, struct slice key);

/* A scan, the same. */
void compare_scan_co(struct place *place, const struct model_map *map,
                     const struct engine_range *range);

/* Everything: gets of all keys, scans of all in both directions, the structure. */
void compare_all_co(struct place *place, const struct model_map *map, const struct key_set *keys);

/* A random operation on engine and map alike, which must agree. Nobody else writes that key. */
void random_operation_co(struct place *place, struct model_map *map, struct slice key,
                         size_t value_max);

/* A random range between keys of the set. */
struct engine_range random_range(struct prng *prng, const struct key_set *keys);

#endif
