/*
 * verbs.h - the fabric over RDMA (libibverbs): reliable connected queue pairs, set up over an
 * authenticated socket. The target's processor has no part in lists. README.md explains the choices.
 *
 * Always declared. In a program built without libibverbs fabric_verbs_open says so.
 */
#ifndef FABRIC_VERBS_VERBS_H
#define FABRIC_VERBS_VERBS_H

#include "fabric/socket_options.h"

/* Opens the device, maps and registers the window, binds the port. Errors as one line for a person.
 * Not from a task. */
PANDO_MUST_CHECK enum pando_status fabric_verbs_open(const struct fabric_socket_options *options,
                                                     struct fabric **out, char *error,
                                                     size_t error_bytes);

/* Begins to accept connections: after fabric_serve and whatever else has to be ready. */
PANDO_MUST_CHECK enum pando_status fabric_verbs_start(struct fabric *fabric);

/* True when the window existed before and its contents were kept. */
bool fabric_verbs_reused(const struct fabric *fabric);

/* "rxe0 port 1, RoCEv2, GID 1 10.0.0.1, MTU 1024". Lives as long as the fabric. */
const char *fabric_verbs_device(const struct fabric *fabric);

/* Whether this process's lock table lies in the card's own memory. */
bool fabric_verbs_on_chip(const struct fabric *fabric);

/* The same of the node at the other end. */
bool fabric_verbs_peer_on_chip(const struct fabric_endpoint *endpoint);

/* How many queue pairs this process has made. Any thread. */
uint64_t fabric_verbs_pairs_made(const struct fabric *fabric);

/* What became of an endpoint's lists. */
struct fabric_verbs_counters {
    uint64_t lists;
    uint64_t work_requests;
    uint64_t doorbells;   /* posts to the card */
    uint64_t signalled;   /* work requests that ask for a completion */
    uint64_t completions; /* that came */
    uint64_t inlined;     /* WRITEs whose bytes went with the work request */
    uint64_t fences;      /* READs that waited for an atomic before them */
    uint64_t waits;       /* lists that found no room in the queue or no buffer at first */
};
const struct fabric_verbs_counters *fabric_verbs_counters(const struct fabric_endpoint *endpoint);

#endif
