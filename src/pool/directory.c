/*
 * directory.c - named tables on node 0. Changes are made under one lock; an entry is live or not by
 * one word, written last, so that a creator's death leaves nothing but an entry that is still free.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "pool/pool_int.h"

uint64_t pool_entry_offset(const struct pool *pool, unsigned slot)
{
    return pool->first + POOL_DIRECTORY + (uint64_t)slot * POOL_ENTRY_BYTES;
}

static bool name_ok(const char *name, size_t most)
{
    size_t size = strlen(name);
    return size > 0 && size < most && name[0] != '#';
}

enum pando_status pool_directory_co(struct pool_session *session, struct pool_entry *entries)
{
    struct fabric_op read =
        fabric_read(pool_entry_offset(session->pool, 0), entries, POOL_TABLES * POOL_ENTRY_BYTES);
    enum pando_status status = pool_submit_co(session, 0, &read, 1);
    for (unsigned i = 0; i < POOL_TABLES; i++) {
        entries[i].name[POOL_NAME_MAX - 1] = '\0';
        entries[i].engine[POOL_ENGINE_NAME_MAX - 1] = '\0';
    }
    return status;
}

/* A slot with that name, or POOL_TABLES. Reading is not under the lock: a name whose entry is being
 * dropped or reused right now is read again by whoever cares, under the lock. */
unsigned pool_entry_find(const struct pool_entry *entries, const char *name)
{
    uint64_t number = name[0] == '#' ? strtoull(name + 1, NULL, 10) : 0;
    for (unsigned slot = 0; slot < POOL_TABLES; slot++) {
        const struct pool_entry *entry = &entries[slot];
        if (number != 0 ? pool_entry_dropping(entry->state) && entry->table == number
                        : entry->state == POOL_ENTRY_LIVE && strcmp(entry->name, name) == 0)
            return slot;
    }
    return POOL_TABLES;
}

enum pando_status pool_directory_change_co(struct pool_session *session, pool_directory_fn fn,
                                           void *context)
{
    struct pool_lock lock;
    struct pool_entry *entries = malloc(POOL_TABLES * sizeof(*entries));
    if (entries == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status =
        pool_lock_co(session, pool_lock_address(session->pool, 0, POOL_LOCK_DIRECTORY), &lock);
    if (status == PANDO_OK) {
        status = pool_directory_co(session, entries);
        if (status == PANDO_OK)
            status = fn(session, entries, context);
        enum pando_status unlocked = pool_unlock_co(session, &lock);
        if (status == PANDO_OK)
            status = unlocked;
    }
    free(entries);
    return status;
}

struct creation {
    const struct pool_table_options *options;
    unsigned *slot;
    struct pool_entry *out;
};

static bool number_known(const struct pool_entry *entries, uint64_t number)
{
    for (unsigned i = 0; i < POOL_TABLES; i++) {
        if (entries[i].table == number)
            return true;
    }
    return false;
}

/* Entries keep their numbers when they are freed, so that the next is higher than any there was. Numbers are used
 * again when all have been: nobody uses a table that was dropped, and nothing leads to what deaths have left of it. */
static uint64_t number_new(const struct pool_entry *entries)
{
    uint64_t highest = 0, first = rt_random();
    for (unsigned i = 0; i < POOL_TABLES; i++) {
        if (entries[i].table > highest)
            highest = entries[i].table;
    }
    uint64_t number = highest + 1;
    if (highest < POOL_TABLE_NUMBER_MAX)
        return number;
    do
        number = 1 + first++ % POOL_TABLE_NUMBER_MAX;
    while (number_known(entries, number));
    return number;
}
_Static_assert(POOL_TABLES < POOL_TABLE_NUMBER_MAX, "one of them is not known");

static enum pando_status create_locked_co(struct pool_session *session, struct pool_entry *entries,
                                          void *context)
{
    const struct creation *creation = context;
    const struct pool_table_options *options = creation->options;
    struct pool_entry *out = creation->out;
    uint64_t live = POOL_ENTRY_LIVE;
    unsigned free_slot = 0;

    if (pool_entry_find(entries, options->name) != POOL_TABLES)
        return PANDO_EXISTS;
    while (free_slot < POOL_TABLES && entries[free_slot].state != POOL_ENTRY_FREE)
        free_slot++;
    if (free_slot == POOL_TABLES)
        return PANDO_FULL;
    uint64_t deaths;
    enum pando_status status = pool_deaths_co(session, &deaths);
    if (status != PANDO_OK)
        return status;
    *out = (struct pool_entry){
        .deaths = deaths,
        .root = options->root,
        .table = number_new(entries),
        .uses = pool_uses_pack((struct pool_uses){.epoch = session->pool->epoch}),
        .key_max = options->key_max,
        .value_inline = options->value_inline,
    };
    memcpy(out->name, options->name, strlen(options->name) + 1);
    memcpy(out->engine, options->engine, strlen(options->engine) + 1);
    memcpy(out->words, options->words, sizeof(out->words));
    uint64_t offset = pool_entry_offset(session->pool, free_slot);
    struct fabric_op ops[] = {
        fabric_write(offset, out, sizeof(*out)),
        fabric_write(offset, &live, sizeof(live)),
    };
    status = pool_submit_co(session, 0, ops, 2);
    out->state = POOL_ENTRY_LIVE;
    *creation->slot = free_slot;
    pool_uses_learn(session->pool, free_slot, out);
    return status;
}

enum pando_status pool_table_create_co(struct pool_session *session,
                                       const struct pool_table_options *options, unsigned *slot,
                                       struct pool_entry *out)
{
    struct creation creation = {.options = options, .slot = slot, .out = out};
    if (!name_ok(options->name, POOL_NAME_MAX) || !name_ok(options->engine, POOL_ENGINE_NAME_MAX))
        return PANDO_INVALID;
    return pool_directory_change_co(session, create_locked_co, &creation);
}

enum pando_status pool_entry_free_co(struct pool_session *session, unsigned slot)
{
    uint64_t free_state = POOL_ENTRY_FREE;
    struct fabric_op write =
        fabric_write(pool_entry_offset(session->pool, slot), &free_state, sizeof(free_state));
    return pool_submit_co(session, 0, &write, 1);
}

static enum pando_status drop_locked_co(struct pool_session *session, struct pool_entry *entries,
                                        void *context)
{
    unsigned slot = pool_entry_find(entries, context);
    return slot == POOL_TABLES ? PANDO_NOT_FOUND : pool_entry_free_co(session, slot);
}

enum pando_status pool_table_drop_co(struct pool_session *session, const char *name)
{
    return pool_directory_change_co(session, drop_locked_co, (void *)(uintptr_t)name);
}

/* ---- tables that are being created ----------------------------------------------------------- */

struct creating {
    unsigned slot;
    uint64_t table;
    pool_table_fn fn;
    void *context;
};

static enum pando_status undo_locked_co(struct pool_session *session, struct pool_entry *entries,
                                        void *context)
{
    const struct creating *creating = context;
    const struct pool_entry *entry = &entries[creating->slot];
    if (entry->table != creating->table || entry->state != POOL_ENTRY_LIVE)
        return PANDO_NOT_FOUND;
    return entry->root != 0 ? PANDO_EXISTS : pool_entry_free_co(session, creating->slot);
}

enum pando_status pool_table_undo_co(struct pool_session *session, unsigned slot, uint64_t table)
{
    struct creating creating = {.slot = slot, .table = table};
    return slot >= POOL_TABLES ? PANDO_INVALID
                               : pool_directory_change_co(session, undo_locked_co, &creating);
}

static enum pando_status run_locked_co(struct pool_session *session, struct pool_entry *entries,
                                       void *context)
{
    const struct creating *creating = context;
    const struct pool_entry *entry = &entries[creating->slot];
    return entry->table == creating->table && entry->state != POOL_ENTRY_FREE
               ? creating->fn(session, creating->context)
               : PANDO_NOT_FOUND;
}

enum pando_status pool_table_locked_co(struct pool_session *session, unsigned slot, uint64_t table,
                                       pool_table_fn fn, void *context)
{
    struct creating creating = {slot, table, fn, context};
    return slot >= POOL_TABLES ? PANDO_INVALID
                               : pool_directory_change_co(session, run_locked_co, &creating);
}

enum pando_status pool_table_open_co(struct pool_session *session, const char *name, unsigned *slot,
                                     struct pool_entry *out)
{
    struct pool_entry *entries = malloc(POOL_TABLES * sizeof(*entries));
    if (entries == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = pool_directory_co(session, entries);
    if (status == PANDO_OK) {
        unsigned found = pool_entry_find(entries, name);
        if (found == POOL_TABLES) {
            status = PANDO_NOT_FOUND;
        } else {
            *slot = found;
            *out = entries[found];
            pool_uses_learn(session->pool, found, out);
        }
    }
    free(entries);
    return status;
}

enum pando_status pool_table_list_co(struct pool_session *session, struct pool_entry *out,
                                     unsigned *count)
{
    enum pando_status status = pool_directory_co(session, out);
    *count = 0;
    if (status != PANDO_OK)
        return status;
    for (unsigned i = 0; i < POOL_TABLES; i++) {
        if (out[i].state == POOL_ENTRY_LIVE)
            out[(*count)++] = out[i];
    }
    return PANDO_OK;
}

static fabric_address root_address(const struct pool *pool, unsigned slot)
{
    pando_assert(slot < POOL_TABLES);
    return fabric_address_make(0,
                               pool_entry_offset(pool, slot) + offsetof(struct pool_entry, root));
}

enum pando_status pool_root_read_co(struct pool_session *session, unsigned slot, uint64_t *root)
{
    return pool_word_read_co(session, root_address(session->pool, slot), root);
}

enum pando_status pool_root_await_co(struct pool_session *session, unsigned slot, uint64_t *root)
{
    static const uint64_t LOOK_NS = 100 * RT_NS_PER_US;
    uint64_t deadline_ns = rt_now_ns() + 2 * session->pool->lease_ns;
    for (;;) {
        enum pando_status status = pool_root_read_co(session, slot, root);
        if (status != PANDO_OK || *root != 0)
            return status;
        if (rt_now_ns() > deadline_ns)
            return PANDO_TIMEOUT;
        rt_sleep_co(LOOK_NS);
    }
}

enum pando_status pool_root_swap_co(struct pool_session *session, unsigned slot, uint64_t expected,
                                    uint64_t desired, uint64_t *found)
{
    enum pando_status status =
        pool_word_cas_co(session, root_address(session->pool, slot), expected, desired, found);
    return status == PANDO_OK && *found != expected ? PANDO_STALE : status;
}
