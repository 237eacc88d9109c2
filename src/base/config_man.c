/*
 * The side of config.h that is read by other programs: man(1) and the completion of shells.
 */
#include <stdio.h>
#include <string.h>

#include "base/config_int.h"

/* Text as man(7) wants it: a dash that can be copied, no backslash or control line by accident. */
static void put_roff(struct config_text *text, const char *words)
{
    if (*words == '.' || *words == '\'')
        config_put(text, "\\&");
    for (const char *p = words; *p != '\0'; p++) {
        if (*p == '-')
            config_put(text, "\\-");
        else if (*p == '\\')
            config_put(text, "\\e");
        else if (*p == '~' || *p == '^')
            config_put(text, *p == '~' ? "\\(ti" : "\\(ha");
        else
            config_put(text, "%c", *p);
    }
}

static void put_line(struct config_text *text, const char *words)
{
    put_roff(text, words);
    config_put(text, "\n");
}

static void put_option(struct config_text *text, const struct config_option *option)
{
    char words[1024];
    config_put(text, ".TP\n\\fB\\-\\-%s", option->type == CONFIG_BOOL ? "[no\\-]" : "");
    put_roff(text, option->name);
    config_put(text, "\\fR");
    if (option->type != CONFIG_BOOL) {
        config_put(text, " \\fI");
        put_roff(text, option->metavar);
        config_put(text, "\\fR");
    }
    config_put(text, "\n");
    config_option_words(option, words, sizeof(words));
    put_line(text, words);
}

/* "table list" is "table-list". */
static void name_of_page(const struct config_command *command, char *out, size_t out_size)
{
    snprintf(out, out_size, "pando-%s", command->name);
    for (char *p = out; *p != '\0'; p++)
        *p = *p == ' ' ? '-' : *p;
}

static void put_head(struct config_text *text, const struct config_command *command)
{
    char name[64], title[64];
    name_of_page(command, name, sizeof(name));
    snprintf(title, sizeof(title), "%s", name);
    for (char *p = title; *p != '\0'; p++)
        *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
    config_put(text, ".TH ");
    put_roff(text, title);
    config_put(text, " 1 \"\" \"pando %s\" \"User Commands\"\n.SH NAME\n", PANDO_RELEASE);
    put_roff(text, name);
    config_put(text, " \\- ");
    /* The first sentence; what follows is the description. */
    size_t size = strcspn(command->summary, ".:;");
    char summary[256];
    snprintf(summary, sizeof(summary), "%.*s", (int)size, command->summary);
    put_line(text, summary);
    config_put(text, ".SH SYNOPSIS\n.B pando ");
    put_roff(text, command->name);
    config_put(text, "\n[\\fIOPTION\\fR]...");
    if (command->positionals != NULL) {
        config_put(text, " ");
        put_roff(text, command->positionals);
    }
    config_put(text, "\n.SH DESCRIPTION\n");
    put_line(text, command->summary);
}

size_t config_man(const struct config_command *command, char *out, size_t out_size)
{
    struct config_text text = {.out = out, .capacity = out_size};
    const char *first = command->option_count > 0 ? command->options[0].name : "config";
    char variable[CONFIG_VARIABLE_MAX];

    if (out_size > 0)
        out[0] = '\0';
    put_head(&text, command);
    config_put(&text, ".SH OPTIONS\n");
    for (size_t i = 0; i < command->option_count; i++)
        put_option(&text, &command->options[i]);
    put_option(&text, &config_file_option);
    config_put(&text, ".TP\n\\fB\\-\\-help\\fR\nPrint a summary of the options.\n");
    config_put(&text,
               ".SH ENVIRONMENT\nEvery option may also be set in the environment: "
               "\\fB%s\\fR stands for \\fB\\-\\-",
               config_variable(first, variable));
    put_roff(&text, first);
    config_put(&text,
               "\\fR.\nA flag wins over the environment, and that over the file of "
               "\\fB\\-\\-config\\fR or \\fBPANDO_CONFIG\\fR.\n"
               ".SH FILES\nThe file has lines \\fIname\\fR = \\fIvalue\\fR, with the names of the "
               "options; \\fB[%s]\\fR begins the part for this command alone, and # a comment.\n",
               command->name);
    config_put(&text, ".SH EXIT STATUS\n0 if all went well, 1 if something failed, 2 for a command "
                      "line that makes no sense.\n");
    if (command->example != NULL) {
        config_put(&text, ".SH EXAMPLES\n.nf\n");
        put_line(&text, command->example);
        config_put(&text, ".fi\n");
    }
    config_put(&text, ".SH SEE ALSO\n.BR pando (1)\n");
    return text.size;
}

static void put_flag(struct config_text *text, const struct config_option *option)
{
    const char *metavar = option->type == CONFIG_BOOL ? "" : option->metavar;
    config_put(text, "--%s\t%s\t%s\n", option->name, metavar, option->help);
    if (option->type == CONFIG_BOOL)
        config_put(text, "--no-%s\t\tNot --%s.\n", option->name, option->name);
}

size_t config_flags(const struct config_command *command, char *out, size_t out_size)
{
    struct config_text text = {.out = out, .capacity = out_size};
    if (out_size > 0)
        out[0] = '\0';
    for (size_t i = 0; i < command->option_count; i++)
        put_flag(&text, &command->options[i]);
    put_flag(&text, &config_file_option);
    config_put(&text, "--help\t\tPrint a summary of the options.\n");
    return text.size;
}
