/*
 * control_fmt.h - messages on the control socket beside a window.
 *
 * A unix SOCK_SEQPACKET socket: one packet is one message, a header and `size` bytes of body. Both
 * ends are on one machine, so numbers are in its own byte order.
 *
 *  offset  size   header, 16 bytes
 *       0     2   type
 *       2     2   CALL: method; REPLY: status; otherwise 0
 *       4     4   size of the body
 *       8     8   tag, chosen by the client; its REPLY carries the same
 *
 *  type      body                        answer
 *  HELLO     struct shm_hello            REPLY with struct shm_welcome, or with the reason of the
 *                                        refusal and no body, after which the server hangs up
 *  CALL      up to 64 KiB                REPLY with up to 64 KiB
 *  FENCE     struct shm_fence            REPLY without a body
 *  GOODBYE   none                        none: this connection ends and its sender writes no more
 *
 * HELLO comes first and once. The header, the start of HELLO up to its version and the empty REPLY
 * that refuses it stay as they are in every later version.
 */
#ifndef FABRIC_SHM_CONTROL_FMT_H
#define FABRIC_SHM_CONTROL_FMT_H

#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"

#define SHM_CONTROL_MAGIC 0x4c5443444e4150u /* "PANDCTL" */

/* 4 had no passes in RETURN and SWEEP and no expected window in HELLO, 3 no figure of what waits in USAGE, 2 fences without tickets */
enum { SHM_CONTROL_VERSION = 5 };

enum shm_message_type {
    SHM_HELLO = 1,
    SHM_CALL,
    SHM_FENCE,
    SHM_GOODBYE,
    SHM_REPLY,
};

struct shm_header {
    uint16_t type;
    uint16_t code; /* CALL: method; REPLY: status */
    uint32_t size;
    uint64_t tag;
};
_Static_assert(sizeof(struct shm_header) == 16, "format");

struct shm_hello {
    uint64_t magic;
    uint32_t version;
    uint16_t member;
    uint16_t incarnation;
    uint64_t endpoint; /* the same again: this connection takes the place of the former one */
    uint64_t window;   /* the id of the window that is expected, 0 for any */
};
_Static_assert(sizeof(struct shm_hello) == 32, "format");
enum { SHM_HELLO_START = offsetof(struct shm_hello, member) }; /* the same in all versions */

/* Which file a window is, whatever its name: see shm_file_of. */
struct shm_file {
    uint64_t device;
    uint64_t number;
};

struct shm_welcome {
    uint32_t version;
    uint16_t node;
    uint16_t target;
    struct shm_file file; /* what the client has to find at the path it was told */
    uint64_t window;      /* the window's id */
};
_Static_assert(sizeof(struct shm_welcome) == 32, "format");

struct shm_fence {
    uint16_t member;
    uint16_t incarnation;
    uint32_t zero;
    uint8_t seal[FABRIC_SEAL_BYTES]; /* of the ticket */
};
_Static_assert(sizeof(struct shm_fence) == 24, "format");

enum { SHM_MESSAGE_MAX = sizeof(struct shm_header) + FABRIC_CALL_BYTES_MAX };

#endif
