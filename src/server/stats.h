/*
 * stats.h - what a server counts, per thread: written by one loop, read by any thread at any time.
 *
 * Counters only grow. A snapshot adds up the threads; it is not taken at one instant.
 */
#ifndef SERVER_STATS_H
#define SERVER_STATS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "pando/pando.h"

enum {
    STATS_COMMANDS_MAX = 160, /* and subcommands */
    STATS_SUB_BITS = 2,       /* four buckets for each power of two: 19 % wide */
    STATS_BUCKETS = 40 << STATS_SUB_BITS,
};

/* Of one command, on one thread. */
struct stats_command {
    _Atomic uint64_t calls, errors, ns;
    _Atomic uint64_t rejected;               /* before they ran: not among the calls */
    _Atomic uint64_t buckets[STATS_BUCKETS]; /* of nanoseconds */
};

struct stats_thread {
    _Atomic uint64_t commands, connections, rejected, protocol_errors, auth_failures;
    _Atomic uint64_t bytes_in, bytes_out;
    _Atomic uint64_t expired, hits, misses;
    _Atomic uint64_t clients; /* now; the only one that also falls */
    struct stats_command command[STATS_COMMANDS_MAX];
};

/* Only the owner adds, so that it needs no locked instruction. */
static inline void stats_add(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static inline uint64_t stats_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* Which bucket a number of nanoseconds belongs to, and the largest that still does. */
static inline unsigned stats_bucket(uint64_t ns)
{
    const uint64_t limit = (UINT64_C(1) << 40) - 1;
    ns = ns > limit ? limit : ns;
    unsigned top = 63u - (unsigned)__builtin_clzll(ns | (1u << STATS_SUB_BITS));
    unsigned shift = top - STATS_SUB_BITS;
    return (shift << STATS_SUB_BITS) + (unsigned)(ns >> shift);
}

static inline uint64_t stats_bucket_limit_ns(unsigned bucket)
{
    if (bucket < 2u << STATS_SUB_BITS)
        return bucket;
    unsigned shift = (bucket >> STATS_SUB_BITS) - 1;
    uint64_t low = ((bucket & ((1u << STATS_SUB_BITS) - 1)) + (1u << STATS_SUB_BITS));
    return ((low + 1) << shift) - 1;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

struct server;

struct stats_command_sum {
    const char *name; /* lower case, as "config|get"; NULL behind the last command */
    uint64_t calls, errors, ns, rejected;
    uint64_t buckets[STATS_BUCKETS];
};

struct stats_sum {
    uint64_t commands, connections, rejected, protocol_errors, auth_failures;
    uint64_t bytes_in, bytes_out;
    uint64_t expired, hits, misses;
    uint64_t clients, threads;
    uint64_t uptime_ms;
    struct stats_command_sum command[STATS_COMMANDS_MAX];
};

/* Of all threads of the server. About 210 KB: not for a task's stack. Any thread. */
void server_stats(const struct server *server, struct stats_sum *out);

/* The same since CONFIG RESETSTAT, for INFO: those who watch the counters otherwise want them to grow. */
void server_stats_since_reset(struct server *server, struct stats_sum *out);
PANDO_MUST_CHECK enum pando_status server_stats_reset(struct server *server);

/* The latency at or below which a fraction q of the command's calls lies; 0: no calls. */
uint64_t stats_quantile_ns(const struct stats_command_sum *command, double q);

#endif
