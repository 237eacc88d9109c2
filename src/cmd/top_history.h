/*
 * top_history.h - the last minutes of `pando top`, drawn as lines of small bars.
 */
#ifndef CMD_TOP_HISTORY_H
#define CMD_TOP_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOP_HISTORY_MAX = 180 }; /* looks: three minutes of them, one a second */

/* What it remembers of each look. */
enum top_series { TOP_RATE, TOP_P99, TOP_USED, TOP_SERIES };

struct top_history {
    double value[TOP_SERIES][TOP_HISTORY_MAX];
    uint64_t looks; /* all there ever were; the last ones are here */
};

void top_history_add(struct top_history *history, const double value[TOP_SERIES]);

/* The largest value that is remembered. */
double top_history_most(const struct top_history *history, enum top_series series);

/* Draws all that is remembered in at most `width` bars, the newest last. Each is the largest of the
 * same number of looks, as high as its share of `all`; in block characters, or in ASCII. Returns how
 * many there are; `out` has room for 3 bytes each and a 0. */
unsigned top_history_bars(const struct top_history *history, enum top_series series, unsigned width,
                          double all, bool blocks, char *out, size_t out_bytes);

#endif
