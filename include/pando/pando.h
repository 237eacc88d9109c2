/*
 * pando.h - what an application needs to know about Pando.
 *
 * Only statuses so far; tables and operations come with the C library.
 */
#ifndef PANDO_PANDO_H
#define PANDO_PANDO_H

#ifdef __cplusplus
extern "C" {
#endif

/* Every function that can fail returns one of these, and the compiler insists it is looked at. */
enum pando_status {
    PANDO_OK = 0,
    PANDO_NOT_FOUND,   /* no such key, table or member */
    PANDO_EXISTS,      /* it is there already */
    PANDO_AGAIN,       /* back-pressure: a bounded queue is full now, try later */
    PANDO_STALE,       /* what was read no longer holds: start again from the root */
    PANDO_INVALID,     /* an argument, option or file that makes no sense */
    PANDO_RANGE,       /* an address outside the target's window, or not aligned */
    PANDO_TOO_LARGE,   /* over a stated limit */
    PANDO_FULL,        /* no memory left in the pool */
    PANDO_NO_MEMORY,   /* no memory left in this process */
    PANDO_BROKEN,      /* the endpoint failed; the list may or may not have been applied */
    PANDO_TIMEOUT,     /* a deadline passed */
    PANDO_FENCED,      /* this member was declared dead and must rejoin */
    PANDO_UNKNOWN,     /* the outcome can no longer be found out */
    PANDO_DENIED,      /* wrong secret, wrong certificate or no permission */
    PANDO_CORRUPT,     /* remote or stored bytes fail their check */
    PANDO_VERSION,     /* a format or protocol version this program does not speak */
    PANDO_UNSUPPORTED, /* not possible on this machine or this fabric */
    PANDO_BUSY,        /* held by someone else: a port, a name, a lock */
    PANDO_IO,          /* the operating system reported an error */
    PANDO_STATUS_COUNT
};

/* A status function's result must be used. */
#define PANDO_MUST_CHECK __attribute__((warn_unused_result))

/* A short, constant, lower-case text for a status; never NULL. */
const char *pando_status_text(enum pando_status status);

#ifdef __cplusplus
}
#endif

#endif
