/*
 * socket.c - TCP sockets: names, listening, connecting.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "fabric/stream/stream.h"

enum { BACKLOG = 256, KEEPALIVE_IDLE_S = 10, KEEPALIVE_INTERVAL_S = 5, KEEPALIVE_COUNT = 3 };

enum pando_status socket_resolve(const char *host_port, bool passive, struct socket_address *out,
                                 char *error, size_t error_bytes)
{
    struct host_port parts;
    struct addrinfo *found = NULL;
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0),
    };

    if (parse_host_port(host_port, &parts) != PANDO_OK) {
        snprintf(error, error_bytes, "'%s' is not host:port; use for example 127.0.0.1:7000",
                 host_port);
        return PANDO_INVALID;
    }
    int result = getaddrinfo(parts.host, parts.port_text, &hints, &found);
    if (result != 0) {
        snprintf(error, error_bytes, "cannot find host '%s': %s", parts.host, gai_strerror(result));
        return PANDO_NOT_FOUND;
    }
    memcpy(&out->storage, found->ai_addr, found->ai_addrlen);
    out->size = found->ai_addrlen;
    freeaddrinfo(found);
    return PANDO_OK;
}

enum pando_status socket_listen(const struct socket_address *address, const char *name, int *out_fd,
                                char *error, size_t error_bytes)
{
    int one = 1;
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        snprintf(error, error_bytes, "cannot make a socket: %s", strerror(errno));
        return PANDO_IO;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (const struct sockaddr *)&address->storage, address->size) == 0 &&
        listen(fd, BACKLOG) == 0) {
        *out_fd = fd;
        return PANDO_OK;
    }
    int code = errno;
    close(fd);
    if (code == EADDRINUSE) {
        snprintf(error, error_bytes, "%s: port in use; stop what listens there or choose another",
                 name);
        return PANDO_BUSY;
    }
    snprintf(error, error_bytes, "cannot listen on %s: %s", name, strerror(code));
    return code == EACCES ? PANDO_DENIED : PANDO_IO;
}

void socket_name(int fd, char *out, size_t size)
{
    struct sockaddr_storage address;
    socklen_t address_size = sizeof(address);
    char host[NI_MAXHOST], port[NI_MAXSERV];

    out[0] = '\0';
    if (getsockname(fd, (struct sockaddr *)&address, &address_size) != 0 ||
        getnameinfo((struct sockaddr *)&address, address_size, host, sizeof(host), port,
                    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    snprintf(out, size, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

int socket_connect(const struct socket_address *address)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (const struct sockaddr *)&address->storage, address->size) != 0 &&
        errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

int socket_error(int fd)
{
    int code = 0;
    socklen_t size = sizeof(code);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) != 0)
        return errno;
    return code;
}

void socket_tune(int fd, unsigned timeout_ms)
{
    int one = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S, count = KEEPALIVE_COUNT;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}
