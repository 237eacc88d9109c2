/*
 * unmerged.c - nodes that could not be merged because others were at work beside them. The last of many
 * deletions in a range has nobody after it to try again, so that empty nodes would stay for ever. Their keys
 * are remembered, a bounded number of them, and tried by maintenance, one after the other. If there were more,
 * maintenance walks over all leaves once instead.
 */
#include <stdlib.h>
#include <string.h>

#include "tree/blink/blink_int.h"

enum { KEYS_MAX = 8192, KEYS_BYTES = 512 * 1024, HEAD = 3 };

struct unmerged {
    struct rt_latch latch;
    uint32_t key_max, capacity, head, count;
    uint8_t *keys;        /* a ring: size 2, level 1, key; allocated when first needed */
    bool missed, walking; /* some were not remembered; a walk is under way, */
    uint8_t *walked_to;   /* and the next leaf has this key; room for key_max */
    size_t walked_size;
};

struct unmerged *unmerged_create(uint32_t key_max)
{
    struct unmerged *unmerged = calloc(1, sizeof(*unmerged));
    if (unmerged == NULL)
        return NULL;
    unmerged->key_max = key_max;
    unmerged->walked_to = malloc(key_max);
    if (unmerged->walked_to == NULL) {
        free(unmerged);
        return NULL;
    }
    unmerged->capacity =
        KEYS_BYTES / (key_max + HEAD) < KEYS_MAX ? KEYS_BYTES / (key_max + HEAD) : KEYS_MAX;
    return unmerged;
}

void unmerged_destroy(struct unmerged *unmerged)
{
    if (unmerged == NULL)
        return;
    free(unmerged->keys);
    free(unmerged->walked_to);
    free(unmerged);
}

static uint8_t *place(struct unmerged *unmerged, uint32_t index)
{
    return unmerged->keys + (size_t)(index % unmerged->capacity) * (unmerged->key_max + HEAD);
}

void unmerged_add(struct unmerged *unmerged, uint8_t level, struct slice key)
{
    uint16_t size = (uint16_t)key.size;
    rt_latch_lock(&unmerged->latch);
    if (unmerged->keys == NULL)
        unmerged->keys = malloc((size_t)unmerged->capacity * (unmerged->key_max + HEAD));
    if (!unmerged->missed && unmerged->keys != NULL && unmerged->count < unmerged->capacity &&
        key.size <= unmerged->key_max) {
        uint8_t *to = place(unmerged, unmerged->head + unmerged->count++);
        memcpy(to, &size, sizeof(size));
        to[sizeof(size)] = level;
        memcpy(to + HEAD, key.data, key.size);
    } else {
        unmerged->missed = true; /* a walk comes to these, too */
        unmerged->count = 0;
    }
    rt_latch_unlock(&unmerged->latch);
}

uint32_t unmerged_count(struct unmerged *unmerged)
{
    rt_latch_lock(&unmerged->latch);
    uint32_t count = unmerged->count;
    rt_latch_unlock(&unmerged->latch);
    return count;
}

bool unmerged_take(struct unmerged *unmerged, uint8_t *level, uint8_t *key, size_t *size)
{
    uint16_t bytes = 0;
    rt_latch_lock(&unmerged->latch);
    bool some = unmerged->count > 0;
    if (some) {
        const uint8_t *from = place(unmerged, unmerged->head++);
        unmerged->count--;
        memcpy(&bytes, from, sizeof(bytes));
        *level = from[sizeof(bytes)];
        memcpy(key, from + HEAD, bytes);
    }
    rt_latch_unlock(&unmerged->latch);
    *size = bytes;
    return some;
}

/* ---- walking over all leaves ----------------------------------------------------------------- */

bool unmerged_walks(struct unmerged *unmerged)
{
    rt_latch_lock(&unmerged->latch);
    bool walks = unmerged->walking || unmerged->missed;
    rt_latch_unlock(&unmerged->latch);
    return walks;
}

bool unmerged_walk(struct unmerged *unmerged, uint8_t *key, size_t *size)
{
    rt_latch_lock(&unmerged->latch);
    if (!unmerged->walking && unmerged->missed) {
        unmerged->walking = true;
        unmerged->missed = false;
        unmerged->walked_size = 0;
    }
    bool walks = unmerged->walking;
    memcpy(key, unmerged->walked_to, unmerged->walked_size);
    *size = unmerged->walked_size;
    rt_latch_unlock(&unmerged->latch);
    return walks;
}

void unmerged_walk_on(struct unmerged *unmerged, struct slice key)
{
    if (key.size > unmerged->key_max) {
        unmerged_walk_end(unmerged);
        return;
    }
    rt_latch_lock(&unmerged->latch);
    memcpy(unmerged->walked_to, key.data, key.size);
    unmerged->walked_size = key.size;
    rt_latch_unlock(&unmerged->latch);
}

void unmerged_walk_end(struct unmerged *unmerged)
{
    rt_latch_lock(&unmerged->latch);
    unmerged->walking = false;
    rt_latch_unlock(&unmerged->latch);
}
