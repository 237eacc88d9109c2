/*
 * pages.c - large memory: mapped, zeroed, in large pages where the kernel has them.
 */
#include <sys/mman.h>

#include "rt/rt.h"

enum { HUGE_BYTES = 2 * 1024 * 1024 };

static size_t mapped_bytes(size_t bytes)
{
    size_t unit = bytes >= HUGE_BYTES ? HUGE_BYTES : 4096;
    return (bytes + unit - 1) / unit * unit;
}

void *rt_pages_map(size_t bytes)
{
    size_t mapped = mapped_bytes(bytes), extra = mapped >= HUGE_BYTES ? HUGE_BYTES : 0;
    char *base = mmap(NULL, mapped + extra, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    if (extra == 0)
        return base;
    /* Begin where a large page can. */
    size_t skip = (HUGE_BYTES - (uintptr_t)base % HUGE_BYTES) % HUGE_BYTES;
    if (skip > 0)
        (void)munmap(base, skip);
    if (extra > skip)
        (void)munmap(base + skip + mapped, extra - skip);
    (void)madvise(base + skip, mapped, MADV_HUGEPAGE);
    return base + skip;
}

void rt_pages_unmap(void *pages, size_t bytes)
{
    if (pages != NULL)
        (void)munmap(pages, mapped_bytes(bytes));
}

void *rt_pages_map_sparse(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED)
        return NULL;
    (void)madvise(pages, bytes, MADV_NOHUGEPAGE);
    return pages;
}

void rt_pages_unmap_sparse(void *pages, size_t bytes)
{
    if (pages != NULL)
        (void)munmap(pages, bytes);
}
