/*
 * thread.c - a thread with a loop of its own.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "rt/rt_int.h"

struct rt_thread {
    pthread_t handle;
    struct rt_loop *loop;
    char name[16];
};

static void *thread_main(void *arg)
{
    struct rt_thread *thread = arg;
    pthread_setname_np(pthread_self(), thread->name);
    rt_loop_run(thread->loop);
    return NULL;
}

enum pando_status rt_thread_start(const char *name, rt_fn main, void *arg, struct rt_thread **out)
{
    struct rt_thread *thread = calloc(1, sizeof(*thread));
    if (thread == NULL)
        return PANDO_NO_MEMORY;
    snprintf(thread->name, sizeof(thread->name), "%s", name);
    thread->loop = rt_loop_create();
    if (thread->loop == NULL)
        goto err_free;
    if (rt_spawn(thread->loop, main, arg) != PANDO_OK)
        goto err_loop;
    *out = thread;
    if (pthread_create(&thread->handle, NULL, thread_main, thread) != 0)
        goto err_loop;
    return PANDO_OK;

err_loop:
    *out = NULL;
    thread->loop->live = 0; /* the first task never ran */
    rt_loop_destroy(thread->loop);
err_free:
    free(thread);
    return PANDO_NO_MEMORY;
}

struct rt_loop *rt_thread_loop(struct rt_thread *thread)
{
    return thread->loop;
}

void rt_thread_join(struct rt_thread *thread)
{
    int result = pthread_join(thread->handle, NULL);
    pando_assert(result == 0);
    rt_loop_destroy(thread->loop);
    free(thread);
}
