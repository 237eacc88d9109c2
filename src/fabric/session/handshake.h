/*
 * handshake.h - how two processes prove to each other that they know the secret: the bytes, for
 * both sides. wire_fmt.h has their layout.
 */
#ifndef FABRIC_SESSION_HANDSHAKE_H
#define FABRIC_SESSION_HANDSHAKE_H

#include "fabric/session/wire.h"
#include "fabric/stream/credentials.h"

/* What a backend speaks. */
struct handshake_protocol {
    uint64_t magic;
    uint16_t version;
    const char *client_label, *server_label; /* of the proofs */
    uint32_t proof_extra, welcome_extra;     /* the backend's own bytes, multiples of 8 */
};

struct handshake {
    const struct handshake_protocol *protocol;
    const struct secrets *secrets;
    unsigned secret; /* the one in use: a client's first, a server's that the client has proved */
    uint8_t client_nonce[WIRE_NONCE_BYTES];
    uint8_t server_nonce[WIRE_NONCE_BYTES];
    uint8_t binding[STREAM_BINDING_BYTES];
};

static inline uint32_t handshake_proof_bytes(const struct handshake_protocol *protocol)
{
    return WIRE_PROOF_FIXED + protocol->proof_extra + WIRE_PROOF_BYTES;
}

static inline uint32_t handshake_welcome_bytes(const struct handshake_protocol *protocol)
{
    return WIRE_WELCOME_FIXED + protocol->welcome_extra + WIRE_PROOF_BYTES;
}

enum { HANDSHAKE_BODY_MAX = WIRE_WELCOME_FIXED + WIRE_EXTRA_MAX + WIRE_PROOF_BYTES };

/* Makes the client's nonce. */
PANDO_MUST_CHECK enum pando_status handshake_put_hello(struct handshake *handshake, uint8_t *body);

/* DENIED: something else; VERSION: a version this program does not speak. */
PANDO_MUST_CHECK enum pando_status handshake_get_hello(struct handshake *handshake,
                                                       const uint8_t *body);

/* Who a client says it is, and what it expects. */
struct handshake_claim {
    uint64_t endpoint_id;
    struct fabric_identity identity;
    uint64_t window; /* that it expects, 0 for any */
    uint8_t extra[WIRE_EXTRA_MAX];
};

PANDO_MUST_CHECK enum pando_status handshake_put_proof(const struct handshake *handshake,
                                                       const struct handshake_claim *claim,
                                                       uint8_t *body);
/* DENIED: none of the secrets. */
PANDO_MUST_CHECK enum pando_status
handshake_get_proof(struct handshake *handshake, const uint8_t *body, struct handshake_claim *out);

/* What a server says of itself. Nothing but the status counts when that is not OK, and the refusal,
 * for a message to a person: nobody has proved it. */
struct handshake_welcome {
    enum pando_status status;
    enum wire_refusal refusal;
    uint16_t node;
    enum fabric_target target;
    uint64_t window_bytes, device_bytes, window;
    uint8_t extra[WIRE_EXTRA_MAX];
};

PANDO_MUST_CHECK enum pando_status handshake_put_welcome(const struct handshake *handshake,
                                                         const struct handshake_welcome *welcome,
                                                         uint8_t *body);
/* The status in the frame, if that is not OK; DENIED when the server does not know the secret. */
PANDO_MUST_CHECK enum pando_status handshake_get_welcome(const struct handshake *handshake,
                                                         const uint8_t *body,
                                                         struct handshake_welcome *out);

#endif
