/*
 * workload.h - what a benchmark does: which operations, in which shares, on which keys.
 *
 * The key space is a row of *positions*. A key is a position and a serial number below it, 48 and 16
 * bits, big endian, then zeroes up to its size: positions that are neighbours are neighbours in the
 * table, and between any two there is room for 65,535 more keys.
 *
 *   position        0        1        2        3   ...
 *   serial 0        loaded   loaded   (*)      loaded      the records
 *   serial 1 ..     keys that `insert` makes, spread over all positions, each once
 *
 * (*) In the mixes of the papers every third position is not loaded: two thirds of the "inserts" hit
 * a key that is there, the others make one, once. Which position is popular is scrambled: the n-th
 * most popular one lies anywhere, so popular keys do not share leaves by construction.
 *
 * Pure: no clock, no I/O, no allocation.
 */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"

enum workload_kind {
    WORKLOAD_READ,
    WORKLOAD_UPDATE, /* of a key that is there */
    WORKLOAD_INSERT, /* of a key that is not */
    WORKLOAD_UPSERT, /* the papers' insert: two thirds are updates */
    WORKLOAD_MODIFY, /* read-modify-write */
    WORKLOAD_DELETE,
    WORKLOAD_SCAN,
    WORKLOAD_LOCK, /* no operation of an engine: takes a lock and releases it */
    WORKLOAD_KINDS
};

const char *workload_kind_name(enum workload_kind kind);
bool workload_kind_writes(enum workload_kind kind);

enum workload_dist_kind { WORKLOAD_UNIFORM, WORKLOAD_ZIPF, WORKLOAD_LATEST };

struct workload_dist {
    enum workload_dist_kind kind;
    double theta; /* of zipf, and of latest: how near to the newest */
};

struct workload {
    const char *name;
    const char *about;
    uint8_t percent[WORKLOAD_KINDS]; /* adds up to 100 */
    const char *dist;                /* the usual one */
    bool sparse;                     /* every third position is not loaded */
    bool split;                      /* half of the threads scan, the other half does the rest */
    bool fill;                       /* begins with an empty table and ends when it is full */
};

/* NULL for an unknown name. */
const struct workload *workload_find(const char *name);

/* The i-th, NULL after the last. */
const struct workload *workload_at(size_t index);

/* "uniform", "zipf:0.99", "latest"; false for anything else. */
bool workload_dist_parse(const char *text, struct workload_dist *out);

/* ---- distributions --------------------------------------------------------------------------- */

/* Zipf over 0 .. n-1 by rejection-inversion (Hörmann and Derflinger 1996): no table, any exponent
 * above 0, about 1.1 draws. */
struct zipf {
    double theta, n;
    double h_first, h_last, accept;
};
void zipf_init(struct zipf *zipf, double theta, uint64_t n);
uint64_t zipf_next(const struct zipf *zipf, struct prng *prng);

/* A permutation of 0 .. n-1: a small Feistel network, walked until it lands inside. */
struct scramble {
    uint64_t n;
    unsigned half_bits;
};
void scramble_init(struct scramble *scramble, uint64_t n);
uint64_t scramble_of(const struct scramble *scramble, uint64_t index);

/* ---- keys ------------------------------------------------------------------------------------ */

enum { WORKLOAD_KEY_MIN = 8, WORKLOAD_SERIAL_BITS = 16 };

struct workload_space {
    uint64_t records;   /* loaded */
    uint64_t positions; /* records, or half as many more */
    bool sparse;
    struct scramble scramble;
};
void workload_space_init(struct workload_space *space, const struct workload *workload,
                         uint64_t records);

/* The position of the i-th record in the order of keys. */
uint64_t workload_loaded_position(const struct workload_space *space, uint64_t record);

/* Writes `size` bytes, at least WORKLOAD_KEY_MIN. */
void workload_key(uint64_t position, uint64_t serial, void *out, size_t size);

/* ---- operations ------------------------------------------------------------------------------ */

struct workload_op {
    enum workload_kind kind;
    uint64_t position, serial;
    bool none; /* no key was found that the client wants: do nothing, and draw again later */
};

/* Whether a client is the one to work on a key. */
typedef bool (*workload_wants_fn)(void *context, uint64_t position, uint64_t serial);

/* One client's stream. Clients that share a run have different numbers below `clients`: they insert
 * and delete different keys. */
struct workload_client {
    const struct workload *workload;
    const struct workload_space *space;
    struct workload_dist dist;
    struct zipf zipf;
    struct prng prng;
    uint64_t number, clients;
    uint64_t inserted, deleted;
    workload_wants_fn wants; /* NULL: all; others are skipped, kinds keep their shares */
    void *wants_context;
};
void workload_client_init(struct workload_client *client, const struct workload *workload,
                          const struct workload_space *space, struct workload_dist dist,
                          uint64_t number, uint64_t clients, uint64_t seed);

/* False: nothing is left to do (every key was deleted, or the table is full). Keys that the client does
 * not want are passed over, also those that it would have inserted or deleted. */
bool workload_next(struct workload_client *client, struct workload_op *out);

#endif
