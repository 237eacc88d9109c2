/*
 * dump.h - `pando dump` and `pando load`: a table to a file and back.
 */
#ifndef CMD_DUMP_H
#define CMD_DUMP_H

int cmd_dump(int argc, char **argv);
int cmd_load_file(int argc, char **argv);

#endif
