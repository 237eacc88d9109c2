/*
 * shm_world.h - what the tests of the shm fabric share: fabrics, tasks, a server and clients in
 * other processes.
 *
 * Those are the test program again, with a role as its first argument: a process with threads (or a
 * sanitizer's fibers) may not fork and go on.
 */
#ifndef TESTS_UNIT_SHM_WORLD_H
#define TESTS_UNIT_SHM_WORLD_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/fabric.h"
#include "fabric/shm/shm.h"
#include "fabric/window/window_fmt.h"
#include "lib/check.h"

enum {
    NODE = 3,
    HOST_BYTES = 4 * 1024 * 1024,
    DEVICE_BYTES = 4096,
    CALLS_AT_ONCE = 200,
    NOBODY = 65534,
    BALLAST_BYTES = 128 * 1024 * 1024,
};

enum { METHOD_ECHO = 1, METHOD_SLOW, METHOD_REFUSE, METHOD_WHO };

static char folder[64];
static char window_path[96];

/* ---- a handler, fabrics, tasks --------------------------------------------------------------- */

static inline enum pando_status answer(void *context, struct fabric_request *request)
{
    (void)context;
    switch (request->method) {
    case METHOD_SLOW:
        rt_sleep_co(5 * RT_NS_PER_MS);
        break;
    case METHOD_REFUSE:
        return PANDO_NOT_FOUND;
    case METHOD_WHO:
        memcpy(request->reply, &request->from, sizeof(request->from));
        request->reply_size = sizeof(request->from);
        return PANDO_OK;
    default:
        break;
    }
    if (request->body.size > 0)
        memcpy(request->reply, request->body.data, request->body.size);
    request->reply_size = (uint32_t)request->body.size;
    return PANDO_OK;
}

static inline struct fabric *open_window(const char *path, bool temporary)
{
    struct fabric_shm_options options = {
        .node = NODE,
        .target = FABRIC_MEMORY,
        .path = path,
        .temporary = temporary,
        .host_bytes = HOST_BYTES,
        .device_bytes = DEVICE_BYTES,
    };
    char error[256] = "";
    struct fabric *fabric;
    enum pando_status status = fabric_shm_open(&options, &fabric, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("open: %s: %s", pando_status_text(status), error);
    fabric_serve(fabric, answer, NULL);
    return fabric;
}

static inline struct fabric *open_client(struct fabric_identity identity)
{
    struct fabric_shm_options options = {.node = 100, .target = FABRIC_COMPUTE};
    char error[256];
    struct fabric *fabric;
    CHECK_OK(fabric_shm_open(&options, &fabric, error, sizeof(error)));
    CHECK_OK(fabric_add_peer(fabric, NODE, FABRIC_MEMORY, window_path));
    fabric_set_identity(fabric, identity);
    return fabric;
}

static const struct fabric_identity nobody = {0};

static inline void run(void (*test)(void *), void *arg)
{
    struct rt_loop *loop = rt_loop_create();
    CHECK(loop != NULL);
    CHECK_OK(rt_spawn(loop, test, arg));
    rt_loop_run(loop);
    rt_loop_destroy(loop);
}

static inline uint64_t read_word(struct fabric_endpoint *endpoint, uint64_t offset)
{
    uint64_t word = 0;
    struct fabric_op op = fabric_read(offset, &word, 8);
    CHECK_OK(fabric_submit_co(endpoint, &op, 1));
    return word;
}

static inline void write_word(struct fabric_endpoint *endpoint, uint64_t offset, uint64_t word)
{
    struct fabric_op op = fabric_write(offset, &word, 8);
    CHECK_OK(fabric_submit_co(endpoint, &op, 1));
}

static inline void wait_until_broken(struct fabric_endpoint *endpoint)
{
    uint64_t start_ns = rt_now_ns();
    while (!fabric_broken(endpoint)) {
        CHECK(rt_now_ns() - start_ns < RT_NS_PER_S);
        rt_sleep_co(RT_NS_PER_MS);
    }
}

static inline enum pando_status try_connect(struct fabric_identity identity)
{
    struct fabric *fabric = open_client(identity);
    struct fabric_endpoint *endpoint;
    enum pando_status status = fabric_connect_co(fabric, NODE, &endpoint);
    if (status == PANDO_OK)
        fabric_disconnect_co(endpoint);
    fabric_close(fabric);
    return status;
}

/* ---- other processes ------------------------------------------------------------------------- */

struct child {
    pid_t process;
    int input; /* closing it asks the child to end */
};

/* Returns when the child has said that it is ready. */
static inline struct child start(const char *role, const char *argument)
{
    int to[2], from[2];
    char said = 0;
    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    struct child child = {.process = fork(), .input = to[1]};
    CHECK(child.process >= 0);
    if (child.process == 0) {
        char *const arguments[] = {"shm_fabric", (char *)(uintptr_t)role, window_path,
                                   (char *)(uintptr_t)argument, NULL};
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        execv("/proc/self/exe", arguments);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    if (read(from[0], &said, 1) != 1)
        CHECK_FAIL("the %s did not start", role);
    close(from[0]);
    return child;
}

static inline int wait_for(pid_t process)
{
    int status;
    CHECK(waitpid(process, &status, 0) == process);
    return status;
}

static inline void stop(struct child child)
{
    close(child.input);
    int status = wait_for(child.process);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void kill_hard(struct child child)
{
    CHECK(kill(child.process, SIGKILL) == 0);
    int status = wait_for(child.process);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(child.input);
}

/* Returns when it stands still. */
static inline void pause_hard(struct child child)
{
    int status;
    CHECK(kill(child.process, SIGSTOP) == 0);
    CHECK(waitpid(child.process, &status, WUNTRACED) == child.process && WIFSTOPPED(status));
}

/* Already, by a signal. */
static inline void expect_killed(struct child child)
{
    int status;
    pid_t found = waitpid(child.process, &status, WNOHANG);
    CHECK(found == child.process);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(child.input);
}

static inline void say_ready(void)
{
    CHECK(write(STDOUT_FILENO, "r", 1) == 1);
}

static inline void wait_for_end(void)
{
    char byte;
    ssize_t got;
    do {
        got = read(STDIN_FILENO, &byte, 1);
    } while (got > 0 || (got < 0 && errno == EINTR));
}

static inline int role_server(void)
{
    struct fabric *fabric = open_window(window_path, false);
    CHECK_OK(fabric_shm_start(fabric));
    say_ready();
    wait_for_end();
    fabric_close(fabric);
    return 0;
}

/* A server whose log is in this file, and that has so many descriptors left, or as many as there may be
 * (-1). When it reads a byte it has some more. */
static inline int role_crowded(const char *words)
{
    enum { MORE = 16 };
    char path[128], error[256], byte;
    struct rlimit limit;
    int left, fd, last = -1;
    CHECK(sscanf(words, "%d %127s", &left, path) == 2);
    log_set_level(LOG_LEVEL_WARN);
    CHECK_OK(log_open_file(path, error, sizeof(error)));
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = left >= 0 ? (rlim_t)256 : limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    struct fabric *fabric = open_window(window_path, false);
    CHECK_OK(fabric_shm_start(fabric));
    while (left >= 0 && (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        last = fd;
    for (int i = 0; i < left; i++)
        CHECK(close(last--) == 0);
    say_ready();
    if (read(STDIN_FILENO, &byte, 1) == 1)
        for (int i = 0; i < MORE; i++)
            CHECK(close(last--) == 0);
    wait_for_end();
    fabric_close(fabric);
    return 0;
}

/* A server of another user. */
static inline int role_impostor(void)
{
    CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    return role_server();
}

/* A word for each member to count in, and one to leave a sign in. */
static inline uint64_t count_at(uint16_t member)
{
    return WINDOW_FIRST + 8 * (uint64_t)member;
}

static inline uint64_t sign_at(uint16_t member)
{
    return count_at(member) + 8 * FABRIC_MEMBERS_MAX;
}

/* Connects once more and parts in order. */
static inline void visit(struct fabric *fabric, uint16_t member)
{
    struct fabric_endpoint *endpoint;
    while (fabric_connect_co(fabric, NODE, &endpoint) != PANDO_OK)
        rt_sleep_co(RT_NS_PER_MS);
    write_word(endpoint, sign_at(member), 1);
    fabric_disconnect_co(endpoint);
}

/* Counts in its word as the member it was told to be. When its endpoint breaks it leaves that one
 * as it is, visits the new server, and waits for its end. */
static inline void writer_task(void *arg)
{
    uint16_t member = *(const uint16_t *)arg;
    struct fabric *fabric = open_client((struct fabric_identity){member, 1});
    struct fabric_endpoint *endpoint;

    /* With a lot of memory a process takes a while to end. */
    CHECK(mmap(NULL, BALLAST_BYTES, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) != MAP_FAILED);
    CHECK_OK(fabric_connect_co(fabric, NODE, &endpoint));
    write_word(endpoint, count_at(member), 1);
    say_ready();
    for (uint64_t i = 2; !fabric_broken(endpoint); i++) {
        struct fabric_op op = fabric_write(count_at(member), &i, 8);
        if (fabric_submit_co(endpoint, &op, 1) != PANDO_OK)
            CHECK(fabric_broken(endpoint));
    }
    visit(fabric, member);
    for (;;)
        rt_sleep_co(RT_NS_PER_S);
}

static inline int role_writer(const char *member_text)
{
    uint16_t member = (uint16_t)atoi(member_text);
    run(writer_task, &member);
    return 0;
}

static inline void denied_task(void *arg)
{
    *(enum pando_status *)arg = try_connect(nobody);
}

static inline int role_denied(void)
{
    enum pando_status status = PANDO_OK;
    say_ready();
    if (geteuid() == 0)
        CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    run(denied_task, &status);
    CHECK_STATUS(status, PANDO_DENIED);
    return 0;
}

/* ---- calls, for every kind of endpoint ------------------------------------------------------- */

static inline void check_calls(struct fabric_endpoint *endpoint)
{
    static uint8_t body[FABRIC_CALL_BYTES_MAX + 1], reply[FABRIC_CALL_BYTES_MAX];
    uint32_t size = 1;

    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (uint8_t)(i * 7);
    CHECK_OK(fabric_call_co(endpoint, METHOD_ECHO, slice_of(NULL, 0), NULL, 0, &size));
    CHECK_EQ_U64(size, 0);
    CHECK_OK(fabric_call_co(endpoint, METHOD_ECHO, slice_of(body, FABRIC_CALL_BYTES_MAX), reply,
                            sizeof(reply), &size));
    CHECK_EQ_U64(size, FABRIC_CALL_BYTES_MAX);
    CHECK(memcmp(body, reply, FABRIC_CALL_BYTES_MAX) == 0);
    CHECK_STATUS(fabric_call_co(endpoint, METHOD_ECHO, slice_of(body, sizeof(body)), reply,
                                sizeof(reply), &size),
                 PANDO_TOO_LARGE);
    /* A reply larger than the room for it is cut; its size is told. */
    memset(reply, 0, sizeof(reply));
    CHECK_OK(fabric_call_co(endpoint, METHOD_ECHO, slice_of(body + 1, 1000), reply, 10, &size));
    CHECK_EQ_U64(size, 1000);
    CHECK(memcmp(body + 1, reply, 10) == 0 && reply[10] == 0);
    CHECK_STATUS(fabric_call_co(endpoint, METHOD_REFUSE, slice_of(NULL, 0), NULL, 0, &size),
                 PANDO_NOT_FOUND);
}

static int calls_left;

static inline void slow_call_task(void *arg)
{
    struct fabric_endpoint *endpoint = arg;
    static uint64_t next;
    uint64_t sent[1000] = {next++}, got = 0;
    uint32_t size;
    CHECK_OK(fabric_call_co(endpoint, METHOD_SLOW, slice_of(sent, sizeof(sent)), &got, sizeof(got),
                            &size));
    CHECK_EQ_U64(got, sent[0]);
    CHECK_EQ_U64(size, sizeof(sent));
    calls_left--;
}

/* More than a server runs at a time. */
static inline void check_many_calls(struct fabric_endpoint *endpoint)
{
    calls_left = CALLS_AT_ONCE;
    for (int i = 0; i < CALLS_AT_ONCE; i++)
        CHECK_OK(rt_spawn(rt_loop_self(), slow_call_task, endpoint));
    while (calls_left > 0)
        rt_sleep_co(RT_NS_PER_MS);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

/* Plays the role the program was started for, if any; otherwise returns, with a folder to work in.
 */
static inline void world_begin(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    log_set_level(LOG_LEVEL_ERROR);
    if (argc > 3) {
        snprintf(window_path, sizeof(window_path), "%s", argv[2]);
        if (strcmp(argv[1], "server") == 0)
            exit(role_server());
        if (strcmp(argv[1], "writer") == 0)
            exit(role_writer(argv[3]));
        if (strcmp(argv[1], "crowded") == 0)
            exit(role_crowded(argv[3]));
        if (strcmp(argv[1], "impostor") == 0)
            exit(role_impostor());
        exit(role_denied());
    }
    alarm(120);
    snprintf(folder, sizeof(folder), "%s/pando-test-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(folder) != NULL && chmod(folder, 0755) == 0);
    snprintf(window_path, sizeof(window_path), "%s/window", folder);
}

/* Where the owner of the window keeps who is attached. */
static inline const char *attached_path(void)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s.attached", window_path);
    return path;
}

static inline void world_end(void)
{
    char path[128];
    snprintf(path, sizeof(path), "%s.sock", window_path);
    unlink(path); /* a server that was killed leaves it */
    unlink(attached_path());
    unlink(window_path);
    if (rmdir(folder) != 0)
        CHECK_FAIL("%s is not empty", folder);
}

#endif
