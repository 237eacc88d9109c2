#include "fabric/stream/tls_int.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

/* SSL_get_error looks at the thread's queue of errors, where another connection may have left one:
 * the queue has to be empty before each call whose result is asked for. */
static inline void forget_errors(void)
{
    if (ERR_peek_error() != 0)
        ERR_clear_error();
}

/* What came of a call that moved no bytes: 0 would block, -1 the end. */
static ssize_t tls_ended(struct stream *stream, int result)
{
    int why = SSL_get_error(stream->ssl, result);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        return 0;
    stream->trouble = tls_trouble_take(stream->ssl, why);
    return -1;
}

ssize_t stream_read(struct stream *stream, void *to, size_t size)
{
    if (stream->ssl != NULL) {
        forget_errors();
        int got = SSL_read(stream->ssl, to, size > INT_MAX ? INT_MAX : (int)size);
        return got > 0 ? got : tls_ended(stream, got);
    }
    ssize_t got = recv(stream->fd, to, size, 0);
    if (got > 0)
        return got;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    return -1;
}

ssize_t stream_write(struct stream *stream, const void *from, size_t size)
{
    if (stream->ssl != NULL) {
        forget_errors();
        int put = SSL_write(stream->ssl, from, size > INT_MAX ? INT_MAX : (int)size);
        return put > 0 ? put : tls_ended(stream, put);
    }
    ssize_t put = send(stream->fd, from, size, MSG_NOSIGNAL);
    if (put >= 0)
        return put;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

void stream_close(struct stream *stream)
{
    if (stream->ssl != NULL) {
        /* A close_notify, if the socket takes it now: without one the peer sees a cut connection. */
        if (SSL_is_init_finished(stream->ssl))
            (void)SSL_shutdown(stream->ssl);
        SSL_free(stream->ssl);
        forget_errors();
    }
    if (stream->fd >= 0)
        close(stream->fd);
    *stream = (struct stream){.fd = -1};
}
