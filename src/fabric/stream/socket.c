/*
 * socket.c - TCP sockets: names, listening, connecting.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/parse.h"
#include "fabric/stream/stream.h"

/* As many as the kernel allows wait to be accepted: a cluster may come back all at once. */
enum { BACKLOG = SOMAXCONN, KEEPALIVE_IDLE_S = 10, KEEPALIVE_INTERVAL_S = 5, KEEPALIVE_COUNT = 3 };

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

    enum pando_status parsed = parse_host_port(host_port, &parts);
    if (parsed != PANDO_OK) {
        snprintf(error, error_bytes, "'%s' %s; use for example 127.0.0.1:7000", host_port,
                 parse_host_port_fault(parsed));
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

static unsigned port_of(const struct socket_address *address)
{
    if (address->storage.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&address->storage)->sin6_port);
    return ntohs(((const struct sockaddr_in *)&address->storage)->sin_port);
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
    if (code == EADDRINUSE && port_of(address) == 0) {
        snprintf(error, error_bytes, "%s: no port is free; stop something that listens or connects",
                 name);
        return PANDO_BUSY;
    }
    if (code == EADDRINUSE) {
        snprintf(error, error_bytes, "%s: port in use; stop what listens there or choose another",
                 name);
        return PANDO_BUSY;
    }
    snprintf(error, error_bytes, "cannot listen on %s: %s", name, strerror(code));
    return code == EACCES ? PANDO_DENIED : PANDO_IO;
}

int socket_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        return fd;
    return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM ? SOCKET_LIMIT
                                                                                     : SOCKET_NONE;
}

void socket_shutdown(int fd)
{
    (void)shutdown(fd, SHUT_RDWR);
}

void socket_end_writing(int fd)
{
    (void)shutdown(fd, SHUT_WR);
}

int socket_peek(int fd)
{
    uint8_t byte;
    return recv(fd, &byte, 1, MSG_PEEK) == 1 ? byte : -1;
}

static void name_of(const struct socket_address *address, char *out, size_t size)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    out[0] = '\0';
    if (address->storage.ss_family == AF_UNIX) {
        snprintf(out, size, "%s", ((const struct sockaddr_un *)&address->storage)->sun_path);
        return;
    }
    if (getnameinfo((const struct sockaddr *)&address->storage, address->size, host, sizeof(host),
                    port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return;
    snprintf(out, size, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

void socket_name(int fd, char *out, size_t size)
{
    struct socket_address address = {.size = sizeof(address.storage)};
    out[0] = '\0';
    if (getsockname(fd, (struct sockaddr *)&address.storage, &address.size) == 0)
        name_of(&address, out, size);
}

void socket_peer_name(int fd, char *out, size_t size)
{
    struct socket_address address = {.size = sizeof(address.storage)};
    out[0] = '\0';
    if (getpeername(fd, (struct sockaddr *)&address.storage, &address.size) == 0)
        name_of(&address, out, size);
}

static bool is_loopback(const struct socket_address *address)
{
    if (address->storage.ss_family == AF_INET) {
        const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)&address->storage;
        return ntohl(ipv4->sin_addr.s_addr) >> 24 == 127;
    }
    if (address->storage.ss_family != AF_INET6)
        return false;
    const struct in6_addr *ipv6 = &((const struct sockaddr_in6 *)&address->storage)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(ipv6) || (IN6_IS_ADDR_V4MAPPED(ipv6) && ipv6->s6_addr[12] == 127);
}

bool socket_peer_is_local(int fd)
{
    struct socket_address address = {.size = sizeof(address.storage)};
    return getpeername(fd, (struct sockaddr *)&address.storage, &address.size) == 0 &&
           is_loopback(&address);
}

bool socket_is_loopback(int fd)
{
    struct socket_address address = {.size = sizeof(address.storage)};
    return socket_peer_is_local(fd) &&
           getsockname(fd, (struct sockaddr *)&address.storage, &address.size) == 0 &&
           is_loopback(&address);
}

bool socket_listens_on_loopback(int listener)
{
    struct socket_address address = {.size = sizeof(address.storage)};
    return getsockname(listener, (struct sockaddr *)&address.storage, &address.size) == 0 &&
           is_loopback(&address);
}

uint64_t socket_origin(int fd)
{
    struct socket_address address = {.size = sizeof(address.storage)};
    uint8_t bytes[8] = {0, 4}; /* no IPv6 network in use begins with a zero */
    uint64_t origin;
    if (getpeername(fd, (struct sockaddr *)&address.storage, &address.size) != 0)
        return 0;
    const struct in6_addr *ipv6 = &((const struct sockaddr_in6 *)&address.storage)->sin6_addr;
    if (address.storage.ss_family == AF_INET)
        memcpy(bytes + 4, &((const struct sockaddr_in *)&address.storage)->sin_addr, 4);
    else if (address.storage.ss_family != AF_INET6)
        return 0;
    else if (IN6_IS_ADDR_V4MAPPED(ipv6))
        memcpy(bytes + 4, ipv6->s6_addr + 12, 4);
    else
        memcpy(bytes, ipv6->s6_addr, sizeof(bytes));
    memcpy(&origin, bytes, sizeof(origin));
    return origin;
}

/* A datagram socket that is connected there, which is to ask for the route only. */
static enum pando_status route_open(const char *host_port, int *out_fd)
{
    struct socket_address there;
    char error[256];
    enum pando_status status = socket_resolve(host_port, false, &there, error, sizeof(error));
    if (status != PANDO_OK)
        return status;
    int fd = socket(there.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return PANDO_IO;
    if (connect(fd, (const struct sockaddr *)&there.storage, there.size) != 0) {
        close(fd);
        return PANDO_BROKEN;
    }
    *out_fd = fd;
    return PANDO_OK;
}

bool socket_routes_on_loopback(const char *host_port)
{
    int fd;
    if (route_open(host_port, &fd) != PANDO_OK)
        return false;
    bool loopback = socket_is_loopback(fd);
    close(fd);
    return loopback;
}

enum pando_status socket_route(const char *host_port, char *out, size_t size)
{
    struct socket_address here = {.size = sizeof(here.storage)};
    int fd;
    enum pando_status status = route_open(host_port, &fd);
    if (status != PANDO_OK)
        return status;
    status = PANDO_BROKEN;
    if (getsockname(fd, (struct sockaddr *)&here.storage, &here.size) == 0) {
        if (here.storage.ss_family == AF_INET6)
            ((struct sockaddr_in6 *)&here.storage)->sin6_port = 0;
        else
            ((struct sockaddr_in *)&here.storage)->sin_port = 0;
        name_of(&here, out, size);
        status = out[0] != '\0' ? PANDO_OK : PANDO_IO;
    }
    close(fd);
    return status;
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
