/*
 * map.c - where a window's memory comes from.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
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
    return header_of(window)->id;
}

void window_set_id(struct window *window, uint64_t id)
{
    pando_assert(id != 0);
    header_of(window)->id = id;
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
static bool file_resize(const struct window *window, const struct window_file *file)
{
    struct stat info;
    if (file->device)
        return true;
    if (!file->there)
        return window_file_grow(file, window->mapped_bytes);
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
    if (!file_resize(window, &file) || !map_fd(window, file.fd)) {
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

enum pando_status window_map_served(struct window *window, const char *path, bool dax,
                                    uint16_t node, uint64_t host_bytes, uint64_t device_bytes,
                                    char *error, size_t error_bytes)
{
    if (path != NULL)
        return window_map_file(window, path, dax ? WINDOW_CREATE_DAX : WINDOW_CREATE, node,
                               host_bytes, device_bytes, error, error_bytes);
    enum pando_status status = window_map_private(window, node, host_bytes, device_bytes);
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
