/*
 * log_replay.c - reading a log back from the pool. Nothing that is read there is believed.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "pool/block_fmt.h"
#include "pool/cell.h"
#include "pool/checked_word.h"
#include "tree/dex/log/log.h"

enum {
    READ_BYTES = 64 * 1024,
    HEADER_BITS = 8 * offsetof(struct dex_log_header, unused),
    FLIPS_MAX =
        16, /* of the words that are known of a header; what differs in more is something else */
};

/* What is in the pool: positions from `at` on are in the bytes, `have` of them. */
struct reader {
    struct pool_session *session;
    fabric_address address;
    uint64_t capacity;
    uint64_t at, limit; /* no record goes beyond the limit */
    size_t have;
    uint8_t bytes[DEX_LOG_RECORD_MAX + READ_BYTES];
};

static bool header_ok(const struct dex_log_header *header, uint64_t pool, uint16_t table,
                      fabric_address address)
{
    struct cell_place place = {
        .pool = pool, .table = table, .kind = DEX_LOG_CELL, .address = address};
    struct pool_tenure tenure = pool_tenure_unpack(header->tenure);

    return cell_valid(&place, header, offsetof(struct dex_log_header, unused)) &&
           cell_payload_bytes(header->cell) ==
               offsetof(struct dex_log_header, unused) - CELL_HEADER &&
           header->address == address && header->format == DEX_LOG_FORMAT &&
           tenure.state == POOL_BLOCK_LIVE && tenure.table == table &&
           header->bytes >= DEX_LOG_BYTES_MIN && header->bytes <= DEX_LOG_BYTES_MAX &&
           header->bytes % 64 == 0;
}

static bool begin_read(const struct dex_log_header *header, uint64_t *begin)
{
    return checked_word_unpack(header->begin, begin) && *begin >= DEX_LOG_FIRST && *begin % 8 == 0;
}

static enum pando_status read_header_co(struct pool_session *session, uint16_t table,
                                        fabric_address address, struct dex_log_header *header)
{
    struct fabric_op read = fabric_read(fabric_address_offset(address), header, sizeof(*header));
    enum pando_status status = pool_read_list_co(session, address, &read, 1);
    if (status == PANDO_RANGE)
        return PANDO_CORRUPT;
    if (status != PANDO_OK)
        return status;
    return header_ok(header, pool_id(pool_session_pool(session)), table, address) ? PANDO_OK
                                                                                  : PANDO_CORRUPT;
}

/* What a map knows of a log. */
struct sought {
    uint64_t pool, version;
    fabric_address address;
    uint16_t table;
};

static bool is_kept(const struct sought *log, const struct dex_log_header *header)
{
    return header->version == log->version &&
           header_ok(header, log->pool, log->table, log->address);
}

/* Whether it is the header of a log that is kept, but for one bit. */
static bool is_kept_but_for_a_bit(const struct sought *log, const struct dex_log_header *header)
{
    struct dex_log_header tried = *header;
    for (unsigned bit = 0; bit < HEADER_BITS; bit++) {
        uint8_t *byte = (uint8_t *)&tried + bit / 8;
        *byte ^= (uint8_t)(1 << bit % 8);
        if (is_kept(log, &tried))
            return true;
        *byte ^= (uint8_t)(1 << bit % 8);
    }
    return false;
}

/* In how many bits it differs from the header of a log that is kept, as far as that is known. */
static unsigned distance(const struct sought *log, const struct dex_log_header *header)
{
    uint64_t tenure = pool_tenure_pack(
        (struct pool_tenure){.state = POOL_BLOCK_LIVE, .kind = DEX_LOG_CELL, .table = log->table});
    return (unsigned)(__builtin_popcountll(header->address ^ log->address) +
                      __builtin_popcountll(header->version ^ log->version) +
                      __builtin_popcountll(header->format ^ DEX_LOG_FORMAT) +
                      __builtin_popcountll((header->tenure ^ tenure) >> 32));
}

/* Whether the block is not that log's, or not any more: one that its owner does not keep or that somebody has
 * freed has a tenure that no few flipped bits make of a log's; its next life has a higher version; and where
 * blocks of another size have been since, there is anything. */
static bool is_gone(const struct sought *log, const struct dex_log_header *header)
{
    struct pool_tenure tenure = pool_tenure_unpack(header->tenure);
    if (tenure.state == POOL_BLOCK_FREE && tenure.kind == 0 && tenure.table == 0)
        return true;
    if (is_kept_but_for_a_bit(log, header))
        return false;
    return (header->address == log->address && header->version > log->version) ||
           distance(log, header) > FLIPS_MAX;
}

enum pando_status dex_log_retained_co(struct pool_session *session, uint16_t table,
                                      fabric_address address, uint64_t version, bool *kept)
{
    struct sought log = {.pool = pool_id(pool_session_pool(session)),
                         .version = version,
                         .address = address,
                         .table = table};
    struct dex_log_header header;
    struct fabric_op read = fabric_read(fabric_address_offset(address), &header, sizeof(header));
    enum pando_status status = pool_read_list_co(session, address, &read, 1);

    *kept = false;
    if (status == PANDO_RANGE)
        return PANDO_CORRUPT;
    if (status != PANDO_OK)
        return status;
    *kept = is_kept(&log, &header);
    if (*kept || is_gone(&log, &header))
        return PANDO_OK;
    log_error("the header of a dead owner's log is damaged", log_hex("log", address),
              log_u64("table", table));
    return PANDO_CORRUPT;
}

/* ---- records --------------------------------------------------------------------------------- */

size_t dex_log_record_read(uint32_t seed, uint64_t lsn, const uint8_t *bytes, size_t available,
                           struct dex_log_record *out)
{
    struct dex_log_record_header header;

    if (available < sizeof(header))
        return 0;
    memcpy(&header, bytes, sizeof(header));
    unsigned kind = header.kind_and_value_bytes >> DEX_LOG_KIND_SHIFT;
    size_t key_bytes = header.key_bytes;
    size_t value_bytes = header.kind_and_value_bytes & DEX_LOG_VALUE_MASK;
    if (key_bytes > DEX_LOG_KEY_MAX || value_bytes > DEX_LOG_VALUE_MAX || kind >= DEX_LOG_KINDS)
        return 0;
    size_t size = dex_log_record_bytes(key_bytes, value_bytes);
    if (size > available || header.crc != dex_log_record_crc(seed, lsn, bytes, size))
        return 0;
    if (kind == DEX_LOG_BLOB && value_bytes != sizeof(fabric_address))
        return 0;
    *out = (struct dex_log_record){
        .kind = (enum dex_log_kind)kind,
        .epoch = header.epoch_and_behind & DEX_LOG_EPOCH_MASK,
        .lsn = lsn,
        .key = slice_of(bytes + sizeof(header), key_bytes),
        .value = slice_of(bytes + sizeof(header) + key_bytes, value_bytes),
    };
    return size;
}

/* Reads on, behind what is there. */
static enum pando_status reader_fill_co(struct reader *reader)
{
    uint64_t ring = fabric_address_offset(reader->address) + DEX_LOG_HEADER;
    uint64_t from = reader->at + reader->have;
    uint64_t left = reader->limit - from < READ_BYTES ? reader->limit - from : READ_BYTES;
    struct fabric_op ops[2];
    uint32_t count = 0;

    while (left > 0) {
        uint64_t at = from % reader->capacity;
        uint64_t size = left < reader->capacity - at ? left : reader->capacity - at;
        pando_assert(count < 2 && reader->have + size <= sizeof(reader->bytes));
        ops[count++] = fabric_read(ring + at, reader->bytes + reader->have, (uint32_t)size);
        reader->have += size;
        from += size;
        left -= size;
    }
    if (count == 0)
        return PANDO_OK;
    enum pando_status status = pool_read_list_co(reader->session, reader->address, ops, count);
    return status == PANDO_RANGE ? PANDO_CORRUPT : status;
}

/* Whether a record says that the log was durable beyond a position before it. Epochs are small: what only
 * looks like a record mostly has a high one. */
static bool is_beyond(const struct dex_log_record *record, const uint8_t *bytes, uint64_t position)
{
    struct dex_log_record_header header;
    memcpy(&header, bytes, sizeof(header));
    uint64_t behind = (header.epoch_and_behind >> DEX_LOG_EPOCH_BITS) * 8;
    return record->epoch < (uint64_t)1 << 32 && behind < record->lsn &&
           record->lsn - behind > position;
}

/* No record is where the reader is, `done` bytes into what it has. CORRUPT: there was one, as one that comes
 * later says. */
static enum pando_status check_end_co(struct reader *reader, uint32_t seed, size_t done)
{
    uint64_t end = reader->at;
    enum pando_status status = PANDO_OK;

    while (reader->at + DEX_LOG_RECORD_HEADER <= reader->limit) {
        struct dex_log_record record;
        if (reader->have - done < DEX_LOG_RECORD_MAX &&
            reader->at + (reader->have - done) < reader->limit) {
            reader->have -= done;
            memmove(reader->bytes, reader->bytes + done, reader->have);
            done = 0;
            status = reader_fill_co(reader);
            if (status != PANDO_OK)
                return status;
        }
        const uint8_t *bytes = reader->bytes + done;
        if (dex_log_record_read(seed, reader->at, bytes, reader->have - done, &record) != 0 &&
            is_beyond(&record, bytes, end)) {
            log_error("a dead owner's log is damaged", log_hex("log", reader->address),
                      log_u64("position", end), log_u64("durable_by", record.lsn));
            return PANDO_CORRUPT;
        }
        reader->at += 8;
        done += 8;
    }
    return PANDO_OK;
}

static enum pando_status replay_co(struct reader *reader, uint32_t seed, dex_log_fn fn,
                                   void *context)
{
    enum pando_status status = PANDO_OK;
    size_t done = 0; /* of the bytes */

    while (status == PANDO_OK) {
        struct dex_log_record record;
        if (reader->have - done < DEX_LOG_RECORD_MAX) {
            reader->have -= done;
            memmove(reader->bytes, reader->bytes + done, reader->have);
            done = 0;
            status = reader_fill_co(reader);
            if (status != PANDO_OK)
                break;
        }
        size_t size = dex_log_record_read(seed, reader->at, reader->bytes + done,
                                          reader->have - done, &record);
        if (size == 0)
            return check_end_co(reader, seed, done);
        if (record.kind != DEX_LOG_MARK)
            status = fn(context, &record);
        reader->at += size;
        done += size;
    }
    return status;
}

enum pando_status dex_log_replay_co(struct pool_session *session, uint16_t table,
                                    fabric_address address, dex_log_fn fn, void *context)
{
    struct dex_log_header header;
    enum pando_status status = read_header_co(session, table, address, &header);

    if (status != PANDO_OK)
        return status;
    uint64_t begin;
    if (!begin_read(&header, &begin)) {
        log_error("the beginning of a dead owner's log is damaged", log_hex("log", address));
        return PANDO_CORRUPT;
    }
    struct reader *reader = malloc(sizeof(*reader));
    if (reader == NULL)
        return PANDO_NO_MEMORY;
    reader->session = session;
    reader->address = address;
    reader->capacity = header.bytes - DEX_LOG_HEADER;
    reader->at = begin;
    reader->limit = begin + reader->capacity;
    reader->have = 0;
    uint32_t seed =
        dex_log_seed(pool_id(pool_session_pool(session)), table, address, header.version);
    status = replay_co(reader, seed, fn, context);
    free(reader);
    return status;
}

/* ---- the block ------------------------------------------------------------------------------- */

enum pando_status dex_log_free_co(struct pool_session *session, uint16_t table,
                                  fabric_address address)
{
    struct dex_log_header header;
    enum pando_status status = read_header_co(session, table, address, &header);

    if (status != PANDO_OK)
        return status;
    /* By a CAS, so that of several who do this the block comes into the hands of one. */
    struct pool_tenure mine = {.state = POOL_BLOCK_FREE,
                               .holder = pool_identity(pool_session_pool(session))};
    uint64_t old;
    status = pool_word_cas_co(session, address + POOL_BLOCK_TENURE, header.tenure,
                              pool_tenure_pack(mine), &old);
    if (status != PANDO_OK)
        return status;
    if (old != header.tenure)
        return PANDO_CORRUPT;
    struct pool_block block = {.address = address, .version = header.version};
    return pool_vital_free_co(session, &block, (uint32_t)header.bytes, true);
}
