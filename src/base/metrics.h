/*
 * metrics.h - a text in the exposition format of Prometheus (version 0.0.4).
 *
 *   metrics_family(&m, "pando_commands_total", METRICS_COUNTER, "Commands executed.");
 *   metrics_u64(&m, "pando_commands_total", "command=\"get\"", 42);
 *
 * A family's samples follow its head at once. Out of memory is remembered and found at the end.
 */
#ifndef BASE_METRICS_H
#define BASE_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct metrics {
    char *text; /* NUL-terminated, or NULL */
    size_t size, capacity;
    bool failed;
};

enum metrics_type { METRICS_COUNTER, METRICS_GAUGE, METRICS_SUMMARY, METRICS_HISTOGRAM };

/* All zeroes is an empty text. */
void metrics_fini(struct metrics *metrics);

/* Names and help are the program's own: letters, digits and '_'; one line. */
void metrics_family(struct metrics *metrics, const char *name, enum metrics_type type,
                    const char *help);

/* Labels as they stand between the braces, or NULL. */
void metrics_u64(struct metrics *metrics, const char *name, const char *labels, uint64_t value);
void metrics_double(struct metrics *metrics, const char *name, const char *labels, double value);

/* A family of one sample without labels. */
void metrics_one(struct metrics *metrics, const char *name, enum metrics_type type,
                 const char *help, uint64_t value);

/* A value from outside inside a label's quotes, cut if it is too long. Returns `out`. */
const char *metrics_escape(const char *value, char *out, size_t out_bytes);

/* ---- reading one ----------------------------------------------------------------------------- */

/* A line of such a text; the slices live as long as the text. */
struct metrics_sample {
    struct slice name;
    struct slice labels; /* between the braces */
    double value;
};

/* Takes the next sample off the front of the text; false at its end. Lines that are none are left out:
 * the text may come from anybody. */
bool metrics_next(struct slice *text, struct metrics_sample *out);

bool metrics_is(const struct metrics_sample *sample, const char *name);

/* A label's value, with its escapes taken back, cut to fit; false: it has no such label. */
bool metrics_label(const struct metrics_sample *sample, const char *label, char *out,
                   size_t out_bytes);

#endif
