/*
 * window_fmt.h - the first bytes of every window, which belong to the fabric. Nobody reaches them
 * by READ or WRITE; they survive a restart when the mapping does.
 *
 *  offset  size   what
 *       0     8   magic
 *       8     4   format version
 *      12     4   node id
 *      16     8   size of the host part, this header included
 *      24     8   size of the device part, which follows the host part in the mapping
 *      32     8   times it was opened
 *      40     8   window id: random, made when the window is formatted; never 0
 *    4096  8192   fences: 1,024 words; word m holds 1 << 16 | i when incarnation i and all
 *                 before it of member m are shut out, 0 when none ever was; moves on (window.c)
 *   12288 16384   attachments of shm clients: 1,024 x {process id 4, incarnation 4, start time 8}; a copy of
 *                 what the owner keeps in shm/attached_fmt.h
 *   28672    16   the machine's boot in which the attachments were made: its id, or zeroes
 *   28688  4080   unused
 *   32768         first byte of the users
 */
#ifndef FABRIC_WINDOW_WINDOW_FMT_H
#define FABRIC_WINDOW_WINDOW_FMT_H

#include <stdint.h>

#define WINDOW_MAGIC  0x4e49574f444e4150u /* "PANDOWIN" */
#define WINDOW_MAKING 0x4b414d4f444e4150u /* "PANDOMAK": a file that is becoming a window */

enum {
    WINDOW_VERSION = 3, /* 1 had no id, 2 no boot */
    WINDOW_FENCES = 4096,
    WINDOW_ATTACHMENTS = 12288,
    WINDOW_BOOT = 28672,
    WINDOW_FIRST = 32768,
};

struct window_header {
    uint64_t magic;
    uint32_t version;
    uint32_t node;
    uint64_t host_bytes;
    uint64_t device_bytes;
    uint64_t opened;
    uint64_t id;
};
_Static_assert(sizeof(struct window_header) == 48, "format");

struct window_attachment {
    uint32_t process;
    uint32_t incarnation;
    uint64_t start_time; /* field 22 of /proc/PID/stat, against reused process ids */
};
_Static_assert(sizeof(struct window_attachment) == 16, "format");

struct window_boot {
    uint8_t id[16];
};
_Static_assert(sizeof(struct window_boot) == 16, "format");

#endif
