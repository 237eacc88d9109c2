#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

#define TRUNCATED " truncated=true"

/* What fields may fill: room for the mark and the newline is always left. */
#define FIELDS_MAX (LOG_LINE_MAX - sizeof(TRUNCATED))

struct line {
    char text[LOG_LINE_MAX];
    size_t size;
    bool truncated;
};

static const char *const level_names[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

#define LEVEL_COUNT (sizeof(level_names) / sizeof(level_names[0]))

atomic_int log_level_now = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    pando_assert((size_t)level < LEVEL_COUNT);
    atomic_store_explicit(&log_level_now, level, memory_order_relaxed);
}

enum pando_status log_level_parse(const char *text, enum log_level *out)
{
    for (size_t i = 0; i < LEVEL_COUNT; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return PANDO_OK;
        }
    }
    return PANDO_INVALID;
}

/* Appends all or nothing, leaving `reserve` bytes free. */
static bool put(struct line *line, const char *text, size_t size, size_t reserve)
{
    if (size + reserve > FIELDS_MAX - line->size) {
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

static size_t escape(char c, char out[5])
{
    static const char hex[] = "0123456789abcdef";
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
    out[0] = '\\';
    out[1] = 'x';
    out[2] = hex[byte >> 4];
    out[3] = hex[byte & 15];
    return 4;
}

/* A value that does not fit is cut between escapes; a quoted one keeps its closing quote. */
static void put_value(struct line *line, const char *value)
{
    bool quoted = needs_quotes(value);
    char piece[5];

    if (quoted && !put(line, "\"", 1, 1))
        return;
    for (const char *p = value; *p != '\0'; p++) {
        if (!put(line, piece, escape(*p, piece), quoted))
            break;
    }
    if (quoted)
        line->text[line->size++] = '"';
}

static void put_field(struct line *line, const struct log_field *field)
{
    char number[96];
    const char *value = number;

    switch (field->type) {
    case LOG_FIELD_TEXT:
        value = field->text == NULL ? "" : field->text;
        break;
    case LOG_FIELD_U64:
        snprintf(number, sizeof(number), "%" PRIu64, field->u64);
        break;
    case LOG_FIELD_I64:
        snprintf(number, sizeof(number), "%" PRId64, field->i64);
        break;
    case LOG_FIELD_HEX:
        snprintf(number, sizeof(number), "0x%" PRIx64, field->u64);
        break;
    case LOG_FIELD_STATUS:
        value = pando_status_text(field->status);
        break;
    case LOG_FIELD_ERRNO:
        value = strerror_r(field->error, number, sizeof(number));
        break;
    }

    /* A key goes in only with its '=' and room for at least an empty value. */
    size_t key_size = strlen(field->key);
    if (!put(line, " ", 1, key_size + 3))
        return;
    put(line, field->key, key_size, 0);
    put(line, "=", 1, 0);
    put_value(line, value);
}

static void put_header(struct line *line, enum log_level level)
{
    struct timespec now;
    struct tm utc;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    line->size = strftime(line->text, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    line->size += (size_t)snprintf(line->text + line->size, 32, ".%03ldZ level=%s",
                                   now.tv_nsec / 1000000, level_names[level]);
}

void log_write(enum log_level level, const struct log_field *fields, size_t count)
{
    int saved_errno = errno;
    struct line line = {.size = 0};

    pando_assert((size_t)level < LEVEL_COUNT);
    put_header(&line, level);
    for (size_t i = 0; i < count && !line.truncated; i++)
        put_field(&line, &fields[i]);
    if (line.truncated) {
        memcpy(line.text + line.size, TRUNCATED, sizeof(TRUNCATED) - 1);
        line.size += sizeof(TRUNCATED) - 1;
    }
    line.text[line.size++] = '\n';

    ssize_t written;
    do
        written = write(STDERR_FILENO, line.text, line.size);
    while (written < 0 && errno == EINTR);
    errno = saved_errno;
}
