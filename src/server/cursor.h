/*
 * cursor.h - where SCANs have got to. Redis' clients hold a number; the order here is by key. The last
 * key lies in the pool under that number, so that any server of the pool can go on, also one that was
 * started later.
 *
 * A number is 13 bits of the server (given out by the pool) and 40 of a count. A server's cursors share
 * CURSOR_SLOTS places: one is forgotten after that many later SCANs of the same server, or an hour.
 */
#ifndef SERVER_CURSOR_H
#define SERVER_CURSOR_H

#include "server/server_int.h"

enum { CURSOR_SLOTS = 16384 };

/* Once per thread, when it starts. */
PANDO_MUST_CHECK enum pando_status cursors_open_co(struct server_thread *thread, char *error,
                                                   size_t error_bytes);

/* A number for this key; never 0, below 2^53. */
PANDO_MUST_CHECK enum pando_status cursor_keep_co(struct server_thread *thread, unsigned database,
                                                  struct slice key, uint64_t *out);

/* NOT_FOUND: forgotten, or never given out. `key` has room for the largest. */
PANDO_MUST_CHECK enum pando_status cursor_find_co(struct server_thread *thread, unsigned database,
                                                  uint64_t cursor, uint8_t *key, size_t *key_size);

/* Removes those that are old. */
void cursors_sweep_co(struct server_thread *thread);

#endif
