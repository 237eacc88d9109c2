/*
 * table.h - `pando table list|create|drop|spread|verify`.
 */
#ifndef CMD_TABLE_H
#define CMD_TABLE_H

#include "store/store.h"

int cmd_table_list(int argc, char **argv);
int cmd_table_create(int argc, char **argv);
int cmd_table_drop(int argc, char **argv);
int cmd_table_spread(int argc, char **argv);
int cmd_table_verify(int argc, char **argv);

/* The bytes of each table on all memory nodes that answer, in memory that the caller frees; NULL: out
 * of memory. */
uint64_t *table_bytes_co(struct store_thread *thread, const struct store_table_info *tables,
                         unsigned count);

#endif
