/*
 * log.h - the redo log of one owner and table: what it has changed in its cache and not yet written
 * back to the tree (rules log-results, log-before-page, truncate-after-write-back).
 *
 * A log is endless, and addressed by byte positions that only rise:
 *
 *       begin          durable                 end
 *         |  in the pool  |  in this process    |
 *   ------+---------------+---------------------+--> positions
 *   forgotten                                     room until begin + capacity
 *
 * dex_log_append moves the end, dex_log_wait_co what is durable, dex_log_truncate_co the
 * beginning. A position is a multiple of 8; 0 is before every record.
 *
 * One list is under way at a time. Whoever waits first sends everything that is pending, the
 * others wait for it, and the first of those that it did not suffice for is the next to send:
 * one WRITE is shared by all who append while the one before is under way.
 *
 * When the member can no longer write (it was fenced, or resigned after ten leases without
 * the log's memory node) the log has failed for good: nothing becomes durable any more.
 *
 * Threads: any, at the same time; each waits with the session of its own loop. Creating and
 * destroying: nobody else uses it.
 */
#ifndef TREE_DEX_LOG_LOG_H
#define TREE_DEX_LOG_LOG_H

#include <stdatomic.h>

#include "base/slice.h"
#include "pool/pool.h"
#include "tree/dex/log/log_fmt.h"

struct dex_log;

enum dex_log_kind {
    DEX_LOG_PUT,
    DEX_LOG_BLOB, /* the value is a blob's reference, 8 bytes */
    DEX_LOG_DELETE,
    DEX_LOG_ASKED, /* a put that a memory node was asked for: done if its leaf had room, else not */
    DEX_LOG_MARK,  /* nothing: what is before it was durable (dex_log_mark_co) */
    DEX_LOG_KINDS
};

struct dex_log_record {
    enum dex_log_kind kind;
    uint64_t epoch; /* below 2^40 */
    uint64_t lsn;   /* its position, of replayed records; not looked at when appending */
    struct slice key, value;
};

enum {
    DEX_LOG_BYTES_MIN = 8 * 1024, /* of the block: any record fits */
    DEX_LOG_BYTES_MAX = 4 * 1024 * 1024,
};

/* A new, empty log, not kept: if the member dies, it is swept. In a block of that size, a multiple of 64, on any memory node. INVALID: no such
 * size. NO_MEMORY, and what pool_vital_alloc_co and pool_submit_co say. */
PANDO_MUST_CHECK enum pando_status dex_log_create_co(struct pool_session *session, uint16_t table,
                                                     uint32_t bytes, struct dex_log **out);

/* Where others find it once its owner is gone. */
fabric_address dex_log_address(const struct dex_log *log);

uint64_t dex_log_version(const struct dex_log *log); /* in no two lives of a block the same */

/* Whether it shall outlast this member, from the time it holds what others will need. One at a time. */
PANDO_MUST_CHECK enum pando_status dex_log_retain_co(struct dex_log *log,
                                                     struct pool_session *session, bool keep);

/* Puts a record into the process's memory only; never suspends, keeps nothing of *record. *lsn
 * is the record's position, *end the one behind it: what to wait for. FULL: the ring has no room
 * until it is truncated. TOO_LARGE: key or value over the limits of log_fmt.h. Nothing was
 * appended then. */
PANDO_MUST_CHECK enum pando_status dex_log_append(struct dex_log *log,
                                                  const struct dex_log_record *record,
                                                  uint64_t *lsn, uint64_t *end);

/* Whether everything before `end` is in the pool. Cheap. */
bool dex_log_durable(const struct dex_log *log, uint64_t end);

/* Until it is. `end` is not behind the log's. A broken endpoint is tried again for ten leases, then
 * the member resigns. FENCED: the log has failed, and nothing of the last record before
 * `end` was ever sent. UNKNOWN: it has, and it may have been. */
PANDO_MUST_CHECK enum pando_status dex_log_wait_co(struct dex_log *log,
                                                   struct pool_session *session, uint64_t end);

/* If the log is all durable and does not end in a mark yet, appends one and waits as dex_log_wait_co does: from
 * then on a replay can tell damage in the last list from the log's end. Nothing if there is no room. By the
 * table's maintenance only, one at a time. */
PANDO_MUST_CHECK enum pando_status dex_log_mark_co(struct dex_log *log,
                                                   struct pool_session *session);

uint64_t dex_log_begin(const struct dex_log *log);
uint64_t dex_log_end(const struct dex_log *log);
uint64_t dex_log_capacity(const struct dex_log *log); /* the most bytes from begin to end */

/* Records before `lsn`, which is a record's position or the log's end, are not needed any more.
 * Writes the new beginning, after waiting until the records before it are durable, and has the
 * room used again only when that has completed. OK at once if it begins there or later already.
 * FENCED and UNKNOWN: the log has failed; a replay begins there or where it did before. */
PANDO_MUST_CHECK enum pando_status dex_log_truncate_co(struct dex_log *log,
                                                       struct pool_session *session, uint64_t lsn);

/* Frees the log in any case, and gives its block back unless told to keep it (for a replay, or
 * because the member was fenced). Statuses are dex_log_free_co's. */
PANDO_MUST_CHECK enum pando_status
dex_log_destroy_co(struct dex_log *log, struct pool_session *session, bool keep_block);

/* ---- log_replay.c: a log in the pool, nobody writes it any more ------------------------------ */

/* May suspend. The record's key and value live until it returns. */
typedef enum pando_status (*dex_log_fn)(void *context, const struct dex_log_record *record);

/* Whether the log of that version is still kept there; if not, nobody needed it any more. CORRUPT: what is
 * there is neither, but close to the header of a log that is kept. */
PANDO_MUST_CHECK enum pando_status dex_log_retained_co(struct pool_session *session, uint16_t table,
                                                       fabric_address address, uint64_t version,
                                                       bool *kept);

/* Calls fn for every record, in order, up to the first that is not whole: all that were ever
 * durable and not truncated are there, and perhaps some that nobody was told of. The owner was
 * fenced, or is the caller. A status of fn other than OK ends it and is returned. CORRUPT: there
 * is no log of that table at that address. NO_MEMORY, and what pool_submit_co says; it may then
 * be done again. */
PANDO_MUST_CHECK enum pando_status dex_log_replay_co(struct pool_session *session, uint16_t table,
                                                     fabric_address address, dex_log_fn fn,
                                                     void *context);

/* Gives the block back. If several do, one of them does so, and the others get CORRUPT: there is no
 * log (any more). After what else pool_submit_co says, the block is free at the latest when
 * this member is gone, or still a log: doing it again is safe. */
PANDO_MUST_CHECK enum pando_status dex_log_free_co(struct pool_session *session, uint16_t table,
                                                   fabric_address address);

/* ---- records as bytes: no I/O ---------------------------------------------------------------- */

/* What the CRCs of a log's records begin with. */
uint32_t dex_log_seed(uint64_t pool, uint16_t table, fabric_address address, uint64_t version);

/* The record at that position, if [bytes, bytes + available) begins with a whole one: its size,
 * else 0. Its key and value point into the bytes, which may be anything. */
size_t dex_log_record_read(uint32_t seed, uint64_t lsn, const uint8_t *bytes, size_t available,
                           struct dex_log_record *out);

static inline size_t dex_log_record_bytes(size_t key_bytes, size_t value_bytes)
{
    return (DEX_LOG_RECORD_HEADER + key_bytes + value_bytes + 7) & ~(size_t)7;
}

/* Of a record of that size whose first 4 bytes are not looked at. */
uint32_t dex_log_record_crc(uint32_t seed, uint64_t lsn, const uint8_t *bytes, size_t size);

/* ---- checkpoint.c: the log of a table -------------------------------------------------------- */

struct dex;
struct dex_table;
struct owners_range;

/* What a table has of it. */
struct dex_redo {
    _Atomic(struct dex_log *) log; /* of this process; made with the first ownership */
    uint64_t share;                /* what it has of pool_shared_bytes */
    atomic_bool checkpointing;     /* one at a time */
    struct rt_waitq checkpoint_end;
    atomic_bool checkpoint_failed;
};

/* What is only in this process's memory goes to the pool: everything (NULL), or most of a range. */
PANDO_MUST_CHECK enum pando_status dex_flush_co(struct dex *self, const struct owners_range *range);

/* Room in the log for some more records: waits for a checkpoint if there is little. */
PANDO_MUST_CHECK enum pando_status dex_log_room_co(struct dex *self);

/* durable.c. What was read is only told when it is sure to last (rule log-results), and we still are who we
 * were (rule reply-under-lease). */
PANDO_MUST_CHECK enum pando_status dex_await_durable_co(struct dex *self, uint64_t end);

/* None is under way; if the table is closing, none will be in the background. */
void dex_checkpoint_end_co(struct dex_table *table);

#endif
