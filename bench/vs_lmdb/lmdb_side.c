#include "lmdb_side.h"

#include <errno.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"

enum { PATH_BYTES = 512, LOAD_COMMIT = 100000 };

struct lmdb_side {
    MDB_env *env;
    MDB_dbi table;
};

/* ---- opening --------------------------------------------------------------------------------- */

/* The open files live on; their names are not needed. */
static void remove_names(const char *path)
{
    static const char *const names[] = {"data.mdb", "lock.mdb"};
    char file[PATH_BYTES + 16];
    for (size_t i = 0; i < 2; i++) {
        snprintf(file, sizeof(file), "%s/%s", path, names[i]);
        (void)unlink(file);
    }
    (void)rmdir(path);
}

/* Room for twice what is loaded, and what updates copy. */
static size_t map_bytes(uint64_t records)
{
    return ((size_t)64 << 20) + records * 96;
}

static int open_env(struct lmdb_side *side, const char *path, uint64_t records)
{
    const unsigned flags = MDB_NORDAHEAD | MDB_NOSYNC | MDB_WRITEMAP | MDB_NOTLS;
    int rc = mdb_env_create(&side->env);
    if (rc == 0)
        rc = mdb_env_set_mapsize(side->env, map_bytes(records));
    if (rc == 0)
        rc = mdb_env_open(side->env, path, flags, 0600);
    return rc;
}

static int open_table(struct lmdb_side *side)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(side->env, NULL, 0, &txn);
    if (rc != 0)
        return rc;
    rc = mdb_dbi_open(txn, NULL, MDB_INTEGERKEY, &side->table);
    if (rc == 0)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

bool lmdb_side_open(const char *directory, uint64_t records, struct lmdb_side **out, char *error,
                    size_t error_bytes)
{
    struct lmdb_side *side = calloc(1, sizeof(*side));
    char path[PATH_BYTES];
    int used = snprintf(path, sizeof(path), "%s/pando-vs-lmdb-XXXXXX", directory);

    if (side == NULL || used < 0 || (size_t)used >= sizeof(path) || mkdtemp(path) == NULL) {
        snprintf(error, error_bytes,
                 "--lmdb-directory %.200s: cannot make a directory there: %s; name one on a tmpfs",
                 directory, strerror(errno));
        free(side);
        return false;
    }
    int rc = open_env(side, path, records);
    remove_names(path);
    if (rc == 0)
        rc = open_table(side);
    if (rc != 0) {
        snprintf(error, error_bytes, "LMDB: cannot open a database in %.200s: %s", directory,
                 mdb_strerror(rc));
        lmdb_side_close(side);
        return false;
    }
    *out = side;
    return true;
}

void lmdb_side_close(struct lmdb_side *side)
{
    if (side == NULL)
        return;
    if (side->env != NULL)
        mdb_env_close(side->env);
    free(side);
}

const char *lmdb_side_version(void)
{
    return mdb_version(NULL, NULL, NULL);
}

/* ---- loading --------------------------------------------------------------------------------- */

static MDB_val word_of(uint64_t *word)
{
    return (MDB_val){.mv_size = sizeof(*word), .mv_data = word};
}

/* Appending leaves full pages, which is what searches want. */
static int load_some(struct lmdb_side *side, uint64_t first, uint64_t end)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(side->env, NULL, 0, &txn);
    if (rc != 0)
        return rc;
    for (uint64_t i = first; i < end && rc == 0; i++) {
        uint64_t key_word = work_key(i), value_word = work_value(i);
        MDB_val key = word_of(&key_word), value = word_of(&value_word);
        rc = mdb_put(txn, side->table, &key, &value, MDB_APPEND);
    }
    if (rc == 0)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

bool lmdb_side_load(struct lmdb_side *side, uint64_t records, uint64_t *done, char *error,
                    size_t error_bytes)
{
    for (uint64_t first = 0; first < records; first += LOAD_COMMIT) {
        uint64_t end = first + LOAD_COMMIT < records ? first + LOAD_COMMIT : records;
        int rc = load_some(side, first, end);
        if (rc != 0) {
            snprintf(error, error_bytes, "LMDB: loading: %s", mdb_strerror(rc));
            return false;
        }
        __atomic_store_n(done, end, __ATOMIC_RELAXED);
    }
    return true;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static int search(struct lmdb_side *side, MDB_txn *txn, const struct work_round *round,
                  struct work_result *result)
{
    for (size_t i = 0; i < round->count; i++) {
        uint64_t key_word = round->keys[i], found;
        MDB_val key = word_of(&key_word), value;
        int rc = mdb_get(txn, side->table, &key, &value);
        if (rc == MDB_NOTFOUND)
            continue;
        if (rc != 0)
            return rc;
        memcpy(&found, value.mv_data, sizeof(found));
        result->sum += found;
        result->pairs++;
    }
    return 0;
}

/* One scan: a step down to the first pair, then along. */
static int scan_one(MDB_cursor *cursor, uint64_t key_word, struct work_result *result)
{
    MDB_val key = word_of(&key_word), value;
    int rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    for (int i = 0; rc == 0; i++) {
        uint64_t found;
        memcpy(&found, value.mv_data, sizeof(found));
        result->sum += found;
        result->pairs++;
        if (i + 1 == WORK_SCAN_PAIRS)
            return 0;
        rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int scan(struct lmdb_side *side, MDB_txn *txn, const struct work_round *round,
                struct work_result *result)
{
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, side->table, &cursor);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < round->count && rc == 0; i++)
        rc = scan_one(cursor, round->keys[i], result);
    mdb_cursor_close(cursor);
    return rc;
}

static int census(struct lmdb_side *side, MDB_txn *txn, const struct work_round *round,
                  struct work_result *result)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    uint64_t pair[2];
    int rc = mdb_cursor_open(txn, side->table, &cursor);
    (void)round;
    if (rc != 0)
        return rc;
    while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        memcpy(&pair[0], key.mv_data, 8);
        memcpy(&pair[1], value.mv_data, 8);
        result->sum += work_fingerprint(pair[0], pair[1]);
        result->pairs++;
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Runs fn in one read transaction. */
static int reading(struct lmdb_side *side,
                   int (*fn)(struct lmdb_side *, MDB_txn *, const struct work_round *,
                             struct work_result *),
                   const struct work_round *round, struct work_result *result)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(side->env, NULL, MDB_RDONLY, &txn);
    if (rc != 0)
        return rc;
    rc = fn(side, txn, round, result);
    mdb_txn_abort(txn);
    return rc;
}

static int update_some(struct lmdb_side *side, const struct work_round *round, size_t first,
                       size_t end)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(side->env, NULL, 0, &txn);
    if (rc != 0)
        return rc;
    for (size_t i = first; i < end && rc == 0; i++) {
        uint64_t key_word = round->keys[i], value_word = work_new_value(key_word, round->salt);
        MDB_val key = word_of(&key_word), value = word_of(&value_word);
        rc = mdb_put(txn, side->table, &key, &value, 0);
    }
    if (rc == 0)
        return mdb_txn_commit(txn);
    mdb_txn_abort(txn);
    return rc;
}

static int update(struct lmdb_side *side, const struct work_round *round,
                  struct work_result *result)
{
    for (size_t first = 0; first < round->count; first += WORK_COMMIT_UPDATES) {
        size_t end = first + WORK_COMMIT_UPDATES;
        end = end < round->count ? end : round->count;
        int rc = update_some(side, round, first, end);
        if (rc != 0)
            return rc;
        result->pairs += end - first;
    }
    return 0;
}

static void finish(struct work_result *result, uint64_t begin_ns, int rc)
{
    result->ns = rt_machine_ns() - begin_ns;
    if (rc != 0)
        snprintf(result->error, sizeof(result->error), "LMDB: %s", mdb_strerror(rc));
}

void lmdb_side_run(struct lmdb_side *side, const struct work_round *round,
                   struct work_result *result)
{
    uint64_t begin_ns = rt_machine_ns();
    int rc;
    *result = (struct work_result){0};
    if (round->job == WORK_UPDATE)
        rc = update(side, round, result);
    else
        rc = reading(side, round->job == WORK_SCAN ? scan : search, round, result);
    finish(result, begin_ns, rc);
}

void lmdb_side_census(struct lmdb_side *side, struct work_result *result)
{
    uint64_t begin_ns = rt_machine_ns();
    *result = (struct work_result){0};
    finish(result, begin_ns, reading(side, census, NULL, result));
}
