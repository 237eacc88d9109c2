/*
 * keyspace.h - the numbered databases as tables of the pool, and what every command on a key does:
 * look, look and change, report.
 *
 * Database n is two tables, "db<n>" for keys of up to KEYSPACE_SHORT_MAX bytes and "db<n>.long" for
 * longer ones. Whoever wants them in order merges the two.
 */
#ifndef SERVER_KEYSPACE_H
#define SERVER_KEYSPACE_H

#include "server/net/client.h"
#include "server/value.h"

enum {
    KEYSPACE_SHORT_MAX = 96,
    KEYSPACE_KEY_MAX = STORE_KEY_MAX,
};

/* Opens a database on this thread, and creates it in the pool if it is not there. */
PANDO_MUST_CHECK enum pando_status keyspace_open_co(struct server_thread *thread, unsigned number,
                                                    char *error, size_t error_bytes);

/* Opens what of it is in the pool; NOT_FOUND: not all of it is. */
PANDO_MUST_CHECK enum pando_status keyspace_find_co(struct server_thread *thread, unsigned number);

/* Opens a database for a client, who has it created if he may write. What is not there for one who may not
 * stays NULL on the thread, and is as good as empty to commands that read. */
PANDO_MUST_CHECK enum pando_status keyspace_open_for_co(const struct client *client,
                                                        unsigned number);

/* Whether the client's database is open on its thread. It may not be for one who only reads, or who only
 * read when he chose it. */
static inline bool keyspace_is_open(const struct client *client)
{
    const struct database *database = &client->thread->databases[client->database];
    return database->tables[0] != NULL && database->tables[1] != NULL;
}

/* Makes databases anew whose tables somebody dropped with other means. Now and then. */
void keyspace_refresh_co(struct server_thread *thread);

/* NULL: keyspace_open_for_co has the reason. */
static inline struct store_table *keyspace_table(const struct command_call *call, struct slice key)
{
    return call->thread->databases[call->client->database].tables[key.size > KEYSPACE_SHORT_MAX];
}

/* Says what went wrong in the words of Redis, or clear ones. */
void reply_failure(struct reply *reply, enum pando_status status);

/* The same for a command on several keys, of which `changed` were changed before it failed. */
void reply_failure_after(struct reply *reply, enum pando_status status, uint64_t changed);

/* For a command of many steps, before each of them. AGAIN: the server is ending, and the client may not hear
 * of what is done from now on. */
PANDO_MUST_CHECK enum pando_status may_go_on(const struct server_thread *thread);

/* What a command on several keys says if it failed in several ways: that it cannot tell, if it cannot. */
static inline enum pando_status failure_of(enum pando_status former, enum pando_status status)
{
    return former == PANDO_OK || status == PANDO_UNKNOWN ? status : former;
}

/* ---- looking --------------------------------------------------------------------------------- */

static inline bool value_expired(const struct value *value)
{
    return value->expire_ms != 0 && value->expire_ms <= rt_wall_ms();
}

/* Size and expiry of a value; the table may be NULL. False: it is not there, or that was not to be found out, and *status
 * says which. */
struct glance {
    uint64_t expire_ms; /* 0: never */
    size_t size;
};
bool keyspace_glance_co(struct store_table *table, struct slice key, struct glance *out,
                        enum pando_status *status);

/* ---- changing -------------------------------------------------------------------------------- */

/* One read-modify-write: embedded as the first member in what a command adds to it. */
struct edit {
    struct command_call *call;
    struct slice key;
    size_t mark;              /* of the reply: a change may be tried several times */
    bool found;               /* the key is there and has not expired */
    enum pando_status status; /* what the callback could not do; nothing is stored then */
    struct value old;         /* during the callback, if found */
    uint8_t *memory;          /* of a value being built; freed by edit_end */
    size_t memory_size;
    struct store_change (*change)(struct edit *edit);
    /* What to do with a value, old or new, of more than BUFFERED_BYTES; STALE: again. NULL: an error. */
    enum pando_status (*long_co)(struct edit *edit);
};

/* Runs edit->change on the key. False: it failed, and that was replied. */
bool edit_run_co(struct edit *edit, struct command_call *call, struct slice key,
                 struct store_change (*change)(struct edit *edit));

/* Tries edit->long_co a few times; the key fits, and call, key and mark are set. */
PANDO_MUST_CHECK enum pando_status edit_long_co(struct edit *edit);

/* True: the status is OK. False: it was replied what went wrong. */
bool edit_finish(struct edit *edit, enum pando_status status);

/* A stored value of `size` bytes for the callback to fill, preceded by its header; NULL: no memory or
 * too large, which is remembered. The first byte decides about the header: give it. */
uint8_t *edit_build(struct edit *edit, size_t size, uint8_t first, uint64_t expire_ms);

/* The change that stores what was built, or these bytes. */
struct store_change edit_store_built(struct edit *edit);
struct store_change edit_store(struct edit *edit, struct slice data, uint64_t expire_ms);
static inline struct store_change edit_keep(void)
{
    return (struct store_change){.what = STORE_KEEP};
}
static inline struct store_change edit_remove(void)
{
    return (struct store_change){.what = STORE_REMOVE};
}

/* ---- words that mean something --------------------------------------------------------------- */

/* False: the error was replied. */
bool call_integer(struct command_call *call, size_t index, int64_t *out);
bool call_database(struct command_call *call, size_t index, unsigned *out);
bool call_key_fits(struct command_call *call, struct slice key);

/* ---- values as they are stored --------------------------------------------------------------- */

/* A value with the header that it needs in front: where it lies if that is none, else a copy. */
struct value_stored {
    struct slice bytes; /* live until value_store_end, and as long as the data */
    uint8_t *copy;      /* NULL: there is none, or it is in `small` */
    uint8_t small[512];
};

/* TOO_LARGE, NO_MEMORY; value_store_end is to be called in any case. */
PANDO_MUST_CHECK enum pando_status value_store_begin(struct value_stored *stored, struct slice data,
                                                     uint64_t expire_ms);
void value_store_end(struct value_stored *stored);

#endif
