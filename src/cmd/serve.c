/*
 * serve.c - `pando serve`: the Redis-compatible server on a pool, until it is told to stop.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/daemon.h"
#include "fabric/stream/stream.h"
#include "rt/io.h"
#include "server/server.h"
#include "store/engines.h"
#include "store/store.h"
#include "store/uri.h"

enum { ERROR_BYTES = 512, FILES_BESIDES_CLIENTS = 128, NETWORK_PAUSE_MS = 500 };

struct settings {
    struct cmd_pool pool;
    const char *listen, *tls_listen;
    const char *server_cert, *server_key, *server_ca;
    const char *password_file, *readonly_password_file, *metrics, *engine, *durability;
    uint64_t threads, max_clients, output_limit, cache;
    uint64_t idle_timeout, stalled_timeout, pool_wait;
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
    {.name = "pool-wait",
     .metavar = "TIME",
     .help =
         "Wait so long at start for memory nodes that do not answer yet; 0: do not wait. A wrong "
         "secret is not waited for.",
     .default_text = "60s",
     CONFIG_DURATION_INTO(struct settings, pool_wait)},
    {.name = "engine",
     .metavar = "ENGINE",
     .help = "What keeps the tables of databases that are not there yet: " STORE_ENGINE_NAMES(
         " or ") ". If not given: "
                 "sherman in an embedded pool, dex in others.",
     CONFIG_TEXT_INTO(struct settings, engine)},
    {.name = "cache",
     .metavar = "SIZE",
     .help = "Memory for the index of each table; 0 takes the engine's default.",
     .default_text = "0",
     CONFIG_SIZE_INTO(struct settings, cache)},
    CMD_WINDOW_OPTION(struct settings),
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
    .summary =
        "Serves a pool to Redis clients (RESP2 and RESP3), until it gets SIGTERM or SIGINT. "
        "SIGHUP makes it read the pool's secret, its certificates and passwords again, and open "
        "its log file again.",
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
    uint64_t wanted = settings->max_clients + FILES_BESIDES_CLIENTS;
    uint64_t allowed = cmd_files(wanted);
    if (allowed >= wanted)
        return;
    settings->max_clients =
        allowed > FILES_BESIDES_CLIENTS * 2 ? allowed - FILES_BESIDES_CLIENTS : allowed / 2;
    log_warn("fewer clients than asked for: the limit of open files is lower",
             log_u64("clients", settings->max_clients));
}

/* How many clients there may be at the most; CONFIG SET may ask for that many. */
static uint64_t clients_possible(const struct settings *settings)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return settings->max_clients;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        limit.rlim_max < settings->max_clients + FILES_BESIDES_CLIENTS)
        return settings->max_clients;
    return limit.rlim_max - FILES_BESIDES_CLIENTS;
}

/* ---- running --------------------------------------------------------------------------------- */

struct serve {
    const struct settings *settings;
    const struct daemon *daemon;
    struct env *env;
    struct server *server;
    struct rt_fd signals;
};

/* The pool's files, and those for clients: one that is wrong does not keep the others from it. */
static enum pando_status reload(void *context, char *text, size_t text_bytes)
{
    struct serve *serve = context;
    char own[ERROR_BYTES] = "";
    enum pando_status status = env_reload(serve->env, text, text_bytes);
    enum pando_status for_clients = server_reload(serve->server, own, sizeof(own));
    if (for_clients == PANDO_OK)
        return status;
    if (status != PANDO_OK && status != PANDO_UNSUPPORTED)
        daemon_say(serve->daemon, "SIGHUP: %s; the former stays in use", text);
    snprintf(text, text_bytes, "%s", own);
    return for_clients;
}

static void on_signal(struct rt_fd *io, uint32_t events)
{
    struct serve *serve = container_of(io, struct serve, signals);
    struct signalfd_siginfo info;
    (void)events;
    ssize_t got = read(io->fd, &info, sizeof(info));
    if (got != (ssize_t)sizeof(info))
        return;
    if (daemon_wish(serve->daemon, (int)info.ssi_signo) == DAEMON_STOP)
        server_stop(serve->server);
    else
        daemon_reload(serve->daemon, reload, serve);
}

static void say_waiting(void *context, const char *why)
{
    struct serve *serve = context;
    daemon_say(serve->daemon, "waits up to %.0f s for the pool %s: %s",
               (double)serve->settings->pool_wait / RT_NS_PER_S, serve->settings->pool.uri, why);
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

static int serve_pool(const struct settings *settings, const struct daemon *daemon, struct env *env)
{
    struct server_options server_options = {
        .env = env,
        .listen = strcmp(settings->listen, "none") == 0 ? NULL : settings->listen,
        .threads = (unsigned)settings->threads,
        .max_clients = settings->max_clients,
        .clients_possible = clients_possible(settings),
        .output_limit_bytes = settings->output_limit,
        .idle_timeout_ms = settings->idle_timeout / RT_NS_PER_MS,
        .stalled_timeout_ms = settings->stalled_timeout / RT_NS_PER_MS,
        .pool_wait_ns = settings->pool_wait,
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
    struct serve serve = {.settings = settings, .daemon = daemon, .env = env};
    char error[ERROR_BYTES] = "";

    int fd = signalfd(-1, &daemon->signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) {
        cmd_error("serve", "cannot watch for signals: %s", strerror(errno));
        return EXIT_FAILED;
    }
    serve.signals = (struct rt_fd){.fd = fd, .events = RT_READABLE, .ready = on_signal};
    enum pando_status status = server_open(&server_options, &serve.server, error, sizeof(error));
    if (status == PANDO_OK) {
        server_on_ready(serve.server, print_ready, &serve);
        server_on_waiting(serve.server, say_waiting, &serve);
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

/* Until a way leads to the first memory node: after a machine's start its network may take a while,
 * and on that way lies the address under which other members are told to call this one. False: it is
 * to stop. */
static bool wait_for_network(const struct settings *settings, const struct daemon *daemon)
{
    char place[FABRIC_LOCATION_MAX], error[ERROR_BYTES];
    uint64_t begin_ns = rt_machine_ns();
    struct uri *uri = malloc(sizeof(*uri));
    bool remote = uri != NULL &&
                  uri_parse(settings->pool.uri, uri, error, sizeof(error)) == PANDO_OK &&
                  (uri->kind == URI_TCP || uri->kind == URI_VERBS);
    bool said = false, go_on = true;

    while (remote && go_on && rt_machine_ns() - begin_ns < settings->pool_wait &&
           socket_route(uri->places[0], place, sizeof(place)) != PANDO_OK) {
        if (!said)
            daemon_say(daemon, "waits up to %.0f s for the network: no way leads to %s",
                       (double)settings->pool_wait / RT_NS_PER_S, uri->places[0]);
        said = true;
        go_on = daemon_pause(daemon, NETWORK_PAUSE_MS * RT_NS_PER_MS);
    }
    free(uri);
    return go_on;
}

/* --help=commands: what scripts/commands makes the table in docs/SERVER.md from. */
static int print_commands(void)
{
    size_t size = server_commands_text(NULL, 0) + 1;
    char *text = malloc(size);
    if (text == NULL)
        return EXIT_FAILED;
    server_commands_text(text, size);
    fputs(text, stdout);
    free(text);
    return EXIT_OK;
}

int cmd_serve(int argc, char **argv)
{
    struct settings settings = {0};
    struct daemon daemon;
    struct config config;
    int result;

    if (argc == 2 && strcmp(argv[1], "--help=commands") == 0)
        return print_commands();
    if (!cmd_load(&config, &command, argc, argv, &settings, &result))
        goto out;
    result = check(&settings);
    if (result != EXIT_OK)
        goto out;
    daemon_begin(&daemon, "serve", &settings.pool.log);
    if (!wait_for_network(&settings, &daemon))
        goto out;
    struct env *env = cmd_pool_open("serve", &settings.pool, &result);
    if (env == NULL)
        goto out;
    make_room_for_files(&settings);
    result = serve_pool(&settings, &daemon, env);
    env_close(env);
out:
    config_fini(&config);
    return result;
}
