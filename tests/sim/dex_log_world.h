/*
 * dex_log_world.h - what the tests of the redo log share: a simulated pool, and records that are
 * known by a number.
 */
#ifndef TESTS_SIM_DEX_LOG_WORLD_H
#define TESTS_SIM_DEX_LOG_WORLD_H

#include "sim/pool_world.h"
#include "tree/dex/log/log.h"

enum { MEMORIES = 2, CLIENTS = 2, THREADS = 2, TABLE = 7, EPOCH = 3 };

static const uint64_t LEASE_NS = 2 * RT_NS_PER_MS;

static inline void world_build(struct pool_world *world, const struct fabric_sim_options *net)
{
    struct pool_world_options options = {.net = *net,
                                         .memnode = {.seed = 100},
                                         .memories = MEMORIES,
                                         .clients = CLIENTS,
                                         .memory_bytes = 42 << 20,
                                         .client_threads = THREADS,
                                         .lease_ns = LEASE_NS};
    pool_world_build(world, &options);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Record `number`: everything about it follows from that. Its key and value are put into bytes,
 * KNOWN_BYTES of them. */
enum { KNOWN_BYTES = DEX_LOG_KEY_MAX + DEX_LOG_VALUE_MAX };

static inline struct dex_log_record known_record(uint64_t number, uint8_t *bytes)
{
    uint64_t mixed = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
    unsigned chance = (unsigned)(mixed >> 60);
    struct dex_log_record record = {.kind = chance == 0   ? DEX_LOG_DELETE
                                            : chance == 1 ? DEX_LOG_BLOB
                                                          : DEX_LOG_PUT,
                                    .epoch = EPOCH};
    size_t key_bytes = 8 + (mixed >> 40) % 24, value_bytes = (mixed >> 20) % 60;

    if (mixed >> 52 == 1 || number % 97 == 96) { /* now and then the largest there is */
        key_bytes = DEX_LOG_KEY_MAX;
        value_bytes = DEX_LOG_VALUE_MAX;
    }
    if (record.kind != DEX_LOG_PUT)
        value_bytes = record.kind == DEX_LOG_BLOB ? sizeof(fabric_address) : 0;
    for (size_t i = 0; i < key_bytes + value_bytes; i++)
        bytes[i] = (uint8_t)(number + i * 7);
    memcpy(bytes, &number, sizeof(number));
    record.key = slice_of(bytes, key_bytes);
    record.value = slice_of(bytes + key_bytes, value_bytes);
    return record;
}

static inline bool record_is(const struct dex_log_record *record, uint64_t number)
{
    uint8_t bytes[KNOWN_BYTES];
    struct dex_log_record known = known_record(number, bytes);
    return record->kind == known.kind && record->epoch == known.epoch &&
           slice_equal(record->key, known.key) && slice_equal(record->value, known.value);
}

static inline uint64_t record_end(const struct dex_log_record *record)
{
    return record->lsn + dex_log_record_bytes(record->key.size, record->value.size);
}

#endif
