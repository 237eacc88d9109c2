/*
 * work.h - what is measured: the same records, and in every round the same operations on the same
 * random keys, for both sides of a comparison.
 *
 * Record i has the key ((i + 1) << 32) + 32 random bits, so that keys rise but are not dense, and a
 * value that follows from i. Nobody has to remember them to know what a search or a scan must find.
 */
#ifndef VS_LMDB_WORK_H
#define VS_LMDB_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/prng.h"

enum {
    WORK_SCAN_PAIRS = 100,
    WORK_COMMIT_UPDATES = 100, /* of LMDB in a transaction, of the engine in a batch */
    WORK_IN_FLIGHT = 16,       /* lookups of a batch that overlap */
    WORK_ERROR_BYTES = 256,
    WORK_RECORDS_MAX = 1 << 30,
};

enum work_job { WORK_SEARCH, WORK_SCAN, WORK_UPDATE, WORK_BATCH, WORK_JOBS };

static inline uint64_t work_key(uint64_t record)
{
    return ((record + 1) << 32) | (uint32_t)hash_u64(record + 1);
}

static inline uint64_t work_value(uint64_t record)
{
    return hash_u64(~record);
}

/* What a round of updates writes. */
static inline uint64_t work_new_value(uint64_t key, uint64_t salt)
{
    return hash_u64(key ^ salt);
}

/* One pair's part in the fingerprint of a whole table; the order does not matter. */
static inline uint64_t work_fingerprint(uint64_t key, uint64_t value)
{
    return hash_u64(key * 3 + hash_u64(value));
}

/* The operations of one round. */
struct work_round {
    enum work_job job;
    const uint64_t *keys;
    size_t count;
    uint64_t salt;  /* of updates */
    uint64_t pairs; /* that must be found */
    uint64_t sum;   /* of their values; searches and scans */
};

/* What a side made of it. */
struct work_result {
    uint64_t ns, pairs, sum;
    char error[WORK_ERROR_BYTES]; /* "" if there is none */
};

/* Draws a round; the keys go to `keys`, which has room for count. */
void work_round_draw(struct work_round *round, enum work_job job, struct prng *prng,
                     uint64_t records, uint64_t *keys, size_t count);

/* Of a table that was loaded and not changed. */
uint64_t work_fingerprint_loaded(uint64_t records);

/* False, with result->error set, if the side found something else than is there. */
bool work_result_check(const struct work_round *round, struct work_result *result,
                       const char *side);

#endif
