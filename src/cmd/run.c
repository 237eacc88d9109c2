/*
 * run.c - `pando run`: a first look at Pando. A memory node in shared memory, and a shell on it.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/shell.h"

struct settings {
    const char *name, *size;
};

static const struct config_option options[] = {
    {.name = "shm",
     .metavar = "NAME",
     .help = "Name of the memory node; run-UID, with your user id, if not given.",
     CONFIG_TEXT_INTO(struct settings, name)},
    {.name = "size",
     .metavar = "SIZE",
     .help = "Memory to offer.",
     .default_text = "256M",
     CONFIG_TEXT_INTO(struct settings, size)},
};

static const struct config_command command = {
    .name = "run",
    .summary =
        "Starts a memory node in shared memory and a shell on it. Without a terminal, shows a "
        "few commands instead and ends.",
    .example = "pando run",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

/* ---- the memory node ------------------------------------------------------------------------- */

struct node {
    pid_t child;
    int ready; /* the read end of its stdout */
};

static void child_main(pid_t parent, const char *name, const char *size, int out)
{
    char *arguments[] = {(char *)(uintptr_t)cmd_program,
                         (char[]){"memory"},
                         (char[]){"--shm"},
                         (char *)(uintptr_t)name,
                         (char[]){"--size"},
                         (char *)(uintptr_t)size,
                         NULL};
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent || dup2(out, STDOUT_FILENO) < 0)
        _exit(EXIT_FAILED);
    (void)setpgid(0, 0); /* Ctrl-C is for the shell; the parent stops it */
    execv("/proc/self/exe", arguments);
    _exit(EXIT_FAILED);
}

static bool node_start(struct node *node, const char *name, const char *size)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe(ends) != 0) {
        cmd_error("run", "cannot make a pipe: %s", strerror(errno));
        return false;
    }
    fflush(NULL);
    node->child = fork();
    if (node->child == 0)
        child_main(parent, name, size, ends[1]);
    close(ends[1]);
    node->ready = ends[0];
    if (node->child > 0)
        return true;
    cmd_error("run", "cannot start a process: %s", strerror(errno));
    close(ends[0]);
    return false;
}

/* It prints one line when it is ready, and ends without one when it cannot be. */
static bool node_wait_ready(struct node *node)
{
    char line[512];
    size_t size = 0;
    while (size < sizeof(line)) {
        ssize_t got = read(node->ready, line + size, sizeof(line) - size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        size += (size_t)got;
        if (memchr(line, '\n', size) != NULL)
            return true;
    }
    return true;
}

static void node_stop(struct node *node)
{
    close(node->ready);
    kill(node->child, SIGTERM);
    while (waitpid(node->child, NULL, 0) < 0 && errno == EINTR)
        continue;
}

/* ---- what to do with it ---------------------------------------------------------------------- */

static void print_advice(const char *uri)
{
    printf("A memory node runs in shared memory as %s until this ends. From another terminal:\n"
           "  %s status --pool %s\n"
           "  %s shell --pool %s\n"
           "  %s fabric-bench --pool %s\n",
           uri, cmd_program, uri, cmd_program, uri, cmd_program, uri);
    fflush(stdout);
}

static bool demonstrate(struct env *env, char *uri)
{
    static const char script[] = "window;"
                                 "write 0xa000000 42;"
                                 "read 0xa000000;"
                                 "faa 0xa000000 8;"
                                 "cas 0xa000000 50 7;"
                                 "read 0xa000000 2";
    char *arguments[] = {(char[]){"fabric-bench"}, (char[]){"--pool"}, uri,
                         (char[]){"--seconds"},    (char[]){"1"},      NULL};
    if (!shell_run(env, script, true))
        return false;
    printf("> fabric-bench\n");
    return cmd_fabric_bench(5, arguments) == EXIT_OK;
}

static int use(const char *name)
{
    char uri[FABRIC_LOCATION_MAX + 8];
    struct cmd_pool pool = {.uri = uri, .log_level = "error"};
    bool interactive = isatty(STDIN_FILENO) == 1;
    int result;

    snprintf(uri, sizeof(uri), "shm:%s", name);
    print_advice(uri);
    struct env *env = cmd_pool_open("run", &pool, &result);
    if (env == NULL)
        return result;
    if (interactive) {
        printf("Here you can read and write its words; `help` lists the commands, `quit` ends.\n");
        (void)shell_run(env, NULL, false);
    } else {
        result = demonstrate(env, uri) ? EXIT_OK : EXIT_FAILED;
    }
    env_close(env);
    return result;
}

int cmd_run(int argc, char **argv)
{
    struct settings settings;
    struct config config;
    struct node node;
    char name[64];
    int result;

    if (!cmd_load(&config, &command, argc, argv, &settings, &result))
        goto out;
    result = EXIT_FAILED;
    snprintf(name, sizeof(name), "run-%u", (unsigned)getuid());
    if (settings.name != NULL && strlen(settings.name) >= FABRIC_LOCATION_MAX) {
        result = cmd_usage("run", "--shm: longer than %d characters; use for example demo",
                           FABRIC_LOCATION_MAX - 1);
        goto out;
    }
    const char *chosen = settings.name != NULL ? settings.name : name;
    if (!node_start(&node, chosen, settings.size))
        goto out;
    if (node_wait_ready(&node))
        result = use(chosen);
    node_stop(&node);
out:
    config_fini(&config);
    return result;
}
