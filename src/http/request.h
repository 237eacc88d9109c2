/*
 * request.h - the head of an HTTP/1.x request: bytes in, a verdict out.
 */
#ifndef HTTP_REQUEST_H
#define HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

enum {
    HTTP_HEAD_MAX = 8 * 1024, /* request line and headers */
    HTTP_PATH_MAX = 256,
};

struct http_request {
    bool head;                /* HEAD instead of GET */
    char path[HTTP_PATH_MAX]; /* without the query */
};

enum { HTTP_MORE = 0, HTTP_OK = 200 };

/* HTTP_MORE: the head is not complete yet. HTTP_OK: a GET or HEAD, in *out. Otherwise the status to
 * refuse it with: 400, 405, 413, 414, 431 or 505. */
int http_request_parse(const char *bytes, size_t size, struct http_request *out);

#endif
