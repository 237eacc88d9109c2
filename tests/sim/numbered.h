/*
 * numbered.h - pairs whose keys are numbers, the highest byte first: in the order of the numbers.
 */
#ifndef TESTS_SIM_NUMBERED_H
#define TESTS_SIM_NUMBERED_H

#include "base/slice.h"
#include "engine/engine.h"

/* Of a table with such keys, and values of 8 bytes. */
static const struct engine_shape number_shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = 1024};

static inline struct slice number_key(uint64_t number, uint64_t *bytes)
{
    *bytes = __builtin_bswap64(number);
    return slice_of(bytes, sizeof(*bytes));
}

/* Of a load: the numbers up to `end`. */
struct number_feed {
    uint64_t next, end, key;
    struct slice value; /* all have it; none: that of each is its key */
};

static inline bool number_feed_next(void *context, struct slice *key, struct slice *value)
{
    struct number_feed *feed = context;
    if (feed->next == feed->end)
        return false;
    *key = number_key(feed->next++, &feed->key);
    *value = feed->value.size == 0 ? *key : feed->value;
    return true;
}

/* Of a scan. */
static inline bool count_pair(void *context, struct slice key, struct slice value)
{
    unsigned *count = context;
    (void)key;
    (void)value;
    ++*count;
    return true;
}

#endif
