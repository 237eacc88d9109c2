/*
 * wire_fmt.h - lists and their results on the wire; other frames are in session/wire_fmt.h.
 *
 * LISTS   c > s, each list:
 *     0  4  bytes of this list, header included, a multiple of 8
 *     4  2  operations
 *     6  2  tag: the low bits of the list's number on this connection
 *     then each operation: 0 6 offset   6 1 kind   7 1 zero   8 4 size   12 4 zero
 *     followed by: WRITE its bytes, padded with zeroes to 8; CAS expected 8, desired 8;
 *     FAA addend 8
 * RESULTS s > c, in the order of the lists:
 *     0  4  bytes of this result, header included, a multiple of 8
 *     4  2  status
 *     6  2  tag
 *     then, if the status is OK: READ its bytes, padded to 8; CAS and FAA the old word
 */
#ifndef FABRIC_TCP_WIRE_FMT_H
#define FABRIC_TCP_WIRE_FMT_H

#include "fabric/session/wire_fmt.h"

#define WIRE_MAGIC 0x00504354444e4150u /* "PANDTCP" */

enum {
    /* 5 had no passes in RETURN and SWEEP and no expected window in PROOF, 4 no figure of what waits
     * in USAGE, 3 fences without tickets */
    WIRE_VERSION = 6,
    WIRE_LIST_HEADER = 8,
    WIRE_OP = 16,

    /* Each operation: its 16 bytes, up to 16 of operands or 7 of padding. */
    WIRE_LIST_MAX = WIRE_LIST_HEADER + FABRIC_LIST_OPS_MAX * 2 * WIRE_OP + FABRIC_LIST_BYTES_MAX,
};
_Static_assert(WIRE_FRAME_MAX >= 2 * WIRE_LIST_MAX,
               "a frame may carry a largest list behind small ones");

#endif
