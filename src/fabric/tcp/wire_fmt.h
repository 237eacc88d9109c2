/*
 * wire_fmt.h - the bytes between two processes. Little endian, everything aligned to 8.
 *
 * A frame is a header and a body:
 *     0  4  bytes of the body, a multiple of 8
 *     4  1  type
 *     5  1  zero
 *     6  2  LISTS, RESULTS: how many lists
 *
 * Handshake, the only frames before a peer is known (after TLS, where it is used):
 *     HELLO      c > s   0  8 magic   8  2 version  10 6 zero   16 32 nonce
 *     CHALLENGE  s > c   0 32 nonce
 *     PROOF      c > s   0  8 endpoint id   8  2 member  10  2 incarnation  12 4 zero   16 32 proof
 *     WELCOME    s > c   0  2 status   2  2 node   4  1 target kind   5 3 zero
 *                        8  8 window bytes  16 8 device bytes  24 32 proof
 *     A proof is HMAC-SHA256 with the secret over a label that names the side, both nonces, the TLS
 *     channel's binding, and the 16 bytes before the client's or the 24 before the server's proof.
 *     A WELCOME with a status other than OK ends the connection.
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
 *
 * CALL    c > s   0 8 tag   8 2 method  10 2 zero  12 4 body bytes  16 body, padded FENCE   c > s
 * 0 8 tag   8 2 member  10 2 incarnation  12 4 zero REPLY   s > c   0 8 tag   8 2 status  10 2 zero
 * 12 4 body bytes  16 body, padded PING    c > s, PONG s > c: no body
 */
#ifndef FABRIC_TCP_WIRE_FMT_H
#define FABRIC_TCP_WIRE_FMT_H

#include <stdint.h>

#include "fabric/fabric.h"

#define WIRE_MAGIC 0x00504354444e4150u /* "PANDTCP" */

enum {
    WIRE_VERSION = 1,
    WIRE_NONCE_BYTES = 32,
    WIRE_PROOF_BYTES = 32,

    WIRE_FRAME_HEADER = 8,
    WIRE_LIST_HEADER = 8,
    WIRE_OP = 16,
    WIRE_CALL_HEADER = 16,

    WIRE_HELLO_BYTES = 48,
    WIRE_CHALLENGE_BYTES = 32,
    WIRE_PROOF_BODY_BYTES = 48,
    WIRE_WELCOME_BYTES = 56,
    WIRE_FENCE_BYTES = 16,

    /* Each operation: its 16 bytes, up to 16 of operands or 7 of padding. */
    WIRE_LIST_MAX = WIRE_LIST_HEADER + FABRIC_LIST_OPS_MAX * 2 * WIRE_OP + FABRIC_LIST_BYTES_MAX,
    WIRE_CALL_MAX = WIRE_CALL_HEADER + FABRIC_CALL_BYTES_MAX,
    WIRE_FRAME_MAX = 2 * WIRE_LIST_MAX, /* a frame may carry a largest list behind small ones */
};

enum wire_type {
    WIRE_HELLO = 1,
    WIRE_CHALLENGE,
    WIRE_PROOF,
    WIRE_WELCOME,
    WIRE_LISTS,
    WIRE_RESULTS,
    WIRE_CALL,
    WIRE_FENCE,
    WIRE_REPLY,
    WIRE_PING,
    WIRE_PONG,
};

#endif
