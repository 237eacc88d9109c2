/*
 * handshake.c - the proofs both sides give. Each side's label keeps one from sending the other its
 * own proof back; the binding keeps a proof from being carried to another TLS channel.
 */
#include "fabric/session/handshake.h"

#include "base/assert.h"

enum side { CLIENT, SERVER };

static enum pando_status make_proof(const struct handshake *handshake, enum side side,
                                    struct slice said, uint8_t out[WIRE_PROOF_BYTES])
{
    const struct handshake_protocol *protocol = handshake->protocol;
    const struct slice parts[] = {
        slice_of_text(side == CLIENT ? protocol->client_label : protocol->server_label),
        slice_of(handshake->client_nonce, sizeof(handshake->client_nonce)),
        slice_of(handshake->server_nonce, sizeof(handshake->server_nonce)),
        slice_of(handshake->binding, sizeof(handshake->binding)),
        said,
    };
    return secret_proof(&handshake->secrets->all[handshake->secret], parts,
                        sizeof(parts) / sizeof(parts[0]), out);
}

static enum pando_status check_proof(const struct handshake *handshake, enum side side,
                                     struct slice said, const uint8_t proof[WIRE_PROOF_BYTES])
{
    uint8_t expected[WIRE_PROOF_BYTES];
    enum pando_status status = make_proof(handshake, side, said, expected);
    if (status != PANDO_OK)
        return status;
    return secret_proof_equal(expected, proof) ? PANDO_OK : PANDO_DENIED;
}

enum pando_status handshake_put_hello(struct handshake *handshake, uint8_t *body)
{
    enum pando_status status = secret_nonce(handshake->client_nonce, WIRE_NONCE_BYTES);
    if (status != PANDO_OK)
        return status;
    memset(body, 0, WIRE_HELLO_BYTES);
    wire_put_u64(body, handshake->protocol->magic);
    wire_put_u16(body + 8, handshake->protocol->version);
    memcpy(body + 16, handshake->client_nonce, WIRE_NONCE_BYTES);
    return PANDO_OK;
}

enum pando_status handshake_get_hello(struct handshake *handshake, const uint8_t *body)
{
    if (wire_get_u64(body) != handshake->protocol->magic)
        return PANDO_DENIED;
    if (wire_get_u16(body + 8) != handshake->protocol->version)
        return PANDO_VERSION;
    memcpy(handshake->client_nonce, body + 16, WIRE_NONCE_BYTES);
    return PANDO_OK;
}

enum pando_status handshake_put_proof(const struct handshake *handshake,
                                      const struct handshake_claim *claim, uint8_t *body)
{
    uint32_t extra = handshake->protocol->proof_extra;
    pando_assert(extra <= WIRE_EXTRA_MAX);
    wire_put_u64(body, claim->endpoint_id);
    wire_put_u16(body + 8, claim->identity.member);
    wire_put_u16(body + 10, claim->identity.incarnation);
    wire_put_u32(body + 12, 0);
    wire_put_u64(body + 16, claim->window);
    memcpy(body + WIRE_PROOF_FIXED, claim->extra, extra);
    return make_proof(handshake, CLIENT, slice_of(body, WIRE_PROOF_FIXED + extra),
                      body + WIRE_PROOF_FIXED + extra);
}

enum pando_status handshake_get_proof(struct handshake *handshake, const uint8_t *body,
                                      struct handshake_claim *out)
{
    uint32_t extra = handshake->protocol->proof_extra;
    enum pando_status status = PANDO_DENIED;
    for (unsigned i = 0; status == PANDO_DENIED && i < handshake->secrets->count; i++) {
        handshake->secret = i;
        status = check_proof(handshake, CLIENT, slice_of(body, WIRE_PROOF_FIXED + extra),
                             body + WIRE_PROOF_FIXED + extra);
    }
    if (status != PANDO_OK)
        return status;
    out->endpoint_id = wire_get_u64(body);
    out->identity.member = wire_get_u16(body + 8);
    out->identity.incarnation = wire_get_u16(body + 10);
    out->window = wire_get_u64(body + 16);
    memcpy(out->extra, body + WIRE_PROOF_FIXED, extra);
    return PANDO_OK;
}

enum pando_status handshake_put_welcome(const struct handshake *handshake,
                                        const struct handshake_welcome *welcome, uint8_t *body)
{
    uint32_t extra = handshake->protocol->welcome_extra;
    pando_assert(extra <= WIRE_EXTRA_MAX);
    memset(body, 0, handshake_welcome_bytes(handshake->protocol));
    wire_put_u16(body, (uint16_t)welcome->status);
    if (welcome->status != PANDO_OK) {
        wire_put_u16(body + 2, (uint16_t)welcome->refusal);
        return PANDO_OK; /* whoever it is learns nothing else */
    }
    wire_put_u16(body + 2, welcome->node);
    body[4] = (uint8_t)welcome->target;
    wire_put_u64(body + 8, welcome->window_bytes);
    wire_put_u64(body + 16, welcome->device_bytes);
    wire_put_u64(body + 24, welcome->window);
    memcpy(body + WIRE_WELCOME_FIXED, welcome->extra, extra);
    return make_proof(handshake, SERVER, slice_of(body, WIRE_WELCOME_FIXED + extra),
                      body + WIRE_WELCOME_FIXED + extra);
}

enum pando_status handshake_get_welcome(const struct handshake *handshake, const uint8_t *body,
                                        struct handshake_welcome *out)
{
    uint32_t extra = handshake->protocol->welcome_extra;
    uint16_t code = wire_get_u16(body);
    out->refusal = WIRE_REFUSED;
    if (code != PANDO_OK) {
        uint16_t refusal = wire_get_u16(body + 2);
        out->refusal = refusal < WIRE_REFUSALS ? (enum wire_refusal)refusal : WIRE_REFUSED;
        return code >= PANDO_STATUS_COUNT ? PANDO_DENIED : (enum pando_status)code;
    }
    enum pando_status status =
        check_proof(handshake, SERVER, slice_of(body, WIRE_WELCOME_FIXED + extra),
                    body + WIRE_WELCOME_FIXED + extra);
    if (status != PANDO_OK)
        return status;
    out->status = PANDO_OK;
    out->node = wire_get_u16(body + 2);
    out->target = body[4] == FABRIC_COMPUTE ? FABRIC_COMPUTE : FABRIC_MEMORY;
    out->window_bytes = wire_get_u64(body + 8);
    out->device_bytes = wire_get_u64(body + 16);
    out->window = wire_get_u64(body + 24);
    memcpy(out->extra, body + WIRE_WELCOME_FIXED, extra);
    return PANDO_OK;
}
