/*
 * The frames that may go next: first in, first out within a queue, removal, the queue for all, and
 * threads that add and take at the same time without losing or doubling a frame.
 */
#include "tree/dex/cache/cooling.h"

#include <pthread.h>

#include "base/prng.h"
#include "lib/check.h"
#include "tree/dex/cache/frame.h"

enum { THREADS = 4, QUEUE = 6 };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 20 * 1000 };
#else
enum { ROUNDS = 300 * 1000 };
#endif

static struct cooling cooling;

static void add(uint32_t frame, uint32_t expected)
{
    CHECK_EQ_U64(cooling_add(&cooling, frame * 1024ul, frame), expected);
}

static bool taken_out(uint32_t frame)
{
    return cooling_remove(&cooling, frame * 1024ul, frame);
}

static void oldest_is(uint32_t expected)
{
    CHECK_EQ_U64(cooling_oldest(&cooling, 0), expected);
}

/* ---- one queue ------------------------------------------------------------------------------- */

/* Of so few frames there is one queue either way. */
static void test_order(bool single)
{
    CHECK_OK(cooling_create(&cooling, QUEUE - 1, single));
    oldest_is(FRAME_NONE);
    CHECK(!taken_out(3));
    for (uint32_t i = 0; i < QUEUE; i++)
        add(i, FRAME_NONE);
    add(6, 0); /* pushes out the oldest */
    CHECK(!taken_out(0));
    CHECK(taken_out(3));
    CHECK(!taken_out(3));
    oldest_is(1);
    oldest_is(2);
    oldest_is(4); /* 3 is gone */
    add(7, FRAME_NONE);
    CHECK(taken_out(7)); /* the youngest */
    CHECK(taken_out(5)); /* the oldest */
    oldest_is(6);
    oldest_is(FRAME_NONE);
    cooling_destroy(&cooling);
}

/* Nothing is pushed out while there is room for it. */
static void test_room_of_the_oldest(bool single)
{
    CHECK_OK(cooling_create(&cooling, QUEUE - 1, single));
    for (uint32_t i = 0; i < QUEUE; i++)
        add(i, FRAME_NONE);
    CHECK(taken_out(0));
    CHECK(taken_out(1));
    add(6, FRAME_NONE);
    add(7, FRAME_NONE);
    add(8, 2);
    oldest_is(3);
    cooling_destroy(&cooling);
}

/* ---- many ------------------------------------------------------------------------------------ */

/* Every frame comes out once: pushed out, taken out, or as the oldest of some queue. */
static void test_many(bool single)
{
    enum { MANY = 1000 };
    bool in[MANY] = {false};
    uint32_t count = 0;
    struct prng prng;

    prng_seed(&prng, 7);
    CHECK_OK(cooling_create(&cooling, MANY / 2, single));
    for (int i = 0; i < 50 * 1000; i++) {
        uint32_t frame = (uint32_t)prng_below(&prng, MANY), out = FRAME_NONE;
        if (!in[frame]) {
            out = cooling_add(&cooling, frame * 1024ul, frame);
            in[frame] = true;
            count++;
        } else if (prng_chance(&prng, 0.5)) {
            CHECK(taken_out(frame));
            CHECK(!taken_out(frame));
            out = frame;
        } else {
            out = cooling_oldest(&cooling, prng_next(&prng));
        }
        if (out != FRAME_NONE) {
            CHECK(out < MANY && in[out]);
            in[out] = false;
            count--;
        }
    }
    CHECK(count > 0);
    for (uint32_t queue = 0; queue < MANY; queue++) {
        for (uint32_t out; (out = cooling_oldest(&cooling, queue)) != FRAME_NONE; count--) {
            CHECK(out < MANY && in[out]);
            in[out] = false;
        }
    }
    CHECK_EQ_U64(count, 0);
    cooling_destroy(&cooling);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* A frame is one thread's or in a queue, and whoever gets it out has it. */
enum { SHARED = 64 };
static _Atomic bool owned[SHARED];

static void own(uint32_t frame)
{
    CHECK(frame < SHARED && !atomic_exchange(&owned[frame], true));
}

static void *thread_main(void *arg)
{
    uint32_t mine[SHARED], count = 0, me = (uint32_t)(uintptr_t)arg;
    struct prng prng;

    prng_seed(&prng, me);
    for (uint32_t frame = me; frame < SHARED; frame += THREADS)
        mine[count++] = frame;
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t out, frame = (uint32_t)prng_below(&prng, SHARED);
        if (count > 0 && prng_chance(&prng, 0.5)) {
            frame = mine[--count];
            CHECK(atomic_exchange(&owned[frame], false));
            out = cooling_add(&cooling, frame * 1024ul, frame);
        } else if (prng_chance(&prng, 0.5)) {
            out = taken_out(frame) ? frame : FRAME_NONE;
        } else {
            out = cooling_oldest(&cooling, prng_next(&prng));
        }
        if (out != FRAME_NONE) {
            own(out);
            mine[count++] = out;
        }
    }
    return NULL;
}

static void test_threads(bool single)
{
    pthread_t threads[THREADS];
    CHECK_OK(cooling_create(&cooling, SHARED / 2, single));
    for (uint32_t i = 0; i < SHARED; i++)
        atomic_store(&owned[i], true);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, thread_main, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (uint32_t queue = 0; queue < SHARED; queue++) {
        for (uint32_t out; (out = cooling_oldest(&cooling, queue)) != FRAME_NONE;)
            own(out);
    }
    for (uint32_t i = 0; i < SHARED; i++)
        CHECK(atomic_load(&owned[i])); /* none is lost */
    cooling_destroy(&cooling);
}

int main(void)
{
    for (int single = 0; single < 2; single++) {
        test_order(single);
        test_room_of_the_oldest(single);
        test_many(single);
        test_threads(single);
    }
    return 0;
}
