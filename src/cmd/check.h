/*
 * check.h - `pando check`.
 */
#ifndef CMD_CHECK_H
#define CMD_CHECK_H

int cmd_check(int argc, char **argv);

#endif
