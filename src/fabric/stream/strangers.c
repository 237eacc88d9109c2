#include "fabric/stream/strangers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/prng.h"
#include "fabric/stream/stream.h"
#include "rt/rt.h"

enum { ORIGIN_SHARE = 4, NAME_BYTES = 64 };

static const uint64_t SAY_AGAIN_NS = 10 * RT_NS_PER_S;

/* An address with strangers. */
struct strangers_origin {
    struct list link;      /* in its chain, or among the free ones */
    struct list strangers; /* oldest first */
    uint64_t name;
    unsigned count;
};

struct strangers {
    pthread_mutex_t
        mutex; /* over all of it: entering and leaving are rare, and may shut a socket down */
    struct list by_age;
    struct list free; /* origins that no stranger has */
    unsigned count, places, share;
    uint64_t key; /* of the hash: nobody outside knows which addresses share a chain */
    uint64_t evicted, said_ns;
    char port[NAME_BYTES];
    struct list *chains; /* `mask` + 1 of them */
    uint64_t mask;
    struct strangers_origin origins[]; /* as many as places: one each at the most */
};

struct strangers *strangers_create(const char *port, unsigned places)
{
    places = places == 0 ? 1 : places;
    struct strangers *strangers =
        calloc(1, sizeof(*strangers) + places * sizeof(strangers->origins[0]));
    if (strangers == NULL)
        return NULL;
    while (strangers->mask < places)
        strangers->mask = strangers->mask * 2 + 1;
    strangers->chains = malloc((strangers->mask + 1) * sizeof(*strangers->chains));
    if (strangers->chains == NULL) {
        free(strangers);
        return NULL;
    }
    for (uint64_t i = 0; i <= strangers->mask; i++)
        list_init(&strangers->chains[i]);
    list_init(&strangers->by_age);
    list_init(&strangers->free);
    for (unsigned i = 0; i < places; i++) {
        list_init(&strangers->origins[i].strangers);
        list_push_back(&strangers->free, &strangers->origins[i].link);
    }
    strangers->places = places;
    strangers->share = (places + ORIGIN_SHARE - 1) / ORIGIN_SHARE;
    strangers->key = rt_entropy();
    snprintf(strangers->port, sizeof(strangers->port), "%s", port);
    pthread_mutex_init(&strangers->mutex, NULL);
    return strangers;
}

void strangers_set_share(struct strangers *strangers, unsigned share)
{
    strangers->share = share == 0 ? 1 : share;
}

void strangers_destroy(struct strangers *strangers)
{
    if (strangers == NULL)
        return;
    pthread_mutex_destroy(&strangers->mutex);
    free(strangers->chains);
    free(strangers);
}

/* ---- with the mutex held --------------------------------------------------------------------- */

static struct list *chain_of(const struct strangers *strangers, uint64_t name)
{
    return &strangers->chains[hash_u64(name ^ strangers->key) & strangers->mask];
}

static struct strangers_origin *origin_find(const struct strangers *strangers, uint64_t name)
{
    struct list *chain = chain_of(strangers, name);
    list_for_each (link, chain) {
        struct strangers_origin *origin = container_of(link, struct strangers_origin, link);
        if (origin->name == name)
            return origin;
    }
    return NULL;
}

static void forget(struct strangers *strangers, struct stranger *stranger)
{
    struct strangers_origin *origin = stranger->origin;
    list_remove(&stranger->by_age);
    list_remove(&stranger->by_origin);
    stranger->origin = NULL;
    strangers->count--;
    if (--origin->count == 0) {
        list_remove(&origin->link);
        list_push_back(&strangers->free, &origin->link);
    }
}

static void evict(struct strangers *strangers, struct stranger *stranger)
{
    uint64_t now_ns = rt_now_ns();
    strangers->evicted++;
    if (strangers->said_ns == 0 || now_ns - strangers->said_ns > SAY_AGAIN_NS) {
        char address[NAME_BYTES];
        strangers->said_ns = now_ns;
        socket_peer_name(stranger->fd, address, sizeof(address));
        log_warn("too many connections that prove nothing: the oldest are closed",
                 log_text("port", strangers->port), log_text("address", address),
                 log_u64("closed", strangers->evicted));
    }
    forget(strangers, stranger);
    socket_shutdown(stranger->fd);
}

static struct stranger *oldest(const struct strangers *strangers)
{
    return container_of(strangers->by_age.next, struct stranger, by_age);
}

static struct strangers_origin *origin_make(struct strangers *strangers, uint64_t name)
{
    struct strangers_origin *origin =
        container_of(list_pop_front(&strangers->free), struct strangers_origin, link);
    origin->name = name;
    list_push_back(chain_of(strangers, name), &origin->link);
    return origin;
}

/* ---- for others ------------------------------------------------------------------------------ */

void strangers_enter(struct strangers *strangers, struct stranger *stranger, int fd)
{
    uint64_t name = socket_origin(fd);

    pthread_mutex_lock(&strangers->mutex);
    struct strangers_origin *origin = origin_find(strangers, name);
    if (origin != NULL && origin->count == strangers->share)
        evict(strangers, container_of(origin->strangers.next, struct stranger, by_origin));
    if (strangers->count == strangers->places)
        evict(strangers, oldest(strangers));
    origin = origin_find(strangers, name); /* it may have gone with its last stranger */
    if (origin == NULL)
        origin = origin_make(strangers, name);
    stranger->fd = fd;
    stranger->origin = origin;
    list_push_back(&origin->strangers, &stranger->by_origin);
    list_push_back(&strangers->by_age, &stranger->by_age);
    origin->count++;
    strangers->count++;
    pthread_mutex_unlock(&strangers->mutex);
}

bool strangers_leave(struct strangers *strangers, struct stranger *stranger)
{
    pthread_mutex_lock(&strangers->mutex);
    bool there = stranger->origin != NULL;
    if (there)
        forget(strangers, stranger);
    pthread_mutex_unlock(&strangers->mutex);
    return there;
}

bool strangers_evict(struct strangers *strangers)
{
    pthread_mutex_lock(&strangers->mutex);
    bool found = strangers->count > 0;
    if (found)
        evict(strangers, oldest(strangers));
    pthread_mutex_unlock(&strangers->mutex);
    return found;
}

uint64_t strangers_evicted(struct strangers *strangers)
{
    pthread_mutex_lock(&strangers->mutex);
    uint64_t evicted = strangers->evicted;
    pthread_mutex_unlock(&strangers->mutex);
    return evicted;
}
