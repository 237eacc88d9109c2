/*
 * directory_change.c - creating and freeing entries of the tables' directory, under its lock.
 *
 * A change is one list:
 *
 *     changing = 1   the entry   its number's bit   the head   the entry's state   changing = 0
 *
 * An entry is live or not by its state alone, so a death in the middle leaves it as it was or as it was to be.
 * What else the list writes follows from the entries: the next to take the lock finds `changing` set and
 * counts everything again (recount_co).
 *
 *   cut off after        what others find                       what the next change does
 *   nothing              the lock                               nothing
 *   changing = 1 ...     the entry as it was                    mends: the head is as before
 *   the state            the entry as it was to be              mends: the head is as it was to be
 *   changing = 0         the change, and the lock               nothing
 *
 * Numbers are given in turn, and those of tables that are there are passed over: a number is used again only
 * after all others were. Nobody uses a table that was dropped so long ago, and nothing leads to what deaths
 * have left of it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "pool/checked_word.h"
#include "pool/directory_int.h"
#include "pool/pool_int.h"

_Static_assert(POOL_TABLES < POOL_TABLE_NUMBER_MAX, "some number is free");

static bool name_ok(const char *name, size_t most)
{
    size_t size = strlen(name);
    return size > 0 && size < most && name[0] != '#';
}

/* ---- numbers and groups as bits -------------------------------------------------------------- */

static bool bit_is(const uint64_t *words, uint64_t bit)
{
    return (words[bit / 64] >> bit % 64 & 1) != 0;
}

static void bit_set(uint64_t *words, uint64_t bit, bool value)
{
    uint64_t mask = (uint64_t)1 << bit % 64;
    words[bit / 64] = value ? words[bit / 64] | mask : words[bit / 64] & ~mask;
}

/* 0: there is none. */
static uint64_t number_next(const struct pool_change *change)
{
    uint64_t number = change->head.number;
    for (unsigned i = 0; i < POOL_TABLE_NUMBER_MAX; i++) {
        number = number % POOL_TABLE_NUMBER_MAX + 1;
        if (!bit_is(change->numbers, number))
            return number;
    }
    return 0;
}

static bool is_astray(const struct pool *pool, unsigned slot, const char *name)
{
    unsigned groups[2];
    pool_entry_groups(pool, name, groups);
    return slot / POOL_GROUP_ENTRIES != groups[0] && slot / POOL_GROUP_ENTRIES != groups[1];
}

/* Counts an entry in. */
static void count_in(const struct pool *pool, struct pool_change *change, unsigned slot,
                     const struct pool_entry *entry)
{
    struct pool_directory_head *head = &change->head;
    head->used++;
    head->astray += is_astray(pool, slot, entry->name);
    head->dropping += pool_entry_dropping(entry->state);
    bit_set(head->groups, slot / POOL_GROUP_ENTRIES, true);
    if (entry->table <= POOL_TABLE_NUMBER_MAX)
        bit_set(change->numbers, entry->table, true);
}

/* ---- under the lock -------------------------------------------------------------------------- */

static uint64_t head_at(const struct pool *pool)
{
    return pool->first + POOL_DIRECTORY;
}

struct recount {
    const struct pool *pool;
    struct pool_change *change;
};

static bool recount(void *context, unsigned slot, const struct pool_entry *entry)
{
    struct recount *recount = context;
    count_in(recount->pool, recount->change, slot, entry);
    return true;
}

/* Somebody died in the middle of a change, or the head is damaged. */
static enum pando_status recount_co(struct pool_session *session, struct pool_change *change)
{
    struct pool *pool = session->pool;
    static const uint64_t yes = 1, no = 0;
    struct recount context = {.pool = pool, .change = change};
    uint64_t number = change->head.number % (POOL_TABLE_NUMBER_MAX + 1);

    *change = (struct pool_change){.head.number = number};
    enum pando_status status = pool_groups_each_co(session, NULL, recount, &context);
    if (status != PANDO_OK)
        return status;
    struct fabric_op ops[] = {
        fabric_write(head_at(pool), &yes, sizeof(yes)),
        fabric_write(pool->first + POOL_NUMBERS, change->numbers, sizeof(change->numbers)),
        fabric_write(head_at(pool) + 8, &change->head.number, sizeof(change->head) - 8),
        fabric_write(head_at(pool), &no, sizeof(no)),
    };
    log_info("counted the tables again after a change that was cut off",
             log_u64("tables", change->head.used));
    return pool_submit_again_co(session, 0, ops, sizeof(ops) / sizeof(ops[0]));
}

static bool head_ok(const struct pool *pool, const struct pool_directory_head *head)
{
    return head->changing == 0 && head->number <= POOL_TABLE_NUMBER_MAX &&
           head->used <= pool_tables_max(pool) && head->astray <= head->used &&
           head->dropping <= head->used;
}

enum pando_status pool_directory_change_co(struct pool_session *session, pool_directory_fn fn,
                                           void *context)
{
    struct pool *pool = session->pool;
    struct pool_lock lock;
    struct pool_change *change = malloc(sizeof(*change));
    if (change == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status =
        pool_lock_co(session, pool_lock_address(pool, 0, POOL_LOCK_DIRECTORY), &lock);
    if (status == PANDO_OK) {
        struct fabric_op ops[] = {
            fabric_read(head_at(pool), &change->head, sizeof(change->head)),
            fabric_read(pool->first + POOL_NUMBERS, change->numbers, sizeof(change->numbers)),
        };
        status = pool_submit_co(session, 0, ops, 2);
        if (status == PANDO_OK && !head_ok(pool, &change->head))
            status = recount_co(session, change);
        if (status == PANDO_OK)
            status = fn(session, change, context);
        enum pando_status unlocked = pool_unlock_co(session, &lock);
        if (status == PANDO_OK)
            status = unlocked;
    }
    free(change);
    return status;
}

/* The list of a change. `entry` NULL: but for its state it stays as it is. */
static enum pando_status change_write_co(struct pool_session *session,
                                         const struct pool_change *change, unsigned slot,
                                         uint64_t number, const struct pool_entry *entry,
                                         uint64_t state)
{
    struct pool *pool = session->pool;
    static const uint64_t yes = 1, no = 0;
    uint64_t at = pool_entry_offset(pool, slot), word = number / 64;
    struct fabric_op ops[6];
    uint32_t count = 0;

    fabric_write_at(&ops[count++], head_at(pool), &yes, sizeof(yes));
    if (entry != NULL)
        fabric_write_at(&ops[count++], at, entry, sizeof(*entry));
    if (number <= POOL_TABLE_NUMBER_MAX)
        fabric_write_at(&ops[count++], pool->first + POOL_NUMBERS + word * 8,
                        &change->numbers[word], 8);
    fabric_write_at(&ops[count++], head_at(pool) + 8, &change->head.number,
                    sizeof(change->head) - 8);
    fabric_write_at(&ops[count++], at, &state, sizeof(state));
    fabric_write_at(&ops[count++], head_at(pool), &no, sizeof(no));
    return pool_submit_co(session, 0, ops, count);
}

/* ---- creating -------------------------------------------------------------------------------- */

struct creation {
    const struct pool_table_options *options;
    unsigned *slot;
    struct pool_entry *out;
};

struct search {
    const char *name;
    bool exists;
    uint64_t used[POOL_TABLES / 64]; /* entries, as bits */
};

static bool search_entry(void *context, unsigned slot, const struct pool_entry *entry)
{
    struct search *search = context;
    bit_set(search->used, slot, true);
    search->exists |= entry->state == POOL_ENTRY_LIVE && strcmp(entry->name, search->name) == 0;
    return !search->exists;
}

/* Both groups of the name are full, or some names are astray: looks at everything. */
static enum pando_status place_anywhere_co(struct pool_session *session, const char *name,
                                           unsigned *slot)
{
    struct search *search = calloc(1, sizeof(*search));
    if (search == NULL)
        return PANDO_NO_MEMORY;
    search->name = name;
    enum pando_status status = pool_groups_each_co(session, NULL, search_entry, search);
    if (status == PANDO_OK && search->exists)
        status = PANDO_EXISTS;
    unsigned max = pool_tables_max(session->pool), free_slot = 0;
    while (status == PANDO_OK && free_slot < max && bit_is(search->used, free_slot))
        free_slot++;
    if (status == PANDO_OK && free_slot == max)
        status = PANDO_FULL;
    if (status == PANDO_OK && *slot == max)
        *slot = free_slot;
    free(search);
    return status;
}

/* Where a table of that name is to be: in the emptier one of its groups, if one has room. */
static enum pando_status place_co(struct pool_session *session, const struct pool_change *change,
                                  const char *name, unsigned *slot)
{
    struct pool *pool = session->pool;
    unsigned groups[2], max = pool_tables_max(pool), least = POOL_GROUP_ENTRIES;
    struct pool_entry *entries = malloc(2ul * POOL_GROUP_BYTES);
    if (entries == NULL)
        return PANDO_NO_MEMORY;
    pool_entry_groups(pool, name, groups);
    struct fabric_op ops[] = {pool_group_read(pool, groups[0], entries),
                              pool_group_read(pool, groups[1], entries + POOL_GROUP_ENTRIES)};
    enum pando_status status = pool_submit_co(session, 0, ops, 2);
    *slot = max;
    for (unsigned g = 0; g < 2 && status == PANDO_OK; g++) {
        unsigned used = 0, empty = max;
        for (unsigned i = POOL_GROUP_ENTRIES; i-- > 0;) {
            struct pool_entry *entry = &entries[g * POOL_GROUP_ENTRIES + i];
            entry->name[POOL_NAME_MAX - 1] = '\0';
            if (entry->state == POOL_ENTRY_LIVE && strcmp(entry->name, name) == 0)
                status = PANDO_EXISTS;
            if (entry->state == POOL_ENTRY_FREE)
                empty = groups[g] * POOL_GROUP_ENTRIES + i;
            else
                used++;
        }
        if (used < least) {
            least = used;
            *slot = empty;
        }
    }
    free(entries);
    if (status == PANDO_OK && (*slot == max || change->head.astray > 0))
        status = place_anywhere_co(session, name, slot);
    return status;
}

static enum pando_status create_locked_co(struct pool_session *session, struct pool_change *change,
                                          void *context)
{
    const struct creation *creation = context;
    const struct pool_table_options *options = creation->options;
    struct pool_entry *out = creation->out;
    unsigned slot;
    uint64_t deaths;

    enum pando_status status = place_co(session, change, options->name, &slot);
    if (status == PANDO_OK)
        status = pool_deaths_co(session, &deaths);
    if (status != PANDO_OK)
        return status;
    uint64_t number = number_next(change);
    if (number == 0)
        return PANDO_FULL;
    *out = (struct pool_entry){
        .deaths = deaths,
        .root = checked_word_pack(options->root),
        .table = number,
        .uses = pool_uses_pack((struct pool_uses){.epoch = session->pool->epoch}),
        .key_max = options->key_max,
        .value_inline = options->value_inline,
    };
    memcpy(out->name, options->name, strlen(options->name) + 1);
    memcpy(out->engine, options->engine, strlen(options->engine) + 1);
    memcpy(out->words, options->words, sizeof(out->words));
    change->head.number = number;
    count_in(session->pool, change, slot, out);
    status = change_write_co(session, change, slot, number, out, POOL_ENTRY_LIVE);
    out->state = POOL_ENTRY_LIVE;
    *creation->slot = slot;
    pool_uses_learn(session->pool, slot, out);
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

/* ---- freeing --------------------------------------------------------------------------------- */

static void count_down(uint64_t *count, bool down)
{
    if (down && *count > 0)
        (*count)--;
}

/* Frees an entry that is not free. */
static enum pando_status free_locked_co(struct pool_session *session, struct pool_change *change,
                                        unsigned slot, const struct pool_entry *entry)
{
    struct pool *pool = session->pool;
    struct pool_directory_head *head = &change->head;
    unsigned group = slot / POOL_GROUP_ENTRIES, others = 0;
    struct pool_entry *entries = malloc(POOL_GROUP_BYTES);
    if (entries == NULL)
        return PANDO_NO_MEMORY;
    struct fabric_op read = pool_group_read(pool, group, entries);
    enum pando_status status = pool_submit_co(session, 0, &read, 1);
    for (unsigned i = 0; i < POOL_GROUP_ENTRIES; i++)
        others += i != slot % POOL_GROUP_ENTRIES && entries[i].state != POOL_ENTRY_FREE;
    free(entries);
    if (status != PANDO_OK)
        return status;
    count_down(&head->used, true);
    count_down(&head->astray, is_astray(pool, slot, entry->name));
    count_down(&head->dropping, pool_entry_dropping(entry->state));
    bit_set(head->groups, group, others > 0);
    if (entry->table <= POOL_TABLE_NUMBER_MAX)
        bit_set(change->numbers, entry->table, false);
    return change_write_co(session, change, slot, entry->table, NULL, POOL_ENTRY_FREE);
}

/* Marks a live entry as being dropped by this member. */
static enum pando_status mark_locked_co(struct pool_session *session, struct pool_change *change,
                                        void *context)
{
    struct pool_marking *mark = context;
    struct pool_entry entry;
    enum pando_status status = pool_table_open_co(session, mark->name, &mark->slot, &entry);
    if (status != PANDO_OK)
        return status;
    mark->table = entry.table;
    change->head.dropping++;
    return change_write_co(session, change, mark->slot, entry.table, NULL,
                           pool_dropping_pack(session->pool->identity));
}

enum pando_status pool_entry_mark_co(struct pool_session *session, struct pool_marking *mark)
{
    return pool_directory_change_co(session, mark_locked_co, mark);
}

static enum pando_status drop_locked_co(struct pool_session *session, struct pool_change *change,
                                        void *context)
{
    const char *name = context;
    unsigned slot;
    struct pool_entry entry;
    enum pando_status status = pool_table_open_co(session, name, &slot, &entry);
    return status == PANDO_OK ? free_locked_co(session, change, slot, &entry) : status;
}

enum pando_status pool_table_drop_co(struct pool_session *session, const char *name)
{
    return pool_directory_change_co(session, drop_locked_co, (void *)(uintptr_t)name);
}

/* ---- entries by place ------------------------------------------------------------------------ */

struct placed {
    unsigned slot;
    uint64_t table;
    pool_table_fn fn;
    void *context;
};

/* NOT_FOUND: the place is another's, or nobody's. */
static enum pando_status placed_read_co(struct pool_session *session, const struct placed *placed,
                                        struct pool_entry *entry)
{
    enum pando_status status = pool_table_read_co(session, placed->slot, entry);
    if (status != PANDO_OK)
        return status;
    return entry->table == placed->table && entry->state != POOL_ENTRY_FREE ? PANDO_OK
                                                                            : PANDO_NOT_FOUND;
}

static enum pando_status undo_locked_co(struct pool_session *session, struct pool_change *change,
                                        void *context)
{
    const struct placed *placed = context;
    struct pool_entry entry;
    enum pando_status status = placed_read_co(session, placed, &entry);
    if (status != PANDO_OK)
        return status;
    if (entry.state != POOL_ENTRY_LIVE)
        return PANDO_NOT_FOUND;
    return entry.root != 0 ? PANDO_EXISTS : free_locked_co(session, change, placed->slot, &entry);
}

enum pando_status pool_table_undo_co(struct pool_session *session, unsigned slot, uint64_t table)
{
    struct placed placed = {.slot = slot, .table = table};
    return slot >= pool_tables_max(session->pool)
               ? PANDO_INVALID
               : pool_directory_change_co(session, undo_locked_co, &placed);
}

static enum pando_status run_locked_co(struct pool_session *session, struct pool_change *change,
                                       void *context)
{
    const struct placed *placed = context;
    struct pool_entry entry;
    (void)change;
    enum pando_status status = placed_read_co(session, placed, &entry);
    return status == PANDO_OK ? placed->fn(session, placed->context) : status;
}

enum pando_status pool_table_locked_co(struct pool_session *session, unsigned slot, uint64_t table,
                                       pool_table_fn fn, void *context)
{
    struct placed placed = {slot, table, fn, context};
    return slot >= pool_tables_max(session->pool)
               ? PANDO_INVALID
               : pool_directory_change_co(session, run_locked_co, &placed);
}

static enum pando_status remove_locked_co(struct pool_session *session, struct pool_change *change,
                                          void *context)
{
    const struct placed *placed = context;
    struct pool_entry entry;
    enum pando_status status = placed_read_co(session, placed, &entry);
    return status == PANDO_OK ? free_locked_co(session, change, placed->slot, &entry) : status;
}

enum pando_status pool_table_remove_co(struct pool_session *session, unsigned slot, uint64_t table)
{
    struct placed placed = {.slot = slot, .table = table};
    if (slot >= pool_tables_max(session->pool))
        return PANDO_INVALID;
    enum pando_status status = pool_directory_change_co(session, remove_locked_co, &placed);
    return status == PANDO_NOT_FOUND ? PANDO_OK : status; /* another has done it */
}
