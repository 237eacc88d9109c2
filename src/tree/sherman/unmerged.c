/*
 * unmerged.c - nodes that could not be merged because others were at work beside them. The last of many
 * deletions in a range has nobody after it to try again, so that empty nodes would stay for ever. Their keys
 * are remembered, a bounded number of them, and tried by the table's keeper, one after the other.
 */
#include <stdlib.h>
#include <string.h>

#include "tree/sherman/sherman_int.h"

enum { KEYS_MAX = 8192, KEYS_BYTES = 512 * 1024, HEAD = 3 };

struct unmerged {
    struct rt_latch latch;
    uint32_t key_max, capacity, head, count;
    uint8_t *keys; /* a ring: size 2, level 1, key; allocated when first needed */
};

struct unmerged *unmerged_create(uint32_t key_max)
{
    struct unmerged *unmerged = calloc(1, sizeof(*unmerged));
    if (unmerged == NULL)
        return NULL;
    unmerged->key_max = key_max;
    unmerged->capacity =
        KEYS_BYTES / (key_max + HEAD) < KEYS_MAX ? KEYS_BYTES / (key_max + HEAD) : KEYS_MAX;
    return unmerged;
}

void unmerged_destroy(struct unmerged *unmerged)
{
    if (unmerged != NULL)
        free(unmerged->keys);
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
    if (unmerged->keys != NULL && unmerged->count < unmerged->capacity &&
        key.size <= unmerged->key_max) {
        uint8_t *to = place(unmerged, unmerged->head + unmerged->count++);
        memcpy(to, &size, sizeof(size));
        to[sizeof(size)] = level;
        memcpy(to + HEAD, key.data, key.size);
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
