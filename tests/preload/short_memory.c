/*
 * short_memory.c - memory that runs out in a real process: preloaded, it counts what the process asks for, and refuses
 * what another process says through a file of words (PANDO_SHORT_MEMORY).
 *
 *    0  8  requests so far
 *    8  8  refuse from this request on,   16  8  so many
 *   24  8  refuse every so-many-th; 0: none      32  8  refused so far
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct control {
    _Atomic uint64_t asked, from, count, every, refused;
};

static struct control *_Atomic control;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("PANDO_SHORT_MEMORY");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    long at =
        syscall(SYS_mmap, NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (at != -1)
        atomic_store(&control, (struct control *)at);
}

static bool refused(void)
{
    struct control *now = atomic_load(&control);
    if (now == NULL)
        return false;
    uint64_t number = atomic_fetch_add(&now->asked, 1), from = atomic_load(&now->from);
    uint64_t every = atomic_load(&now->every);
    bool refuse = (number >= from && number - from < atomic_load(&now->count)) ||
                  (every != 0 && number % every == 0);
    if (!refuse)
        return false;
    atomic_fetch_add(&now->refused, 1);
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return refused() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return refused() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return refused() ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return refused() ? NULL : __libc_memalign(alignment, size);
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    if ((flags & MAP_ANONYMOUS) != 0 && refused())
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
}
