/*
 * attached.c - the owner's file of who is attached to its window: made when the first member comes, mapped as
 * long as the window is, removed when nobody is attached any more at the end.
 *
 * What is at its path may be anybody's: it is used or removed only if it is such a file by owner, mode,
 * size and magic; with anything else there the window is not served.
 *
 * It lies beside the window as PATH.attached; for a window in hugepages or on a device, where no small file
 * can be, in /dev/shm under the window's id. The window's lock is held, so nobody else uses it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/fence_int.h"

static const char SUFFIX[] = ".attached";
static const char BY_ID[] = "/dev/shm/pando-attached-";

_Static_assert(SHM_ATTACHED_PATH_MAX >= FABRIC_LOCATION_MAX + sizeof(SUFFIX), "room");
_Static_assert(SHM_ATTACHED_PATH_MAX >= sizeof(BY_ID) + 16, "room");

void shm_attached_path(const char *location, int window_fd, bool huge, uint64_t id,
                       char path[SHM_ATTACHED_PATH_MAX])
{
    struct stat info;
    if (huge || fstat(window_fd, &info) != 0 || !S_ISREG(info.st_mode))
        snprintf(path, SHM_ATTACHED_PATH_MAX, "%s%016llx", BY_ID, (unsigned long long)id);
    else
        snprintf(path, SHM_ATTACHED_PATH_MAX, "%s%s", location, SUFFIX);
}

static void find_path(const struct shm_fabric *fabric, char path[SHM_ATTACHED_PATH_MAX])
{
    shm_attached_path(fabric->base.location, fabric->window.fd, fabric->window.huge,
                      fabric->opened_id, path);
}

/* ---- what is there --------------------------------------------------------------------------- */

struct found {
    int fd;           /* -1: there is no file, or none that is opened */
    bool whole;       /* it is a record, and not one in the making */
    uint32_t version; /* of that: */
    uint64_t window;
    const char *refused; /* why it is left as it is; NULL: it may be used and removed */
    enum pando_status status;
};

static void refuse(struct found *found, enum pando_status status, const char *why)
{
    found->refused = why;
    found->status = status;
}

static bool kind_refused(const struct stat *info, struct found *found)
{
    if (S_ISLNK(info->st_mode))
        refuse(found, PANDO_INVALID, "is a symbolic link, which is not followed");
    else if (!S_ISREG(info->st_mode))
        refuse(found, PANDO_INVALID, "is no regular file");
    else if (info->st_uid != geteuid())
        refuse(found, PANDO_DENIED, "belongs to another user");
    else if ((info->st_mode & ALLPERMS) != (S_IRUSR | S_IWUSR))
        refuse(found, PANDO_DENIED, "has another mode than 0600");
    else if (info->st_nlink != 1)
        refuse(found, PANDO_INVALID, "has another name, too (a hard link)");
    return found->refused != NULL;
}

/* Empty, marked as being made, or whole: else it is somebody's. */
static bool content_known(const struct stat *info, struct found *found)
{
    struct {
        uint64_t magic;
        uint32_t version, zero;
        uint64_t window;
    } head = {0};
    _Static_assert(offsetof(struct shm_attached_file, window) == 16 && sizeof(head) == 24, "head");
    const off_t whole = (off_t)sizeof(struct shm_attached_file);

    if (info->st_size > whole || pread(found->fd, &head, sizeof(head), 0) < 0)
        return false;
    found->whole = info->st_size == whole && head.magic == ATTACHED_MAGIC;
    found->version = head.version;
    found->window = head.window;
    return found->whole || info->st_size == 0 || head.magic == ATTACHED_MAKING;
}

/* Opens what is at the path, if it is a file that only this user can open. The caller closes it. */
static void look(const char *path, struct found *found)
{
    struct stat info;
    *found = (struct found){.fd = -1};
    /* Some devices do things when they are opened. */
    if (lstat(path, &info) != 0) {
        if (errno != ENOENT)
            refuse(found, PANDO_IO, "cannot be looked at");
        return;
    }
    if (kind_refused(&info, found))
        return;
    found->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (found->fd < 0 || fstat(found->fd, &info) != 0)
        refuse(found, PANDO_IO, "cannot be opened");
    else if (!kind_refused(&info, found) && !content_known(&info, found))
        refuse(found, PANDO_INVALID, "holds something else");
}

static void look_end(const struct found *found)
{
    if (found->fd >= 0)
        close(found->fd);
}

static bool of_window(const struct found *found, uint64_t window)
{
    return found->refused == NULL && found->whole && found->version == ATTACHED_VERSION &&
           found->window == window;
}

void shm_attached_remove(const char *path)
{
    struct found found;
    look(path, &found);
    if (found.fd >= 0 && found.refused == NULL)
        (void)unlink(path);
    look_end(&found);
}

/* ---- the owner's ----------------------------------------------------------------------------- */

/* NULL and errno. */
static struct shm_attached_file *map(int fd)
{
    void *mapped =
        mmap(NULL, sizeof(struct shm_attached_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

enum pando_status shm_attached_open(struct shm_fabric *fabric, char *error, size_t error_bytes)
{
    char path[SHM_ATTACHED_PATH_MAX];
    struct found found;
    if (fabric->base.location[0] == '\0')
        return PANDO_OK;
    find_path(fabric, path);
    look(path, &found);
    if (found.refused != NULL) {
        snprintf(error, error_bytes,
                 "%s: it %s, and pando keeps on record there who is attached to the window; it is "
                 "left as it is: move it away, or give the window another path",
                 path, found.refused);
        look_end(&found);
        return found.status;
    }
    if (of_window(&found, fabric->opened_id))
        fabric->record = map(found.fd);
    else if (found.fd >= 0)
        (void)unlink(path);
    look_end(&found);
    return PANDO_OK;
}

/* Gives an empty file its size. The mark comes first, so that no byte of it can be taken for somebody's
 * should this process be killed. */
static bool grow(int fd)
{
    const uint64_t making = ATTACHED_MAKING;
    if (pwrite(fd, &making, sizeof(making), 0) != (ssize_t)sizeof(making))
        return false;
    errno = posix_fallocate(fd, 0, sizeof(struct shm_attached_file));
    return errno == 0;
}

/* A new one. NULL and errno: also if some file is there. */
static struct shm_attached_file *map_new(const char *path)
{
    struct shm_attached_file *file = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (fd < 0)
        return NULL;
    /* Whatever the umask is. */
    if (fchmod(fd, S_IRUSR | S_IWUSR) == 0 && grow(fd))
        file = map(fd);
    int code = errno;
    if (file == NULL)
        (void)unlink(path);
    close(fd);
    errno = code;
    return file;
}

/* The file when the first member comes. */
static struct shm_attached_file *make(struct shm_fabric *fabric)
{
    char path[SHM_ATTACHED_PATH_MAX];
    find_path(fabric, path);
    struct shm_attached_file *file = map_new(path);
    if (file == NULL) {
        if (!fabric->unrecorded)
            log_warn("members cannot be kept on record: should this process be killed, the next "
                     "one here "
                     "cannot fence those that are still attached",
                     log_text("file", path), log_errno("error", errno));
        fabric->unrecorded = true;
        return NULL;
    }
    file->version = ATTACHED_VERSION;
    file->window = fabric->opened_id;
    file->boot = shm_boot_now();
    __atomic_store_n(&file->magic, ATTACHED_MAGIC, __ATOMIC_SEQ_CST);
    return file;
}

struct window_attachment *shm_attached_record(struct shm_fabric *fabric, uint16_t member,
                                              bool comes)
{
    if (fabric->record == NULL && comes && fabric->base.location[0] != '\0')
        fabric->record = make(fabric);
    return fabric->record == NULL ? NULL : &fabric->record->members[member];
}

void shm_attached_close(struct shm_fabric *fabric, bool remove)
{
    char path[SHM_ATTACHED_PATH_MAX];
    if (fabric->record == NULL)
        return;
    (void)munmap(fabric->record, sizeof(*fabric->record));
    fabric->record = NULL;
    if (!remove)
        return;
    find_path(fabric, path);
    struct found found;
    look(path, &found);
    if (of_window(&found, fabric->opened_id))
        (void)unlink(path);
    look_end(&found);
}
