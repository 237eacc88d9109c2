/*
 * directory.c - finding tables by name on node 0, and reading all of them.
 *
 * An entry lies in one of the two groups that its name's hash names, so one list finds it, however many
 * tables there are. Only when both were full it lies elsewhere, `astray`; while the head of the directory
 * counts such entries, a name that is in neither group is looked for everywhere. Entries never move. Who
 * reads holds no lock: what is being dropped or used again right now is read again, under the lock, by
 * those to whom that matters.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/prng.h"
#include "pool/checked_word.h"
#include "pool/directory_int.h"
#include "pool/pool_int.h"

enum { GROUPS_A_LIST = 16, GLANCES_MAX = 128 };

unsigned pool_tables_max(const struct pool *pool)
{
    return (unsigned)pool->supers[0].groups * POOL_GROUP_ENTRIES;
}

uint64_t pool_entry_offset(const struct pool *pool, unsigned slot)
{
    return pool->supers[0].directory + (uint64_t)slot * POOL_ENTRY_BYTES;
}

void pool_entry_groups(const struct pool *pool, const char *name, unsigned groups[2])
{
    unsigned count = (unsigned)pool->supers[0].groups;
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    hash = hash_u64(hash);
    groups[0] = (unsigned)((uint32_t)hash % count);
    groups[1] = (unsigned)((hash >> 32) % count);
    if (groups[1] == groups[0])
        groups[1] = (groups[0] + 1) % count;
}

/* What is not text ends somewhere. */
static void entries_end(struct pool_entry *entries, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        entries[i].name[POOL_NAME_MAX - 1] = '\0';
        entries[i].engine[POOL_ENGINE_NAME_MAX - 1] = '\0';
    }
}

struct fabric_op pool_group_read(const struct pool *pool, unsigned group,
                                 struct pool_entry entries[POOL_GROUP_ENTRIES])
{
    return fabric_read(pool_entry_offset(pool, group * POOL_GROUP_ENTRIES), entries,
                       POOL_GROUP_BYTES);
}

enum pando_status pool_table_read_co(struct pool_session *session, unsigned slot,
                                     struct pool_entry *out)
{
    if (slot >= pool_tables_max(session->pool))
        return PANDO_INVALID;
    struct fabric_op read =
        fabric_read(pool_entry_offset(session->pool, slot), out, POOL_ENTRY_BYTES);
    enum pando_status status = pool_submit_co(session, 0, &read, 1);
    entries_end(out, 1);
    return status;
}

enum pando_status pool_table_glance_co(struct pool_session *session, const unsigned *slots,
                                       struct pool_glance *out, unsigned count)
{
    struct fabric_op *ops = malloc(count * sizeof(*ops));
    if (ops == NULL)
        return PANDO_NO_MEMORY;
    pando_assert(count <= GLANCES_MAX);
    for (unsigned i = 0; i < count; i++)
        ops[i] = fabric_read(pool_entry_offset(session->pool, slots[i]), &out[i], sizeof(out[i]));
    enum pando_status status = pool_submit_co(session, 0, ops, count);
    free(ops);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The next groups, from *group on, that have entries. */
static unsigned next_groups(const struct pool *pool, const uint64_t *bits, unsigned *group,
                            unsigned out[GROUPS_A_LIST])
{
    unsigned count = 0;
    for (; *group < pool->supers[0].groups && count < GROUPS_A_LIST; (*group)++) {
        if (bits == NULL || (bits[*group / 64] >> *group % 64 & 1) != 0)
            out[count++] = *group;
    }
    return count;
}

static bool tell(const struct pool_entry *entries, const unsigned *groups, unsigned count,
                 pool_entry_fn fn, void *context)
{
    for (unsigned i = 0; i < count * POOL_GROUP_ENTRIES; i++) {
        unsigned slot = groups[i / POOL_GROUP_ENTRIES] * POOL_GROUP_ENTRIES;
        if (entries[i].state != POOL_ENTRY_FREE &&
            !fn(context, slot + i % POOL_GROUP_ENTRIES, &entries[i]))
            return false;
    }
    return true;
}

enum pando_status pool_groups_each_co(struct pool_session *session, const uint64_t *bits,
                                      pool_entry_fn fn, void *context)
{
    struct pool *pool = session->pool;
    struct pool_entry *entries = malloc(GROUPS_A_LIST * POOL_GROUP_BYTES);
    enum pando_status status = entries == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    unsigned groups[GROUPS_A_LIST], group = 0, count = 1;
    struct fabric_op ops[GROUPS_A_LIST];

    while (status == PANDO_OK && (count = next_groups(pool, bits, &group, groups)) > 0) {
        for (unsigned i = 0; i < count; i++)
            ops[i] = pool_group_read(pool, groups[i], entries + (size_t)i * POOL_GROUP_ENTRIES);
        status = pool_submit_co(session, 0, ops, count);
        entries_end(entries, count * POOL_GROUP_ENTRIES);
        if (status == PANDO_OK && !tell(entries, groups, count, fn, context))
            break;
    }
    free(entries);
    return status;
}

enum pando_status pool_directory_each_co(struct pool_session *session, pool_entry_fn fn,
                                         void *context)
{
    struct pool_directory_head head;
    struct fabric_op read = fabric_read(session->pool->first + POOL_DIRECTORY, &head, sizeof(head));
    enum pando_status status = pool_submit_co(session, 0, &read, 1);
    /* In the middle of a change, or after one that was cut off, the bits may be wrong. */
    return status == PANDO_OK
               ? pool_groups_each_co(session, head.changing == 0 ? head.groups : NULL, fn, context)
               : status;
}

enum pando_status pool_directory_counts_co(struct pool_session *session,
                                           struct pool_directory_counts *out)
{
    struct pool_directory_head head;
    struct fabric_op read = fabric_read(session->pool->first + POOL_DIRECTORY, &head, sizeof(head));
    enum pando_status status = pool_submit_co(session, 0, &read, 1);
    bool whole = status == PANDO_OK && head.changing == 0;
    *out = (struct pool_directory_counts){.used = whole ? head.used : 0,
                                          .dropping = whole ? head.dropping : 1};
    return status;
}

/* ---- by name --------------------------------------------------------------------------------- */

/* "NAME" of a live table, or "#NUMBER" of one that is being dropped. */
struct wanted {
    const char *name;
    uint64_t number; /* 0: by name */
    unsigned slot;
    bool found;
    struct pool_entry entry;
};

static bool take_if_wanted(void *context, unsigned slot, const struct pool_entry *entry)
{
    struct wanted *wanted = context;
    wanted->found = wanted->number != 0
                        ? pool_entry_dropping(entry->state) && entry->table == wanted->number
                        : entry->state == POOL_ENTRY_LIVE && strcmp(entry->name, wanted->name) == 0;
    if (wanted->found) {
        wanted->slot = slot;
        wanted->entry = *entry;
    }
    return !wanted->found;
}

/* "#NUMBER:SLOT" says where it is. */
static enum pando_status find_number_co(struct pool_session *session, struct wanted *wanted)
{
    char *end;
    struct pool_entry entry;
    wanted->number = strtoull(wanted->name + 1, &end, 10);
    if (wanted->number == 0)
        return PANDO_OK;
    if (*end != ':')
        return pool_directory_each_co(session, take_if_wanted, wanted);
    uint64_t slot = strtoull(end + 1, NULL, 10);
    if (slot >= pool_tables_max(session->pool))
        return PANDO_OK;
    enum pando_status status = pool_table_read_co(session, (unsigned)slot, &entry);
    if (status == PANDO_OK)
        (void)take_if_wanted(wanted, (unsigned)slot, &entry);
    return status;
}

static enum pando_status find_name_co(struct pool_session *session, struct wanted *wanted)
{
    struct pool *pool = session->pool;
    struct pool_entry *entries = malloc(2ul * POOL_GROUP_BYTES);
    unsigned groups[2];
    struct pool_directory_head head;
    if (entries == NULL)
        return PANDO_NO_MEMORY;
    pool_entry_groups(pool, wanted->name, groups);
    /* The head last: an entry that came astray before it was read is counted. */
    struct fabric_op ops[] = {
        pool_group_read(pool, groups[0], entries),
        pool_group_read(pool, groups[1], entries + POOL_GROUP_ENTRIES),
        fabric_read(pool->first + POOL_DIRECTORY, &head, sizeof(head)),
    };
    enum pando_status status = pool_submit_co(session, 0, ops, 3);
    entries_end(entries, 2 * POOL_GROUP_ENTRIES);
    if (status == PANDO_OK)
        (void)tell(entries, groups, 2, take_if_wanted, wanted);
    free(entries);
    if (status == PANDO_OK && !wanted->found && (head.astray != 0 || head.changing != 0))
        status = pool_directory_each_co(session, take_if_wanted, wanted);
    return status;
}

enum pando_status pool_table_open_co(struct pool_session *session, const char *name, unsigned *slot,
                                     struct pool_entry *out)
{
    struct wanted wanted = {.name = name};
    enum pando_status status =
        name[0] == '#' ? find_number_co(session, &wanted) : find_name_co(session, &wanted);
    if (status != PANDO_OK)
        return status;
    if (!wanted.found)
        return PANDO_NOT_FOUND;
    *slot = wanted.slot;
    *out = wanted.entry;
    pool_uses_learn(session->pool, wanted.slot, out);
    return PANDO_OK;
}

/* ---- a list of all --------------------------------------------------------------------------- */

struct listing {
    struct pool_entry *entries;
    unsigned count, room;
    bool failed;
};

static bool collect(void *context, unsigned slot, const struct pool_entry *entry)
{
    struct listing *listing = context;
    (void)slot;
    if (entry->state != POOL_ENTRY_LIVE)
        return true;
    if (listing->count == listing->room) {
        unsigned room = listing->room == 0 ? POOL_GROUP_ENTRIES : listing->room * 2;
        struct pool_entry *grown = realloc(listing->entries, room * sizeof(*grown));
        listing->failed = grown == NULL;
        if (listing->failed)
            return false;
        listing->entries = grown;
        listing->room = room;
    }
    listing->entries[listing->count] = *entry;
    listing->entries[listing->count].state = listing->count; /* when it was seen, for now */
    listing->count++;
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct pool_entry *left = a, *right = b;
    int order = strcmp(left->name, right->name);
    return order != 0 ? order : (left->state > right->state) - (left->state < right->state);
}

/* A name that was dropped and created again while the list was read may be there twice: the one that was
 * seen later is the one that is live. */
static void keep_last(struct listing *listing)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < listing->count; i++) {
        bool last = i + 1 == listing->count ||
                    strcmp(listing->entries[i].name, listing->entries[i + 1].name) != 0;
        if (!last)
            continue;
        listing->entries[kept] = listing->entries[i];
        listing->entries[kept++].state = POOL_ENTRY_LIVE;
    }
    listing->count = kept;
}

enum pando_status pool_table_list_co(struct pool_session *session, struct pool_entry **out,
                                     unsigned *count)
{
    struct listing listing = {0};
    enum pando_status status = pool_directory_each_co(session, collect, &listing);
    if (status == PANDO_OK && listing.failed)
        status = PANDO_NO_MEMORY;
    if (status != PANDO_OK) {
        free(listing.entries);
        return status;
    }
    if (listing.count > 0)
        qsort(listing.entries, listing.count, sizeof(*listing.entries), by_name);
    keep_last(&listing);
    *out = listing.entries;
    *count = listing.count;
    return PANDO_OK;
}

/* ---- roots ----------------------------------------------------------------------------------- */

fabric_address pool_root_address(const struct pool *pool, unsigned slot)
{
    pando_assert(slot < pool_tables_max(pool));
    return fabric_address_make(0,
                               pool_entry_offset(pool, slot) + offsetof(struct pool_entry, root));
}

enum pando_status pool_root_read_co(struct pool_session *session, unsigned slot, uint64_t *root)
{
    uint64_t word = 0;
    enum pando_status status =
        pool_word_read_co(session, pool_root_address(session->pool, slot), &word);
    if (status != PANDO_OK)
        return status;
    return checked_word_unpack(word, root) ? PANDO_OK : PANDO_CORRUPT;
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
        rt_sleep_co(LOOK_NS); /* another process is to write it */
    }
}

enum pando_status pool_root_swap_co(struct pool_session *session, unsigned slot, uint64_t expected,
                                    uint64_t desired, uint64_t *found)
{
    uint64_t old = 0;
    pando_assert(desired <= CHECKED_WORD_MAX);
    enum pando_status status =
        pool_word_cas_co(session, pool_root_address(session->pool, slot),
                         checked_word_pack(expected), checked_word_pack(desired), &old);
    if (status != PANDO_OK)
        return status;
    if (!checked_word_unpack(old, found))
        return PANDO_CORRUPT;
    return *found == expected ? PANDO_OK : PANDO_STALE;
}
