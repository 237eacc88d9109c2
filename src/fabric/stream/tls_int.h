/*
 * tls_int.h - contexts and errors of TLS as OpenSSL has them.
 */
#ifndef FABRIC_STREAM_TLS_INT_H
#define FABRIC_STREAM_TLS_INT_H

#include "fabric/stream/stream.h"

/* Of a call of OpenSSL's that failed, with what SSL_get_error said. Empties the thread's queue of
 * errors. */
enum tls_trouble tls_trouble_take(SSL *ssl, int why);

/* Whether this side is a client that was asked for a certificate and has none. */
bool tls_certificate_wanted(const SSL *ssl);

/* A context from files that nothing reads again; NULL and one line in `error` on failure. */
SSL_CTX *tls_context_make(enum tls_side side, const char *cert, const char *key, const char *ca,
                          char *error, size_t error_bytes);

/* Likewise without certificates, to be given keys (psk.h): it trusts nobody else. */
SSL_CTX *tls_context_make_keyed(enum tls_side side, char *error, size_t error_bytes);

/* Remembers where the context came from, for tls_context_reload; false: out of memory. */
bool tls_files_remember(SSL_CTX *context, enum tls_side side, const char *cert, const char *key,
                        const char *ca);
void tls_files_forget(SSL_CTX *context);

/* What new streams of the context are made from; the caller's to free. NULL: out of memory. */
SSL_CTX *tls_context_current(SSL_CTX *context);

#endif
