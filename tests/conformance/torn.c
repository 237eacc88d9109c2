/*
 * torn.c - what a READ may see of a concurrent WRITE: rule 1 of fabric.h, both ways.
 */
#include <stdatomic.h>

#include "base/crc32c.h"
#include "conformance/suite.h"

/* ---- words are whole ------------------------------------------------------------------------- */

enum {
    WORDS = 512,
    WRITERS = 2,
    TORN_CLIENTS = 4, /* the others read */
};

struct torn_run {
    _Atomic unsigned writers_left;
    _Atomic uint64_t words_changed; /* that readers saw */
};

static uint64_t word_make(uint32_t half)
{
    return (uint64_t)half << 32 | (uint32_t)~half;
}

static bool word_whole(uint64_t word)
{
    return word == word_make((uint32_t)(word >> 32));
}

/* Ragged transfers may cut the first and the last word, so that nobody looks at these. */
static void torn_write_co(struct client *client, uint64_t *image)
{
    uint64_t first = 1 + rt_random() % (WORDS - 2);
    uint64_t count = 1 + rt_random() % (WORDS - 1 - first);
    uint8_t *bytes = (uint8_t *)image;

    for (unsigned i = 0; i < WORDS; i++)
        image[i] = word_make((uint32_t)rt_random());
    if (rt_random() % 2 == 0)
        write_co(client, AT + 8 * first, bytes + 8 * first, (uint32_t)(8 * count));
    else
        write_co(client, AT + 5, bytes + 5, 8 * WORDS - 5 - 3);
}

static void torn_read_co(struct client *client, uint64_t *image, uint64_t *last)
{
    struct torn_run *run = client->arg;
    uint32_t cut = rt_random() % 2 == 0 ? 0 : 3;

    read_co(client, AT + cut, (uint8_t *)image + cut, 8 * WORDS - 2 * cut);
    for (unsigned i = 1; i < WORDS - 1; i++) {
        if (!word_whole(image[i]))
            CHECK_FAIL("word %u is torn: 0x%016" PRIx64, i, image[i]);
    }
    if (image[1] != *last)
        atomic_fetch_add(&run->words_changed, 1);
    *last = image[1];
}

static void torn_client(struct client *client)
{
    struct torn_run *run = client->arg;
    uint64_t image[WORDS], last = 0;

    if (client->index >= WRITERS) {
        while (atomic_load(&run->writers_left) > 0) {
            torn_read_co(client, image, &last);
        }
        return;
    }
    for (unsigned i = env_rounds(client->env, 40); i > 0; i--)
        torn_write_co(client, image);
    atomic_fetch_sub(&run->writers_left, 1);
}

static void words_whole_at_first(struct client *client)
{
    fill_words_co(client, AT, word_make(1), WORDS);
}

static void words_never_torn(struct env *env)
{
    struct torn_run run = {.writers_left = WRITERS};
    suite_clients(env, 1, words_whole_at_first, NULL);
    suite_clients(env, TORN_CLIENTS, torn_client, &run);
    CHECK(run.words_changed > 0);
}

/* ---- everything longer is not ---------------------------------------------------------------- */

enum { CELL_BYTES = 256 };

struct cell {
    uint32_t crc; /* of all that follows */
    uint32_t number;
    uint8_t payload[CELL_BYTES - 8];
};
_Static_assert(sizeof(struct cell) == CELL_BYTES, "no padding");

struct cell_run {
    _Atomic bool stop;
    uint64_t reads;
    uint64_t mixed;    /* not what any one WRITE wrote */
    uint64_t accepted; /* passed the check */
    uint64_t accepted_mixed;
};

static uint32_t cell_crc(const struct cell *cell)
{
    return crc32c(0, &cell->number, CELL_BYTES - 4);
}

static void cell_make(struct cell *cell, uint32_t number)
{
    cell->number = number;
    memset(cell->payload, (int)(number % 251), sizeof(cell->payload));
    cell->crc = cell_crc(cell);
}

static bool cell_is(const struct cell *cell, uint32_t number)
{
    struct cell expected;
    cell_make(&expected, number);
    return memcmp(cell, &expected, sizeof(expected)) == 0;
}

static void cell_write(struct client *client, struct cell_run *run)
{
    struct cell cell;
    for (uint32_t n = 1; n <= env_rounds(client->env, 200); n++) {
        cell_make(&cell, n);
        write_co(client, AT, &cell, sizeof(cell));
    }
    atomic_store(&run->stop, true);
}

static void cell_read(struct client *client, struct cell_run *run)
{
    struct cell cell;
    do {
        read_co(client, AT, &cell, sizeof(cell));
        bool whole = cell_is(&cell, cell.number);
        run->reads++;
        run->mixed += !whole;
        if (cell.crc == cell_crc(&cell)) {
            run->accepted++;
            run->accepted_mixed += !whole;
        }
    } while (!atomic_load(&run->stop));
}

static void cell_client(struct client *client)
{
    if (client->index == 0)
        cell_write(client, client->arg);
    else
        cell_read(client, client->arg);
}

static void first_cell(struct client *client)
{
    struct cell cell;
    cell_make(&cell, 0);
    write_co(client, AT, &cell, sizeof(cell));
}

static void adversary_is_real(struct env *env)
{
    struct cell_run run = {0};
    suite_clients(env, 1, first_cell, NULL);
    suite_clients(env, 2, cell_client, &run);
    CHECK(run.accepted > 0);
    CHECK_EQ_U64(run.accepted_mixed, 0);
    if (!env->ops->simulated)
        printf("  %" PRIu64 " of %" PRIu64 " reads saw a mixture of two writes\n", run.mixed,
               run.reads);
    else if (env->options.chaos)
        CHECK(run.mixed > 0);
    else
        CHECK_EQ_U64(run.mixed, 0); /* without chaos a list happens at one point in time */
}

const struct suite_case torn_cases[] = {
    {.name = "words_never_torn", .run = words_never_torn},
    {.name = "adversary_is_real", .run = adversary_is_real},
    {0},
};
