/*
 * records.h - single pairs of one's own keys, kept besides whole pages: of a leaf that is not worth a
 * frame, the one pair that is asked for again and again.
 *
 * A record is what its leaf has. Whoever reads a pair may keep it if nobody has changed a pair of that
 * bucket since before the leaf was read (the ticket); whoever changes a leaf forgets the pair's record
 * while the leaf's latch is held. What is kept was in the log before: a reader need not wait for it.
 * When keys are given away, everything is forgotten.
 *
 * A bucket has SLOTS pairs, and is read without a latch, like a page. Pairs that do not fit a slot,
 * and blobs, are not kept.
 */
#ifndef TREE_DEX_RECORDS_H
#define TREE_DEX_RECORDS_H

#include <stdatomic.h>

#include "base/slice.h"
#include "pando/pando.h"

struct records {
    uint8_t *memory; /* NULL: nothing is kept */
    size_t bytes;
    uint32_t count; /* buckets */
    uint32_t stride;
    uint32_t slot_bytes;
    uint32_t key_size, value_size; /* 0: they vary */
    _Atomic uint32_t epoch;        /* what was kept before it is forgotten */
};

/* The longest pairs that can come; sizes of 0 mean that they vary. None are kept if there is no room, or no
 * use. NO_MEMORY. */
struct records_options {
    size_t bytes;
    uint32_t key_size, value_size;
    uint32_t key_max, value_max;
};
PANDO_MUST_CHECK enum pando_status records_create(struct records *records,
                                                  const struct records_options *options);
void records_destroy(struct records *records);

uint64_t records_hash(const struct records *records, struct slice key);
void records_prefetch(const struct records *records, uint64_t hash);

/* For keeping a record after its leaf was read. */
struct records_ticket {
    uint64_t header;
    bool room; /* nothing else would have to go */
};

/* Whether the key's record is there: then its value, as page_value gives it. */
bool records_get(struct records *records, uint64_t hash, struct slice key, void *value,
                 size_t capacity, size_t *size, struct records_ticket *ticket);

/* Keeps a pair, if nothing in its bucket was changed since the ticket was had. */
void records_keep(struct records *records, uint64_t hash, const struct records_ticket *ticket,
                  struct slice key, struct slice value);

/* Under the leaf's latch. Tickets for its bucket become worthless, whether it was there or not; this one is
 * for the pair as it will be. */
struct records_ticket records_forget(struct records *records, struct slice key);
void records_forget_all(struct records *records);

#endif
