/*
 * config_int.h - what config.c and config_help.c share.
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

#endif
