/*
 * suite.h - the cases of the fabric conformance suite and what they share.
 *
 * A case is a function of an env with a fresh target. It is run once on a real backend and with
 * many seeds on the simulated one, each time in a new env, so it keeps nothing in static memory.
 */
#ifndef CONFORMANCE_SUITE_H
#define CONFORMANCE_SUITE_H

#include "conformance/env.h"
#include "lib/check.h"

enum {
    CASE_SIM = 1,         /* only there */
    CASE_CHAOS = 2,       /* only there, and only with chaos */
    CASE_REAL = 4,        /* not there */
    CASE_SECRET = 8,      /* only where peers prove that they know a secret */
    CASE_NO_HANDLER = 16, /* the target serves no calls */
    CASE_COMPUTE = 32,    /* only where the target is a compute node */
};

struct suite_case {
    const char *name;
    void (*run)(struct env *env);
    unsigned flags;
    unsigned seeds_max; /* in the simulator, where one run takes long; 0 for no limit */
};

/* Each ends with an element without a name. */
extern const struct suite_case lists_cases[];
extern const struct suite_case order_cases[];
extern const struct suite_case torn_cases[];
extern const struct suite_case atomics_cases[];
extern const struct suite_case calls_cases[];
extern const struct suite_case peers_cases[];
extern const struct suite_case failure_cases[];
extern const struct suite_case fencing_cases[];

/* Runs one case in a new env. */
void suite_run_case(const struct env_ops *ops, const struct suite_case *test,
                    const struct env_options *options);

/* ---- where things are in the target's window ------------------------------------------------- */

enum {
    AT = 1024 * 1024,     /* most cases' data */
    AT_FLAG = 512 * 1024, /* words that others wait for, far from it */
    AT_LOCK = 600 * 1024,
    AT_PROBE = 700 * 1024, /* nobody looks at what is here */
};

/* On the device, where the target has one. */
static inline uint64_t at_device(const struct env *env)
{
    return env_device(env) + 4096;
}

/* ---- clients that are connected -------------------------------------------------------------- */

struct client {
    struct env *env;
    struct fabric *fabric;
    struct fabric_endpoint *endpoint; /* to the target */
    unsigned index;
    void *arg;
};

typedef void (*client_fn)(struct client *client);

/* Runs fn on that many clients, from when all are connected, and waits until all have ended. Each
 * is a process with an identity of its own, the same ones every time ... */
void suite_clients(struct env *env, unsigned count, client_fn fn, void *arg);

/* ... or each is a thread of the given process. */
void suite_threads(struct env *env, struct fabric *fabric, unsigned count, client_fn fn, void *arg);

/* ---- steps; a failure of any ends the case --------------------------------------------------- */

void put_co(struct client *client, uint64_t offset, uint64_t word);
uint64_t get_co(struct client *client, uint64_t offset);
void write_co(struct client *client, uint64_t offset, const void *from, uint32_t size);
void read_co(struct client *client, uint64_t offset, void *to, uint32_t size);

/* Sets every word of a range. */
void fill_words_co(struct client *client, uint64_t offset, uint64_t word, uint32_t count);

/* For a poll loop: a moment, of random length. */
void moment_co(void);

/* Milliseconds on real backends are microseconds in the simulator, where all is a thousand times as
 * fast and nobody has to share a processor. */
void suite_sleep_co(struct env *env, unsigned ms);

/* Never NULL. */
void *allocate(size_t bytes);

/* Byte i of a reproducible stream. */
static inline uint8_t pattern_byte(uint64_t stream, uint64_t i)
{
    uint64_t x = (stream + 1) * 0x9e3779b97f4a7c15u + i * 0xd1342543de82ef95u;
    return (uint8_t)(x >> 56 ^ x >> 24);
}

void pattern_fill(uint8_t *to, uint64_t stream, uint64_t first, size_t size);
void pattern_check(const uint8_t *bytes, uint64_t stream, uint64_t first, size_t size);

/* ---- what the target answers to -------------------------------------------------------------- */

enum suite_method {
    METHOD_ECHO,       /* the body */
    METHOD_STATUS,     /* u32: returned as the status, with the body as the reply */
    METHOD_SLEEP,      /* u64 ns: replies after that */
    METHOD_SIZE,       /* u32: so many bytes of pattern stream 0 */
    METHOD_IDENTITY,   /* who asks: struct fabric_identity */
    METHOD_RENEW,      /* its window gets a new life soon after the reply */
    METHOD_REFUSALS,   /* how many clients it refused for its window, as a word */
    METHOD_FENCED,     /* struct fabric_identity: whether it is shut out, as a word */
    METHOD_FENCE_OWN,  /* struct fabric_identity: fabric_fence_own_co of it */
    METHOD_SELF_READ,  /* struct self_range: fabric_self_read of it */
    METHOD_SELF_WRITE, /* u64 offset, bytes: fabric_self_write */
    METHOD_SELF_FAA,   /* struct self_faa: by an endpoint to itself; the old value */
    METHOD_SELF_LISTS, /* u64 offset: tries everything on an endpoint to itself, see calls.c */
    METHOD_SELF_WATCH, /* struct self_watch: waits for the flag by FAA, then self_reads the range */
};

struct self_range {
    uint64_t offset;
    uint64_t size;
};

struct self_faa {
    uint64_t offset;
    uint64_t addend;
};

struct self_watch {
    uint64_t flag;
    uint64_t value;
    struct self_range range;
};

enum pando_status suite_handler(void *context, struct fabric_request *request);

#endif
