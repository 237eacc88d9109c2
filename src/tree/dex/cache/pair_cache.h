/*
 * pair_cache.h - single pairs of one's own keys, kept besides whole pages: of a leaf that is not worth a
 * frame, the one pair that is asked for again and again.
 *
 * A record is what its leaf has. Whoever reads a pair may keep it if nobody has changed a pair beside it
 * since before the leaf was read (the token); whoever changes a leaf forgets the pair's record
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
#ifndef TREE_DEX_CACHE_PAIR_CACHE_H
#define TREE_DEX_CACHE_PAIR_CACHE_H

#include "base/slice.h"
#include "tree/dex/cache/frame.h"

struct pair_cache {
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
struct pair_cache_options {
    size_t bytes;       /* of its own */
    uint32_t lent_most; /* frames */
    uint32_t key_size, value_size;
    uint32_t key_max, value_max;
};

/* Nothing is kept if there is no room, or no use. NO_MEMORY. */
PANDO_MUST_CHECK enum pando_status pair_cache_create(struct pair_cache *records,
                                                     struct frames *frames,
                                                     const struct pair_cache_options *options);
void pair_cache_destroy(struct pair_cache *records);

/* Lends one more frame, which is FREE and in nobody's hands; false: it is not wanted. */
bool pair_cache_grow(struct pair_cache *records, uint32_t frame);

/* Gives one back; FRAME_NONE: none is lent. */
uint32_t pair_cache_shrink(struct pair_cache *records);

uint32_t pair_cache_lent(const struct pair_cache *records);

/* For looking for a record, and for keeping one after its leaf was read. */
struct pair_cache_token {
    uint64_t hash;
    _Atomic uint64_t *at, *bucket;
    uint64_t header;
    bool room; /* nothing else would have to go */
};

/* Where a key's record would be; asks memory for it. */
void pair_cache_ask(const struct pair_cache *records, struct slice key,
                    struct pair_cache_token *token);

/* Whether the record is there that was asked for: then its value, as page_value gives it. */
bool pair_cache_get(struct pair_cache *records, struct slice key, void *value, size_t capacity,
                    size_t *size, struct pair_cache_token *token);

/* Keeps a pair, if nothing beside it was changed since pair_cache_get, or forget. */
void pair_cache_keep(struct pair_cache *records, const struct pair_cache_token *token,
                     struct slice key, struct slice value);

/* Under the leaf's latch. Others' tokens for its bucket become worthless, whether it was there or not; this
 * one, that was asked for, is for the pair as it will be. */
void pair_cache_forget(struct pair_cache *records, struct slice key,
                       struct pair_cache_token *token);
void pair_cache_forget_all(struct pair_cache *records);

#endif
