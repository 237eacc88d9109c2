#include "base/json_read.h"

#include <string.h>

#include "base/json.h"

void json_read_init(struct json_reader *reader, const char *text, size_t size)
{
    *reader = (struct json_reader){.text = text, .at = text, .end = text + size};
}

static bool fail(struct json_reader *reader)
{
    reader->failed = true;
    return false;
}

static void skip_space(struct json_reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\t' ||
                                        *reader->at == '\n' || *reader->at == '\r'))
        reader->at++;
}

/* The next byte that is no space; 0 at the end and after a failure. */
static char peek(struct json_reader *reader)
{
    if (reader->failed)
        return '\0';
    skip_space(reader);
    return reader->at < reader->end ? *reader->at : '\0';
}

static bool take(struct json_reader *reader, char wanted)
{
    if (peek(reader) != wanted || reader->at == reader->end)
        return fail(reader);
    reader->at++;
    return true;
}

/* A value has been read. */
static bool done(struct json_reader *reader)
{
    reader->fresh = false;
    return true;
}

bool json_read_begin(struct json_reader *reader, char open)
{
    if (reader->depth == JSON_DEPTH_MAX || !take(reader, open))
        return fail(reader);
    reader->depth++;
    reader->fresh = true;
    return true;
}

/* Whether there is one more in the list that `close` ends. */
static bool next(struct json_reader *reader, char close)
{
    char c = peek(reader);
    if (reader->failed || reader->depth == 0)
        return fail(reader);
    if (c == close) {
        reader->at++;
        reader->depth--;
        (void)done(reader);
        return false;
    }
    return reader->fresh || take(reader, ',');
}

bool json_read_member(struct json_reader *reader, char *key, size_t key_bytes)
{
    return next(reader, '}') && json_read_string(reader, key, key_bytes) && take(reader, ':');
}

bool json_read_element(struct json_reader *reader)
{
    return next(reader, ']');
}

/* ---- strings --------------------------------------------------------------------------------- */

static bool hex4(struct json_reader *reader, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++) {
        if (reader->at == reader->end)
            return fail(reader);
        char c = *reader->at++;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return fail(reader);
        *out = *out * 16 + digit;
    }
    return true;
}

static bool follows(const struct json_reader *reader, const char *text)
{
    size_t size = strlen(text);
    return (size_t)(reader->end - reader->at) >= size && memcmp(reader->at, text, size) == 0;
}

/* \uXXXX, whose first two bytes were taken: as UTF-8. Half a pair is U+FFFD. */
static size_t take_unicode(struct json_reader *reader, char utf8[4])
{
    uint32_t c, low;
    if (!hex4(reader, &c))
        return 0;
    if (c >= 0xd800 && c < 0xdc00 && follows(reader, "\\u")) {
        const char *before = reader->at;
        reader->at += 2;
        if (!hex4(reader, &low))
            return 0;
        if (low >= 0xdc00 && low < 0xe000)
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        else
            reader->at = before;
    }
    if (c >= 0xd800 && c < 0xe000)
        c = 0xfffd;
    size_t more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    for (size_t i = more; i > 0; i--, c >>= 6)
        utf8[i] = (char)(0x80 | (c & 0x3f));
    utf8[0] = (char)(lead[more] | c);
    return more + 1;
}

/* What follows a backslash; how many bytes it stands for, 0: nothing that makes sense. */
static size_t take_escape(struct json_reader *reader, char bytes[4])
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (reader->at == reader->end)
        return 0;
    char c = *reader->at++;
    if (c == 'u')
        return take_unicode(reader, bytes);
    const char *found = c == '\0' ? NULL : strchr(from, c);
    if (found == NULL)
        return 0;
    bytes[0] = to[found - from];
    return 1;
}

/* A string into `out`, or nowhere if that is NULL. */
static bool take_string(struct json_reader *reader, char *out, size_t out_bytes)
{
    size_t used = 0;
    if (!take(reader, '"'))
        return false;
    while (reader->at < reader->end && *reader->at != '"') {
        char bytes[4] = {*reader->at++};
        size_t size = 1;
        if ((uint8_t)bytes[0] < 0x20)
            return fail(reader);
        if (bytes[0] == '\\')
            size = take_escape(reader, bytes);
        if (size == 0 || (out != NULL && (bytes[0] == '\0' || out_bytes - used <= size)))
            return fail(reader);
        if (out != NULL)
            memcpy(out + used, bytes, size);
        used += size;
    }
    return take(reader, '"') && done(reader);
}

bool json_read_string(struct json_reader *reader, char *out, size_t out_bytes)
{
    if (out_bytes == 0)
        return fail(reader);
    memset(out, 0, out_bytes);
    return take_string(reader, out, out_bytes);
}

/* ---- others ---------------------------------------------------------------------------------- */

bool json_read_u64(struct json_reader *reader, uint64_t *out)
{
    uint64_t value = 0;
    char first = peek(reader);
    const char *begin = reader->at;
    if (first < '0' || first > '9')
        return fail(reader);
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*reader->at - '0'), &value))
            return fail(reader);
        reader->at++;
    }
    if (first == '0' && reader->at - begin > 1)
        return fail(reader);
    if (reader->at < reader->end && strchr(".eE", *reader->at) != NULL && *reader->at != '\0')
        return fail(reader);
    *out = value;
    return done(reader);
}

/* A number, or one of the three words: letters and signs, looked at no closer. */
static bool skip_plain(struct json_reader *reader)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        if (follows(reader, words[i])) {
            reader->at += strlen(words[i]);
            return done(reader);
        }
    }
    const char *begin = reader->at;
    while (reader->at < reader->end && *reader->at != '\0' &&
           strchr("+-.0123456789eE", *reader->at) != NULL)
        reader->at++;
    return reader->at > begin ? done(reader) : fail(reader);
}

/* The depth of lists is bounded, so that of calls is. */
bool json_read_skip(struct json_reader *reader)
{
    char c = peek(reader);
    if (c == '"')
        return take_string(reader, NULL, 0);
    if (c != '{' && c != '[')
        return reader->failed ? false : skip_plain(reader);
    if (!json_read_begin(reader, c))
        return false;
    while (next(reader, c == '{' ? '}' : ']')) {
        if (c == '{' && (!take_string(reader, NULL, 0) || !take(reader, ':')))
            return false;
        if (!json_read_skip(reader))
            return false;
    }
    return !reader->failed;
}

bool json_read_end(struct json_reader *reader)
{
    (void)peek(reader);
    return !reader->failed && reader->depth == 0 && reader->at == reader->end;
}

size_t json_read_offset(const struct json_reader *reader)
{
    return (size_t)(reader->at - reader->text);
}
