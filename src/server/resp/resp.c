#include "server/resp/resp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/resp/number.h"

enum { WORDS_AT_FIRST = 64, WORDS_KEPT = 4096 };

void resp_init(struct resp_parser *parser)
{
    *parser = (struct resp_parser){0};
}

void resp_fini(struct resp_parser *parser)
{
    free(parser->words);
    *parser = (struct resp_parser){0};
}

static bool words_grow(struct resp_parser *parser)
{
    size_t capacity = parser->word_capacity == 0 ? WORDS_AT_FIRST : parser->word_capacity * 2;
    struct resp_word *words = realloc(parser->words, capacity * sizeof(*words));
    if (words == NULL)
        return false;
    parser->words = words;
    parser->word_capacity = capacity;
    return true;
}

static inline bool word_add(struct resp_parser *parser, size_t offset, size_t size)
{
    if (parser->word_count == parser->word_capacity && !words_grow(parser))
        return false;
    parser->words[parser->word_count++] = (struct resp_word){offset, size};
    return true;
}

static enum resp_result wrong(char *error, const char *text)
{
    snprintf(error, RESP_ERROR_MAX, "Protocol error: %s", text);
    return RESP_WRONG;
}

/* ---- lines of words -------------------------------------------------------------------------- */

static int hex_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static bool is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* What follows a backslash inside double quotes; *at is on it, and stays on its last byte. */
static uint8_t unescape(const uint8_t *line, size_t size, size_t *at)
{
    uint8_t byte = line[*at];
    if (byte == 'x' && *at + 2 < size && hex_digit(line[*at + 1]) >= 0 &&
        hex_digit(line[*at + 2]) >= 0) {
        uint8_t value = (uint8_t)(hex_digit(line[*at + 1]) * 16 + hex_digit(line[*at + 2]));
        *at += 2;
        return value;
    }
    switch (byte) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'b':
        return '\b';
    case 'a':
        return '\a';
    default:
        return byte;
    }
}

/* One word from line[*at] on, unescaped to where it begins. False: a quote is left open, or followed
 * by something other than a space. */
static bool line_word(uint8_t *line, size_t size, size_t *at, size_t *out_size)
{
    size_t to = *at, from = *at;
    uint8_t quote = 0;

    for (;; from++) {
        if (from == size) {
            if (quote != 0)
                return false;
            break;
        }
        uint8_t byte = line[from];
        if (quote == 0 && is_space(byte))
            break;
        if (quote == 0 && (byte == '"' || byte == '\'')) {
            quote = byte;
        } else if (quote != 0 && byte == quote) {
            from++;
            if (from < size && !is_space(line[from]))
                return false;
            break;
        } else if (quote == '"' && byte == '\\' && from + 1 < size) {
            from++;
            uint8_t value = unescape(line, size, &from);
            line[to++] = value;
        } else if (quote == '\'' && byte == '\\' && from + 1 < size && line[from + 1] == '\'') {
            line[to++] = '\'';
            from++;
        } else {
            line[to++] = byte;
        }
    }
    *out_size = to - *at;
    *at = from;
    return true;
}

static enum resp_result parse_line(struct resp_parser *parser, uint8_t *data, size_t size,
                                   char *error)
{
    uint8_t *line = data + parser->at;
    size_t left = size - parser->at;
    uint8_t *end = memchr(line, '\n', left);
    if (end == NULL)
        return left > RESP_LINE_MAX ? wrong(error, "too big inline request") : RESP_MORE;
    size_t length = (size_t)(end - line);
    size_t words_end = length > 0 && line[length - 1] == '\r' ? length - 1 : length;
    if (length > RESP_LINE_MAX)
        return wrong(error, "too big inline request");
    for (size_t at = 0;;) {
        while (at < words_end && is_space(line[at]))
            at++;
        if (at == words_end)
            break;
        size_t begin = at, word_size;
        if (!line_word(line, words_end, &at, &word_size))
            return wrong(error, "unbalanced quotes in request");
        if (!word_add(parser, parser->at + begin, word_size))
            return RESP_NO_MEMORY;
    }
    parser->at += length + 1;
    return RESP_REQUEST;
}

/* ---- arrays of bulk strings ------------------------------------------------------------------ */

/* Nearly all lengths have one to four digits: how many, or 0 when this is another case. */
static inline size_t short_length(const uint8_t *line, size_t left, int64_t *value)
{
    int64_t number = 0;
    size_t digits = 0;
    if (left < 8 || line[1] == '0')
        return 0;
    while (digits < 4 && (uint8_t)(line[digits + 1] - '0') < 10)
        number = number * 10 + (line[++digits] - '0');
    *value = number;
    return line[digits + 1] == '\r' ? digits : 0;
}

static enum resp_result parse_long_length(struct resp_parser *parser, const uint8_t *line,
                                          size_t left, const char *too_big, int64_t *value,
                                          bool *number, char *error)
{
    const uint8_t *end = memchr(line, '\r', left < RESP_LINE_MAX ? left : RESP_LINE_MAX);
    if (end == NULL)
        return left > RESP_LINE_MAX ? wrong(error, too_big) : RESP_MORE;
    size_t length = (size_t)(end - line);
    if (length + 2 > left)
        return RESP_MORE;
    *number = length > 0 && number_parse(slice_of(line + 1, length - 1), value);
    parser->at += length + 2;
    return RESP_REQUEST;
}

/* The number of a line that begins with a type byte; MORE until all of the line is there. */
static inline enum resp_result parse_length(struct resp_parser *parser, const uint8_t *data,
                                            size_t size, const char *too_big, int64_t *value,
                                            bool *number, char *error)
{
    const uint8_t *line = data + parser->at;
    size_t left = size - parser->at;
    size_t digits = short_length(line, left, value);
    if (digits == 0)
        return parse_long_length(parser, line, left, too_big, value, number, error);
    *number = true;
    parser->at += digits + 3;
    return RESP_REQUEST;
}

static enum resp_result parse_array_head(struct resp_parser *parser, const uint8_t *data,
                                         size_t size, const struct resp_limits *limits, char *error)
{
    bool number;
    int64_t count;
    enum resp_result result =
        parse_length(parser, data, size, "too big mbulk count string", &count, &number, error);
    if (result != RESP_REQUEST)
        return result;
    if (!number || count > RESP_WORDS_MAX)
        return wrong(error, "invalid multibulk length");
    if (limits->untrusted && count > RESP_UNTRUSTED_WORDS_MAX)
        return wrong(error, "unauthenticated multibulk length");
    parser->words_left = count > 0 ? count : 0;
    parser->in_request = count > 0;
    return RESP_REQUEST;
}

static enum resp_result parse_bulk_head(struct resp_parser *parser, const uint8_t *data,
                                        size_t size, const struct resp_limits *limits, char *error)
{
    bool number;
    int64_t length;
    uint8_t type = data[parser->at];
    enum resp_result result =
        parse_length(parser, data, size, "too big bulk count string", &length, &number, error);
    if (result != RESP_REQUEST)
        return result;
    if (type != '$') {
        snprintf(error, RESP_ERROR_MAX, "Protocol error: expected '$', got '%c'",
                 type >= 0x20 && type < 0x7f ? type : ' ');
        return RESP_WRONG;
    }
    if (!number || length < 0 || (uint64_t)length > limits->bulk_max)
        return wrong(error, "invalid bulk length");
    if (limits->untrusted && length > RESP_UNTRUSTED_BULK_MAX)
        return wrong(error, "unauthenticated bulk length");
    parser->bulk_size = (size_t)length;
    parser->in_bulk = true;
    return RESP_REQUEST;
}

static enum resp_result parse_array(struct resp_parser *parser, const uint8_t *data, size_t size,
                                    const struct resp_limits *limits, char *error)
{
    while (parser->words_left > 0) {
        if (!parser->in_bulk) {
            if (parser->at >= size)
                return RESP_MORE;
            enum resp_result result = parse_bulk_head(parser, data, size, limits, error);
            if (result != RESP_REQUEST)
                return result;
        }
        bool there = size - parser->at >= parser->bulk_size + 2;
        if (!there && limits->long_min != 0 && parser->bulk_size >= limits->long_min &&
            !parser->whole) {
            parser->at_long = true;
            return RESP_LONG;
        }
        if (!there)
            return RESP_MORE;
        parser->whole = false;
        if (!word_add(parser, parser->at, parser->bulk_size))
            return RESP_NO_MEMORY;
        parser->at += parser->bulk_size + 2;
        parser->in_bulk = false;
        parser->words_left--;
    }
    parser->in_request = false;
    return RESP_REQUEST;
}

/* ---- both ------------------------------------------------------------------------------------ */

enum resp_result resp_parse(struct resp_parser *parser, uint8_t *data, size_t size,
                            const struct resp_limits *limits, struct resp_request *out, char *error)
{
    parser->at_long = false;
    while (parser->at < size || (parser->in_request && parser->words_left == 0)) {
        enum resp_result result;
        if (!parser->in_request && data[parser->at] != '*') {
            result = parse_line(parser, data, size, error);
        } else {
            result = RESP_REQUEST;
            if (!parser->in_request)
                result = parse_array_head(parser, data, size, limits, error);
            if (result == RESP_REQUEST && parser->in_request)
                result = parse_array(parser, data, size, limits, error);
        }
        if (result != RESP_REQUEST)
            return result;
        if (parser->word_count > parser->first) { /* an empty one is passed over */
            *out = (struct resp_request){parser->first, parser->word_count - parser->first};
            parser->first = parser->word_count;
            return RESP_REQUEST;
        }
    }
    return RESP_MORE;
}

bool resp_long_passed(struct resp_parser *parser)
{
    parser->in_bulk = parser->at_long = false;
    parser->words_left--;
    return word_add(parser, parser->at, 0);
}

void resp_long_kept(struct resp_parser *parser)
{
    parser->at_long = false;
    parser->whole = true;
}

size_t resp_forget(struct resp_parser *parser)
{
    size_t pending = parser->word_count - parser->first;
    size_t dropped = parser->at;

    if (pending > 0) {
        /* Of an incomplete request everything is kept from its first word on. */
        dropped = parser->words[parser->first].offset;
        memmove(parser->words, parser->words + parser->first, pending * sizeof(*parser->words));
        for (size_t i = 0; i < pending; i++)
            parser->words[i].offset -= dropped;
    }
    parser->at -= dropped;
    parser->first = 0;
    parser->word_count = pending;
    if (pending == 0 && parser->word_capacity > WORDS_KEPT) {
        free(parser->words);
        parser->words = NULL;
        parser->word_capacity = 0;
    }
    return dropped;
}

size_t resp_wanted(const struct resp_parser *parser)
{
    return parser->in_bulk ? parser->at + parser->bulk_size + 2 : 0;
}
