/*
 * socket_fabric.h - a process's part in a fabric whose connections begin as sockets (tcp, verbs): who
 * it is, its window, its secrets, where its peers are, and its server, if it listens.
 */
#ifndef FABRIC_SESSION_SOCKET_FABRIC_H
#define FABRIC_SESSION_SOCKET_FABRIC_H

#include "fabric/fabric_int.h"
#include "fabric/session/connect.h"
#include "fabric/session/session.h"
#include "fabric/socket_options.h"

/* First member of a backend's own, or all of it. */
struct socket_fabric {
    struct fabric base;
    const struct handshake_protocol *protocol;
    struct window window; /* base NULL: a client only */
    struct credentials *credentials;
    uint64_t timeout_ns; /* no answer for that long breaks an endpoint */
    struct client_peers peers;
    struct connection_server *server; /* NULL: does not listen */
};

static inline struct socket_fabric *socket_fabric_of(struct fabric *fabric)
{
    return container_of(fabric, struct socket_fabric, base);
}

/* Fills in a zeroed one, and reads its secrets. Errors as one line for a person, with the backend's
 * name. It is to be ended by socket_fabric_fini in any case. */
PANDO_MUST_CHECK enum pando_status
socket_fabric_init(struct socket_fabric *fabric, const struct fabric_ops *ops,
                   const struct handshake_protocol *protocol, const char *name,
                   const struct fabric_socket_options *options, char *error, size_t error_bytes);

/* Binds the port and maps the window, as far as the options have them: the port first, so that one in
 * use leaves no new file behind. */
PANDO_MUST_CHECK enum pando_status socket_fabric_listen(struct socket_fabric *fabric,
                                                        const struct connection_ops *ops,
                                                        const struct fabric_socket_options *options,
                                                        char *error, size_t error_bytes);

/* Ends the server, before anything that its connections use. */
void socket_fabric_stop(struct socket_fabric *fabric);
void socket_fabric_fini(struct socket_fabric *fabric);

/* Begins to accept connections. */
PANDO_MUST_CHECK enum pando_status socket_fabric_start(struct fabric *fabric);

/* True when the window existed before and its contents were kept. */
bool socket_fabric_reused(const struct fabric *fabric);

/* For tables of operations. */
enum pando_status socket_fabric_renew_co(struct fabric *fabric);
enum pando_status socket_fabric_fence_own_co(struct fabric *fabric, struct fabric_identity dead);
enum pando_status socket_fabric_add_peer(struct fabric *fabric, uint16_t node,
                                         enum fabric_target target, const char *location);
enum pando_status socket_fabric_reload(struct fabric *fabric, char *text, size_t text_bytes);
void socket_fabric_trouble(struct fabric *fabric, uint16_t node, char *out, size_t size);

/* The fence_co of an endpoint to the process's own window. */
enum pando_status socket_fabric_self_fence_co(struct fabric_endpoint *endpoint,
                                              const struct fabric_ticket *ticket);

#endif
