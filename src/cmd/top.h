/*
 * top.h - `pando top`.
 */
#ifndef CMD_TOP_H
#define CMD_TOP_H

int cmd_top(int argc, char **argv);

#endif
