#include "engine/memory_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/tcp/tcp.h"
#include "fabric/verbs/verbs.h"
#include "lib/check.h"
#include "pool/memnode.h"
#include "store/engines.h"

enum { PROCESSES_MAX = 4, PATH_BYTES = 64, URI_BYTES = 512, SECONDS = 300 };

static const uint64_t WINDOW_BYTES = 512 << 20;
/* Where all of it has to be there at once; and yet a chunk for each size of blocks and each thread. */
static const uint64_t PINNED_BYTES = 256 << 20;

struct memory_processes {
    const char *fabric;
    unsigned count;
    pid_t processes[PROCESSES_MAX];
    int lifelines[PROCESSES_MAX]; /* they end when it is closed */
    char secret[PATH_BYTES];
    char uri[URI_BYTES];
};

extern char **environ;

static void read_line(int fd, char *line, size_t bytes)
{
    size_t used = 0;
    for (;;) {
        CHECK(used + 1 < bytes);
        ssize_t got = read(fd, line + used, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            CHECK_FAIL("a memory process ended before it said where it is");
        if (line[used] == '\n')
            break;
        used++;
    }
    line[used] = '\0';
}

static void start_one(struct memory_processes *memory, unsigned node)
{
    posix_spawn_file_actions_t actions;
    char number[12], location[FABRIC_LOCATION_MAX];
    int in[2], out[2];

    snprintf(number, sizeof(number), "%u", node);
    char *argv[] = {"conformance_engine", "--memory", (char *)memory->fabric, number,
                    memory->secret,       NULL};
    CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, in[0], 0) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, out[1], 1) == 0);
    int failed =
        posix_spawn(&memory->processes[node], "/proc/self/exe", &actions, NULL, argv, environ);
    if (failed != 0)
        CHECK_FAIL("cannot start a memory process: %s", strerror(failed));
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    memory->lifelines[node] = in[1];
    read_line(out[0], location, sizeof(location));
    close(out[0]);
    size_t used = strlen(memory->uri);
    snprintf(memory->uri + used, sizeof(memory->uri) - used, "%s%s%s",
             node == 0 ? memory->fabric : "", node == 0 ? ":" : ",", location);
}

struct memory_processes *memory_processes_start(const char *fabric, unsigned count)
{
    static const char text[] = "forty thousand trunks, one root system\n";
    struct memory_processes *memory = calloc(1, sizeof(*memory));
    CHECK(memory != NULL && count <= PROCESSES_MAX);
    snprintf(memory->secret, sizeof(memory->secret), "/tmp/pando-engine-XXXXXX");
    int fd = mkstemp(memory->secret);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0);
    memory->fabric = fabric;
    memory->count = count;
    for (unsigned i = 0; i < count; i++)
        start_one(memory, i);
    return memory;
}

const char *memory_processes_uri(const struct memory_processes *memory)
{
    return memory->uri;
}

const char *memory_processes_secret(const struct memory_processes *memory)
{
    return memory->secret;
}

void memory_processes_stop(struct memory_processes *memory)
{
    for (unsigned i = 0; i < memory->count; i++) {
        int how = 0;
        close(memory->lifelines[i]);
        while (waitpid(memory->processes[i], &how, 0) < 0)
            CHECK(errno == EINTR);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            CHECK_FAIL("memory process %u ended with status 0x%x", i, (unsigned)how);
    }
    unlink(memory->secret);
    free(memory);
}

static enum pando_status open_fabric(char **argv, struct fabric **out, char *error,
                                     size_t error_bytes)
{
    uint16_t node = (uint16_t)atoi(argv[1]);
    struct fabric_socket_options tcp = {.node = node,
                                        .target = FABRIC_MEMORY,
                                        .listen = "127.0.0.1:0",
                                        .threads = 1,
                                        .secret_file = argv[2],
                                        .host_bytes = WINDOW_BYTES,
                                        .device_bytes = MEMNODE_DEVICE_BYTES};
    struct fabric_socket_options verbs = {.node = node,
                                          .target = FABRIC_MEMORY,
                                          .device = getenv("PANDO_TEST_TARGET_DEVICE"),
                                          .listen = "127.0.0.1:0",
                                          .threads = 1,
                                          .secret_file = argv[2],
                                          .host_bytes = PINNED_BYTES,
                                          .device_bytes = MEMNODE_DEVICE_BYTES};
    return strcmp(argv[0], "verbs") == 0 ? fabric_verbs_open(&verbs, out, error, error_bytes)
                                         : fabric_tcp_open(&tcp, out, error, error_bytes);
}

int memory_process_main(int argc, char **argv)
{
    char error[256] = "", byte;
    struct memnode_options options = {.work = store_memory_pushdown};
    struct memnode *memnode;
    struct fabric *fabric;

    if (argc != 3)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(SECONDS);
    enum pando_status status = open_fabric(argv, &fabric, error, sizeof(error));
    if (status == PANDO_OK)
        status = memnode_open(fabric, &options, &memnode, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("cannot open the memory node: %s (%s)", error, pando_status_text(status));
    CHECK_OK(strcmp(argv[0], "verbs") == 0 ? fabric_verbs_start(fabric) : fabric_tcp_start(fabric));
    printf("%s\n", fabric_location(fabric));
    CHECK(fflush(stdout) == 0 && dup2(2, 1) == 1);
    while (read(0, &byte, 1) > 0 || errno == EINTR)
        errno = 0;
    fabric_close(fabric);
    memnode_close(memnode);
    return 0;
}
