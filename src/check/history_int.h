/*
 * history_int.h - between history.c and linearize.c.
 */
#ifndef CHECK_HISTORY_INT_H
#define CHECK_HISTORY_INT_H

#include "check/history.h"

struct history_key {
    struct history_op *ops;
    size_t count, capacity;
};

struct history {
    struct history_key *keys;
    uint32_t key_count;
    size_t size;
};

/* Of qsort: by the time of the call. */
int history_by_call(const void *a, const void *b);

/* Whether the operations of one key can be put in an order that respects their times and explains
 * what they saw, beginning with the key absent. Sorts them and may rename values. */
enum history_verdict linearize(struct history_op *ops, size_t count, uint64_t effort);

#endif
