#include "fabric/stream/acceptor.h"

#include <errno.h>

#include "base/log.h"
#include "fabric/stream/stream.h"

enum { ACCEPTS_PER_TURN = 16, EVICTED_AT_ONCE = 16 };

static const uint64_t PAUSE_NS = 100 * RT_NS_PER_MS;
static const uint64_t EVICTED_PAUSE_NS = 5 * RT_NS_PER_MS; /* until their descriptors are free */
static const uint64_t SAY_AGAIN_NS = 60 * RT_NS_PER_S;

static void accept_again(struct rt_timer *timer)
{
    struct acceptor *acceptor = container_of(timer, struct acceptor, again);
    rt_fd_change(rt_loop_self(), &acceptor->io, RT_READABLE);
}

/* Who waits in the kernel's queue would wake us at once, for nothing. */
static void take_a_break(struct acceptor *acceptor, int error)
{
    uint64_t now_ns = rt_now_ns();
    unsigned evicted = 0;
    if (acceptor->said_ns == 0 || now_ns - acceptor->said_ns > SAY_AGAIN_NS) {
        char address[128];
        socket_name(acceptor->io.fd, address, sizeof(address));
        acceptor->said_ns = now_ns;
        log_error("cannot accept connections, which wait until others are closed; raise the limit "
                  "of open files",
                  log_text("port", address), log_errno("error", error));
    }
    while (evicted < EVICTED_AT_ONCE && acceptor->strangers != NULL &&
           strangers_evict(acceptor->strangers))
        evicted++;
    rt_fd_change(rt_loop_self(), &acceptor->io, 0);
    rt_timer_arm(&acceptor->again, now_ns + (evicted > 0 ? EVICTED_PAUSE_NS : PAUSE_NS));
}

static void listener_ready(struct rt_fd *io, uint32_t events)
{
    struct acceptor *acceptor = container_of(io, struct acceptor, io);
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = socket_accept(io->fd);
        if (fd == SOCKET_LIMIT)
            take_a_break(acceptor, errno);
        if (fd < 0)
            return;
        acceptor->accepted(acceptor, fd);
    }
}

enum pando_status acceptor_start(struct acceptor *acceptor, int listener,
                                 struct strangers *strangers,
                                 void (*accepted)(struct acceptor *acceptor, int fd))
{
    *acceptor = (struct acceptor){
        .io = {.fd = listener, .events = RT_READABLE, .ready = listener_ready},
        .strangers = strangers,
        .accepted = accepted,
    };
    rt_timer_init(&acceptor->again, accept_again);
    enum pando_status status = rt_fd_add(rt_loop_self(), &acceptor->io);
    acceptor->started = status == PANDO_OK;
    return status;
}

void acceptor_stop(struct acceptor *acceptor)
{
    if (!acceptor->started)
        return;
    acceptor->started = false;
    rt_timer_cancel(&acceptor->again);
    rt_fd_remove(rt_loop_self(), &acceptor->io);
}
