/*
 * Latency at a given load, of any server that speaks Redis' protocol:
 *
 *   paced PORT RATE SECONDS CONNECTIONS KEYS PIPELINE
 *
 * GETs of random keys key:000000000000 .. leave at a steady rate, PIPELINE at once, on a connection that waits for
 * nothing, and are timed to the nanosecond; redis-benchmark knows times to 8 us only. A request's time begins when it
 * was to leave. When all connections wait, the next request does too, and those that should have left meanwhile are left
 * out: with few connections a stall of the machine counts for as many requests, not for all of a millisecond.
 *
 * Prints requests per second, and p50 and p99 in microseconds, as "rate p50 p99". This thread spins: give it a core.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/histogram.h"
#include "base/prng.h"

enum { CONNECTIONS_MAX = 1000, PIPELINE_MAX = 64, REPLIES_MAX = 16 * 1024, WARMUP_PART = 5 };

static const uint64_t NS_PER_S = 1000000000;

struct connection {
    int fd;
    uint64_t due_ns; /* when its requests were to leave; 0: none are under way */
    unsigned left;   /* replies that are not there yet */
    char replies[REPLIES_MAX];
    size_t got, taken;
};

struct load {
    struct connection connections[CONNECTIONS_MAX];
    unsigned count, next, pipeline;
    uint64_t keys, gap_ns;
    uint64_t start_ns, warm_ns, end_ns;
    struct prng prng;
    struct histogram histogram;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "paced: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_connection(uint16_t port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0)
        die("connecting");
    return fd;
}

static void send_gets(struct load *load, struct connection *connection, uint64_t due_ns)
{
    char requests[PIPELINE_MAX * 64];
    size_t size = 0;
    for (unsigned i = 0; i < load->pipeline; i++)
        size += (size_t)snprintf(requests + size, sizeof(requests) - size,
                                 "*2\r\n$3\r\nGET\r\n$16\r\nkey:%012llu\r\n",
                                 (unsigned long long)prng_below(&load->prng, load->keys));
    connection->due_ns = due_ns;
    connection->left = load->pipeline;
    connection->got = connection->taken = 0;
    if (send(connection->fd, requests, size, MSG_NOSIGNAL) != (ssize_t)size)
        die("sending");
}

/* Steps over "$N\r\n" and N bytes and "\r\n", if they are there. */
static bool take_reply(struct connection *connection)
{
    const char *reply = connection->replies + connection->taken;
    size_t there = connection->got - connection->taken;
    const char *end = memchr(reply, '\n', there);
    if (end == NULL)
        return false;
    if (reply[0] != '$' || reply[1] == '-') {
        fprintf(stderr, "paced: the server answered %.*s\n", (int)there, reply);
        exit(1);
    }
    size_t size = (size_t)(end - reply) + 1 + strtoull(reply + 1, NULL, 10) + 2;
    if (there < size)
        return false;
    connection->taken += size;
    return true;
}

static void look(struct load *load, struct connection *connection)
{
    ssize_t got = recv(connection->fd, connection->replies + connection->got,
                       REPLIES_MAX - 1 - connection->got, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        die("receiving");
    connection->got += (size_t)got;
    connection->replies[connection->got] = '\0';
    uint64_t took_ns = now_ns() - connection->due_ns;
    for (; connection->left > 0 && take_reply(connection); connection->left--) {
        if (connection->due_ns >= load->warm_ns)
            histogram_add(&load->histogram, took_ns);
    }
    if (connection->left == 0)
        connection->due_ns = 0;
}

/* The next connection that waits for nothing; NULL: all are busy, and the request leaves later than it should. */
static struct connection *free_connection(struct load *load)
{
    for (unsigned i = 0; i < load->count; i++) {
        struct connection *connection = &load->connections[(load->next + i) % load->count];
        if (connection->due_ns == 0) {
            load->next = (load->next + i + 1) % load->count;
            return connection;
        }
    }
    return NULL;
}

static void run(struct load *load)
{
    for (uint64_t due_ns = load->start_ns; now_ns() < load->end_ns;) {
        struct connection *idle = now_ns() >= due_ns ? free_connection(load) : NULL;
        if (idle != NULL) {
            send_gets(load, idle, due_ns);
            due_ns += load->gap_ns;
            if (now_ns() > due_ns + load->gap_ns)
                due_ns = now_ns();
        }
        for (unsigned i = 0; i < load->count; i++) {
            if (load->connections[i].due_ns != 0)
                look(load, &load->connections[i]);
        }
    }
}

int main(int argc, char **argv)
{
    static struct load load;

    if (argc != 7) {
        fprintf(stderr, "use: paced PORT RATE SECONDS CONNECTIONS KEYS PIPELINE\n");
        return 2;
    }
    uint16_t port = (uint16_t)strtoul(argv[1], NULL, 10);
    double rate = strtod(argv[2], NULL), seconds = strtod(argv[3], NULL);
    load.count = (unsigned)strtoul(argv[4], NULL, 10);
    load.keys = strtoull(argv[5], NULL, 10);
    load.pipeline = (unsigned)strtoul(argv[6], NULL, 10);
    if (port == 0 || !(rate >= 1) || !(seconds > 0) || load.count == 0 ||
        load.count > CONNECTIONS_MAX || load.keys == 0 || load.pipeline == 0 ||
        load.pipeline > PIPELINE_MAX) {
        fprintf(stderr, "paced: numbers above 0, at most %d connections and a pipeline of %d\n",
                CONNECTIONS_MAX, PIPELINE_MAX);
        return 2;
    }
    load.gap_ns = (uint64_t)((double)NS_PER_S / rate * load.pipeline);
    prng_seed(&load.prng, 1);
    histogram_init(&load.histogram);
    for (unsigned i = 0; i < load.count; i++)
        load.connections[i].fd = open_connection(port);
    load.start_ns = now_ns();
    load.warm_ns = load.start_ns + (uint64_t)(seconds * (double)NS_PER_S) / WARMUP_PART;
    load.end_ns = load.warm_ns + (uint64_t)(seconds * (double)NS_PER_S);
    run(&load);
    printf("%.0f %.2f %.2f\n", (double)histogram_count(&load.histogram) / seconds,
           (double)histogram_quantile(&load.histogram, 0.5) / 1e3,
           (double)histogram_quantile(&load.histogram, 0.99) / 1e3);
    for (unsigned i = 0; i < load.count; i++)
        close(load.connections[i].fd);
    return 0;
}
