/*
 * The least that a server can do: answers each request that begins in what comes with a value of 64 bytes, and
 * spins meanwhile. What its latencies are is the machine's doing.
 *
 *   echo PORT      until it is killed
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { VALUE = 64, REPLY = 5 + VALUE + 2, REQUEST_MIN = 4, EVENTS = 64 };

static void watch(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        perror("echo: epoll_ctl");
        exit(1);
    }
}

static void answer(int fd, const char reply[REPLY])
{
    static char requests[4096], replies[sizeof(requests) / REQUEST_MIN * REPLY];
    ssize_t got = read(fd, requests, sizeof(requests)), size = 0;
    for (ssize_t i = 0; i < got; i++) {
        if (requests[i] != '*')
            continue;
        memcpy(replies + size, reply, REPLY);
        size += REPLY;
    }
    if (got <= 0 || write(fd, replies, (size_t)size) != size)
        close(fd);
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char reply[REPLY + 1];
    int one = 1;

    if (argc != 2) {
        fprintf(stderr, "use: echo PORT\n");
        return 2;
    }
    at.sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10));
    snprintf(reply, sizeof(reply), "$%d\r\n%0*d\r\n", VALUE, VALUE, 0);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
        epoll = epoll_create1(EPOLL_CLOEXEC);
    if (listener < 0 || epoll < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(listener, EVENTS) != 0) {
        perror("echo: listening");
        return 1;
    }
    watch(epoll, listener);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll, events, EVENTS, 0);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd != listener) {
                answer(events[i].data.fd, reply);
                continue;
            }
            int fd = accept(listener, NULL, NULL);
            if (fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0)
                watch(epoll, fd);
        }
    }
}
