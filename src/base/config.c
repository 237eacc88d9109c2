#include "base/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/config_int.h"
#include "base/parse.h"

/* Where a value was found, weakest first. */
enum origin { ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_SECTION, ORIGIN_ENVIRONMENT, ORIGIN_FLAG };

struct source {
    enum origin origin;
    const char *text; /* in the arena */
    unsigned line;    /* of the file */
};

union value {
    const char *text;
    uint64_t u64;
    bool boolean;
};

struct load {
    struct config *config;
    const struct config_command *command;
    struct source sources[CONFIG_OPTIONS_MAX]; /* by the option's index */
    const char *file;                          /* NULL without one */
    bool file_by_flag;
};

/* Where the user has to look: "--size", "PANDO_SIZE" or "pando.conf:12: size". */
struct place {
    char text[CONFIG_ERROR_MAX / 2];
};

__attribute__((format(printf, 3, 4))) static enum pando_status
fail(struct load *load, enum pando_status status, const char *format, ...)
{
    char *error = load->config->error;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(error, CONFIG_ERROR_MAX, format, arguments);
    va_end(arguments);
    /* What the user wrote may hold anything; the message stays one line. */
    for (char *p = error; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    }
    return status;
}

static enum pando_status fail_memory(struct load *load)
{
    return fail(load, PANDO_NO_MEMORY, "out of memory while reading the options");
}

static const char *keep(struct load *load, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = arena_alloc(&load->config->arena, size);
    return copy == NULL ? NULL : memcpy(copy, text, size);
}

static void place_of(const struct load *load, const struct config_option *option,
                     const struct source *source, struct place *out)
{
    char variable[CONFIG_VARIABLE_MAX];

    switch (source->origin) {
    case ORIGIN_FILE:
    case ORIGIN_SECTION:
        snprintf(out->text, sizeof(out->text), "%s:%u: %s", load->file, source->line, option->name);
        break;
    case ORIGIN_ENVIRONMENT:
        snprintf(out->text, sizeof(out->text), "%s", config_variable(option->name, variable));
        break;
    case ORIGIN_DEFAULT:
    case ORIGIN_FLAG:
        snprintf(out->text, sizeof(out->text), "--%s", option->name);
        break;
    }
}

/* Keeps the value if nothing stronger is known. */
static enum pando_status offer(struct load *load, const struct config_option *option,
                               enum origin origin, unsigned line, const char *text)
{
    struct source *source = &load->sources[option - load->command->options];

    if (source->origin > origin)
        return PANDO_OK;
    const char *kept = keep(load, text);
    if (kept == NULL)
        return fail_memory(load);
    *source = (struct source){.origin = origin, .text = kept, .line = line};
    return PANDO_OK;
}

static const struct config_option *find_option(const struct config_command *command,
                                               const char *name, size_t name_size)
{
    for (size_t i = 0; i < command->option_count; i++) {
        const struct config_option *option = &command->options[i];
        if (strlen(option->name) == name_size && memcmp(option->name, name, name_size) == 0)
            return option;
    }
    return NULL;
}

/* --- the command line --- */

static enum pando_status fail_unknown_flag(struct load *load, const char *name, size_t name_size)
{
    char typed[CONFIG_NAME_MAX + 1];
    const char *prefix;
    const char *nearest = config_nearest(load->command, name, name_size, true, &prefix);

    snprintf(typed, sizeof(typed), "%.*s", (int)name_size, name);
    if (nearest == NULL)
        return fail(load, PANDO_INVALID, "--%s: no such option; see --help", typed);
    return fail(load, PANDO_INVALID, "--%s: no such option; did you mean --%s%s?", typed, prefix,
                nearest);
}

/*
 * The value of --name: behind '=', or the next argument; NULL after an error. One that begins with
 * "--" is more likely the next option, its own value forgotten, so it needs the '='.
 */
static const char *flag_value(struct load *load, const char *name, const char *metavar,
                              const char *equals, const char *next, int *used)
{
    if (equals != NULL)
        return equals + 1;
    if (next != NULL && strncmp(next, "--", 2) != 0) {
        *used = 2;
        return next;
    }
    if (next == NULL)
        fail(load, PANDO_INVALID, "--%s: the value is missing; use --%s %s", name, name, metavar);
    else
        fail(load, PANDO_INVALID,
             "--%s: the value is missing; use --%s %s, or --%s=%s if it begins with --", name, name,
             metavar, name, metavar);
    return NULL;
}

static enum pando_status take_config_flag(struct load *load, const char *equals, const char *next,
                                          int *used)
{
    const char *value = flag_value(load, "config", "FILE", equals, next, used);
    if (value == NULL)
        return PANDO_INVALID;
    load->file_by_flag = true;
    load->file = keep(load, value);
    return load->file == NULL ? fail_memory(load) : PANDO_OK;
}

/* One argument that begins with "--"; `used` is set to 2 if the next one was its value. */
static enum pando_status take_flag(struct load *load, char **arguments, int *used)
{
    const char *name = arguments[0] + 2;
    const char *equals = strchr(name, '=');
    size_t name_size = equals == NULL ? strlen(name) : (size_t)(equals - name);
    const struct config_option *option = find_option(load->command, name, name_size);

    if (name_size == 6 && memcmp(name, "config", 6) == 0)
        return take_config_flag(load, equals, arguments[1], used);

    if (option != NULL && option->type != CONFIG_BOOL) {
        const char *value =
            flag_value(load, option->name, option->metavar, equals, arguments[1], used);
        return value == NULL ? PANDO_INVALID : offer(load, option, ORIGIN_FLAG, 0, value);
    }
    if (option != NULL)
        return offer(load, option, ORIGIN_FLAG, 0, equals == NULL ? "true" : equals + 1);

    if (name_size > 3 && memcmp(name, "no-", 3) == 0)
        option = find_option(load->command, name + 3, name_size - 3);
    if (option == NULL || option->type != CONFIG_BOOL)
        return fail_unknown_flag(load, name, name_size);
    if (equals != NULL)
        return fail(load, PANDO_INVALID, "--no-%s: takes no value; use --no-%s or --%s=VALUE",
                    option->name, option->name, option->name);
    return offer(load, option, ORIGIN_FLAG, 0, "false");
}

static enum pando_status take_positional(struct load *load, const char *text)
{
    struct config *config = load->config;

    if (config->positional_count == load->command->positionals_max)
        return fail(load, PANDO_INVALID, "'%.64s': one argument too many; see --help", text);
    text = keep(load, text);
    if (text == NULL)
        return fail_memory(load);
    config->positionals[config->positional_count++] = text;
    return PANDO_OK;
}

static enum pando_status read_flags(struct load *load, int argc, char **argv)
{
    bool options = true;

    for (int i = 1, used; i < argc; i += used) {
        const char *argument = argv[i];
        enum pando_status status;

        used = 1;
        if (!options || argument[0] != '-' || argument[1] == '\0') {
            status = take_positional(load, argument);
        } else if (strcmp(argument, "--") == 0) {
            options = false;
            status = PANDO_OK;
        } else if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            load->config->help = true;
            return PANDO_OK;
        } else if (argument[1] != '-') {
            status = fail(load, PANDO_INVALID,
                          "-%c: there are no short options but -h; write --name, or -- before an "
                          "argument that begins with a dash",
                          argument[1]);
        } else {
            status = take_flag(load, argv + i, &used);
        }
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

static enum pando_status check_positionals(struct load *load)
{
    const struct config_command *command = load->command;

    if (load->config->positional_count >= command->positionals_min)
        return PANDO_OK;
    return fail(load, PANDO_INVALID, "an argument is missing; use pando %s %s, see --help",
                command->name, command->positionals == NULL ? "" : command->positionals);
}

/* --- the environment --- */

static const char *environment_value(const char *name)
{
    char variable[CONFIG_VARIABLE_MAX];
    const char *value = getenv(config_variable(name, variable));
    return value == NULL || value[0] == '\0' ? NULL : value;
}

static enum pando_status read_environment(struct load *load)
{
    const char *file = environment_value("config");
    if (file != NULL && load->file == NULL) {
        load->file = keep(load, file);
        if (load->file == NULL)
            return fail_memory(load);
    }
    for (size_t i = 0; i < load->command->option_count; i++) {
        const struct config_option *option = &load->command->options[i];
        const char *value = environment_value(option->name);
        if (value == NULL)
            continue;
        enum pando_status status = offer(load, option, ORIGIN_ENVIRONMENT, 0, value);
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

/* --- the file --- */

static enum pando_status fail_file(struct load *load, const char *what)
{
    return fail(load, PANDO_IO, "%s: cannot read '%.200s': %s; name a file that can be read",
                load->file_by_flag ? "--config" : "PANDO_CONFIG", load->file, what);
}

/* The whole file, NUL-terminated, in the arena. */
static enum pando_status slurp(struct load *load, char **out)
{
    FILE *file = fopen(load->file, "re");
    if (file == NULL)
        return fail_file(load, strerror(errno));

    enum pando_status status = PANDO_OK;
    size_t size = 0, capacity = CONFIG_FILE_MAX + 1;
    char *text = arena_alloc(&load->config->arena, capacity);
    if (text == NULL) {
        status = fail_memory(load);
        goto out_close;
    }
    size = fread(text, 1, capacity, file);
    if (ferror(file))
        status = fail_file(load, strerror(errno));
    else if (size > CONFIG_FILE_MAX)
        status = fail_file(load, "it is larger than 1 MiB");
    else if (memchr(text, '\0', size) != NULL)
        status = fail_file(load, "it is not text");
    if (status != PANDO_OK)
        goto out_close;
    text[size] = '\0';
    *out = text;

out_close:
    fclose(file);
    return status;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks at both ends, in place. */
static char *trim(char *text)
{
    while (is_blank(*text))
        text++;
    size_t size = strlen(text);
    while (size > 0 && is_blank(text[size - 1]))
        size--;
    text[size] = '\0';
    return text;
}

static void cut_comment(char *line)
{
    for (char *p = line; *p != '\0'; p++) {
        if (*p == '#' && (p == line || is_blank(p[-1]))) {
            *p = '\0';
            return;
        }
    }
}

/* The line itself is never shown: it may hold a secret. */
static enum pando_status take_line(struct load *load, char *line, unsigned number,
                                   enum origin origin)
{
    const struct config_command *command = load->command;
    char *equals = strchr(line, '=');

    if (equals == NULL)
        return fail(load, PANDO_INVALID, "%.200s:%u: neither 'name = value' nor '[command]'",
                    load->file, number);
    *equals = '\0';
    const char *name = trim(line);
    const struct config_option *option = find_option(command, name, strlen(name));
    if (option != NULL)
        return offer(load, option, origin, number, trim(equals + 1));

    const char *prefix;
    const char *nearest = config_nearest(command, name, strlen(name), false, &prefix);
    if (nearest != NULL)
        return fail(load, PANDO_INVALID, "%.200s:%u: %.*s: no such option; did you mean %s?",
                    load->file, number, CONFIG_NAME_MAX, name, nearest);
    if (origin == ORIGIN_SECTION)
        return fail(load, PANDO_INVALID, "%.200s:%u: %.*s: no such option; see pando %s --help",
                    load->file, number, CONFIG_NAME_MAX, name, command->name);
    return fail(load, PANDO_INVALID,
                "%.200s:%u: %.*s: pando %s has no such option; move it to its command's [section]",
                load->file, number, CONFIG_NAME_MAX, name, command->name);
}

static enum pando_status read_file(struct load *load)
{
    char *next = NULL;
    enum origin origin = ORIGIN_FILE;
    bool ours = true;

    if (load->file == NULL)
        return PANDO_OK;
    enum pando_status status = slurp(load, &next);
    for (unsigned number = 1; status == PANDO_OK && next != NULL; number++) {
        char *line = strsep(&next, "\n");
        cut_comment(line);
        line = trim(line);
        size_t size = strlen(line);
        if (size == 0)
            continue;
        if (line[0] == '[' && line[size - 1] == ']') {
            line[size - 1] = '\0';
            ours = strcmp(trim(line + 1), load->command->name) == 0;
            origin = ORIGIN_SECTION;
        } else if (ours) {
            status = take_line(load, line, number, origin);
        }
    }
    return status;
}

/* --- values --- */

static enum pando_status parse_bool(const char *text, bool *out)
{
    static const char *const words[][2] = {
        {"false", "true"}, {"no", "yes"}, {"off", "on"}, {"0", "1"}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        for (int value = 0; value < 2; value++) {
            if (strcmp(text, words[i][value]) == 0) {
                *out = value == 1;
                return PANDO_OK;
            }
        }
    }
    return PANDO_INVALID;
}

static enum pando_status parse_value(enum config_type type, const char *text, union value *out)
{
    switch (type) {
    case CONFIG_TEXT:
        out->text = text;
        return PANDO_OK;
    case CONFIG_U64:
        return parse_u64(text, &out->u64);
    case CONFIG_SIZE:
        return parse_size(text, &out->u64);
    case CONFIG_DURATION:
        return parse_duration_ns(text, &out->u64);
    case CONFIG_BOOL:
        return parse_bool(text, &out->boolean);
    }
    return PANDO_INVALID;
}

static enum pando_status fail_value(struct load *load, const struct config_option *option,
                                    const struct source *source, enum pando_status cause)
{
    static const char *const nouns[] = {
        [CONFIG_TEXT] = "a text",         [CONFIG_U64] = "a number",   [CONFIG_SIZE] = "a size",
        [CONFIG_DURATION] = "a duration", [CONFIG_BOOL] = "yes or no",
    };
    static const char *const examples[] = {
        [CONFIG_TEXT] = "a text",
        [CONFIG_U64] = "42",
        [CONFIG_SIZE] = "8G",
        [CONFIG_DURATION] = "10ms",
        [CONFIG_BOOL] = "true or false",
    };
    struct place place;
    char value[72];

    place_of(load, option, source, &place);
    if (option->secret)
        snprintf(value, sizeof(value), "the value (not shown)");
    else
        snprintf(value, sizeof(value), "'%.64s'", source->text);
    if (cause == PANDO_RANGE)
        return fail(load, PANDO_INVALID, "%s: %s is too large; use for example %s", place.text,
                    value, examples[option->type]);
    return fail(load, PANDO_INVALID, "%s: %s is not %s; use for example %s", place.text, value,
                nouns[option->type], examples[option->type]);
}

static enum pando_status fail_zero(struct load *load, const struct config_option *option,
                                   const struct source *source)
{
    struct place place;
    place_of(load, option, source, &place);
    return fail(load, PANDO_INVALID, "%s: 0 is too small; use at least 1, or leave it out",
                place.text);
}

static enum pando_status resolve(struct load *load, size_t index, union value *out)
{
    const struct config_option *option = &load->command->options[index];
    const struct source *source = &load->sources[index];
    char variable[CONFIG_VARIABLE_MAX];

    memset(out, 0, sizeof(*out));
    if (source->origin != ORIGIN_DEFAULT) {
        enum pando_status status = parse_value(option->type, source->text, out);
        if (status == PANDO_OK && option->positive && out->u64 == 0)
            return fail_zero(load, option, source);
        return status == PANDO_OK ? status : fail_value(load, option, source, status);
    }
    if (option->required)
        return fail(load, PANDO_INVALID, "--%s: is required; use --%s %s or set %s", option->name,
                    option->name, option->metavar, config_variable(option->name, variable));
    if (option->default_text == NULL)
        return PANDO_OK;
    enum pando_status status = parse_value(option->type, option->default_text, out);
    pando_assert(status == PANDO_OK);
    return PANDO_OK;
}

static void store(const struct config_option *option, const union value *value, void *settings)
{
    char *target = (char *)settings + option->offset;

    if (option->type == CONFIG_TEXT)
        memcpy(target, &value->text, sizeof(value->text));
    else if (option->type == CONFIG_BOOL)
        memcpy(target, &value->boolean, sizeof(value->boolean));
    else
        memcpy(target, &value->u64, sizeof(value->u64));
}

/* All are parsed before any is stored: on failure the settings are as they were. */
static enum pando_status resolve_all(struct load *load, void *settings)
{
    union value values[CONFIG_OPTIONS_MAX];
    const struct config_command *command = load->command;

    for (size_t i = 0; i < command->option_count; i++) {
        enum pando_status status = resolve(load, i, &values[i]);
        if (status != PANDO_OK)
            return status;
    }
    for (size_t i = 0; i < command->option_count; i++)
        store(&command->options[i], &values[i], settings);
    return PANDO_OK;
}

static void check_command(const struct config_command *command)
{
    pando_assert(command->option_count <= CONFIG_OPTIONS_MAX);
    pando_assert(command->positionals_min <= command->positionals_max);
    pando_assert(command->positionals_max <= CONFIG_POSITIONALS_MAX);
    for (size_t i = 0; i < command->option_count; i++) {
        const struct config_option *option = &command->options[i];
        pando_assert(strlen(option->name) <= CONFIG_NAME_MAX);
        pando_assert((option->metavar == NULL) == (option->type == CONFIG_BOOL));
        pando_assert(!option->required || option->type != CONFIG_BOOL);
        pando_assert(!option->positive ||
                     (option->type != CONFIG_BOOL && option->type != CONFIG_TEXT));
        pando_assert(find_option(command, option->name, strlen(option->name)) == option);
    }
}

enum pando_status config_load(struct config *config, const struct config_command *command, int argc,
                              char **argv, void *settings)
{
    struct load load = {.config = config, .command = command};

    check_command(command);
    memset(config, 0, sizeof(*config));
    arena_init(&config->arena, 1024);

    enum pando_status status = read_flags(&load, argc, argv);
    if (status != PANDO_OK || config->help)
        return status;
    status = check_positionals(&load);
    if (status == PANDO_OK)
        status = read_environment(&load);
    if (status == PANDO_OK)
        status = read_file(&load);
    if (status == PANDO_OK)
        status = resolve_all(&load, settings);
    return status;
}

void config_fini(struct config *config)
{
    arena_fini(&config->arena);
}
