/*
 * log.h - levelled, structured lines (logfmt or JSON) on stderr or in a file.
 *
 *   log_info("memory node ready", log_text("listen", address), log_u64("size", bytes));
 *
 *   2026-01-02T03:04:05.678Z level=info msg="memory node ready" listen=127.0.0.1:7000
 * size=1073741824
 *
 *   {"time":"2026-01-02T03:04:05.678Z","level":"info","msg":"memory node ready",
 *    "listen":"127.0.0.1:7000","size":1073741824}          (one line; hex numbers are texts)
 *
 * A line is printable ASCII, at most LOG_LINE_MAX bytes with its newline, and one write(2), so
 * lines of threads and processes that share a pipe do not mix. A longer line is cut and ends with
 * truncated=true; a line the system does not take is lost. errno is preserved. Any thread may log,
 * also on a coroutine's stack: a call needs some 5 KiB of it and never suspends.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pando/pando.h"

#define LOG_LINE_MAX 1024

/* In order of severity: a level lets itself and those before it through. */
enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

enum log_field_type {
    LOG_FIELD_TEXT,
    LOG_FIELD_U64,
    LOG_FIELD_I64,
    LOG_FIELD_HEX,
    LOG_FIELD_STATUS,
    LOG_FIELD_ERRNO,
};

/* The key is a constant without spaces, quotes or '='; texts need only outlive the call. */
struct log_field {
    const char *key;
    enum log_field_type type;
    union {
        const char *text; /* NULL is written as "" */
        uint64_t u64;
        int64_t i64;
        enum pando_status status;
        int error; /* a value of errno */
    };
};

#define log_text(name, value)                                                                      \
    ((struct log_field){.key = (name), .type = LOG_FIELD_TEXT, .text = (value)})
#define log_u64(name, value)                                                                       \
    ((struct log_field){.key = (name), .type = LOG_FIELD_U64, .u64 = (value)})
#define log_i64(name, value)                                                                       \
    ((struct log_field){.key = (name), .type = LOG_FIELD_I64, .i64 = (value)})
#define log_hex(name, value)                                                                       \
    ((struct log_field){.key = (name), .type = LOG_FIELD_HEX, .u64 = (value)})
#define log_status(name, value)                                                                    \
    ((struct log_field){.key = (name), .type = LOG_FIELD_STATUS, .status = (value)})
#define log_errno(name, value)                                                                     \
    ((struct log_field){.key = (name), .type = LOG_FIELD_ERRNO, .error = (value)})

/* log_error("what happened", fields...): the arguments are evaluated only if the level is on. */
#define log_error(message, ...) log_at(LOG_LEVEL_ERROR, message, ##__VA_ARGS__)
#define log_warn(message, ...)  log_at(LOG_LEVEL_WARN, message, ##__VA_ARGS__)
#define log_info(message, ...)  log_at(LOG_LEVEL_INFO, message, ##__VA_ARGS__)
#define log_debug(message, ...) log_at(LOG_LEVEL_DEBUG, message, ##__VA_ARGS__)

/* The message is the first field, so that the array is never empty. */
#define log_at(level, message, ...)                                                                \
    do {                                                                                           \
        if (log_enabled(level)) {                                                                  \
            const struct log_field log_fields_[] = {log_text("msg", message), ##__VA_ARGS__};      \
            log_write(level, log_fields_, sizeof(log_fields_) / sizeof(log_fields_[0]));           \
        }                                                                                          \
    } while (0)

/* The level in force, LOG_LEVEL_INFO at first. May be changed at any time, from any thread. */
void log_set_level(enum log_level level);

/* "error", "warn", "info" or "debug"; PANDO_INVALID for anything else. */
PANDO_MUST_CHECK enum pando_status log_level_parse(const char *text, enum log_level *out);

enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

/* LOG_FORMAT_TEXT at first. May be changed at any time, from any thread. */
void log_set_format(enum log_format format);

/* "text" or "json"; PANDO_INVALID for anything else. */
PANDO_MUST_CHECK enum pando_status log_format_parse(const char *text, enum log_format *out);

/* From now on lines go to the end of this file, which is made (0600) if it is not there. Called
 * again, with the same path or another, it goes over to what has that name now, as is due after
 * the file was renamed; lines of other threads come into the one or the other. IO, with one line for
 * a person: nothing has changed. One thread at a time. */
PANDO_MUST_CHECK enum pando_status log_open_file(const char *path, char *error, size_t error_bytes);

/* Behind the macros. Relaxed: the level orders nothing else. */
extern atomic_int log_level_now;

static inline bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level_now, memory_order_relaxed);
}

void log_write(enum log_level level, const struct log_field *fields, size_t count);

#endif
