/*
 * command_text.c - the commands as text, for the table in docs/SERVER.md: scripts/commands makes it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/commands/command.h"
#include "server/server.h"

#define EXPIRY "EX PX EXAT PXAT"

/* Options; those of ordered indexes are described one by one. */
static const struct {
    const char *name, *options;
} options[] = {
    {"set", EXPIRY " NX XX KEEPTTL GET"},
    {"getex", EXPIRY " PERSIST"},
    {"copy", "DB REPLACE"},
    {"expire", "NX XX GT LT"},
    {"pexpire", "NX XX GT LT"},
    {"expireat", "NX XX GT LT"},
    {"pexpireat", "NX XX GT LT"},
    {"scan", "MATCH COUNT TYPE"},
    {"flushdb", "ASYNC SYNC"},
    {"flushall", "ASYNC SYNC"},
};

struct text {
    char *out;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *text, const char *format, ...)
{
    va_list arguments;
    size_t left = text->used < text->size ? text->size - text->used : 0;
    va_start(arguments, format);
    int size = vsnprintf(left > 0 ? text->out + text->used : NULL, left, format, arguments);
    va_end(arguments);
    text->used += size < 0 ? 0 : (size_t)size;
}

static void put_upper(struct text *text, const char *word)
{
    for (; *word != '\0'; word++)
        put(text, "%c", *word >= 'a' && *word <= 'z' ? *word & ~0x20 : *word);
}

/* All containers have HELP, and REWRITE is refused. */
static bool is_shown(const char *subcommand)
{
    return strcmp(subcommand, "help") != 0 && strcmp(subcommand, "rewrite") != 0;
}

static void put_words(struct text *text, const struct command *command)
{
    bool first = true;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (strcmp(options[i].name, command->name) == 0)
            put(text, "%s", options[i].options);
    }
    for (unsigned i = command_count; i < command_numbers(); i++) {
        const char *bar = strchr(command_number_name(i), '|');
        if (bar == NULL || !command_number_is(i, command) || !is_shown(bar + 1))
            continue;
        put(text, "%s", first ? "" : " ");
        put_upper(text, bar + 1);
        first = false;
    }
}

size_t server_commands_text(char *out, size_t out_bytes)
{
    struct text text = {.out = out, .size = out_bytes};
    command_prepare();
    for (unsigned i = 0; i < command_count; i++) {
        put(&text, "%s\t", command_list[i].group);
        put_upper(&text, command_list[i].name);
        put(&text, "\t");
        put_words(&text, &command_list[i]);
        put(&text, "\n");
    }
    return text.used;
}
