#include "fabric/stream/stream.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include <openssl/ssl.h>

ssize_t stream_read(struct stream *stream, void *to, size_t size)
{
    if (stream->ssl != NULL) {
        int got = SSL_read(stream->ssl, to, size > INT_MAX ? INT_MAX : (int)size);
        if (got > 0)
            return got;
        int why = SSL_get_error(stream->ssl, got);
        return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? 0 : -1;
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
        int put = SSL_write(stream->ssl, from, size > INT_MAX ? INT_MAX : (int)size);
        if (put > 0)
            return put;
        int why = SSL_get_error(stream->ssl, put);
        return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? 0 : -1;
    }
    ssize_t put = send(stream->fd, from, size, MSG_NOSIGNAL);
    if (put >= 0)
        return put;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

void stream_close(struct stream *stream)
{
    SSL_free(stream->ssl);
    if (stream->fd >= 0)
        close(stream->fd);
    *stream = (struct stream){.fd = -1};
}
