/*
 * strangers.h - connections whose other side has proved nothing yet, so that they keep nobody out:
 * there is always room for one more. When an address has its share of the places, its oldest
 * stranger is evicted for the new one; when all places are taken, the oldest of all.
 *
 * To evict is to shut the socket down. Whoever serves it reads the end and closes it, on its own
 * loop. An address is an IPv4 address or the first half of an IPv6 one, which is what one network
 * card can have many of.
 *
 * Any thread that has a loop.
 */
#ifndef FABRIC_STREAM_STRANGERS_H
#define FABRIC_STREAM_STRANGERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct strangers;
struct strangers_origin;

/* Memory of whoever serves the connection; zeroed to begin with. */
struct stranger {
    struct list by_age, by_origin;
    struct strangers_origin *origin; /* NULL: not, or no longer, among them */
    int fd;
};

/* `port` is what messages call it, at most 63 bytes of it. An address may have a quarter of the
 * places. NULL: no memory. */
struct strangers *strangers_create(const char *port, unsigned places);

/* Another share of the places for an address. Before anybody has entered. */
void strangers_set_share(struct strangers *strangers, unsigned share);
void strangers_destroy(struct strangers *strangers);

/* The newest. Its descriptor stays open until it has left. */
void strangers_enter(struct strangers *strangers, struct stranger *stranger, int fd);

/* It has proved who it is, or is about to be closed. False: it was evicted, or never entered. */
bool strangers_leave(struct strangers *strangers, struct stranger *stranger);

/* Evicts the oldest of all; false: there is none. */
bool strangers_evict(struct strangers *strangers);

/* How many were evicted so far. */
uint64_t strangers_evicted(struct strangers *strangers);

#endif
