/*
 * cursor_fmt.h - the table "server.cursors".
 *
 * key "tag": 8 bytes, little endian: the last server number given out
 * key of 4 bytes, the server's number 2, its slot 2 (big endian): a cursor
 *    0  8  its count
 *    8  8  when it was written, unix milliseconds
 *   16  4  the database
 *   20     the last key
 */
#ifndef SERVER_CURSOR_FMT_H
#define SERVER_CURSOR_FMT_H

#include <stdint.h>

#define CURSOR_TABLE "server.cursors"

enum {
    CURSOR_TAG_BITS = 13,
    CURSOR_COUNT_BITS = 40,
    CURSOR_KEY_BYTES = 4,
    CURSOR_LIFE_MS = 3600 * 1000,
};

struct cursor_head {
    uint64_t count;
    uint64_t written_ms;
    uint32_t database;
};

enum { CURSOR_HEAD_BYTES = 20 };

#endif
