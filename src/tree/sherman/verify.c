/*
 * verify.c - checking a table while others use it: its pairs and long values, and with blink/verify.c its nodes.
 */
#include <string.h>

#include "tree/sherman/sherman_int.h"

/* Reads the whole of a long value. STALE: it is not there, not what it was, or not of this key. */
static enum pando_status check_blob_co(struct blink *self, const struct node_entry *entry,
                                       uint64_t *bytes)
{
    blob_ref blob;
    uint64_t pool_bytes;
    memcpy(&blob, entry->value.data, sizeof(blob));
    enum pando_status status =
        blob_check_co(self->session, self->tree->id, entry->key, blob, &pool_bytes);
    if (status == PANDO_OK)
        *bytes += pool_bytes;
    return status;
}

enum pando_status sherman_leaf_check_co(struct blink *self, const struct blink_span *span,
                                        struct blink_scratch *scratch,
                                        const struct node_header *header,
                                        struct blink_content *content, const char **wrong)
{
    uint32_t count;
    if (!leaf_entries(&self->tree->layout, header, scratch->node, scratch->entries, &count)) {
        *wrong = blink_torn_leaf;
        return PANDO_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct node_entry *entry = &scratch->entries[i];
        if (slice_compare(entry->key, span->low) < 0 ||
            (!span->no_high && slice_compare(entry->key, span->high) >= 0))
            continue; /* of a leaf that has grown since its parent was read: another range's */
        content->pairs++;
        if ((entry->flags & NODE_FLAG_BLOB) == 0)
            continue;
        enum pando_status status = check_blob_co(self, entry, &content->bytes);
        if (status == PANDO_STALE) {
            *wrong = "a long value that a pair of this leaf refers to is damaged";
            return PANDO_OK;
        }
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

struct others {
    unsigned slot; /* of the table that asks */
    bool any;
};

static bool another(void *context, unsigned slot, const struct pool_entry *entry)
{
    struct others *others = context;
    others->any = slot != others->slot && strcmp(entry->engine, sherman_engine.name) == 0;
    return !others->any;
}

/* Lock words are shared by all tables, and it is Sherman's that repair by their marks: they are
 * taken, to be cleared when this table proves whole, only if it is the one Sherman table. Of
 * several, whoever verifies them all does that (cmd/table.c). */
static enum pando_status take_marks_co(struct sherman *self, struct pool_marks **marks)
{
    struct others others = {.slot = self->table->blink.slot};
    enum pando_status status = pool_directory_each_co(self->base.session, another, &others);
    *marks = NULL;
    return status == PANDO_OK && !others.any ? pool_marks_take_co(self->base.session, marks)
                                             : status;
}

enum pando_status sherman_verify_co(struct engine *engine, struct engine_census *out, char *error,
                                    size_t error_bytes)
{
    struct sherman *self = sherman_of(engine);
    struct pool_marks *marks = NULL;
    *out = (struct engine_census){0};
    enum pando_status status = take_marks_co(self, &marks);
    if (status == PANDO_OK)
        status = blink_verify_co(&self->blink, out, error, error_bytes);
    if (status == PANDO_OK && marks != NULL && out->damaged == 0 && out->unsettled == 0)
        status = pool_marks_clear_co(self->base.session, marks);
    pool_marks_free(marks);
    return status == PANDO_OK && out->damaged > 0 ? PANDO_CORRUPT : status;
}
