/*
 * process.c - naming a process without mistaking another for it.
 *
 * A process id is used again some day; a pidfd, once open, means one process for good. So a pidfd is
 * taken while the process is known to be the right one, and everything is done through it:
 *
 *   at attach         The kernel gives the pidfd of who connected the socket (SO_PEERPIDFD, Linux 6.5).
 *                     Before that: the pidfd is opened by the process id that the kernel noted when
 *                     the socket was connected, and the socket is still connected afterwards.
 *   after a restart   The pidfd is opened by the process id that the owner has on record, and the
 *                     process started at the time on record, in this boot of the machine. Two
 *                     processes of one id cannot have that in common.
 *
 * What is read from /proc by the id belongs to the pidfd's process if that still lives afterwards.
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
#include "fabric/shm/fence_int.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* x86-64, aarch64; not in older headers */
#endif

static const uint64_t DEATH_NS = 5 * RT_NS_PER_S;

/* A file of /proc as text; false: there is none to be had. */
static bool read_text(const char *path, char *text, size_t text_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t bytes = read(fd, text, text_bytes - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0;
}

/* Field 22 of /proc/PID/stat; 0 when it is not to be had. */
static uint64_t start_time_of(pid_t process)
{
    enum { FIELD_AFTER_COMMAND = 3, FIELD_START_TIME = 22 };
    char path[32], text[1024];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
    if (!read_text(path, text, sizeof(text)))
        return 0;
    /* The command's name is in brackets and may contain anything, brackets too; numbers follow. */
    const char *at = strrchr(text, ')');
    for (int field = FIELD_AFTER_COMMAND; at != NULL && field <= FIELD_START_TIME; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

/* A UUID as text to its 16 bytes. */
static bool parse_boot(const char *text, uint8_t out[16])
{
    size_t digits = 0;
    for (; *text != '\0' && *text != '\n'; text++) {
        const char *all = "0123456789abcdef", *digit = strchr(all, *text);
        if (*text == '-')
            continue;
        if (digit == NULL || digits == 32)
            return false;
        out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | (digit - all));
        digits++;
    }
    return digits == 32;
}

struct window_boot shm_boot_now(void)
{
    struct window_boot boot = {0};
    char text[64];
    if (!read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text)) ||
        !parse_boot(text, boot.id))
        memset(&boot, 0, sizeof(boot));
    return boot;
}

static bool is_dead(int pidfd)
{
    struct pollfd death = {.fd = pidfd, .events = POLLIN};
    return poll(&death, 1, 0) == 1 && (death.revents & POLLIN) != 0;
}

/* -1 and errno. */
static int peer_pidfd(int socket, pid_t process)
{
    int pidfd = -1;
    socklen_t size = sizeof(pidfd);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
        return pidfd;
    return errno == ENOPROTOOPT ? pidfd_open(process, 0) : -1;
}

bool shm_process_at(int socket, struct shm_attached *out)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    *out = (struct shm_attached){.who.process = SHM_PROCESS_UNSEEN, .pidfd = -1};
    /* 0 is a process of a pid namespace that cannot be seen from this one. */
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0)
        return true;
    int pidfd = peer_pidfd(socket, peer.pid);
    if (pidfd < 0) {
        if (errno == ESRCH) /* that one has hung up and ended */
            errno = 0;
        return false;
    }
    errno = 0;
    uint64_t start_time = start_time_of(peer.pid);
    int why = errno;
    struct pollfd hung_up = {.fd = socket, .events = POLLRDHUP};
    if (poll(&hung_up, 1, 0) != 0 || is_dead(pidfd)) {
        close(pidfd);
        errno = 0;
        return false;
    }
    if (start_time == 0 && (why == EMFILE || why == ENFILE)) { /* that will pass */
        close(pidfd);
        errno = why;
        return false;
    }
    if (start_time == 0) { /* no /proc, or not for this user */
        close(pidfd);
        return true;
    }
    out->who.process = (uint32_t)peer.pid;
    out->who.start_time = start_time;
    out->pidfd = pidfd;
    return true;
}

/* By what is on record; the pidfd is taken if it lives. */
static enum shm_life look_on_record(struct shm_attached *who)
{
    int pidfd = pidfd_open((pid_t)who->who.process, 0);
    if (pidfd < 0) {
        /* EINVAL and ENOENT: the number is now that of some process's thread. */
        bool gone = errno == ESRCH || errno == EINVAL || errno == ENOENT;
        return gone ? SHM_GONE : SHM_UNKNOWN;
    }
    enum shm_life life;
    uint64_t start_time = start_time_of((pid_t)who->who.process);
    if (is_dead(pidfd) || (start_time != 0 && start_time != who->who.start_time))
        life = SHM_GONE;
    else
        life = start_time != 0 ? SHM_LIVES : SHM_UNKNOWN;
    if (life == SHM_LIVES)
        who->pidfd = pidfd;
    else
        close(pidfd);
    return life;
}

enum shm_life shm_process_look(struct shm_attached *who)
{
    if (who->pidfd >= 0)
        return is_dead(who->pidfd) ? SHM_GONE : SHM_LIVES;
    return who->who.process == SHM_PROCESS_UNSEEN ? SHM_UNKNOWN : look_on_record(who);
}

void shm_process_let_go(struct shm_attached *who)
{
    if (who->pidfd >= 0)
        close(who->pidfd);
    who->pidfd = -1;
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

static enum pando_status kill_co(int pidfd, uint32_t process)
{
    if (pidfd_send_signal(pidfd, SIGKILL, NULL, 0) == 0) {
        enum pando_status status = wait_for_death_co(pidfd);
        if (status != PANDO_OK)
            log_warn("a killed process does not end", log_u64("process", process));
        return status;
    }
    if (errno == ESRCH)
        return PANDO_OK;
    log_warn("cannot fence: no permission to kill the member's process; run both as one user",
             log_u64("process", process), log_errno("error", errno));
    return PANDO_UNSUPPORTED;
}

enum pando_status shm_process_end_co(struct shm_attached *who)
{
    uint32_t process = who->who.process;

    switch (shm_process_look(who)) {
    case SHM_GONE:
        return PANDO_OK;
    case SHM_UNKNOWN:
        log_warn("cannot fence: the member's process cannot be seen from here; run both in one pid "
                 "namespace",
                 log_u64("process", process));
        return PANDO_UNSUPPORTED;
    case SHM_LIVES:
        break;
    }
    if (process == (uint32_t)getpid())
        return PANDO_UNSUPPORTED;
    if (who->hearsay) {
        log_warn("cannot fence: only the window, which all members can write to, says which "
                 "process the member is; "
                 "end it by hand if it is one of the pool",
                 log_u64("process", process));
        return PANDO_UNSUPPORTED;
    }
    /* Its own descriptor: the member may be detached while this waits. */
    int pidfd = fcntl(who->pidfd, F_DUPFD_CLOEXEC, 0);
    if (pidfd < 0) {
        log_warn("cannot fence: no descriptor left; raise the limit (ulimit -n)",
                 log_u64("process", process), log_errno("error", errno));
        return PANDO_NO_MEMORY;
    }
    enum pando_status status = kill_co(pidfd, process);
    close(pidfd);
    return status;
}
