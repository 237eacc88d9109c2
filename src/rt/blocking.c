/*
 * blocking.c - a few threads, started on first use, that run what would block a loop.
 *
 * The pool belongs to the process: this and the log are the only global state, and both lie below
 * everything that could be opened twice.
 */
#include "rt/blocking.h"

#include <pthread.h>

#include "base/assert.h"
#include "rt/rt_int.h"

enum { THREADS_MAX = 4 };

struct job {
    struct list link;
    rt_fn fn;
    void *arg;
    struct rt_task *task;
    atomic_bool done;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct list jobs = {&jobs, &jobs};
static int threads;
static int idle;

static void *offload_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mutex);
    for (;;) {
        struct list *link = list_pop_front(&jobs);
        if (link == NULL) {
            idle++;
            pthread_cond_wait(&work, &mutex);
            idle--;
            continue;
        }
        struct job *job = container_of(link, struct job, link);
        struct rt_task *task = job->task;
        pthread_mutex_unlock(&mutex);
        job->fn(job->arg);
        /* The mutex keeps the waiter from ending between "done" and the unpark. */
        pthread_mutex_lock(&mutex);
        atomic_store_explicit(&job->done, true, memory_order_release);
        rt_unpark(task);
    }
    return NULL;
}

/* With the mutex held. */
static enum pando_status thread_for_job(void)
{
    pthread_t thread;
    if (idle > 0 || threads == THREADS_MAX)
        return PANDO_OK;
    if (pthread_create(&thread, NULL, offload_main, NULL) != 0)
        return threads > 0 ? PANDO_OK : PANDO_NO_MEMORY;
    pthread_detach(thread);
    threads++;
    return PANDO_OK;
}

enum pando_status rt_blocking_real_co(struct rt_loop *loop, rt_fn fn, void *arg)
{
    struct job job = {.fn = fn, .arg = arg, .task = loop->current};

    pthread_mutex_lock(&mutex);
    enum pando_status status = thread_for_job();
    if (status == PANDO_OK) {
        list_push_back(&jobs, &job.link);
        pthread_cond_signal(&work);
    }
    pthread_mutex_unlock(&mutex);
    if (status != PANDO_OK)
        return status;

    while (!atomic_load_explicit(&job.done, memory_order_acquire))
        (void)rt_park_co(RT_NEVER);
    /* Wait until the helper thread has let go of the task. */
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return PANDO_OK;
}
