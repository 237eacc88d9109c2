#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log_int.h"

static const char *const level_names[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

#define LEVEL_COUNT (sizeof(level_names) / sizeof(level_names[0]))

atomic_int log_level_now = LOG_LEVEL_INFO;
static atomic_int format_now = LOG_FORMAT_TEXT;

/* The file's descriptor keeps its number when it is opened again: whoever writes at that moment writes to
 * the one or to the other. */
static atomic_int log_fd = STDERR_FILENO;

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

const char *log_level_name(enum log_level level)
{
    return level_names[level];
}

void log_set_format(enum log_format format)
{
    atomic_store_explicit(&format_now, format, memory_order_relaxed);
}

enum pando_status log_format_parse(const char *text, enum log_format *out)
{
    bool json = strcmp(text, "json") == 0;
    if (!json && strcmp(text, "text") != 0)
        return PANDO_INVALID;
    *out = json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
    return PANDO_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Never waits, as opening a pipe would. */
static int open_file(const char *path, char *error, size_t error_bytes)
{
    struct stat info;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    if (fd < 0) {
        snprintf(error, error_bytes, "log file %s: cannot open it: %s", path, strerror(errno));
        return -1;
    }
    if (fstat(fd, &info) != 0 || !(S_ISREG(info.st_mode) || S_ISCHR(info.st_mode))) {
        snprintf(error, error_bytes,
                 "log file %s: neither a file nor a character device; name another", path);
        close(fd);
        return -1;
    }
    return fd;
}

enum pando_status log_open_file(const char *path, char *error, size_t error_bytes)
{
    int fd = open_file(path, error, error_bytes);
    if (fd < 0)
        return PANDO_IO;
    int former = atomic_load(&log_fd);
    if (former == STDERR_FILENO) {
        atomic_store(&log_fd, fd);
        return PANDO_OK;
    }
    bool moved = dup3(fd, former, O_CLOEXEC) >= 0;
    if (!moved)
        snprintf(error, error_bytes, "log file %s: cannot go over to it: %s", path,
                 strerror(errno));
    close(fd);
    return moved ? PANDO_OK : PANDO_IO;
}

void log_write(enum log_level level, const struct log_field *fields, size_t count)
{
    int saved_errno = errno;
    char line[LOG_LINE_MAX];

    pando_assert((size_t)level < LEVEL_COUNT);
    size_t size =
        log_line(line, (enum log_format)atomic_load_explicit(&format_now, memory_order_relaxed),
                 level, fields, count);
    int fd = atomic_load_explicit(&log_fd, memory_order_relaxed);
    ssize_t written;
    do
        written = write(fd, line, size);
    while (written < 0 && errno == EINTR);
    errno = saved_errno;
}
