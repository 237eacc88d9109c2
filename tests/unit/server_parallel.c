/* A command of many keys: all are done, and after one that failed no other is begun. */
#include "lib/check.h"
#include "server/parallel.h"

enum { KEYS = 500, NONE = KEYS };

struct keys {
    struct server_thread thread;
    size_t failing; /* NONE: all are well */
    unsigned begun, under_way, most;
    bool done[KEYS];
};

static bool one_co(void *context, size_t index)
{
    struct keys *keys = context;
    keys->begun++;
    keys->under_way++;
    keys->most = keys->under_way > keys->most ? keys->under_way : keys->most;
    rt_sleep_co(10 * RT_NS_PER_US);
    keys->under_way--;
    keys->done[index] = true;
    return index != keys->failing;
}

static void all_task(void *arg)
{
    struct keys *keys = arg;
    keys->thread.loop = rt_loop_self();
    parallel_co(&keys->thread, KEYS, one_co, keys);
    CHECK(keys->under_way == 0);
}

static void run(struct keys *keys, bool overlap, size_t failing)
{
    struct rt_loop *loop = rt_loop_create();
    CHECK(loop != NULL);
    *keys = (struct keys){.thread = {.overlap = overlap}, .failing = failing};
    CHECK_OK(rt_loop_call(loop, all_task, keys));
    rt_loop_destroy(loop);
}

int main(void)
{
    static struct keys keys;
    for (int overlap = 0; overlap < 2; overlap++) {
        run(&keys, overlap != 0, NONE);
        CHECK_EQ_U64(keys.begun, KEYS);
        for (size_t i = 0; i < KEYS; i++)
            CHECK(keys.done[i]);
        CHECK(overlap != 0 ? keys.most > 1 : keys.most == 1);
        run(&keys, overlap != 0, 100);
        CHECK(keys.done[100]);
        CHECK(keys.begun <= 100 + 2 * keys.most); /* only what overlapped with it */
    }
    return 0;
}
