/*
 * output.c - what commands give out: text that others chose as a terminal may have it, and files of JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"
#include "cmd/cmd.h"

/* ---- text ------------------------------------------------------------------------------------ */

/* What a terminal shows and does not obey: the length of the character at `p`, or 0. */
static size_t shown_length(const uint8_t *p, const uint8_t *end)
{
    size_t length = utf8_length(p, end);
    bool control = p[0] < 0x20 || p[0] == 0x7f || (p[0] == 0xc2 && length == 2 && p[1] < 0xa0);
    return control ? 0 : length;
}

const char *cmd_printable(const char *text, char *out, size_t out_bytes)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + strlen(text);
    size_t used = 0;
    while (p < end) {
        size_t length = shown_length(p, end), bytes = length > 0 ? length : 4;
        if (used + bytes >= out_bytes)
            break;
        if (length > 0)
            memcpy(out + used, p, length);
        else
            snprintf(out + used, 5, "\\x%02x", p[0]);
        used += bytes;
        p += length > 0 ? length : 1;
    }
    out[used] = '\0';
    return out;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* For writing, and emptied; -1 and errno: EEXIST if something else than a regular file is there, whose content
 * would be lost, or a link, which may lead anywhere. It is looked at before it is opened, because opening a
 * device can have effects, and again afterwards, because it may be another by then. */
static int open_regular(const char *path)
{
    struct stat info;
    if (lstat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        errno = EEXIST;
        return -1;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && ftruncate(fd, 0) == 0)
        return fd;
    int error = S_ISREG(info.st_mode) ? errno : EEXIST;
    close(fd);
    errno = error;
    return -1;
}

static FILE *open_json(const char *path)
{
    int fd = open_regular(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd >= 0 && file == NULL)
        close(fd);
    return file;
}

static const char *why(int error)
{
    return error == EEXIST || error == ELOOP
               ? "it exists and is no regular file; give another name, or - for stdout"
               : strerror(error);
}

bool cmd_write_json(const char *command, struct json *json, const char *path)
{
    size_t size;
    const char *text = json_finish(json, &size);
    if (text == NULL) {
        cmd_error(command, "out of memory for the JSON text");
        return false;
    }
    bool to_stdout = strcmp(path, "-") == 0;
    FILE *file = to_stdout ? stdout : open_json(path);
    if (file == NULL) {
        cmd_error(command, "--json %s: cannot write it: %s", path, why(errno));
        return false;
    }
    bool written = fwrite(text, 1, size, file) == size && fputc('\n', file) != EOF;
    written &= (to_stdout ? fflush(file) : fclose(file)) == 0;
    if (!written)
        cmd_error(command, "--json %s: cannot write it: %s", path, strerror(errno));
    return written;
}
