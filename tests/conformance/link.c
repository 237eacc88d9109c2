#include "conformance/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/check.h"

enum {
    PAIRS_MAX = 64,
    READ_BYTES = 64 * 1024,
    TICK_MS = 2,
    LATE_MS = 30, /* how long after the heal what is old arrives */
};

/* Bytes on their way in one direction. */
struct way {
    int from, to; /* -1 when closed */
    uint8_t *bytes;
    size_t used, capacity;
    bool ended; /* nothing more comes from there */
};

struct pair {
    struct way up, down;    /* to the target, and back */
    uint64_t wait_until_ms; /* 0: not held back; UINT64_MAX: the link is cut */
};

struct link {
    int listener;
    unsigned port;
    char location[32];
    pthread_t thread;
    atomic_bool cut, stop;
    atomic_bool was_cut; /* what the thread has made of it */
    struct pair pairs[PAIRS_MAX];
    unsigned count;
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct sockaddr_in loopback(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* ---- one direction --------------------------------------------------------------------------- */

static void way_receive(struct way *way)
{
    if (way->ended || way->from < 0)
        return;
    if (way->capacity - way->used < READ_BYTES) {
        way->capacity = 2 * way->capacity + READ_BYTES;
        way->bytes = realloc(way->bytes, way->capacity);
        CHECK(way->bytes != NULL);
    }
    ssize_t got = recv(way->from, way->bytes + way->used, READ_BYTES, MSG_DONTWAIT);
    if (got > 0)
        way->used += (size_t)got;
    else if (got == 0 || (errno != EAGAIN && errno != EINTR))
        way->ended = true;
}

static void way_send(struct way *way)
{
    if (way->used == 0)
        return;
    ssize_t put = send(way->to, way->bytes, way->used, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (put < 0) {
        way->used = 0; /* nobody wants it any more */
        way->ended = true;
        return;
    }
    way->used -= (size_t)put;
    memmove(way->bytes, way->bytes + put, way->used);
}

static bool way_over(const struct way *way)
{
    return way->ended && way->used == 0;
}

/* ---- pairs of sockets ------------------------------------------------------------------------ */

static void pair_add(struct link *link, int client)
{
    struct sockaddr_in address = loopback(link->port);
    int target = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(target >= 0 && link->count < PAIRS_MAX);
    if (connect(target, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(target);
        close(client);
        return;
    }
    link->pairs[link->count++] =
        (struct pair){.up = {.from = client, .to = target}, .down = {.from = target, .to = client}};
}

static void pair_close(struct link *link, unsigned i)
{
    struct pair *pair = &link->pairs[i];
    close(pair->up.from);
    close(pair->down.from);
    free(pair->up.bytes);
    free(pair->down.bytes);
    *pair = link->pairs[--link->count];
}

/* What arrives while it is held back is the sender's; replies stay where they are. */
static void pair_turn(struct pair *pair)
{
    way_receive(&pair->up);
    if (pair->wait_until_ms > now_ms())
        return;
    pair->wait_until_ms = 0;
    way_send(&pair->up);
    way_receive(&pair->down);
    way_send(&pair->down);
}

static void link_changed(struct link *link, bool cut)
{
    for (unsigned i = 0; i < link->count; i++)
        link->pairs[i].wait_until_ms = cut ? UINT64_MAX : now_ms() + LATE_MS;
    atomic_store(&link->was_cut, cut);
}

static void link_turn(struct link *link)
{
    bool cut = atomic_load(&link->cut);
    if (cut != atomic_load(&link->was_cut))
        link_changed(link, cut);
    for (unsigned i = link->count; i-- > 0;) {
        pair_turn(&link->pairs[i]);
        if (way_over(&link->pairs[i].up) || way_over(&link->pairs[i].down))
            pair_close(link, i);
    }
    if (!cut) {
        int client = accept4(link->listener, NULL, NULL, SOCK_CLOEXEC);
        if (client >= 0)
            pair_add(link, client);
    }
}

static void *link_main(void *arg)
{
    struct link *link = arg;
    struct pollfd fds[2 * PAIRS_MAX + 1];

    while (!atomic_load(&link->stop)) {
        nfds_t count = 0;
        fds[count++] = (struct pollfd){.fd = link->listener, .events = POLLIN};
        for (unsigned i = 0; i < link->count; i++) {
            if (link->pairs[i].wait_until_ms != 0)
                continue; /* looked at with every tick */
            fds[count++] = (struct pollfd){.fd = link->pairs[i].up.from, .events = POLLIN};
            fds[count++] = (struct pollfd){.fd = link->pairs[i].down.from, .events = POLLIN};
        }
        (void)poll(fds, count, TICK_MS);
        link_turn(link);
    }
    while (link->count > 0)
        pair_close(link, link->count - 1);
    return NULL;
}

/* ---- what others call ------------------------------------------------------------------------ */

struct link *link_create(unsigned port)
{
    struct link *link = calloc(1, sizeof(*link));
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);

    CHECK(link != NULL);
    link->port = port;
    link->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(link->listener >= 0);
    CHECK(bind(link->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(link->listener, PAIRS_MAX) == 0);
    CHECK(getsockname(link->listener, (struct sockaddr *)&address, &size) == 0);
    snprintf(link->location, sizeof(link->location), "127.0.0.1:%u", ntohs(address.sin_port));
    CHECK(pthread_create(&link->thread, NULL, link_main, link) == 0);
    return link;
}

void link_destroy(struct link *link)
{
    atomic_store(&link->stop, true);
    CHECK(pthread_join(link->thread, NULL) == 0);
    close(link->listener);
    free(link);
}

const char *link_location(const struct link *link)
{
    return link->location;
}

static void link_set(struct link *link, bool cut)
{
    atomic_store(&link->cut, cut);
    while (atomic_load(&link->was_cut) != cut)
        sched_yield();
}

void link_cut(struct link *link)
{
    link_set(link, true);
}

void link_heal(struct link *link)
{
    link_set(link, false);
}
