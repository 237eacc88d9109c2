#include "server/parallel.h"

enum { WIDTH = 64 };

struct parallel {
    size_t next, count;
    bool (*fn_co)(void *context, size_t index);
    void *context;
    struct rt_countdown left;
};

static void run_calls_co(struct parallel *parallel)
{
    while (parallel->next < parallel->count) {
        if (!parallel->fn_co(parallel->context, parallel->next++))
            parallel->count = 0;
    }
}

static void worker(void *arg)
{
    struct parallel *parallel = arg;
    run_calls_co(parallel);
    rt_countdown_done(&parallel->left);
}

void parallel_co(struct server_thread *thread, size_t count,
                 bool (*fn_co)(void *context, size_t index), void *context)
{
    struct parallel parallel = {.count = count, .fn_co = fn_co, .context = context};
    unsigned workers = count < WIDTH ? (unsigned)count : WIDTH;

    if (!thread->overlap || workers <= 1) {
        run_calls_co(&parallel);
        return;
    }
    rt_countdown_init(&parallel.left, workers);
    for (unsigned i = 0; i < workers; i++) {
        if (rt_spawn(thread->loop, worker, &parallel) != PANDO_OK)
            worker(&parallel);
    }
    rt_countdown_wait_co(&parallel.left);
}
