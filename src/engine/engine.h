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
struct memnode_place;

enum {
    ENGINE_KEY_MAX = 1024,
    ENGINE_STAGE_HEAD_MAX = 16, /* in front of a value of 512 MiB */
    ENGINE_VALUE_MAX = 512 * 1024 * 1024 + ENGINE_STAGE_HEAD_MAX,
    ENGINE_PART_USUAL =
        256 * 1024 - 48, /* parts of this size, one behind the other, are cheapest */
    ENGINE_SHORT_MAX = 16 * 1024 * 1024, /* see ENGINE_SHORT and ENGINE_SCAN_SHORT */
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
    const char *without;  /* techniques to switch off, separated by commas; NULL for none */
    const char *with;     /* techniques to switch on that are off unless they are named; likewise */
    uint64_t cache_bytes; /* 0: the engine's default */
    bool not_durable; /* what is acknowledged may be lost if this process dies, if that is faster */
    bool
        kept; /* the caller calls engine_maintain_co; otherwise a task of the engine's does, on the loop
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
 * does nothing, at no cost, and waits for no other member: calls that it makes go on in tasks that hold the session.
 * Not beside itself or the next two, nor engine_close_co. */
void engine_maintain_co(struct engine_table *table, struct pool_session *session);

/* For a table that is idle and about to be closed: gives back what this process has of it in the pool. Others
 * may use it meanwhile. Another status than OK: it still has that, and works on. */
PANDO_MUST_CHECK enum pando_status engine_release_co(struct engine_table *table,
                                                     struct pool_session *session);

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

/* A part of a value. */
struct engine_part {
    uint64_t offset; /* may be beyond the end */
    void *to;
    size_t capacity;
    /* In: 0, or a part of this very value is wanted, as an earlier call told. Out: which value it is; 0: a
     * short one, that lies with its key. A reference means one value of one key for ever. */
    uint64_t reference;
    uint64_t size; /* out: of the whole value */
    size_t got;    /* out: bytes that were stored */
};

/* Reads and checks what the part needs, and holds no more than 256 KiB beside it. With a reference the key is
 * not looked up again: a value that was replaced meanwhile can still be read for a while (the pool's grace
 * period); STALE: no longer. UNSUPPORTED: the engine has no parts. */
PANDO_MUST_CHECK enum pando_status engine_part_co(struct engine *engine, struct slice key,
                                                  struct engine_part *part);

/* What a read-modify-write decides. The value lives until the operation returns. */
struct engine_change {
    enum { ENGINE_KEEP, ENGINE_STORE, ENGINE_REMOVE } what;
    struct slice value;
};

/* `old` is NULL when the key is absent. May be called several times for one operation: only the
 * last call counts. Does not suspend. */
typedef struct engine_change (*engine_modify_fn)(void *context, const struct slice *old);

/* How a change is to be made: bits. */
enum {
    ENGINE_BLIND =
        1, /* the old value is not fetched if that costs a round trip: old has size 0 then */
    ENGINE_ANYWHERE =
        2, /* fn may be called on another thread while this one's task waits: engines only */
    ENGINE_SHORT = 4, /* an old value of more than ENGINE_SHORT_MAX bytes is not fetched: RANGE */
};

/* Conditional puts, counters and the like. */
PANDO_MUST_CHECK enum pando_status engine_modify_co(struct engine *engine, struct slice key,
                                                    unsigned how, engine_modify_fn fn,
                                                    void *context);

/*
 * A value that is written to the pool in pieces before its key is changed, with memory for 256 KiB of it:
 * open (its size but for the head is known), add the pieces, seal it with a head of up to
 * ENGINE_STAGE_HEAD_MAX bytes that goes in front, swap it in, close. It can be read by its reference when it
 * is sealed. Used by one task at a time, in the session that opened it.
 *
 * After a failure it can only be closed. FULL: the pool has no room for it.
 */
struct engine_stage;
PANDO_MUST_CHECK enum pando_status engine_stage_open_co(struct engine *engine, struct slice key,
                                                        uint64_t size, struct engine_stage **out);
PANDO_MUST_CHECK enum pando_status engine_stage_add_co(struct engine_stage *stage,
                                                       struct slice bytes);
PANDO_MUST_CHECK enum pando_status engine_stage_seal_co(struct engine_stage *stage,
                                                        struct slice head, uint64_t *reference);
/* FREE: nobody took it. TAKEN: a key refers to it, or may. LOST: the session is gone; nothing but memory is
 * freed. */
enum engine_stage_end { ENGINE_STAGE_FREE, ENGINE_STAGE_TAKEN, ENGINE_STAGE_LOST };
void engine_stage_close_co(struct engine_stage *stage, enum engine_stage_end end);

/* Puts a staged value, or removes a key, if the key is as expected. */
struct engine_swap {
    enum {
        ENGINE_EXPECT_NOTHING,
        ENGINE_EXPECT_ABSENT,
        ENGINE_EXPECT_VALUE,    /* a short one: these bytes */
        ENGINE_EXPECT_REFERENCE /* a value that engine_part_co told the reference of */
    } expect;
    struct slice expected;       /* VALUE */
    uint64_t expected_reference; /* REFERENCE */
    enum engine_put mode;        /* of a put: what to do if the key is absent or there */
    uint64_t staged;             /* the sealed value's reference; 0: the key is removed */
};

/* STALE: the key is not as expected, and nothing was changed. EXISTS, NOT_FOUND: as the mode has it; of a
 * removal NOT_FOUND. On OK and UNKNOWN the staged value is TAKEN. */
PANDO_MUST_CHECK enum pando_status engine_swap_co(struct engine *engine, struct slice key,
                                                  const struct engine_swap *swap);

struct engine_range {
    struct slice low, high; /* low <= key < high */
    bool no_high;           /* to the end */
    bool reverse;           /* from the high end down */
    uint64_t limit;         /* pairs at the most; 0: all */
    /* What is read of long values: all of them; their first bytes, without the check that only the whole
     * has, so that whoever acts on them reads the value again; or nothing, and they are empty; or all of those
     * of up to ENGINE_SHORT_MAX bytes, and of longer ones only the size, with data NULL; or the first bytes of
     * those that are stored in several pieces, and all of the others, everything checked. */
    enum {
        ENGINE_SCAN_VALUES,
        ENGINE_SCAN_GLANCE,
        ENGINE_SCAN_KEYS,
        ENGINE_SCAN_SHORT,
        ENGINE_SCAN_FRONTS
    } values;
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
    bool done;                /* whether there is a status: between engine_batch_co and batch_co */
};

/* Runs up to `width` of them at a time; each has its own status. */
void engine_batch_co(struct engine *engine, struct engine_batch_op *ops, size_t count,
                     unsigned width);

/* The next pair in rising order of keys; false at the end. The slices live until the next call. May suspend. A
 * value with data NULL and a size that is not 0 is a staged one, sealed and closed as TAKEN: the size is its
 * reference. It belongs to the load from then on. */
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

/* A technique that can be switched: a bool at that offset of the engine's own struct. Names that begin with
 * "break-" are for tests. One that is usually off is for comparisons and tests, and may only be right under
 * conditions that the engine states. */
struct engine_switch {
    const char *name;
    size_t offset;
    bool usually_off; /* named in `with` of struct engine_config; the others in `without` */
};

/* Blocks of one kind (of their tenure) that an engine allocates: what they are for, for counts of used memory.
 * No two engines have the same kind. Long values are blocks of room blob, whatever the engine. */
struct engine_block_kind {
    uint8_t kind;
    bool log;          /* owners' logs and maps; otherwise nodes of the tree */
    uint32_t level_at; /* offset in a node of its level, a byte that is 0 in leaves; 0: none */
};

/* What a memory node does for this engine, in the window, on a task of a loop that serves calls. Every request
 * begins with the engine's number, 2 bytes in the machine's order, by which a memory node finds the engine. */
struct engine_pushdown {
    uint16_t number; /* not 0 */
    enum pando_status (*run)(const struct memnode_place *place, struct fabric_request *request);
};

struct engine_ops {
    const char *name;
    const struct engine_block_kind *kinds;
    size_t kind_count;
    const struct engine_pushdown *pushdown; /* NULL: memory nodes do nothing for it */
    const struct engine_switch *switches;   /* what struct engine_config may name */
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
    /* May be NULL, all of them: no staged values, no parts. */
    enum pando_status (*part_co)(struct engine *engine, struct slice key, struct engine_part *part);
    enum pando_status (*stage_open_co)(struct engine *engine, struct slice key, uint64_t size,
                                       struct engine_stage **out);
    enum pando_status (*stage_add_co)(struct engine_stage *stage, struct slice bytes);
    enum pando_status (*stage_seal_co)(struct engine_stage *stage, struct slice head,
                                       uint64_t *reference);
    void (*stage_close_co)(struct engine_stage *stage, enum engine_stage_end end);
    enum pando_status (*swap_co)(struct engine *engine, struct slice key,
                                 const struct engine_swap *swap);
    enum pando_status (*scan_co)(struct engine *engine, const struct engine_range *range,
                                 engine_scan_fn fn, void *context);
    enum pando_status (*bulk_load_co)(struct engine *engine, engine_feed_fn next, void *context,
                                      unsigned fill);
    void (*stats)(const struct engine_table *table, struct engine_stats *out);
    enum pando_status (*verify_co)(struct engine *engine, struct engine_census *out, char *error,
                                   size_t error_bytes);
    /* May be NULL. Of a batch: does what it can do at once, and says which are done. */
    void (*batch_co)(struct engine *engine, struct engine_batch_op *ops, size_t count);
    enum pando_status (*move_co)(struct engine *engine, struct slice key, uint64_t choice);
    enum pando_status (*spread_co)(struct engine *engine, bool others, unsigned *processes);
    enum pando_status (*owners_co)(struct pool_session *session, unsigned slot, uint64_t table,
                                   struct engine_owner *out, unsigned capacity, unsigned *count);
    bool (*owns)(struct engine *engine, struct slice key);
    void (*maintain_co)(struct engine_table *table, struct pool_session *session);
    enum pando_status (*release_co)(struct engine_table *table, struct pool_session *session);
    enum pando_status (*retire_co)(struct engine_table *table, struct pool_session *session);
};

/* The get_co of an engine that reads parts: the first of them is what fits. */
enum pando_status engine_get_as_part_co(struct engine *engine, struct slice key, void *value,
                                        size_t capacity, size_t *size);

/* Whether a list of names, separated by commas, can be switched off, or on if `on`. INVALID: one cannot; error
 * says which, why, and which can. NULL is an empty list. The owner is for that message: "sherman". Does not
 * suspend. */
PANDO_MUST_CHECK enum pando_status engine_switches_check(const char *owner,
                                                         const struct engine_switch *switches,
                                                         size_t count, const char *list, bool on,
                                                         char *error, size_t error_bytes);

/* Checks both lists of the configuration, and sets all switches of an engine as they say. */
PANDO_MUST_CHECK enum pando_status engine_switches_parse(const struct engine_ops *ops, void *on,
                                                         const struct engine_config *config,
                                                         char *error, size_t error_bytes);

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

struct engine_stage {
    const struct engine_ops *ops;
};

/* Sizes that make sense, with node_bytes chosen: INVALID or TOO_LARGE otherwise. */
PANDO_MUST_CHECK enum pando_status engine_shape_check(struct engine_shape *shape);

#endif
