/*
 * stage.c - staged values of a process that may have to join the pool again: a stage belongs to one
 * membership, whose sweep takes back what was not sealed.
 */
#include <stdlib.h>
#include <string.h>

#include "store/store_int.h"

struct store_stage {
    struct store_table *table;
    struct engine_stage *stage;
    uint64_t membership;
    uint64_t reference; /* 0: not sealed */
    bool taken;
    size_t key_size;
    uint8_t key[ENGINE_KEY_MAX];
};

static uint64_t membership_of(const struct store_table *table)
{
    return table->thread->membership == NULL ? 0 : table->thread->membership->number;
}

static struct slice key_of(const struct store_stage *stage)
{
    return slice_of(stage->key, stage->key_size);
}

/* Counts the caller in, in the stage's own membership; TIMEOUT: that is over. Waits for nothing:
 * the caller may be inside an operation, whose end others wait for. */
static enum pando_status enter(struct store_stage *stage)
{
    return store_table_enter_membership(stage->table, stage->membership);
}

static enum pando_status leave(struct store_table *table, enum pando_status status)
{
    store_table_leave(table);
    return status == PANDO_FENCED ? PANDO_TIMEOUT : status;
}

enum pando_status store_stage_open_co(struct store_table *table, struct slice key, uint64_t size,
                                      bool inside, struct store_stage **out)
{
    struct store_stage *stage = calloc(1, sizeof(*stage));
    if (stage == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = key.size > sizeof(stage->key) ? PANDO_TOO_LARGE : PANDO_OK;
    if (status == PANDO_OK)
        status = inside ? store_table_enter_membership(table, membership_of(table))
                        : store_table_enter_co(table);
    if (status == PANDO_OK) {
        stage->table = table;
        stage->membership = membership_of(table);
        table->stages++;
        if (key.size > 0)
            memcpy(stage->key, key.data, key.size);
        stage->key_size = key.size;
        status =
            leave(table, engine_stage_open_co(table->engine, key_of(stage), size, &stage->stage));
    }
    if (status == PANDO_OK) {
        *out = stage;
        return PANDO_OK;
    }
    if (stage->table != NULL)
        table->stages--;
    free(stage);
    return status;
}

enum pando_status store_stage_add_co(struct store_stage *stage, struct slice bytes)
{
    enum pando_status status = enter(stage);
    return status == PANDO_OK ? leave(stage->table, engine_stage_add_co(stage->stage, bytes))
                              : status;
}

enum pando_status store_stage_seal_co(struct store_stage *stage, struct slice head,
                                      uint64_t *reference)
{
    enum pando_status status = enter(stage);
    if (status == PANDO_OK)
        status = leave(stage->table, engine_stage_seal_co(stage->stage, head, &stage->reference));
    *reference = stage->reference;
    return status;
}

enum pando_status store_stage_swap_co(struct store_stage *stage, const struct store_swap *swap)
{
    struct engine_swap own = engine_swap_of(swap);
    if (stage->reference == 0 || stage->taken)
        return PANDO_INVALID;
    enum pando_status status = enter(stage);
    if (status != PANDO_OK)
        return status;
    own.staged = stage->reference;
    status = engine_swap_co(stage->table->engine, key_of(stage), &own);
    stage->taken = status == PANDO_OK || status == PANDO_UNKNOWN;
    return leave(stage->table, status);
}

/* Frees what nobody took. What was sealed for a table that has been dropped since goes with the table. */
static enum engine_stage_end give_back_co(struct store_stage *stage)
{
    struct store_thread *thread = stage->table->thread;
    enum pando_status status = enter(stage);
    if (status == PANDO_OK) {
        engine_stage_close_co(stage->stage, ENGINE_STAGE_FREE);
        store_table_leave(stage->table);
        return ENGINE_STAGE_FREE;
    }
    if (status != PANDO_NOT_FOUND || stage->reference != 0 ||
        !store_thread_enter_membership(thread, stage->membership))
        return ENGINE_STAGE_LOST;
    engine_stage_close_co(stage->stage, ENGINE_STAGE_FREE);
    store_thread_leave(thread);
    return ENGINE_STAGE_FREE;
}

static void end_co(struct store_stage *stage, bool taken)
{
    enum engine_stage_end end = taken ? ENGINE_STAGE_TAKEN : give_back_co(stage);
    if (end != ENGINE_STAGE_FREE)
        engine_stage_close_co(stage->stage, end);
    stage->table->stages--;
    free(stage);
}

void store_stage_close_co(struct store_stage *stage)
{
    if (stage != NULL)
        end_co(stage, stage->taken);
}

void store_stage_hand_over_co(struct store_stage *stage)
{
    end_co(stage, true);
}
