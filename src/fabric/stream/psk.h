/*
 * psk.h - a pool's secrets as keys of TLS 1.3, in place of certificates: whoever completes the
 * handshake knows one of them. Each connection has an ephemeral key exchange besides (psk_dhe_ke), so
 * a secret that becomes known later does not open what was recorded.
 *
 * What travels in the clear is a name of the secret, made of it one-way. A secret that can be guessed
 * can be tried out against a recorded handshake; random ones cannot.
 */
#ifndef FABRIC_STREAM_PSK_H
#define FABRIC_STREAM_PSK_H

#include "fabric/stream/secret.h"
#include "fabric/stream/stream.h"

enum { PSK_KEY_BYTES = 32, PSK_NAME_BYTES = 32 };

struct psk {
    uint8_t name[PSK_NAME_BYTES]; /* the identity that is sent */
    uint8_t key[PSK_KEY_BYTES];
};

struct psks {
    unsigned count;
    struct psk all[SECRETS_MAX];
};

PANDO_MUST_CHECK enum pando_status psks_make(const struct secrets *secrets, struct psks *out);
void psks_forget(struct psks *psks);

/* A client offers the first, a server accepts all. The keys outlive all handshakes of the context. */
PANDO_MUST_CHECK enum pando_status psks_use(SSL_CTX *context, enum tls_side side,
                                            const struct psks *psks);

#endif
