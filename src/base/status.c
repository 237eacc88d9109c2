#include "pando/pando.h"

static const char *const status_texts[PANDO_STATUS_COUNT] = {
    [PANDO_OK] = "ok",
    [PANDO_NOT_FOUND] = "not found",
    [PANDO_EXISTS] = "exists already",
    [PANDO_AGAIN] = "try again later",
    [PANDO_STALE] = "stale",
    [PANDO_INVALID] = "invalid",
    [PANDO_RANGE] = "outside the window or not aligned",
    [PANDO_TOO_LARGE] = "too large",
    [PANDO_FULL] = "pool is full",
    [PANDO_NO_MEMORY] = "out of memory",
    [PANDO_BROKEN] = "endpoint failed",
    [PANDO_TIMEOUT] = "timed out",
    [PANDO_FENCED] = "fenced",
    [PANDO_UNKNOWN] = "outcome unknown",
    [PANDO_DENIED] = "denied",
    [PANDO_CORRUPT] = "corrupt",
    [PANDO_VERSION] = "version not supported",
    [PANDO_UNSUPPORTED] = "not supported here",
    [PANDO_BUSY] = "in use",
    [PANDO_IO] = "input/output error",
};

const char *pando_status_text(enum pando_status status)
{
    if ((unsigned)status >= PANDO_STATUS_COUNT)
        return "unknown status";
    return status_texts[status];
}
