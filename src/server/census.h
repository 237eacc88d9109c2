/*
 * census.h - how many keys the databases have, where they are, and how much memory the pool uses: found out by a
 * task of the first thread when somebody asks, for INFO and RANDOMKEY.
 *
 * Of a table some keys are remembered as marks, the same number of keys apart: so a random place among all keys
 * can be found, however these are spread. Both numbers and marks are as old as the last count.
 */
#ifndef SERVER_CENSUS_H
#define SERVER_CENSUS_H

#include "server/keyspace.h"

enum {
    CENSUS_MARKS = 16384, /* at most, of a table */
    CENSUS_APART = 64,    /* keys from one mark to the next, at least */
};

struct census_mark {
    uint32_t offset;
    uint16_t size;
};

/* Of one table. */
struct census_table {
    uint64_t keys, expiring;
    uint64_t ttl_ms; /* of all that expire, together */
    bool complete;   /* else a part was counted */
    unsigned apart;
    size_t mark_count, mark_capacity; /* mark n has n * apart keys before it */
    struct census_mark *marks;
    uint8_t *bytes; /* their keys */
    size_t used, capacity;
};

enum census_question { CENSUS_POOL, CENSUS_KEYS, CENSUS_QUESTIONS };

struct census {
    struct rt_latch latch;
    struct rt_waitq answer;
    struct rt_task *task; /* NULL: not running */
    _Atomic uint64_t asked[CENSUS_QUESTIONS], answered[CENSUS_QUESTIONS];
    struct census_table tables[SERVER_DATABASES][2];
    uint64_t counted_ns; /* when the last count ended; 0: never */
    uint64_t pool_bytes, pool_used_bytes;
    unsigned pool_nodes; /* that answered */
};

struct census *census_create(void); /* NULL: no memory */
void census_destroy(struct census *census);

/* On the first thread. */
void census_start(struct server_thread *thread);
void census_stop_co(struct server_thread *thread);

/* Asks for numbers of now, and waits for these, but no longer than that: then there are older ones. */
void census_ask_co(struct server *server, enum census_question question, uint64_t patience_ns);

/* Forgets what was counted of a database: its keys are being deleted. */
void census_forget(struct census *census, unsigned database);

/* How many keys a table had when all of them were counted last; 0: never, or forgotten. */
uint64_t census_keys_of(struct census *census, unsigned database, int which);

/* Counts of a database, both its tables. */
struct census_count {
    uint64_t keys, expiring, ttl_ms;
};
struct census_count census_count_of(struct census *census, unsigned database);

/* A random place among the keys of a table: a range of about `apart` keys, any of them as likely as any other
 * in it. False: there are no marks. */
struct census_place {
    uint8_t low[KEYSPACE_KEY_MAX], high[KEYSPACE_KEY_MAX];
    size_t low_size, high_size;
    bool no_high;
    unsigned apart;
};
bool census_place_of(struct census *census, unsigned database, int which, struct census_place *out);

#endif
