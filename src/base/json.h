/*
 * json.h - a streaming JSON writer into a growing buffer.
 *
 *   json_begin_object(&json);
 *   json_key(&json, "ops");
 *   json_u64(&json, 12);
 *   json_end_object(&json);        ->  {"ops":12}
 *
 * The writer places commas and colons. Calls that do not form one JSON value (a key outside an
 * object, a value without its key, a wrong end, more than JSON_DEPTH_MAX levels) are programming
 * errors and assert. Running out of memory is remembered and told by json_finish. For one thread at
 * a time.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

#define JSON_DEPTH_MAX 32

struct json {
    char *text; /* `capacity` bytes, `size` of them written */
    size_t size, capacity;
    uint32_t objects; /* bit d: level d + 1 is an object, not an array */
    uint32_t started; /* bit d: level d + 1 has an element */
    unsigned depth;
    bool keyed; /* a key waits for its value */
    bool complete;
    bool failed;
};

void json_init(struct json *json);
void json_fini(struct json *json);

void json_begin_object(struct json *json);
void json_end_object(struct json *json);
void json_begin_array(struct json *json);
void json_end_array(struct json *json);
void json_key(struct json *json, const char *key);

/* Text is expected in UTF-8; every byte that is not part of a valid sequence becomes U+FFFD. */
void json_string(struct json *json, const char *text);
void json_slice(struct json *json, struct slice text);

void json_u64(struct json *json, uint64_t value);
void json_i64(struct json *json, int64_t value);

/* Six significant digits, but no digit before the point is lost below 1e15. NaN and Inf: null. */
void json_double(struct json *json, double value);

void json_bool(struct json *json, bool value);
void json_null(struct json *json);

/*
 * The finished text, NUL-terminated, owned by the writer and valid until json_fini; NULL if memory
 * ran out. The value must be complete. `out_size` may be NULL.
 */
const char *json_finish(struct json *json, size_t *out_size);

#endif
