/*
 * with_store.h - commands that work on tables as a member of a pool, on one thread.
 */
#ifndef CMD_WITH_STORE_H
#define CMD_WITH_STORE_H

#include "cmd/cmd.h"
#include "store/store.h"

/* The command's own part, on a task; returns the exit status. */
typedef int (*cmd_store_fn)(void *context, struct store_thread *thread);

/* Opens the pool of the options, joins it, works, leaves it; the exit status. */
int cmd_with_store(const char *command, const struct cmd_pool *pool, cmd_store_fn fn,
                   void *context);

/* From now on SIGINT and SIGTERM do not end the process at once: long work asks cmd_stopping
 * between its steps, and ends by itself. The second signal ends the process. */
void cmd_catch_signals(void);
bool cmd_stopping(void);

/* What a command that was stopped exits with. */
enum { EXIT_STOPPED = 130 };

#endif
