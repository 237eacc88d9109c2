/*
 * entry.c - shapes in the directory's words.
 */
#include "engine/entry.h"

#include <stdio.h>
#include <string.h>

/* What the entry's words mean. */
enum { WORD_NODE_BYTES, WORD_KEY_SIZE, WORD_VALUE_SIZE, WORD_FORMAT };

enum pando_status engine_entry_create_co(struct pool_session *session, const char *name,
                                         const struct engine_ops *ops, uint64_t format,
                                         const struct engine_shape *shape, struct engine_entry *out)
{
    struct pool_entry entry;
    struct pool_table_options options = {
        .name = name,
        .engine = ops->name,
        .key_max = shape->key_max,
        .value_inline = shape->value_inline,
        .words = {[WORD_NODE_BYTES] = shape->node_bytes,
                  [WORD_KEY_SIZE] = shape->key_size,
                  [WORD_VALUE_SIZE] = shape->value_size,
                  [WORD_FORMAT] = format},
    };
    enum pando_status status = pool_table_create_co(session, &options, &out->slot, &entry);
    if (status != PANDO_OK)
        return status;
    out->table = (uint16_t)entry.table;
    out->shape = *shape;
    return PANDO_OK;
}

enum pando_status engine_entry_open_co(struct pool_session *session, const char *name,
                                       const struct engine_ops *ops, uint64_t format,
                                       struct engine_entry *out, char *error, size_t error_bytes)
{
    struct pool_entry entry;
    enum pando_status status = pool_table_open_co(session, name, &out->slot, &entry);
    if (status != PANDO_OK) {
        snprintf(error, error_bytes, "table '%s': %s", name, pando_status_text(status));
        return status;
    }
    if (strcmp(entry.engine, ops->name) != 0) {
        snprintf(error, error_bytes, "table '%s' belongs to the engine '%s'", name, entry.engine);
        return PANDO_INVALID;
    }
    if (entry.table == 0 || entry.table > POOL_TABLE_NUMBER_MAX) {
        snprintf(error, error_bytes, "table '%s' has no number: its entry is damaged", name);
        return PANDO_CORRUPT;
    }
    uint16_t node;
    if (name[0] != '#' && pool_table_lost(pool_session_pool(session), &entry, &node)) {
        snprintf(
            error, error_bytes,
            "table '%s' is damaged: what it had on memory node %u is lost, that node was replaced; "
            "`pando table drop %s`, and load it again if you have a dump",
            name, node, name);
        return PANDO_CORRUPT;
    }
    if (entry.words[WORD_FORMAT] != format) {
        snprintf(error, error_bytes,
                 "table '%s' was made by another version of this engine; dump it with a program of "
                 "that version, and load it with this one",
                 name);
        return PANDO_VERSION;
    }
    out->table = (uint16_t)entry.table;
    out->shape = (struct engine_shape){
        .key_size = (uint32_t)entry.words[WORD_KEY_SIZE],
        .value_size = (uint32_t)entry.words[WORD_VALUE_SIZE],
        .key_max = entry.key_max,
        .value_inline = entry.value_inline,
        .node_bytes = (uint32_t)entry.words[WORD_NODE_BYTES],
    };
    return PANDO_OK;
}
