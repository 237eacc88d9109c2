/*
 * common.c - what commands share: options, errors, pools.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "fabric/stream/stream.h"

enum { HELP_BYTES = 64 * 1024, ERROR_BYTES = 512 };

static void say(const char *command, const char *format, va_list arguments)
{
    char text[ERROR_BYTES + 256], shown[2 * sizeof(text)];
    int used = snprintf(text, sizeof(text), "pando %s: ", command);
    vsnprintf(text + used, sizeof(text) - (size_t)used, format, arguments);
    fflush(stdout);
    fprintf(stderr, "%s\n", cmd_printable(text, shown, sizeof(shown)));
}

void cmd_error(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(command, format, arguments);
    va_end(arguments);
}

int cmd_usage(const char *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(command, format, arguments);
    va_end(arguments);
    return EXIT_USAGE;
}

typedef size_t (*help_fn)(const struct config_command *command, char *out, size_t out_size);

static void print_help(const struct config_command *command, help_fn help)
{
    char *text = malloc(HELP_BYTES);
    if (text != NULL) {
        help(command, text, HELP_BYTES);
        fputs(text, stdout);
    }
    free(text);
}

/* --help=man and --help=flags: what manual pages and completions are made from. */
static help_fn other_help(int argc, char **argv)
{
    if (argc != 2 || strncmp(argv[1], "--help=", 7) != 0)
        return NULL;
    if (strcmp(argv[1] + 7, "man") == 0)
        return config_man;
    return strcmp(argv[1] + 7, "flags") == 0 ? config_flags : NULL;
}

bool cmd_load(struct config *config, const struct config_command *command, int argc, char **argv,
              void *settings, int *out_exit)
{
    help_fn other = other_help(argc, argv);
    *out_exit = EXIT_OK;
    if (other != NULL) {
        *config = (struct config){.help = true};
        arena_init(&config->arena, 64);
        print_help(command, other);
        return false;
    }
    enum pando_status status = config_load(config, command, argc, argv, settings);
    if (status != PANDO_OK) {
        cmd_error(command->name, "%s", config->error);
        *out_exit = status == PANDO_INVALID ? EXIT_USAGE : EXIT_FAILED;
        return false;
    }
    if (!config->help)
        return true;
    print_help(command, config_help);
    return false;
}

bool cmd_log_begin(const char *command, const struct cmd_log *log)
{
    char error[ERROR_BYTES];
    enum log_level level;
    enum log_format format = LOG_FORMAT_TEXT;
    if (log_level_parse(log->level, &level) != PANDO_OK) {
        cmd_error(command, "--log-level: '%.32s' is no level; use error, warn, info or debug",
                  log->level);
        return false;
    }
    if (log->format != NULL && log_format_parse(log->format, &format) != PANDO_OK) {
        cmd_error(command, "--log-format: '%.32s' is no format; use text or json", log->format);
        return false;
    }
    if (log->file != NULL && log_open_file(log->file, error, sizeof(error)) != PANDO_OK) {
        cmd_error(command, "--log-file: %s", error);
        return false;
    }
    log_set_level(level);
    log_set_format(format);
    return true;
}

bool cmd_parse_seconds(const char *text, uint64_t *out_ns)
{
    char with_unit[32];
    size_t size = strlen(text);
    if (size == 0 || size > 16 || strspn(text, "0123456789.") != size)
        return false;
    snprintf(with_unit, sizeof(with_unit), "%ss", text);
    return parse_duration_ns(with_unit, out_ns) == PANDO_OK && *out_ns <= 3600 * RT_NS_PER_S;
}

/* ---- pools ----------------------------------------------------------------------------------- */

static bool leaves_machine(const struct env *env)
{
    if (strcmp(env_kind(env), "tcp") != 0 && strcmp(env_kind(env), "verbs") != 0)
        return false;
    for (unsigned node = 0; node < env_memory_nodes(env); node++) {
        if (!socket_routes_on_loopback(env_memory_place(env, node)))
            return true;
    }
    return false;
}

struct env *cmd_pool_open(const char *command, const struct cmd_pool *pool, int *out_exit)
{
    char error[ERROR_BYTES] = "";
    struct env *env;
    struct env_options options = {
        .uri = pool->uri,
        .secret_file = pool->secret_file,
        .verbs = pool->verbs,
        .require_tls = pool->require_tls,
        .insecure_tcp = pool->insecure_tcp,
        .tls_ca = pool->tls_ca,
        .tls_cert = pool->tls_cert,
        .tls_key = pool->tls_key,
        .peer_listen = pool->peer_listen,
        .peer_advertise = pool->peer_advertise,
        .no_member = pool->no_member,
        .window_bytes = pool->window,
    };

    *out_exit = EXIT_USAGE;
    if (!cmd_log_begin(command, &pool->log))
        return NULL;
    enum pando_status status = env_open(&options, &env, error, sizeof(error));
    if (status == PANDO_OK) {
        *out_exit = EXIT_OK;
        if (pool->insecure_tcp && pool->secret_file != NULL && leaves_machine(env))
            cmd_error(command, "plain TCP off loopback: who is on the path can read and write all "
                               "of the pool; leave --insecure-tcp out for TLS");
        return env;
    }
    cmd_error(command, "%s", error[0] != '\0' ? error : pando_status_text(status));
    *out_exit = status == PANDO_INVALID ? EXIT_USAGE : EXIT_FAILED;
    return NULL;
}

/* ---- what the machine gives ------------------------------------------------------------------ */

uint64_t cmd_files(uint64_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    if (limit.rlim_cur >= wanted)
        return limit.rlim_cur;
    struct rlimit raised = {.rlim_cur = wanted,
                            .rlim_max = limit.rlim_max < wanted ? wanted : limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        return wanted;
    raised = (struct rlimit){.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? limit.rlim_max : limit.rlim_cur;
}
