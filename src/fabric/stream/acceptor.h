/*
 * acceptor.h - a listening socket on a loop: hands over what connects, a few in each turn. When
 * descriptors or memory are gone it pauses, says so once a minute at the most, and evicts strangers;
 * connections wait in the kernel's queue meanwhile.
 */
#ifndef FABRIC_STREAM_ACCEPTOR_H
#define FABRIC_STREAM_ACCEPTOR_H

#include "fabric/stream/strangers.h"
#include "pando/pando.h"
#include "rt/io.h"

struct acceptor {
    struct rt_fd io;
    struct rt_timer again;
    struct strangers *strangers; /* NULL: there is nobody to evict */
    void (*accepted)(struct acceptor *acceptor, int fd);
    uint64_t said_ns;
    bool started;
};

/* Begins on this loop. `accepted` runs there, not on a task, and owns the descriptor. */
PANDO_MUST_CHECK enum pando_status
acceptor_start(struct acceptor *acceptor, int listener, struct strangers *strangers,
               void (*accepted)(struct acceptor *acceptor, int fd));

/* On the same loop, before the socket is closed. Nothing if it was not started. */
void acceptor_stop(struct acceptor *acceptor);

#endif
