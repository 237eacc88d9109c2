/*
 * linearize.c - the search for an order of one key's operations (Wing and Gong 1993, with the
 * memory of Lowe 2017).
 *
 * A state of the search is the set of operations that have been put in order, and the value the key
 * then has. Next may come any operation that was called before the first return among those left.
 * What makes it fast without losing any order:
 *
 *  - An operation that fits the present value and does not change it (a get that saw it) is taken
 * at once, for it is never wrong to take it as early as possible.
 *  - One of unknown outcome is taken only right before an operation that needs it. If the next one
 * were possible without it: either that one leaves the same value in either case, and then the
 * unknown one need not have happened; or it changes nothing, and then it was taken before.
 *  - Values that nobody ever saw are all the same. Of unknown operations that do the same, an
 * earlier one is taken before a later one, which can do no more.
 *  - States that led nowhere are remembered, whole, not as hashes: no verdict is a matter of luck.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/prng.h"
#include "check/history_int.h"

#define ANYTHING UINT64_MAX       /* any operation may follow; else see struct frame */
#define UNSEEN   (UINT64_MAX - 1) /* a value that nobody ever saw */
#define NO_TWIN  SIZE_MAX

/* A place in the search: the operations taken on the way lie on the trail from `trail` on. */
struct frame {
    uint64_t value;  /* of the key, after what was taken at once */
    uint64_t before; /* next must come one that was not possible with this value */
    size_t trail;    /* where it began */
    size_t next;     /* candidates from here on have not been tried */
    bool unknowns;   /* trying those of unknown outcome now */
};

struct search {
    struct history_op *ops;
    size_t count, words;
    uint64_t *taken; /* a bit for each operation */
    size_t *twins;   /* of unknown ones: the one before that does the same, or NO_TWIN */
    size_t first;    /* all before it are taken, or of unknown outcome */
    size_t left;     /* of known outcome, not taken */
    size_t *trail;
    size_t trail_count;
    struct frame *frames;
    size_t depth;
    /* Seen states: value, before, bits. A table of indexes, open addressing. */
    uint64_t *states;
    size_t state_count, state_capacity;
    uint32_t *table;
    size_t table_size; /* a power of two */
    uint64_t effort;
    bool given_up;
};

int history_by_call(const void *a, const void *b)
{
    const struct history_op *x = a, *y = b;
    if (x->call != y->call)
        return x->call < y->call ? -1 : 1;
    return (x->done > y->done) - (x->done < y->done);
}

/* ---- what an operation does ------------------------------------------------------------------ */

/* Whether it can happen while the key has this value. One of unknown outcome that does nothing then
 * need not be considered. */
static bool possible(const struct history_op *op, uint64_t value)
{
    bool present = value != 0;
    switch (op->kind) {
    case HISTORY_GET:
    case HISTORY_MODIFY:
        return value == op->seen;
    case HISTORY_PUT:
        return true;
    case HISTORY_INSERT:
        return op->outcome == HISTORY_REFUSED ? present : !present;
    case HISTORY_UPDATE:
    case HISTORY_DELETE:
        return op->outcome == HISTORY_REFUSED ? !present : present;
    }
    return false;
}

static uint64_t after(const struct history_op *op, uint64_t value)
{
    if (op->kind == HISTORY_GET || op->outcome == HISTORY_REFUSED)
        return value;
    return op->kind == HISTORY_DELETE ? 0 : op->value;
}

/* It changes nothing, whenever it comes. */
static bool only_reads(const struct history_op *op)
{
    return op->kind == HISTORY_GET || op->outcome == HISTORY_REFUSED ||
           (op->kind == HISTORY_MODIFY && op->seen == op->value);
}

static bool is_unknown(const struct history_op *op)
{
    return op->outcome == HISTORY_UNKNOWN;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Gives all values that nobody saw the same number. */
static void merge_unseen(struct history_op *ops, size_t count, uint64_t *seen)
{
    for (size_t i = 0; i < count; i++)
        seen[i] = ops[i].seen;
    qsort(seen, count, sizeof(*seen), by_value);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = ops[i].value;
        if (value != 0 && bsearch(&value, seen, count, sizeof(*seen), by_value) == NULL)
            ops[i].value = UNSEEN;
    }
}

static void find_twins(const struct history_op *ops, size_t count, size_t *twins)
{
    size_t last[HISTORY_MODIFY + 1];
    for (int kind = 0; kind <= HISTORY_MODIFY; kind++)
        last[kind] = NO_TWIN;
    for (size_t i = 0; i < count; i++) {
        enum history_kind kind = ops[i].kind;
        bool same = kind == HISTORY_DELETE || (kind != HISTORY_MODIFY && ops[i].value == UNSEEN);
        twins[i] = NO_TWIN;
        if (!is_unknown(&ops[i]) || !same)
            continue;
        twins[i] = last[kind];
        last[kind] = i;
    }
}

/* ---- taking operations ----------------------------------------------------------------------- */

static bool is_taken(const struct search *search, size_t i)
{
    return search->taken[i / 64] >> (i % 64) & 1;
}

static void take(struct search *search, size_t i)
{
    search->taken[i / 64] |= (uint64_t)1 << (i % 64);
    search->trail[search->trail_count++] = i;
    if (is_unknown(&search->ops[i]))
        return;
    search->left--;
    while (search->first < search->count &&
           (is_taken(search, search->first) || is_unknown(&search->ops[search->first])))
        search->first++;
}

static void untake_to(struct search *search, size_t trail)
{
    while (search->trail_count > trail) {
        size_t i = search->trail[--search->trail_count];
        search->taken[i / 64] &= ~((uint64_t)1 << (i % 64));
        if (is_unknown(&search->ops[i]))
            continue;
        search->left++;
        if (i < search->first)
            search->first = i;
    }
}

/* The first return among those of known outcome that are left: what was called later must wait. */
static uint64_t horizon(const struct search *search)
{
    uint64_t earliest = UINT64_MAX;
    for (size_t i = search->first; i < search->count && search->ops[i].call < earliest; i++) {
        if (!is_taken(search, i) && search->ops[i].done < earliest)
            earliest = search->ops[i].done;
    }
    return earliest;
}

/* Everything that fits and changes nothing; whether there was any. */
static bool take_at_once(struct search *search, uint64_t value)
{
    bool any = false, again = true;
    while (again) {
        uint64_t until = horizon(search);
        again = false;
        for (size_t i = search->first; i < search->count && search->ops[i].call <= until; i++) {
            const struct history_op *op = &search->ops[i];
            if (is_taken(search, i) || is_unknown(op) || !only_reads(op) || !possible(op, value))
                continue;
            take(search, i);
            any = again = true;
        }
    }
    return any;
}

/* ---- states that were seen ------------------------------------------------------------------- */

static uint64_t *state_at(const struct search *search, size_t i)
{
    return search->states + i * (search->words + 2);
}

static uint64_t state_hash(const struct search *search, const uint64_t *state)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < search->words + 2; i++)
        hash = hash_u64(hash ^ (state[i] + 0x9e3779b97f4a7c15u));
    return hash;
}

static void table_insert(struct search *search, uint32_t index)
{
    size_t at = state_hash(search, state_at(search, index)) & (search->table_size - 1);
    while (search->table[at] != 0)
        at = (at + 1) & (search->table_size - 1);
    search->table[at] = index + 1;
}

static bool table_grow(struct search *search)
{
    size_t size = search->table_size == 0 ? 256 : search->table_size * 2;
    uint32_t *table = calloc(size, sizeof(*table));
    if (table == NULL)
        return false;
    free(search->table);
    search->table = table;
    search->table_size = size;
    for (size_t i = 0; i < search->state_count; i++)
        table_insert(search, (uint32_t)i);
    return true;
}

static bool states_grow(struct search *search)
{
    size_t capacity = search->state_capacity == 0 ? 128 : search->state_capacity * 2;
    uint64_t *states = realloc(search->states, capacity * (search->words + 2) * sizeof(*states));
    if (states == NULL)
        return false;
    search->states = states;
    search->state_capacity = capacity;
    return true;
}

/* Whether the search has been here; remembers that it has now. */
static bool seen_before(struct search *search, uint64_t value, uint64_t before)
{
    if ((search->state_count == search->state_capacity && !states_grow(search)) ||
        ((search->state_count + 1) * 2 > search->table_size && !table_grow(search)) ||
        search->state_count >= search->effort) {
        search->given_up = true;
        return true;
    }
    uint64_t *state = state_at(search, search->state_count);
    size_t bytes = (search->words + 2) * sizeof(*state);
    state[0] = value;
    state[1] = before;
    memcpy(state + 2, search->taken, search->words * sizeof(*state));
    size_t at = state_hash(search, state) & (search->table_size - 1);
    while (search->table[at] != 0) {
        if (memcmp(state_at(search, search->table[at] - 1), state, bytes) == 0)
            return true;
        at = (at + 1) & (search->table_size - 1);
    }
    search->table[at] = (uint32_t)++search->state_count;
    return false;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Goes on from a value that was just reached; false if nothing new lies there. */
static bool enter(struct search *search, uint64_t value, uint64_t before, size_t trail)
{
    if (take_at_once(search, value))
        before = ANYTHING;
    if (search->left > 0 && seen_before(search, value, before)) {
        untake_to(search, trail);
        return false;
    }
    search->frames[search->depth++] =
        (struct frame){.value = value, .before = before, .trail = trail};
    return true;
}

/* The next operation to try at this place; count if there is none. Known outcomes come first. */
static size_t candidate(struct search *search, struct frame *frame)
{
    uint64_t until = horizon(search);
    for (;;) {
        size_t i = frame->next;
        for (; i < search->count && search->ops[i].call <= until; i++) {
            const struct history_op *op = &search->ops[i];
            if (is_taken(search, i) || is_unknown(op) != frame->unknowns ||
                !possible(op, frame->value))
                continue;
            if (frame->before != ANYTHING && possible(op, frame->before))
                continue;
            if (search->twins[i] != NO_TWIN && !is_taken(search, search->twins[i]))
                continue;
            frame->next = i + 1;
            return i;
        }
        if (frame->unknowns)
            return search->count;
        frame->unknowns = true;
        frame->next = 0;
    }
}

static enum history_verdict run(struct search *search)
{
    (void)enter(search, 0, ANYTHING, 0);
    while (search->depth > 0 && search->left > 0 && !search->given_up) {
        struct frame *frame = &search->frames[search->depth - 1];
        size_t i = candidate(search, frame);
        if (i == search->count) {
            untake_to(search, frame->trail);
            search->depth--;
            continue;
        }
        const struct history_op *op = &search->ops[i];
        size_t trail = search->trail_count;
        take(search, i);
        (void)enter(search, after(op, frame->value), is_unknown(op) ? frame->value : ANYTHING,
                    trail);
    }
    if (search->left == 0)
        return HISTORY_GOOD;
    return search->given_up ? HISTORY_UNDECIDED : HISTORY_BAD;
}

enum history_verdict linearize(struct history_op *ops, size_t count, uint64_t effort)
{
    struct search search = {.ops = ops, .count = count, .words = (count + 63) / 64};
    enum history_verdict verdict = HISTORY_UNDECIDED;

    if (count > 0)
        qsort(ops, count, sizeof(*ops), history_by_call);
    search.effort = effort < UINT32_MAX ? effort : UINT32_MAX - 1;
    search.taken = calloc(search.words + 1, sizeof(*search.taken));
    search.trail = calloc(count + 1, sizeof(*search.trail));
    search.twins = calloc(count + 1, sizeof(*search.twins));
    uint64_t *seen = calloc(count + 1, sizeof(*seen));
    search.frames = calloc(count + 2, sizeof(*search.frames));
    for (size_t i = 0; i < count; i++)
        search.left += !is_unknown(&ops[i]);
    while (search.first < count && is_unknown(&ops[search.first]))
        search.first++;
    if (search.taken != NULL && search.trail != NULL && search.frames != NULL &&
        search.twins != NULL && seen != NULL) {
        merge_unseen(ops, count, seen);
        find_twins(ops, count, search.twins);
        verdict = run(&search);
    }
    free(seen);
    free(search.twins);
    free(search.taken);
    free(search.trail);
    free(search.frames);
    free(search.states);
    free(search.table);
    return verdict;
}
