/*
 * config.h - the options of a command, each defined once: for flags, environment, file, --help, the
 * manual and shell completion.
 *
 *   struct settings {
 *       const char *listen;
 *       uint64_t size;
 *   };
 *   static const struct config_option options[] = {
 *       {.name = "listen", .metavar = "ADDRESS", .help = "Address to serve.",
 *        .default_text = "127.0.0.1:7000", CONFIG_TEXT_INTO(struct settings, listen)},
 *       {.name = "size", .metavar = "SIZE", .help = "Memory to offer.", .required = true,
 *        CONFIG_SIZE_INTO(struct settings, size)},
 *   };
 *
 * An option takes its value from the first of
 *   1. the command line: --size 8G, --size=8G; for a boolean --verify, --no-verify, --verify=false;
 *   2. the environment: PANDO_SIZE (an empty variable counts as not set);
 *   3. the file named by --config FILE or PANDO_CONFIG: the command's section, then its first part;
 *   4. the default.
 * Given twice in one place, the later one counts. Only the value that counts is parsed.
 *
 * The file has lines "name = value". What precedes the first section is for every command, so it
 * may hold only options that every command using the file has; [memory] begins what is for that
 * command. '#' at the start of a line or after a space begins a comment.
 *
 * Every command also has --help (-h) and --config, which it does not list itself.
 */
#ifndef BASE_CONFIG_H
#define BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "pando/pando.h"

#define CONFIG_OPTIONS_MAX     64
#define CONFIG_NAME_MAX        48
#define CONFIG_POSITIONALS_MAX 16
#define CONFIG_FILE_MAX        (1u << 20)
#define CONFIG_ERROR_MAX       512

enum config_type {
    CONFIG_TEXT,     /* const char *, NULL without a default */
    CONFIG_U64,      /* uint64_t: decimal digits */
    CONFIG_SIZE,     /* uint64_t: bytes, see parse_size */
    CONFIG_DURATION, /* uint64_t: nanoseconds, see parse_duration_ns */
    CONFIG_BOOL,     /* bool: true/false, yes/no, on/off, 1/0 */
};

struct config_option {
    const char *name;         /* lower case with dashes: "secret-file" is PANDO_SECRET_FILE */
    const char *metavar;      /* what --help calls the value; NULL for a boolean */
    const char *help;         /* a sentence or two; --help breaks the lines */
    const char *default_text; /* as a user would write it; NULL for NULL, 0 or false */
    enum config_type type;
    size_t offset; /* of the member of the settings struct; set both by CONFIG_..._INTO */
    bool secret;   /* the value is never shown, not even in an error */
    bool required; /* no default: an error if it is given nowhere */
    bool positive; /* a 0 is an error; without a default it is what "not given" looks like */
};

/* Type and offset together; a member of the wrong type does not compile. */
#define CONFIG_TEXT_INTO(settings, member) CONFIG_INTO(CONFIG_TEXT, const char *, settings, member)
#define CONFIG_U64_INTO(settings, member)  CONFIG_INTO(CONFIG_U64, uint64_t, settings, member)
#define CONFIG_SIZE_INTO(settings, member) CONFIG_INTO(CONFIG_SIZE, uint64_t, settings, member)
#define CONFIG_DURATION_INTO(settings, member)                                                     \
    CONFIG_INTO(CONFIG_DURATION, uint64_t, settings, member)
#define CONFIG_BOOL_INTO(settings, member) CONFIG_INTO(CONFIG_BOOL, bool, settings, member)

#define CONFIG_INTO(config_type, c_type, settings, member)                                         \
    .type = config_type,                                                                           \
    .offset = offsetof(settings, member) +                                                         \
              0 * sizeof(char[_Generic(((settings *)NULL)->member, c_type : 1)])

struct config_command {
    const char *name;        /* "memory": the word after "pando" and the section of the file */
    const char *summary;     /* one line */
    const char *positionals; /* as --help shows them, such as "KEY [VALUE]"; NULL for none */
    const char *example;     /* a whole command line; NULL for none */
    const struct config_option *options;
    size_t option_count;    /* at most CONFIG_OPTIONS_MAX */
    size_t positionals_min; /* how many there must be */
    size_t positionals_max; /* and may be, at most CONFIG_POSITIONALS_MAX */
};

/* The caller's memory; what config_load found besides the settings. */
struct config {
    const char *positionals[CONFIG_POSITIONALS_MAX]; /* texts owned by the config */
    size_t positional_count;
    bool help;                    /* --help was given; nothing was set */
    char error[CONFIG_ERROR_MAX]; /* one line without a newline, "" after success */
    struct arena arena;
};

/*
 * Reads the command line (as main has it: argv[0] is skipped, argv[argc] is NULL), the environment
 * and the file, and sets every option's member of `settings`. Texts in it belong to the config and
 * live until config_fini. On failure `settings` is untouched and `config->error` says what is
 * wrong, with what, and what to do: PANDO_INVALID for what the user wrote, PANDO_IO for a file that
 * cannot be read, PANDO_NO_MEMORY. config_fini is due in every case. Reads the environment: not
 * while another thread changes it.
 */
PANDO_MUST_CHECK enum pando_status config_load(struct config *config,
                                               const struct config_command *command, int argc,
                                               char **argv, void *settings);
void config_fini(struct config *config);

/* Writes the --help text as snprintf does: cut to `out_size`, the full length returned. */
size_t config_help(const struct config_command *command, char *out, size_t out_size);

/* The same options as a manual page, in the language of man(7): of pando-COMMAND(1). */
size_t config_man(const struct config_command *command, char *out, size_t out_size);

/* And for the completion of shells: a line "--flag<TAB>METAVAR<TAB>help" for each, with an empty
 * METAVAR for flags without a value. */
size_t config_flags(const struct config_command *command, char *out, size_t out_size);

#endif
