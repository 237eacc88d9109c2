/*
 * check_int.h - the parts of one seed: the cluster and its faults (check_cluster.c), the clients
 * (check_client.c) and their operations (check_ops.c), set-up and judgement (check_judge.c).
 */
#ifndef CMD_CHECK_INT_H
#define CMD_CHECK_INT_H

#include "base/prng.h"
#include "cmd/check_cluster.h"
#include "engine/history.h"
#include "fabric/sim/fabric_sim.h"
#include "pool/memnode.h"

enum {
    CHECK_COMPUTE_FIRST = 0x8000,
    CHECK_CHECKER = CHECK_COMPUTE_FIRST + CHECK_NODES_MAX,
    CHECK_KEY_BYTES_MAX = 40,
    CHECK_VALUE_BYTES_MAX = 4096,
    CHECK_CUTS_MAX = 4 * CHECK_NODES_MAX,
    CHECK_MEMNODES_MAX = 64,
    CHECK_FILL_MIN = 40, /* of a bulk load */
};

/* Longer than it takes to find a broken link again. */
#define CHECK_LEASE_NS (20 * RT_NS_PER_MS)
#define CHECK_TABLE    "checked"

struct check_key {
    uint8_t bytes[CHECK_KEY_BYTES_MAX];
    size_t size;
};

/* A compute node and what is planned for it. Its process may die and be replaced. */
struct check_slot {
    struct fabric *fabric;
    unsigned number;
    unsigned ops_left;
    bool replace;           /* once it is dead */
    uint64_t replace_at_ns; /* 0: not yet known */
    bool down;              /* dead, and nobody took its place so far */
};

/* A link that is cut for a while. */
struct check_cut {
    uint64_t at_ns, heal_ns;
    uint16_t a, b;
    enum { CUT_PLANNED, CUT_NOW, CUT_OVER } state;
};

struct check_memory {
    struct fabric *fabric;
    uint64_t kill_ns, restart_ns; /* 0: not planned */
    bool down;
};

struct cluster {
    const struct check_options *options;
    struct check_result *result;
    struct prng prng; /* of everything that is planned */
    struct fabric_sim *net;
    struct sim *sim;
    struct check_slot slots[CHECK_NODES_MAX];
    struct check_memory memory[CHECK_MEMORY_MAX];
    struct memnode *memnodes[CHECK_MEMNODES_MAX]; /* of all lives, until the end */
    unsigned memnode_count;
    struct check_cut cuts[CHECK_CUTS_MAX];
    unsigned cut_count;
    struct fabric *checker;
    struct sim_event janitor;

    struct engine_shape shape;
    uint64_t cache_bytes;
    bool preload_bulk;
    unsigned preload_percent;
    bool intermission; /* long enough in the middle for freed memory to be used again */
    unsigned weights[16];
    struct check_key *keys; /* in order */
    unsigned key_count;
    struct history *history;
    uint64_t clock; /* counts calls and returns: an order that is finer than time */
    uint64_t values;

    bool ready;       /* the table is there: clients may come */
    bool started;     /* they did */
    bool over;        /* nothing is left to do for the janitor */
    bool ended;       /* the world came to rest */
    unsigned running; /* clients that have not ended */
    uint64_t ready_ns;
};

/* The first one counts. */
__attribute__((format(printf, 2, 3))) void check_violate(struct cluster *cluster,
                                                         const char *format, ...);

/* A line of the trace, if that is wanted. */
__attribute__((format(printf, 2, 3))) void check_trace(struct cluster *cluster, const char *format,
                                                       ...);

/* ---- clients --------------------------------------------------------------------------------- */

/* A client on the slot's present process, as tasks of its loops. From an event or a task. */
void check_client_start(struct cluster *cluster, struct check_slot *slot);

/* ---- operations ------------------------------------------------------------------------------ */

/* Who does them. */
struct check_actor {
    struct cluster *cluster;
    uint32_t number; /* for people */
    struct fabric *fabric;
    struct engine *engine;
    bool alone; /* everybody else is gone, and what they left behind mended: nothing may fail */
};

/* One at random; false when this client can do no more. */
bool check_operate_co(struct check_actor *actor);

/* Gets and puts for setting up and for the end. */
void check_get_co(struct check_actor *actor, unsigned key);
void check_put_co(struct check_actor *actor, unsigned key, enum engine_put mode);
void check_scan_all_co(struct check_actor *actor, bool reverse);
void check_load_co(struct check_actor *actor, unsigned percent, unsigned fill);

/* The kinds, and how often they come, for this seed. */
void check_plan_operations(struct cluster *cluster);

/* ---- setting up and judging ------------------------------------------------------------------ */

/* The first task: makes the table, waits for the clients, looks at what is left. */
void check_judge_task(void *cluster);

#endif
