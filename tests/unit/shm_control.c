/*
 * The shm fabric's control socket: nonsense, clients that never read, permissions; and opening.
 */
#include <dirent.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "fabric/shm/control_fmt.h"
#include "fabric/shm/server_int.h"
#include "shm_world.h"

/* ---- nonsense on the control socket ---------------------------------------------------------- */

static int raw_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s.sock", window_path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

/* Waits for a packet; 0 when the server has hung up. */
static size_t raw_receive(int fd, void *to, size_t size)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    CHECK(poll(&ready, 1, 20 * 1000) == 1);
    ssize_t bytes = recv(fd, to, size, 0);
    CHECK(bytes >= 0 || errno == ECONNRESET);
    return bytes > 0 ? (size_t)bytes : 0;
}

/* Too large for a task's stack. */
static struct raw_message {
    struct shm_header header;
    union {
        struct shm_hello hello;
        struct shm_fence fence;
        uint8_t bytes[100 * 1024];
    };
} message;

static void raw_send(int fd, size_t size)
{
    CHECK(send(fd, &message, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static void raw_hello_sized(int fd, uint32_t version, uint32_t size, enum pando_status expected)
{
    message = (struct raw_message){
        .header = {.type = SHM_HELLO, .size = size, .tag = 99},
        .hello = {.magic = SHM_CONTROL_MAGIC, .version = version, .endpoint = (uint64_t)fd},
    };
    struct shm_header reply[4];
    raw_send(fd, sizeof(struct shm_header) + size);
    CHECK(raw_receive(fd, reply, sizeof(reply)) >= sizeof(reply[0]));
    CHECK(reply[0].type == SHM_REPLY && reply[0].tag == 99 && reply[0].code == expected);
}

static void raw_hello(int fd, uint32_t version, enum pando_status expected)
{
    raw_hello_sized(fd, version, sizeof(struct shm_hello), expected);
}

static void expect_dropped(bool greeted, struct shm_header header, size_t body_bytes)
{
    char byte;
    int fd = raw_connect();
    if (greeted)
        raw_hello(fd, SHM_CONTROL_VERSION, PANDO_OK);
    message = (struct raw_message){.header = header};
    raw_send(fd, sizeof(header) + body_bytes);
    CHECK(raw_receive(fd, &byte, 1) == 0);
    close(fd);
}

static void send_nonsense(void)
{
    const uint32_t hello = sizeof(struct shm_hello), fence = sizeof(struct shm_fence);
    char byte;

    expect_dropped(false, (struct shm_header){.type = SHM_HELLO, .size = hello}, hello);
    expect_dropped(false, (struct shm_header){.type = SHM_HELLO, .size = 1}, 1);
    expect_dropped(false, (struct shm_header){.type = SHM_CALL, .code = METHOD_ECHO}, 0);
    expect_dropped(false, (struct shm_header){.type = SHM_GOODBYE}, 0);
    expect_dropped(true, (struct shm_header){.type = SHM_HELLO, .size = hello}, hello);
    expect_dropped(true, (struct shm_header){.type = SHM_CALL, .size = 10}, 9);
    expect_dropped(true, (struct shm_header){.type = SHM_CALL, .size = UINT32_MAX}, 9);
    expect_dropped(true, (struct shm_header){.type = SHM_CALL, .size = FABRIC_CALL_BYTES_MAX + 1},
                   FABRIC_CALL_BYTES_MAX + 1);
    expect_dropped(true, (struct shm_header){.type = SHM_FENCE, .size = fence}, fence);
    expect_dropped(true, (struct shm_header){.type = SHM_FENCE, .size = 0}, 0);
    expect_dropped(true, (struct shm_header){.type = SHM_GOODBYE, .size = 4}, 4);
    expect_dropped(true, (struct shm_header){.type = SHM_REPLY}, 0);
    expect_dropped(true, (struct shm_header){.type = 60000}, 0);

    int fd = raw_connect(); /* shorter than a header */
    raw_send(fd, 7);
    CHECK(raw_receive(fd, &byte, 1) == 0);
    close(fd);
    fd = raw_connect(); /* a member that cannot be */
    raw_hello(fd, SHM_CONTROL_VERSION, PANDO_OK);
    message.header = (struct shm_header){.type = SHM_FENCE, .size = fence};
    message.fence.member = FABRIC_MEMBERS_MAX;
    raw_send(fd, sizeof(message.header) + fence);
    CHECK(raw_receive(fd, &byte, 1) == 0);
    close(fd);
    /* Not nonsense, but not understood; in another version a HELLO may have another size. */
    static const uint32_t sizes[] = {SHM_HELLO_START, 24, sizeof(struct shm_hello), 100};
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        fd = raw_connect();
        raw_hello_sized(fd, SHM_CONTROL_VERSION + (i % 2 == 0 ? 1 : -1), sizes[i], PANDO_VERSION);
        CHECK(raw_receive(fd, &byte, 1) == 0);
        close(fd);
    }
}

/* Asks and asks and does not read an answer, until nobody takes a question any more. */
static int ask_only(int *asked)
{
    int fd = raw_connect();
    raw_hello(fd, SHM_CONTROL_VERSION, PANDO_OK);
    message = (struct raw_message){
        .header = {.type = SHM_CALL, .code = METHOD_ECHO, .size = FABRIC_CALL_BYTES_MAX},
    };
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    *asked = 0;
    while (poll(&room, 1, 50) == 1) {
        ssize_t sent = send(fd, &message, sizeof(message.header) + FABRIC_CALL_BYTES_MAX,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        CHECK(sent > 0 || errno == EAGAIN);
        *asked += sent > 0;
        CHECK(*asked < 1000);
    }
    return fd;
}

enum { ASKERS = 3 };

static void nonsense_task(void *arg)
{
    (void)arg;
    struct fabric *fabric = open_client(nobody);
    struct fabric_endpoint *endpoint;
    int askers[ASKERS], asked[ASKERS];

    CHECK_OK(fabric_connect_co(fabric, NODE, &endpoint));
    send_nonsense();
    for (int i = 0; i < ASKERS; i++)
        askers[i] = ask_only(&asked[i]);
    check_calls(endpoint);
    check_many_calls(endpoint);
    /* One hangs up; the others have lost nothing. */
    close(askers[0]);
    for (int i = 1; i < ASKERS; i++) {
        for (int k = 0; k < asked[i]; k++)
            CHECK(raw_receive(askers[i], &message, sizeof(message)) ==
                  sizeof(struct shm_header) + FABRIC_CALL_BYTES_MAX);
        close(askers[i]);
    }
    check_calls(endpoint);
    CHECK(!fabric_broken(endpoint));
    fabric_disconnect_co(endpoint);
    fabric_close(fabric);
}

static void test_nonsense(void)
{
    struct child server = start("server", "");
    run(nonsense_task, NULL);
    stop(server);
}

/* ---- too many ------------------------------------------------------------------------------- */

/* How many lines the log has, and how many of them with this text. */
static unsigned lines_of(const char *path, const char *text, unsigned *with)
{
    static char line[4096];
    unsigned lines = 0;
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    for (*with = 0; fgets(line, sizeof(line), file) != NULL; lines++)
        *with += strstr(line, text) != NULL;
    fclose(file);
    return lines;
}

static struct child start_crowded(int left, char path[96])
{
    char words[128];
    snprintf(path, 96, "%s/log", folder);
    snprintf(words, sizeof(words), "%d %s", left, path);
    return start("crowded", words);
}

/* How often the server's thread has slept: it wakes for every try. */
static unsigned long sleeps_of(pid_t process)
{
    char path[320], line[256];
    unsigned long sleeps = 0, found = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
    DIR *tasks = opendir(path);
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        bool ours = false;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)process, task->d_name);
        FILE *status = fopen(path, "r");
        while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
            ours |= strcmp(line, "Name:\tpando-shm\n") == 0;
            if (ours && sscanf(line, "voluntary_ctxt_switches: %lu", &sleeps) == 1)
                found++;
        }
        if (status != NULL)
            fclose(status);
    }
    closedir(tasks);
    CHECK_EQ_U64(found, 1);
    return sleeps;
}

/* Without a descriptor left clients wait, and are let in when there is one. One line says so, however often it
 * is tried. */
static void test_no_descriptors(void)
{
    enum { TRIES = 6 };
    char path[96];
    unsigned said = 0;
    struct child server = start_crowded(0, path);
    int client = raw_connect();
    while (said == 0) {
        (void)lines_of(path, "cannot accept", &said);
        usleep(1000);
    }
    unsigned long first = sleeps_of(server.process);
    while (sleeps_of(server.process) < first + TRIES)
        usleep(1000);
    CHECK(write(server.input, "m", 1) == 1);
    raw_hello(client, SHM_CONTROL_VERSION, PANDO_OK);
    close(client);
    stop(server);
    CHECK_EQ_U64(lines_of(path, "cannot accept", &said), 1);
    CHECK_EQ_U64(said, 1);
    unlink(path);
}

/* With some left, clients are turned away whose processes could not be held by one more. One line tells of
 * them all, and the others are served. */
static void test_few_descriptors(void)
{
    enum { CLIENTS = 32, LEFT = 8 };
    int clients[CLIENTS], served = 0;
    char path[96], byte;
    unsigned said;
    struct child server = start_crowded(LEFT, path);
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = raw_connect();
    for (int i = LEFT; i < CLIENTS; i++)
        CHECK(raw_receive(clients[i], &byte, 1) == 0);
    for (int i = 0; i < LEFT; i++) {
        struct pollfd end = {.fd = clients[i], .events = POLLIN};
        if (poll(&end, 1, 0) == 1)
            continue;
        raw_hello(clients[i], SHM_CONTROL_VERSION, PANDO_OK);
        served++;
    }
    /* One needs three for a moment, and two while it says nothing. */
    CHECK_EQ_U64(served, LEFT / 2 - 1);
    for (int i = 0; i < CLIENTS; i++)
        close(clients[i]);
    stop(server);
    CHECK_EQ_U64(lines_of(path, "refused a client", &said), 1);
    CHECK_EQ_U64(said, 1);
    unlink(path);
}

/* One line tells of those over the limit, too. */
static void test_over_the_limit(void)
{
    enum { OVER = 40 };
    static int clients[SHM_CONNECTIONS_MAX];
    char path[96], byte;
    unsigned said;
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_max < 3 * SHM_CONNECTIONS_MAX) {
        printf("no clients over the limit: only %llu files may be open\n",
               (unsigned long long)limit.rlim_max);
        return;
    }
    struct child server = start_crowded(-1, path);
    for (int i = 0; i < SHM_CONNECTIONS_MAX; i++)
        clients[i] = raw_connect();
    for (int i = 0; i < OVER; i++) {
        int fd = raw_connect();
        CHECK(raw_receive(fd, &byte, 1) == 0);
        close(fd);
    }
    for (int i = 0; i < SHM_CONNECTIONS_MAX; i++)
        close(clients[i]);
    stop(server);
    CHECK_EQ_U64(lines_of(path, "too many connections", &said), 1);
    CHECK_EQ_U64(said, 1);
    unlink(path);
}

/* ---- opening, permissions, names ------------------------------------------------------------- */

static void test_denied(void)
{
    char socket_path[128];
    snprintf(socket_path, sizeof(socket_path), "%s.sock", window_path);
    struct child server = start("server", "");
    struct stat info;
    CHECK(stat(socket_path, &info) == 0 && (info.st_mode & 0777) == 0600);
    if (geteuid() != 0)
        CHECK(chmod(socket_path, 0) == 0);
    stop(start("denied", ""));
    /* The socket lets it in, the file does not. */
    CHECK(chmod(socket_path, 0666) == 0);
    if (geteuid() != 0)
        CHECK(chmod(window_path, 0) == 0);
    stop(start("denied", ""));
    CHECK(chmod(window_path, 0600) == 0);
    stop(server);
}

static enum pando_status try_open(const char *path, uint64_t host_bytes, uint64_t device_bytes)
{
    struct fabric_shm_options options = {
        .node = NODE, .path = path, .host_bytes = host_bytes, .device_bytes = device_bytes};
    char error[256] = "";
    struct fabric *fabric;
    enum pando_status status = fabric_shm_open(&options, &fabric, error, sizeof(error));
    if (status == PANDO_OK)
        fabric_close(fabric);
    else
        CHECK(error[0] != '\0');
    return status;
}

static void test_open(void)
{
    char path[96], socket_path[128], long_path[200];
    snprintf(path, sizeof(path), "%s/temporary", folder);
    snprintf(socket_path, sizeof(socket_path), "%s.sock", path);
    memset(long_path, 'x', sizeof(long_path));
    long_path[0] = '/';
    long_path[sizeof(long_path) - 1] = '\0';

    CHECK_STATUS(try_open(NULL, WINDOW_FIRST, 0), PANDO_INVALID);
    CHECK_STATUS(try_open(NULL, FABRIC_DEVICE, 0), PANDO_INVALID);
    CHECK_STATUS(try_open(NULL, HOST_BYTES + 1, 0), PANDO_INVALID);
    CHECK_STATUS(try_open(NULL, HOST_BYTES, HOST_BYTES + 8), PANDO_INVALID);
    CHECK_STATUS(try_open(long_path, HOST_BYTES, 0), PANDO_TOO_LARGE);
    CHECK_STATUS(try_open("/nowhere/at/all", HOST_BYTES, 0), PANDO_NOT_FOUND);

    struct fabric *fabric = open_window(path, true);
    CHECK_OK(fabric_shm_start(fabric));
    CHECK_EQ_TEXT(fabric_location(fabric), path);
    CHECK_STATUS(try_open(path, HOST_BYTES, DEVICE_BYTES), PANDO_BUSY);
    CHECK_OK(fabric_add_peer(fabric, NODE, FABRIC_MEMORY, path));
    CHECK_STATUS(fabric_add_peer(fabric, NODE, FABRIC_MEMORY, "/elsewhere"), PANDO_INVALID);
    CHECK_STATUS(fabric_add_peer(fabric, NODE + 1, FABRIC_MEMORY, ""), PANDO_INVALID);
    fabric_close(fabric);
    CHECK(access(path, F_OK) != 0 && access(socket_path, F_OK) != 0);

    /* A temporary window does not take over what a dead process left, whatever its size. */
    CHECK_OK(try_open(path, 2 * HOST_BYTES, 0));
    CHECK(access(path, F_OK) == 0);
    fabric = open_window(path, true);
    CHECK(!fabric_shm_reused(fabric));
    fabric_close(fabric);
    CHECK(access(path, F_OK) != 0);
}

static void test_path(void)
{
    char path[96], small[8];
    const char *const bad[] = {"", "a b", "a;b", "a\n", "ä", "a/"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_STATUS(fabric_shm_path(bad[i], 1, path, sizeof(path)), PANDO_INVALID);
    CHECK_OK(fabric_shm_path("./here", 1, path, sizeof(path)));
    CHECK_EQ_TEXT(path, "./here");
    CHECK_OK(fabric_shm_path("a.B_9-", 0, path, sizeof(path)));
    CHECK_EQ_TEXT(path, "/dev/shm/pando-a.B_9-");
    CHECK_STATUS(fabric_shm_path("name", 0, small, sizeof(small)), PANDO_TOO_LARGE);
    CHECK_STATUS(fabric_shm_path("/name/is/long", 0, small, sizeof(small)), PANDO_TOO_LARGE);
}

int main(int argc, char **argv)
{
    world_begin(argc, argv);
    test_path();
    test_open();
    test_denied();
    test_nonsense();
    test_no_descriptors();
    test_few_descriptors();
    test_over_the_limit();
    world_end();
    return 0;
}
