/*
 * walk.h - the keys of a database in order, both its tables merged, some at a time.
 *
 *   walk_begin(&walk, ...);
 *   while (!walk.over && (status = walk_step_co(&walk, 512)) == PANDO_OK)
 *       use walk.entries;
 *   walk_end(&walk);
 */
#ifndef SERVER_WALK_H
#define SERVER_WALK_H

#include "server/keyspace.h"

struct walk_entry {
    struct slice key; /* until the next step */
};

struct walk {
    struct store_table *tables[2];
    uint8_t low[KEYSPACE_KEY_MAX], high[KEYSPACE_KEY_MAX];
    size_t low_size, high_size;
    bool exclusive; /* low itself was seen before */
    bool no_high;
    struct slice pattern; /* with has_pattern: only what matches; the caller's memory */
    bool has_pattern;
    enum { WALK_UNEXPIRED, WALK_EXPIRED, WALK_ALL } which; /* WALK_EXPIRED: perhaps; look again */

    struct walk_entry *entries; /* of the last step */
    size_t count;
    size_t expiring; /* examined keys that have an expiry */
    bool over;

    struct batch *batches[2];
    size_t capacity;
};

/* All keys of the database, or those that match. False: no memory. */
bool walk_begin(struct walk *walk, const struct database *database, const struct slice *pattern);
void walk_end(struct walk *walk);

/* Goes on behind this key. */
void walk_resume(struct walk *walk, struct slice key);

/* Examines up to `limit` keys of each table. When it is not over, low is the last one examined. */
PANDO_MUST_CHECK enum pando_status walk_step_co(struct walk *walk, unsigned limit);

#endif
