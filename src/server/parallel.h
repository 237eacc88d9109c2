/*
 * parallel.h - the keys of one command, several at a time where operations wait for a network.
 */
#ifndef SERVER_PARALLEL_H
#define SERVER_PARALLEL_H

#include "server/server_int.h"

/* Calls fn_co(context, i) for 0 .. count-1 and returns when all have returned. On this loop, in no
 * particular order when they overlap. */
void parallel_co(struct server_thread *thread, size_t count,
                 void (*fn_co)(void *context, size_t index), void *context);

#endif
