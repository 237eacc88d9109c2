/*
 * top_view.h - two snapshots as lines of a screen.
 */
#ifndef CMD_TOP_VIEW_H
#define CMD_TOP_VIEW_H

#include <stdio.h>

#include "cmd/top_data.h"
#include "cmd/top_history.h"
#include "cmd/top_tables.h"

enum top_screen { TOP_OVERVIEW, TOP_TABLES, TOP_HELP };

struct top_view {
    const char *title;   /* what is looked at */
    const char *problem; /* "" or why something is missing */
    unsigned columns, rows;
    enum top_screen screen;
    bool terminal; /* lines are written over others */
    bool color;    /* styles, too */
    bool blocks;   /* the terminal knows more than ASCII */
    struct top_history history;
    const struct top_tables *tables_before, *tables; /* NULL: not looked at */
    /* When each member's heartbeat was last seen to change; by its slot. */
    double last_beats[POOL_MEMBERS];
    uint64_t last_beat_ns[POOL_MEMBERS], first_seen_ns[POOL_MEMBERS];
    unsigned incarnation[POOL_MEMBERS];
};

/* Remembers the heartbeats of a look that is not shown. */
void top_view_note(struct top_view *view, const struct top_snapshot *snapshot);

/* Adds what happened between two looks to the history. */
void top_view_remember(struct top_view *view, const struct top_snapshot *before,
                       const struct top_snapshot *after);

/* At most `rows` lines of at most `columns` characters. */
void top_view_print(struct top_view *view, const struct top_snapshot *before,
                    const struct top_snapshot *after, FILE *out);

#endif
