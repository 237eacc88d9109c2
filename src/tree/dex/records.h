/*
 * records.h - single pairs of one's own keys, kept besides whole pages: of a leaf that is not worth a
 * frame, the one pair that is asked for again and again.
 *
 * A record is what its leaf has. Whoever reads a pair may keep it if nobody has changed a pair beside it
 * since before the leaf was read (the ticket); whoever changes a leaf forgets the pair's record
 * while the leaf's latch is held. What is kept was in the log before: a reader need not wait for it.
 * When keys are given away, everything is forgotten.
 *
 * Records lie in groups of buckets: some in memory of their own, the others in frames that the cache has
 * lent, a group in each. These come and go one at a time (linear hashing): a new one takes its keys
 * from one other, and the last one's keys go back to that. A group has only records of keys that belong
 * to it. A bucket is read without a latch, like a page. Pairs that do not fit a slot, and blobs, are
 * not kept.
 *
 * Any thread.
 */
#ifndef TREE_DEX_RECORDS_H
#define TREE_DEX_RECORDS_H

#include "base/slice.h"
#include "tree/dex/frame.h"

struct records {
    uint8_t *memory; /* of the first groups; NULL: nothing is kept */
    size_t bytes;
    struct frames *frames;
    _Atomic uint32_t *lent;        /* the frames of the others */
    _Atomic uint32_t count;        /* groups */
    uint32_t own, most;            /* in `memory`; lent ones */
    uint32_t buckets, stride;      /* of a group */
    uint32_t slots, slot_bytes;    /* of a bucket */
    uint64_t all;                  /* of these, as bytes */
    uint32_t key_size, value_size; /* 0: they vary */
    _Atomic uint32_t epoch;        /* what was kept before it is forgotten */
    struct rt_latch latch;         /* of growing and shrinking */
};

/* The longest pairs that can come; sizes of 0 mean that they vary. */
struct records_options {
    size_t bytes;       /* of its own */
    uint32_t lent_most; /* frames */
    uint32_t key_size, value_size;
    uint32_t key_max, value_max;
};

/* Nothing is kept if there is no room, or no use. NO_MEMORY. */
PANDO_MUST_CHECK enum pando_status records_create(struct records *records, struct frames *frames,
                                                  const struct records_options *options);
void records_destroy(struct records *records);

/* Lends one more frame, which is FREE and in nobody's hands; false: it is not wanted. */
bool records_grow(struct records *records, uint32_t frame);

/* Gives one back; FRAME_NONE: none is lent. */
uint32_t records_shrink(struct records *records);

uint32_t records_lent(const struct records *records);

/* For looking for a record, and for keeping one after its leaf was read. */
struct records_ticket {
    uint64_t hash;
    _Atomic uint64_t *at, *bucket;
    uint64_t header;
    bool room; /* nothing else would have to go */
};

/* Where a key's record would be; asks memory for it. */
void records_ask(const struct records *records, struct slice key, struct records_ticket *ticket);

/* Whether the record is there that was asked for: then its value, as page_value gives it. */
bool records_get(struct records *records, struct slice key, void *value, size_t capacity,
                 size_t *size, struct records_ticket *ticket);

/* Keeps a pair, if nothing beside it was changed since records_get, or forget. */
void records_keep(struct records *records, const struct records_ticket *ticket, struct slice key,
                  struct slice value);

/* Under the leaf's latch. Others' tickets for its bucket become worthless, whether it was there or not; this
 * one, that was asked for, is for the pair as it will be. */
void records_forget(struct records *records, struct slice key, struct records_ticket *ticket);
void records_forget_all(struct records *records);

#endif
