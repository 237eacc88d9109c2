#include "check/workers.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"

enum { SEED_SECONDS = 120 };

#define IDLE UINT64_MAX

/* What the processes share. */
struct board {
    _Atomic uint64_t next_seed;
    atomic_bool stop;
    _Atomic uint64_t seed_of[CHECK_WORKERS_MAX]; /* what each is at, or IDLE */
};

struct message {
    uint64_t seed;
    struct check_result result;
};

struct crew {
    const struct check_run *run;
    struct board *board;
    pid_t processes[CHECK_WORKERS_MAX];
    struct pollfd pipes[CHECK_WORKERS_MAX]; /* what they report; fd -1: it has ended */
    unsigned count, running;
    check_seed_fn fn;
    void *context;
};

static unsigned seed_seconds(const struct check_run *run)
{
    return run->seed_seconds != 0 ? run->seed_seconds : SEED_SECONDS;
}

/* ---- a worker -------------------------------------------------------------------------------- */

static bool send_all(int fd, const void *bytes, size_t size)
{
    const char *at = bytes;
    while (size > 0) {
        ssize_t sent = write(fd, at, size);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

static void work(const struct crew *crew, unsigned number, int to_parent)
{
    struct check_options options = crew->run->options;
    struct message *message = calloc(1, sizeof(*message));
    pando_assert(message != NULL);
    while (!atomic_load(&crew->board->stop)) {
        uint64_t seed = atomic_fetch_add(&crew->board->next_seed, 1);
        if (seed > crew->run->last_seed)
            break;
        atomic_store(&crew->board->seed_of[number], seed);
        alarm(seed_seconds(crew->run));
        options.seed = message->seed = seed;
        check_seed(&options, &message->result);
        alarm(0);
        if (!send_all(to_parent, message, sizeof(*message)))
            break;
        atomic_store(&crew->board->seed_of[number], IDLE);
    }
    free(message);
}

/* ---- the crew -------------------------------------------------------------------------------- */

static bool start_worker(struct crew *crew)
{
    unsigned number = crew->count;
    pid_t parent = getpid();
    int ends[2];

    if (pipe(ends) != 0)
        return false;
    atomic_store(&crew->board->seed_of[number], IDLE);
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return false;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        for (unsigned i = 0; i < number; i++)
            close(crew->pipes[i].fd);
        close(ends[0]);
        work(crew, number, ends[1]);
        fflush(NULL);
        _exit(0);
    }
    close(ends[1]);
    crew->processes[number] = child;
    crew->pipes[number] = (struct pollfd){.fd = ends[0], .events = POLLIN};
    crew->count++;
    crew->running++;
    return true;
}

static void tell(struct crew *crew, uint64_t seed, const struct check_result *result)
{
    if (!crew->fn(crew->context, seed, result))
        atomic_store(&crew->board->stop, true);
}

/* Its pipe is closed: it has ended, or crashed at a seed, and then another one takes its place. */
static void reap(struct crew *crew, unsigned number)
{
    struct check_result result = {.violated = true};
    uint64_t seed = atomic_load(&crew->board->seed_of[number]);
    int how = 0;

    close(crew->pipes[number].fd);
    crew->pipes[number].fd = -1;
    crew->running--;
    while (waitpid(crew->processes[number], &how, 0) < 0 && errno == EINTR)
        continue;
    if (seed == IDLE)
        return;
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM)
        snprintf(result.text, sizeof(result.text), "no end in %u s of real time",
                 seed_seconds(crew->run));
    else if (WIFSIGNALED(how))
        snprintf(result.text, sizeof(result.text), "the program crashed: %s",
                 strsignal(WTERMSIG(how)));
    else
        snprintf(result.text, sizeof(result.text), "the program ended with status %d",
                 WEXITSTATUS(how));
    tell(crew, seed, &result);
    if (crew->count < CHECK_WORKERS_MAX && !atomic_load(&crew->board->stop))
        (void)start_worker(crew);
}

/* False at the end of the pipe. */
static bool receive(struct crew *crew, unsigned number, struct message *message)
{
    char *at = (char *)message;
    size_t got = 0;
    while (got < sizeof(*message)) {
        ssize_t more = read(crew->pipes[number].fd, at + got, sizeof(*message) - got);
        if (more < 0 && errno == EINTR)
            continue;
        if (more <= 0)
            return false;
        got += (size_t)more;
    }
    tell(crew, message->seed, &message->result);
    return true;
}

static void listen_to(struct crew *crew, struct message *message)
{
    while (crew->running > 0) {
        if (poll(crew->pipes, crew->count, -1) < 0)
            continue;
        for (unsigned i = 0; i < crew->count; i++) {
            if (crew->pipes[i].fd >= 0 && crew->pipes[i].revents != 0 && !receive(crew, i, message))
                reap(crew, i);
        }
    }
}

bool check_workers_run(const struct check_run *run, check_seed_fn fn, void *context)
{
    struct crew crew = {.run = run, .fn = fn, .context = context};
    struct message *message = calloc(1, sizeof(*message));
    void *shared =
        mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool started = false;

    if (message != NULL && shared != MAP_FAILED) {
        crew.board = shared;
        atomic_store(&crew.board->next_seed, run->first_seed);
        for (unsigned i = 0; i < run->workers && i < CHECK_WORKERS_MAX; i++)
            started |= start_worker(&crew);
        listen_to(&crew, message);
    }
    if (shared != MAP_FAILED)
        munmap(shared, sizeof(struct board));
    free(message);
    return started;
}
