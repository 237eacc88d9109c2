/*
 * log_int.h - one line of the log as bytes.
 */
#ifndef BASE_LOG_INT_H
#define BASE_LOG_INT_H

#include "base/log.h"

/* A level's name. */
const char *log_level_name(enum log_level level);

/* Writes a line with its newline and returns its size; the time is now. */
size_t log_line(char out[LOG_LINE_MAX], enum log_format format, enum log_level level,
                const struct log_field *fields, size_t count);

#endif
