/*
 * marks.c - taking away the marks that deaths have left in lock words (rule lock-word), for whoever
 * has looked at everything under them in between.
 */
#include <stdlib.h>

#include "pool/pool_int.h"

enum { WORDS = 4096, CASES_PER_LIST = 64 };

struct mark {
    fabric_address address;
    uint64_t word;
};

struct pool_marks {
    size_t count, capacity;
    struct mark *marks;
};

static bool add(struct pool_marks *marks, fabric_address address, uint64_t word)
{
    if (marks->count == marks->capacity) {
        size_t capacity = marks->capacity == 0 ? 64 : 2 * marks->capacity;
        struct mark *grown = realloc(marks->marks, capacity * sizeof(*grown));
        if (grown == NULL)
            return false;
        marks->marks = grown;
        marks->capacity = capacity;
    }
    marks->marks[marks->count++] = (struct mark){address, word};
    return true;
}

static enum pando_status find_co(struct pool_session *session, uint16_t node,
                                 struct pool_marks *marks, uint64_t *words)
{
    uint64_t locks = session->pool->supers[node].locks;
    enum pando_status status = PANDO_OK;

    for (uint64_t from = 0; from < locks && status == PANDO_OK; from += WORDS) {
        uint64_t count = locks - from < WORDS ? locks - from : WORDS;
        fabric_address at = pool_lock_address(session->pool, node, (uint32_t)from);
        struct fabric_op read =
            fabric_read(fabric_address_offset(at), words, (uint32_t)(count * 8));
        status = pool_submit_co(session, node, &read, 1);
        for (uint64_t i = 0; i < count && status == PANDO_OK; i++) {
            if (words[i] != 0 && pool_lock_free(words[i]) && !add(marks, at + i * 8, words[i]))
                status = PANDO_NO_MEMORY;
        }
    }
    return status;
}

/* CAS of every mark from its word to another, many in a list. One that was changed meanwhile is left out
 * from then on. */
static enum pando_status change_co(struct pool_session *session, struct pool_marks *marks,
                                   uint64_t (*to)(uint64_t word))
{
    struct fabric_op ops[CASES_PER_LIST];
    size_t kept = 0;

    for (size_t from = 0; from < marks->count;) {
        uint16_t bank = pool_bank(marks->marks[from].address);
        uint32_t count = 0;
        while (from + count < marks->count && count < CASES_PER_LIST &&
               pool_bank(marks->marks[from + count].address) == bank) {
            const struct mark *mark = &marks->marks[from + count];
            ops[count++] =
                fabric_cas(fabric_address_offset(mark->address), mark->word, to(mark->word));
        }
        enum pando_status status =
            pool_submit_co(session, pool_view_node(session->pool, bank), ops, count);
        if (status != PANDO_OK)
            return status;
        for (uint32_t i = 0; i < count; i++) {
            struct mark mark = marks->marks[from + i];
            if (ops[i].old == mark.word)
                marks->marks[kept++] = (struct mark){mark.address, to(mark.word)};
        }
        from += count;
    }
    marks->count = kept;
    return PANDO_OK;
}

/* The highest count does not rise with a further death: one less does. */
static uint64_t countable(uint64_t word)
{
    return word == POOL_LOCK_DEATHS_MAX ? word - 1 : word;
}

static uint64_t none(uint64_t word)
{
    (void)word;
    return 0;
}

enum pando_status pool_marks_take_co(struct pool_session *session, struct pool_marks **out)
{
    struct pool_marks *marks = calloc(1, sizeof(*marks));
    uint64_t *words = malloc(WORDS * sizeof(*words));
    enum pando_status status = marks == NULL || words == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    for (uint16_t node = 0; node < session->pool->nodes && status == PANDO_OK; node++)
        status = find_co(session, node, marks, words);
    if (status == PANDO_OK)
        status = change_co(session, marks, countable);
    free(words);
    if (status != PANDO_OK) {
        pool_marks_free(marks);
        marks = NULL;
    }
    *out = marks;
    return status;
}

enum pando_status pool_marks_clear_co(struct pool_session *session, struct pool_marks *marks)
{
    return change_co(session, marks, none);
}

void pool_marks_free(struct pool_marks *marks)
{
    if (marks != NULL)
        free(marks->marks);
    free(marks);
}
