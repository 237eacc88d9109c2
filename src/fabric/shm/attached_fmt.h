/*
 * attached_fmt.h - the file in which a window's owner keeps who is attached to it, for its next life. All
 * members can write to the window; this file only its owner maps.
 *
 *  offset  size   what
 *       0     8   magic; while it is made another one, which may be all that there is yet
 *       8     4   format version
 *      12     4   0
 *      16     8   the window's id
 *      24     8   0
 *      32    16   the machine's boot in which the attachments were made: its id, or zeroes
 *      48    16   0
 *      64 16384   attachments, by member: 1,024 x {process id 4, incarnation 4, start time 8}
 */
#ifndef FABRIC_SHM_ATTACHED_FMT_H
#define FABRIC_SHM_ATTACHED_FMT_H

#include "fabric/fabric.h"
#include "fabric/window/window_fmt.h"

#define ATTACHED_MAGIC  0x5454414f444e4150u /* "PANDOATT" */
#define ATTACHED_MAKING 0x4d54414f444e4150u /* "PANDOATM" */

enum { ATTACHED_VERSION = 1 };

struct shm_attached_file {
    uint64_t magic;
    uint32_t version;
    uint32_t zero;
    uint64_t window;
    uint64_t unused;
    struct window_boot boot;
    uint64_t unused_more[2];
    struct window_attachment members[FABRIC_MEMBERS_MAX];
};
_Static_assert(sizeof(struct shm_attached_file) == 64 + 16384, "format");

#endif
