/*
 * expiry.h - the options of SET, GETEX and the EXPIRE commands that say when a value ends.
 */
#ifndef SERVER_EXPIRY_H
#define SERVER_EXPIRY_H

#include "server/server_int.h"

enum expiry_command { EXPIRY_SET, EXPIRY_GETEX };

struct expiry_options {
    bool not_exists, exists, get, keep_ttl, persist;
    bool has_time;
    bool seconds;  /* else milliseconds */
    bool absolute; /* since 1970, else from now on */
    size_t word;   /* with the number */
};

/* The words from `first` on; false: an error was replied. */
bool expiry_parse(struct call *call, size_t first, enum expiry_command command,
                  struct expiry_options *out);

/* When that is, in unix milliseconds, 0 without a time; false: an error was replied. */
bool expiry_moment(struct call *call, const struct expiry_options *options, uint64_t *out_ms);

#endif
