/*
 * stack.c - stacks with a guard page below each, mapped in slabs and pooled per loop.
 *
 * The struct rt_task lies at the top of its stack, so that a task is one allocation, and a recently
 * ended one is still in the cache when the next starts.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "rt/rt_int.h"

#ifdef RT_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_STACK_REGISTER(start, end) 0
#define VALGRIND_STACK_DEREGISTER(id)       ((void)(id))
#endif

#if defined(RT_ASAN) || defined(RT_TSAN)
enum { STACK_BYTES = 4 * RT_STACK_BYTES };
#else
enum { STACK_BYTES = RT_STACK_BYTES };
#endif
enum {
    GUARD_BYTES = 4096,
    SLAB_STACKS = 16,
    /* Stacks begin at different places of a page. All at the same, the hot ends of many stacks would
     * share a few sets of the first-level cache and push each other out. */
    COLORS = 31,
    COLOR_BYTES = 128,
    OTHER_TIMERS = 1024, /* of a loop, besides one for each task */
};

struct slab {
    struct list link;
    char *base;
    unsigned valgrind_ids[SLAB_STACKS];
};

static struct rt_task *task_of(char *stack)
{
    uintptr_t color = (uintptr_t)stack / (STACK_BYTES + GUARD_BYTES) % COLORS * COLOR_BYTES;
    uintptr_t top = (uintptr_t)stack + STACK_BYTES - sizeof(struct rt_task) - color;
    return (struct rt_task *)(top & ~(uintptr_t)63);
}

static bool slab_map(struct rt_loop *loop)
{
    size_t stride = STACK_BYTES + GUARD_BYTES;
    /* A task can always wait for a time: its timer's place is there before it is. */
    if (!heap_reserve(loop->timers,
                      loop->live + loop->free_count + (size_t)SLAB_STACKS + OTHER_TIMERS))
        return false;
    struct slab *slab = calloc(1, sizeof(*slab));
    if (slab == NULL)
        return false;
    slab->base = mmap(NULL, stride * SLAB_STACKS, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (slab->base == MAP_FAILED)
        goto err_free;
    for (int i = 0; i < SLAB_STACKS; i++) {
        if (mprotect(slab->base + (size_t)i * stride, GUARD_BYTES, PROT_NONE) != 0)
            goto err_unmap;
    }
    for (int i = 0; i < SLAB_STACKS; i++) {
        char *stack = slab->base + (size_t)i * stride + GUARD_BYTES;
        struct rt_task *task = task_of(stack);
        task->context.stack_bottom = stack;
        task->context.stack_bytes = (size_t)((char *)task - stack);
        slab->valgrind_ids[i] = VALGRIND_STACK_REGISTER(stack, (char *)task);
        rt_stack_give(loop, task);
    }
    list_push_back(&loop->slabs, &slab->link);
    return true;

err_unmap:
    munmap(slab->base, stride * SLAB_STACKS);
err_free:
    free(slab);
    return false;
}

struct rt_task *rt_stack_take(struct rt_loop *loop)
{
    if (loop->free_tasks == NULL && !slab_map(loop))
        return NULL;
    struct rt_task *task = loop->free_tasks;
    loop->free_tasks = task->next;
    loop->free_count--;
    return task;
}

void rt_stack_give(struct rt_loop *loop, struct rt_task *task)
{
    task->next = loop->free_tasks;
    loop->free_tasks = task;
    loop->free_count++;
}

void rt_stack_unmap_all(struct rt_loop *loop)
{
    struct list *link;
    while ((link = list_pop_front(&loop->slabs)) != NULL) {
        struct slab *slab = container_of(link, struct slab, link);
        for (int i = 0; i < SLAB_STACKS; i++) {
            char *stack = slab->base + (size_t)i * (STACK_BYTES + GUARD_BYTES) + GUARD_BYTES;
#ifdef RT_TSAN
            if (task_of(stack)->context.tsan_fiber != NULL)
                __tsan_destroy_fiber(task_of(stack)->context.tsan_fiber);
#endif
            (void)stack;
            VALGRIND_STACK_DEREGISTER(slab->valgrind_ids[i]);
        }
        munmap(slab->base, (STACK_BYTES + GUARD_BYTES) * (size_t)SLAB_STACKS);
        free(slab);
    }
    loop->free_tasks = NULL;
    loop->free_count = 0;
}
