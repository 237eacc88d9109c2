#include "fabric/window/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

/* Others may remove the name, or make it, between two looks at it: not for ever. */
enum { OPEN_TRIES = 8 };

static const uint64_t HUGE_BYTES = 2 * 1024 * 1024;

enum pando_status window_file_fail(char *error, size_t error_bytes, enum pando_status status,
                                   const char *path, const char *what)
{
    snprintf(error, error_bytes, "%s: %s", path, what);
    return status;
}

enum pando_status window_file_fail_errno(char *error, size_t error_bytes, const char *path,
                                         const char *doing)
{
    int code = errno;
    snprintf(error, error_bytes, "%s: cannot %s: %s", path, doing, strerror(code));
    switch (code) {
    case EACCES:
    case EPERM:
        return PANDO_DENIED;
    case ENOENT:
        return PANDO_NOT_FOUND;
    case ENOMEM:
    case ENOSPC:
        return PANDO_NO_MEMORY;
    default:
        return PANDO_IO;
    }
}

/* ---- what kind of file ----------------------------------------------------------------------- */

static bool is_dax(dev_t device)
{
    char link[64], target[256];
    snprintf(link, sizeof(link), "/sys/dev/char/%u:%u/subsystem", major(device), minor(device));
    ssize_t size = readlink(link, target, sizeof(target) - 1);
    if (size <= 0)
        return false;
    target[size] = '\0';
    const char *slash = strrchr(target, '/');
    return strcmp(slash == NULL ? target : slash + 1, "dax") == 0;
}

/* Why such a file can be no window, or NULL. */
static const char *kind_refused(const struct stat *info, enum window_open how)
{
    switch (info->st_mode & S_IFMT) {
    case S_IFREG:
        return NULL;
    case S_IFLNK:
        return "it is a symbolic link, which is not followed; give the path of the file itself";
    case S_IFDIR:
        return "it is a folder; give the path of a file in it";
    case S_IFCHR:
        if (is_dax(info->st_rdev))
            return how == WINDOW_CREATE || how == WINDOW_CREATE_RESERVED
                       ? "it is a DAX device; to use all of it, whatever it "
                         "holds, add --dax"
                       : NULL;
        return "it is a device, and no DAX device; it is left as it is: give the path of a file";
    default:
        return "it is no regular file; it is left as it is: give another path";
    }
}

/* Why a file of that owner and mode can be no window; false: it may be one. */
static bool owner_refused(const struct stat *info, const char *path, char *error,
                          size_t error_bytes)
{
    if (info->st_uid != geteuid()) {
        snprintf(error, error_bytes,
                 "%s: it belongs to user %u, not to user %u, who runs this; run it as that user, "
                 "or give another name",
                 path, (unsigned)info->st_uid, (unsigned)geteuid());
        return true;
    }
    if ((info->st_mode & ALLPERMS) != (S_IRUSR | S_IWUSR)) {
        snprintf(error, error_bytes,
                 "%s: its mode is %04o, but a window's is 0600, so that only its owner can open "
                 "it; run chmod 600 on it if it is a window, or give another name",
                 path, (unsigned)(info->st_mode & ALLPERMS));
        return true;
    }
    return false;
}

/* ---- opening it ------------------------------------------------------------------------------ */

/* -1 and errno; ENOENT only if it may not be made. */
static int open_or_make(const char *path, enum window_open how)
{
    /* Never the file behind a link, and without waiting for the other end of a fifo. */
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, flags);
    if (fd >= 0 || errno != ENOENT || how == WINDOW_ATTACH)
        return fd;
    fd = open(path, flags | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
    if (fd >= 0 && fchmod(fd, S_IRUSR | S_IWUSR) != 0) { /* whatever the umask is */
        close(fd);
        return -1;
    }
    return fd;
}

/* Some devices do things when they are opened, so they are refused before. Only for that: the name
 * may lead elsewhere in a moment. */
static enum pando_status look_before(const char *path, enum window_open how, char *error,
                                     size_t error_bytes)
{
    struct stat info;
    const char *refused = lstat(path, &info) == 0 ? kind_refused(&info, how) : NULL;
    if (refused == NULL)
        return PANDO_OK;
    return window_file_fail(error, error_bytes, PANDO_INVALID, path, refused);
}

/* AGAIN: somebody made the file in this moment. */
static enum pando_status open_checked(struct window_file *file, const char *path,
                                      enum window_open how, struct stat *info, char *error,
                                      size_t error_bytes)
{
    struct statfs volume;
    enum pando_status status = look_before(path, how, error, error_bytes);

    if (status != PANDO_OK)
        return status;
    file->fd = open_or_make(path, how);
    if (file->fd < 0)
        return errno == EEXIST ? PANDO_AGAIN
                               : window_file_fail_errno(error, error_bytes, path, "open");
    if (fstat(file->fd, info) != 0)
        return window_file_fail_errno(error, error_bytes, path, "look at it");
    const char *refused = kind_refused(info, how);
    if (refused != NULL)
        return window_file_fail(error, error_bytes, PANDO_INVALID, path, refused);
    file->device = !S_ISREG(info->st_mode);
    file->huge = fstatfs(file->fd, &volume) == 0 && volume.f_type == HUGETLBFS_MAGIC;
    return PANDO_OK;
}

/* ---- what is in it --------------------------------------------------------------------------- */

/* The first bytes, as far as there are any; the rest is zero. DAX devices cannot be read(2). */
static bool header_read(const struct window_file *file, struct window_header *out)
{
    memset(out, 0, sizeof(*out));
    if (!file->device)
        return pread(file->fd, out, sizeof(*out), 0) >= 0;
    void *page = mmap(NULL, HUGE_BYTES, PROT_READ, MAP_SHARED, file->fd, 0);
    if (page == MAP_FAILED)
        return false;
    memcpy(out, page, sizeof(*out));
    munmap(page, HUGE_BYTES);
    return true;
}

/* Nobody's data: nothing, or what window_file_grow leaves if it is killed. That is the mark, or before it
 * a file of just the mark's size without a byte in it, or hugepages that are not there yet. */
static bool is_empty(const struct window_file *file, const struct stat *info)
{
    if (file->device || info->st_size == 0 || file->header.magic == WINDOW_MAKING)
        return true;
    if (file->huge)
        return info->st_blocks == 0;
    return info->st_size == (off_t)sizeof(file->header.magic) && file->header.magic == 0;
}

/* With the lock. Only if the name still leads to that file. */
static bool remove_empty(const char *path, int fd)
{
    struct stat by_name, by_fd;
    return lstat(path, &by_name) == 0 && fstat(fd, &by_fd) == 0 && by_name.st_dev == by_fd.st_dev &&
           by_name.st_ino == by_fd.st_ino && by_fd.st_size == 0 && unlink(path) == 0;
}

/* AGAIN: it was empty and open to others, and is removed. */
static enum pando_status check_contents(struct window_file *file, const char *path,
                                        enum window_open how, char *error, size_t error_bytes)
{
    struct stat info;

    if (fstat(file->fd, &info) != 0 || !header_read(file, &file->header))
        return window_file_fail_errno(error, error_bytes, path, "read its header");
    file->there =
        file->header.magic == WINDOW_MAGIC && (file->device || info.st_size >= (off_t)WINDOW_FIRST);
    if (file->device)
        return PANDO_OK;
    if (how != WINDOW_ATTACH && info.st_size == 0 && info.st_uid == geteuid() &&
        (info.st_mode & ALLPERMS) != (S_IRUSR | S_IWUSR) && remove_empty(path, file->fd))
        return PANDO_AGAIN;
    if (!file->there && !is_empty(file, &info))
        return window_file_fail(error, error_bytes, PANDO_INVALID, path,
                                "it holds something else than a window; it is left as it is: give "
                                "another name");
    if (info.st_nlink > 1)
        return window_file_fail(error, error_bytes, PANDO_INVALID, path,
                                "the file has another name, too (a hard link), by which others may "
                                "use it; remove that one, or give another path");
    return owner_refused(&info, path, error, error_bytes) ? PANDO_DENIED : PANDO_OK;
}

static enum pando_status open_once(struct window_file *file, const char *path, enum window_open how,
                                   char *error, size_t error_bytes)
{
    struct stat info;
    enum pando_status status = open_checked(file, path, how, &info, error, error_bytes);

    if (status != PANDO_OK)
        return status;
    /* Not even a lock on what is somebody else's. */
    if (!file->device && info.st_uid != geteuid()) {
        (void)owner_refused(&info, path, error, error_bytes);
        return PANDO_DENIED;
    }
    /* The serving process holds this lock while it lives: two would hand out memory twice. */
    if (how != WINDOW_ATTACH && flock(file->fd, LOCK_EX | LOCK_NB) != 0)
        return window_file_fail(error, error_bytes, PANDO_BUSY, path,
                                "another memory node serves it; stop that one or choose another "
                                "name");
    status = check_contents(file, path, how, error, error_bytes);
    if (status == PANDO_OK && !file->there && how == WINDOW_ATTACH)
        status = window_file_fail(error, error_bytes, PANDO_INVALID, path,
                                  "no window here; start `pando memory` on it first");
    return status;
}

enum pando_status window_file_open(struct window_file *file, const char *path, enum window_open how,
                                   char *error, size_t error_bytes)
{
    enum pando_status status = PANDO_AGAIN;

    for (int i = 0; i < OPEN_TRIES && status == PANDO_AGAIN; i++) {
        *file = (struct window_file){.fd = -1};
        status = open_once(file, path, how, error, error_bytes);
        if (status != PANDO_OK && file->fd >= 0)
            close(file->fd);
    }
    if (status == PANDO_AGAIN)
        return window_file_fail(error, error_bytes, PANDO_BUSY, path,
                                "others make and remove it again and again");
    return status;
}

/* ---- growing it ------------------------------------------------------------------------------ */

/* The mark is there before the first byte that could be taken for somebody's. */
static bool mark_huge(int fd)
{
    if (ftruncate(fd, (off_t)HUGE_BYTES) != 0)
        return false;
    /* Reserves its page, so that none is missing at the store. */
    uint64_t *page = mmap(NULL, HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return false;
    __atomic_store_n(page, WINDOW_MAKING, __ATOMIC_RELEASE);
    munmap(page, HUGE_BYTES);
    return true;
}

static bool mark(int fd)
{
    const uint64_t making = WINDOW_MAKING;
    struct stat info;
    /* Files of /proc take no size and no page; to write to one would change the system. */
    if (ftruncate(fd, sizeof(making)) != 0 || fstat(fd, &info) != 0)
        return false;
    if (info.st_size != (off_t)sizeof(making)) {
        errno = EINVAL;
        return false;
    }
    return pwrite(fd, &making, sizeof(making), 0) == (ssize_t)sizeof(making);
}

bool window_file_grow(const struct window_file *file, uint64_t bytes, bool reserve)
{
    if (file->device)
        return true;
    if ((file->huge ? mark_huge(file->fd) : mark(file->fd)) &&
        ftruncate(file->fd, (off_t)bytes) == 0 &&
        (!(file->huge || reserve) || fallocate(file->fd, 0, 0, (off_t)bytes) == 0))
        return true;
    int code = errno;
    (void)!ftruncate(file->fd, 0);
    errno = code;
    return false;
}
