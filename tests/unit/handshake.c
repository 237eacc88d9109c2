/*
 * What a client says in its PROOF is what the server gets, and nobody on the way can change any of it:
 * who it is, and which window it expects.
 */
#include <stdlib.h>

#include "fabric/session/handshake.h"
#include "lib/check.h"

enum { EXTRA = 8 };

static const struct handshake_protocol protocol = {.magic = 77,
                                                   .version = 3,
                                                   .client_label = "client",
                                                   .server_label = "server",
                                                   .proof_extra = EXTRA};

static struct secrets *secrets_make(void)
{
    struct secrets *secrets = calloc(1, sizeof(*secrets) + sizeof(struct secret));
    CHECK(secrets != NULL);
    secrets->count = 1;
    secrets->all[0].size = SECRET_BYTES_MIN;
    memset(secrets->all[0].bytes, 5, SECRET_BYTES_MIN);
    return secrets;
}

static void proof_is_whole(const struct secrets *secrets)
{
    struct handshake client = {.protocol = &protocol, .secrets = secrets}, server = client;
    const struct handshake_claim claim = {.endpoint_id = 0x1122334455667788,
                                          .identity = {.member = 12, .incarnation = 34},
                                          .window = 0x99aabbccddeeff01,
                                          .extra = {1, 2, 3, 4, 5, 6, 7, 8}};
    struct handshake_claim got = {0};
    uint8_t hello[WIRE_HELLO_BYTES], body[HANDSHAKE_BODY_MAX];

    CHECK_OK(handshake_put_hello(&client, hello));
    CHECK_OK(handshake_get_hello(&server, hello));
    CHECK_OK(handshake_put_proof(&client, &claim, body));
    CHECK_OK(handshake_get_proof(&server, body, &got));
    CHECK_EQ_U64(got.endpoint_id, claim.endpoint_id);
    CHECK(got.identity.member == 12 && got.identity.incarnation == 34);
    CHECK_EQ_U64(got.window, claim.window);
    CHECK(memcmp(got.extra, claim.extra, EXTRA) == 0);

    uint32_t size = handshake_proof_bytes(&protocol);
    for (uint32_t at = 0; at < size; at++) {
        body[at] ^= 0x40;
        enum pando_status status = handshake_get_proof(&server, body, &got);
        if (status != PANDO_DENIED)
            CHECK_FAIL("byte %u of %u was changed: '%s'", at, size, pando_status_text(status));
        body[at] ^= 0x40;
    }
    CHECK_OK(handshake_get_proof(&server, body, &got));
}

int main(void)
{
    struct secrets *secrets = secrets_make();
    proof_is_whole(secrets);
    free(secrets);
    return 0;
}
