/*
 * config_int.h - what config.c, config_help.c and config_man.c share.
 */
#ifndef BASE_CONFIG_INT_H
#define BASE_CONFIG_INT_H

#include "base/config.h"

#define CONFIG_VARIABLE_PREFIX "PANDO_"
#define CONFIG_VARIABLE_MAX    (CONFIG_NAME_MAX + sizeof(CONFIG_VARIABLE_PREFIX))

/* "secret-file" is "PANDO_SECRET_FILE"; written to `out` and returned. */
const char *config_variable(const char *name, char out[static CONFIG_VARIABLE_MAX]);

/*
 * The option a user most likely meant by a name that is none, or NULL if nothing is near. With
 * `flags` the choice includes help, config and the "no-" forms; `out_prefix` is "no-" for those,
 * else "".
 */
const char *config_nearest(const struct config_command *command, const char *name, size_t name_size,
                           bool flags, const char **out_prefix);

/* A text being written as snprintf does: `size` counts also what did not fit. */
struct config_text {
    char *out;
    size_t capacity, size;
};

/* Returns how many bytes it added. */
__attribute__((format(printf, 2, 3))) size_t config_put(struct config_text *text,
                                                        const char *format, ...);

/* What --help and the manual say of an option: its help and its default. */
void config_option_words(const struct config_option *option, char *out, size_t out_size);

/* --config, which every command has. */
extern const struct config_option config_file_option;

#endif
