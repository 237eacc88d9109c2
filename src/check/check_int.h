/*
 * check_int.h - the parts of one seed: the cluster and its faults (cluster.c), the clients
 * (client.c) and their operations (ops.c), set-up and judgement (judge.c).
 */
#ifndef CHECK_CHECK_INT_H
#define CHECK_CHECK_INT_H

#include "base/prng.h"
#include "check/check.h"
#include "check/history.h"
#include "fabric/sim/fabric_sim.h"
#include "pool/memnode.h"

enum {
    CHECK_COMPUTE_FIRST = 0x8000,
    CHECK_CHECKER = CHECK_COMPUTE_FIRST + CHECK_NODES_MAX,
    CHECK_KEY_BYTES_MAX = 40,
    CHECK_VALUE_BYTES_MAX = 4096, /* but with CHECK_FAULTS_BLOBS */
    CHECK_CUTS_MAX = 4 * CHECK_NODES_MAX,
    CHECK_MEMNODES_MAX = 64,
    CHECK_FILL_MIN = 40, /* of a bulk load */
};

/* Longer than it takes to find a broken link again. */
#define CHECK_LEASE_NS (20 * RT_NS_PER_MS)
#define CHECK_TABLE    "checked"

/* In virtual time: once no fault is left, everything is served again within this, by everybody. */
#define CHECK_SERVED_WITHIN_NS (3 * RT_NS_PER_S)

enum {
    CHECK_FLIPS_MAX = 3,
};

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
    bool served;            /* everything, after the faults */
};

/* What somebody is at, so that it can be said what hangs. */
struct check_doing {
    struct list link; /* in cluster->doings */
    uint32_t number;  /* the client, for people */
    struct fabric *fabric;
    const char *what; /* NULL: nothing */
    unsigned key;
    uint64_t since_ns;
};

/* Several clients stand still. */
struct check_pause {
    uint64_t at_ns, end_ns;           /* at_ns 0: not planned */
    uint64_t for_ns[CHECK_NODES_MAX]; /* 0: not this one */
    bool done;
};

/* A link that is cut for a while. */
struct check_cut {
    uint64_t at_ns, heal_ns;
    uint16_t a, b;
    bool outage; /* a long one */
    enum { CUT_PLANNED, CUT_NOW, CUT_OVER } state;
};

struct check_memory {
    struct fabric *fabric;
    uint64_t kill_ns, restart_ns; /* 0: not planned */
    bool down;
    bool outage;          /* a long one */
    unsigned lock_losses; /* restarts to come in which its lock table is lost */
    /* What it has when it comes back. */
    enum { BACK_SAME, BACK_EMPTY, BACK_FOREIGN, BACK_NEVER } back;
};

struct cluster {
    const struct check_options *options;
    struct check_result *result;
    struct prng prng;        /* of everything that is planned */
    struct prng faults_prng; /* of kinds of faults that came later: the others stay as they are */
    unsigned faults;         /* of this seed, of enum check_faults */
    struct fabric_sim *net;
    struct sim *sim;
    struct check_slot slots[CHECK_NODES_MAX];
    struct check_memory memory[CHECK_MEMORY_MAX];
    struct memnode *memnodes[CHECK_MEMNODES_MAX]; /* of all lives, until the end */
    unsigned memnode_count;
    struct check_cut cuts[CHECK_CUTS_MAX];
    unsigned cut_count;
    struct check_pause pause;
    uint64_t flip_at_ns[CHECK_FLIPS_MAX]; /* 0: none, or over */
    struct list doings;
    struct fabric *checker;
    struct sim_event janitor;

    struct engine_shape shape;
    uint64_t lease_ns;
    uint64_t memory_bytes;     /* of a memory node's window */
    double link_bytes_per_ns;  /* 0: as the model says */
    size_t value_max;          /* bytes */
    uint64_t served_within_ns; /* CHECK_SERVED_WITHIN_NS, or longer on slow links */
    uint64_t longest_ns;
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
    bool healed;      /* no fault is left that begins at a time; those at an operation may come */
    bool over;        /* nothing is left to do for the janitor */
    bool judged;      /* nothing is left to do for the judge */
    bool ended;       /* the world came to rest */
    unsigned running; /* clients that have not ended */
    uint64_t ready_ns, healed_ns;
};

/* The first one counts. */
__attribute__((format(printf, 2, 3))) void check_violate(struct cluster *cluster,
                                                         const char *format, ...);

/* A line of the trace, if that is wanted. */
__attribute__((format(printf, 2, 3))) void check_trace(struct cluster *cluster, const char *format,
                                                       ...);

/* ---- what everybody is at -------------------------------------------------------------------- */

void check_doing_init(struct cluster *cluster, struct check_doing *doing, uint32_t number,
                      struct fabric *fabric);
void check_doing_fini(struct check_doing *doing);
void check_doing_begin(struct cluster *cluster, struct check_doing *doing, const char *what,
                       unsigned key);
void check_doing_end(struct check_doing *doing);

/* How many are at something. */
unsigned check_at_work(const struct cluster *cluster);

/* The one that has been at it for longest after the faults; NULL if nobody is at anything. */
struct check_doing *check_doing_oldest(struct cluster *cluster, uint64_t *for_ns);

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
    struct check_doing doing;
    bool alone; /* everybody else is gone, and what they left behind repaired: nothing may fail */
};

/* One at random; false when this client can do no more. */
bool check_operate_co(struct check_actor *actor);

/* Gets and puts for setting up and for the end. What the engine said; it is in the history. */
enum pando_status check_get_co(struct check_actor *actor, unsigned key);
enum pando_status check_put_co(struct check_actor *actor, unsigned key, enum engine_put mode);
enum pando_status check_scan_all_co(struct check_actor *actor, bool reverse);
void check_load_co(struct check_actor *actor, unsigned percent, unsigned fill);

/* The kinds, and how often they come, for this seed. */
void check_plan_operations(struct cluster *cluster);

/* ---- setting up and judging ------------------------------------------------------------------ */

/* The first task: makes the table, waits for the clients, looks at what is left. */
void check_judge_task(void *cluster);

#endif
