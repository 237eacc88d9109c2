/*
 * table.h - `pando table list|create|drop|spread|verify`.
 */
#ifndef CMD_TABLE_H
#define CMD_TABLE_H

int cmd_table_list(int argc, char **argv);
int cmd_table_create(int argc, char **argv);
int cmd_table_drop(int argc, char **argv);
int cmd_table_spread(int argc, char **argv);
int cmd_table_verify(int argc, char **argv);

#endif
