/*
 * long.h - values that are not held in memory: words of requests that were written to the pool as they
 * came (net/incoming.c), and new values made of old ones. net/outgoing.h sends them.
 *
 * A long value always has the header that tells when it expires (value_fmt.h), with 0 for never.
 */
#ifndef SERVER_LONG_H
#define SERVER_LONG_H

#include "server/keyspace.h"

/* Whether a word of this call is a long one; it has no bytes. */
static inline bool call_is_long(const struct command_call *call, size_t index)
{
    return call->incoming != NULL && call->incoming->index == index;
}

/* What a key has. */
struct long_look {
    bool there, found;  /* there: perhaps expired. found: not */
    uint64_t expire_ms; /* 0: never */
    uint64_t skip;      /* bytes of the header */
    uint64_t size;      /* bytes behind it */
    uint64_t reference; /* 0: all of it is in `stored` */
    size_t stored_size;
    uint8_t stored[LONG_LOOK_BYTES];
};
PANDO_MUST_CHECK enum pando_status long_look_co(struct store_table *table, struct slice key,
                                                struct long_look *look);

/* A value as a sequence of bytes: in memory, or in the pool. */
struct long_source {
    struct slice bytes;
    struct store_table *table; /* NULL: the bytes */
    struct slice key;
    uint64_t reference, skip;
    uint64_t size;
};
struct long_source long_source_of(struct store_table *table, struct slice key,
                                  const struct long_look *look);

/* Makes a key's new value: `base` with `piece` written over it from `offset` on, zeroes between the two; and
 * puts it there if the key is as `look` saw it. STALE: it is not, or the base is gone. */
PANDO_MUST_CHECK enum pando_status long_replace_co(struct store_table *table, struct slice key,
                                                   const struct long_look *look,
                                                   const struct long_source *base,
                                                   const struct long_source *piece, uint64_t offset,
                                                   uint64_t expire_ms);

/* What the key is to be for a change: as it was seen. */
struct store_swap long_expecting(const struct long_look *look);

/* Makes a long word readable. It can be done again with the same expiry only: TIMEOUT. */
PANDO_MUST_CHECK enum pando_status long_seal_co(struct incoming *incoming, uint64_t expire_ms);

/* One that was sealed. */
struct long_source long_source_of_word(const struct command_call *call, struct slice key);

/* Makes a long word its key's value; if look is not NULL, only if the key is as it saw it: STALE. */
PANDO_MUST_CHECK enum pando_status long_put_co(struct command_call *call,
                                               const struct long_look *look, uint64_t expire_ms);

/* Removes a key that a modification refused with RANGE; only if it has expired, or in any case. *removed:
 * it was there and had not expired, or had, respectively. */
PANDO_MUST_CHECK enum pando_status long_remove_co(struct store_table *table, struct slice key,
                                                  bool only_expired, bool *removed);

#endif
