/*
 * usage.c - what this process has used of the machine.
 */
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rt/rt.h"

static void memory_of(struct rt_usage *out)
{
    char text[128] = "";
    unsigned long long resident, shared;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got <= 0 || sscanf(text, "%*u %llu %llu", &resident, &shared) != 2)
        return;
    out->resident_bytes = resident * page;
    out->private_bytes = shared < resident ? (resident - shared) * page : 0;
}

static uint64_t us_of(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
}

void rt_usage(struct rt_usage *out)
{
    struct rusage usage;
    *out = (struct rt_usage){0};
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        out->user_us = us_of(usage.ru_utime);
        out->system_us = us_of(usage.ru_stime);
    }
    memory_of(out);
#ifdef __GLIBC__
    struct mallinfo2 heap = mallinfo2();
    out->heap_bytes = heap.uordblks + heap.hblkhd;
#endif
}

void rt_heap_trim(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}

int rt_process_id(void)
{
    return (int)getpid();
}
