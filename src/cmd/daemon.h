/*
 * daemon.h - what `pando serve` and `pando memory` share as processes that stay: signals, and what
 * SIGHUP reads again.
 */
#ifndef CMD_DAEMON_H
#define CMD_DAEMON_H

#include <signal.h>

#include "cmd/cmd.h"

struct daemon {
    const char *command;
    const struct cmd_log *log;
    sigset_t signals; /* SIGTERM, SIGINT, SIGHUP */
    bool terminal;    /* it has one, whose end is the daemon's, too */
};

/* Blocks the signals in all threads that are started from now on. */
void daemon_begin(struct daemon *daemon, const char *command, const struct cmd_log *log);

/* What a signal asks for. SIGHUP is also what comes when the terminal of a program in the foreground
 * is closed: then it is to stop, unless nohup was told otherwise. */
enum daemon_wish { DAEMON_STOP, DAEMON_RELOAD };
enum daemon_wish daemon_wish(const struct daemon *daemon, int signal);

/* Opens the log file again, does the rest with `reload`, and says what came of it: what cannot be
 * read leaves the former in use. `reload` writes one line about what is in use now, or "", or about
 * what is wrong; UNSUPPORTED: there is nothing else. */
typedef enum pando_status (*daemon_reload_fn)(void *context, char *text, size_t text_bytes);
void daemon_reload(const struct daemon *daemon, daemon_reload_fn reload, void *context);

/* Something that whoever looks after it should know, on stderr and in the log file. */
__attribute__((format(printf, 2, 3))) void daemon_say(const struct daemon *daemon,
                                                      const char *format, ...);

/* Sleeps before anything was opened that SIGHUP could have read again; false: it is to stop. */
bool daemon_pause(const struct daemon *daemon, uint64_t ns);

#endif
