/*
 * engine.h - what every engine implements: an ordered map from byte strings to byte strings in a
 * pool.
 *
 * A process opens a table once (struct engine_table: shared caches and local locks); each of its
 * threads attaches to it (struct engine). Many tasks of that thread may use the handle at the same
 * time, and their operations overlap.
 *
 * Every write of a key is atomic against every other write of that key, and a get returns the value
 * of a write that was the last at some moment between its call and its return. A scan is not a
 * snapshot: it returns every pair that was there throughout, none that was not there at any time,
 * and keys in order, each once.
 *
 * Statuses: NOT_FOUND, EXISTS, FULL, TOO_LARGE say what they say. TIMEOUT, BROKEN: could not be
 * done now; nothing was changed unless it says UNKNOWN, which means that it may have been. FENCED:
 * this member was declared dead.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "pando/pando.h"
#include "pool/pool.h"

struct engine;
struct engine_table;
struct engine_ops;

enum {
    ENGINE_KEY_MAX = 1024,
    ENGINE_VALUE_MAX = 16 * 1024 * 1024,
};

/* How a table is laid out; fixed when it is created. */
struct engine_shape {
    uint32_t key_size;   /* all keys have this size; 0: any up to key_max */
    uint32_t value_size; /* all values have this size; 0: any */
    uint32_t key_max;
    uint32_t value_inline; /* longer values go to blobs; the limit of value_size when that is set */
    uint32_t node_bytes;   /* 0: chosen for the sizes */
};

/* How this process uses it. */
struct engine_config {
    const char *without;  /* comma-separated techniques to switch off; NULL for none */
    uint64_t cache_bytes; /* 0: the engine's default */
    bool not_durable; /* what is acknowledged may be lost if this process dies, if that is faster */
    bool
        kept; /* the caller calls engine_keep_co; otherwise a task of the engine's does, on the loop
                * that opens the table, in the session that does: both are there until it is closed */
};

/* ---- tables ---------------------------------------------------------------------------------- */

/* An empty table. EXISTS: there is one of that name. INVALID, TOO_LARGE: as engine_shape_check says. */
PANDO_MUST_CHECK enum pando_status engine_create_co(const struct engine_ops *ops,
                                                    struct pool_session *session, const char *name,
                                                    const struct engine_shape *shape);

/* INVALID: an unknown technique, or a table of another engine; error says which, as one line. */
PANDO_MUST_CHECK enum pando_status engine_open_co(const struct engine_ops *ops,
                                                  struct pool_session *session, const char *name,
                                                  const struct engine_config *config,
                                                  struct engine_table **out, char *error,
                                                  size_t error_bytes);
/* Every thread has detached. */
void engine_close_co(struct engine_table *table, struct pool_session *session);

/* What a process that has a table open owes to the others: to be called a few times per lease. Mostly
 * does nothing, at no cost. Not beside itself or the next two, nor engine_close_co. */
void engine_keep_co(struct engine_table *table, struct pool_session *session);

/* For a table that somebody drops: writes what this process has of it to the pool, and touches nothing
 * there ever after, also when it is closed. No operation of ours is under way, and none will begin. Any
 * other status than OK: to be called again. */
PANDO_MUST_CHECK enum pando_status engine_retire_co(struct engine_table *table,
                                                    struct pool_session *session);

/* Frees all that the table holds and its name. Nobody uses it. */
PANDO_MUST_CHECK enum pando_status engine_drop_co(struct engine_table *table,
                                                  struct pool_session *session);

const struct engine_shape *engine_table_shape(const struct engine_table *table);

PANDO_MUST_CHECK enum pando_status
engine_attach_co(struct engine_table *table, struct pool_session *session, struct engine **out);
void engine_detach_co(struct engine *engine);

/* ---- operations ------------------------------------------------------------------------------ */

/* Up to `capacity` bytes of the value are stored, and its whole size told. */
PANDO_MUST_CHECK enum pando_status engine_get_co(struct engine *engine, struct slice key,
                                                 void *value, size_t capacity, size_t *size);

enum engine_put { ENGINE_UPSERT, ENGINE_INSERT /* EXISTS */, ENGINE_UPDATE /* NOT_FOUND */ };
PANDO_MUST_CHECK enum pando_status engine_put_co(struct engine *engine, struct slice key,
                                                 struct slice value, enum engine_put mode);
PANDO_MUST_CHECK enum pando_status engine_delete_co(struct engine *engine, struct slice key);

/* What a read-modify-write decides. The value lives until the operation returns. */
struct engine_change {
    enum { ENGINE_KEEP, ENGINE_STORE, ENGINE_REMOVE } what;
    struct slice value;
};

/* `old` is NULL when the key is absent. May be called several times for one operation: only the
 * last call counts. Does not suspend. */
typedef struct engine_change (*engine_modify_fn)(void *context, const struct slice *old);

/* Conditional puts, counters and the like. With `blind` the old value is not fetched if that would
 * cost a round trip: old then has size 0 for a key that is there. */
PANDO_MUST_CHECK enum pando_status engine_modify_co(struct engine *engine, struct slice key,
                                                    bool blind, engine_modify_fn fn, void *context);

struct engine_range {
    struct slice low, high; /* low <= key < high */
    bool no_high;           /* to the end */
    bool reverse;           /* from the high end down */
    uint64_t limit;         /* pairs at the most; 0: all */
    /* What is read of long values: all of them; their first bytes, without the check that only the whole
     * has, so that whoever acts on them reads the value again; or nothing, and they are empty. */
    enum { ENGINE_SCAN_VALUES, ENGINE_SCAN_GLANCE, ENGINE_SCAN_KEYS } values;
};

/* False stops the scan. The slices live until it returns. Does not suspend. */
typedef bool (*engine_scan_fn)(void *context, struct slice key, struct slice value);
PANDO_MUST_CHECK enum pando_status engine_scan_co(struct engine *engine,
                                                  const struct engine_range *range,
                                                  engine_scan_fn fn, void *context);

/* One of many gets or puts that overlap. */
struct engine_batch_op {
    enum { ENGINE_BATCH_GET, ENGINE_BATCH_PUT, ENGINE_BATCH_DELETE } kind;
    struct slice key;
    struct slice value; /* of a put */
    void *buffer;       /* of a get */
    size_t capacity, size;
    enum pando_status status; /* out */
};

/* Runs up to `width` of them at a time; each has its own status. */
void engine_batch_co(struct engine *engine, struct engine_batch_op *ops, size_t count,
                     unsigned width);

/* The next pair in rising order of keys; false at the end. The slices live until the next call. */
typedef bool (*engine_feed_fn)(void *context, struct slice *key, struct slice *value);

/* Fills an empty table bottom-up; fill is the share of a node that is used, in per cent. INVALID:
 * keys not rising. EXISTS: the table is not empty. Nobody else uses it meanwhile. */
PANDO_MUST_CHECK enum pando_status engine_bulk_load_co(struct engine *engine, engine_feed_fn next,
                                                       void *context, unsigned fill);

/* ---- who works on what ----------------------------------------------------------------------- */

/* Engines whose processes own ranges of keys; others do nothing and say OK. */

/* Makes another process that has the table open the owner of some keys from this one on: which of them
 * is up to `choice`, any number. */
PANDO_MUST_CHECK enum pando_status engine_move_co(struct engine *engine, struct slice key,
                                                  uint64_t choice);

/* Spreads all keys over the processes that have the table open, about evenly; with `others` over the
 * others only. Tells how many there are: 0 means that nothing was done. */
PANDO_MUST_CHECK enum pando_status engine_spread_co(struct engine *engine, bool others,
                                                    unsigned *processes);

/* Who owns how many ranges of a table's keys, as the pool says: the table need not be open. The slot and the
 * number are the directory's. Up to `capacity` owners, and how many there are: 0 for engines without. */
struct engine_owner {
    struct fabric_identity member; /* member 0: nobody, until somebody needs these keys */
    uint32_t ranges;
};
PANDO_MUST_CHECK enum pando_status engine_owners_co(const struct engine_ops *ops,
                                                    struct pool_session *session, unsigned slot,
                                                    uint64_t table, struct engine_owner *out,
                                                    unsigned capacity, unsigned *count);

/* Whether keys have owners at all. */
bool engine_has_owners(const struct engine_ops *ops);

/* Whether this process is the owner of a key, as far as it knows: operations on it are not forwarded.
 * True for engines without owners. Does not suspend. */
bool engine_owns(struct engine *engine, struct slice key);

/* ---- statistics and checking ----------------------------------------------------------------- */

struct engine_stats {
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

void engine_stats_add(struct engine_stats *sum, const struct engine_stats *more);

/* Sums over the process. */
void engine_stats(const struct engine_table *table, struct engine_stats *out);

/* Walks the whole table and checks its structure and every value. Others may write meanwhile: what
 * is only a change under way is not reported, and the census is then not of one moment. CORRUPT, and
 * as many lines as fit that say what is damaged and where; after a few it gives up looking for more.
 */
struct engine_census {
    uint64_t nodes, leaves, pairs, bytes;
    uint64_t damaged; /* places; what lies behind them was not looked at */
    uint64_t
        unsettled; /* places that changed at every look until it gave up: nothing is said of them */
};
PANDO_MUST_CHECK enum pando_status
engine_verify_co(struct engine *engine, struct engine_census *out, char *error, size_t error_bytes);

/* ---- implementing one ------------------------------------------------------------------------ */

/* How a change is to be made: bits. */
enum {
    ENGINE_BLIND = 1,    /* the old value is not fetched if that costs a round trip */
    ENGINE_ANYWHERE = 2, /* fn may be called on another thread while this one's task waits */
};

/* A technique that can be switched off: a bool at that offset of the engine's own struct. Names that
 * begin with "break-" are for tests. One whose name begins with "+" is off, and naming it switches it
 * on: for comparisons, and only right under conditions that the engine states. */
struct engine_switch {
    const char *name;
    size_t offset;
};

struct engine_ops {
    const char *name;
    const struct engine_switch *switches; /* all that `without` of struct engine_config may name */
    size_t switch_count;
    enum pando_status (*create_co)(struct pool_session *session, const char *name,
                                   const struct engine_shape *shape);
    enum pando_status (*open_co)(struct pool_session *session, const char *name,
                                 const struct engine_config *config, struct engine_table **out,
                                 char *error, size_t error_bytes);
    void (*close_co)(struct engine_table *table, struct pool_session *session);
    enum pando_status (*drop_co)(struct engine_table *table, struct pool_session *session);
    enum pando_status (*attach_co)(struct engine_table *table, struct pool_session *session,
                                   struct engine **out);
    void (*detach_co)(struct engine *engine);
    enum pando_status (*get_co)(struct engine *engine, struct slice key, void *value,
                                size_t capacity, size_t *size);
    enum pando_status (*modify_co)(struct engine *engine, struct slice key, unsigned how,
                                   engine_modify_fn fn, void *context);
    enum pando_status (*scan_co)(struct engine *engine, const struct engine_range *range,
                                 engine_scan_fn fn, void *context);
    enum pando_status (*bulk_load_co)(struct engine *engine, engine_feed_fn next, void *context,
                                      unsigned fill);
    void (*stats)(const struct engine_table *table, struct engine_stats *out);
    enum pando_status (*verify_co)(struct engine *engine, struct engine_census *out, char *error,
                                   size_t error_bytes);
    /* May be NULL. Of a batch: does what it can do at once, and leaves the others' status AGAIN. */
    void (*batch_co)(struct engine *engine, struct engine_batch_op *ops, size_t count);
    enum pando_status (*move_co)(struct engine *engine, struct slice key, uint64_t choice);
    enum pando_status (*spread_co)(struct engine *engine, bool others, unsigned *processes);
    enum pando_status (*owners_co)(struct pool_session *session, unsigned slot, uint64_t table,
                                   struct engine_owner *out, unsigned capacity, unsigned *count);
    bool (*owns)(struct engine *engine, struct slice key);
    void (*keep_co)(struct engine_table *table, struct pool_session *session);
    enum pando_status (*retire_co)(struct engine_table *table, struct pool_session *session);
};

/* Whether all that the comma-separated list names is there. INVALID: one is not; error says which, and
 * which there are. The owner is for that message: "sherman". Does not suspend. */
PANDO_MUST_CHECK enum pando_status engine_switches_check(const char *owner,
                                                         const struct engine_switch *switches,
                                                         size_t count, const char *without,
                                                         char *error, size_t error_bytes);

/* The same of an engine's; then all are on but those that are named, and "+" the other way round. */
PANDO_MUST_CHECK enum pando_status engine_switches_parse(const struct engine_ops *ops, void *on,
                                                         const char *without, char *error,
                                                         size_t error_bytes);

/* First members of every engine's own structs. */
struct engine_table {
    const struct engine_ops *ops;
    struct engine_shape shape;
};

struct engine {
    const struct engine_ops *ops;
    struct engine_table *table;
    struct pool_session *session;
};

/* Sizes that make sense, with node_bytes chosen: INVALID or TOO_LARGE otherwise. */
PANDO_MUST_CHECK enum pando_status engine_shape_check(struct engine_shape *shape);

#endif
