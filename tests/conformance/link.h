/*
 * link.h - a link of the TCP fabric that can be cut: a thread that passes bytes on between clients
 * and the target. While it is cut it takes what clients send and passes nothing on. Healed, it
 * serves new connections at once and delivers what is old some time later, even if the sender has
 * closed: as a network may that lost its packets for a while.
 */
#ifndef CONFORMANCE_LINK_H
#define CONFORMANCE_LINK_H

struct link;

/* To the port on 127.0.0.1. */
struct link *link_create(unsigned port);
void link_destroy(struct link *link);

/* "127.0.0.1:port", for clients. */
const char *link_location(const struct link *link);

/* Any thread. */
void link_cut(struct link *link);
void link_heal(struct link *link);

#endif
