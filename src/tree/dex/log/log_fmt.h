/*
 * log_fmt.h - a redo log in the pool: one block with a header and a ring of records.
 *
 *    0  8  cell header over the next five words, kind DEX_LOG_CELL
 *    8  8  own address
 *   16  8  version of the block: another one in each of its lives
 *   24  8  tenure: LIVE, of the table
 *   32  8  bytes of the block
 *   40  8  format: DEX_LOG_FORMAT
 *   64  8  begin: the position of the first record that is still needed, as a checked word
 *          (pool/checked_word.h): positions have 56 bits
 *   72 56  zero
 *  128     the ring
 *
 * Only `begin` and the tenure are ever changed, in place: each is one word, so it is never torn. What the
 * tenure is while the log is not kept, the cell does not say (log_replay.c). A log is endless to
 * those who use it; position p of it lies in the ring at p modulo the ring's size. The first record
 * is at DEX_LOG_FIRST; each begins where the one before it ends, be that over the ring's end.
 *
 * A record:
 *    0  4  CRC32C, never 0
 *    4  2  bytes of the key
 *    6  2  kind 3, bytes of the value 13 (from the high end)
 *    8  8  epoch 40 (low bits), and how far behind its position the log was durable when it was appended, in
 *          units of 8: 24
 *   16     key, value, and zeroes up to a multiple of 8
 *
 * The CRC goes over: pool 8, log's address 8, its block's version 8, table 8 (the seed); the
 * record from its epoch to its end; its position 8, and its bytes 4 to 8 as a number of 8. A
 * record's position is nowhere stored, and in no two laps the same; the version is not the same
 * in any two lives of the block. What an earlier lap or an earlier life left behind is therefore
 * no record here and now.
 *
 * A log ends where no record is. If a record behind that says that the log was durable beyond it, what is
 * there is damaged. Of the last list that was acknowledged only a mark says so, a record without key and value
 * that the owner's maintenance appends within half a lease. Until then damage in that list cannot be told from
 * a list that was cut off.
 */
#ifndef TREE_DEX_LOG_LOG_FMT_H
#define TREE_DEX_LOG_LOG_FMT_H

#include <stdint.h>

enum {
    DEX_LOG_CELL = 76,
    DEX_LOG_FORMAT = 4,
    DEX_LOG_BEGIN = 64, /* offset of that word */
    DEX_LOG_HEADER = 128,
    DEX_LOG_FIRST = 8, /* 0 is before every record */

    DEX_LOG_RECORD_HEADER = 16,
    DEX_LOG_KEY_MAX = 1024,
    DEX_LOG_VALUE_MAX = 4096,
    DEX_LOG_RECORD_MAX = DEX_LOG_RECORD_HEADER + DEX_LOG_KEY_MAX + DEX_LOG_VALUE_MAX,
    DEX_LOG_KIND_SHIFT = 13,
    DEX_LOG_VALUE_MASK = (1 << DEX_LOG_KIND_SHIFT) - 1,
    DEX_LOG_EPOCH_BITS = 40,
};
#define DEX_LOG_EPOCH_MASK (((uint64_t)1 << DEX_LOG_EPOCH_BITS) - 1)
_Static_assert(DEX_LOG_VALUE_MAX <= DEX_LOG_VALUE_MASK, "format");

struct dex_log_header {
    uint64_t cell;
    uint64_t address;
    uint64_t version;
    uint64_t tenure;
    uint64_t bytes;
    uint64_t format;
    uint64_t unused[2];
    uint64_t begin;
    uint64_t zero[7];
};
_Static_assert(sizeof(struct dex_log_header) == DEX_LOG_HEADER, "format");
_Static_assert(__builtin_offsetof(struct dex_log_header, begin) == DEX_LOG_BEGIN, "format");
_Static_assert(__builtin_offsetof(struct dex_log_header, unused) == 48, "format");

struct dex_log_record_header {
    uint32_t crc;
    uint16_t key_bytes;
    uint16_t kind_and_value_bytes;
    uint64_t epoch_and_behind;
};
_Static_assert(sizeof(struct dex_log_record_header) == DEX_LOG_RECORD_HEADER, "format");

#endif
