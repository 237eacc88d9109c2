/*
 * json_read.h - reads JSON text piece by piece, for whoever knows what should be there; what is not known is
 * skipped. The text may be anything.
 *
 *   json_read_init(&reader, text, size);
 *   if (json_read_begin(&reader, '{'))
 *       while (json_read_member(&reader, key, sizeof(key))) {
 *           if (strcmp(key, "ops") == 0)
 *               (void)json_read_u64(&reader, &ops);
 *           else
 *               (void)json_read_skip(&reader);
 *       }
 *   if (!json_read_end(&reader)) ... it was no such text
 *
 * After the first failure every call returns false. Does not allocate. For one thread at a time.
 */
#ifndef BASE_JSON_READ_H
#define BASE_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_reader {
    const char *text, *at, *end;
    unsigned depth;
    bool fresh; /* a list has begun and has no element yet */
    bool failed;
};

/* The text is the caller's, and stays. */
void json_read_init(struct json_reader *reader, const char *text, size_t size);

/* An object ('{') or an array ('[') begins here. */
bool json_read_begin(struct json_reader *reader, char open);

/* The next member's key, or the next element; its value is to be read or skipped. False: the object or array has
 * ended, or the text is wrong. */
bool json_read_member(struct json_reader *reader, char *key, size_t key_bytes);
bool json_read_element(struct json_reader *reader);

/* A value. Strings end in a NUL, have none inside, and fit. */
bool json_read_string(struct json_reader *reader, char *out, size_t out_bytes);
bool json_read_u64(struct json_reader *reader, uint64_t *out);

/* Any value. */
bool json_read_skip(struct json_reader *reader);

/* Whether that was all, and all was well. */
bool json_read_end(struct json_reader *reader);

/* How many bytes were read. */
size_t json_read_offset(const struct json_reader *reader);

#endif
