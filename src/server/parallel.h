/*
 * parallel.h - the keys of one command, several at a time where operations wait for a network.
 */
#ifndef SERVER_PARALLEL_H
#define SERVER_PARALLEL_H

#include "server/server_int.h"

/* Calls fn_co(context, i) for 0 .. count-1 and returns when all that were begun have returned. On this loop, in
 * no particular order when they overlap. When one returns false none is begun any more: in a pool that does not
 * answer every key fails only after a while, and a command of many would take that long for each. */
void parallel_co(struct server_thread *thread, size_t count,
                 bool (*fn_co)(void *context, size_t index), void *context);

#endif
