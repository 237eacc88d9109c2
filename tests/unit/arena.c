#include "base/arena.h"

#include "base/prng.h"
#include "lib/check.h"

#define ALLOCATIONS 2000

static void test_alignment_and_overlap(void)
{
    struct arena arena;
    struct prng prng;
    static unsigned char *data[ALLOCATIONS];
    static size_t sizes[ALLOCATIONS];

    prng_seed(&prng, 7);
    arena_init(&arena, 4096);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < ALLOCATIONS; i++) {
            /* Some larger than a block. */
            sizes[i] = prng_below(&prng, prng_chance(&prng, 0.02) ? 20000 : 200);
            data[i] = arena_alloc(&arena, sizes[i]);
            CHECK(data[i] != NULL);
            CHECK_EQ_U64((uintptr_t)data[i] % ARENA_ALIGNMENT, 0);
            memset(data[i], i & 0xff, sizes[i]);
        }
        for (int i = 0; i < ALLOCATIONS; i++) {
            for (size_t k = 0; k < sizes[i]; k++)
                CHECK_EQ_U64(data[i][k], (uint64_t)(i & 0xff));
        }
        arena_reset(&arena);
    }
    arena_fini(&arena);
}

static void test_reset_keeps_the_first_block(void)
{
    struct arena arena;

    arena_init(&arena, 256);
    arena_reset(&arena);
    void *first = arena_alloc(&arena, 100);
    for (int i = 0; i < 100; i++)
        CHECK(arena_alloc(&arena, 100) != NULL);
    arena_reset(&arena);
    CHECK(arena_alloc(&arena, 100) == first);
    arena_fini(&arena);
    arena_fini(&arena);
}

/* 15 bytes are rounded to 16: sixteen of them fill a block of 256 to the last byte. */
static void test_block_is_filled(void)
{
    struct arena arena;

    arena_init(&arena, 256);
    char *previous = arena_alloc(&arena, 15);
    for (int i = 1; i < 16; i++) {
        char *next = arena_alloc(&arena, 15);
        CHECK_EQ_U64((uint64_t)(next - previous), 16);
        previous = next;
    }

    /* A large allocation does not retire a block that still has room. */
    char *small = arena_alloc(&arena, 16);
    CHECK(arena_alloc(&arena, 10000) != NULL);
    char *after = arena_alloc(&arena, 16);
    CHECK(after == small + 16);
    arena_fini(&arena);
}

static void test_impossible(void)
{
    struct arena arena;

    arena_init(&arena, 64);
    char *before = arena_alloc(&arena, 16);
    CHECK(arena_alloc(&arena, SIZE_MAX) == NULL);
    CHECK(arena_alloc(&arena, SIZE_MAX - 15) == NULL);
    CHECK(arena_alloc(&arena, 0) != NULL);
    char *after = arena_alloc(&arena, 16);
    CHECK(after == before + 16);
    arena_fini(&arena);
}

int main(void)
{
    test_alignment_and_overlap();
    test_reset_keeps_the_first_block();
    test_block_is_filled();
    test_impossible();
    return 0;
}
