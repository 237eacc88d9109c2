/*
 * dump_part.h - the beginning of a file of `pando dump` that was cut off, to go on with.
 */
#ifndef CMD_DUMP_PART_H
#define CMD_DUMP_PART_H

#include "store/dump.h"

/* How much of it is whole: up to the end of a block, or of a long value's last part. */
struct dump_part {
    uint64_t offset; /* 0: nothing */
    uint32_t crc;    /* CRC32C of the bytes before */
    struct dump_sums sums;
    uint8_t last[STORE_KEY_MAX]; /* the last key, if there is any */
    size_t last_size;
    bool any;
};

/* Reads it from its beginning. A file of another table, or of one with other sizes, counts as nothing; so does one
 * that is complete. On a task. */
void dump_part_scan_co(int fd, const struct dump_table *table, struct dump_part *out);

#endif
