/*
 * Frames: their latches, the mapping from addresses on many threads, and optimistic readers of a
 * page that writers change in place: who saw the same version before and after saw one state.
 */
#include "tree/dex/cache/frame.h"

#include <pthread.h>
#include <sched.h>

#include "base/prng.h"
#include "lib/check.h"

enum { THREADS = 4, FRAMES = 64, PAGE_BYTES = 1024 };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { MAPPING_ROUNDS = 20 * 1000, LATCH_ROUNDS = 1000, CHANGES = 10 * 1000 };
#else
enum { MAPPING_ROUNDS = 300 * 1000, LATCH_ROUNDS = 20 * 1000, CHANGES = 40 * 1000 };
#endif

static struct frames frames;

static void begin(void)
{
    CHECK_OK(frames_create(&frames, FRAMES, PAGE_BYTES));
}

static void run_threads(void *(*fn)(void *), unsigned count)
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, fn, (void *)(uintptr_t)i) == 0);
    for (unsigned i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* ---- frames ---------------------------------------------------------------------------------- */

static void test_places(void)
{
    begin();
    CHECK_EQ_U64(frames.count, FRAMES);
    for (uint32_t i = 0; i < FRAMES; i++) {
        frame_at(&frames, i)->address = i;
        CHECK_EQ_U64(atomic_load(&frame_at(&frames, i)->state), FRAME_FREE);
        memset(frame_bytes(&frames, i), (int)i, PAGE_BYTES);
        CHECK(frame_swizzled(frame_word(i)) && (uint32_t)frame_word(i) == i);
    }
    for (uint32_t i = 0; i < FRAMES; i++) { /* none lies over another */
        CHECK_EQ_U64(frame_at(&frames, i)->address, i);
        CHECK(frame_bytes(&frames, i)[0] == i && frame_bytes(&frames, i)[PAGE_BYTES - 1] == i);
    }
    frames_destroy(&frames);
}

static void test_latch(void)
{
    struct frame frame = {0};
    uint64_t before = frame_look(&frame);

    CHECK(!frame_held(before) && frame_same(&frame, before));
    CHECK(frame_take(&frame, before));
    CHECK(frame_held(frame_look(&frame)) && !frame_same(&frame, before));
    CHECK(!frame_take(&frame, before));             /* it is held */
    CHECK(!frame_take(&frame, frame_look(&frame))); /* and seen to be */
    CHECK(!frame_try(&frame));
    frame_give(&frame);
    CHECK(frame_same(&frame, before)); /* nothing was changed: who looked may go on */
    CHECK(frame_take(&frame, before));
    frame_give_changed(&frame);
    CHECK(!frame_held(frame_look(&frame)) && !frame_same(&frame, before));
    CHECK(!frame_take(&frame, before)); /* stale */
    CHECK(!frame_held(frame_look(&frame)));
    CHECK(frame_try(&frame));
    frame_give_changed(&frame);
    CHECK(frame_look(&frame) != before);
}

/* ---- waiting for a latch --------------------------------------------------------------------- */

static uint64_t counted; /* under the latch of frame 0 */

static void count_task(void *arg)
{
    struct frame *frame = frame_at(&frames, 0);
    (void)arg;
    for (int i = 0; i < LATCH_ROUNDS; i++) {
        frame_latch_co(&frames, frame);
        uint64_t now = counted;
        if (i % 64 == 0)
            rt_yield_co(); /* held across a suspension, as by who loads a page */
        counted = now + 1;
        if (i % 2 == 0)
            frame_give_changed(frame);
        else
            frame_give(frame);
    }
}

static void *count_thread(void *arg)
{
    struct rt_loop *loop = rt_loop_create();
    CHECK(loop != NULL);
    for (int i = 0; i < 2; i++)
        CHECK_OK(rt_spawn(loop, count_task, arg));
    rt_loop_run(loop);
    rt_loop_destroy(loop);
    return NULL;
}

static void test_latch_threads(void)
{
    begin();
    counted = 0;
    run_threads(count_thread, 2);
    CHECK_EQ_U64(counted, 2 * 2 * LATCH_ROUNDS);
    CHECK(!frame_held(frame_look(frame_at(&frames, 0))));
    frames_destroy(&frames);
}

/* ---- the mapping ----------------------------------------------------------------------------- */

/* With more pages than frames, so that chains are long; against a table of what is in. */
static void test_mapping(void)
{
    enum { ADDRESSES = 3 * FRAMES, ROUNDS = 100 * 1000 };
    uint32_t frame_of[ADDRESSES];
    bool entered[FRAMES] = {false};
    struct prng prng;

    begin();
    prng_seed(&prng, 1);
    memset(frame_of, 0xff, sizeof(frame_of));
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t index = (uint32_t)prng_below(&prng, FRAMES);
        uint64_t page = prng_below(&prng, ADDRESSES);
        struct frame *frame = frame_at(&frames, index);
        if (entered[index]) {
            page = frame->address / 1024;
            CHECK_EQ_U64(frame_find(&frames, frame->address), index);
            frame_remove(&frames, index);
            frame_of[page] = FRAME_NONE;
            entered[index] = false;
        } else {
            frame->address = page * 1024;
            entered[index] = frame_enter(&frames, index);
            CHECK(entered[index] == (frame_of[page] == FRAME_NONE));
            if (entered[index])
                frame_of[page] = index;
        }
        page = prng_below(&prng, ADDRESSES);
        CHECK_EQ_U64(frame_find(&frames, page * 1024), frame_of[page]);
    }
    frames_destroy(&frames);
}

/* Which frame stands for a page, one more than its number; 0: none. */
enum { PAGES = 24 };
static _Atomic uint32_t standing[PAGES];

static void enter_and_leave(uint32_t index, uint32_t page)
{
    struct frame *frame = frame_at(&frames, index);
    frame->address = page * 4096ul;
    if (!frame_enter(&frames, index))
        return;
    CHECK_EQ_U64(atomic_exchange(&standing[page], index + 1), 0);
    CHECK_EQ_U64(frame_find(&frames, page * 4096ul), index);
    CHECK(!frame_enter(&frames, index));
    CHECK_EQ_U64(atomic_exchange(&standing[page], 0), index + 1);
    frame_remove(&frames, index);
}

static void *mapping_thread(void *arg)
{
    uint32_t me = (uint32_t)(uintptr_t)arg;
    struct prng prng;
    prng_seed(&prng, me);
    for (int i = 0; i < MAPPING_ROUNDS; i++) {
        uint32_t index = me + THREADS * (uint32_t)prng_below(&prng, FRAMES / THREADS);
        enter_and_leave(index, (uint32_t)prng_below(&prng, PAGES));
        uint32_t found = frame_find(&frames, prng_below(&prng, PAGES) * 4096);
        CHECK(found == FRAME_NONE || (found < FRAMES && found % THREADS != me));
    }
    return NULL;
}

static void test_mapping_threads(void)
{
    begin();
    run_threads(mapping_thread, THREADS);
    for (uint32_t i = 0; i < PAGES; i++)
        CHECK_EQ_U64(frame_find(&frames, i * 4096ul), FRAME_NONE);
    frames_destroy(&frames);
}

/* ---- optimistic readers ---------------------------------------------------------------------- */

/*
 * The page's stamp is the sum of its keys and their number, and a value is made of its key and of
 * how often the page had been changed: what was read from two states does not add up.
 */
enum { KEYS = 200, KEY_BYTES = 8, VALUE_WORDS = 3, READERS = 2, WRITERS = 2 };

static struct page_layout layout;
static _Atomic int writers_left;
static _Atomic uint64_t changes, seen[READERS], disturbed[READERS];

static void write_stamp(uint8_t *bytes)
{
    uint8_t key[PAGE_KEY_ROOM];
    struct page_stamp stamp = {.epoch = page_pairs(bytes)};
    for (uint32_t i = 0; i < page_pairs(bytes); i++) {
        uint64_t number;
        memcpy(&number, page_key(&layout, bytes, i, key).data, sizeof(number));
        stamp.lsn += __builtin_bswap64(number);
    }
    page_set_stamp(bytes, stamp);
}

/* Puts a random key in, replaces its value or takes it out, as an engine does it. */
static void change(uint8_t *bytes, struct prng *prng, uint8_t *scratch)
{
    uint64_t number = prng_below(prng, KEYS), key = __builtin_bswap64(number);
    uint64_t value[VALUE_WORDS] = {number, hash_u64(number), prng_next(prng)};
    size_t size = layout.value_size != 0 ? sizeof(value) : 16 + 8 * prng_below(prng, 2);
    struct page_pair pair = {.key = slice_of(&key, sizeof(key)), .value = slice_of(value, size)};
    uint32_t index;

    bool found = page_find(&layout, bytes, pair.key, &index);
    if (found && prng_chance(prng, 0.3)) {
        page_remove(&layout, bytes, index);
    } else if (page_room(&layout, bytes, found ? index : UINT32_MAX, sizeof(key), size)) {
        if (found && page_update(&layout, bytes, index, &pair))
            return;
        if (found)
            page_remove(&layout, bytes, index);
        if (!page_insert(&layout, bytes, index, &pair)) {
            page_compact(&layout, bytes, scratch);
            CHECK(page_insert(&layout, bytes, index, &pair));
        }
    } else {
        page_remove(&layout, bytes, (uint32_t)prng_below(prng, page_pairs(bytes)));
    }
}

static bool readers_have_enough(void)
{
    bool enough = true;
    for (int i = 0; i < READERS; i++)
        enough = enough && atomic_load(&seen[i]) > 100 && atomic_load(&disturbed[i]) > 10;
    return enough;
}

static void *writer_thread(void *arg)
{
    static _Alignas(64) uint8_t scratch[WRITERS][PAGE_BYTES];
    struct frame *frame = frame_at(&frames, 1);
    uint8_t *bytes = frame_bytes(&frames, 1);
    uint32_t me = (uint32_t)(uintptr_t)arg;
    struct prng prng;

    prng_seed(&prng, 100 + me);
    /* Until the readers have met it all, on a busy machine too. */
    for (int i = 0; i < CHANGES || (!readers_have_enough() && i < 100 * CHANGES);) {
        if (!frame_try(frame)) {
            sched_yield();
            continue;
        }
        change(bytes, &prng, scratch[me]);
        write_stamp(bytes);
        frame_give_changed(frame);
        atomic_fetch_add(&changes, 1);
        if (++i % 32 == 0)
            sched_yield();
    }
    atomic_fetch_sub(&writers_left, 1);
    return NULL;
}

/* Whether it all adds up, which it need not when it was changed meanwhile. At `pause` pairs it lets
 * others run, as the machine may at any place. */
static bool read_page(const uint8_t *bytes, uint64_t pause)
{
    uint8_t to[PAGE_KEY_ROOM];
    uint64_t keys = 0, last = 0, value[VALUE_WORDS];
    uint32_t pairs = page_pairs(bytes);
    bool right = true, blob;

    struct page_stamp stamp = page_stamp(bytes);
    for (uint32_t i = 0; i < pairs && i < KEYS; i++) {
        uint64_t number = 0;
        if (i == pause)
            sched_yield();
        struct slice key = page_key(&layout, bytes, i, to);
        right = right && key.size == KEY_BYTES;
        memcpy(&number, to, sizeof(number));
        number = __builtin_bswap64(number);
        memset(value, 0, sizeof(value));
        uint32_t size = page_value(&layout, bytes, i, value, sizeof(value), &blob);
        right = right && (i == 0 || last < number) && size >= 16 && !blob && value[0] == number &&
                value[1] == hash_u64(number);
        last = number;
        keys += number;
    }
    return right && stamp.lsn == keys && stamp.epoch == pairs;
}

static bool read_one(const uint8_t *bytes, uint64_t number)
{
    uint64_t key = __builtin_bswap64(number), value[VALUE_WORDS] = {0};
    uint32_t index;
    bool blob;
    if (!page_find(&layout, bytes, slice_of(&key, sizeof(key)), &index))
        return true;
    (void)page_value(&layout, bytes, index, value, sizeof(value), &blob);
    return value[0] == number && value[1] == hash_u64(number);
}

static void *reader_thread(void *arg)
{
    const struct frame *frame = frame_at(&frames, 1);
    const uint8_t *bytes = frame_bytes(&frames, 1);
    uint32_t me = (uint32_t)(uintptr_t)arg;
    struct prng prng;

    prng_seed(&prng, me);
    while (atomic_load(&writers_left) > 0) {
        uint64_t version = frame_look(frame);
        if (frame_held(version))
            continue;
        bool right = prng_chance(&prng, 0.5) ? read_page(bytes, prng_below(&prng, 100))
                                             : read_one(bytes, prng_below(&prng, KEYS));
        if (!frame_same(frame, version)) {
            atomic_fetch_add(&disturbed[me], 1);
            continue;
        }
        CHECK(right);
        atomic_fetch_add(&seen[me], 1);
    }
    return NULL;
}

static void *reader_or_writer(void *arg)
{
    uintptr_t me = (uintptr_t)arg;
    return me < READERS ? reader_thread(arg) : writer_thread((void *)(me - READERS));
}

static void test_readers(uint32_t value_size)
{
    struct page_header header = {.address = 4096, .no_high = true};
    layout = (struct page_layout){.page_bytes = PAGE_BYTES,
                                  .key_size = KEY_BYTES,
                                  .value_size = value_size,
                                  .key_max = KEY_BYTES,
                                  .value_max = VALUE_WORDS * 8};
    CHECK_OK(page_layout_check(&layout));
    begin();
    page_init(&layout, &header, frame_bytes(&frames, 1));
    page_set_stamp(frame_bytes(&frames, 1), (struct page_stamp){0});
    atomic_store(&writers_left, WRITERS);
    atomic_store(&changes, 0);
    for (int i = 0; i < READERS; i++) {
        atomic_store(&seen[i], 0);
        atomic_store(&disturbed[i], 0);
    }
    run_threads(reader_or_writer, READERS + WRITERS);
    for (int i = 0; i < READERS; i++) {
        printf("reader %d: %" PRIu64 " states, disturbed %" PRIu64 " times\n", i,
               atomic_load(&seen[i]), atomic_load(&disturbed[i]));
    }
    CHECK(readers_have_enough());
    CHECK(read_page(frame_bytes(&frames, 1), UINT64_MAX));
    CHECK_EQ_U64(frame_look(frame_at(&frames, 1)), FRAME_STEP * atomic_load(&changes));
    frames_destroy(&frames);
}

int main(void)
{
    test_places();
    test_latch();
    test_latch_threads();
    test_mapping();
    test_mapping_threads();
    test_readers(VALUE_WORDS * 8); /* a page of words */
    test_readers(0);               /* a packed one */
    return 0;
}
