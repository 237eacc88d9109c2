/*
 * progress.h - one line on a terminal that says how far long work has come. Nothing is drawn where
 * stderr is no terminal.
 */
#ifndef CMD_PROGRESS_H
#define CMD_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what;
    bool terminal;
    uint64_t begin_ns, drawn_ns;
};

void progress_begin(struct progress *progress, const char *what);

/* A fraction in [0, 1], or negative if it is not known. Draws a few times a second at the most. */
void progress_show(struct progress *progress, double fraction, uint64_t pairs, uint64_t bytes);

/* Takes the line away. Returns the time since the beginning. */
uint64_t progress_end_ns(struct progress *progress);

#endif
