/*
 * directory_int.h - the directory of tables, for the files of the pool.
 */
#ifndef POOL_DIRECTORY_INT_H
#define POOL_DIRECTORY_INT_H

#include "pool/pool_int.h"

/* uses.c */
_Atomic uint64_t *pool_uses_create(void);
void pool_uses_learn(struct pool *pool, unsigned slot, const struct pool_entry *entry);

/* Says that the table has memory on that node, before it has. CORRUPT: it has lost some. */
PANDO_MUST_CHECK enum pando_status pool_table_uses_co(struct pool_session *session, uint16_t table,
                                                      uint16_t node);

/* directory.c */
uint64_t pool_entry_offset(const struct pool *pool, unsigned slot);

/* The two groups in one of which a table of that name is, if they had room. */
void pool_entry_groups(const struct pool *pool, const char *name, unsigned groups[2]);
struct fabric_op pool_group_read(const struct pool *pool, unsigned group,
                                 struct pool_entry entries[POOL_GROUP_ENTRIES]);

/* As pool_directory_each_co, of the groups whose bits are set; of all if `bits` is NULL. */
PANDO_MUST_CHECK enum pando_status pool_groups_each_co(struct pool_session *session,
                                                       const uint64_t *bits, pool_entry_fn fn,
                                                       void *context);

/* directory_change.c: fn changes the directory under its lock; `change` is what was read of it, and correct. */
struct pool_change {
    struct pool_directory_head head;
    uint64_t numbers[POOL_NUMBER_WORDS];
};
typedef enum pando_status (*pool_directory_fn)(struct pool_session *session,
                                               struct pool_change *change, void *context);
PANDO_MUST_CHECK enum pando_status pool_directory_change_co(struct pool_session *session,
                                                            pool_directory_fn fn, void *context);

/* Marks a live table as being dropped by this member. NOT_FOUND. */
struct pool_marking {
    const char *name;
    unsigned slot; /* out */
    uint64_t table;
};
PANDO_MUST_CHECK enum pando_status pool_entry_mark_co(struct pool_session *session,
                                                      struct pool_marking *mark);

#endif
