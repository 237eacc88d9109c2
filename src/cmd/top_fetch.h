/*
 * top_fetch.h - GET /metrics from a server, for `pando top`.
 */
#ifndef CMD_TOP_FETCH_H
#define CMD_TOP_FETCH_H

#include "base/slice.h"
#include "fabric/stream/stream.h"

/* The body of a 200, in memory that the caller frees; `error` says what went wrong otherwise. */
PANDO_MUST_CHECK enum pando_status top_fetch_co(const struct socket_address *address, char **out,
                                                struct slice *body, char *error,
                                                size_t error_bytes);

#endif
