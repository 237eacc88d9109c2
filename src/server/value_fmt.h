/*
 * value_fmt.h - values of the numbered databases as they are stored: the bytes a client set, preceded
 * by a header only where one is needed. Memory per key counts, and most values do not expire.
 *
 *   first byte 0x00 .. 0xf7, or none   the value itself
 *   0xf8                               1  then the value: one that begins with 0xf8 .. 0xff
 *   0xf9                               1  then 8 bytes: when it expires, unix milliseconds, little
 *                                      endian; then the value
 *   0xfa .. 0xff                       not used: of a later version
 *
 * Tables of RI commands have no header at all.
 */
#ifndef SERVER_VALUE_FMT_H
#define SERVER_VALUE_FMT_H

enum {
    VALUE_MARK_FIRST = 0xf8,
    VALUE_MARK_ESCAPED = 0xf8,
    VALUE_MARK_EXPIRES = 0xf9,
    VALUE_HEAD_ESCAPED = 1,
    VALUE_HEAD_EXPIRES = 9,
    VALUE_HEAD_MAX = 9,
};

#endif
