/*
 * handshake.c - the proofs both sides give. Each side's label keeps one from sending the other its
 * own proof back; the binding keeps a proof from being carried to another TLS channel.
 */
#include "fabric/tcp/tcp_int.h"

enum pando_status handshake_proof(const struct secret *secret, enum handshake_side side,
                                  const struct handshake *handshake, struct slice said,
                                  uint8_t out[WIRE_PROOF_BYTES])
{
    const struct slice parts[] = {
        slice_of_text(side == HANDSHAKE_CLIENT ? "pando tcp 1 client" : "pando tcp 1 server"),
        slice_of(handshake->client_nonce, sizeof(handshake->client_nonce)),
        slice_of(handshake->server_nonce, sizeof(handshake->server_nonce)),
        slice_of(handshake->binding, sizeof(handshake->binding)),
        said,
    };
    return secret_proof(secret, parts, sizeof(parts) / sizeof(parts[0]), out);
}
