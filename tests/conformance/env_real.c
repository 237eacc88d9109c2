#include "conformance/env_real.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/link.h"
#include "lib/check.h"

enum {
    ERROR_BYTES = 256,
    PROCESS_SECONDS = 60,
    WRITER_NODE = 500,
    WRITER_EXIT = 100, /* its exit code is that plus its status */
};

struct real_env {
    struct env base;
    const struct real_backend *backend;
    pid_t target; /* 0 for none, as below */
    int lifeline; /* the writing end of its standard input */
    char location[FABRIC_LOCATION_MAX];
    struct fabric *clients[ENV_CLIENTS_MAX];
    unsigned client_count;
    pid_t writer;
    struct link *link; /* of far clients; made for the first */
    unsigned hidden;   /* how often */
};

static struct real_env *self(struct env *env)
{
    return (struct real_env *)env;
}

extern char **environ;

/* ---- processes ------------------------------------------------------------------------------- */

/* Starts this program again. The new process reads what is written to *to_child, and *from_child is
 * what it prints; both are NULL for none. */
static pid_t start_process(char **argv, int *to_child, int *from_child)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    posix_spawn_file_actions_t actions;
    pid_t child;

    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    if (to_child != NULL) {
        CHECK(pipe2(in, O_CLOEXEC) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, in[0], 0) == 0);
    }
    if (from_child != NULL) {
        CHECK(pipe2(out, O_CLOEXEC) == 0);
        CHECK(posix_spawn_file_actions_adddup2(&actions, out[1], 1) == 0);
    }
    int failed = posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ);
    if (failed != 0)
        CHECK_FAIL("cannot start a process: %s", strerror(failed));
    posix_spawn_file_actions_destroy(&actions);
    if (to_child != NULL) {
        close(in[0]);
        *to_child = in[1];
    }
    if (from_child != NULL) {
        close(out[1]);
        *from_child = out[0];
    }
    return child;
}

/* Waits for a process, which is then no more; how it ended. */
static int reap(pid_t child)
{
    int how = 0;
    while (waitpid(child, &how, 0) < 0)
        CHECK(errno == EINTR);
    return how;
}

static void read_line(int fd, char *line, size_t bytes)
{
    size_t used = 0;
    while (used < bytes) {
        ssize_t got = read(fd, line + used, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            CHECK_FAIL("the target ended before it said where it is");
        if (line[used] == '\n') {
            line[used] = '\0';
            return;
        }
        used++;
    }
    CHECK_FAIL("a location longer than %zu bytes", bytes);
}

/* At env's location, or anywhere at first. */
static void start_target(struct real_env *env)
{
    char *argv[] = {"conformance_fabric",
                    "--process",
                    (char *)env->base.ops->name,
                    "target",
                    (char *)env->base.options.folder,
                    env->base.options.handler != NULL ? "serve" : "silent",
                    env->location,
                    NULL};
    int report;
    env->target = start_process(argv, &env->lifeline, &report);
    read_line(report, env->location, sizeof(env->location));
    close(report);
}

static int target_main(const struct real_backend *backend, char **argv, fabric_handler handler)
{
    const char *folder = argv[0], *mode = argv[1], *location = argv[2];
    char error[ERROR_BYTES] = "", byte;
    struct fabric *fabric;

    enum pando_status status = backend->open_target(folder, location[0] != '\0' ? location : NULL,
                                                    &fabric, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("cannot open the target: %s (%s)", error, pando_status_text(status));
    fabric_set_node(fabric, ENV_TARGET);
    if (strcmp(mode, "serve") == 0)
        fabric_serve(fabric, handler, fabric);
    CHECK_OK(backend->start_target(fabric));
    printf("%s\n", fabric_location(fabric));
    CHECK(fflush(stdout) == 0 && dup2(2, 1) == 1);
    while (read(0, &byte, 1) > 0 || errno == EINTR)
        errno = 0;
    fabric_close(fabric);
    return 0;
}

/* ---- opening and closing --------------------------------------------------------------------- */

struct env *real_open(const struct real_backend *backend, const struct env_options *options)
{
    struct real_env *env = calloc(1, sizeof(*env));
    CHECK(env != NULL);
    env->base = (struct env){.ops = backend->ops, .options = *options};
    env->backend = backend;
    start_target(env);
    return &env->base;
}

/* A target that is still alive has to end in good order. */
void real_close(struct env *base)
{
    struct real_env *env = self(base);
    for (unsigned i = 0; i < env->client_count; i++)
        fabric_close(env->clients[i]);
    CHECK(env->writer == 0);
    if (env->link != NULL)
        link_destroy(env->link);
    if (env->target != 0) {
        close(env->lifeline);
        int how = reap(env->target);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            CHECK_FAIL("the target ended with status 0x%x", (unsigned)how);
    }
    free(env);
}

static const char *far_location(struct real_env *env)
{
    if (env->link == NULL)
        env->link = link_create((unsigned)atoi(strrchr(env->location, ':') + 1));
    return link_location(env->link);
}

struct fabric *real_client(struct env *base, const struct env_client *client)
{
    struct real_env *env = self(base);
    char error[ERROR_BYTES] = "";
    struct fabric *fabric;

    CHECK(env->client_count < ENV_CLIENTS_MAX);
    uint16_t node = (uint16_t)(1 + env->client_count);
    enum pando_status status = env->backend->open_client(base->options.folder, node, client,
                                                         &fabric, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("cannot open a client: %s (%s)", error, pando_status_text(status));
    fabric_set_identity(fabric, client->identity);
    const char *location = client->far && env->backend->links ? far_location(env) : env->location;
    CHECK_OK(fabric_add_peer(fabric, ENV_TARGET, env_target_kind(base->ops), location));
    env->clients[env->client_count++] = fabric;
    return fabric;
}

void real_place_target(struct env *base, struct fabric *client, bool right)
{
    struct real_env *env = self(base);
    char location[FABRIC_LOCATION_MAX];
    bool path = env->backend->nowhere[0] == '/';

    snprintf(location, sizeof(location), "%s%s", path ? base->options.folder : "",
             env->backend->nowhere);
    CHECK_OK(fabric_add_peer(client, ENV_TARGET, env_target_kind(base->ops),
                             right ? env->location : location));
}

void real_run(struct env *base, const struct env_task *tasks, unsigned count)
{
    struct rt_thread *threads[ENV_TASKS_MAX];
    (void)base;
    CHECK(count <= ENV_TASKS_MAX);
    for (unsigned i = 0; i < count; i++)
        CHECK_OK(rt_thread_start("client", tasks[i].fn, tasks[i].arg, &threads[i]));
    for (unsigned i = 0; i < count; i++)
        rt_thread_join(threads[i]);
}

/* ---- faults ---------------------------------------------------------------------------------- */

void real_kill_target(struct env *base)
{
    struct real_env *env = self(base);
    CHECK(env->target != 0 && kill(env->target, SIGKILL) == 0);
    (void)reap(env->target);
    close(env->lifeline);
    env->target = 0;
}

void real_restart_target(struct env *base)
{
    struct real_env *env = self(base);
    char before[FABRIC_LOCATION_MAX];

    CHECK(env->target == 0);
    memcpy(before, env->location, sizeof(before));
    start_target(env);
    CHECK_EQ_TEXT(env->location, before);
}

static void stop_target(struct real_env *env)
{
    int how;
    CHECK(kill(env->target, SIGSTOP) == 0);
    CHECK(waitpid(env->target, &how, WUNTRACED) == env->target && WIFSTOPPED(how));
}

/* By turns, where there is a choice. */
void real_hide_target(struct env *base)
{
    struct real_env *env = self(base);
    if (env->link == NULL)
        real_kill_target(base);
    else if (env->hidden++ % 2 == 0)
        link_cut(env->link);
    else
        stop_target(env);
}

void real_show_target(struct env *base)
{
    struct real_env *env = self(base);
    if (env->link == NULL)
        real_restart_target(base);
    else if (env->hidden % 2 == 1)
        link_heal(env->link);
    else
        CHECK(kill(env->target, SIGCONT) == 0);
}

/* ---- the writer ------------------------------------------------------------------------------ */

void real_writer_start(struct env *base, struct fabric_identity identity, uint64_t offset)
{
    struct real_env *env = self(base);
    char member[8], incarnation[8], word[24], parent[16];

    CHECK(env->writer == 0);
    snprintf(member, sizeof(member), "%u", identity.member);
    snprintf(incarnation, sizeof(incarnation), "%u", identity.incarnation);
    snprintf(word, sizeof(word), "%" PRIu64, offset);
    snprintf(parent, sizeof(parent), "%d", (int)getpid());
    char *argv[] = {"conformance_fabric",
                    "--process",
                    (char *)base->ops->name,
                    "writer",
                    (char *)base->options.folder,
                    env->location,
                    member,
                    incarnation,
                    word,
                    parent,
                    NULL};
    env->writer = start_process(argv, NULL, NULL);
}

static int writer_main(const struct real_backend *backend, char **argv)
{
    const char *folder = argv[0], *location = argv[1];
    struct env_client client = {
        .identity = {.member = (uint16_t)atoi(argv[2]), .incarnation = (uint16_t)atoi(argv[3])}};
    struct env_writer writer = {.offset = strtoull(argv[4], NULL, 10)};
    char error[ERROR_BYTES] = "";
    struct rt_thread *thread;

    /* A stopped process would not notice that its parent has gone. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != atoi(argv[5]))
        return 1;
    enum pando_status status =
        backend->open_client(folder, WRITER_NODE, &client, &writer.fabric, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("the writer cannot open: %s (%s)", error, pando_status_text(status));
    fabric_set_identity(writer.fabric, client.identity);
    CHECK_OK(fabric_add_peer(writer.fabric, ENV_TARGET, env_target_kind(backend->ops), location));
    CHECK_OK(rt_thread_start("writer", env_writer_main, &writer, &thread));
    rt_thread_join(thread);
    fabric_close(writer.fabric);
    return WRITER_EXIT + (int)writer.status;
}

void real_writer_pause_co(struct env *base)
{
    struct real_env *env = self(base);
    int how;
    CHECK(kill(env->writer, SIGSTOP) == 0);
    CHECK(waitpid(env->writer, &how, WUNTRACED) == env->writer);
    if (!WIFSTOPPED(how))
        CHECK_FAIL("the writer ended by itself with status 0x%x", (unsigned)how);
}

enum env_end real_writer_end_co(struct env *base)
{
    struct real_env *env = self(base);
    uint64_t deadline_ns = rt_now_ns() + base->ops->patience_ns;
    int how;
    while (waitpid(env->writer, &how, WNOHANG) == 0) {
        CHECK(rt_now_ns() < deadline_ns);
        rt_sleep_co(RT_NS_PER_MS);
    }
    env->writer = 0;
    if (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL)
        return ENV_END_DEAD;
    if (WIFEXITED(how) && WEXITSTATUS(how) == WRITER_EXIT + PANDO_FENCED)
        return ENV_END_FENCED;
    fprintf(stderr, "the writer ended with status 0x%x\n", (unsigned)how);
    return ENV_END_OTHER;
}

void real_writer_resume_co(struct env *base)
{
    CHECK(kill(self(base)->writer, SIGCONT) == 0);
}

void real_writer_kill_co(struct env *base)
{
    CHECK(kill(self(base)->writer, SIGKILL) == 0);
}

int real_process(const struct real_backend *backend, int argc, char **argv, fabric_handler handler)
{
    alarm(PROCESS_SECONDS);
    if (argc == 4 && strcmp(argv[0], "target") == 0)
        return target_main(backend, argv + 1, handler);
    if (argc == 7 && strcmp(argv[0], "writer") == 0)
        return writer_main(backend, argv + 1);
    return 2;
}
