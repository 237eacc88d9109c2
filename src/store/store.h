/*
 * store.h - a process's part in a pool, for whoever offers it to others: the C library and the
 * server.
 *
 * A process joins once (struct store). Each of its loops has a struct store_thread, with a session
 * of its own; tables are opened by name through it. A table is opened in the pool once per process
 * and attached once per thread, whoever asks: opening it again is a lookup.
 *
 * Table names have 1 to 63 bytes and do not begin with '#'.
 *
 * Everything belongs to the loop it was opened on, and many tasks of that loop may use it at the
 * same time. Operations are those of engine.h, with its statuses, in types of this file; what they wrap:
 *  - A table that was dropped elsewhere: NOT_FOUND from every operation, and the handle stays good
 *    for nothing but store_table_close.
 *  - FENCED never comes out: the process joins again, opens its tables again, and an operation that
 *    was not applied is done then. One that may have been returns UNKNOWN.
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "engine/engine.h"
#include "store/env.h"

struct store;
struct store_thread;
struct store_table;

/* Limits. */
enum {
    STORE_KEY_MAX = ENGINE_KEY_MAX,
    STORE_VALUE_MAX = ENGINE_VALUE_MAX,
    STORE_STAGE_HEAD_MAX = ENGINE_STAGE_HEAD_MAX, /* of a staged value; a part of STORE_VALUE_MAX */
    STORE_PART_USUAL = ENGINE_PART_USUAL,         /* parts of this size in a row are cheapest */
    STORE_SHORT_MAX = ENGINE_SHORT_MAX,           /* see STORE_SHORT and STORE_SCAN_SHORT */
    STORE_NAME_MAX = POOL_NAME_MAX,               /* of a table, with its NUL */
    STORE_ENGINE_NAME_MAX = POOL_ENGINE_NAME_MAX,
};

struct store_options {
    struct env *env;
    struct fabric *fabric;
    const char *name;     /* for people, in `pando status` */
    uint64_t cache_bytes; /* of each table; 0: the engine's default */
    bool not_durable;     /* as struct engine_config has it */
};

/* "pool" or "none", as people say it; false for anything else. */
bool store_durability_parse(const char *text, bool *not_durable);

/* Joins the pool. The calling loop keeps the heartbeat: it runs until store_close_co. Errors as one
 * line for a person. */
PANDO_MUST_CHECK enum pando_status store_open_co(const struct store_options *options,
                                                 struct store **out, char *error,
                                                 size_t error_bytes);
/* For a process that is to end: from now on no operation waits for it to join the pool again, nor for others
 * for more than two leases; TIMEOUT is what they return instead. On any loop. */
void store_hurry(struct store *store);
/* Every thread has been closed. On the loop that opened it. */
void store_close_co(struct store *store);

/* On any loop of the process, also the one that opened the store. */
PANDO_MUST_CHECK enum pando_status store_thread_open_co(struct store *store,
                                                        struct store_thread **out);
/* Closes its tables, too. Nothing of it is in use. */
void store_thread_close_co(struct store_thread *thread);

/* The session is another one after the process had to join again: it is used before the next call of
 * this file on the thread, and not by two tasks. store_members_co and the like do not have that catch. */
struct pool_session *store_session(struct store_thread *thread);

/* For a loop that is not run for a while: nothing of the thread is in use, and until it is resumed the
 * process does not wait for the loop to turn. On the thread's loop's thread, not on a task. */
void store_thread_pause(struct store_thread *thread);
void store_thread_resume(struct store_thread *thread);

/* As in pool.h. */
PANDO_MUST_CHECK enum pando_status store_members_co(struct store_thread *thread,
                                                    struct pool_member *out, unsigned capacity,
                                                    unsigned *count);
PANDO_MUST_CHECK enum pando_status store_node_stats_co(struct store_thread *thread, uint16_t node,
                                                       struct pool_node_stats *out);

uint16_t store_memory_nodes(const struct store_thread *thread);

/* How much memory a node has, and how much of it is in somebody's hands. */
struct store_memory {
    uint64_t bytes, used_bytes;
};
PANDO_MUST_CHECK enum pando_status store_memory_co(struct store_thread *thread, uint16_t node,
                                                   struct store_memory *out);

/* What its memory is used for: pool_usage_free it. */
PANDO_MUST_CHECK enum pando_status store_usage_co(struct store_thread *thread, uint16_t node,
                                                  struct pool_usage *out);

/* ---- tables ---------------------------------------------------------------------------------- */

/* How a table is laid out; fixed when it is created. */
struct store_shape {
    uint32_t key_size;   /* all keys have this size; 0: any up to key_max */
    uint32_t value_size; /* all values have this size; 0: any */
    uint32_t key_max;
    uint32_t value_inline; /* longer values lie beside the leaves */
    uint32_t node_bytes;   /* 0: chosen for the sizes */
};

/* Sizes that make sense, with node_bytes chosen: INVALID or TOO_LARGE otherwise. */
PANDO_MUST_CHECK enum pando_status store_shape_check(struct store_shape *shape);

/* About what a pair takes of the pool, in its leaf and beside it. */
uint64_t store_pair_bytes(const struct store_shape *shape, uint64_t key_bytes,
                          uint64_t value_bytes);

/* NULL for the default engine. Errors as one line for a person: EXISTS, INVALID, TOO_LARGE, FULL. */
PANDO_MUST_CHECK enum pando_status store_table_create_co(struct store_thread *thread,
                                                         const char *name, const char *engine,
                                                         const struct store_shape *shape,
                                                         char *error, size_t error_bytes);

/* NOT_FOUND. The handle is counted: as many closes as opens. */
PANDO_MUST_CHECK enum pando_status store_table_open_co(struct store_thread *thread,
                                                       const char *name, struct store_table **out,
                                                       char *error, size_t error_bytes);
void store_table_close(struct store_table *table);

/* One open more of a handle that is open. */
void store_table_hold(struct store_table *table);

/* Everybody's handles are useless from then on, here and in other processes. NOT_FOUND. TIMEOUT: the
 * name is gone, but somebody still uses the table; its memory comes back when they do not. */
PANDO_MUST_CHECK enum pando_status store_table_drop_co(struct store_thread *thread,
                                                       const char *name);

/* The pool's tables by name; free them. */
struct store_table_info {
    uint64_t number;
    char name[STORE_NAME_MAX];
    char engine[STORE_ENGINE_NAME_MAX];
    uint32_t key_max, value_inline;
};
PANDO_MUST_CHECK enum pando_status
store_table_list_co(struct store_thread *thread, struct store_table_info **out, unsigned *count);

/* Who owns how many ranges of its keys: as engine_owners_co. NOT_FOUND. */
PANDO_MUST_CHECK enum pando_status store_table_owners_co(struct store_thread *thread,
                                                         const char *name, struct engine_owner *out,
                                                         unsigned capacity, unsigned *count);

/* Whether it is known here that the table was dropped. */
bool store_table_dropped(const struct store_table *table);

/* Whether this process hears of its drop. One that was detached because it was idle does not, and its name may
 * be another table's by now: store_table_open_co finds out. */
bool store_table_attached(const struct store_table *table);

/* The table's number: another table of the same name has another. */
uint64_t store_table_number(const struct store_table *table);

const struct store_shape *store_table_shape(const struct store_table *table);

/* ---- operations (engine.h has their contracts) ----------------------------------------------- */

/* Up to `capacity` bytes of the value are stored, and its whole size told. */
PANDO_MUST_CHECK enum pando_status store_get_co(struct store_table *table, struct slice key,
                                                void *value, size_t capacity, size_t *size);

enum store_put { STORE_UPSERT, STORE_INSERT /* EXISTS */, STORE_UPDATE /* NOT_FOUND */ };
PANDO_MUST_CHECK enum pando_status store_put_co(struct store_table *table, struct slice key,
                                                struct slice value, enum store_put mode);
PANDO_MUST_CHECK enum pando_status store_delete_co(struct store_table *table, struct slice key);

/* What a read-modify-write decides. The value lives until the operation returns. */
struct store_change {
    enum { STORE_KEEP, STORE_REPLACE, STORE_REMOVE } what;
    struct slice value;
};

/* `old` is NULL when the key is absent. May be called several times for one operation: only the
 * last call counts. Does not suspend. */
typedef struct store_change (*store_modify_fn)(void *context, const struct slice *old);

/* How a change is to be made: bits. */
enum {
    STORE_BLIND =
        1, /* the old value is not fetched if that costs a round trip: old has size 0 then */
    STORE_SHORT = 2, /* an old value of more than STORE_SHORT_MAX bytes is not fetched: RANGE */
};
PANDO_MUST_CHECK enum pando_status store_modify_co(struct store_table *table, struct slice key,
                                                   unsigned how, store_modify_fn fn, void *context);

/* A part of a value. */
struct store_part {
    uint64_t offset; /* may be beyond the end */
    void *to;
    size_t capacity;
    /* In: 0, or a part of this very value is wanted, as an earlier call told. Out: which value it is; 0: a
     * short one, that lies with its key. A reference means one value of one key for ever. */
    uint64_t reference;
    uint64_t size; /* out: of the whole value */
    size_t got;    /* out: bytes that were stored */
};
PANDO_MUST_CHECK enum pando_status store_part_co(struct store_table *table, struct slice key,
                                                 struct store_part *part);

struct store_range {
    struct slice low, high; /* low <= key < high */
    bool no_high;           /* to the end */
    bool reverse;           /* from the high end down */
    uint64_t limit;         /* pairs at the most; 0: all */
    enum {
        STORE_SCAN_VALUES, /* all of them */
        STORE_SCAN_GLANCE, /* first bytes, without the check that only the whole has */
        STORE_SCAN_KEYS,   /* nothing of long values: they are empty */
        STORE_SCAN_SHORT, /* those of up to STORE_SHORT_MAX bytes; of others the size, with data NULL */
        STORE_SCAN_FRONTS /* first bytes of those that are stored in several pieces, all of the others */
    } values;
};

/* False stops the scan. The slices live until it returns. Does not suspend. */
typedef bool (*store_scan_fn)(void *context, struct slice key, struct slice value);
PANDO_MUST_CHECK enum pando_status store_scan_co(struct store_table *table,
                                                 const struct store_range *range, store_scan_fn fn,
                                                 void *context);
void store_batch_co(struct store_table *table, struct engine_batch_op *ops, size_t count,
                    unsigned width);
/* TIMEOUT: this process was declared dead in the middle; nothing was changed. */
PANDO_MUST_CHECK enum pando_status
store_bulk_load_co(struct store_table *table, engine_feed_fn next, void *context, unsigned fill);
PANDO_MUST_CHECK enum pando_status store_verify_co(struct store_table *table,
                                                   struct engine_census *out, char *error,
                                                   size_t error_bytes);
/* Engines whose processes own keys: over the other ones that have the table open. */
PANDO_MUST_CHECK enum pando_status store_spread_co(struct store_table *table, unsigned *processes);

/* Staged values (engine.h). One belongs to the membership in which it was opened: after that
 * TIMEOUT, and nothing was changed. The key's bytes are copied. `inside`: the caller is a load's
 * feed, for that load's table. */
struct store_stage;
PANDO_MUST_CHECK enum pando_status store_stage_open_co(struct store_table *table, struct slice key,
                                                       uint64_t size, bool inside,
                                                       struct store_stage **out);
PANDO_MUST_CHECK enum pando_status store_stage_add_co(struct store_stage *stage,
                                                      struct slice bytes);
/* Whoever reads the value by its reference does so before it is closed. */
PANDO_MUST_CHECK enum pando_status store_stage_seal_co(struct store_stage *stage, struct slice head,
                                                       uint64_t *reference);
/* Frees what nobody took. NULL is fine. */
void store_stage_close_co(struct store_stage *stage);
/* The same for one that a load is fed: it is the load's. */
void store_stage_hand_over_co(struct store_stage *stage);

/* What the key is to be for a change of it. */
struct store_swap {
    enum {
        STORE_EXPECT_NOTHING,
        STORE_EXPECT_ABSENT,
        STORE_EXPECT_VALUE,    /* a short one: these bytes */
        STORE_EXPECT_REFERENCE /* a value that store_part_co told the reference of */
    } expect;
    struct slice expected;       /* VALUE */
    uint64_t expected_reference; /* REFERENCE */
    enum store_put mode;         /* of a put: what to do if the key is absent or there */
};

/* Puts the value under the key that the stage was opened for. STALE: the key is not as expected, and
 * nothing was changed. EXISTS, NOT_FOUND: as the mode has it. */
PANDO_MUST_CHECK enum pando_status store_stage_swap_co(struct store_stage *stage,
                                                       const struct store_swap *swap);

/* The same without a staged value: removes the key, if it is as expected. */
PANDO_MUST_CHECK enum pando_status store_remove_co(struct store_table *table, struct slice key,
                                                   const struct store_swap *swap);

/* ---- statistics ------------------------------------------------------------------------------ */

/* Of this thread, since it was opened. */
void store_counters(const struct store_thread *thread, struct fabric_counters out[FABRIC_TARGETS]);

/* Of the process. */
struct store_stats {
    uint64_t cache_hits, cache_misses, cache_bytes, cache_entries;
    uint64_t rereads; /* nodes read again because they were torn or stale */
    uint64_t splits, merges, repairs;
    uint64_t damage; /* operations that met damage: they returned CORRUPT */
    uint64_t lock_waits, handovers;
    uint64_t forwarded;              /* operations that another process did for this one */
    uint64_t moves;                  /* of keys to another owner, and from one that had died */
    uint64_t offloaded;              /* operations that a memory node did */
    uint64_t checkpoints, log_waits; /* of a log, and operations that had to wait for one */
};
void store_table_stats(const struct store_table *table, struct store_stats *out);
void store_stats_add(struct store_stats *sum, const struct store_stats *more);

#endif
