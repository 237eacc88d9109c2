/*
 * env.h - what a conformance case runs in: a target (node 0), which is a memory node or a compute
 * node, client processes, and the faults a case may make. Hides whether all that is simulated or
 * real.
 *
 * A compute node's window has no on-chip part and goes with its process, which is told its node id
 * after it has opened it, as members are.
 *
 * A case's main function runs outside of every loop and starts client tasks with env_run; these run
 * at the same time, each on a loop of its own (a thread, or a loop of a simulated machine). On the
 * real backends the target is another process.
 *
 * Whatever goes wrong in here, as opposed to in the fabric, ends the case as failed.
 */
#ifndef CONFORMANCE_ENV_H
#define CONFORMANCE_ENV_H

#include "fabric/fabric.h"

enum {
    ENV_TARGET = 0, /* node id of the target */
    ENV_HOST_BYTES = 66 * 1024 * 1024,
    ENV_DEVICE_BYTES = 256 * 1024,
    ENV_TASKS_MAX = 16,
    ENV_CLIENTS_MAX = 64,
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ENV_SLOWDOWN 5 /* a sanitizer's */
#else
#define ENV_SLOWDOWN 1
#endif

struct env;

struct env_options {
    const char *folder;     /* an empty one; only for the real backends */
    fabric_handler handler; /* of the target, with its fabric as context; NULL for none */
    uint64_t seed;          /* only for the simulated one, as are the rest */
    bool chaos;
    bool no_fencing;
};

struct env_client {
    struct fabric_identity identity;
    bool wrong_secret;
    bool far; /* env_hide_target works for it */
};

struct env_task {
    struct fabric *fabric; /* of the client that it runs in */
    rt_fn fn;
    void *arg;
};

/* How a writer ended. */
enum env_end {
    ENV_END_FENCED, /* it was told so */
    ENV_END_DEAD,   /* the process is no more */
    ENV_END_OTHER,
};

struct env_ops {
    const char *name;
    bool simulated;
    bool compute;     /* the target is a compute node */
    bool fence_kills; /* whoever is fenced dies */
    bool has_secret;
    unsigned effort;      /* rounds of a case for each one in the simulator */
    unsigned call_effort; /* the same where a round waits for another thread or process */
    uint64_t patience_ns; /* what has to happen has happened after this */
    uint64_t linger_ns;   /* what has not happened after this is taken not to happen any more */

    /* Whether this machine has what it takes; NULL: every one has. */
    bool (*available)(void);
    struct env *(*open)(const struct env_options *options);
    void (*close)(struct env *env);
    struct fabric *(*client)(struct env *env, const struct env_client *client);
    void (*run)(struct env *env, const struct env_task *tasks, unsigned count);
    void (*place_target)(struct env *env, struct fabric *client, bool right);
    void (*kill_target)(struct env *env);
    void (*restart_target)(struct env *env);
    void (*hide_target)(struct env *env);
    void (*show_target)(struct env *env);
    void (*writer_start)(struct env *env, struct fabric_identity identity, uint64_t offset);
    void (*writer_pause_co)(struct env *env);
    void (*writer_resume_co)(struct env *env);
    void (*writer_kill_co)(struct env *env);
    enum env_end (*writer_end_co)(struct env *env);
    /* The main function of a process that the backend started; NULL when it starts none. */
    int (*process)(int argc, char **argv, fabric_handler handler);
};

/* First member of each backend's own. */
struct env {
    const struct env_ops *ops;
    struct env_options options;
    struct fabric *members[ENV_TASKS_MAX]; /* the suite's ordinary clients */
};

/* Weak: a backend that is not compiled in is NULL here. */
extern const struct env_ops env_sim __attribute__((weak));
extern const struct env_ops env_shm __attribute__((weak));
extern const struct env_ops env_tcp __attribute__((weak));
extern const struct env_ops env_verbs __attribute__((weak));
extern const struct env_ops env_sim_compute __attribute__((weak));
extern const struct env_ops env_shm_compute __attribute__((weak));
extern const struct env_ops env_tcp_compute __attribute__((weak));
extern const struct env_ops env_verbs_compute __attribute__((weak));

/* What the target is to others. */
static inline enum fabric_target env_target_kind(const struct env_ops *ops)
{
    return ops->compute ? FABRIC_COMPUTE : FABRIC_MEMORY;
}

/* Where ENV_DEVICE_BYTES of its on-chip memory are, or others in their place. */
static inline uint64_t env_device(const struct env *env)
{
    return env->ops->compute ? ENV_HOST_BYTES - ENV_DEVICE_BYTES : FABRIC_DEVICE;
}

/* ---- clients --------------------------------------------------------------------------------- */

/* A process that knows where the target is. Lives as long as the env. Not from a task. */
static inline struct fabric *env_client(struct env *env, struct fabric_identity identity)
{
    return env->ops->client(env, &(struct env_client){.identity = identity});
}

static inline struct fabric *env_client_with(struct env *env, struct env_client client)
{
    return env->ops->client(env, &client);
}

/* Tells a client that the target is where nobody is, or where it really is. Not in the simulator,
 * where everybody knows. */
static inline void env_misplace_target(struct env *env, struct fabric *client)
{
    env->ops->place_target(env, client, false);
}

static inline void env_place_target(struct env *env, struct fabric *client)
{
    env->ops->place_target(env, client, true);
}

/* Runs the tasks, each on a loop of its own, and waits until all have ended. Not from a task. */
static inline void env_run(struct env *env, const struct env_task *tasks, unsigned count)
{
    env->ops->run(env, tasks, count);
}

/* ---- faults, on a task or not ---------------------------------------------------------------- */

/* kill -9, and it is dead when this returns. */
static inline void env_kill_target(struct env *env)
{
    env->ops->kill_target(env);
}

/* A new process at the same location, with the window of the dead one if that is a memory node's,
 * else with an empty one; it serves. */
static inline void env_restart_target(struct env *env)
{
    env->ops->restart_target(env);
}

/* Makes endpoints of far clients to the target break, while what they sent may still arrive if the
 * backend has a way to do so: the link is cut, or the target stopped. Otherwise it is killed. */
static inline void env_hide_target(struct env *env)
{
    env->ops->hide_target(env);
}

/* It can be reached again. */
static inline void env_show_target(struct env *env)
{
    env->ops->show_target(env);
}

/* ---- a writer -------------------------------------------------------------------------------- */

enum { ENV_WRITER_BYTES = 1024 };

/* Another client process, one at a time, that goes on filling a range with rising numbers, all
 * words of it with the same, by lists of several WRITEs, several lists in flight. It reconnects
 * when its endpoint breaks, until it is fenced. Not from a task. */
static inline void env_writer_start(struct env *env, struct fabric_identity identity,
                                    uint64_t offset)
{
    env->ops->writer_start(env, identity, offset);
}

/* Stops the whole process, at any point in what it does. Returns when it has stopped. */
static inline void env_writer_pause_co(struct env *env)
{
    env->ops->writer_pause_co(env);
}

/* Lets it go on. */
static inline void env_writer_resume_co(struct env *env)
{
    env->ops->writer_resume_co(env);
}

/* Kills it, at any point in what it does. */
static inline void env_writer_kill_co(struct env *env)
{
    env->ops->writer_kill_co(env);
}

/* Waits for its end, which has to come. */
static inline enum env_end env_writer_end_co(struct env *env)
{
    return env->ops->writer_end_co(env);
}

/* The writer itself: a task of its process. */
struct env_writer {
    struct fabric *fabric;
    uint64_t offset;
    enum pando_status status; /* how it ended: FENCED, or what it gave up with */
    bool ended;
};

void env_writer_main(void *writer);

/* ---- effort ---------------------------------------------------------------------------------- */

/* How many rounds to do on this backend, given those for one run in the simulator. */
static inline unsigned env_scaled(unsigned simulated, unsigned effort)
{
    unsigned rounds = simulated * effort / ENV_SLOWDOWN;
    return rounds > 0 ? rounds : 1;
}

static inline unsigned env_rounds(const struct env *env, unsigned simulated)
{
    return env_scaled(simulated, env->ops->effort);
}

static inline unsigned env_call_rounds(const struct env *env, unsigned simulated)
{
    return env_scaled(simulated, env->ops->call_effort);
}

#endif
