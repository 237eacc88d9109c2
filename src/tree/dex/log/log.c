/*
 * log.c - appending, group commit, truncation.
 *
 * The process has the ring, too: records are put together there, and sent from there. Bytes before
 * `end` do not change until they are truncated, so what is being sent is not touched by those who
 * append, and whatever has to be sent again is sent the same.
 */
#include "tree/dex/log/log.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "pool/block_fmt.h"
#include "pool/cell.h"
#include "pool/checked_word.h"

enum {
    LIST_BYTES = 64 * 1024, /* of records in one list */
    LINE_BYTES = 64,
};

/* A task that waits until the log is durable up to `end` and begins at `begin`; on its stack. */
struct waiter {
    struct list link;
    struct rt_task *task;
    uint64_t end, begin;
    enum { WAITING, MY_TURN, OVER } state; /* under the turn's latch */
};

struct dex_log {
    uint64_t live; /* its tenure word while others need it */
    uint64_t version;
    uint32_t bytes;
    bool kept, kept_unsure;
    uint64_t marked; /* where the last mark ends */
    struct pool *pool;
    fabric_address address;
    uint16_t table;
    uint32_t seed;
    uint64_t capacity;
    uint8_t *ring;

    /* Appending. `end` is stored under the latch, behind the bytes; its partner is the load in
     * write_list_co. `begin` is stored when its list has completed; its partner is the load in
     * dex_log_append. */
    alignas(LINE_BYTES) struct rt_latch latch;
    uint64_t end_offset; /* in the ring */
    _Atomic uint64_t end, begin;

    /* Sending. One task has the turn; `durable` and `begin` are its own to store. */
    alignas(LINE_BYTES) struct rt_latch turn_latch;
    bool turn_taken;
    bool failed;
    struct list waiters;
    uint64_t begin_wanted;
    uint64_t sent; /* records before may have been given to the fabric */

    alignas(LINE_BYTES) _Atomic uint64_t durable;

    /* A record that goes over the ring's end, while it is put together. */
    alignas(LINE_BYTES) uint8_t wrapped[DEX_LOG_RECORD_MAX];
};

/* ---- beginning and end ----------------------------------------------------------------------- */

static struct dex_log *log_alloc(uint32_t bytes)
{
    struct dex_log *log = aligned_alloc(LINE_BYTES, sizeof(*log));
    if (log == NULL)
        return NULL;
    *log = (struct dex_log){.capacity = bytes - DEX_LOG_HEADER,
                            .end_offset = DEX_LOG_FIRST,
                            .end = DEX_LOG_FIRST,
                            .begin = DEX_LOG_FIRST,
                            .begin_wanted = DEX_LOG_FIRST,
                            .sent = DEX_LOG_FIRST,
                            .durable = DEX_LOG_FIRST};
    list_init(&log->waiters);
    log->ring = aligned_alloc(LINE_BYTES, log->capacity);
    if (log->ring != NULL)
        return log;
    free(log);
    return NULL;
}

static void log_free(struct dex_log *log)
{
    free(log->ring);
    free(log);
}

static void header_fill(struct dex_log_header *header, const struct pool *pool, uint16_t table,
                        const struct pool_block *block, uint32_t bytes)
{
    struct pool_tenure tenure = {.state = POOL_BLOCK_LIVE,
                                 .kind = DEX_LOG_CELL,
                                 .table = table,
                                 .holder = pool_identity(pool)};
    struct cell_place place = {
        .pool = pool_id(pool), .table = table, .kind = DEX_LOG_CELL, .address = block->address};

    *header = (struct dex_log_header){.address = block->address,
                                      .version = block->version + 1,
                                      .tenure = pool_tenure_pack(tenure),
                                      .bytes = bytes,
                                      .format = DEX_LOG_FORMAT,
                                      .begin = checked_word_pack(DEX_LOG_FIRST)};
    header->cell = cell_header(&place, (uint16_t)header->version, 0, &header->address,
                               offsetof(struct dex_log_header, unused) - CELL_HEADER);
}

/* Of a block that is this member's own business: when it dies, a sweep takes it. */
static uint64_t free_tenure(const struct pool *pool)
{
    return pool_tenure_pack(
        (struct pool_tenure){.state = POOL_BLOCK_FREE, .holder = pool_identity(pool)});
}

enum pando_status dex_log_create_co(struct pool_session *session, uint16_t table, uint32_t bytes,
                                    struct dex_log **out)
{
    struct pool *pool = pool_session_pool(session);
    struct dex_log_header header;
    struct pool_block block;

    if (bytes < DEX_LOG_BYTES_MIN || bytes > DEX_LOG_BYTES_MAX || bytes % LINE_BYTES != 0)
        return PANDO_INVALID;
    struct dex_log *log = log_alloc(bytes);
    if (log == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = pool_table_vital_alloc_co(session, table, bytes, &block);
    if (status != PANDO_OK)
        goto err_log;
    header_fill(&header, pool, table, &block, bytes);
    log->live = header.tenure;
    log->version = header.version;
    header.tenure = free_tenure(pool);
    struct fabric_op write =
        fabric_write(fabric_address_offset(block.address), &header, sizeof(header));
    status = pool_write_unseen_co(session, block.address, &write, 1);
    if (status != PANDO_OK)
        goto err_block;
    log->pool = pool;
    log->address = block.address;
    log->table = table;
    log->bytes = bytes;
    log->seed = dex_log_seed(pool_id(pool), table, block.address, header.version);
    *out = log;
    return PANDO_OK;

err_block:
    /* It may have been written all the same. */
    block.version = header.version;
    enum pando_status freed = pool_vital_free_co(session, &block, bytes, false);
    (void)freed; /* if not, it is lost until the table is dropped */
err_log:
    log_free(log);
    return status;
}

enum pando_status dex_log_destroy_co(struct dex_log *log, struct pool_session *session,
                                     bool keep_block)
{
    pando_assert(!log->turn_taken);
    struct pool_block block = {.address = log->address, .version = log->version};
    enum pando_status status = PANDO_OK;
    if (!keep_block)
        status = log->kept ? dex_log_free_co(session, log->table, log->address)
                           : pool_vital_free_co(session, &block, log->bytes, true);
    log_free(log);
    return status;
}

enum pando_status dex_log_retain_co(struct dex_log *log, struct pool_session *session, bool keep)
{
    uint64_t word = keep ? log->live : free_tenure(log->pool);
    struct fabric_op write =
        fabric_write(fabric_address_offset(log->address) + POOL_BLOCK_TENURE, &word, sizeof(word));
    if (log->kept == keep && !log->kept_unsure)
        return PANDO_OK;
    enum pando_status status = pool_write_unseen_co(session, log->address, &write, 1);
    log->kept_unsure = status != PANDO_OK; /* it may have been written all the same */
    log->kept = status == PANDO_OK ? keep : true;
    return status;
}

uint64_t dex_log_version(const struct dex_log *log)
{
    return log->version;
}

fabric_address dex_log_address(const struct dex_log *log)
{
    return log->address;
}

uint64_t dex_log_begin(const struct dex_log *log)
{
    return atomic_load_explicit(&log->begin, memory_order_acquire);
}

uint64_t dex_log_end(const struct dex_log *log)
{
    return atomic_load_explicit(&log->end, memory_order_acquire);
}

uint64_t dex_log_capacity(const struct dex_log *log)
{
    return log->capacity;
}

bool dex_log_durable(const struct dex_log *log, uint64_t end)
{
    return atomic_load_explicit(&log->durable, memory_order_acquire) >= end;
}

/* ---- appending ------------------------------------------------------------------------------- */

uint32_t dex_log_seed(uint64_t pool, uint16_t table, fabric_address address, uint64_t version)
{
    uint64_t words[] = {pool, address, version, table};
    return crc32c(0, words, sizeof(words));
}

uint32_t dex_log_record_crc(uint32_t seed, uint64_t lsn, const uint8_t *bytes, size_t size)
{
    uint32_t sizes;
    memcpy(&sizes, bytes + 4, sizeof(sizes));
    uint64_t last[] = {lsn, sizes};
    uint32_t crc = crc32c(crc32c(seed, bytes + 8, size - 8), last, sizeof(last));
    return crc == 0 ? 1 : crc;
}

static void record_write(const struct dex_log *log, uint8_t *to, size_t size, uint64_t lsn,
                         const struct dex_log_record *record)
{
    /* It only grows, and is not beyond what is appended: whatever is seen of it is true. */
    uint64_t behind = (lsn - atomic_load_explicit(&log->durable, memory_order_relaxed)) / 8;
    struct dex_log_record_header header = {
        .key_bytes = (uint16_t)record->key.size,
        .kind_and_value_bytes =
            (uint16_t)((unsigned)record->kind << DEX_LOG_KIND_SHIFT | record->value.size),
        .epoch_and_behind = (record->epoch & DEX_LOG_EPOCH_MASK) | behind << DEX_LOG_EPOCH_BITS};

    memset(to + size - 8, 0, 8);
    memcpy(to, &header, sizeof(header));
    if (record->key.size > 0)
        memcpy(to + sizeof(header), record->key.data, record->key.size);
    if (record->value.size > 0)
        memcpy(to + sizeof(header) + record->key.size, record->value.data, record->value.size);
    header.crc = dex_log_record_crc(log->seed, lsn, to, size);
    memcpy(to, &header.crc, sizeof(header.crc));
}

static void append_over_the_end(struct dex_log *log, size_t size, uint64_t lsn,
                                const struct dex_log_record *record)
{
    uint64_t first = log->capacity - log->end_offset;
    record_write(log, log->wrapped, size, lsn, record);
    memcpy(log->ring + log->end_offset, log->wrapped, first);
    memcpy(log->ring, log->wrapped + first, size - first);
}

enum pando_status dex_log_append(struct dex_log *log, const struct dex_log_record *record,
                                 uint64_t *lsn, uint64_t *end)
{
    if (record->key.size > DEX_LOG_KEY_MAX || record->value.size > DEX_LOG_VALUE_MAX)
        return PANDO_TOO_LARGE;
    pando_assert(record->kind < DEX_LOG_KINDS &&
                 (record->kind != DEX_LOG_BLOB || record->value.size == sizeof(fabric_address)));
    size_t size = dex_log_record_bytes(record->key.size, record->value.size);

    rt_latch_lock(&log->latch);
    uint64_t at = atomic_load_explicit(&log->end, memory_order_relaxed);
    if (at + size - atomic_load_explicit(&log->begin, memory_order_acquire) > log->capacity) {
        rt_latch_unlock(&log->latch);
        return PANDO_FULL;
    }
    if (log->end_offset + size <= log->capacity)
        record_write(log, log->ring + log->end_offset, size, at, record);
    else
        append_over_the_end(log, size, at, record);
    log->end_offset += size;
    if (log->end_offset >= log->capacity)
        log->end_offset -= log->capacity;
    atomic_store_explicit(&log->end, at + size, memory_order_release);
    rt_latch_unlock(&log->latch);
    *lsn = at;
    *end = at + size;
    return PANDO_OK;
}

/* ---- sending --------------------------------------------------------------------------------- */

static size_t record_bytes_at(const struct dex_log *log, uint64_t position)
{
    uint64_t word; /* of 8 bytes at a multiple of 8: in one piece */
    memcpy(&word, log->ring + position % log->capacity, sizeof(word));
    return dex_log_record_bytes(word >> 32 & 0xffff, word >> 48 & DEX_LOG_VALUE_MASK);
}

/* Where a list from there ends: behind the last record that fits. */
static uint64_t list_end(const struct dex_log *log, uint64_t from, uint64_t end)
{
    if (end - from <= LIST_BYTES)
        return end;
    for (uint64_t next = from;;) {
        uint64_t before = next;
        next += record_bytes_at(log, before);
        if (next - from > LIST_BYTES)
            return before;
    }
}

/* The WRITEs of these positions, two if they go over the ring's end. */
static uint32_t list_fill(const struct dex_log *log, uint64_t from, uint64_t to,
                          struct fabric_op *ops)
{
    uint64_t ring = fabric_address_offset(log->address) + DEX_LOG_HEADER;
    uint32_t count = 0;

    while (from < to) {
        uint64_t at = from % log->capacity;
        uint64_t size = to - from < log->capacity - at ? to - from : log->capacity - at;
        ops[count++] = fabric_write(ring + at, log->ring + at, (uint32_t)size);
        from += size;
    }
    return count;
}

/* One list: what is pending, and the new beginning if there is to be one. In one's turn, under its
 * latch, which is released meanwhile. */
static void write_list_co(struct dex_log *log, struct pool_session *session)
{
    uint64_t from = atomic_load_explicit(&log->durable, memory_order_relaxed);
    uint64_t to = list_end(log, from, atomic_load_explicit(&log->end, memory_order_acquire));
    uint64_t begin = log->begin_wanted;
    bool truncate = begin > atomic_load_explicit(&log->begin, memory_order_relaxed) && begin <= to;
    uint64_t begin_word = checked_word_pack(begin);
    struct fabric_op ops[3];
    uint32_t count = list_fill(log, from, to, ops);

    if (truncate)
        ops[count++] = fabric_write(fabric_address_offset(log->address) + DEX_LOG_BEGIN,
                                    &begin_word, sizeof(begin_word));
    log->failed = pool_fenced(log->pool);
    if (log->failed)
        return;
    log->sent = to;
    rt_latch_unlock(&log->turn_latch);
    /* It may be repeated: it says the same each time, and nobody else sends anything meanwhile. What could not
     * be sent must not be given up while this member lives: a list that failed may still be applied, over
     * what somebody else has put there since. No hurry for a table that is closed while its process goes on:
     * to resign costs all tables. */
    enum pando_status status = pool_persist_unseen_co(session, log->address, ops, count, NULL);
    rt_latch_lock(&log->turn_latch);
    log->failed = status != PANDO_OK;
    if (log->failed)
        return;
    atomic_store_explicit(&log->durable, to, memory_order_release);
    if (truncate)
        atomic_store_explicit(&log->begin, begin, memory_order_release);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static bool reached(const struct dex_log *log, const struct waiter *waiter)
{
    return dex_log_durable(log, waiter->end) && dex_log_begin(log) >= waiter->begin;
}

/* Under the latch, as long as which the waiter cannot go away. */
static void waiter_wake(struct waiter *waiter, int state)
{
    list_remove(&waiter->link);
    waiter->state = state;
    rt_unpark(waiter->task);
}

static void wake_reached(struct dex_log *log)
{
    list_for_each_safe (link, &log->waiters) {
        struct waiter *waiter = container_of(link, struct waiter, link);
        if (log->failed || reached(log, waiter))
            waiter_wake(waiter, OVER);
    }
}

/* Takes the turn or waits for it, or until there is no need for it. Enters and leaves under the
 * latch. */
static void turn_wait_co(struct dex_log *log, struct waiter *self)
{
    if (!log->turn_taken) {
        log->turn_taken = true;
        self->state = MY_TURN;
        return;
    }
    list_push_back(&log->waiters, &self->link);
    while (self->state == WAITING) {
        rt_latch_unlock(&log->turn_latch);
        (void)rt_park_co(RT_NEVER); /* whoever has the turn is bound to give up in time */
        rt_latch_lock(&log->turn_latch);
    }
}

static void turn_pass(struct dex_log *log)
{
    if (list_empty(&log->waiters))
        log->turn_taken = false;
    else
        waiter_wake(container_of(log->waiters.next, struct waiter, link), MY_TURN);
}

/* Others of this loop that can run now may be about to append: one list for all of them. */
static void yield_to_appenders_co(struct dex_log *log)
{
    if (rt_loop_runnable(rt_loop_self()) == 0)
        return;
    rt_latch_unlock(&log->turn_latch);
    rt_yield_co();
    rt_latch_lock(&log->turn_latch);
}

static enum pando_status reach_co(struct dex_log *log, struct pool_session *session, uint64_t end,
                                  uint64_t begin)
{
    struct waiter self = {.task = rt_task_self(), .end = end, .begin = begin};

    pando_assert(pool_session_pool(session) == log->pool && end <= dex_log_end(log));
    rt_latch_lock(&log->turn_latch);
    if (begin > log->begin_wanted)
        log->begin_wanted = begin;
    turn_wait_co(log, &self);
    if (self.state == MY_TURN) {
        yield_to_appenders_co(log);
        while (!log->failed && !reached(log, &self)) {
            write_list_co(log, session);
            wake_reached(log);
        }
        turn_pass(log);
    }
    enum pando_status status = PANDO_OK;
    if (!reached(log, &self))
        status = end > log->sent ? PANDO_FENCED : PANDO_UNKNOWN;
    rt_latch_unlock(&log->turn_latch);
    return status;
}

enum pando_status dex_log_wait_co(struct dex_log *log, struct pool_session *session, uint64_t end)
{
    return dex_log_durable(log, end) ? PANDO_OK : reach_co(log, session, end, 0);
}

enum pando_status dex_log_truncate_co(struct dex_log *log, struct pool_session *session,
                                      uint64_t lsn)
{
    pando_assert(lsn % 8 == 0);
    return dex_log_begin(log) >= lsn ? PANDO_OK : reach_co(log, session, lsn, lsn);
}

enum pando_status dex_log_mark_co(struct dex_log *log, struct pool_session *session)
{
    const struct dex_log_record mark = {.kind = DEX_LOG_MARK};
    uint64_t lsn, end = dex_log_end(log);

    if (end == DEX_LOG_FIRST || end == log->marked || !dex_log_durable(log, end) ||
        pool_fenced(log->pool))
        return PANDO_OK;
    if (dex_log_append(log, &mark, &lsn, &end) != PANDO_OK)
        return PANDO_OK; /* there are records behind it soon, or a checkpoint */
    log->marked = end;
    return dex_log_wait_co(log, session, end);
}
