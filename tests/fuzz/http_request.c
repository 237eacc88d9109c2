/*
 * Arbitrary bytes where GET /metrics is expected. Memory errors are the sanitizers' to find. However a
 * request arrives in pieces, the verdict is the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "http/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_verdict(int status)
{
    switch (status) {
    case HTTP_MORE:
    case HTTP_OK:
    case 400:
    case 405:
    case 413:
    case 414:
    case 431:
    case 505:
        return true;
    default:
        return false;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_request whole, part;
    char *input = malloc(size == 0 ? 1 : size); /* of its exact size */
    pando_assert(input != NULL);
    if (size > 0)
        memcpy(input, data, size);
    int verdict = http_request_parse(input, size, &whole);
    pando_assert(is_verdict(verdict));
    pando_assert(size < HTTP_HEAD_MAX || verdict != HTTP_MORE);
    if (verdict == HTTP_OK) {
        size_t path = strnlen(whole.path, sizeof(whole.path));
        pando_assert(path > 0 && path < sizeof(whole.path) && whole.path[0] == '/');
    }
    /* What is decided stays decided: a prefix says MORE, or the same. */
    size_t step = size / 16 + 1;
    for (size_t i = 0; i < size; i += step) {
        int early = http_request_parse(input, i, &part);
        pando_assert(early == HTTP_MORE || early == verdict);
    }
    free(input);
    return 0;
}
