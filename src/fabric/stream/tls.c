/*
 * tls.c - TLS 1.3 by OpenSSL.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "fabric/stream/stream.h"

static SSL_CTX *fail(SSL_CTX *context, const char *what, const char *file, char *error,
                     size_t error_bytes)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(code);
    snprintf(error, error_bytes, "TLS: cannot use %s %s: %s", what, file == NULL ? "" : file,
             reason == NULL ? "unreadable or not in PEM form" : reason);
    ERR_clear_error();
    SSL_CTX_free(context);
    return NULL;
}

SSL_CTX *tls_context_create(enum tls_side side, const char *cert, const char *key, const char *ca,
                            char *error, size_t error_bytes)
{
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    if (context == NULL || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1)
        return fail(context, "TLS 1.3", NULL, error, error_bytes);
    /* A buffer that could not be written at once may have moved by the next try. */
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (side == TLS_SERVER && (cert == NULL || key == NULL))
        return fail(context, "a server without --tls-cert and --tls-key", NULL, error, error_bytes);
    if (side == TLS_CLIENT && ca == NULL)
        return fail(context, "a client without --tls-ca", NULL, error, error_bytes);
    if (cert != NULL && SSL_CTX_use_certificate_chain_file(context, cert) != 1)
        return fail(context, "certificate", cert, error, error_bytes);
    if (key != NULL && SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        return fail(context, "private key", key, error, error_bytes);
    if (ca != NULL) {
        if (SSL_CTX_load_verify_locations(context, ca, NULL) != 1)
            return fail(context, "certificate authority", ca, error, error_bytes);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    /* OpenSSL writes to sockets without MSG_NOSIGNAL. */
    signal(SIGPIPE, SIG_IGN);
    return context;
}

void tls_context_destroy(SSL_CTX *context)
{
    SSL_CTX_free(context);
}

enum pando_status tls_contexts_create(const struct fabric_tls *tls, bool listens, SSL_CTX **server,
                                      SSL_CTX **client, char *error, size_t error_bytes)
{
    if (!tls->enabled)
        return PANDO_OK;
    if (listens) {
        *server = tls_context_create(TLS_SERVER, tls->cert_file, tls->key_file, tls->ca_file, error,
                                     error_bytes);
        if (*server == NULL)
            return PANDO_INVALID;
    }
    if (tls->ca_file != NULL) {
        *client = tls_context_create(TLS_CLIENT, tls->cert_file, tls->key_file, tls->ca_file, error,
                                     error_bytes);
        if (*client == NULL)
            return PANDO_INVALID;
    } else if (!listens) {
        snprintf(error, error_bytes, "TLS needs --tls-ca to know which servers to trust");
        return PANDO_INVALID;
    }
    return PANDO_OK;
}

enum pando_status tls_attach(struct stream *stream, SSL_CTX *context, enum tls_side side,
                             const char *host)
{
    stream->ssl = SSL_new(context);
    if (stream->ssl == NULL || SSL_set_fd(stream->ssl, stream->fd) != 1)
        return PANDO_NO_MEMORY;
    if (side == TLS_SERVER) {
        SSL_set_accept_state(stream->ssl);
        return PANDO_OK;
    }
    SSL_set_connect_state(stream->ssl);
    /* An address is looked for among the certificate's addresses, a name among its names. */
    X509_VERIFY_PARAM *verify = SSL_get0_param(stream->ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(verify, host) == 1)
        return PANDO_OK;
    ERR_clear_error();
    if (SSL_set1_host(stream->ssl, host) != 1 || SSL_set_tlsext_host_name(stream->ssl, host) != 1)
        return PANDO_NO_MEMORY;
    return PANDO_OK;
}

enum pando_status tls_handshake(struct stream *stream)
{
    int result = SSL_do_handshake(stream->ssl);
    if (result == 1)
        return PANDO_OK;
    int why = SSL_get_error(stream->ssl, result);
    ERR_clear_error();
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? PANDO_AGAIN : PANDO_DENIED;
}

enum pando_status stream_binding(struct stream *stream, uint8_t out[STREAM_BINDING_BYTES])
{
    static const char label[] = "EXPORTER-pando-channel";
    memset(out, 0, STREAM_BINDING_BYTES);
    if (stream->ssl == NULL)
        return PANDO_OK;
    if (SSL_export_keying_material(stream->ssl, out, STREAM_BINDING_BYTES, label, sizeof(label) - 1,
                                   NULL, 0, 0) != 1)
        return PANDO_IO;
    return PANDO_OK;
}
