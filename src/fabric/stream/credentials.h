/*
 * credentials.h - what a process shows to others over sockets and asks of them: the pool's secrets, and
 * how connections are protected.
 *
 *                         both ends on loopback       anything else
 *    nothing given        plain                       TLS 1.3 with the secret as its key
 *    tls.required         TLS with the secret         TLS with the secret
 *    tls.insecure         plain                       plain; a server takes TLS as well
 *    certificates given   TLS with certificates       TLS with certificates
 *
 * Each side decides for itself, by the addresses of the socket, and nobody tries anything weaker after
 * a failure: whoever is on the path can cut a connection, and cannot turn TLS off.
 *
 * A client with a `ca` takes a memory node that shows a certificate of that authority, and a member
 * that shows one or, having none, has the secret as the key of TLS. So members need no certificates of
 * their own to be called.
 *
 * The files are read when it is opened, and again by credentials_reload: what is known then is a *set*,
 * which never changes and lives while somebody holds it.
 */
#ifndef FABRIC_STREAM_CREDENTIALS_H
#define FABRIC_STREAM_CREDENTIALS_H

#include <stdatomic.h>

#include "fabric/stream/psk.h"

/* How a pool's sockets are protected; files in PEM form. A server needs cert and key, or neither; with
 * a ca it wants certificates of its clients, too. */
struct fabric_tls {
    bool required; /* on loopback, too */
    bool insecure; /* nowhere, unless the client wants it */
    const char *cert_file;
    const char *key_file;
    const char *ca_file;
};

struct credentials;

struct credential_set {
    atomic_uint holders;
    struct secrets *secrets;
    struct psks keys;
    SSL_CTX *server;     /* NULL: does not listen */
    SSL_CTX *to_memory;  /* NULL: a server alone, which connects to nobody */
    SSL_CTX *to_members; /* likewise */
};

/* Reads the files; `listens`: connections are accepted too. INVALID: options that contradict each other;
 * what secrets_load says; one line for a person in either case. Blocks. */
PANDO_MUST_CHECK enum pando_status credentials_open(const char *secret_file,
                                                    const struct fabric_tls *tls, bool listens,
                                                    struct credentials **out, char *error,
                                                    size_t error_bytes);
/* Nobody holds a set any more; NULL is OK. */
void credentials_close(struct credentials *credentials);

/* Reads the files again. OK: connections made from now on go by them, and `text` says what there is.
 * Otherwise nothing has changed, and `text` says why. Blocks; any thread. */
PANDO_MUST_CHECK enum pando_status credentials_reload(struct credentials *credentials, char *text,
                                                      size_t text_bytes);

/* What is known now. Held through a handshake, not for as long as a connection. Any thread. */
struct credential_set *credentials_hold(struct credentials *credentials);
void credentials_release(struct credential_set *set);

/* Whether a connected socket needs TLS: a client uses it then and only then, a server accepts nothing
 * else then. */
bool credentials_want_tls(const struct credentials *credentials, int fd);

/* Whether TLS goes by certificates on this side, and whether plain TCP was asked for. */
bool credentials_certified(const struct credentials *credentials);
bool credentials_insecure(const struct credentials *credentials);

#endif
