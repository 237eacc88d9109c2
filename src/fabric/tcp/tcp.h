/*
 * tcp.h - the fabric over TCP: lists travel in frames to a server thread of the target, which
 * executes them on its window. fabric_tcp_open binds the port, fabric_tcp_start begins to serve.
 */
#ifndef FABRIC_TCP_TCP_H
#define FABRIC_TCP_TCP_H

#include "fabric/socket_options.h"

/* Maps the window and binds the port. Errors as one line for a person. Not from a task. */
PANDO_MUST_CHECK enum pando_status fabric_tcp_open(const struct fabric_socket_options *options,
                                                   struct fabric **out, char *error,
                                                   size_t error_bytes);

/* Begins to accept connections: after fabric_serve and whatever else has to be ready. */
PANDO_MUST_CHECK enum pando_status fabric_tcp_start(struct fabric *fabric);

/* True when the window existed before and its contents were kept. */
bool fabric_tcp_reused(const struct fabric *fabric);

/* Any thread, after it was started. */
void fabric_tcp_served(const struct fabric *fabric, struct fabric_served *out);

#endif
