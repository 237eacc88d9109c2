/*
 * Fences on the shm fabric: a fenced process is dead, and its identity is not let in again.
 */
#include "fabric/shm/attached_fmt.h"
#include "lib/fence.h"
#include "shm_world.h"

enum { MEMBER = 21, OTHER_MEMBER = 22 };

static void check_word_rests(struct fabric_endpoint *endpoint)
{
    uint64_t word = read_word(endpoint, count_at(MEMBER));
    rt_sleep_co(20 * RT_NS_PER_MS);
    CHECK_EQ_U64(read_word(endpoint, count_at(MEMBER)), word);
}

static void fence_task(void *arg)
{
    struct child *server = arg;
    const struct fabric_identity victim = {MEMBER, 1};
    struct fabric *fabric = open_client(nobody);
    struct fabric_endpoint *endpoint;

    CHECK_OK(fabric_connect_co(fabric, NODE, &endpoint));
    struct child writer = start("writer", "21");
    /* Nobody else is this member while that process lives. */
    CHECK_STATUS(try_connect((struct fabric_identity){MEMBER, 2}), PANDO_BUSY);
    uint64_t word = read_word(endpoint, count_at(MEMBER));
    for (int i = 0; i < 1000 && read_word(endpoint, count_at(MEMBER)) == word; i++)
        rt_sleep_co(RT_NS_PER_MS);
    CHECK(read_word(endpoint, count_at(MEMBER)) != word);

    /* An earlier life of it is another matter. */
    CHECK_OK(fence_co(endpoint, (struct fabric_identity){MEMBER, 0}));
    CHECK(waitpid(writer.process, NULL, WNOHANG) == 0);

    pause_hard(writer);
    CHECK_OK(fence_co(endpoint, victim));
    expect_killed(writer);
    check_word_rests(endpoint);
    CHECK_STATUS(try_connect(victim), PANDO_FENCED);
    CHECK_OK(fence_co(endpoint, victim));
    CHECK_OK(try_connect((struct fabric_identity){MEMBER, 2}));

    /* The server restarts: it still refuses the dead, and still knows whom it had let in. */
    writer = start("writer", "22");
    kill_hard(*server);
    *server = start("server", "");
    CHECK_OK(fabric_reconnect_co(endpoint));
    CHECK_STATUS(try_connect(victim), PANDO_FENCED);
    /* That one parts in order from the new server, but it had not parted from the old one. */
    while (read_word(endpoint, sign_at(OTHER_MEMBER)) == 0)
        rt_sleep_co(RT_NS_PER_MS);
    rt_sleep_co(20 * RT_NS_PER_MS);
    CHECK_OK(fence_co(endpoint, (struct fabric_identity){OTHER_MEMBER, 1}));
    expect_killed(writer);
    fabric_disconnect_co(endpoint);
    fabric_close(fabric);
}

static void test_fence(void)
{
    struct child server = start("server", "");
    run(fence_task, &server);
    stop(server);
}

/* The owner of the window fences, through its endpoint to itself. */
static void owner_fence_task(void *arg)
{
    struct fabric *fabric = arg;
    struct fabric *client = open_client((struct fabric_identity){31, 1});
    struct fabric_endpoint *self, *endpoint;

    CHECK_OK(fabric_connect_co(fabric, NODE, &self));
    struct child writer = start("writer", "21");
    CHECK_OK(fence_co(self, (struct fabric_identity){MEMBER, 1}));
    expect_killed(writer);
    check_word_rests(self);
    CHECK(fabric_fenced(fabric, (struct fabric_identity){MEMBER, 1}));
    CHECK(!fabric_fenced(fabric, (struct fabric_identity){MEMBER, 2}));

    /* Attached by this very process: it will not kill itself. Its connection ends all the same. */
    CHECK_OK(fabric_connect_co(client, NODE, &endpoint));
    CHECK_STATUS(fence_co(self, (struct fabric_identity){31, 1}), PANDO_UNSUPPORTED);
    wait_until_broken(endpoint);
    CHECK_STATUS(fabric_reconnect_co(endpoint), PANDO_FENCED);
    fabric_disconnect_co(endpoint);
    fabric_disconnect_co(self);
    fabric_close(client);
}

/* Not serving yet: recovery after a restart comes first. */
static void early_fence_task(void *arg)
{
    struct child *writer = arg;
    struct fabric *fabric = open_window(window_path, false);
    struct fabric_endpoint *self;

    CHECK(fabric_shm_reused(fabric));
    CHECK_OK(fabric_connect_co(fabric, NODE, &self));
    CHECK_OK(fence_co(self, (struct fabric_identity){OTHER_MEMBER, 1}));
    expect_killed(*writer);
    fabric_disconnect_co(self);
    fabric_close(fabric);
}

static void test_owner_fence(void)
{
    unlink(window_path);
    struct fabric *fabric = open_window(window_path, false);
    CHECK_OK(fabric_shm_start(fabric));
    run(owner_fence_task, fabric);
    fabric_close(fabric);

    struct child server = start("server", "");
    struct child writer = start("writer", "22");
    kill_hard(server);
    run(early_fence_task, &writer);
}

/* ---- only the member's process --------------------------------------------------------------- */

/* A process that has nothing to do with the window. */
static pid_t bystander_start(void)
{
    pid_t process = fork();
    CHECK(process >= 0);
    if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return process;
}

static void bystander_lives(pid_t process)
{
    int status;
    CHECK(waitpid(process, &status, WNOHANG) == 0);
}

static void bystander_end(pid_t process)
{
    CHECK(kill(process, SIGKILL) == 0);
    (void)wait_for(process);
}

/* As the server would read it. */
static uint64_t start_time_of(pid_t process)
{
    char path[64], text[1024];
    unsigned long long start_time = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = read(fd, text, sizeof(text) - 1);
    CHECK(fd >= 0 && bytes > 0);
    close(fd);
    text[bytes] = '\0';
    CHECK(
        sscanf(strrchr(text, ')') + 1,
               " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &start_time) == 1);
    return start_time;
}

static struct window_attachment record_for(pid_t process)
{
    return (struct window_attachment){
        .process = (uint32_t)process, .incarnation = 1, .start_time = start_time_of(process)};
}

/* Writes to the file of the window what only its owner should write. */
static void forge(uint16_t member, pid_t process)
{
    const struct window_attachment record = record_for(process);
    int fd = open(window_path, O_RDWR | O_CLOEXEC);
    off_t at = (off_t)(WINDOW_ATTACHMENTS + member * sizeof(record));

    CHECK(fd >= 0 && pwrite(fd, &record, sizeof(record), at) == (ssize_t)sizeof(record));
    close(fd);
}

/* Leaves a file as the window's owner would that has let the process in. */
static void leave_record(uint16_t member, pid_t process, bool other_boot)
{
    static struct shm_attached_file file;
    struct window_header header;
    int window = open(window_path, O_RDONLY | O_CLOEXEC);
    int fd = open(attached_path(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    CHECK(window >= 0 && pread(window, &header, sizeof(header), 0) == (ssize_t)sizeof(header));
    file = (struct shm_attached_file){
        .magic = ATTACHED_MAGIC, .version = ATTACHED_VERSION, .window = header.id};
    CHECK(pread(window, &file.boot, sizeof(file.boot), WINDOW_BOOT) == (ssize_t)sizeof(file.boot));
    file.boot.id[0] ^= other_boot;
    file.members[member] = record_for(process);
    CHECK(fd >= 0 && write(fd, &file, sizeof(file)) == (ssize_t)sizeof(file));
    close(fd);
    close(window);
}

static void forged_task(void *arg)
{
    pid_t bystander = *(const pid_t *)arg;
    struct fabric *fabric = open_client(nobody);
    struct fabric_endpoint *endpoint;

    CHECK_OK(fabric_connect_co(fabric, NODE, &endpoint));
    struct child writer = start("writer", "21");
    forge(MEMBER, bystander);
    forge(OTHER_MEMBER, bystander);
    CHECK_OK(fence_co(endpoint, (struct fabric_identity){OTHER_MEMBER, 1}));
    bystander_lives(bystander);
    CHECK_OK(fence_co(endpoint, (struct fabric_identity){MEMBER, 1}));
    expect_killed(writer);
    bystander_lives(bystander);
    fabric_disconnect_co(endpoint);
    fabric_close(fabric);
}

/* All members can write to the window: while its owner lives, what is on record there counts for
 * nothing. */
static void test_forged_record(void)
{
    pid_t bystander = bystander_start();
    unlink(window_path); /* without fences */
    struct child server = start("server", "");
    run(forged_task, &bystander);
    stop(server);
    bystander_end(bystander);
}

struct restart {
    struct child server;
    pid_t bystander;
    bool lose_file; /* the owner's file goes with the former owner */
};

static void forged_restart_task(void *arg)
{
    struct restart *restart = arg;
    struct fabric *fabric = open_client(nobody);
    struct fabric_endpoint *endpoint;

    CHECK_OK(fabric_connect_co(fabric, NODE, &endpoint));
    struct child writer = start("writer", "21");
    forge(OTHER_MEMBER, restart->bystander);
    if (!restart->lose_file)
        forge(MEMBER, restart->bystander);
    kill_hard(restart->server);
    if (restart->lose_file)
        CHECK(unlink(attached_path()) == 0);
    restart->server = start("server", "");
    CHECK_OK(fabric_reconnect_co(endpoint));
    /* With the file it is known that this member never was there; else only that it cannot be known. */
    CHECK_STATUS(fence_co(endpoint, (struct fabric_identity){OTHER_MEMBER, 1}),
                 restart->lose_file ? PANDO_UNSUPPORTED : PANDO_OK);
    bystander_lives(restart->bystander);
    /* Who was there is ended: by the file, or because it has connected to the new owner. */
    while (restart->lose_file && read_word(endpoint, sign_at(MEMBER)) == 0)
        rt_sleep_co(RT_NS_PER_MS);
    rt_sleep_co(20 * RT_NS_PER_MS);
    CHECK_OK(fence_co(endpoint, (struct fabric_identity){MEMBER, 1}));
    expect_killed(writer);
    bystander_lives(restart->bystander);
    fabric_disconnect_co(endpoint);
    fabric_close(fabric);
}

/* Nor for an owner that starts after that. */
static void test_forged_restart(void)
{
    for (int lose_file = 0; lose_file <= 1; lose_file++) {
        struct restart restart = {.bystander = bystander_start(), .lose_file = lose_file != 0};
        unlink(window_path); /* without fences */
        restart.server = start("server", "");
        run(forged_restart_task, &restart);
        stop(restart.server);
        bystander_end(restart.bystander);
    }
}

static void fence_once_task(void *arg)
{
    struct fabric *fabric = arg;
    struct fabric_endpoint *self;
    CHECK_OK(fabric_connect_co(fabric, NODE, &self));
    CHECK_OK(fence_co(self, (struct fabric_identity){OTHER_MEMBER, 1}));
    fabric_disconnect_co(self);
}

/* The machine has started anew, and another process has the number and the start time that a
 * member's had. With the same boot on record it is that process. */
static void test_other_boot(void)
{
    pid_t bystander = bystander_start();
    int status;

    for (int other_boot = 1; other_boot >= 0; other_boot--) {
        unlink(window_path); /* without fences */
        fabric_close(open_window(window_path, false));
        leave_record(OTHER_MEMBER, bystander, other_boot);
        struct fabric *fabric = open_window(window_path, false);
        CHECK(fabric_shm_reused(fabric));
        run(fence_once_task, fabric);
        fabric_close(fabric);
        if (other_boot)
            bystander_lives(bystander);
    }
    CHECK(waitpid(bystander, &status, 0) == bystander && WIFSIGNALED(status));
}

/* ---- servers of other users ------------------------------------------------------------------ */

static void impostor_task(void *arg)
{
    (void)arg;
    CHECK_STATUS(try_connect(nobody), PANDO_DENIED);
}

/* Somebody else serves a window under the name that this process was given, and lets it in. False:
 * needs root. */
static bool test_impostor(void)
{
    char socket_path[128];
    if (geteuid() != 0)
        return false;
    snprintf(socket_path, sizeof(socket_path), "%s.sock", window_path);
    unlink(window_path);
    CHECK(chmod(folder, 0777) == 0);
    struct child server = start("impostor", "");
    CHECK(chmod(socket_path, 0666) == 0);
    run(impostor_task, NULL);
    stop(server);
    CHECK(chmod(folder, 0755) == 0 && unlink(window_path) == 0);
    return true;
}

int main(int argc, char **argv)
{
    world_begin(argc, argv);
    test_fence();
    test_owner_fence();
    test_forged_record();
    test_forged_restart();
    test_other_boot();
    bool all = test_impostor();
    world_end();
    if (!all)
        SKIP("a server of another user needs root");
    return 0;
}
