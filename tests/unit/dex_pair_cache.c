/*
 * Single pairs: what is kept is found, what is forgotten is not, a token is worthless once its bucket
 * was changed, what is used stays longer; keys change groups as these come and go; and with many threads,
 * while frames are lent and taken back and have other bytes meanwhile, no record is older than its pair.
 */
#include "tree/dex/cache/pair_cache.h"

#include <pthread.h>
#include <stdio.h>

#include "base/prng.h"
#include "lib/check.h"

enum { SLOTS = 7, SLOTS_AT = 2, BUCKET = 128, THREADS = 4, KEYS = 80, FRESH = 30 * 1000 };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { ROUNDS = 20 * 1000 };
#else
enum { ROUNDS = 300 * 1000 };
#endif

static struct frames frames;
static struct pair_cache records;

/* With so many groups of its own, of a bucket for each 128 bytes of a page, and frames that may be lent. */
static void create(uint32_t own, uint32_t lent, uint32_t page_bytes, uint32_t key_size,
                   uint32_t value_size)
{
    struct pair_cache_options options = {.bytes = (size_t)own * page_bytes,
                                         .lent_most = lent,
                                         .key_size = key_size,
                                         .value_size = value_size,
                                         .key_max = key_size != 0 ? key_size : 100,
                                         .value_max = value_size != 0 ? value_size : 300};
    CHECK_OK(frames_create(&frames, lent + FRESH, page_bytes));
    CHECK_OK(pair_cache_create(&records, &frames, &options));
}

static void destroy(void)
{
    pair_cache_destroy(&records);
    frames_destroy(&frames);
}

static bool get(struct slice key, uint64_t *value, struct pair_cache_token *token)
{
    size_t size = 0;
    pair_cache_ask(&records, key, token);
    bool found = pair_cache_get(&records, key, value, sizeof(*value), &size, token);
    CHECK(!found || size == sizeof(*value));
    return found;
}

static struct pair_cache_token token_for(uint64_t key)
{
    struct pair_cache_token token;
    uint64_t value;
    (void)get(slice_of(&key, sizeof(key)), &value, &token);
    return token;
}

static void keep(uint64_t key, uint64_t value, const struct pair_cache_token *token)
{
    struct slice bytes = slice_of(&key, sizeof(key));
    pair_cache_keep(&records, token, bytes, slice_of(&value, sizeof(value)));
}

static void keep_now(uint64_t key, uint64_t value)
{
    struct pair_cache_token token = token_for(key);
    keep(key, value, &token);
}

static bool has(uint64_t key, uint64_t expected)
{
    struct pair_cache_token token;
    uint64_t value = 0;
    if (!get(slice_of(&key, sizeof(key)), &value, &token))
        return false;
    CHECK_EQ_U64(value, expected);
    return true;
}

static void forget(struct slice key)
{
    struct pair_cache_token token;
    pair_cache_ask(&records, key, &token);
    pair_cache_forget(&records, key, &token);
}

static uint64_t hash_of(struct slice key)
{
    struct pair_cache_token token;
    pair_cache_ask(&records, key, &token);
    return token.hash;
}

/* ---- one thread ------------------------------------------------------------------------------ */

static void test_tickets(void)
{
    uint64_t seven = 7;
    create(0, 0, BUCKET, 8, 8);
    CHECK(records.memory == NULL); /* nothing is kept, nothing fails */
    keep_now(1, 10);
    CHECK(!has(1, 10));
    forget(slice_of(&seven, sizeof(seven)));
    CHECK(!pair_cache_grow(&records, 0) && pair_cache_shrink(&records) == FRAME_NONE);
    destroy();
    create(1, 1, 64, 8, 64);
    CHECK(records.memory == NULL); /* none fits */
    destroy();

    create(1, 0, BUCKET, 8, 8);
    CHECK_EQ_U64(records.slots, SLOTS);
    CHECK(!pair_cache_grow(&records, 0) && pair_cache_shrink(&records) == FRAME_NONE);
    struct pair_cache_token old = token_for(1);
    CHECK(old.room);
    keep_now(1, 10);
    CHECK(has(1, 10));
    keep(2, 20, &old); /* something was kept there since */
    CHECK(!has(2, 20));
    keep_now(1, 11);
    CHECK(has(1, 11));
    old = token_for(7);
    forget(slice_of(&seven, sizeof(seven)));
    keep(7, 70, &old); /* it was changed since, though it was not there */
    CHECK(!has(7, 70));
    CHECK(has(1, 11));
    uint64_t one = 1;
    forget(slice_of(&one, sizeof(one)));
    CHECK(!has(1, 11));
    keep_now(7, 71);
    old = token_for(8);
    pair_cache_forget_all(&records);
    CHECK(!has(7, 71));
    keep(8, 80, &old); /* of a key that stayed: what it replaces is gone all the same */
    CHECK(has(8, 80) && !has(7, 71));
    destroy();
}

/* The epoch is that of all buckets of a lent frame: keeping a pair in one must not bring back another's. */
static void test_buckets(void)
{
    enum { SOME = 40 };
    unsigned left = 0;
    create(1, 1, 4 * BUCKET, 8, 8);
    CHECK_EQ_U64(records.buckets, 4);
    CHECK(pair_cache_grow(&records, 0));
    for (uint64_t key = 0; key < SOME; key++)
        keep_now(key, key);
    for (uint64_t key = 0; key < SOME; key++)
        left += has(key, key);
    CHECK(left > SOME / 2);
    pair_cache_forget_all(&records);
    for (uint64_t key = SOME; key < 2 * SOME; key++) {
        keep_now(key, key);
        CHECK(has(key, key));
        for (uint64_t gone = 0; gone < SOME; gone++)
            CHECK(!has(gone, gone));
    }
    destroy();
}

/* What was forgotten with all others before its group was divided is not found after. */
static void test_forgotten_before_growing(void)
{
    create(1, 3, 2 * BUCKET, 8, 8);
    for (uint64_t key = 0; key < SLOTS; key++)
        keep_now(key, key);
    pair_cache_forget_all(&records);
    for (uint32_t frame = 0; frame < 3; frame++) {
        CHECK(pair_cache_grow(&records, frame));
        for (uint64_t key = 0; key < SLOTS; key++)
            CHECK(!has(key, key));
        keep_now(100 + frame, 1);
        CHECK(has(100 + frame, 1));
        pair_cache_forget_all(&records);
    }
    destroy();
}

/* What was asked for before groups came is not kept where nobody will forget it, and is forgotten where it is. */
static void test_asked_before_growing(void)
{
    enum { SOME = 6 };
    struct pair_cache_token old[SOME];
    uint64_t value;
    size_t size;

    create(1, 1, BUCKET, 8, 8);
    for (uint64_t key = 0; key < SOME; key++)
        pair_cache_ask(&records, slice_of(&key, sizeof(key)), &old[key]);
    CHECK(pair_cache_grow(&records, 0));
    for (uint64_t key = 0; key < SOME; key++) {
        struct slice bytes = slice_of(&key, sizeof(key));
        CHECK(!pair_cache_get(&records, bytes, &value, sizeof(value), &size, &old[key]));
        forget(bytes);
    }
    for (uint64_t key = 0; key < SOME; key++) {
        keep(key, 1, &old[key]);
        CHECK(!has(key, 1));
    }
    CHECK_EQ_U64(pair_cache_shrink(&records), 0);
    for (uint64_t key = 0; key < SOME; key++) {
        CHECK(!has(key, 1));
        keep_now(key, 2);
        pair_cache_ask(&records, slice_of(&key, sizeof(key)), &old[key]);
    }
    CHECK(pair_cache_grow(&records, 0));
    for (uint64_t key = 0; key < SOME; key++) {
        CHECK(has(key, 2));
        pair_cache_forget(&records, slice_of(&key, sizeof(key)), &old[key]);
        CHECK(!has(key, 2));
    }
    destroy();
}

static void test_replacement(void)
{
    create(1, 0, BUCKET, 8, 8);
    for (uint64_t key = 0; key < SLOTS; key++)
        keep_now(key, key);
    CHECK(!token_for(100).room);
    for (uint64_t key = 0; key < SLOTS; key++)
        CHECK(has(key, key));
    keep_now(100, 100); /* all were used as often: one goes, */
    keep_now(101, 101); /* and then another, as none is worth more than those that came last */
    unsigned left = 0;
    for (uint64_t key = 0; key < SLOTS; key++)
        left += has(key, key);
    CHECK_EQ_U64(left, SLOTS - 2);
    CHECK(has(101, 101));
    uint64_t used = has(3, 3) ? 3 : 4;
    for (int i = 0; i < 2; i++)
        CHECK(has(used, used) && has(100, 100));
    for (uint64_t key = 200; key < 210; key++)
        keep_now(key, key);
    CHECK(has(used, used) && has(100, 100)); /* there were others to replace */
    destroy();
}

/* Growing loses nothing; shrinking loses the last group; nothing comes back that was forgotten or lost. */
static void test_groups(void)
{
    enum { GROUPS = 7, SOME = 40 };
    uint64_t known[SOME] = {0};
    uint32_t unlent[GROUPS + 1], count = 0, found = 0;
    struct prng prng;

    create(1, GROUPS, BUCKET, 8, 8);
    for (uint32_t i = 0; i < GROUPS; i++)
        unlent[count++] = i;
    for (uint64_t key = 0; key < SLOTS; key++)
        keep_now(key, key + 1);
    while (count > 0) {
        CHECK(pair_cache_grow(&records, unlent[--count]));
        for (uint64_t key = 0; key < SLOTS; key++)
            CHECK(has(key, key + 1));
    }
    CHECK(!pair_cache_grow(&records, GROUPS)); /* as many as wanted */
    struct pair_cache_token old[SLOTS];
    for (uint64_t key = 0; key < SLOTS; key++)
        old[key] = token_for(key + 1000);
    while ((unlent[count] = pair_cache_shrink(&records)) != FRAME_NONE)
        count++;
    CHECK_EQ_U64(count, GROUPS);
    CHECK_EQ_U64(pair_cache_lent(&records), 0);
    for (uint64_t key = 0; key < SLOTS; key++)
        keep(key + 1000, 1, &old[key]); /* for a group that is no more, mostly */
    for (uint64_t key = 0; key < SLOTS; key++)
        found += has(key, key + 1);
    CHECK(found < SLOTS);

    prng_seed(&prng, 2);
    pair_cache_forget_all(&records);
    found = 0;
    for (uint64_t i = 1; i < 200 * 1000; i++) {
        uint64_t key = prng_next(&prng) % SOME, value = 0;
        struct slice bytes = slice_of(&key, sizeof(key));
        struct pair_cache_token token;
        switch (prng_next(&prng) % 8) {
        case 0:
            if (count > 0)
                CHECK(pair_cache_grow(&records, unlent[--count]));
            break;
        case 1:
            unlent[count] = pair_cache_shrink(&records);
            count += unlent[count] != FRAME_NONE;
            break;
        case 2:
        case 3:
            forget(bytes);
            known[key] = 0;
            break;
        default:
            if (get(bytes, &value, &token)) {
                CHECK_EQ_U64(value, known[key]);
                found++;
            } else {
                keep(key, i, &token);
                known[key] = i;
            }
        }
    }
    CHECK(found > 1000);
    destroy();
}

/* What was forgotten is not found again, whatever else lies beside it: of keys whose hashes begin alike. */
static void test_forgotten(void)
{
    uint64_t keys[12], known[12] = {0}; /* a value that may be found; 0: none */
    struct prng prng;
    unsigned found = 0, count = 0;

    prng_seed(&prng, 1);
    create(1, 0, BUCKET, 8, 8);
    for (uint64_t key = 0; count < 12; key++) {
        if (hash_of(slice_of(&key, sizeof(key))) >> 57 == 0)
            keys[count++] = key;
    }
    for (uint64_t i = 1; i < 100 * 1000; i++) {
        uint64_t number = prng_next(&prng) % 12, key = keys[number], value = 0;
        struct slice bytes = slice_of(&key, sizeof(key));
        struct pair_cache_token token;
        if (prng_next(&prng) % 2 == 0) {
            forget(bytes);
            known[number] = 0;
        } else if (get(bytes, &value, &token)) {
            CHECK_EQ_U64(value, known[number]);
            found++;
        } else {
            keep(key, i, &token);
            known[number] = i;
        }
    }
    CHECK(found > 100);
    destroy();
}

/* Keys that begin alike and whose hashes have the same tag are told apart by the rest of them. */
static void test_alike(uint32_t key_size)
{
    struct {
        uint64_t begin, rest;
    } kept = {1, 0}, other = {1, 1};
    struct slice a = slice_of(&kept, sizeof(kept)), b = slice_of(&other, sizeof(other));
    struct pair_cache_token token;
    uint64_t value = 5, out = 0;

    create(1, 0, 1024, key_size, key_size != 0 ? 8 : 0);
    while (hash_of(b) >> 56 != hash_of(a) >> 56)
        other.rest++;
    CHECK(!get(a, &out, &token));
    pair_cache_keep(&records, &token, a, slice_of(&value, sizeof(value)));
    CHECK(get(a, &out, &token) && out == value);
    CHECK(!get(b, &out, &token));
    forget(b);
    CHECK(get(a, &out, &token) && out == value);
    destroy();
}

static void test_varying(void)
{
    uint8_t value[300] = {1, 2, 3}, out[300];
    char key[100];
    size_t size;
    struct pair_cache_token token;

    create(64, 0, 1024, 0, 0);
    for (int i = 0; i < 100; i++) {
        struct slice bytes = slice_of(key, (size_t)snprintf(key, sizeof(key), "%0*d", i, i));
        struct slice pair = slice_of(value, (size_t)i * 3);
        pair_cache_ask(&records, bytes, &token);
        CHECK(!pair_cache_get(&records, bytes, out, sizeof(out), &size, &token));
        pair_cache_keep(&records, &token, bytes, pair);
        bool fits = bytes.size + pair.size <= 124;
        CHECK(pair_cache_get(&records, bytes, out, sizeof(out), &size, &token) == fits);
        CHECK(!fits || slice_equal(slice_of(out, size), pair));
    }
    struct slice empty = slice_of(NULL, 0);
    pair_cache_ask(&records, empty, &token);
    (void)pair_cache_get(&records, empty, out, sizeof(out), &size, &token);
    pair_cache_keep(&records, &token, empty, slice_of(value, 3));
    CHECK(pair_cache_get(&records, empty, out, 2, &size, &token) && size == 3);
    forget(empty);
    CHECK(!pair_cache_get(&records, empty, out, 2, &size, &token));
    destroy();
}

/* ---- many ------------------------------------------------------------------------------------ */

/* A pair as in a leaf: read and changed under its latch. */
static struct pair {
    pthread_mutex_t latch;
    uint64_t value;
    _Atomic uint64_t told; /* a change that its writer has ended */
} pairs[KEYS];

static void *work(void *argument)
{
    struct prng prng;
    prng_seed(&prng, (uint64_t)(uintptr_t)argument);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t key = prng_next(&prng) % KEYS, value = 0;
        struct slice bytes = slice_of(&key, sizeof(key));
        struct pair *pair = &pairs[key];
        struct pair_cache_token token;
        if (prng_next(&prng) % 4 == 0) {
            pthread_mutex_lock(&pair->latch);
            forget(bytes);
            uint64_t mine = ++pair->value;
            pthread_mutex_unlock(&pair->latch);
            uint64_t told = atomic_load(&pair->told);
            while (told < mine && !atomic_compare_exchange_weak(&pair->told, &told, mine))
                ;
            continue;
        }
        uint64_t told = atomic_load(&pair->told);
        if (!get(bytes, &value, &token)) {
            pthread_mutex_lock(&pair->latch);
            value = pair->value;
            pthread_mutex_unlock(&pair->latch);
            keep(key, value, &token);
        }
        CHECK(value >= told);
    }
    return NULL;
}

enum { GROUPS_MOST = 6 };

/* What lies in a frame that is not lent: just what lay there, but for values older than any. */
struct unlent {
    uint32_t frame;
    uint64_t words[BUCKET / 8];
};

static _Atomic uint64_t *words_of(uint32_t frame)
{
    return (_Atomic uint64_t *)(void *)frame_bytes(&frames, frame);
}

static void scribble(struct unlent *unlent)
{
    _Atomic uint64_t *words = words_of(unlent->frame);
    for (unsigned i = 0; i < SLOTS; i++)
        atomic_store_explicit(&words[SLOTS_AT + 2 * i + 1], 0, memory_order_relaxed);
    for (unsigned i = 0; i < BUCKET / 8; i++)
        unlent->words[i] = atomic_load_explicit(&words[i], memory_order_relaxed);
}

/* Of a frame that was never lent: a page that looks like records of keys there are, older than any. */
static void pretend(uint32_t frame)
{
    _Atomic uint64_t *words = words_of(frame);
    for (uint64_t i = 0, key = frame % (KEYS / SLOTS); i < SLOTS; i++, key += KEYS / SLOTS) {
        uint64_t tag = hash_of(slice_of(&key, sizeof(key))) >> 56 & 0xfc;
        words[1] |= (tag != 0 ? tag : 4) << i * 8;
        words[SLOTS_AT + 2 * i] = key;
    }
}

/* Nobody who came late has written there. */
static void check_intact(const struct unlent *unlent)
{
    for (unsigned i = 0; i < BUCKET / 8; i++)
        CHECK_EQ_U64(words_of(unlent->frame)[i], unlent->words[i]);
}

static atomic_bool ended;

static void *lend(void *argument)
{
    struct unlent unlent[GROUPS_MOST + 1] = {0};
    uint32_t count = 0, fresh = 0;
    struct prng prng;
    prng_seed(&prng, 1000);
    while (!atomic_load(&ended)) {
        bool grows = prng_next(&prng) % 2 == 0 && pair_cache_lent(&records) < GROUPS_MOST;
        if (grows && fresh < FRESH) {
            pretend(fresh);
            CHECK(pair_cache_grow(&records, fresh++));
        } else if (grows && count > 0) {
            check_intact(&unlent[--count]);
            CHECK(pair_cache_grow(&records, unlent[count].frame));
        } else if ((unlent[count].frame = pair_cache_shrink(&records)) != FRAME_NONE) {
            scribble(&unlent[count]);
            count += count < GROUPS_MOST;
        }
    }
    return argument;
}

static void test_threads(void)
{
    pthread_t threads[THREADS], lender;
    create(2, GROUPS_MOST, BUCKET, 8, 8); /* a few more pairs than fit */
    CHECK(pthread_create(&lender, NULL, lend, NULL) == 0);
    for (int i = 0; i < KEYS; i++)
        pthread_mutex_init(&pairs[i].latch, NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&ended, true);
    pthread_join(lender, NULL);
    destroy();
}

int main(void)
{
    test_tickets();
    test_buckets();
    test_forgotten_before_growing();
    test_asked_before_growing();
    test_replacement();
    test_groups();
    test_forgotten();
    test_alike(16);
    test_alike(0);
    test_varying();
    test_threads();
    return 0;
}
