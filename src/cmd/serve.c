/*
 * serve.c - `pando serve`: the Redis-compatible server on a pool, until it is told to stop.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "rt/io.h"
#include "server/server.h"
#include "store/engines.h"
#include "store/store.h"

enum { ERROR_BYTES = 512, FILES_BESIDES_CLIENTS = 128 };

struct settings {
    struct cmd_pool pool;
    const char *listen, *tls_listen;
    const char *server_cert, *server_key, *server_ca;
    const char *password_file, *readonly_password_file, *metrics, *engine, *durability;
    uint64_t threads, max_clients, output_limit, cache;
    uint64_t idle_timeout, stalled_timeout;
    bool protected_mode, hints;
};

static const struct config_option options[] = {
    CMD_POOL_OPTIONS(struct settings),
    {.name = "listen",
     .metavar = "HOST:PORT",
     .help = "Serve clients here; port 0 takes any that is free, \"none\" leaves TLS only.",
     .default_text = "127.0.0.1:6380",
     CONFIG_TEXT_INTO(struct settings, listen)},
    {.name = "threads",
     .metavar = "N",
     .help = "Server threads.",
     .default_text = "1",
     CONFIG_U64_INTO(struct settings, threads)},
    {.name = "password-file",
     .metavar = "FILE",
     .help = "Clients must know what is in it (AUTH); readable by its owner only.",
     CONFIG_TEXT_INTO(struct settings, password_file)},
    {.name = "readonly-password-file",
     .metavar = "FILE",
     .help = "The password of the user \"readonly\", who may change nothing.",
     CONFIG_TEXT_INTO(struct settings, readonly_password_file)},
    {.name = "protected-mode",
     .help = "Without a password, serve only clients of this machine.",
     .default_text = "true",
     CONFIG_BOOL_INTO(struct settings, protected_mode)},
    {.name = "max-clients",
     .metavar = "N",
     .help = "Connections at a time.",
     .default_text = "10000",
     CONFIG_U64_INTO(struct settings, max_clients)},
    {.name = "output-limit",
     .metavar = "SIZE",
     .help = "A client whose unsent replies are larger is closed.",
     .default_text = "256M",
     CONFIG_SIZE_INTO(struct settings, output_limit)},
    {.name = "stalled-timeout",
     .metavar = "TIME",
     .help = "A client that takes none of its replies for so long is closed; 0: never.",
     .default_text = "60s",
     CONFIG_DURATION_INTO(struct settings, stalled_timeout)},
    {.name = "idle-timeout",
     .metavar = "TIME",
     .help = "A client that asks nothing for so long is closed; 0: never.",
     .default_text = "0",
     CONFIG_DURATION_INTO(struct settings, idle_timeout)},
    {.name = "engine",
     .metavar = "NAME",
     .help =
         "What keeps the tables of databases that are not there yet: dex or sherman. If not given: "
         "sherman in an embedded pool, dex in others.",
     CONFIG_TEXT_INTO(struct settings, engine)},
    {.name = "cache",
     .metavar = "SIZE",
     .help = "Memory for the index of each table; 0 takes the engine's default.",
     .default_text = "0",
     CONFIG_SIZE_INTO(struct settings, cache)},
    {.name = "durability",
     .metavar = "WHERE",
     .help = "pool: what was acknowledged survives this server. none: the engine dex keeps changes "
             "in its "
             "cache, which is faster, and they die with it.",
     .default_text = "pool",
     CONFIG_TEXT_INTO(struct settings, durability)},
    {.name = "serve-tls",
     .metavar = "HOST:PORT",
     .help = "Serve clients with TLS 1.3 here, too.",
     CONFIG_TEXT_INTO(struct settings, tls_listen)},
    {.name = "serve-tls-cert",
     .metavar = "FILE",
     .help = "The server's certificate (PEM).",
     CONFIG_TEXT_INTO(struct settings, server_cert)},
    {.name = "serve-tls-key",
     .metavar = "FILE",
     .help = "Its private key (PEM).",
     CONFIG_TEXT_INTO(struct settings, server_key)},
    {.name = "serve-tls-ca",
     .metavar = "FILE",
     .help = "Let in only clients with a certificate of this authority (PEM).",
     CONFIG_TEXT_INTO(struct settings, server_ca)},
    CMD_METRICS_OPTION(struct settings, metrics),
    {.name = "hints",
     .help = "Print a few commands to try when ready.",
     CONFIG_BOOL_INTO(struct settings, hints)},
};

static const struct config_command command = {
    .name = "serve",
    .summary = "Serves a pool to Redis clients (RESP2 and RESP3), until it gets SIGTERM or SIGINT.",
    .example = "pando serve --pool tcp:10.0.0.1:7000 --secret-file pando.secret --listen "
               "127.0.0.1:6380",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

static int check(const struct settings *settings)
{
    if (settings->threads == 0 || settings->threads > SERVER_THREADS_MAX)
        return cmd_usage("serve", "--threads: %llu is not from 1 to %d",
                         (unsigned long long)settings->threads, SERVER_THREADS_MAX);
    if (settings->max_clients == 0)
        return cmd_usage("serve", "--max-clients: 0 would serve nobody; use for example 10000");
    bool not_durable;
    if (!store_durability_parse(settings->durability, &not_durable))
        return cmd_usage("serve", "--durability: '%.32s' is neither pool nor none",
                         settings->durability);
    if (settings->output_limit < 1u << 20)
        return cmd_usage("serve", "--output-limit: too small; use at least 1M");
    if (settings->tls_listen != NULL &&
        (settings->server_cert == NULL || settings->server_key == NULL))
        return cmd_usage("serve", "--serve-tls needs --serve-tls-cert and --serve-tls-key");
    if (settings->tls_listen == NULL && strcmp(settings->listen, "none") == 0)
        return cmd_usage("serve", "where to serve? use --listen HOST:PORT or --serve-tls");
    if (strncmp(settings->pool.uri, "sim:", 4) == 0)
        return cmd_usage("serve", "--pool: a simulated pool has no clients; use for example "
                                  "embedded:1G");
    return EXIT_OK;
}

/* As many files as there may be clients; fewer clients where that is not allowed. */
static void make_room_for_files(struct settings *settings)
{
    struct rlimit limit;
    rlim_t wanted = settings->max_clients + FILES_BESIDES_CLIENTS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    struct rlimit raised = {.rlim_cur = wanted,
                            .rlim_max = limit.rlim_max < wanted ? wanted : limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        return;
    raised = (struct rlimit){.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit.rlim_cur = limit.rlim_max;
    settings->max_clients = limit.rlim_cur > FILES_BESIDES_CLIENTS * 2
                                ? limit.rlim_cur - FILES_BESIDES_CLIENTS
                                : limit.rlim_cur / 2;
    log_warn("fewer clients than asked for: the limit of open files is lower",
             log_u64("clients", settings->max_clients));
}

/* ---- running --------------------------------------------------------------------------------- */

struct serve {
    const struct settings *settings;
    struct server *server;
    struct rt_fd signals;
};

static void on_signal(struct rt_fd *io, uint32_t events)
{
    struct serve *serve = container_of(io, struct serve, signals);
    struct signalfd_siginfo info;
    (void)events;
    ssize_t got = read(io->fd, &info, sizeof(info));
    if (got == (ssize_t)sizeof(info))
        server_stop(serve->server);
}

static void print_ready(void *context)
{
    struct serve *serve = context;
    const char *plain = server_address(serve->server), *tls = server_tls_address(serve->server);
    const char *colon = strrchr(plain, ':');
    const char *metrics = server_metrics_address(serve->server);

    printf("pando serve: %s ready at %s%s%s%s%s%s\n", serve->settings->pool.uri, plain,
           plain[0] != '\0' && tls[0] != '\0' ? " and " : "", tls[0] != '\0' ? "tls:" : "", tls,
           metrics[0] != '\0' ? ", metrics at " : "", metrics);
    if (serve->settings->hints && colon != NULL)
        printf("Try it:\n"
               "  redis-cli -p %s set greeting hello\n"
               "  redis-cli -p %s get greeting\n"
               "  redis-cli -p %s scan 0 match 'g*'\n",
               colon + 1, colon + 1, colon + 1);
    fflush(stdout);
}

static void thread_main_co(void *context, const struct env_place *place)
{
    struct serve *serve = context;
    bool first = place->thread == 0;
    bool watching = first && rt_fd_add(rt_loop_self(), &serve->signals) == PANDO_OK;
    server_run_co(serve->server, place);
    if (watching)
        rt_fd_remove(rt_loop_self(), &serve->signals);
}

static int serve_pool(const struct settings *settings, struct env *env)
{
    struct server_options server_options = {
        .env = env,
        .listen = strcmp(settings->listen, "none") == 0 ? NULL : settings->listen,
        .threads = (unsigned)settings->threads,
        .max_clients = settings->max_clients,
        .output_limit_bytes = settings->output_limit,
        .idle_timeout_ms = settings->idle_timeout / RT_NS_PER_MS,
        .stalled_timeout_ms = settings->stalled_timeout / RT_NS_PER_MS,
        .cache_bytes = settings->cache,
        .engine = settings->engine,
        .password_file = settings->password_file,
        .readonly_password_file = settings->readonly_password_file,
        .protected_mode = settings->protected_mode,
        .tls_listen = settings->tls_listen,
        .tls_cert = settings->server_cert,
        .tls_key = settings->server_key,
        .tls_ca = settings->server_ca,
        .metrics_listen = settings->metrics,
    };
    (void)store_durability_parse(settings->durability, &server_options.not_durable);
    struct serve serve = {.settings = settings};
    char error[ERROR_BYTES] = "";
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    int fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) {
        cmd_error("serve", "cannot watch for signals: %s", strerror(errno));
        return EXIT_FAILED;
    }
    serve.signals = (struct rt_fd){.fd = fd, .events = RT_READABLE, .ready = on_signal};
    enum pando_status status = server_open(&server_options, &serve.server, error, sizeof(error));
    if (status == PANDO_OK) {
        server_on_ready(serve.server, print_ready, &serve);
        status = env_run(env, server_options.threads, thread_main_co, &serve);
        snprintf(error, sizeof(error), "%s", server_error(serve.server));
        server_close(serve.server);
    }
    close(fd);
    if (status == PANDO_OK && error[0] == '\0')
        return EXIT_OK;
    cmd_error("serve", "%s", error[0] != '\0' ? error : pando_status_text(status));
    return EXIT_FAILED;
}

/* Before any thread starts, so that all of them leave the signals to the descriptor. */
static void block_signals(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
}

int cmd_serve(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    int result;

    if (!cmd_load(&config, &command, argc, argv, &settings, &result))
        goto out;
    result = check(&settings);
    if (result != EXIT_OK)
        goto out;
    block_signals();
    struct env *env = cmd_pool_open("serve", &settings.pool, &result);
    if (env == NULL)
        goto out;
    make_room_for_files(&settings);
    result = serve_pool(&settings, env);
    env_close(env);
out:
    config_fini(&config);
    return result;
}
