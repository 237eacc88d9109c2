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
 * same time. Operations are those of engine.h, with its statuses; what they wrap:
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

struct store_options {
    struct env *env;
    struct fabric *fabric;
    const char *name;     /* for people, in `pando status` */
    uint64_t cache_bytes; /* of each table; 0: the engine's default */
    bool not_durable;     /* as struct engine_config has it */
    const char *without;  /* techniques to switch off; NULL: none */
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

/* What its memory is used for: pool_usage_free it. */
PANDO_MUST_CHECK enum pando_status store_usage_co(struct store_thread *thread, uint16_t node,
                                                  struct pool_usage *out);

/* ---- tables ---------------------------------------------------------------------------------- */

/* NULL for the default engine. Errors as one line for a person: EXISTS, INVALID, TOO_LARGE, FULL. */
PANDO_MUST_CHECK enum pando_status store_table_create_co(struct store_thread *thread,
                                                         const char *name, const char *engine,
                                                         const struct engine_shape *shape,
                                                         char *error, size_t error_bytes);

/* NOT_FOUND. The handle is counted: as many closes as opens. */
PANDO_MUST_CHECK enum pando_status store_table_open_co(struct store_thread *thread,
                                                       const char *name, struct store_table **out,
                                                       char *error, size_t error_bytes);
void store_table_close(struct store_table *table);

/* Everybody's handles are useless from then on, here and in other processes. NOT_FOUND. TIMEOUT: the
 * name is gone, but somebody still uses the table; its memory comes back when they do not. */
PANDO_MUST_CHECK enum pando_status store_table_drop_co(struct store_thread *thread,
                                                       const char *name);

/* Up to `capacity` of the pool's tables, and how many there are. */
struct store_table_info {
    uint64_t number;
    char name[POOL_NAME_MAX];
    char engine[POOL_ENGINE_NAME_MAX];
    uint32_t key_max, value_inline;
};
PANDO_MUST_CHECK enum pando_status store_table_list_co(struct store_thread *thread,
                                                       struct store_table_info *out,
                                                       unsigned capacity, unsigned *count);

/* Who owns how many ranges of its keys: as engine_owners_co. NOT_FOUND. */
PANDO_MUST_CHECK enum pando_status store_table_owners_co(struct store_thread *thread,
                                                         const char *name, struct engine_owner *out,
                                                         unsigned capacity, unsigned *count);

/* Whether it is known here that the table was dropped. */
bool store_table_dropped(const struct store_table *table);

/* The table's number: another table of the same name has another. */
uint64_t store_table_number(const struct store_table *table);

const struct engine_shape *store_table_shape(const struct store_table *table);

/* ---- operations (engine.h has their contracts) ----------------------------------------------- */

PANDO_MUST_CHECK enum pando_status store_get_co(struct store_table *table, struct slice key,
                                                void *value, size_t capacity, size_t *size);
PANDO_MUST_CHECK enum pando_status store_put_co(struct store_table *table, struct slice key,
                                                struct slice value, enum engine_put mode);
PANDO_MUST_CHECK enum pando_status store_delete_co(struct store_table *table, struct slice key);
PANDO_MUST_CHECK enum pando_status store_modify_co(struct store_table *table, struct slice key,
                                                   bool blind, engine_modify_fn fn, void *context);
PANDO_MUST_CHECK enum pando_status store_scan_co(struct store_table *table,
                                                 const struct engine_range *range,
                                                 engine_scan_fn fn, void *context);
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

/* ---- statistics ------------------------------------------------------------------------------ */

/* Of this thread, since it was opened. */
void store_counters(const struct store_thread *thread, struct fabric_counters out[FABRIC_TARGETS]);

/* Of the process. */
void store_table_stats(const struct store_table *table, struct engine_stats *out);

#endif
