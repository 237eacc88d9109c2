/*
 * top_view.h - two snapshots as lines of a screen.
 */
#ifndef CMD_TOP_VIEW_H
#define CMD_TOP_VIEW_H

#include <stdio.h>

#include "cmd/top_data.h"

struct top_view {
    const char *title;   /* what is looked at */
    const char *problem; /* "" or why something is missing */
    unsigned columns, rows;
    bool color;
    /* When each member's heartbeat was last seen to change; by its slot. */
    double last_beats[POOL_MEMBERS];
    uint64_t last_beat_ns[POOL_MEMBERS], first_seen_ns[POOL_MEMBERS];
    unsigned incarnation[POOL_MEMBERS];
};

/* Remembers the heartbeats of a look that is not shown. */
void top_view_note(struct top_view *view, const struct top_snapshot *snapshot);

/* At most `rows` lines of at most `columns` characters. */
void top_view_print(struct top_view *view, const struct top_snapshot *before,
                    const struct top_snapshot *after, FILE *out);

#endif
