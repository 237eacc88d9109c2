#include "tree/blink/cache/level.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum { RETIRED_MOST = 3 }; /* by one change: a node, a page, a top */

void level_init(struct level *level, const struct node_layout *layout, struct grace *grace)
{
    *level = (struct level){.layout = layout, .grace = grace};
}

void level_fini(struct level *level)
{
    struct level_row *top = atomic_load(&level->top);
    for (uint32_t p = 0; top != NULL && p < top->count; p++) {
        struct level_row *page = level_row_at(top, p);
        for (uint32_t i = 0; i < page->count; i++)
            free(level_row_at(page, i));
        free(page);
    }
    free(top);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What the words of a row stand for. */
struct lows {
    const struct node_layout *layout;
    const struct level_row *row;
    bool of_top;
};

static bool keys_are_words(const struct node_layout *layout)
{
    return layout->key_size == 8;
}

static size_t row_bytes(const struct node_layout *layout, uint32_t count)
{
    return sizeof(struct level_row) + (count - 1) * sizeof(uint64_t) + count * sizeof(level_slot) +
           (keys_are_words(layout) ? 0 : KEY_WORDS_SKIP_MAX);
}

/* What `common` counts, if keys are no words. */
static uint8_t *beginning_of(const struct level_row *row)
{
    return (uint8_t *)(row->words + (row->count - 1)) + row->count * sizeof(level_slot);
}

static struct slice low_at(const struct lows *lows, uint32_t index)
{
    const void *named = level_row_at(lows->row, index);
    return cached_node_low(lows->layout, lows->of_top ? level_row_at(named, 0) : named);
}

static struct slice word_key(const void *context, uint32_t index)
{
    return low_at(context, index + 1);
}

/* How many of all but the first are at or below the key; with `before`, below it. */
static uint32_t lows_to(const struct lows *lows, struct slice key, bool before)
{
    const struct level_row *row = lows->row;
    struct key_words words = {.words = row->words,
                              .count = row->count - 1,
                              .skip = row->common,
                              .common = beginning_of(row),
                              .key_size = keys_are_words(lows->layout) ? 8 : 0,
                              .key_at = word_key,
                              .context = lows};
    return row->count == 1 ? 0 : key_words_to(&words, key, before);
}

static level_slot *slot_of(struct level_row *row, uint32_t index)
{
    return (level_slot *)(row->words + (row->count - 1)) + index;
}

/* A change of a row: `removed` of what it names from `at` on go, `added` come there. */
struct splice {
    uint32_t at, removed, added;
    void *items[2];
};

/* What the low fences of all but the first begin with. True: it is what it was in `old`. */
static bool set_common(const struct lows *lows, struct level_row *row, const struct level_row *old)
{
    if (row->count > 1 && !keys_are_words(lows->layout)) {
        struct slice first = low_at(lows, 1);
        row->common = key_words_common(first, low_at(lows, row->count - 1));
        if (row->common > 0)
            memcpy(beginning_of(row), first.data, row->common);
    }
    return old->common == row->common &&
           (row->common == 0 || memcmp(beginning_of(old), beginning_of(row), row->common) == 0);
}

/* A changed copy of a page or a top, not empty. NULL: no memory. */
static struct level_row *row_splice(const struct level *level, const struct level_row *old,
                                    bool of_top, const struct splice *splice)
{
    uint32_t count = old->count - splice->removed + splice->added;
    uint32_t behind = splice->at + splice->added;
    struct level_row *row = malloc(row_bytes(level->layout, count));
    if (row == NULL)
        return NULL;
    row->count = count;
    row->common = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool added = i >= splice->at && i < behind;
        uint32_t from = i < splice->at ? i : i - splice->added + splice->removed;
        atomic_init(slot_of(row, i),
                    added ? splice->items[i - splice->at] : level_row_at(old, from));
    }
    struct lows lows = {.layout = level->layout, .row = row, .of_top = of_top};
    bool same = set_common(&lows, row, old);
    for (uint32_t i = 1; i < count; i++) {
        bool added = i >= splice->at && i < behind;
        uint32_t from = i < splice->at ? i : i - splice->added + splice->removed;
        row->words[i - 1] = same && !added && from > 0 ? old->words[from - 1]
                                                       : key_word(low_at(&lows, i), row->common);
    }
    return row;
}

static struct level_row *row_of_one(const struct level *level, void *named)
{
    struct level_row *row = malloc(row_bytes(level->layout, 1));
    if (row == NULL)
        return NULL;
    row->count = 1;
    row->common = 0;
    atomic_init(slot_of(row, 0), named);
    return row;
}

static void add_row(struct level *level, const struct level_row *row)
{
    level->bytes += row_bytes(level->layout, row->count);
}

static void retire_row(struct level *level, struct level_row *row)
{
    level->bytes -= row_bytes(level->layout, row->count);
    grace_retire(level->grace, row);
}

static void set_top(struct level *level, struct level_row *top)
{
    struct level_row *old = atomic_load(&level->top);
    if (top != NULL)
        add_row(level, top);
    atomic_store(&level->top, top);
    if (old != NULL)
        retire_row(level, old);
}

/* ---- searching ------------------------------------------------------------------------------- */

struct cached_node *level_find(const struct level *level, struct slice key, bool before,
                               struct level_place *place)
{
    struct lows lows = {.layout = level->layout, .row = atomic_load(&level->top), .of_top = true};
    if (lows.row == NULL)
        return NULL;
    place->page = lows_to(&lows, key, before);
    lows.row = level_row_at(lows.row, place->page);
    lows.of_top = false;
    place->index = lows_to(&lows, key, before);
    return level_row_at(lows.row, place->index);
}

static struct level_row *page_at(const struct level *level, uint32_t page)
{
    return level_row_at(atomic_load(&level->top), page);
}

struct cached_node *level_at(const struct level *level, struct level_place place)
{
    return level_row_at(page_at(level, place.page), place.index);
}

bool level_next(const struct level *level, struct level_place *place)
{
    if (++place->index < page_at(level, place->page)->count)
        return true;
    *place = (struct level_place){.page = place->page + 1};
    return place->page < atomic_load(&level->top)->count;
}

struct level_place level_last(const struct level *level)
{
    struct level_place place = {.page = atomic_load(&level->top)->count - 1};
    place.index = page_at(level, place.page)->count - 1;
    return place;
}

/* ---- changing -------------------------------------------------------------------------------- */

/* Another page in the place of one, which is retired. `first`: it begins with another key. */
static bool page_replace(struct level *level, uint32_t at, struct level_row *page, bool first)
{
    struct level_row *top = atomic_load(&level->top), *old = level_row_at(top, at);
    struct splice splice = {.at = at, .removed = 1, .added = 1, .items = {page}};

    if (first && at > 0) { /* the top has a word of it */
        struct level_row *other = row_splice(level, top, true, &splice);
        if (other == NULL)
            return false;
        set_top(level, other);
    } else {
        atomic_store(slot_of(top, at), page);
    }
    add_row(level, page);
    retire_row(level, old);
    return true;
}

static bool page_remove(struct level *level, uint32_t at)
{
    struct level_row *top = atomic_load(&level->top), *old = level_row_at(top, at), *other = NULL;
    struct splice splice = {.at = at, .removed = 1};

    if (top->count > 1) {
        other = row_splice(level, top, true, &splice);
        if (other == NULL)
            return false;
    }
    set_top(level, other);
    retire_row(level, old);
    return true;
}

bool level_remove(struct level *level, struct level_place place)
{
    struct level_row *page = page_at(level, place.page);
    struct cached_node *node = level_row_at(page, place.index);
    struct splice splice = {.at = place.index, .removed = 1};

    if (!grace_room(level->grace, RETIRED_MOST))
        return false;
    if (page->count == 1) {
        if (!page_remove(level, place.page))
            return false;
    } else {
        struct level_row *other = row_splice(level, page, false, &splice);
        if (other == NULL)
            return false;
        if (!page_replace(level, place.page, other, place.index == 0)) {
            free(other);
            return false;
        }
    }
    level->nodes--;
    level->bytes -= node->bytes;
    grace_retire(level->grace, node);
    return true;
}

bool level_replace(struct level *level, struct level_place place, struct cached_node *node)
{
    struct level_row *page = page_at(level, place.page);
    struct cached_node *old = level_row_at(page, place.index);

    if (!grace_room(level->grace, RETIRED_MOST))
        return false;
    atomic_store(slot_of(page, place.index), node);
    level->bytes += node->bytes;
    level->bytes -= old->bytes;
    grace_retire(level->grace, old);
    return true;
}

static bool insert_first(struct level *level, struct cached_node *node)
{
    struct level_row *page = row_of_one(level, node);
    struct level_row *top = page == NULL ? NULL : row_of_one(level, page);
    if (top == NULL) {
        free(page);
        return false;
    }
    add_row(level, page);
    set_top(level, top);
    return true;
}

/* A full page becomes two, one of which has the node. */
static bool insert_splitting(struct level *level, struct level_place place,
                             const struct splice *splice)
{
    struct level_row *top = atomic_load(&level->top), *old = level_row_at(top, place.page);
    struct level_row *whole = row_splice(level, old, false, splice), *other = NULL;
    struct splice halves = {.at = place.page, .removed = 1, .added = 2};
    if (whole == NULL)
        return false;
    uint32_t keep = whole->count / 2;
    struct splice left = {.at = keep, .removed = whole->count - keep}, right = {.removed = keep};
    halves.items[0] = row_splice(level, whole, false, &left);
    halves.items[1] = row_splice(level, whole, false, &right);
    if (halves.items[0] != NULL && halves.items[1] != NULL)
        other = row_splice(level, top, true, &halves);
    free(whole);
    if (other == NULL) {
        free(halves.items[0]);
        free(halves.items[1]);
        return false;
    }
    add_row(level, halves.items[0]);
    add_row(level, halves.items[1]);
    set_top(level, other);
    retire_row(level, old);
    return true;
}

static bool insert_at(struct level *level, struct level_place place, struct cached_node *node)
{
    struct level_row *page = page_at(level, place.page);
    struct splice splice = {.at = place.index, .added = 1, .items = {node}};

    if (page->count == LEVEL_PAGE_NODES)
        return insert_splitting(level, place, &splice);
    struct level_row *other = row_splice(level, page, false, &splice);
    if (other == NULL)
        return false;
    /* Before the first node of the first page only. */
    pando_assert(place.index > 0 || place.page == 0);
    if (page_replace(level, place.page, other, place.index == 0))
        return true;
    free(other);
    return false;
}

bool level_insert(struct level *level, struct cached_node *node)
{
    struct slice low = cached_node_low(level->layout, node);
    struct level_place place = {0};
    const struct cached_node *before;

    if (!grace_room(level->grace, RETIRED_MOST))
        return false;
    before = level_find(level, low, false, &place);
    if (before != NULL)
        place.index += cached_node_begins(level->layout, before, low, false);
    if (before == NULL ? !insert_first(level, node) : !insert_at(level, place, node))
        return false;
    level->nodes++;
    level->bytes += node->bytes;
    return true;
}
