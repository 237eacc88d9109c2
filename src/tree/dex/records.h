/*
 * records.h - single pairs of one's own keys, kept besides whole pages: of a leaf that is not worth a
 * frame, the one pair that is asked for again and again.
 *
 * A record is what its leaf has. Whoever reads a pair may keep it if nobody has changed a pair of that
 * group since before the leaf was read (the ticket); whoever changes a leaf forgets the pair's record
 * while the leaf's latch is held. What is kept was in the log before: a reader need not wait for it.
 * When keys are given away, everything is forgotten.
 *
 * Records lie in frames that the cache has lent, each a group of them. Groups come and go one at a
 * time (linear hashing): a new one takes its keys from one other, and the last one's keys go back to
 * that. A group has only records of keys that belong to it. It is read without a latch, like a page.
 * Pairs that do not fit a slot, and blobs, are not kept.
 *
 * Any thread.
 */
#ifndef TREE_DEX_RECORDS_H
#define TREE_DEX_RECORDS_H

#include "base/slice.h"
#include "tree/dex/frame.h"

struct records {
    struct frames *frames;          /* NULL: nothing is kept */
    _Atomic uint32_t *group_frames; /* where each group lies */
    _Atomic uint32_t count;         /* groups */
    uint32_t least, most;
    uint32_t parts, part_bytes;    /* of a group */
    uint32_t slots, slot_bytes;    /* of a part */
    uint32_t key_size, value_size; /* 0: they vary */
    _Atomic uint32_t epoch;        /* what was kept before it is forgotten */
    struct rt_latch latch;         /* of growing and shrinking */
};

/* The longest pairs that can come; sizes of 0 mean that they vary. */
struct records_options {
    uint32_t least, most; /* frames; the first `least` are lent from the beginning */
    uint32_t key_size, value_size;
    uint32_t key_max, value_max;
};

/* Of frames that nobody has used yet. None are lent and nothing is kept if there is no use in it. NO_MEMORY. */
PANDO_MUST_CHECK enum pando_status records_create(struct records *records, struct frames *frames,
                                                  const struct records_options *options);
void records_destroy(struct records *records);

/* Lends one more frame, which is FREE and in nobody's hands; false: it is not wanted. */
bool records_grow(struct records *records, uint32_t frame);

/* Gives one back; FRAME_NONE: there are only `least`. */
uint32_t records_shrink(struct records *records);

uint64_t records_hash(const struct records *records, struct slice key);
void records_prefetch(const struct records *records, uint64_t hash);

/* For keeping a record after its leaf was read. */
struct records_ticket {
    uint64_t header;
    uint32_t frame;
    bool room; /* nothing else would have to go */
};

/* Whether the key's record is there: then its value, as page_value gives it. */
bool records_get(struct records *records, uint64_t hash, struct slice key, void *value,
                 size_t capacity, size_t *size, struct records_ticket *ticket);

/* Keeps a pair, if nothing in its group was changed since the ticket was had. */
void records_keep(struct records *records, uint64_t hash, const struct records_ticket *ticket,
                  struct slice key, struct slice value);

/* Under the leaf's latch. Tickets for its group become worthless, whether it was there or not; this one is
 * for the pair as it will be. */
struct records_ticket records_forget(struct records *records, struct slice key);
void records_forget_all(struct records *records);

#endif
