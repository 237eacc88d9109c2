/*
 * top_tables.h - the tables of a pool, for `pando top`.
 */
#ifndef CMD_TOP_TABLES_H
#define CMD_TOP_TABLES_H

#include "store/store.h"

struct top_table {
    char name[POOL_NAME_MAX], engine[POOL_ENGINE_NAME_MAX];
    uint64_t number, bytes;
    unsigned owners;       /* processes that own keys of it; 0: nobody does, or not known */
    unsigned most_percent; /* of its ranges that the busiest of them has */
};

struct top_tables {
    struct top_table *tables; /* by bytes, the largest first */
    unsigned count;
    uint64_t at_ns;
};

/* Who owns keys is looked up for the `owned` largest. The caller frees `tables`; it is NULL after a
 * failure. */
PANDO_MUST_CHECK enum pando_status top_tables_look_co(struct store_thread *thread, unsigned owned,
                                                      struct top_tables *out);

/* Bytes that a table has got since a former look, a second; 0: it was not there. */
double top_table_growth(const struct top_tables *before, const struct top_tables *now,
                        const struct top_table *table);

#endif
