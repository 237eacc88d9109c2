/*
 * expiry.h - the options of SET, GETEX and the EXPIRE commands that say when a value ends.
 */
#ifndef SERVER_COMMANDS_EXPIRY_H
#define SERVER_COMMANDS_EXPIRY_H

#include "server/net/client.h"

enum expiry_command { EXPIRY_SET, EXPIRY_GETEX };

/* How a time is given: flags. */
enum expiry_unit {
    EXPIRY_MS = 0,       /* milliseconds from now on */
    EXPIRY_SECONDS = 1,  /* seconds instead */
    EXPIRY_ABSOLUTE = 2, /* since 1970 instead */
};

struct expiry_options {
    bool not_exists, exists, get, keep_ttl, persist;
    bool has_time;
    unsigned unit; /* enum expiry_unit */
    size_t word;   /* with the number */
};

/* The words from `first` on; false: an error was replied. */
bool expiry_parse(struct command_call *call, size_t first, enum expiry_command command,
                  struct expiry_options *out);

/* When that is, in unix milliseconds, 0 without a time; false: an error was replied. */
bool expiry_moment(struct command_call *call, const struct expiry_options *options,
                   uint64_t *out_ms);

#endif
