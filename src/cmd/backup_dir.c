/*
 * backup_dir.c - the directory of a backup: what is in it, and its manifests.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/backup.h"

#define PART ".part"

enum { RANDOM_LETTERS = 7 /* "-XXXXXX" of a dump's temporary file */ };

static bool explain(const struct backup_dir *dir, const char *what, const char *name)
{
    cmd_error(dir->command, "cannot %s %s%s%s: %s", what, dir->path, name[0] == '\0' ? "" : "/",
              name, strerror(errno));
    return false;
}

bool backup_dir_private(const struct backup_dir *dir)
{
    struct stat info;
    if (fstat(dir->fd, &info) != 0)
        return explain(dir, "look at", "");
    if ((info.st_mode & 0777) != 0700 && fchmod(dir->fd, 0700) != 0)
        return explain(dir, "close to others", "");
    return true;
}

bool backup_dir_open(struct backup_dir *dir, bool make)
{
    if (make && mkdir(dir->path, 0700) != 0 && errno != EEXIST)
        return explain(dir, "make", "");
    dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->fd < 0)
        return explain(dir, "open", "");
    if (flock(dir->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) { /* some disks cannot */
        cmd_error(dir->command, "another pando backup works on %s; wait until it has ended",
                  dir->path);
        return false;
    }
    return true;
}

void backup_dir_close(struct backup_dir *dir)
{
    if (dir->fd >= 0)
        close(dir->fd);
    dir->fd = -1;
}

bool backup_dir_path(const struct backup_dir *dir, const char *file, char out[BACKUP_PATH_BYTES])
{
    int size = snprintf(out, BACKUP_PATH_BYTES, "%s/%s", dir->path, file);
    if (size > 0 && size < BACKUP_PATH_BYTES)
        return true;
    errno = ENAMETOOLONG;
    return explain(dir, "name", file);
}

/* ---- manifests ------------------------------------------------------------------------------- */

static bool read_bytes(int fd, char *to, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(fd, to + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got == 0 ? EIO : errno;
            return false;
        }
        done += (size_t)got;
    }
    return true;
}

/* All of a file, to be freed; NULL with errno. */
static char *read_file(int fd, size_t *size)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return NULL;
    if (!S_ISREG(info.st_mode) || info.st_size > BACKUP_MANIFEST_MAX) {
        errno = S_ISREG(info.st_mode) ? EFBIG : EINVAL;
        return NULL;
    }
    *size = (size_t)info.st_size;
    char *text = malloc(*size + 1);
    if (text != NULL && !read_bytes(fd, text, *size)) {
        int error = errno;
        free(text);
        errno = error;
        text = NULL;
    }
    return text;
}

enum pando_status backup_dir_read(const struct backup_dir *dir, const char *name,
                                  struct backup_manifest *out)
{
    char error[128] = "";
    size_t size = 0;
    int fd = openat(dir->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return PANDO_NOT_FOUND;
    char *text = fd < 0 ? NULL : read_file(fd, &size);
    if (text == NULL)
        (void)explain(dir, "read", name);
    if (fd >= 0)
        close(fd);
    if (text == NULL)
        return PANDO_IO;
    enum pando_status status = backup_manifest_read(text, size, out, error, sizeof(error));
    if (status != PANDO_OK)
        cmd_error(dir->command, "%s/%s cannot be used: %s", dir->path, name, error);
    free(text);
    return status;
}

static bool write_bytes(int fd, const char *from, size_t size)
{
    while (size > 0) {
        ssize_t done = write(fd, from, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done == 0 ? EIO : errno;
            return false;
        }
        from += done;
        size -= (size_t)done;
    }
    return true;
}

static bool write_whole(const struct backup_dir *dir, const char *name, const char *text,
                        size_t size)
{
    char part[64];
    snprintf(part, sizeof(part), "%s" PART, name);
    if (unlinkat(dir->fd, part, 0) != 0 && errno != ENOENT)
        return false;
    int fd = openat(dir->fd, part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool written = write_bytes(fd, text, size) && fsync(fd) == 0;
    int error = errno;
    written = close(fd) == 0 && written;
    if (written && renameat(dir->fd, part, dir->fd, name) == 0 && fsync(dir->fd) == 0)
        return true;
    error = written ? errno : error;
    (void)unlinkat(dir->fd, part, 0);
    errno = error;
    return false;
}

bool backup_dir_write(const struct backup_dir *dir, const char *name,
                      struct backup_manifest *manifest)
{
    size_t size;
    char *text = backup_manifest_build(manifest, &size);
    if (text == NULL) {
        cmd_error(dir->command, "out of memory");
        return false;
    }
    bool written = write_whole(dir, name, text, size) || explain(dir, "write", name);
    free(text);
    return written;
}

bool backup_dir_remove(const struct backup_dir *dir, const char *name)
{
    return unlinkat(dir->fd, name, 0) == 0 || errno == ENOENT || explain(dir, "remove", name);
}

/* ---- what is in it --------------------------------------------------------------------------- */

/* Without ".part", or ".part-XXXXXX"; false: it does not end so. */
static bool whole_name(const char *name, char out[BACKUP_FILE_MAX])
{
    const char *end = strstr(name, PART);
    size_t size = end == NULL ? 0 : (size_t)(end - name);
    if (end == NULL || size >= BACKUP_FILE_MAX ||
        (end[strlen(PART)] != '\0' &&
         (end[strlen(PART)] != '-' || strlen(end) != strlen(PART) + RANDOM_LETTERS)))
        return false;
    memcpy(out, name, size);
    out[size] = '\0';
    return true;
}

static enum backup_entry entry_of(const struct backup_dir *dir, const char *name,
                                  char table[POOL_NAME_MAX])
{
    char whole[BACKUP_FILE_MAX];
    struct stat info;
    if (fstatat(dir->fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
        return BACKUP_ENTRY_OTHER;
    if (strcmp(name, BACKUP_MANIFEST) == 0)
        return BACKUP_ENTRY_MANIFEST;
    if (strcmp(name, BACKUP_BEGUN) == 0)
        return BACKUP_ENTRY_BEGUN;
    if (backup_table_of(name, table))
        return BACKUP_ENTRY_DUMP;
    bool part = whole_name(name, whole) &&
                (strcmp(whole, BACKUP_MANIFEST) == 0 || strcmp(whole, BACKUP_BEGUN) == 0 ||
                 backup_table_of(whole, table));
    return part ? BACKUP_ENTRY_PART : BACKUP_ENTRY_OTHER;
}

bool backup_dir_each(const struct backup_dir *dir, backup_entry_fn fn, void *context)
{
    int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *found;
    bool more = true;
    if (stream == NULL) {
        (void)explain(dir, "read", "");
        if (fd >= 0)
            close(fd);
        return false;
    }
    errno = 0;
    while (more && (found = readdir(stream)) != NULL) {
        char table[POOL_NAME_MAX] = "";
        if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0)
            more = fn(context, found->d_name, entry_of(dir, found->d_name, table), table);
        errno = 0;
    }
    bool read = errno == 0;
    if (!read)
        (void)explain(dir, "read", "");
    closedir(stream);
    return read;
}
