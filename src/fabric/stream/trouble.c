/*
 * trouble.c - what OpenSSL's queue of errors means.
 */
#include "fabric/stream/tls_int.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/log.h"

static enum tls_trouble of_certificate(long verified)
{
    switch (verified) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return TLS_NAME_WRONG;
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return TLS_OUT_OF_DATE;
    default:
        return TLS_AUTHORITY_UNKNOWN;
    }
}

static enum tls_trouble of_reason(int reason)
{
    switch (reason) {
    case SSL_R_UNEXPECTED_EOF_WHILE_READING:
        return TLS_CUT;
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_RECORD_LENGTH_MISMATCH:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_UNEXPECTED_MESSAGE:
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
        return TLS_NOT_SPOKEN;
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_CERTIFICATE_SET:
    case SSL_R_BINDER_DOES_NOT_VERIFY:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER:
        return TLS_NOTHING_SHARED;
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return TLS_CERTIFICATE_WANTED;
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
        return TLS_CERTIFICATE_REFUSED;
    default:
        return TLS_FAILED;
    }
}

/* A server ends a connection whose client shows no certificate only when the client takes it for open. Its last
 * word is lost if the client has sent something meanwhile. */
enum tls_trouble tls_trouble_take(SSL *ssl, int why)
{
    unsigned long code = ERR_peek_error();
    enum tls_trouble trouble = TLS_CUT; /* closed, or broken below TLS */
    if (why == SSL_ERROR_SSL && ERR_GET_LIB(code) == ERR_LIB_SSL)
        trouble = ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED
                      ? of_certificate(SSL_get_verify_result(ssl))
                      : of_reason(ERR_GET_REASON(code));
    else if (why == SSL_ERROR_SSL)
        trouble = TLS_FAILED;
    if (trouble == TLS_CUT && tls_certificate_wanted(ssl))
        trouble = TLS_CERTIFICATE_WANTED;
    log_debug("TLS ended", log_text("why", tls_trouble_text(trouble)),
              log_text("openssl", ERR_reason_error_string(code)));
    ERR_clear_error();
    return trouble;
}

const char *tls_trouble_text(enum tls_trouble trouble)
{
    switch (trouble) {
    case TLS_NO_TROUBLE:
        return "nothing";
    case TLS_CUT:
        return "the connection was closed in the middle";
    case TLS_NOT_SPOKEN:
        return "what came is not TLS 1.3";
    case TLS_NOTHING_SHARED:
        return "no secret or certificate that both sides know";
    case TLS_AUTHORITY_UNKNOWN:
        return "its certificate is signed by nobody who is trusted here";
    case TLS_NAME_WRONG:
        return "its certificate is for another host";
    case TLS_OUT_OF_DATE:
        return "its certificate is not valid today";
    case TLS_CERTIFICATE_WANTED:
        return "a client without a certificate";
    case TLS_CERTIFICATE_REFUSED:
        return "the other side does not trust the certificate of this one";
    case TLS_FAILED:
        break;
    }
    return "garbage, or something that OpenSSL does not accept";
}
