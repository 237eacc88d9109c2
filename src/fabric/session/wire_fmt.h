/*
 * wire_fmt.h - frames between two processes, as far as the backends have them in common. Little
 * endian, everything aligned to 8.
 *
 * A frame is a header and a body:
 *     0  4  bytes of the body, a multiple of 8
 *     4  1  type
 *     5  1  zero
 *     6  2  LISTS, RESULTS: how many lists
 *
 * Handshake, the only frames before a peer is known (after TLS, where it is used); x and y bytes of
 * PROOF and WELCOME are the backend's (tcp has none):
 *     HELLO      c > s   0  8 magic   8  2 version  10 6 zero   16 32 nonce
 *     CHALLENGE  s > c   0 32 nonce
 *     PROOF      c > s   0  8 endpoint id   8  2 member  10  2 incarnation  12 4 zero
 *                       16  8 id of the window that is expected, 0 for any   24 x   24+x 32 proof
 *     WELCOME    s > c   0  2 status   2  2 node (refusal, if the status is not OK)
 *                        4  1 target kind   5 3 zero
 *                        8  8 window bytes  16 8 device bytes  24 8 window id  32 y  32+y 32 proof
 *     A proof is HMAC-SHA256 with the secret over a label that names protocol and side, both
 *     nonces, the TLS channel's binding, and all bytes before the proof. A WELCOME with a status
 *     other than OK ends the connection. What it says then is for people: nobody has proved it.
 * A connection's first byte tells plain frames from TLS: that of a HELLO is 48, of TLS 22.
 *
 * CALL    c > s   0 8 tag   8 2 method  10 2 zero  12 4 body bytes  16 body, padded
 * FENCE   c > s   0 8 tag   8 2 member  10 2 incarnation  12 4 zero  16 16 seal of the ticket
 * REPLY   s > c   0 8 tag   8 2 status  10 2 zero  12 4 body bytes  16 body, padded
 * PING    c > s, PONG s > c: no body
 */
#ifndef FABRIC_SESSION_WIRE_FMT_H
#define FABRIC_SESSION_WIRE_FMT_H

#include <stdint.h>

#include "fabric/fabric.h"

enum {
    WIRE_NONCE_BYTES = 32,
    WIRE_PROOF_BYTES = 32,

    WIRE_FRAME_HEADER = 8,
    WIRE_CALL_HEADER = 16,

    WIRE_HELLO_BYTES = 48,
    WIRE_CHALLENGE_BYTES = 32,
    WIRE_PROOF_FIXED = 24,
    WIRE_WELCOME_FIXED = 32,
    WIRE_EXTRA_MAX = 256, /* of the backend's bytes in PROOF or WELCOME */
    WIRE_FENCE_BYTES = 16 + FABRIC_SEAL_BYTES,

    WIRE_CALL_MAX = WIRE_CALL_HEADER + FABRIC_CALL_BYTES_MAX,
    WIRE_FRAME_MAX = 2 * (FABRIC_LIST_BYTES_MAX + 16 * 1024),
};

/* Why a server does not let somebody in, as far as it tells strangers. */
enum wire_refusal {
    WIRE_REFUSED,             /* the status says it all */
    WIRE_REFUSED_SECRET,      /* the proof is of none of its secrets */
    WIRE_REFUSED_PLAIN,       /* it wants TLS, with the secret as the key */
    WIRE_REFUSED_UNCERTIFIED, /* it wants TLS with certificates */
    WIRE_REFUSED_WINDOW,      /* its window is not the one that is expected */
    WIRE_REFUSALS,
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
