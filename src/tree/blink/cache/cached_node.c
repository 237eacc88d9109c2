#include "tree/blink/cache/cached_node.h"

#include <stdlib.h>
#include <string.h>

enum { WORD_KEY = 8 };

static bool keys_are_words(const struct node_layout *layout)
{
    return layout->key_size == WORD_KEY;
}

static const uint8_t *cell_of(const struct cached_node *node)
{
    return (const uint8_t *)(node->words + node->count);
}

struct cached_node *cached_node_create(const struct node_layout *layout,
                                       const struct node_header *header, const uint8_t *bytes)
{
    uint32_t count = inner_count(layout, bytes);
    size_t rest = keys_are_words(layout) ? (count + 1) * sizeof(uint64_t) : header->cell_bytes;
    size_t size = sizeof(struct cached_node) + count * sizeof(uint64_t) + rest;
    struct cached_node *node = malloc(size);
    if (node == NULL)
        return NULL;
    *node = (struct cached_node){.bytes = (uint32_t)size,
                                 .count = (uint16_t)count,
                                 .level = header->level,
                                 .no_high = header->no_high};
    if (keys_are_words(layout)) {
        uint64_t *children = node->words + count;
        for (uint32_t i = 0; i <= count; i++)
            children[i] = inner_child_at(layout, bytes, i);
        node->low_size = (uint8_t)header->low.size;
        if (header->low.size > 0)
            memcpy(node->low, header->low.data, WORD_KEY);
        if (!header->no_high)
            memcpy(node->high, header->high.data, WORD_KEY);
    } else {
        memcpy(node->words + count, bytes, header->cell_bytes);
        if (count > 0)
            node->skip = (uint16_t)key_words_common(inner_key_at(layout, bytes, 0),
                                                    inner_key_at(layout, bytes, count - 1));
    }
    for (uint32_t i = 0; i < count; i++)
        node->words[i] = key_word(inner_key_at(layout, bytes, i), node->skip);
    return node;
}

struct slice cached_node_low(const struct node_layout *layout, const struct cached_node *node)
{
    return keys_are_words(layout) ? slice_of(node->low, node->low_size)
                                  : node_low_fence(layout, cell_of(node));
}

bool cached_node_reaches(const struct node_layout *layout, const struct cached_node *node,
                         struct slice key, bool before)
{
    struct slice high = slice_of(node->high, WORD_KEY);
    int order;

    if (node->no_high)
        return true;
    if (keys_are_words(layout) && key.size == WORD_KEY) {
        uint64_t a = key_word(key, 0), b = key_word(high, 0);
        order = (a > b) - (a < b);
    } else {
        if (!keys_are_words(layout))
            (void)node_high_fence(layout, cell_of(node), &high);
        order = slice_compare(key, high);
    }
    return before ? order <= 0 : order < 0;
}

bool cached_node_begins(const struct node_layout *layout, const struct cached_node *node,
                        struct slice key, bool before)
{
    int order = slice_compare(cached_node_low(layout, node), key);
    return before ? order < 0 : order <= 0;
}

/* What the separators of a node need for being looked at. */
struct separators {
    const struct node_layout *layout;
    const uint8_t *cell;
};

static struct slice separator_at(const void *context, uint32_t index)
{
    const struct separators *separators = context;
    return inner_key_at(separators->layout, separators->cell, index);
}

uint32_t cached_node_index(const struct node_layout *layout, const struct cached_node *node,
                           struct slice key, bool before)
{
    struct separators separators = {.layout = layout, .cell = cell_of(node)};
    struct key_words words = {.words = node->words,
                              .count = node->count,
                              .skip = node->skip,
                              .key_size = keys_are_words(layout) ? WORD_KEY : 0,
                              .key_at = separator_at,
                              .context = &separators};
    if (node->skip > 0)
        words.common = inner_key_at(layout, separators.cell, 0).data;
    return key_words_to(&words, key, before);
}

fabric_address cached_node_child(const struct node_layout *layout, const struct cached_node *node,
                                 uint32_t index)
{
    return keys_are_words(layout) ? node->words[node->count + index]
                                  : inner_child_at(layout, cell_of(node), index);
}

void cached_node_prefetch(const struct node_layout *layout, const struct cached_node *node)
{
    enum { LINE_BYTES = 64, MOST = 1024 };
    const uint8_t *line = (const uint8_t *)node;
    const uint8_t *end = line + (layout->node_bytes < MOST ? layout->node_bytes : MOST);
    for (; line < end; line += LINE_BYTES)
        __builtin_prefetch(line);
}
