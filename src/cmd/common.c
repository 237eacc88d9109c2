/*
 * common.c - what commands share: options, errors, pools.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "cmd/cmd.h"

enum { HELP_BYTES = 64 * 1024, ERROR_BYTES = 512 };

static void say(const char *command, const char *format, va_list arguments)
{
    char text[ERROR_BYTES + 256];
    int used = snprintf(text, sizeof(text), "pando %s: ", command);
    vsnprintf(text + used, sizeof(text) - (size_t)used, format, arguments);
    fflush(stdout);
    fprintf(stderr, "%s\n", text);
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

bool cmd_log_level(const char *command, const char *level)
{
    enum log_level parsed;
    if (log_level_parse(level, &parsed) != PANDO_OK) {
        cmd_error(command, "--log-level: '%.32s' is no level; use error, warn, info or debug",
                  level);
        return false;
    }
    log_set_level(parsed);
    return true;
}

bool cmd_write_json(const char *command, struct json *json, const char *path)
{
    size_t size;
    const char *text = json_finish(json, &size);
    if (text == NULL) {
        cmd_error(command, "out of memory for the JSON text");
        return false;
    }
    bool to_stdout = strcmp(path, "-") == 0;
    FILE *file = to_stdout ? stdout : fopen(path, "we");
    if (file == NULL) {
        cmd_error(command, "--json %s: cannot write it: %s", path, strerror(errno));
        return false;
    }
    bool written = fwrite(text, 1, size, file) == size && fputc('\n', file) != EOF;
    written &= (to_stdout ? fflush(file) : fclose(file)) == 0;
    if (!written)
        cmd_error(command, "--json %s: cannot write it: %s", path, strerror(errno));
    return written;
}

/* ---- pools ----------------------------------------------------------------------------------- */

struct env *cmd_pool_open(const char *command, const struct cmd_pool *pool, int *out_exit)
{
    char error[ERROR_BYTES] = "";
    struct env *env;
    struct env_options options = {
        .uri = pool->uri,
        .secret_file = pool->secret_file,
        .verbs = pool->verbs,
        .tls = pool->tls_ca != NULL,
        .tls_ca = pool->tls_ca,
        .tls_cert = pool->tls_cert,
        .tls_key = pool->tls_key,
        .peer_listen = pool->peer_listen,
        .peer_advertise = pool->peer_advertise,
        .no_member = pool->no_member,
    };

    *out_exit = EXIT_USAGE;
    if (!cmd_log_level(command, pool->log_level))
        return NULL;
    enum pando_status status = env_open(&options, &env, error, sizeof(error));
    if (status == PANDO_OK) {
        *out_exit = EXIT_OK;
        return env;
    }
    cmd_error(command, "%s", error[0] != '\0' ? error : pando_status_text(status));
    *out_exit = status == PANDO_INVALID ? EXIT_USAGE : EXIT_FAILED;
    return NULL;
}

void cmd_explain_connect(const struct env *env, unsigned node, enum pando_status status, char *out,
                         size_t out_bytes)
{
    const char *place = env_memory_place(env, node);
    bool shm = strcmp(env_kind(env), "shm") == 0;
    const char *advice = NULL;

    switch (status) {
    case PANDO_NOT_FOUND:
    case PANDO_BROKEN:
    case PANDO_TIMEOUT:
        advice = shm ? "no memory node answers there; start one with `pando memory --shm`"
                     : "no memory node answers there; start one with `pando memory --listen`, or "
                       "give --tls-ca if it uses TLS";
        break;
    case PANDO_DENIED:
        advice =
            shm ? "no permission; run as the user who runs the memory node"
                : "refused; give the memory node's own secret with --secret-file, and the same "
                  "--tls options";
        break;
    case PANDO_INVALID:
        advice = "another node than this answers there; list the memory nodes in the order of "
                 "their --node";
        break;
    case PANDO_IO:
    case PANDO_UNSUPPORTED:
        advice = strcmp(env_kind(env), "verbs") == 0
                     ? "the two RDMA devices cannot reach each other, or one is gone; choose with "
                       "--verbs, and see the log (--log-level warn) of both sides"
                     : pando_status_text(status);
        break;
    case PANDO_VERSION:
        advice = "it speaks another version; use programs of one release";
        break;
    default:
        advice = pando_status_text(status);
    }
    snprintf(out, out_bytes, "memory node %u at %s:%s: %s", node, env_kind(env), place, advice);
}

/* ---- windows --------------------------------------------------------------------------------- */

static enum pando_status reaches_co(struct fabric_endpoint *endpoint, uint64_t offset, bool *out)
{
    uint8_t byte;
    struct fabric_op op = fabric_read(offset, &byte, 1);
    enum pando_status status = fabric_submit_co(endpoint, &op, 1);
    if (status != PANDO_OK && status != PANDO_RANGE)
        return status;
    *out = status == PANDO_OK;
    return PANDO_OK;
}

/* The end of what can be reached from `low`, which can be, below `high`, which cannot. */
static enum pando_status find_end_co(struct fabric_endpoint *endpoint, uint64_t low, uint64_t high,
                                     uint64_t *out)
{
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        bool reached;
        enum pando_status status = reaches_co(endpoint, middle, &reached);
        if (status != PANDO_OK)
            return status;
        if (reached)
            low = middle;
        else
            high = middle;
    }
    *out = high;
    return PANDO_OK;
}

enum pando_status cmd_window_co(struct fabric_endpoint *endpoint, struct cmd_window *out)
{
    struct cmd_window window = {.first = 4096};
    bool reached = false;
    enum pando_status status = PANDO_OK;

    /* Windows begin at a small power of two. */
    while (status == PANDO_OK && !reached && window.first < FABRIC_DEVICE / 2) {
        window.first *= 2;
        status = reaches_co(endpoint, window.first, &reached);
    }
    if (status == PANDO_OK && !reached)
        status = PANDO_RANGE;
    if (status == PANDO_OK)
        status = find_end_co(endpoint, window.first, FABRIC_DEVICE, &window.host_bytes);
    if (status == PANDO_OK)
        status = reaches_co(endpoint, FABRIC_DEVICE, &reached);
    if (status == PANDO_OK && reached) {
        status = find_end_co(endpoint, FABRIC_DEVICE, 2 * FABRIC_DEVICE, &window.device_bytes);
        window.device_bytes -= FABRIC_DEVICE;
    }
    if (status == PANDO_OK)
        *out = window;
    return status;
}

uint64_t cmd_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * RT_NS_PER_S + (uint64_t)now.tv_nsec;
}
