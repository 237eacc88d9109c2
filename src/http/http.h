/*
 * http.h - a very small HTTP server: GET /metrics, and nothing else. One request a connection, few
 * connections, of which slow ones give way to new ones, little patience.
 */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include "base/metrics.h"
#include "pando/pando.h"

struct http;

/* What /metrics answers; on a task of the serving loop, and may suspend. */
typedef void (*http_content_fn)(void *context, struct metrics *out);

/* Binds "host:port", or "port" alone on this machine's own address. Errors as one line for a person.
 * Not from a task. */
PANDO_MUST_CHECK enum pando_status http_open(const char *listen, http_content_fn content_co,
                                             void *context, struct http **out, char *error,
                                             size_t error_bytes);
void http_close(struct http *http);

/* "host:port" where it listens. */
const char *http_address(const struct http *http);

/* Serves on this loop. */
PANDO_MUST_CHECK enum pando_status http_start(struct http *http);

/* Ends connections and returns when none is left. On the same loop. */
void http_stop_co(struct http *http);

#endif
