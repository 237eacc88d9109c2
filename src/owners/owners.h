/*
 * owners.h - who owns which keys of a table, for engines in which one process at a time works on a key.
 *
 * The map (map.h) says it: a block in the pool that changes by CAS alone. Keys of nobody are claimed by
 * whoever needs them; keys of a process that died are taken over, from the log that it left; an owner that
 * lives gives keys away when it is asked to. Who needs a key of another's asks its owner by a call.
 *
 * Nothing here knows how an engine keeps its pairs, or how it writes a log. It does its part in the functions
 * of struct owners_engine. An engine's table has a struct owners, and its handle of each thread a struct
 * owners_handle. All functions but those of the table are for the handle's own thread.
 */
#ifndef OWNERS_OWNERS_H
#define OWNERS_OWNERS_H

#include <stdalign.h>
#include <stdatomic.h>

#include "base/list.h"
#include "blob/blob.h"
#include "engine/engine.h"
#include "engine/step.h"
#include "owners/map.h"
#include "pool/pool.h"

struct owners_engine;
struct owners_scratch;
struct owners_survey;

enum { OWNERS_ASKED = 64, OWNERS_LINE_BYTES = 64 };

/* What a table has of it. The caller fills in what comes first before it claims keys; the rest begins as zero. */
struct owners {
    const struct owners_engine *engine;
    struct pool *pool;
    unsigned slot; /* in the pool's directory */
    uint16_t id;
    const struct engine_shape *shape;
    uint32_t inline_max; /* longer values are blobs */
    bool blobs;          /* whether values can be blobs */
    bool balance;        /* owners give keys to others that have less to do */
    bool join_eagerly;   /* for tests: partitions of the map are joined whenever they can be */

    /* Operations count themselves in under the parity of the generation they began in (owners_enter), so that a
     * change waits for those that know only the former map. */
    _Atomic(struct map *) map;
    _Atomic uint32_t generation;
    _Atomic uint64_t wished_ns;   /* when somebody was last asked for keys through the pool, */
    _Atomic uint64_t received_ns; /* and when keys of another's last became ours */
    atomic_bool changing;         /* one change of ownership at a time, */
    struct rt_waitq change;       /* and those who wait for their turn */
    uint64_t awaited_owner;       /* a dead one whom another takes over, and */
    uint64_t awaited_ns;          /* when that was first seen, or last asked about */
    uint64_t damaged_owner;       /* a dead one that cannot be replaced because of damage, and */
    uint64_t damaged_until_ns;    /* until when that is believed; all of it with the turn */
    atomic_bool map_stale;        /* an owner could not be reached: the map may be old */
    atomic_bool closing;

    /* Since when an owner cannot be called, by its member modulo their number; 0: it can. */
    alignas(OWNERS_LINE_BYTES) _Atomic uint64_t unanswered_ns[OWNERS_ASKED];

    /* Written by calls that are answered. */
    alignas(OWNERS_LINE_BYTES) struct rt_latch handles_latch;
    struct list handles;        /* struct owners_handle */
    uint64_t operations_before; /* of handles that are gone */

    /* The background task, on the loop that opened the table. */
    alignas(OWNERS_LINE_BYTES) struct owners_handle *maintainer;
    _Atomic uint64_t load;     /* operations in the last lease, as it counted */
    atomic_bool maintained;    /* the task runs */
    bool retired;              /* nothing of it in the pool is ours to touch */
    bool looked;               /* for orphans, at least once */
    uint64_t departures_known; /* of the pool, when there were none */
    unsigned rounds;
    uint64_t operations_known;    /* when its load was last measured */
    struct owners_survey *survey; /* of the balance that is due; NULL: it is not */
    uint64_t surveyed_ns;         /* when that was begun */
    bool decided;                 /* with its answers; some are still outstanding */
    struct rt_waitq wake;         /* ends its sleep, and tells its end */

    /* Operations that a change waits for have ended: how many times that was told, and to whom. */
    _Atomic uint32_t drained;
    struct rt_waitq drain;

    _Atomic uint64_t forwarded, takeovers, given; /* operations, owners, times */
};

struct owners_handle {
    struct owners *owners;
    struct pool_session *session;
    struct list link;
    bool serves; /* it answers others */
    struct owners_scratch *free_scratch;
    _Atomic uint64_t operations; /* done here ever, for whomever; only its own thread counts */
    _Atomic uint32_t active[2];  /* operations under way, by the parity of their generation */
};

/* Keys from low to high, or to the end. */
struct owners_range {
    struct slice low, high;
    bool no_high;
};

static inline bool owners_range_has(const struct owners_range *range, struct slice key)
{
    return slice_compare(key, range->low) >= 0 &&
           (range->no_high || slice_compare(key, range->high) < 0);
}

/* What an owner leaves to whoever takes over, as the map names it: the engine's log. Address 0: nothing. */
struct owners_log {
    fabric_address address;
    uint64_t version;
};

/* What is to become of a key: decided by a function, here; blobs may be made before. */
struct owners_edit {
    unsigned how; /* as for engine_modify_co */
    engine_modify_fn fn;
    void *context;

    /* For others, and of swaps: values as they lie with their keys, blobs as references; perhaps only if the key is
     * as it was (enum owners_expect of call_fmt.h). */
    bool raw, raw_blob;
    unsigned expect;
    struct slice expected;
    uint8_t *mismatch; /* out */

    blob_ref *missing; /* see blob_missing; not of those for others */
};

/* Keys where what an engine keeps together begins, in order. */
struct owners_bounds {
    uint8_t *keys; /* ENGINE_KEY_MAX each */
    size_t *sizes;
    size_t count, capacity;
};

/* False: no memory. */
bool owners_bounds_add(struct owners_bounds *bounds, struct slice key);

/* ---- what an engine does --------------------------------------------------------------------- */

/* All may suspend but those without _co, and may be called by any thread, with a handle of its own. Statuses that
 * are not told go through to whoever asked. */
struct owners_engine {
    /* A handle for a session that answers others, and its end. */
    enum pando_status (*attach)(struct owners *owners, struct pool_session *session,
                                struct owners_handle **out);
    void (*detach)(struct owners_handle *self);

    /* Operations on a key of one's own, for others; the caller has entered. What a read gives is
     * durable. */
    enum pando_status (*get_co)(struct owners_handle *self, const struct map_partition *part,
                                struct slice key, bool *blob, void *to, size_t capacity,
                                size_t *size);
    enum pando_status (*modify_co)(struct owners_handle *self, const struct map_partition *part,
                                   struct slice key, const struct owners_edit *edit);
    /* Pairs from the key on, or that come just before it, in the engine's own form. */
    enum pando_status (*leaf_co)(struct owners_handle *self, struct slice key, bool before,
                                 uint8_t *to, uint32_t *size);

    /* This process's log. prepare_co: there is one from now on, if the engine has logs at all.
     * retain_log_co: whether it shall outlast this process. */
    enum pando_status (*prepare_co)(struct owners_handle *self);
    struct owners_log (*log)(const struct owners *owners);
    enum pando_status (*retain_log_co)(struct owners_handle *self, bool keep);

    /* Does what a dead owner's log says of keys that are ours to take over (owners_taken_by_us), and makes it
     * durable: the log is not needed any more. Then frees it. Both may be done again. */
    enum pando_status (*replay_co)(struct owners_handle *self, const struct owners_log *log);
    enum pando_status (*free_log_co)(struct owners_handle *self, const struct owners_log *log);

    /* What the engine itself does in each round of the maintenance. */
    void (*maintain_co)(struct owners_handle *self);

    /* A map of that epoch becomes the view: what was read of others' keys may have changed. published: it is about to
     * be. */
    enum pando_status (*map_install_co)(struct owners_handle *self, uint64_t epoch);
    void (*published)(struct owners *owners);

    /* Giving keys away, in this order.
     * align_co: moves a bound to where what is kept together with that key ends, unless it begins there; *none: that
     *   is the end of all keys.
     * can_give_co: whether another could work on keys of this table.
     * flush_co: what is only in this process's memory goes to the pool, of a range or (NULL) of all keys; they are
     *   still worked on, so some may be left.
     * stopped: nobody works on them any more, until they have come back.
     * check_bound_co: STALE if nothing begins there any more.
     * drop_co: the rest goes to the pool, and all that is known of the range is forgotten. */
    enum pando_status (*align_co)(struct owners_handle *self, struct slice *bound, bool *none,
                                  uint8_t to[ENGINE_KEY_MAX]);
    enum pando_status (*can_give_co)(struct owners_handle *self);
    enum pando_status (*flush_co)(struct owners_handle *self, const struct owners_range *range);
    void (*stopped)(struct owners_handle *self);
    enum pando_status (*check_bound_co)(struct owners_handle *self, struct slice bound);
    enum pando_status (*drop_co)(struct owners_handle *self, const struct owners_range *range);

    /* At least so many bounds over all keys, if there are. `fresh`: as the pool has them now. */
    enum pando_status (*bounds_co)(struct owners_handle *self, size_t wanted, bool fresh,
                                   struct owners_bounds *bounds);
};

/* ---- handles.c ------------------------------------------------------------------------------- */

void owners_init(struct owners *owners);
void owners_fini(struct owners *owners);

/* The handle is all zero. */
void owners_attach(struct owners_handle *self, struct owners *owners, struct pool_session *session);
void owners_detach(struct owners_handle *self);

/* What all handles have done. */
uint64_t owners_operations(struct owners *owners);

static inline void owners_count_operations(struct owners_handle *self, uint64_t operations)
{
    uint64_t before = atomic_load_explicit(&self->operations, memory_order_relaxed);
    atomic_store_explicit(&self->operations, before + operations, memory_order_relaxed);
}

/* Bounded loops that begin again: pool_retry_co, for less long while the table is being closed. */
PANDO_MUST_CHECK enum pando_status owners_retry_co(struct owners *owners, struct pool_retry *retry);

/* The condition of such a loop: whether the try is followed by another, after a pause. If not, the
 * step is how the loop ends: as the try did, or with TIMEOUT or FENCED. */
static inline bool owners_again_co(struct owners *owners, struct pool_retry *retry,
                                   struct step *step)
{
    if (step->next == STEP_DONE)
        return false;
    *step = step_of(owners_retry_co(owners, retry));
    return step_ok(*step);
}

/* ---- map_copy.c: who owns what, as this process knows it ----------------------------------------- */

static inline uint64_t owners_self(const struct owners *owners)
{
    return map_member(pool_identity(owners->pool));
}

static inline const struct map *owners_map(const struct owners *owners)
{
    return atomic_load_explicit(&owners->map, memory_order_acquire);
}

static inline uint64_t owners_epoch(const struct owners *owners)
{
    return owners_map(owners)->epoch;
}

/* Whether operations on this partition run here. */
static inline bool owners_mine(const struct owners *owners, const struct map_partition *part)
{
    return part->owner == owners_self(owners) && !part->frozen;
}

/* Whether this process is to take over this key from an owner that died. */
static inline bool owners_taken_by_us(const struct owners *owners, struct slice key)
{
    return map_find(owners_map(owners), key)->taker == owners_self(owners);
}

/* An operation under way. */
struct owners_guard {
    const struct map *map;
    const struct map_partition *part; /* the one with its key */
    unsigned parity;
};
void owners_enter(struct owners_handle *self, struct slice key, struct owners_guard *guard);
void owners_leave(struct owners_handle *self, struct owners_guard *guard);

/* Whether an operation on this key would run here. */
bool owners_owns(struct owners_handle *self, struct slice key);

/* ---- own.c, give.c, spread.c: getting and giving keys ---------------------------------------- */

/* A key that is not ours: takes it over if nobody has it (any more), and otherwise says who does. */
PANDO_MUST_CHECK struct step owners_claim_co(struct owners_handle *self, struct slice key,
                                             uint64_t *owner);

/* Gives the keys of a range, as far as they are ours, to a member, or to nobody. Its ends are moved to where leaves
 * end. */
PANDO_MUST_CHECK struct step owners_give_co(struct owners_handle *self,
                                            const struct owners_range *range, uint64_t to);

/* As engine_move_co and engine_spread_co. */
PANDO_MUST_CHECK enum pando_status owners_move_co(struct owners_handle *self, struct slice key,
                                                  uint64_t choice);
PANDO_MUST_CHECK enum pando_status owners_spread_co(struct owners_handle *self, bool others,
                                                    unsigned *processes);

/* ---- forward.c, serve.c: what others do for us, and we for them ------------------------------ */

/* Asks the owner. Restarts: it is not any more, or cannot be reached now. */
PANDO_MUST_CHECK struct step owners_forward_get_co(struct owners_handle *self, uint64_t owner,
                                                   struct slice key, struct engine_part *part,
                                                   blob_ref *missing);
PANDO_MUST_CHECK struct step owners_forward_modify_co(struct owners_handle *self, uint64_t owner,
                                                      struct slice key,
                                                      const struct owners_edit *edit);

/* What the owner's engine gives for its leaf_co: to be checked like everything from outside. */
PANDO_MUST_CHECK struct step owners_forward_leaf_co(struct owners_handle *self, uint64_t owner,
                                                    struct slice key, bool before, void *to,
                                                    uint32_t capacity, uint32_t *size);
PANDO_MUST_CHECK struct step owners_forward_flush_co(struct owners_handle *self, uint64_t owner);

/* Reads the long value that a key refers to. Restarts: it is gone, look at the key once more.
 * CORRUPT: so it was the last time, with the same reference. */
PANDO_MUST_CHECK struct step owners_read_blob_co(struct owners_handle *self, struct slice key,
                                                 blob_ref ref, struct engine_part *part,
                                                 blob_ref *missing);

/* A part of a value that lies with its key. */
void owners_take_part(struct engine_part *part, struct slice value);

/* Answers others, from now on and until no more. */
PANDO_MUST_CHECK enum pando_status owners_serve(struct owners *owners);
void owners_serve_stop_co(struct owners *owners);

/* ---- maintenance.c: the background task ------------------------------------------------------ */

/* Takes over from owners that died, also when nobody asks for their keys; joins, and balances. */
PANDO_MUST_CHECK enum pando_status owners_maintenance_start(struct owners *owners);
void owners_maintenance_stop_co(struct owners *owners);

/* One pass of it, by whoever opened the table. */
void owners_maintain_co(struct owners *owners);

#endif
