#include "tree/dex/pushdown/visible.h"

#include <stdlib.h>
#include <string.h>

#include "lib/check.h"

static struct visible *new_visible(void)
{
    struct visible *visible = aligned_alloc(alignof(struct visible), sizeof(*visible));
    CHECK(visible != NULL);
    memset(visible, 0, sizeof(*visible));
    return visible;
}

static void barrier(struct visible *visible, uint16_t node)
{
    visible_ended(visible, node, visible_begin(visible, node));
}

static void test_becoming_visible(void)
{
    struct visible *visible = new_visible();
    fabric_address page = fabric_address_make(3, 4096), there = fabric_address_make(4, 4096);

    CHECK(!visible_is(visible, page)); /* nothing is known */
    barrier(visible, 3);
    CHECK(visible_is(visible, page) && !visible_is(visible, there));
    visible_wrote(visible, page);
    CHECK(!visible_is(visible, page));
    barrier(visible, 4);
    CHECK(!visible_is(visible, page)); /* another node's */
    barrier(visible, 3);
    CHECK(visible_is(visible, page));
    free(visible);
}

/* A barrier that had begun when the page was written says nothing about it, whenever it ends. */
static void test_from_the_beginning(void)
{
    struct visible *visible = new_visible();
    fabric_address page = fabric_address_make(0, 4096);

    uint64_t early = visible_begin(visible, 0);
    visible_wrote(visible, page);
    uint64_t late = visible_begin(visible, 0);
    visible_ended(visible, 0, early);
    CHECK(!visible_is(visible, page));
    visible_ended(visible, 0, late);
    CHECK(visible_is(visible, page));
    visible_ended(visible, 0, early); /* out of order */
    CHECK(visible_is(visible, page));
    free(visible);
}

static void test_what_others_wrote(void)
{
    struct visible *visible = new_visible();
    fabric_address page = fabric_address_make(1, 8192);

    barrier(visible, 1);
    CHECK(visible_is(visible, page));
    uint64_t early = visible_begin(visible, 1);
    visible_forget(visible);
    visible_ended(visible, 1, early);
    CHECK(!visible_is(visible, page));
    barrier(visible, 1);
    CHECK(visible_is(visible, page));
    free(visible);
}

static void test_nodes_beyond(void)
{
    struct visible *visible = new_visible();
    fabric_address page = fabric_address_make(VISIBLE_BANKS, 4096);

    barrier(visible, VISIBLE_BANKS);
    visible_wrote(visible, page);
    CHECK(!visible_is(visible, page) && !visible_due(visible, VISIBLE_BANKS, 5));
    free(visible);
}

static void test_due(void)
{
    struct visible *visible = new_visible();
    CHECK(visible_due(visible, 0, 1000) && !visible_due(visible, 0, 1001));
    CHECK(visible_due(visible, 1, 1001) && visible_due(visible, 0, 1000000));
    free(visible);
}

int main(void)
{
    test_becoming_visible();
    test_from_the_beginning();
    test_what_others_wrote();
    test_nodes_beyond();
    test_due();
    return 0;
}
