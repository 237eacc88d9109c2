/*
 * lmdb_side.h - LMDB as fast as it goes: on a file system in memory, without syncs, written through
 * its mapping, keys as numbers of the machine, one reader that stays. Calls block: not on a task.
 */
#ifndef VS_LMDB_LMDB_SIDE_H
#define VS_LMDB_LMDB_SIDE_H

#include "work.h"

struct lmdb_side;

/* A new database in `directory`, already removed from there: nothing is left whatever happens. False
 * with *error set, as one line. */
bool lmdb_side_open(const char *directory, uint64_t records, struct lmdb_side **out, char *error,
                    size_t error_bytes);
void lmdb_side_close(struct lmdb_side *side);

/* Fills it in rising order; *done is raised meanwhile. */
bool lmdb_side_load(struct lmdb_side *side, uint64_t records, uint64_t *done, char *error,
                    size_t error_bytes);

/* A round of search, scan or update. */
void lmdb_side_run(struct lmdb_side *side, const struct work_round *round,
                   struct work_result *result);

/* Of all pairs: how many, and as the sum their fingerprint. */
void lmdb_side_census(struct lmdb_side *side, struct work_result *result);

const char *lmdb_side_version(void);

#endif
