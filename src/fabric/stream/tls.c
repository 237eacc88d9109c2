/*
 * tls.c - TLS 1.3 by OpenSSL.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "fabric/stream/private_file.h"
#include "fabric/stream/tls_int.h"

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

/* The context is freed if it fails. */
static bool use_private_key(SSL_CTX *context, const char *path, char *error, size_t error_bytes)
{
    int fd;
    if (private_file_open("TLS: private key", path, &fd, error, error_bytes) != PANDO_OK) {
        SSL_CTX_free(context);
        return false;
    }
    /* The same file that was checked, whatever the path leads to by now. */
    BIO *file = BIO_new_fd(fd, BIO_CLOSE);
    EVP_PKEY *key = NULL;
    if (file != NULL)
        key = PEM_read_bio_PrivateKey(file, NULL, SSL_CTX_get_default_passwd_cb(context),
                                      SSL_CTX_get_default_passwd_cb_userdata(context));
    else
        close(fd);
    bool used = key != NULL && SSL_CTX_use_PrivateKey(context, key) == 1;
    EVP_PKEY_free(key);
    BIO_free(file);
    if (!used)
        (void)fail(context, "private key", path, error, error_bytes);
    return used;
}

/* TLS 1.3, without certificates yet. */
static SSL_CTX *context_new(char *error, size_t error_bytes)
{
    ERR_clear_error(); /* what fail() reports is of this context */
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    if (context == NULL || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1)
        return fail(context, "TLS 1.3", NULL, error, error_bytes);
    /* A buffer that could not be written at once may have moved by the next try. */
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return context;
}

/* What let a client in is looked at again for each connection. OpenSSL would renew sessions for as long as
 * one is resumed, whatever becomes of the certificate or the secret that the first was made with. */
static void never_resume(SSL_CTX *context)
{
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
}

static int wanted_at;

static void wanted_index_make(void)
{
    wanted_at = SSL_get_ex_new_index(0, NULL, NULL, NULL, NULL);
}

/* Where a connection's SSL says that a certificate was asked for. */
static int wanted_index(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, wanted_index_make);
    return wanted_at;
}

bool tls_certificate_wanted(const SSL *ssl)
{
    return SSL_get_ex_data(ssl, wanted_index()) != NULL;
}

/* Called for a client that was not given a certificate: goes on without one. */
static int note_wanted(SSL *ssl, X509 **certificate, EVP_PKEY **key)
{
    static char wanted;
    (void)certificate;
    (void)key;
    (void)SSL_set_ex_data(ssl, wanted_index(), &wanted);
    return 0;
}

SSL_CTX *tls_context_make(enum tls_side side, const char *cert, const char *key, const char *ca,
                          char *error, size_t error_bytes)
{
    SSL_CTX *context = context_new(error, error_bytes);
    if (context == NULL)
        return NULL;
    if (side == TLS_SERVER && (cert == NULL || key == NULL))
        return fail(context, "a server without --tls-cert and --tls-key", NULL, error, error_bytes);
    if (side == TLS_CLIENT && ca == NULL)
        return fail(context, "a client without --tls-ca", NULL, error, error_bytes);
    if (cert != NULL && SSL_CTX_use_certificate_chain_file(context, cert) != 1)
        return fail(context, "certificate", cert, error, error_bytes);
    if (key != NULL && !use_private_key(context, key, error, error_bytes))
        return NULL;
    if (ca != NULL) {
        if (SSL_CTX_load_verify_locations(context, ca, NULL) != 1)
            return fail(context, "certificate authority", ca, error, error_bytes);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        if (side == TLS_SERVER)
            never_resume(context);
    }
    if (side == TLS_CLIENT)
        SSL_CTX_set_client_cert_cb(context, note_wanted);
    return context;
}

SSL_CTX *tls_context_make_keyed(enum tls_side side, char *error, size_t error_bytes)
{
    SSL_CTX *context = context_new(error, error_bytes);
    if (context == NULL)
        return NULL;
    if (side == TLS_SERVER) {
        never_resume(context);
    } else {
        /* A certificate that it is shown instead is refused, because it trusts none. */
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    }
    return context;
}

SSL_CTX *tls_context_create(enum tls_side side, const char *cert, const char *key, const char *ca,
                            char *error, size_t error_bytes)
{
    SSL_CTX *context = tls_context_make(side, cert, key, ca, error, error_bytes);
    if (context != NULL && !tls_files_remember(context, side, cert, key, ca)) {
        SSL_CTX_free(context);
        snprintf(error, error_bytes, "TLS: out of memory");
        return NULL;
    }
    return context;
}

void tls_context_destroy(SSL_CTX *context)
{
    if (context != NULL)
        tls_files_forget(context);
    SSL_CTX_free(context);
}

/* OpenSSL writes to sockets without MSG_NOSIGNAL. A handler of the program's own stays. */
static void ignore_sigpipe(void)
{
    struct sigaction now;
    if (sigaction(SIGPIPE, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
        now.sa_handler == SIG_DFL)
        signal(SIGPIPE, SIG_IGN);
}

enum pando_status tls_attach(struct stream *stream, SSL_CTX *context, enum tls_side side,
                             const char *host)
{
    SSL_CTX *current = tls_context_current(context);
    if (current == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = tls_attach_context(stream, current, side, host);
    SSL_CTX_free(current);
    return status;
}

enum pando_status tls_attach_context(struct stream *stream, SSL_CTX *context, enum tls_side side,
                                     const char *host)
{
    ignore_sigpipe();
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
    ERR_clear_error(); /* SSL_get_error would take another connection's error for this one's */
    int result = SSL_do_handshake(stream->ssl);
    if (result == 1)
        return PANDO_OK;
    int why = SSL_get_error(stream->ssl, result);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        return PANDO_AGAIN;
    stream->trouble = tls_trouble_take(stream->ssl, why);
    return PANDO_DENIED;
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
