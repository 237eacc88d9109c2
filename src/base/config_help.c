/*
 * The side of config.h that talks to people: --help and "did you mean".
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/config_int.h"

#define HELP_COLUMN 26
#define HELP_WIDTH  80

/* --- names --- */

const char *config_variable(const char *name, char out[static CONFIG_VARIABLE_MAX])
{
    size_t used = sizeof(CONFIG_VARIABLE_PREFIX) - 1;

    memcpy(out, CONFIG_VARIABLE_PREFIX, used);
    for (const char *p = name; *p != '\0'; p++) {
        pando_assert(used < CONFIG_VARIABLE_MAX - 1);
        out[used++] = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p == '-' ? '_' : *p;
    }
    out[used] = '\0';
    return out;
}

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/*
 * Edits (insert, delete, replace, swap of neighbours) that turn one text into the other. Three rows
 * of the usual table: a swap looks two rows back.
 */
static size_t edit_distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t rows[3][CONFIG_NAME_MAX + 1];

    pando_assert(b_size <= CONFIG_NAME_MAX);
    for (size_t j = 0; j <= b_size; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min_of(row[j], min_of(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min_of(row[j], above2[j - 2] + 1);
        }
    }
    return rows[a_size % 3][b_size];
}

struct search {
    const char *name;
    size_t name_size;
    const char *nearest, *prefix;
    size_t distance;
};

static void consider(struct search *search, const char *prefix, const char *candidate)
{
    char full[CONFIG_NAME_MAX + 4];
    size_t size = (size_t)snprintf(full, sizeof(full), "%s%s", prefix, candidate);
    if (size > CONFIG_NAME_MAX)
        return;

    size_t distance = edit_distance(search->name, search->name_size, full, size);
    if (distance < search->distance) {
        search->distance = distance;
        search->nearest = candidate;
        search->prefix = prefix;
    }
}

const char *config_nearest(const struct config_command *command, const char *name, size_t name_size,
                           bool flags, const char **out_prefix)
{
    /* Up to two typing errors, or a third of a long name; a short one must keep some letters. */
    size_t limit = name_size / 3 > 2 ? name_size / 3 : 2;
    struct search search = {.name = name, .name_size = name_size, .prefix = ""};

    search.distance = min_of(limit + 1, name_size);
    if (name_size <= CONFIG_NAME_MAX) {
        for (size_t i = 0; i < command->option_count; i++) {
            consider(&search, "", command->options[i].name);
            if (flags && command->options[i].type == CONFIG_BOOL)
                consider(&search, "no-", command->options[i].name);
        }
        if (flags) {
            consider(&search, "", "help");
            consider(&search, "", "config");
        }
    }
    *out_prefix = search.prefix;
    return search.nearest;
}

/* --- help --- */

size_t config_put(struct config_text *text, const char *format, ...)
{
    bool fits = text->size < text->capacity;
    va_list arguments;

    va_start(arguments, format);
    int size = vsnprintf(fits ? text->out + text->size : NULL,
                         fits ? text->capacity - text->size : 0, format, arguments);
    va_end(arguments);
    pando_assert(size >= 0);
    text->size += (size_t)size;
    return (size_t)size;
}

/* Appends words, starting in `column`, breaking lines before HELP_WIDTH and indenting them. */
static void put_wrapped(struct config_text *text, const char *words, size_t column, size_t indent)
{
    while (*words != '\0') {
        size_t size = strcspn(words, " ");
        if (column > indent && column + 1 + size > HELP_WIDTH) {
            config_put(text, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            column += config_put(text, " ");
        }
        column += config_put(text, "%.*s", (int)size, words);
        words += size;
        words += strspn(words, " ");
    }
    config_put(text, "\n");
}

void config_option_words(const struct config_option *option, char *out, size_t out_size)
{
    const char *default_text = option->default_text;
    if (option->type == CONFIG_BOOL && default_text == NULL)
        default_text = "false";
    if (option->required)
        snprintf(out, out_size, "%s (required)", option->help);
    else if (default_text != NULL && !option->secret)
        snprintf(out, out_size, "%s (default: %s)", option->help, default_text);
    else
        snprintf(out, out_size, "%s", option->help);
}

static void put_option(struct config_text *text, const struct config_option *option)
{
    char words[1024];
    size_t column;

    if (option->type == CONFIG_BOOL)
        column = config_put(text, "  --[no-]%s", option->name);
    else
        column = config_put(text, "  --%s %s", option->name, option->metavar);
    if (column + 2 > HELP_COLUMN) {
        config_put(text, "\n");
        column = 0;
    }
    config_put(text, "%*s", (int)(HELP_COLUMN - column), "");

    config_option_words(option, words, sizeof(words));
    put_wrapped(text, words, HELP_COLUMN, HELP_COLUMN);
}

const struct config_option config_file_option = {
    .name = "config",
    .metavar = "FILE",
    .help = "Read options from FILE: lines 'name = value', for one command under '[command]'.",
    .type = CONFIG_TEXT,
};

size_t config_help(const struct config_command *command, char *out, size_t out_size)
{
    struct config_text text = {.out = out, .capacity = out_size};
    const char *example_name = command->option_count > 0 ? command->options[0].name : "config";
    char variable[CONFIG_VARIABLE_MAX];

    if (out_size > 0)
        out[0] = '\0';
    config_put(&text, "Usage: pando %s [OPTION]...%s%s\n\n", command->name,
               command->positionals == NULL ? "" : " ",
               command->positionals == NULL ? "" : command->positionals);
    put_wrapped(&text, command->summary, 0, 0);

    config_put(&text, "\nOptions:\n");
    for (size_t i = 0; i < command->option_count; i++)
        put_option(&text, &command->options[i]);
    put_option(&text, &config_file_option);
    config_put(&text, "  %-*s%s\n\n", HELP_COLUMN - 2, "--help", "Print this text.");

    config_put(&text,
               "An option may also be set in the environment (%s for --%s)\n"
               "or in the file. A flag wins over the environment, and that over the file.\n",
               config_variable(example_name, variable), example_name);
    if (command->example != NULL)
        config_put(&text, "\nExample:\n  %s\n", command->example);
    return text.size;
}
