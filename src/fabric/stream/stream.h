/*
 * stream.h - a non-blocking byte stream over a socket, plain or TLS 1.3, and sockets to make one
 * of.
 */
#ifndef FABRIC_STREAM_STREAM_H
#define FABRIC_STREAM_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "pando/pando.h"

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;

/* What TLS failed of, as far as one side can tell. */
enum tls_trouble {
    TLS_NO_TROUBLE,
    TLS_CUT,                 /* the connection ended in the middle */
    TLS_NOT_SPOKEN,          /* what came was no TLS 1.3 */
    TLS_NOTHING_SHARED,      /* no secret and no certificate that both sides know */
    TLS_AUTHORITY_UNKNOWN,   /* the other's certificate is signed by nobody trusted here */
    TLS_NAME_WRONG,          /* it is for another host */
    TLS_OUT_OF_DATE,         /* it has expired, or is not valid yet */
    TLS_CERTIFICATE_WANTED,  /* the server wants a certificate of its clients */
    TLS_CERTIFICATE_REFUSED, /* the other side does not trust the certificate of this one */
    TLS_FAILED,              /* something else */
};

struct stream {
    int fd;
    enum tls_trouble trouble; /* of the last call that failed */
    SSL *ssl;                 /* NULL: plain */
};

/* Bytes read or written; 0: would block; negative: closed or broken. */
ssize_t stream_read(struct stream *stream, void *to, size_t size);
ssize_t stream_write(struct stream *stream, const void *from, size_t size);

void stream_close(struct stream *stream);

/* ---- TLS ------------------------------------------------------------------------------------- */

enum tls_side { TLS_SERVER, TLS_CLIENT };

/* The first byte of a TLS connection. */
enum { TLS_FIRST_BYTE = 0x16 };

/* A context for many streams, from PEM files. A client needs `ca`, a server `cert` and `key`; each
 * may have the other's too, for certificates on both sides. NULL and one line in `error` on
 * failure. */
SSL_CTX *tls_context_create(enum tls_side side, const char *cert, const char *key, const char *ca,
                            char *error, size_t error_bytes);

void tls_context_destroy(SSL_CTX *context);

/* Reads the context's files again, for streams that begin from now on; open ones go on as they are.
 * INVALID with one line for a person: the former certificates stay. NULL has none. Any thread; the
 * files are read on it. */
PANDO_MUST_CHECK enum pando_status tls_context_reload(SSL_CTX *context, char *error,
                                                      size_t error_bytes);

/* Puts TLS on a connected socket. `host` is the name the server's certificate must have. From the
 * first time on the process ignores SIGPIPE, unless it has a handler for it. */
PANDO_MUST_CHECK enum pando_status tls_attach(struct stream *stream, SSL_CTX *context,
                                              enum tls_side side, const char *host);

/* The same with that very context, whatever it came from; it may be freed afterwards. */
PANDO_MUST_CHECK enum pando_status tls_attach_context(struct stream *stream, SSL_CTX *context,
                                                      enum tls_side side, const char *host);

/* Goes on with the handshake: OK, AGAIN (wait until the socket is ready) or DENIED, and then
 * stream->trouble says why. */
PANDO_MUST_CHECK enum pando_status tls_handshake(struct stream *stream);

/* A few words: "no secret that both sides know". */
const char *tls_trouble_text(enum tls_trouble trouble);

/* 32 bytes only the two ends of this very channel know; zeroes for a plain one. */
enum { STREAM_BINDING_BYTES = 32 };
PANDO_MUST_CHECK enum pando_status stream_binding(struct stream *stream,
                                                  uint8_t out[STREAM_BINDING_BYTES]);

/* ---- sockets --------------------------------------------------------------------------------- */

struct socket_address {
    struct sockaddr_storage storage;
    socklen_t size;
};

/* "host:port". Looks names up, which may block. */
PANDO_MUST_CHECK enum pando_status socket_resolve(const char *host_port, bool passive,
                                                  struct socket_address *out, char *error,
                                                  size_t error_bytes);

/* "host:0" with this machine's own address from which that place is reached; nothing is sent there.
 * Looks names up, which may block. BROKEN: no way leads there. */
PANDO_MUST_CHECK enum pando_status socket_route(const char *host_port, char *out, size_t size);

/* Whether a connection there would have loopback addresses at both ends; false also if no way leads
 * there. Looks names up, which may block. */
bool socket_routes_on_loopback(const char *host_port);

/* A listening, non-blocking socket. BUSY: the port is in use. */
PANDO_MUST_CHECK enum pando_status socket_listen(const struct socket_address *address,
                                                 const char *name, int *out_fd, char *error,
                                                 size_t error_bytes);

/* A connection that waits at a listening socket, non-blocking. Negative: SOCKET_NONE, or SOCKET_LIMIT
 * when descriptors or memory are gone (it goes on waiting there). */
enum { SOCKET_NONE = -1, SOCKET_LIMIT = -2 };
int socket_accept(int listener);

/* No further bytes in either direction; the descriptor stays. */
void socket_shutdown(int fd);

/* The other side reads the end of what was written; it may go on sending. */
void socket_end_writing(int fd);

/* The first byte that waits to be read, which stays there; negative: none, yet or any more. */
int socket_peek(int fd);

/* "host:port" of the socket's own address, and of the other side's. */
void socket_name(int fd, char *out, size_t size);
void socket_peer_name(int fd, char *out, size_t size);

/* Whether the other side is this machine. */
bool socket_peer_is_local(int fd);

/* Whether both ends have loopback addresses: nobody but this machine sees what is sent. */
bool socket_is_loopback(int fd);

/* Whether only this machine can connect to it. */
bool socket_listens_on_loopback(int listener);

/* Where the other side is, as one number: its IPv4 address, or the 64 bits that name its IPv6 network,
 * of which one machine has as many addresses as it likes. 0: unknown. */
uint64_t socket_origin(int fd);

/* Begins to connect: writable when done; then socket_error is 0 or an errno. Negative on failure.
 */
int socket_connect(const struct socket_address *address);
int socket_error(int fd);

/* No delay, keep-alive, and an error when sent bytes stay unanswered for `timeout_ms`. */
void socket_tune(int fd, unsigned timeout_ms);

#endif
