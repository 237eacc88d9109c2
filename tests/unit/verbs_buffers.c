/*
 * Pieces of registered memory: never two at one place, all of it found again, and no piece too large.
 */
#include "fabric/verbs/buffers.h"

#include "base/prng.h"
#include "lib/check.h"

enum { PIECES = 64, ROUNDS = 200000 };

static struct buffers buffers;
static uint8_t *base;
static struct {
    uint8_t *at;
    uint32_t size;
} pieces[PIECES];

static bool overlap(unsigned a, unsigned b)
{
    return pieces[a].at < pieces[b].at + pieces[b].size &&
           pieces[b].at < pieces[a].at + pieces[a].size;
}

static void take(unsigned i, uint32_t size)
{
    pieces[i].at = buffers_take(&buffers, size);
    pieces[i].size = size;
    if (pieces[i].at == NULL)
        return;
    CHECK(pieces[i].at >= base && pieces[i].at + size <= base + BUFFERS_BYTES);
    CHECK((pieces[i].at - base) % 8 == 0);
    for (unsigned j = 0; j < PIECES; j++)
        CHECK(j == i || pieces[j].at == NULL || !overlap(i, j));
}

static void give(unsigned i)
{
    buffers_give(&buffers, pieces[i].at, pieces[i].size);
    pieces[i].at = NULL;
}

static void test_random(void)
{
    struct prng prng;
    unsigned refused = 0;
    prng_seed(&prng, 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned i = (unsigned)prng_below(&prng, PIECES);
        uint32_t most = prng_below(&prng, 8) == 0 ? 1 << 20 : 4000;
        if (pieces[i].at != NULL)
            give(i);
        else
            take(i, 1 + (uint32_t)prng_below(&prng, most));
        refused += pieces[i].at == NULL && pieces[i].size > 1 << 19;
    }
    CHECK(refused > 0);
    for (unsigned i = 0; i < PIECES; i++) {
        if (pieces[i].at != NULL)
            give(i);
    }
    CHECK_EQ_U64(buffers.used, 0);
}

static void test_edges(void)
{
    uint8_t *all = buffers_take(&buffers, BUFFERS_BYTES);
    CHECK(all == base && buffers_take(&buffers, 1) == NULL);
    buffers_give(&buffers, all, BUFFERS_BYTES);
    for (unsigned i = 0; i < BUFFERS_BLOCKS; i++)
        CHECK(buffers_take(&buffers, 1) != NULL);
    CHECK(buffers_take(&buffers, 1) == NULL);
    /* One hole of two blocks, at the very end. */
    buffers_give(&buffers, base + BUFFERS_BYTES - 2 * BUFFERS_BLOCK_BYTES, 2 * BUFFERS_BLOCK_BYTES);
    CHECK(buffers_take(&buffers, 2 * BUFFERS_BLOCK_BYTES + 1) == NULL);
    CHECK(buffers_take(&buffers, 2 * BUFFERS_BLOCK_BYTES) ==
          base + BUFFERS_BYTES - 2 * BUFFERS_BLOCK_BYTES);
}

int main(void)
{
    base = malloc(BUFFERS_BYTES);
    CHECK(base != NULL);
    buffers_init(&buffers, base);
    test_random();
    test_edges();
    free(base);
    return 0;
}
