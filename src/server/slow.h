/*
 * slow.h - commands that took long: the ring of SLOWLOG and the events of LATENCY, of all threads.
 */
#ifndef SERVER_SLOW_H
#define SERVER_SLOW_H

#include <stdatomic.h>
#include <stdint.h>

#include "pando/pando.h"
#include "rt/rt.h"

struct command_call;
struct server;

/* Shorter limits have every command timed; see commands/dispatch.c. */
#define SLOW_COARSE_NS RT_NS_PER_MS

enum {
    SLOW_LOG_MAX = 4096, /* entries, some 5 KB each at most */
    SLOW_LOG_USUAL = 128,
    SLOW_THAN_USUAL_US = 10000,
    SLOW_WORDS = 32, /* of a command that are kept */
    SLOW_WORD_BYTES = 128,
    SLOW_NAME_BYTES = 64, /* of the client and its address */
    LATENCY_SAMPLES = 160,
};

/* Slow commands, and slow ones of those that are marked as fast. */
enum latency_event { LATENCY_COMMAND, LATENCY_FAST_COMMAND, LATENCY_EVENTS };

struct latency_series {
    uint64_t count; /* ever; the last LATENCY_SAMPLES are kept */
    uint64_t longest_ms;
    struct {
        uint64_t time_s, ms;
    } samples[LATENCY_SAMPLES];
};

/* One block of memory: the words lie behind it, one after the other. */
struct slow_entry {
    uint64_t id, time_s, duration_us;
    char address[SLOW_NAME_BYTES], name[SLOW_NAME_BYTES];
    unsigned count;
    uint16_t sizes[SLOW_WORDS];
    uint8_t bytes[];
};

struct slow {
    struct rt_latch latch;
    _Atomic uint64_t limit_ns; /* commands that take less are not looked at; UINT64_MAX: none is */
    struct slow_entry **entries; /* a ring of SLOW_LOG_MAX */
    uint64_t first, count;       /* the oldest one, and how many there are */
    uint64_t next_id;
    struct latency_series series[LATENCY_EVENTS];
};

PANDO_MUST_CHECK enum pando_status slow_init(struct server *server);
void slow_fini(struct server *server);

/* After a change of the limits: also forgets what the log has no room for any more. */
void slow_limits_changed(struct server *server);

/* Under the latch; there is one. */
void slow_forget_oldest(struct slow *slow);

/* A call that took at least limit_ns. Its words are still there. */
void slow_note(const struct command_call *call, uint64_t duration_ns);

#endif
