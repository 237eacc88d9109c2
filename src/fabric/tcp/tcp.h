/*
 * tcp.h - the fabric over TCP: lists travel in frames to a server thread of the target, which
 * executes them on its window. fabric_tcp_open binds the port, fabric_tcp_start begins to serve.
 */
#ifndef FABRIC_TCP_TCP_H
#define FABRIC_TCP_TCP_H

#include "fabric/fabric.h"
#include "fabric/stream/stream.h"
#include "fabric/window/window.h"

struct fabric_tcp_options {
    uint16_t node;
    enum fabric_target target;
    const char *listen;      /* "host:port", port 0 for any; NULL: a client only */
    const char *advertise;   /* what others are told; NULL: the listening address itself */
    unsigned threads;        /* of the server; 0 for one */
    const char *secret_file; /* both sides prove that they know its contents */
    struct fabric_tls tls;
    uint64_t timeout_ns; /* no answer for that long breaks an endpoint; 0 for the default of 5 s */

    /* The window: a file kept over restarts, or NULL for memory of this process. */
    const char *window_path;
    uint64_t host_bytes;
    uint64_t device_bytes;
};

/* Maps the window and binds the port. Errors as one line for a person. Not from a task. */
PANDO_MUST_CHECK enum pando_status fabric_tcp_open(const struct fabric_tcp_options *options,
                                                   struct fabric **out, char *error,
                                                   size_t error_bytes);

/* Begins to accept connections: after fabric_serve and whatever else has to be ready. */
PANDO_MUST_CHECK enum pando_status fabric_tcp_start(struct fabric *fabric);

/* True when the window existed before and its contents were kept. */
bool fabric_tcp_reused(const struct fabric *fabric);

/* Any thread, after it was started. */
void fabric_tcp_served(const struct fabric *fabric, struct fabric_served *out);

#endif
