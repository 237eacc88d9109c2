#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

#define CAPACITY_FIRST 256

_Static_assert(JSON_DEPTH_MAX <= 32, "one bit per level in `objects` and `started`");

void json_init(struct json *json)
{
    *json = (struct json){0};
}

void json_fini(struct json *json)
{
    free(json->text);
    json_init(json);
}

/* After a failure nothing is written any more, so that no half of an element can follow. */
static bool reserve(struct json *json, size_t size)
{
    if (json->failed)
        return false;
    if (size <= json->capacity - json->size)
        return true;

    size_t capacity = json->capacity == 0 ? CAPACITY_FIRST : json->capacity;
    while (capacity - json->size < size && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    char *text = capacity - json->size < size ? NULL : realloc(json->text, capacity);
    if (text == NULL) {
        json->failed = true;
        return false;
    }
    json->text = text;
    json->capacity = capacity;
    return true;
}

static void put(struct json *json, const char *text, size_t size)
{
    if (!reserve(json, size))
        return;
    memcpy(json->text + json->size, text, size);
    json->size += size;
}

static void put_text(struct json *json, const char *text)
{
    put(json, text, strlen(text));
}

static bool in_object(const struct json *json)
{
    return json->depth > 0 && (json->objects >> (json->depth - 1) & 1);
}

static void put_comma(struct json *json)
{
    if (json->depth == 0)
        return;
    uint32_t bit = UINT32_C(1) << (json->depth - 1);
    if (json->started & bit)
        put(json, ",", 1);
    json->started |= bit;
}

/* What precedes any value: in an object its key was written, in an array perhaps a comma. */
static void value_begin(struct json *json)
{
    pando_assert(!json->complete);
    pando_assert(json->keyed == in_object(json));
    if (json->keyed)
        json->keyed = false;
    else
        put_comma(json);
}

static void value_end(struct json *json)
{
    json->complete = json->depth == 0;
}

static void begin(struct json *json, bool object)
{
    value_begin(json);
    pando_assert(json->depth < JSON_DEPTH_MAX);
    uint32_t bit = UINT32_C(1) << json->depth++;
    json->started &= ~bit;
    json->objects = object ? json->objects | bit : json->objects & ~bit;
    put(json, object ? "{" : "[", 1);
}

static void end(struct json *json, bool object)
{
    pando_assert(json->depth > 0 && !json->keyed);
    pando_assert(in_object(json) == object);
    json->depth--;
    put(json, object ? "}" : "]", 1);
    value_end(json);
}

void json_begin_object(struct json *json)
{
    begin(json, true);
}

void json_end_object(struct json *json)
{
    end(json, true);
}

void json_begin_array(struct json *json)
{
    begin(json, false);
}

void json_end_array(struct json *json)
{
    end(json, false);
}

static void put_escaped_ascii(struct json *json, uint8_t c)
{
    static const char letters[] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n',  ['\f'] = 'f',
        ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\',
    };
    char escaped[8];

    if (c < sizeof(letters) && letters[c] != '\0')
        snprintf(escaped, sizeof(escaped), "\\%c", letters[c]);
    else
        snprintf(escaped, sizeof(escaped), "\\u%04x", c);
    put_text(json, escaped);
}

static bool needs_escape(uint8_t c)
{
    return c < 0x20 || c == 0x7f || c == '"' || c == '\\';
}

/* Copies runs that need no change in one piece. */
static void put_runs(struct json *json, const uint8_t *p, const uint8_t *stop)
{
    const uint8_t *run = p;

    while (p < stop) {
        size_t length = utf8_length(p, stop);
        if (length > 0 && !needs_escape(*p)) {
            p += length;
            continue;
        }
        put(json, (const char *)run, (size_t)(p - run));
        if (length == 0)
            put_text(json, "\xef\xbf\xbd");
        else
            put_escaped_ascii(json, *p);
        run = ++p;
    }
    put(json, (const char *)run, (size_t)(stop - run));
}

static void put_quoted(struct json *json, struct slice text)
{
    put(json, "\"", 1);
    if (text.size > 0)
        put_runs(json, text.data, text.data + text.size);
    put(json, "\"", 1);
}

void json_key(struct json *json, const char *key)
{
    pando_assert(in_object(json) && !json->keyed);
    put_comma(json);
    put_quoted(json, slice_of_text(key));
    put(json, ":", 1);
    json->keyed = true;
}

void json_slice(struct json *json, struct slice text)
{
    value_begin(json);
    put_quoted(json, text);
    value_end(json);
}

void json_string(struct json *json, const char *text)
{
    json_slice(json, slice_of_text(text));
}

static void put_literal(struct json *json, const char *text)
{
    value_begin(json);
    put_text(json, text);
    value_end(json);
}

void json_u64(struct json *json, uint64_t value)
{
    char number[24];
    snprintf(number, sizeof(number), "%" PRIu64, value);
    put_literal(json, number);
}

void json_i64(struct json *json, int64_t value)
{
    char number[24];
    snprintf(number, sizeof(number), "%" PRId64, value);
    put_literal(json, number);
}

void json_double(struct json *json, double value)
{
    char number[32];

    if (!isfinite(value)) {
        json_null(json);
        return;
    }
    bool large = fabs(value) >= 1e6 && fabs(value) < 1e15;
    snprintf(number, sizeof(number), large ? "%.0f" : "%.6g", value);
    /* An application that set a locale may have given us its decimal comma. */
    char *comma = strchr(number, ',');
    if (comma != NULL)
        *comma = '.';
    put_literal(json, number);
}

void json_bool(struct json *json, bool value)
{
    put_literal(json, value ? "true" : "false");
}

void json_null(struct json *json)
{
    put_literal(json, "null");
}

const char *json_finish(struct json *json, size_t *out_size)
{
    pando_assert(json->complete);
    if (!reserve(json, 1))
        return NULL;
    json->text[json->size] = '\0';
    if (out_size != NULL)
        *out_size = json->size;
    return json->text;
}
