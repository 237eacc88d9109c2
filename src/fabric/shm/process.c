/*
 * process.c - naming a process without mistaking another for it.
 *
 * A process id is used again some day. With the time the process started it is unique while the
 * machine runs, and a pidfd, once open, means one process for good. So: open the pidfd, then
 * compare the start time; what is done through the pidfd afterwards happens to the right process or
 * to none.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/shm_int.h"

static const uint64_t DEATH_NS = 5 * RT_NS_PER_S;

/* Field 22 of /proc/PID/stat; 0 when it is not to be had. */
static uint64_t start_time_of(pid_t process)
{
    enum { FIELD_AFTER_COMMAND = 3, FIELD_START_TIME = 22 };
    char path[32], text[1024];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t bytes = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (bytes <= 0)
        return 0;
    text[bytes] = '\0';
    /* The command's name is in brackets and may contain anything, brackets too; numbers follow. */
    const char *at = strrchr(text, ')');
    for (int field = FIELD_AFTER_COMMAND; at != NULL && field <= FIELD_START_TIME; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

bool shm_process_at(int socket, struct window_attachment *out)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    out->process = SHM_PROCESS_UNSEEN;
    out->start_time = 0;
    /* 0 is a process of a pid namespace that cannot be seen from this one. */
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0)
        return true;
    uint64_t start_time = start_time_of(peer.pid);
    /* Had it died before that, the id could be another's by now; but it still holds the socket. */
    struct pollfd hung_up = {.fd = socket, .events = POLLRDHUP};
    if (poll(&hung_up, 1, 0) != 0)
        return false;
    if (start_time != 0) {
        out->process = (uint32_t)peer.pid;
        out->start_time = start_time;
    }
    return true;
}

static bool is_dead(int pidfd)
{
    struct pollfd death = {.fd = pidfd, .events = POLLIN};
    return poll(&death, 1, 0) == 1 && (death.revents & POLLIN) != 0;
}

enum shm_life shm_process_look(const struct window_attachment *who, int *pidfd)
{
    if (who->process == SHM_PROCESS_UNSEEN)
        return SHM_UNKNOWN;
    int fd = pidfd_open((pid_t)who->process, 0);
    if (fd < 0) {
        /* EINVAL and ENOENT: the number is now that of some process's thread. */
        bool gone = errno == ESRCH || errno == EINVAL || errno == ENOENT;
        return gone ? SHM_GONE : SHM_UNKNOWN;
    }
    enum shm_life life;
    uint64_t start_time = start_time_of((pid_t)who->process);
    if (is_dead(fd) || (start_time != 0 && start_time != who->start_time))
        life = SHM_GONE;
    else
        life = start_time != 0 ? SHM_LIVES : SHM_UNKNOWN;
    if (life == SHM_LIVES && pidfd != NULL)
        *pidfd = fd;
    else
        close(fd);
    return life;
}

struct death_watch {
    struct rt_fd fd;
    struct rt_task *task;
    bool dead;
};

static void death_seen(struct rt_fd *fd, uint32_t events)
{
    (void)events;
    struct death_watch *watch = container_of(fd, struct death_watch, fd);
    watch->dead = true;
    rt_fd_change(rt_loop_self(), fd, 0);
    rt_unpark(watch->task);
}

/* Readable means that no thread of it is left, and so none that could still store something. */
static enum pando_status wait_for_death_co(int pidfd)
{
    struct rt_loop *loop = rt_loop_self();
    struct death_watch watch = {
        .fd = {.fd = pidfd, .events = EPOLLIN, .ready = death_seen},
        .task = rt_task_self(),
    };
    uint64_t deadline_ns = rt_now_ns() + DEATH_NS;
    enum pando_status status = rt_fd_add(loop, &watch.fd);
    if (status != PANDO_OK)
        return status;
    while (!watch.dead && rt_now_ns() < deadline_ns)
        (void)rt_park_co(deadline_ns);
    rt_fd_remove(loop, &watch.fd);
    return watch.dead ? PANDO_OK : PANDO_TIMEOUT;
}

enum pando_status shm_process_end_co(const struct window_attachment *who)
{
    int pidfd = -1;
    enum pando_status status;

    switch (shm_process_look(who, &pidfd)) {
    case SHM_GONE:
        return PANDO_OK;
    case SHM_UNKNOWN:
        log_warn("cannot fence: the member's process cannot be seen from here; run both in one pid "
                 "namespace",
                 log_u64("process", who->process));
        return PANDO_UNSUPPORTED;
    case SHM_LIVES:
        break;
    }
    if (who->process == (uint32_t)getpid()) {
        status = PANDO_UNSUPPORTED;
    } else if (pidfd_send_signal(pidfd, SIGKILL, NULL, 0) == 0) {
        status = wait_for_death_co(pidfd);
        if (status != PANDO_OK)
            log_warn("a killed process does not end", log_u64("process", who->process));
    } else if (errno == ESRCH) {
        status = PANDO_OK;
    } else {
        log_warn("cannot fence: no permission to kill the member's process; run both as one user",
                 log_u64("process", who->process), log_errno("error", errno));
        status = PANDO_UNSUPPORTED;
    }
    close(pidfd);
    return status;
}
