/*
 * shell.h - the words of a pool by hand: lines such as "read 0x10000 4".
 */
#ifndef CMD_SHELL_H
#define CMD_SHELL_H

#include "cmd/cmd.h"

/* Runs the commands of `script`, separated by ';' or newlines, or those on stdin if it is NULL,
 * with a prompt on a terminal. `echo` shows each before it runs. True when all of them succeeded.
 */
bool shell_run(struct env *env, const char *script, bool echo);

#endif
