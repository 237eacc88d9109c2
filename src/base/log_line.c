/*
 * log_line.c - a line of the log, as logfmt or as one JSON object.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log_int.h"
#include "base/slice.h"

#define TRUNCATED      " truncated=true\n"
#define TRUNCATED_JSON ",\"truncated\":true}\n"

/* What fields may fill: room for the end is always left. */
#define FIELDS_MAX(json)                                                                           \
    (LOG_LINE_MAX - ((json) ? sizeof(TRUNCATED_JSON) - 1 : sizeof(TRUNCATED) - 1))

enum { PIECE_BYTES = 8 };

struct line {
    char *text;
    size_t size;
    bool truncated;
    bool json;
};

/* Appends all or nothing, leaving `reserve` bytes free. */
static bool put(struct line *line, const char *text, size_t size, size_t reserve)
{
    if (size + reserve > FIELDS_MAX(line->json) - line->size) {
        line->truncated = true;
        return false;
    }
    memcpy(line->text + line->size, text, size);
    line->size += size;
    return true;
}

static bool is_printable(unsigned char c)
{
    return c >= 0x20 && c < 0x7f;
}

static bool needs_quotes(const char *value)
{
    if (value[0] == '\0')
        return true;
    for (const char *p = value; *p != '\0'; p++) {
        if (!is_printable((unsigned char)*p) || strchr(" \"=\\", *p) != NULL)
            return true;
    }
    return false;
}

/* Bytes beyond ASCII are \xNN in text; JSON knows \u00NN, the same byte as a character. */
static size_t escape(char c, bool json, char out[PIECE_BYTES])
{
    unsigned char byte = (unsigned char)c;
    char letter = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : '\0';

    if (c == '"' || c == '\\')
        letter = c;
    if (letter != '\0') {
        out[0] = '\\';
        out[1] = letter;
        return 2;
    }
    if (is_printable(byte)) {
        out[0] = c;
        return 1;
    }
    return (size_t)snprintf(out, PIECE_BYTES, json ? "\\u%04x" : "\\x%02x", byte);
}

/* A value that does not fit is cut between escapes; a quoted one keeps its closing quote. */
static void put_value(struct line *line, const char *value, bool quoted)
{
    char piece[PIECE_BYTES];

    if (quoted && !put(line, "\"", 1, 1))
        return;
    for (const char *p = value; *p != '\0'; p++) {
        if (!put(line, piece, escape(*p, line->json, piece), quoted))
            break;
    }
    if (quoted)
        line->text[line->size++] = '"';
}

/* The value as text, in `number` if it has to be written somewhere. */
static const char *value_of(const struct log_field *field, char *number, size_t number_bytes)
{
    switch (field->type) {
    case LOG_FIELD_TEXT:
        return field->text == NULL ? "" : field->text;
    case LOG_FIELD_U64:
        snprintf(number, number_bytes, "%" PRIu64, field->u64);
        break;
    case LOG_FIELD_I64:
        snprintf(number, number_bytes, "%" PRId64, field->i64);
        break;
    case LOG_FIELD_HEX:
        snprintf(number, number_bytes, "0x%" PRIx64, field->u64);
        break;
    case LOG_FIELD_STATUS:
        return pando_status_text(field->status);
    case LOG_FIELD_ERRNO:
        return strerror_r(field->error, number, number_bytes);
    }
    return number;
}

static void put_field(struct line *line, const struct log_field *field)
{
    char number[96];
    const char *value = value_of(field, number, sizeof(number));
    bool is_number = field->type == LOG_FIELD_U64 || field->type == LOG_FIELD_I64;
    size_t key_size = strlen(field->key);

    /* A key goes in only with room for at least an empty value; a number in JSON only as a whole,
     * because half of one would be another. */
    if (line->json) {
        size_t least = is_number ? strlen(value) : 2;
        if (!put(line, ",\"", 2, key_size + 2 + least))
            return;
        put(line, field->key, key_size, 0);
        put(line, "\":", 2, 0);
        put_value(line, value, !is_number);
        return;
    }
    if (!put(line, " ", 1, key_size + 3))
        return;
    put(line, field->key, key_size, 0);
    put(line, "=", 1, 0);
    put_value(line, value, needs_quotes(value));
}

static void put_header(struct line *line, enum log_level level)
{
    struct timespec now;
    struct tm utc;
    char day[32];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    (void)strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &utc);
    line->size = (size_t)snprintf(line->text, LOG_LINE_MAX,
                                  line->json ? "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\""
                                             : "%s.%03ldZ level=%s",
                                  day, now.tv_nsec / 1000000, log_level_name(level));
}

size_t log_line(char out[LOG_LINE_MAX], enum log_format format, enum log_level level,
                const struct log_field *fields, size_t count)
{
    struct line line = {.text = out, .json = format == LOG_FORMAT_JSON};

    put_header(&line, level);
    for (size_t i = 0; i < count && !line.truncated; i++)
        put_field(&line, &fields[i]);
    struct slice end = slice_of_text(line.json ? "}\n" : "\n");
    if (line.truncated)
        end = slice_of_text(line.json ? TRUNCATED_JSON : TRUNCATED);
    memcpy(out + line.size, end.data, end.size);
    return line.size + end.size;
}
