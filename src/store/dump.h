/*
 * dump.h - writing and reading the format of dump_fmt.h: bytes in, bytes out. Where they come from
 * and go to is the caller's business.
 */
#ifndef STORE_DUMP_H
#define STORE_DUMP_H

#include "store/dump_fmt.h"
#include "store/store.h"

/* What a file says of its table. */
struct dump_table {
    struct store_shape shape;
    char name[POOL_NAME_MAX];
    char engine[POOL_ENGINE_NAME_MAX];
};

/* What has been written or read so far. */
struct dump_sums {
    uint64_t pairs, bytes;
};

/* ---- writing --------------------------------------------------------------------------------- */

void dump_header_build(const struct dump_table *table, uint8_t out[DUMP_HEADER_BYTES]);

/* A block being filled. The memory is the builder's. */
struct dump_block {
    uint8_t *bytes; /* what is to be written once it is finished */
    size_t size, capacity;
    uint32_t pairs;
};

/* False: no memory. */
PANDO_MUST_CHECK bool dump_block_add(struct dump_block *block, struct slice key,
                                     struct slice value);
bool dump_block_full(const struct dump_block *block);

/* Sets the header; the block is then `size` bytes to write. Adds it to the sums. */
void dump_block_finish(struct dump_block *block, struct dump_sums *sums);
/* A long value: the block that announces it, then its parts. The block is empty before, and is reset after
 * each. False: no memory. */
PANDO_MUST_CHECK bool dump_long_build(struct dump_block *block, struct slice key, uint64_t size,
                                      struct dump_sums *sums);
/* Room for a part of up to DUMP_PART bytes, NULL: no memory; and its end. */
uint8_t *dump_part_room(struct dump_block *block);
void dump_part_build(struct dump_block *block, size_t size);

void dump_block_reset(struct dump_block *block);
void dump_block_free(struct dump_block *block);

enum { DUMP_TAIL_BLOCK = DUMP_BLOCK_HEADER + DUMP_TAIL_BYTES };
void dump_tail_build(const struct dump_sums *sums, uint8_t out[DUMP_TAIL_BLOCK]);

/* ---- reading --------------------------------------------------------------------------------- */

/* Stores exactly `size` bytes, or fewer at the end of the file; the number stored. May suspend if
 * the caller of dump_read_co may. An error counts as the end, and is remembered by whoever reads. */
typedef size_t (*dump_source_fn)(void *context, uint8_t *to, size_t size);

struct dump_reader {
    dump_source_fn source;
    void *context;
    struct dump_table table;
    struct dump_sums sums; /* of the pairs handed out */
    uint64_t offset;       /* of the next byte to read */
    char error[160];       /* after CORRUPT or VERSION: what and where */

    uint8_t *payload; /* of the present block */
    size_t payload_capacity, at, end;
    uint32_t left; /* pairs of the block that have not been handed out */
    uint8_t last_key[STORE_KEY_MAX];
    size_t last_key_size;
    bool any, over;
    uint32_t version;
    uint64_t long_left; /* bytes of a long value that have not been handed out */
};

/* Reads the header. CORRUPT: this is no such file, or a damaged one. VERSION. */
PANDO_MUST_CHECK enum pando_status dump_read_open_co(struct dump_reader *reader,
                                                     dump_source_fn source, void *context);

/* The next pair, whose slices live until the next call; NOT_FOUND: that was all, and the tail agrees.
 * CORRUPT: damaged or cut off. NO_MEMORY. A value of more than DUMP_VALUE_SHORT bytes has data NULL: its parts
 * are taken by dump_read_part_co before the next pair, or are skipped; the key lives as long. */
PANDO_MUST_CHECK enum pando_status dump_read_co(struct dump_reader *reader, struct slice *key,
                                                struct slice *value);

/* The next part of a long value, which lives until the next call; NOT_FOUND: that was all of it. */
PANDO_MUST_CHECK enum pando_status dump_read_part_co(struct dump_reader *reader,
                                                     struct slice *part);

/* Whether the next pair is in memory already. */
static inline bool dump_read_ready(const struct dump_reader *reader)
{
    return reader->left > 0;
}

void dump_read_close(struct dump_reader *reader);

#endif
