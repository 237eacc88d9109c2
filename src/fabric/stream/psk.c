#include "fabric/stream/psk.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/ssl.h>

/* The cipher whose hash the keys belong to; both sides have to agree on one with SHA-256. */
static const uint8_t cipher_number[] = {0x13, 0x01};
static const char cipher_first[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

_Static_assert((int)PSK_KEY_BYTES == SECRET_PROOF_BYTES &&
                   (int)PSK_NAME_BYTES == SECRET_PROOF_BYTES,
               "keys and names are proofs of their own");

enum pando_status psks_make(const struct secrets *secrets, struct psks *out)
{
    const struct slice name = slice_of_text("pando tls 1 name");
    const struct slice key = slice_of_text("pando tls 1 key");
    enum pando_status status = PANDO_OK;

    *out = (struct psks){.count = secrets->count};
    for (unsigned i = 0; status == PANDO_OK && i < secrets->count; i++) {
        status = secret_proof(&secrets->all[i], &name, 1, out->all[i].name);
        if (status == PANDO_OK)
            status = secret_proof(&secrets->all[i], &key, 1, out->all[i].key);
    }
    return status;
}

void psks_forget(struct psks *psks)
{
    OPENSSL_cleanse(psks, sizeof(*psks));
}

/* OpenSSL takes an external key for a session to resume. NULL: no memory. */
static SSL_SESSION *session_of(SSL *ssl, const struct psk *psk)
{
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_number);
    SSL_SESSION *session = SSL_SESSION_new();
    if (session != NULL && cipher != NULL &&
        SSL_SESSION_set1_master_key(session, psk->key, sizeof(psk->key)) == 1 &&
        SSL_SESSION_set_cipher(session, cipher) == 1 &&
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
        return session;
    SSL_SESSION_free(session);
    return NULL;
}

static const struct psks *psks_of(const SSL *ssl)
{
    return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

static int offer(SSL *ssl, const EVP_MD *hash, const unsigned char **name, size_t *name_bytes,
                 SSL_SESSION **session)
{
    const struct psk *psk = &psks_of(ssl)->all[0];
    *session = NULL;
    if (hash != NULL && !EVP_MD_is_a(hash, "SHA256"))
        return 1; /* the server wants another hash: without a key, then */
    *session = session_of(ssl, psk);
    *name = psk->name;
    *name_bytes = sizeof(psk->name);
    return *session != NULL;
}

static int find(SSL *ssl, const unsigned char *name, size_t name_bytes, SSL_SESSION **session)
{
    const struct psks *psks = psks_of(ssl);
    *session = NULL;
    for (unsigned i = 0; i < psks->count; i++) {
        if (name_bytes != PSK_NAME_BYTES || memcmp(name, psks->all[i].name, PSK_NAME_BYTES) != 0)
            continue;
        *session = session_of(ssl, &psks->all[i]);
        return *session != NULL;
    }
    return 1; /* unknown: the handshake fails for want of a certificate */
}

enum pando_status psks_use(SSL_CTX *context, enum tls_side side, const struct psks *psks)
{
    if (SSL_CTX_set_ciphersuites(context,
                                 side == TLS_SERVER ? "TLS_AES_128_GCM_SHA256" : cipher_first) != 1)
        return PANDO_UNSUPPORTED;
    SSL_CTX_set_app_data(context, (void *)psks); /* only read, by the two functions above */
    if (side == TLS_CLIENT) {
        SSL_CTX_set_psk_use_session_callback(context, offer);
        return PANDO_OK;
    }
    SSL_CTX_set_psk_find_session_callback(context, find);
    return PANDO_OK;
}
