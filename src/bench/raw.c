/*
 * raw.c - the least that a fabric's work could cost: for shared memory a loop of memcpy over
 * the same addresses in the same order, for tcp an echo of messages of the same sizes over a
 * socket.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/fabric.h"
#include "fabric/shm/shm.h"
#include "fabric/tcp/wire_fmt.h"
#include "fabric/window/window.h"

enum {
    ECHO_BYTES = 1 << 20,  /* the most that is sent or received at once */
    COPIES_PER_LOOK = 256, /* at the clock */
    SPINS_PER_LOOK = 256,  /* at the clock */
    PAGE_BYTES = 4096,
};

static const uint64_t ECHO_SLEEP_NS =
    2 * RT_NS_PER_MS; /* without a message the echo stops spinning */

struct bench_raw {
    const struct bench_spec *spec;
    struct window window; /* memcpy */
    bool echo;
    unsigned lines; /* echo: one per thread */
    int fds[BENCH_THREADS_MAX];
    pid_t children[BENCH_THREADS_MAX];
    uint32_t request_bytes, reply_bytes;
};

const char *bench_raw_name(const struct bench_raw *raw)
{
    return raw->echo ? "echo" : "memcpy";
}

/* ---- memcpy ---------------------------------------------------------------------------------- */

void bench_raw_warm(struct bench_raw *raw, const struct bench_region *region)
{
    if (raw->echo)
        return;
    uint64_t end = region->base + region->slots * region->slot_bytes;
    /* Adding nothing: contents stay, and a page that was never written becomes one of its own. */
    for (uint64_t offset = region->base; offset < end; offset += PAGE_BYTES)
        (void)__atomic_fetch_add((uint64_t *)(raw->window.base + offset), 0, __ATOMIC_RELAXED);
}

static void raw_operation(const struct bench_spec *spec, uint8_t *at, uint8_t *buffer)
{
    uint64_t expected = 0;
    switch (spec->kind) {
    case FABRIC_READ:
        memcpy(buffer, at, spec->size);
        break;
    case FABRIC_WRITE:
        memcpy(at, buffer, spec->size);
        break;
    case FABRIC_CAS:
        (void)__atomic_compare_exchange_n((uint64_t *)at, &expected, 0, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST);
        break;
    case FABRIC_FAA:
        (void)__atomic_fetch_add((uint64_t *)at, 0, __ATOMIC_SEQ_CST);
        break;
    }
}

static void memcpy_slice(struct bench_raw *raw, unsigned thread, const struct bench_region *region,
                         uint64_t duration_ns, struct bench_intervals *intervals)
{
    const struct bench_spec *spec = raw->spec;
    size_t stride = bench_buffer_stride(spec);
    struct bench_addresses *lanes = calloc(spec->depth, sizeof(*lanes));
    uint8_t *buffers = aligned_alloc(64, bench_buffers_bytes(spec));
    uint64_t operations = 0;

    if (lanes == NULL || buffers == NULL)
        goto out;
    for (unsigned i = 0; i < spec->depth; i++)
        bench_addresses_init(&lanes[i], region, thread, i);
    memset(buffers, 0, bench_buffers_bytes(spec));
    uint64_t begin_ns = rt_machine_ns(), now_ns = begin_ns;
    unsigned lane = 0, node;
    bench_intervals_start(intervals, begin_ns);
    while (now_ns - begin_ns < duration_ns) {
        for (unsigned i = 0; i < COPIES_PER_LOOK; i += spec->list) {
            uint8_t *buffer = buffers + stride * spec->list * lane;
            for (unsigned j = 0; j < spec->list; j++) {
                uint64_t offset = bench_addresses_next(&lanes[lane], &node);
                raw_operation(spec, raw->window.base + offset, buffer + stride * j);
            }
            lane = lane + 1 == spec->depth ? 0 : lane + 1;
            operations += spec->list;
        }
        now_ns = rt_machine_ns();
        if (now_ns - intervals->last_ns >= BENCH_INTERVAL_NS)
            bench_intervals_add(intervals, now_ns, operations);
    }
out:
    free(lanes);
    free(buffers);
}

/* ---- echo, its far end: a process of its own ------------------------------------------------- */

/* The other side of a benchmark that was bound to some cores runs on the others. */
static void leave_cores(void)
{
    cpu_set_t mine, others;
    long count = sysconf(_SC_NPROCESSORS_CONF);
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
        return;
    CPU_ZERO(&others);
    for (long i = 0; i < count && i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &mine))
            CPU_SET(i, &others);
    }
    if (CPU_COUNT(&others) > 0)
        (void)sched_setaffinity(0, sizeof(others), &others);
}

static bool send_all(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t put = send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (put > 0) {
            bytes += put;
            size -= (size_t)put;
        }
    }
    return true;
}

static void wait_for_input(int fd, uint64_t *quiet_since_ns)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    uint64_t now_ns = rt_machine_ns();
    if (*quiet_since_ns == 0)
        *quiet_since_ns = now_ns;
    if (now_ns - *quiet_since_ns > ECHO_SLEEP_NS)
        (void)poll(&wait, 1, -1);
}

/* After a fork: system calls only. */
static void echo_main(int fd, uint32_t request_bytes, uint32_t reply_bytes)
{
    static uint8_t in[ECHO_BYTES], out[ECHO_BYTES];
    uint64_t have = 0, quiet_since_ns = 0;
    unsigned spins = 0;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    leave_cores();
    for (;;) {
        ssize_t got = recv(fd, in, sizeof(in), MSG_DONTWAIT);
        if (got > 0) {
            quiet_since_ns = 0;
            have += (uint64_t)got;
            uint64_t owed = have / request_bytes * reply_bytes;
            have %= request_bytes;
            while (owed > 0) {
                size_t part = owed < sizeof(out) ? owed : sizeof(out);
                if (!send_all(fd, out, part))
                    _exit(0);
                owed -= part;
            }
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            _exit(0);
        } else if (++spins % SPINS_PER_LOOK == 0) {
            wait_for_input(fd, &quiet_since_ns);
        }
    }
}

/* A TCP connection of this process with itself. */
static bool loopback_pair(int *near, int *far)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int one = 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *far = -1;
    if (listener >= 0 && *near >= 0 &&
        bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
        listen(listener, 1) == 0 &&
        getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
        connect(*near, (struct sockaddr *)&address, sizeof(address)) == 0)
        *far = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (listener >= 0)
        close(listener);
    if (*far < 0) {
        if (*near >= 0)
            close(*near);
        return false;
    }
    setsockopt(*near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(*far, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return true;
}

static bool echo_start(struct bench_raw *raw)
{
    int near, far;
    if (!loopback_pair(&near, &far))
        return false;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(near);
        echo_main(far, raw->request_bytes, raw->reply_bytes);
    }
    close(far);
    if (child < 0) {
        close(near);
        return false;
    }
    raw->fds[raw->lines] = near;
    raw->children[raw->lines++] = child;
    return true;
}

/* ---- echo, the near end ---------------------------------------------------------------------- */

static uint32_t padded(uint32_t size)
{
    return (size + 7) & ~(uint32_t)7;
}

/* What a list takes on the wire. */
static void set_echo_sizes(struct bench_raw *raw)
{
    uint32_t request = WIRE_OP, reply = 0;
    switch (raw->spec->kind) {
    case FABRIC_READ:
        reply += padded(raw->spec->size);
        break;
    case FABRIC_WRITE:
        request += padded(raw->spec->size);
        break;
    case FABRIC_CAS:
        request += 16;
        reply += 8;
        break;
    case FABRIC_FAA:
        request += 8;
        reply += 8;
        break;
    }
    raw->request_bytes = WIRE_LIST_HEADER + request * raw->spec->list;
    raw->reply_bytes = WIRE_LIST_HEADER + reply * raw->spec->list;
}

static bool send_requests(struct bench_raw *raw, int fd, uint64_t count)
{
    static uint8_t zeroes[ECHO_BYTES];
    for (uint64_t left = count * raw->request_bytes; left > 0;) {
        size_t part = left < sizeof(zeroes) ? left : sizeof(zeroes);
        if (!send_all(fd, zeroes, part))
            return false;
        left -= part;
    }
    return true;
}

static void echo_slice(struct bench_raw *raw, unsigned thread, uint64_t duration_ns,
                       struct bench_intervals *intervals, struct histogram *latency_ns)
{
    unsigned depth = raw->spec->depth;
    uint64_t outstanding = depth, have = 0, operations = 0;
    int fd = raw->fds[thread];
    uint8_t *in = malloc(ECHO_BYTES);
    uint64_t begin_ns = rt_machine_ns(), sent_ns = begin_ns;

    bench_intervals_start(intervals, begin_ns);
    if (in == NULL || !send_requests(raw, fd, depth))
        goto out;
    while (outstanding > 0) {
        ssize_t got = recv(fd, in, ECHO_BYTES, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            break;
        have += got > 0 ? (uint64_t)got : 0;
        uint64_t done = have / raw->reply_bytes;
        if (done == 0)
            continue;
        have %= raw->reply_bytes;
        operations += done * raw->spec->list;
        uint64_t now_ns = rt_machine_ns();
        if (now_ns - intervals->last_ns >= BENCH_INTERVAL_NS)
            bench_intervals_add(intervals, now_ns, operations);
        if (depth == 1)
            histogram_add(latency_ns, now_ns - sent_ns);
        if (now_ns - begin_ns >= duration_ns) {
            outstanding -= done;
            continue;
        }
        sent_ns = now_ns;
        if (!send_requests(raw, fd, done))
            break;
    }
out:
    free(in);
}

void bench_raw_slice(struct bench_raw *raw, unsigned thread, const struct bench_region *region,
                     uint64_t duration_ns, struct bench_intervals *intervals,
                     struct histogram *latency_ns)
{
    if (raw->echo)
        echo_slice(raw, thread, duration_ns, intervals, latency_ns);
    else
        memcpy_slice(raw, thread, region, duration_ns, intervals);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static bool open_memory(struct bench_raw *raw, const struct env *env, uint64_t embedded_bytes,
                        char *error, size_t error_bytes)
{
    char path[FABRIC_LOCATION_MAX];
    if (strcmp(env_kind(env), "embedded") == 0) {
        /* The same kind of memory; the pool's own cannot be reached but through the fabric. */
        if (window_map_memfd(&raw->window, 0, embedded_bytes, 0) == PANDO_OK)
            return true;
        snprintf(error, error_bytes, "--raw: no memory for a second window");
        return false;
    }
    return fabric_shm_path(env_memory_place(env, 0), 0, path, sizeof(path)) == PANDO_OK &&
           window_map_file(&raw->window, path, WINDOW_ATTACH, 0, 0, 0, error, error_bytes) ==
               PANDO_OK;
}

struct bench_raw *bench_raw_open(const struct env *env, const struct bench_spec *spec,
                                 uint64_t embedded_bytes, char *error, size_t error_bytes)
{
    struct bench_raw *raw = calloc(1, sizeof(*raw));
    snprintf(error, error_bytes, "--raw: out of memory");
    if (raw == NULL)
        return NULL;
    raw->spec = spec;
    raw->window.fd = -1;
    raw->echo = strcmp(env_kind(env), "tcp") == 0;
    if (!raw->echo) {
        if (open_memory(raw, env, embedded_bytes, error, error_bytes))
            return raw;
        free(raw);
        return NULL;
    }
    set_echo_sizes(raw);
    while (raw->lines < spec->threads) {
        if (!echo_start(raw)) {
            snprintf(error, error_bytes, "--raw: cannot start an echo: %s", strerror(errno));
            bench_raw_close(raw);
            return NULL;
        }
    }
    return raw;
}

void bench_raw_close(struct bench_raw *raw)
{
    for (unsigned i = 0; i < raw->lines; i++) {
        close(raw->fds[i]);
        kill(raw->children[i], SIGKILL);
        (void)waitpid(raw->children[i], NULL, 0);
    }
    window_unmap(&raw->window);
    free(raw);
}
