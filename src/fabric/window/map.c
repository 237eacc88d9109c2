/*
 * map.c - where a window's memory comes from.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/parse.h"
#include "fabric/window/file.h"
#include "rt/undumped.h"

static const uint64_t HUGE_BYTES = 2 * 1024 * 1024;

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static struct window_header *header_of(const struct window *window)
{
    return (struct window_header *)window->base;
}

static void set_sizes(struct window *window, uint64_t host_bytes, uint64_t device_bytes,
                      uint64_t page_bytes)
{
    pando_assert(host_bytes > WINDOW_FIRST && host_bytes < FABRIC_DEVICE);
    *window = (struct window){
        .host_bytes = host_bytes,
        .device_bytes = device_bytes,
        .mapped_bytes = round_up(host_bytes + device_bytes, page_bytes),
        .fd = -1,
    };
}

static void format(struct window *window, uint16_t node)
{
    *header_of(window) = (struct window_header){
        .version = WINDOW_VERSION,
        .node = node,
        .host_bytes = window->host_bytes,
        .device_bytes = window->device_bytes,
        .opened = 1,
        .id = rt_entropy() | 1,
    };
    /* The magic last: a half-formatted file is formatted again. */
    __atomic_store_n(&header_of(window)->magic, WINDOW_MAGIC, __ATOMIC_RELEASE);
}

uint64_t window_id(const struct window *window)
{
    return __atomic_load_n(&header_of(window)->id, __ATOMIC_ACQUIRE);
}

void window_set_id(struct window *window, uint64_t id)
{
    pando_assert(id != 0);
    __atomic_store_n(&header_of(window)->id, id, __ATOMIC_RELEASE);
}

void window_renew(const struct window *window)
{
    window_set_id((struct window *)(uintptr_t)window, rt_entropy() | 1);
}

/* A forked child must not write here after its parent was fenced. The data of users has no place in a
 * core dump, and could make it as large as the machine. */
static void after_mapping(struct window *window)
{
    rt_undumped(window->base, window->mapped_bytes);
    (void)madvise(window->base, window->mapped_bytes, MADV_DONTFORK);
    if (!window->huge)
        (void)madvise(window->base, window->mapped_bytes, MADV_HUGEPAGE);
}

enum pando_status window_map_private(struct window *window, uint16_t node, uint64_t host_bytes,
                                     uint64_t device_bytes)
{
    set_sizes(window, host_bytes, device_bytes, HUGE_BYTES);
    window->base = mmap(NULL, window->mapped_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (window->base == MAP_FAILED)
        return PANDO_NO_MEMORY;
    after_mapping(window);
    format(window, node);
    return PANDO_OK;
}

static bool map_fd(struct window *window, int fd)
{
    window->base =
        mmap(NULL, window->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (window->base == MAP_FAILED)
        return false;
    window->fd = fd;
    return true;
}

static bool map_new_memfd(struct window *window, unsigned flags)
{
    int fd = memfd_create("pando", MFD_CLOEXEC | flags);
    if (fd < 0)
        return false;
    /* Hugepages are reserved here and now, so that none is missing at a later access. */
    bool huge = (flags & MFD_HUGETLB) != 0;
    if (ftruncate(fd, (off_t)window->mapped_bytes) == 0 &&
        (!huge || fallocate(fd, 0, 0, (off_t)window->mapped_bytes) == 0) && map_fd(window, fd)) {
        window->huge = huge;
        return true;
    }
    close(fd);
    return false;
}

enum pando_status window_map_memfd(struct window *window, uint16_t node, uint64_t host_bytes,
                                   uint64_t device_bytes)
{
    set_sizes(window, host_bytes, device_bytes, HUGE_BYTES);
    /* Without reserved hugepages plain memory is better: the kernel makes large pages of it by
     * itself, which it seldom does for shared memory. */
    if (!map_new_memfd(window, MFD_HUGETLB))
        return window_map_private(window, node, host_bytes, device_bytes);
    after_mapping(window);
    format(window, node);
    return PANDO_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static enum pando_status check_existing(const struct window_header *header, uint16_t node,
                                        enum window_open how, uint64_t host_bytes,
                                        uint64_t device_bytes, const char *path, char *error,
                                        size_t error_bytes)
{
    if (header->version != WINDOW_VERSION) {
        snprintf(error, error_bytes,
                 "%s: window format version %u, this program has %u; " WINDOW_OLD_ADVICE, path,
                 header->version, WINDOW_VERSION);
        return PANDO_VERSION;
    }
    if (how != WINDOW_ATTACH && (header->node != node || header->host_bytes != host_bytes ||
                                 header->device_bytes != device_bytes)) {
        snprintf(
            error, error_bytes,
            "%s: holds node %u with %llu bytes, not node %u with %llu; give the same --node and "
            "--size, or another --shm to start empty",
            path, header->node, (unsigned long long)header->host_bytes, node,
            (unsigned long long)host_bytes);
        return PANDO_INVALID;
    }
    if (header->host_bytes <= WINDOW_FIRST || header->host_bytes >= FABRIC_DEVICE ||
        header->device_bytes > header->host_bytes)
        return window_file_fail(error, error_bytes, PANDO_CORRUPT, path, "damaged window header");
    return PANDO_OK;
}

/* Enough room in the file for the mapping; without it an access would end in SIGBUS. */
static bool file_resize(const struct window *window, const struct window_file *file,
                        enum window_open how)
{
    struct stat info;
    if (file->device)
        return true;
    if (!file->there)
        return window_file_grow(file, window->mapped_bytes, how == WINDOW_CREATE_RESERVED);
    return fstat(file->fd, &info) == 0 && (uint64_t)info.st_size >= window->mapped_bytes;
}

enum pando_status window_map_file(struct window *window, const char *path, enum window_open how,
                                  uint16_t node, uint64_t host_bytes, uint64_t device_bytes,
                                  char *error, size_t error_bytes)
{
    struct window_file file;
    enum pando_status status = window_file_open(&file, path, how, error, error_bytes);

    if (status != PANDO_OK)
        return status;
    if (file.there) {
        status = check_existing(&file.header, node, how, host_bytes, device_bytes, path, error,
                                error_bytes);
        if (status != PANDO_OK)
            goto err_close;
        host_bytes = file.header.host_bytes;
        device_bytes = file.header.device_bytes;
    }
    set_sizes(window, host_bytes, device_bytes, HUGE_BYTES);
    window->huge = file.huge;
    if (!file_resize(window, &file, how) || !map_fd(window, file.fd)) {
        status = window_file_fail_errno(error, error_bytes, path,
                                        "map it (is there room for its size?)");
        goto err_close;
    }
    after_mapping(window);
    window->reused = file.there;
    if (!file.there) {
        if (file.device) /* it may hold anything */
            memset(window->base, 0, WINDOW_FIRST);
        format(window, node);
    } else if (how != WINDOW_ATTACH) {
        header_of(window)->opened++;
    }
    return PANDO_OK;

err_close:
    close(file.fd);
    return status;
}

/* ---- windows whose memory is taken at once --------------------------------------------------- */

/* The pages that the kernel cannot give are missing now, and not when somebody writes to them. */
static bool pages_take(const struct window *window)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(window->base, window->mapped_bytes, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL) /* a kernel that does not know it: one by one */
        return false;
#endif
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    for (uint64_t at = 0; at < window->mapped_bytes; at += page)
        ((volatile uint8_t *)window->base)[at] = window->base[at];
    return true;
}

static enum pando_status refuse_size(uint64_t host_bytes, uint64_t free_bytes, const char *where,
                                     const char *also, char *error, size_t error_bytes)
{
    char asked[FORMAT_SIZE_MAX], there[FORMAT_SIZE_MAX];
    snprintf(error, error_bytes,
             "a window of %s is more than the %s that %s has free; ask for a smaller one%s",
             format_size(asked, sizeof(asked), host_bytes),
             format_size(there, sizeof(there), free_bytes), where, also);
    return PANDO_NO_MEMORY;
}

/* Where a file lies that is to be made there; false: it is not to be known. */
static bool folder_room(const char *path, char folder[FABRIC_LOCATION_MAX], uint64_t *out)
{
    struct statvfs volume;
    snprintf(folder, FABRIC_LOCATION_MAX, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder)
        return false;
    *slash = '\0';
    if (statvfs(folder, &volume) != 0)
        return false;
    *out = (uint64_t)volume.f_bavail * volume.f_frsize;
    return *out > 0; /* hugetlbfs without a limit of its own says 0 */
}

static enum pando_status check_reserve(const char *path, uint64_t host_bytes, char *error,
                                       size_t error_bytes)
{
    char folder[FABRIC_LOCATION_MAX];
    uint64_t free_bytes = rt_memory_free();
    if (host_bytes > free_bytes)
        return refuse_size(host_bytes, free_bytes, "this machine, or its control group,", "", error,
                           error_bytes);
    if (path != NULL && folder_room(path, folder, &free_bytes) && host_bytes > free_bytes)
        return refuse_size(host_bytes, free_bytes, folder,
                           ", or enlarge that (mount -o remount,size=SIZE)", error, error_bytes);
    return PANDO_OK;
}

enum pando_status window_map_served(struct window *window, const char *path, enum window_open how,
                                    uint16_t node, uint64_t host_bytes, uint64_t device_bytes,
                                    char *error, size_t error_bytes)
{
    bool reserved = how == WINDOW_CREATE_RESERVED;
    enum pando_status status =
        reserved ? check_reserve(path, host_bytes, error, error_bytes) : PANDO_OK;
    if (status != PANDO_OK)
        return status;
    if (path != NULL)
        return window_map_file(window, path, how, node, host_bytes, device_bytes, error,
                               error_bytes);
    status = window_map_private(window, node, host_bytes, device_bytes);
    if (status == PANDO_OK && reserved && !pages_take(window)) {
        window_unmap(window);
        status = PANDO_NO_MEMORY;
    }
    if (status != PANDO_OK)
        snprintf(error, error_bytes, "cannot map %llu bytes of memory",
                 (unsigned long long)host_bytes);
    return status;
}

void window_unmap(struct window *window)
{
    if (window->base == NULL)
        return;
    munmap(window->base, window->mapped_bytes);
    if (window->fd >= 0)
        close(window->fd);
    *window = (struct window){.fd = -1};
}
