/*
 * outgoing.h - long values on their way to a client.
 */
#ifndef SERVER_NET_OUTGOING_H
#define SERVER_NET_OUTGOING_H

#include "server/net/client.h"

/* Part of a value, as a bulk string, sent while it is read; `skip` bytes of the stored value come before
 * it. If it is gone before all was sent the connection ends. STALE: it is gone, nothing was replied. */
PANDO_MUST_CHECK enum pando_status long_send_co(struct command_call *call,
                                                struct store_table *table, struct slice key,
                                                uint64_t reference, uint64_t skip, uint64_t size);

#endif
