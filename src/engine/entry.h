/*
 * entry.h - a table's entry in the pool's directory, for engines whose shape is all that they need to
 * be told.
 */
#ifndef ENGINE_ENTRY_H
#define ENGINE_ENTRY_H

#include "engine/engine.h"

struct engine_entry {
    unsigned slot; /* in the directory */
    uint16_t table;
    struct engine_shape shape;
};

/* Enters a table that has no root yet. `format` is the engine's own; it opens no other. Statuses of
 * pool_table_create_co. */
PANDO_MUST_CHECK enum pando_status
engine_entry_create_co(struct pool_session *session, const char *name, const struct engine_ops *ops,
                       uint64_t format, const struct engine_shape *shape, struct engine_entry *out);

/* Finds it. INVALID: it is another engine's; VERSION: of another format; and those of
 * pool_table_open_co; error says it as one line. The shape is as it lies there: not yet checked. */
PANDO_MUST_CHECK enum pando_status
engine_entry_open_co(struct pool_session *session, const char *name, const struct engine_ops *ops,
                     uint64_t format, struct engine_entry *out, char *error, size_t error_bytes);

#endif
