/*
 * io.h - file descriptors and pollers on a real loop: for the fabric's backends and the servers.
 * There is no such thing in the simulator.
 */
#ifndef RT_IO_H
#define RT_IO_H

#include "rt/rt.h"

/* What epoll calls them. RT_HANG_UP comes without being asked for. */
enum { RT_READABLE = 0x001, RT_WRITABLE = 0x004, RT_HANG_UP = 0x018 };

/* Level-triggered readiness. `ready` runs on the loop, not on a task, and may remove the rt_fd. */
struct rt_fd {
    int fd;
    uint32_t events; /* RT_READABLE | RT_WRITABLE, or 0 */
    void (*ready)(struct rt_fd *self, uint32_t events);
};

PANDO_MUST_CHECK enum pando_status rt_fd_add(struct rt_loop *loop, struct rt_fd *fd);
void rt_fd_change(struct rt_loop *loop, struct rt_fd *fd, uint32_t events);
void rt_fd_remove(struct rt_loop *loop, struct rt_fd *fd);

/*
 * Called in every turn of the loop while linked. Returns true when it made progress. What it waits
 * for must also wake the loop through an rt_fd, a timer or a message, because the loop stops
 * turning some time after the last progress.
 */
struct rt_poller {
    struct list link;
    bool (*poll)(struct rt_poller *self);
    /* Called when the loop is about to sleep, to ask for a wake-up where that has a price; true when
     * there is something to do after all. NULL: the wake-ups are there anyhow. */
    bool (*before_sleep)(struct rt_poller *self);
};

void rt_poller_add(struct rt_loop *loop, struct rt_poller *poller);
void rt_poller_remove(struct rt_poller *poller);

/* Operations in flight: while there are any the loop spins longer before it sleeps. */
void rt_flight_add(struct rt_loop *loop, int delta);

/* Time as of this turn of the loop: cheap, up to a turn old. */
uint64_t rt_turn_ns(const struct rt_loop *loop);

#endif
