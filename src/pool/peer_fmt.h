/*
 * peer_fmt.h - calls between members. They are all one method of the fabric; what is called for is
 * in the request, whose bytes come from any member and are checked like everything from outside.
 *
 *   request    0 4 magic and version   4 2 table         6 2 method
 *              8 2 member called      10 2 incarnation   12 4 zero    16 the caller's body
 *   reply      0 4 magic and version   4 2 status         6 2 zero     8 the answer's body
 *
 * Table 0 is no table: what is called for is the pool's own (enum pool_own_method), without bodies.
 *
 * The window of a member: its first 32 KiB are the fabric's (window_fmt.h), the next 32 KiB the
 * pool's, which uses nothing of them yet. All behind these are the engines', in slabs of 64 KiB
 * that lie at the same offsets in every window.
 *
 * The reply has a status of its own: what the fabric reports is then always the fabric's, and FENCED
 * on the other side is not taken for our own.
 */
#ifndef POOL_PEER_FMT_H
#define POOL_PEER_FMT_H

#include "fabric/fabric.h"

enum {
    POOL_PEER_MAGIC = 0x31726550, /* "Per1" */
    POOL_PEER_METHOD = 0x100,     /* above all of enum pool_method */
    POOL_COMPUTE_FIRST = 0x8000,  /* node ids of members' windows: this and their number */
    POOL_SLAB_BYTES = 64 * 1024,
    POOL_SLABS_FIRST = 64 * 1024, /* offset of the first slab in a member's window */
};

enum pool_own_method {
    POOL_OWN_BIND = 1, /* OK: this endpoint leads to the member called, in that incarnation */
    POOL_OWN_FENCES,   /* look for members that have to be fenced at the own window */
};

struct pool_peer_request {
    uint32_t magic;
    uint16_t table;
    uint16_t method;
    uint16_t member;
    uint16_t incarnation;
    uint32_t zero;
};
_Static_assert(sizeof(struct pool_peer_request) == 16, "format");

struct pool_peer_reply {
    uint32_t magic;
    uint16_t status;
    uint16_t zero;
};
_Static_assert(sizeof(struct pool_peer_reply) == 8, "format");

#endif
