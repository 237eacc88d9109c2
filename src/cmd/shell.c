/*
 * shell.c - `pando shell`: reads and writes the words of a pool.
 *
 * A failed command says why and the next one goes on; a connection that broke is made again for the
 * next command. Input is read on a helper thread, so that the loop keeps turning meanwhile.
 */
#include "cmd/shell.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096, WORDS_MAX = 8, READ_WORDS_MAX = 4096, WORDS_PER_LINE = 4 };

struct shell {
    struct env *env;
    struct fabric *fabric;
    const char *script; /* what is left of it; NULL: stdin */
    bool echo, prompt;
    unsigned node;
    struct fabric_endpoint *endpoint; /* to `node`; NULL until it is needed */
    bool quit, failed;
    char line[LINE_MAX_BYTES];
    bool line_there, line_long;
};

__attribute__((format(printf, 2, 3))) static bool fail(struct shell *shell, const char *format, ...)
{
    va_list arguments;
    fflush(stdout);
    fputs("error: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    shell->failed = true;
    return false;
}

/* ---- the connection -------------------------------------------------------------------------- */

static bool connect_co(struct shell *shell)
{
    enum pando_status status;
    char why[512];

    if (shell->endpoint == NULL)
        status = fabric_connect_co(shell->fabric, (uint16_t)shell->node, &shell->endpoint);
    else if (fabric_broken(shell->endpoint))
        status = fabric_reconnect_co(shell->endpoint);
    else
        return true;
    if (status == PANDO_OK)
        return true;
    env_explain_connect(shell->env, shell->node, status, why, sizeof(why));
    return fail(shell, "%s", why);
}

static void disconnect_co(struct shell *shell)
{
    if (shell->endpoint != NULL)
        fabric_disconnect_co(shell->endpoint);
    shell->endpoint = NULL;
}

static bool explain(struct shell *shell, enum pando_status status, const struct fabric_op *op)
{
    switch (status) {
    case PANDO_OK:
        return true;
    case PANDO_RANGE:
        if (op->offset % 8 != 0 && (op->kind == FABRIC_CAS || op->kind == FABRIC_FAA))
            return fail(shell, "offset 0x%" PRIx64 ": not a multiple of 8; cas and faa need one",
                        op->offset);
        return fail(shell, "offset 0x%" PRIx64 ": outside the window of node %u; `window` shows it",
                    op->offset, shell->node);
    case PANDO_BROKEN:
    case PANDO_TIMEOUT:
        return fail(shell,
                    "node %u: connection lost, the command may or may not have been applied; the "
                    "next one connects again",
                    shell->node);
    default:
        return fail(shell, "node %u: %s", shell->node, pando_status_text(status));
    }
}

static bool submit_co(struct shell *shell, struct fabric_op *op)
{
    if (!connect_co(shell))
        return false;
    return explain(shell, fabric_submit_co(shell->endpoint, op, 1), op);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Decimal, or hexadecimal after 0x. */
static bool number(struct shell *shell, const char *what, const char *text, uint64_t *out)
{
    char *end;
    bool hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const char *digits = hex ? text + 2 : text;

    errno = 0;
    *out = strtoull(digits, &end, hex ? 16 : 10);
    if (errno == 0 && end != digits && *end == '\0' && strchr("+- \t", digits[0]) == NULL)
        return true;
    return fail(shell, "%s '%.32s': not a 64-bit number; use for example 4096 or 0x1000", what,
                text);
}

static void print_words(uint64_t offset, const uint64_t *words, uint64_t count)
{
    for (uint64_t i = 0; i < count; i += WORDS_PER_LINE) {
        printf("0x%012" PRIx64 " ", offset + i * 8);
        for (uint64_t j = i; j < count && j < i + WORDS_PER_LINE; j++)
            printf(" 0x%016" PRIx64, words[j]);
        if (count == 1)
            printf("  %" PRIu64, words[0]);
        printf("\n");
    }
}

static bool do_read_co(struct shell *shell, char **words, int count)
{
    uint64_t offset, wanted = 1;
    if (!number(shell, "offset", words[1], &offset) ||
        (count > 2 && !number(shell, "count", words[2], &wanted)))
        return false;
    if (wanted == 0 || wanted > READ_WORDS_MAX)
        return fail(shell, "count %" PRIu64 ": not from 1 to %d", wanted, READ_WORDS_MAX);
    uint64_t *buffer = calloc(wanted, sizeof(*buffer));
    if (buffer == NULL)
        return fail(shell, "out of memory");
    struct fabric_op op = fabric_read(offset, buffer, (uint32_t)(wanted * 8));
    bool ok = submit_co(shell, &op);
    if (ok)
        print_words(offset, buffer, wanted);
    free(buffer);
    return ok;
}

static bool do_write_co(struct shell *shell, char **words, int count)
{
    uint64_t offset, value;
    (void)count;
    if (!number(shell, "offset", words[1], &offset) || !number(shell, "value", words[2], &value))
        return false;
    struct fabric_op op = fabric_write(offset, &value, sizeof(value));
    if (!submit_co(shell, &op))
        return false;
    print_words(offset, &value, 1);
    return true;
}

static bool do_cas_co(struct shell *shell, char **words, int count)
{
    uint64_t offset, expected, desired;
    (void)count;
    if (!number(shell, "offset", words[1], &offset) ||
        !number(shell, "expected value", words[2], &expected) ||
        !number(shell, "new value", words[3], &desired))
        return false;
    struct fabric_op op = fabric_cas(offset, expected, desired);
    if (!submit_co(shell, &op))
        return false;
    if (op.old == expected)
        printf("swapped: was 0x%" PRIx64 ", is 0x%" PRIx64 "\n", op.old, desired);
    else
        printf("not swapped: is 0x%" PRIx64 ", not 0x%" PRIx64 "\n", op.old, expected);
    return true;
}

static bool do_faa_co(struct shell *shell, char **words, int count)
{
    uint64_t offset, addend;
    (void)count;
    if (!number(shell, "offset", words[1], &offset) || !number(shell, "addend", words[2], &addend))
        return false;
    struct fabric_op op = fabric_faa(offset, addend);
    if (!submit_co(shell, &op))
        return false;
    printf("was %" PRIu64 ", is %" PRIu64 "\n", op.old, op.old + addend);
    return true;
}

static bool do_node_co(struct shell *shell, char **words, int count)
{
    uint64_t node;
    if (count == 1) {
        printf("node %u of %u\n", shell->node, env_memory_nodes(shell->env));
        return true;
    }
    if (!number(shell, "node", words[1], &node))
        return false;
    if (node >= env_memory_nodes(shell->env))
        return fail(shell, "node %" PRIu64 ": the pool has nodes 0 to %u", node,
                    env_memory_nodes(shell->env) - 1);
    disconnect_co(shell);
    shell->node = (unsigned)node;
    return connect_co(shell);
}

static bool do_window_co(struct shell *shell, char **words, int count)
{
    struct env_window window;
    char host[FORMAT_SIZE_MAX], device[FORMAT_SIZE_MAX];
    (void)words;
    (void)count;
    if (!connect_co(shell))
        return false;
    enum pando_status status = env_window_co(shell->endpoint, &window);
    if (status != PANDO_OK)
        return explain(shell, status, &(struct fabric_op){.kind = FABRIC_READ});
    printf("node %u: offsets 0x%" PRIx64 " to 0x%" PRIx64 " (%s)", shell->node, window.first,
           window.host_bytes - 1, format_size(host, sizeof(host), window.host_bytes));
    if (window.device_bytes > 0)
        printf(", on-chip 0x%" PRIx64 " to 0x%" PRIx64 " (%s)", FABRIC_DEVICE,
               FABRIC_DEVICE + window.device_bytes - 1,
               format_size(device, sizeof(device), window.device_bytes));
    printf("\n");
    return true;
}

static bool do_help_co(struct shell *shell, char **words, int count);

static bool do_quit_co(struct shell *shell, char **words, int count)
{
    (void)words;
    (void)count;
    shell->quit = true;
    return true;
}

static const struct shell_command {
    const char *name, *arguments, *help;
    int words_min, words_max; /* its name included */
    bool (*run_co)(struct shell *shell, char **words, int count);
} commands[] = {
    {"read", "OFFSET [COUNT]", "show COUNT 8-byte words (1)", 2, 3, do_read_co},
    {"write", "OFFSET VALUE", "store a word", 3, 3, do_write_co},
    {"cas", "OFFSET EXPECTED NEW", "store NEW if the word is EXPECTED", 4, 4, do_cas_co},
    {"faa", "OFFSET ADDEND", "add to a word", 3, 3, do_faa_co},
    {"node", "[N]", "use memory node N, or say which", 1, 2, do_node_co},
    {"window", "", "show which offsets there are", 1, 1, do_window_co},
    {"help", "", "show this", 1, 1, do_help_co},
    {"quit", "", "end; so do exit and the end of the input", 1, 1, do_quit_co},
    {"exit", "", NULL, 1, 1, do_quit_co},
};

enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static bool do_help_co(struct shell *shell, char **words, int count)
{
    (void)shell;
    (void)words;
    (void)count;
    for (size_t i = 0; i < COMMANDS && commands[i].help != NULL; i++)
        printf("  %-6s %-20s %s\n", commands[i].name, commands[i].arguments, commands[i].help);
    printf("Numbers are decimal, or hexadecimal after 0x. Example: write 0x3000000 42\n");
    return true;
}

static bool execute_co(struct shell *shell, char *text)
{
    char *words[WORDS_MAX + 1], *rest = NULL;
    int count = 0;

    for (char *word = strtok_r(text, " \t\r", &rest); word != NULL && count <= WORDS_MAX;
         word = strtok_r(NULL, " \t\r", &rest))
        words[count++] = word;
    if (count == 0 || words[0][0] == '#')
        return true;
    for (size_t i = 0; i < COMMANDS; i++) {
        const struct shell_command *command = &commands[i];
        if (strcmp(words[0], command->name) != 0)
            continue;
        if (count < command->words_min || count > command->words_max)
            return fail(shell, "%s: write it as: %s %s", command->name, command->name,
                        command->arguments);
        return command->run_co(shell, words, count);
    }
    return fail(shell, "'%.32s': no such command; `help` lists them", words[0]);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* On a helper thread. */
static void read_line(void *arg)
{
    struct shell *shell = arg;
    shell->line_there = fgets(shell->line, sizeof(shell->line), stdin) != NULL;
    if (!shell->line_there)
        return;
    size_t size = strlen(shell->line);
    shell->line_long = size == sizeof(shell->line) - 1 && shell->line[size - 1] != '\n';
    for (int c = 0; shell->line_long && c != '\n' && c != EOF;)
        c = fgetc(stdin);
}

static bool next_script_line(struct shell *shell)
{
    if (*shell->script == '\0')
        return false;
    size_t size = strcspn(shell->script, ";\n");
    shell->line_long = size >= sizeof(shell->line);
    snprintf(shell->line, sizeof(shell->line), "%.*s",
             (int)(size < sizeof(shell->line) ? size : sizeof(shell->line) - 1), shell->script);
    shell->script += size + (shell->script[size] != '\0');
    return true;
}

static bool next_line_co(struct shell *shell)
{
    if (shell->script != NULL)
        return next_script_line(shell);
    if (shell->prompt) {
        printf("pando> ");
        fflush(stdout);
    }
    enum pando_status status = rt_blocking_co(read_line, shell);
    if (status != PANDO_OK)
        return fail(shell, "cannot read input: %s", pando_status_text(status));
    return shell->line_there;
}

/* Several commands of one line of stdin, too. */
static void run_line_co(struct shell *shell)
{
    char *rest = NULL;
    for (char *text = strtok_r(shell->line, ";\n", &rest); text != NULL && !shell->quit;
         text = strtok_r(NULL, ";\n", &rest)) {
        text += strspn(text, " \t");
        if (shell->echo)
            printf("> %s\n", text);
        (void)execute_co(shell, text);
        fflush(stdout);
    }
}

static void shell_main_co(void *context, const struct env_place *place)
{
    struct shell *shell = context;
    if (place->compute_node != 0)
        return;
    shell->fabric = place->fabric;
    if (connect_co(shell)) {
        while (!shell->quit && next_line_co(shell)) {
            if (shell->line_long)
                (void)fail(shell, "line longer than %d bytes; split it", LINE_MAX_BYTES - 1);
            else
                run_line_co(shell);
        }
    }
    disconnect_co(shell);
    if (shell->prompt && !shell->quit && !shell->failed)
        printf("\n");
}

bool shell_run(struct env *env, const char *script, bool echo)
{
    struct shell *shell = calloc(1, sizeof(*shell));
    if (shell == NULL) {
        cmd_error("shell", "out of memory");
        return false;
    }
    shell->env = env;
    shell->script = script;
    shell->echo = echo;
    shell->prompt = script == NULL && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    enum pando_status status = env_run(env, 1, shell_main_co, shell);
    if (status != PANDO_OK)
        cmd_error("shell", "cannot run: %s", pando_status_text(status));
    bool ok = status == PANDO_OK && !shell->failed;
    free(shell);
    return ok;
}

/* ---- the command ----------------------------------------------------------------------------- */

struct settings {
    struct cmd_pool pool;
    const char *command;
};

static const struct config_option options[] = {
    CMD_POOL_OPTIONS(struct settings),
    {.name = "command",
     .metavar = "TEXT",
     .help = "Run these commands, separated by ';', instead of those on stdin; -c TEXT for short.",
     CONFIG_TEXT_INTO(struct settings, command)},
};

static const struct config_command shell_command = {
    .name = "shell",
    .summary = "Reads and writes the words of a pool: read, write, cas, faa, node, window, help, "
               "quit. Exits with 1 if any of its commands failed.",
    .example = "pando shell --pool shm:demo -c 'write 0x3000000 42; read 0x3000000'",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

int cmd_shell(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    int result;

    static char long_name[] = "--command";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-c") == 0)
            argv[i] = long_name;
    }
    if (cmd_load(&config, &shell_command, argc, argv, &settings, &result)) {
        settings.pool.no_member = true;
        struct env *env = cmd_pool_open("shell", &settings.pool, &result);
        if (env != NULL) {
            result = shell_run(env, settings.command, false) ? EXIT_OK : EXIT_FAILED;
            env_close(env);
        }
    }
    config_fini(&config);
    return result;
}
