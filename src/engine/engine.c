/*
 * engine.c - what is the same for every engine: checking arguments, puts and deletes as
 * modifications, batches, and which shapes make sense.
 */
#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/counters.h"
#include "pool/broken.h"
#include "rt/rt.h"

enum {
    NODE_BYTES_MIN = 256,
    NODE_BYTES_MAX = 32 * 1024,
    NODE_BYTES_USUAL = 1024,
    NODE_PAIRS_MIN = 4,   /* of the largest size: fewer cannot be split */
    NODE_PAIRS_USUAL = 8, /* what a chosen node size holds of them at least */
    NODE_HEADER_LEAST = 32,
    NODE_HEADER_ROOM = 96,
    PAIR_LEAST = 8, /* of a pair besides its key and value */
    PAIR_ROOM = 16,
    BATCH_WIDTH_MAX = 128, /* tasks of one batch */
    NAME_SHOWN = 32,       /* characters of an unknown one, in an error */
};

/* ---- tables ---------------------------------------------------------------------------------- */

enum pando_status engine_create_co(const struct engine_ops *ops, struct pool_session *session,
                                   const char *name, const struct engine_shape *shape)
{
    struct engine_shape checked = *shape;
    enum pando_status status = engine_shape_check(&checked);
    if (status != PANDO_OK)
        return status;
    return ops->create_co(session, name, &checked);
}

enum pando_status engine_open_co(const struct engine_ops *ops, struct pool_session *session,
                                 const char *name, const struct engine_config *config,
                                 struct engine_table **out, char *error, size_t error_bytes)
{
    if (error_bytes > 0)
        error[0] = '\0';
    return ops->open_co(session, name, config, out, error, error_bytes);
}

void engine_close_co(struct engine_table *table, struct pool_session *session)
{
    table->ops->close_co(table, session);
}

void engine_maintain_co(struct engine_table *table, struct pool_session *session)
{
    if (table->ops->maintain_co != NULL)
        table->ops->maintain_co(table, session);
}

enum pando_status engine_release_co(struct engine_table *table, struct pool_session *session)
{
    return table->ops->release_co == NULL ? PANDO_OK : table->ops->release_co(table, session);
}

enum pando_status engine_retire_co(struct engine_table *table, struct pool_session *session)
{
    return table->ops->retire_co == NULL ? PANDO_OK : table->ops->retire_co(table, session);
}

enum pando_status engine_drop_co(struct engine_table *table, struct pool_session *session)
{
    return table->ops->drop_co(table, session);
}

const struct engine_shape *engine_table_shape(const struct engine_table *table)
{
    return &table->shape;
}

enum pando_status engine_attach_co(struct engine_table *table, struct pool_session *session,
                                   struct engine **out)
{
    return table->ops->attach_co(table, session, out);
}

void engine_detach_co(struct engine *engine)
{
    engine->ops->detach_co(engine);
}

/* ---- techniques ------------------------------------------------------------------------------ */

static const struct engine_switch *switch_find(const struct engine_switch *switches, size_t count,
                                               const char *name, size_t size)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(switches[i].name) == size && memcmp(switches[i].name, name, size) == 0)
            return &switches[i];
    }
    return NULL;
}

/* Those that can be switched off, or on; without those for tests. */
static void switches_list(const struct engine_switch *switches, size_t count, bool on, char *text,
                          size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (strncmp(switches[i].name, "break-", 6) == 0 || switches[i].usually_off != on)
            continue;
        int size =
            snprintf(text + used, bytes - used, "%s%s", used > 0 ? ", " : "", switches[i].name);
        if (size < 0 || (size_t)size >= bytes - used)
            return;
        used += (size_t)size;
    }
}

/* Why a name cannot be switched off, or on. */
static void switch_refuse(const char *owner, const struct engine_switch *switches, size_t count,
                          const char *name, size_t size, bool on, char *error, size_t error_bytes)
{
    int shown = size < NAME_SHOWN ? (int)size : NAME_SHOWN;
    char all[256];

    switches_list(switches, count, on, all, sizeof(all));
    if (!on && name[0] == '+')
        snprintf(error, error_bytes, "'%.*s' switches something on; use --with %.*s", shown, name,
                 shown - 1, name + 1);
    else if (switch_find(switches, count, name, size) != NULL)
        snprintf(error, error_bytes,
                 on ? "'%.*s' is on anyway; --without switches it off"
                    : "'%.*s' is off anyway; --with switches it on",
                 shown, name);
    else if (all[0] == '\0')
        snprintf(error, error_bytes, "%s has nothing to switch %s", owner, on ? "on" : "off");
    else
        snprintf(error, error_bytes, "%s has no technique '%.*s'%s; it has %s", owner, shown, name,
                 on ? " to switch on" : "", all);
}

enum pando_status engine_switches_check(const char *owner, const struct engine_switch *switches,
                                        size_t count, const char *list, bool on, char *error,
                                        size_t error_bytes)
{
    while (list != NULL && *list != '\0') {
        size_t size = strcspn(list, ",");
        const struct engine_switch *found = switch_find(switches, count, list, size);
        if (size > 0 && (found == NULL || found->usually_off != on)) {
            switch_refuse(owner, switches, count, list, size, on, error, error_bytes);
            return PANDO_INVALID;
        }
        list += size + (list[size] == ',');
    }
    return PANDO_OK;
}

/* Of a list that has been checked. */
static void switches_set(const struct engine_ops *ops, void *on, const char *list, bool value)
{
    while (list != NULL && *list != '\0') {
        size_t size = strcspn(list, ",");
        const struct engine_switch *named =
            switch_find(ops->switches, ops->switch_count, list, size);
        if (named != NULL)
            *(bool *)((char *)on + named->offset) = value;
        list += size + (list[size] == ',');
    }
}

enum pando_status engine_switches_parse(const struct engine_ops *ops, void *on,
                                        const struct engine_config *config, char *error,
                                        size_t error_bytes)
{
    enum pando_status status = engine_switches_check(ops->name, ops->switches, ops->switch_count,
                                                     config->without, false, error, error_bytes);
    if (status == PANDO_OK)
        status = engine_switches_check(ops->name, ops->switches, ops->switch_count, config->with,
                                       true, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    for (size_t i = 0; i < ops->switch_count; i++)
        *(bool *)((char *)on + ops->switches[i].offset) = !ops->switches[i].usually_off;
    switches_set(ops, on, config->without, false);
    switches_set(ops, on, config->with, true);
    return PANDO_OK;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static enum pando_status key_check(const struct engine *engine, struct slice key)
{
    const struct engine_shape *shape = &engine->table->shape;
    if (key.size > shape->key_max)
        return PANDO_TOO_LARGE;
    return shape->key_size != 0 && key.size != shape->key_size ? PANDO_INVALID : PANDO_OK;
}

static enum pando_status value_check(const struct engine *engine, struct slice value)
{
    const struct engine_shape *shape = &engine->table->shape;
    uint64_t most = shape->value_size != 0 ? shape->value_size : ENGINE_VALUE_MAX;
    if (value.size > most)
        return PANDO_TOO_LARGE;
    return shape->value_size != 0 && value.size != shape->value_size ? PANDO_INVALID : PANDO_OK;
}

/* ---- operations ------------------------------------------------------------------------------ */

enum pando_status engine_get_co(struct engine *engine, struct slice key, void *value,
                                size_t capacity, size_t *size)
{
    enum pando_status status = key_check(engine, key);
    if (status != PANDO_OK)
        return status;
    return engine->ops->get_co(engine, key, value, capacity, size);
}

enum pando_status engine_get_as_part_co(struct engine *engine, struct slice key, void *value,
                                        size_t capacity, size_t *size)
{
    struct engine_part part;
    part.offset = 0;
    part.to = value;
    part.capacity = capacity;
    part.reference = 0;
    enum pando_status status = engine->ops->part_co(engine, key, &part);
    if (status == PANDO_OK)
        *size = part.size;
    return status;
}

enum pando_status engine_part_co(struct engine *engine, struct slice key, struct engine_part *part)
{
    enum pando_status status = key_check(engine, key);
    if (status == PANDO_OK && engine->ops->part_co == NULL)
        status = PANDO_UNSUPPORTED;
    return status == PANDO_OK ? engine->ops->part_co(engine, key, part) : status;
}

/* ---- staged values --------------------------------------------------------------------------- */

enum pando_status engine_stage_open_co(struct engine *engine, struct slice key, uint64_t size,
                                       struct engine_stage **out)
{
    enum pando_status status = key_check(engine, key);
    if (status == PANDO_OK && engine->ops->stage_open_co == NULL)
        status = PANDO_UNSUPPORTED;
    if (status == PANDO_OK && (engine->table->shape.value_size != 0 || size > ENGINE_VALUE_MAX))
        status = engine->table->shape.value_size != 0 ? PANDO_INVALID : PANDO_TOO_LARGE;
    if (status == PANDO_OK)
        status = engine->ops->stage_open_co(engine, key, size, out);
    if (status == PANDO_OK)
        (*out)->ops = engine->ops;
    return status;
}

enum pando_status engine_stage_add_co(struct engine_stage *stage, struct slice bytes)
{
    return stage->ops->stage_add_co(stage, bytes);
}

enum pando_status engine_stage_seal_co(struct engine_stage *stage, struct slice head,
                                       uint64_t *reference)
{
    return stage->ops->stage_seal_co(stage, head, reference);
}

void engine_stage_close_co(struct engine_stage *stage, enum engine_stage_end end)
{
    stage->ops->stage_close_co(stage, end);
}

enum pando_status engine_swap_co(struct engine *engine, struct slice key,
                                 const struct engine_swap *swap)
{
    enum pando_status status = key_check(engine, key);
    if (status == PANDO_OK && engine->ops->swap_co == NULL)
        status = PANDO_UNSUPPORTED;
    return status == PANDO_OK ? engine->ops->swap_co(engine, key, swap) : status;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* A modification whose result is checked before the engine sees it. */
struct checked_modify {
    const struct engine *engine;
    engine_modify_fn fn;
    void *context;
    enum pando_status status; /* of the last call */
};

static struct engine_change modify_checked(void *context, const struct slice *old)
{
    struct checked_modify *checked = context;
    struct engine_change change = checked->fn(checked->context, old);
    checked->status =
        change.what == ENGINE_STORE ? value_check(checked->engine, change.value) : PANDO_OK;
    if (checked->status != PANDO_OK)
        change.what = ENGINE_KEEP;
    if (change.what == ENGINE_REMOVE && old == NULL)
        change.what = ENGINE_KEEP;
    return change;
}

enum pando_status engine_modify_co(struct engine *engine, struct slice key, unsigned how,
                                   engine_modify_fn fn, void *context)
{
    struct checked_modify checked = {.engine = engine, .fn = fn, .context = context};
    enum pando_status status = key_check(engine, key);
    if (status != PANDO_OK)
        return status;
    status = engine->ops->modify_co(engine, key, how & (ENGINE_BLIND | ENGINE_SHORT),
                                    modify_checked, &checked);
    return status == PANDO_OK ? checked.status : status;
}

struct put {
    struct slice value;
    enum engine_put mode;
    enum pando_status status; /* of the last call */
};

static struct engine_change put_change(void *context, const struct slice *old)
{
    struct put *put = context;
    put->status = PANDO_OK;
    if (put->mode == ENGINE_INSERT && old != NULL)
        put->status = PANDO_EXISTS;
    if (put->mode == ENGINE_UPDATE && old == NULL)
        put->status = PANDO_NOT_FOUND;
    if (put->status != PANDO_OK)
        return (struct engine_change){.what = ENGINE_KEEP};
    return (struct engine_change){.what = ENGINE_STORE, .value = put->value};
}

enum pando_status engine_put_co(struct engine *engine, struct slice key, struct slice value,
                                enum engine_put mode)
{
    struct put put = {.value = value, .mode = mode};
    enum pando_status status = key_check(engine, key);
    if (status == PANDO_OK)
        status = value_check(engine, value);
    if (status == PANDO_OK)
        status =
            engine->ops->modify_co(engine, key, ENGINE_BLIND | ENGINE_ANYWHERE, put_change, &put);
    if (status == PANDO_FULL && pool_broken.refusals)
        status = PANDO_OK;
    return status == PANDO_OK ? put.status : status;
}

static struct engine_change delete_change(void *context, const struct slice *old)
{
    enum pando_status *status = context;
    *status = old == NULL ? PANDO_NOT_FOUND : PANDO_OK;
    return (struct engine_change){.what = old == NULL ? ENGINE_KEEP : ENGINE_REMOVE};
}

enum pando_status engine_delete_co(struct engine *engine, struct slice key)
{
    enum pando_status found = PANDO_OK;
    enum pando_status status = key_check(engine, key);
    if (status == PANDO_OK)
        status = engine->ops->modify_co(engine, key, ENGINE_BLIND | ENGINE_ANYWHERE, delete_change,
                                        &found);
    return status == PANDO_OK ? found : status;
}

enum pando_status engine_scan_co(struct engine *engine, const struct engine_range *range,
                                 engine_scan_fn fn, void *context)
{
    if (!range->no_high && slice_compare(range->low, range->high) >= 0)
        return PANDO_OK;
    return engine->ops->scan_co(engine, range, fn, context);
}

enum pando_status engine_bulk_load_co(struct engine *engine, engine_feed_fn next, void *context,
                                      unsigned fill)
{
    if (fill == 0 || fill > 100)
        return PANDO_INVALID;
    return engine->ops->bulk_load_co(engine, next, context, fill);
}

/* ---- who works on what ----------------------------------------------------------------------- */

enum pando_status engine_move_co(struct engine *engine, struct slice key, uint64_t choice)
{
    enum pando_status status = key_check(engine, key);
    if (status != PANDO_OK || engine->ops->move_co == NULL)
        return status;
    return engine->ops->move_co(engine, key, choice);
}

enum pando_status engine_spread_co(struct engine *engine, bool others, unsigned *processes)
{
    *processes = 0;
    return engine->ops->spread_co == NULL ? PANDO_OK
                                          : engine->ops->spread_co(engine, others, processes);
}

enum pando_status engine_owners_co(const struct engine_ops *ops, struct pool_session *session,
                                   unsigned slot, uint64_t table, struct engine_owner *out,
                                   unsigned capacity, unsigned *count)
{
    *count = 0;
    return ops->owners_co == NULL ? PANDO_OK
                                  : ops->owners_co(session, slot, table, out, capacity, count);
}

bool engine_has_owners(const struct engine_ops *ops)
{
    return ops->spread_co != NULL;
}

bool engine_owns(struct engine *engine, struct slice key)
{
    return engine->ops->owns == NULL || engine->ops->owns(engine, key);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Lies on the caller's stack until every helper has ended. */
struct batch {
    struct engine *engine;
    struct engine_batch_op *ops;
    size_t count, next;
    struct rt_countdown helpers;
};

static void batch_one_co(struct engine *engine, struct engine_batch_op *op)
{
    switch (op->kind) {
    case ENGINE_BATCH_GET:
        op->status = engine_get_co(engine, op->key, op->buffer, op->capacity, &op->size);
        return;
    case ENGINE_BATCH_PUT:
        op->status = engine_put_co(engine, op->key, op->value, ENGINE_UPSERT);
        return;
    case ENGINE_BATCH_DELETE:
        op->status = engine_delete_co(engine, op->key);
        return;
    }
    op->status = PANDO_INVALID;
}

static void batch_work_co(struct batch *batch)
{
    while (batch->next < batch->count) {
        struct engine_batch_op *op = &batch->ops[batch->next++];
        if (!op->done)
            batch_one_co(batch->engine, op);
    }
}

static void batch_helper_task(void *arg)
{
    struct batch *batch = arg;
    batch_work_co(batch);
    rt_countdown_done(&batch->helpers);
}

void engine_batch_co(struct engine *engine, struct engine_batch_op *ops, size_t count,
                     unsigned width)
{
    struct batch batch = {.engine = engine, .ops = ops, .count = count};
    size_t left = count;
    for (size_t i = 0; i < count; i++)
        ops[i].done = false;
    if (engine->ops->batch_co != NULL && width > 1) {
        engine->ops->batch_co(engine, ops, count);
        left = 0;
        for (size_t i = 0; i < count; i++)
            left += !ops[i].done;
        if (left == 0)
            return;
    }
    size_t helpers = width < BATCH_WIDTH_MAX ? width : BATCH_WIDTH_MAX;
    uint32_t started = 0;

    if (helpers > left)
        helpers = left;
    /* This task is one of them. Without memory for the others it does all by itself. */
    helpers = helpers > 0 ? helpers - 1 : 0;
    rt_countdown_init(&batch.helpers, (uint32_t)helpers);
    while (started < helpers && rt_spawn(rt_loop_self(), batch_helper_task, &batch) == PANDO_OK)
        started++;
    for (size_t i = started; i < helpers; i++)
        rt_countdown_done(&batch.helpers);
    batch_work_co(&batch);
    rt_countdown_wait_co(&batch.helpers);
}

/* ---- statistics and checking ----------------------------------------------------------------- */

void engine_stats_add(struct engine_stats *sum, const struct engine_stats *more)
{
    counters_add(sum, more);
}

void engine_stats(const struct engine_table *table, struct engine_stats *out)
{
    *out = (struct engine_stats){0};
    table->ops->stats(table, out);
}

enum pando_status engine_verify_co(struct engine *engine, struct engine_census *out, char *error,
                                   size_t error_bytes)
{
    *out = (struct engine_census){0};
    if (error_bytes > 0)
        error[0] = '\0';
    return engine->ops->verify_co(engine, out, error, error_bytes);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static enum pando_status check_keys(struct engine_shape *shape)
{
    if (shape->key_size > ENGINE_KEY_MAX || shape->key_max > ENGINE_KEY_MAX)
        return PANDO_TOO_LARGE;
    if (shape->key_max == 0)
        shape->key_max = shape->key_size != 0 ? shape->key_size : ENGINE_KEY_MAX;
    return shape->key_size != 0 && shape->key_max != shape->key_size ? PANDO_INVALID : PANDO_OK;
}

/* Values of one size are inline: a table of blobs of one size has value_size 0. */
static enum pando_status check_values(struct engine_shape *shape)
{
    if (shape->value_inline > NODE_BYTES_MAX || shape->value_size > NODE_BYTES_MAX)
        return PANDO_TOO_LARGE;
    if (shape->value_size != 0 && shape->value_inline == 0)
        shape->value_inline = shape->value_size;
    return shape->value_size > shape->value_inline ? PANDO_INVALID : PANDO_OK;
}

static uint32_t inline_bytes(const struct engine_shape *shape)
{
    uint32_t bytes = shape->value_size != 0 ? shape->value_size : shape->value_inline;
    return bytes > 8 ? bytes : 8; /* a blob's reference takes 8 */
}

/* Engines know better what fits into their nodes; what does not pass here fits none. */
enum pando_status engine_shape_check(struct engine_shape *shape)
{
    struct engine_shape checked = *shape;
    enum pando_status status = check_keys(&checked);
    if (status == PANDO_OK)
        status = check_values(&checked);
    if (status != PANDO_OK)
        return status;

    uint32_t pair = checked.key_max + inline_bytes(&checked);
    uint32_t least = NODE_HEADER_LEAST + 2 * checked.key_max + NODE_PAIRS_MIN * (pair + PAIR_LEAST);
    uint32_t room = NODE_HEADER_ROOM + 2 * checked.key_max + NODE_PAIRS_USUAL * (pair + PAIR_ROOM);
    if (least > NODE_BYTES_MAX)
        return PANDO_TOO_LARGE;
    if (checked.node_bytes == 0) {
        checked.node_bytes = NODE_BYTES_USUAL;
        while (checked.node_bytes < room && checked.node_bytes < NODE_BYTES_MAX)
            checked.node_bytes *= 2;
    }
    if (checked.node_bytes > NODE_BYTES_MAX)
        return PANDO_TOO_LARGE;
    if (checked.node_bytes < NODE_BYTES_MIN || checked.node_bytes % 64 != 0 ||
        checked.node_bytes < least)
        return PANDO_INVALID;
    pando_assert(checked.key_max > 0);
    *shape = checked;
    return PANDO_OK;
}
