/*
 * absent.c - the verbs backend of a program that was built without libibverbs: one clear line.
 */
#include <stdio.h>

#include "base/assert.h"
#include "fabric/verbs/verbs.h"

enum pando_status fabric_verbs_open(const struct fabric_socket_options *options,
                                    struct fabric **out, char *error, size_t error_bytes)
{
    (void)options;
    (void)out;
    snprintf(error, error_bytes,
             "this program was built without RDMA; install libibverbs-dev and build it again, or "
             "use tcp: instead");
    return PANDO_UNSUPPORTED;
}

/* There is never a fabric for any of these. */

enum pando_status fabric_verbs_start(struct fabric *fabric)
{
    (void)fabric;
    return PANDO_UNSUPPORTED;
}

bool fabric_verbs_reused(const struct fabric *fabric)
{
    (void)fabric;
    return false;
}

const char *fabric_verbs_device(const struct fabric *fabric)
{
    (void)fabric;
    return "";
}

uint64_t fabric_verbs_pairs_made(const struct fabric *fabric)
{
    (void)fabric;
    return 0;
}

bool fabric_verbs_on_chip(const struct fabric *fabric)
{
    (void)fabric;
    return false;
}

bool fabric_verbs_peer_on_chip(const struct fabric_endpoint *endpoint)
{
    (void)endpoint;
    return false;
}

const struct fabric_verbs_counters *fabric_verbs_counters(const struct fabric_endpoint *endpoint)
{
    static const struct fabric_verbs_counters none;
    (void)endpoint;
    return &none;
}
