/*
 * blob.h - values that are too long for a node: blocks of their own in the pool, written whole before
 * anything refers to them and never changed.
 *
 * A reference is one word (blob_fmt.h): the address, and in the bits that addresses do not use the low bits
 * of the block's version. The blob's header has the version and a check of the key. A reference therefore
 * means one value of one key for ever: it never comes to mean what is written to the same block later (R22).
 */
#ifndef TREE_BLOB_BLOB_H
#define TREE_BLOB_BLOB_H

#include "base/slice.h"
#include "pool/pool.h"
#include "tree/blob/blob_fmt.h"

/* If it fails nothing is left of it, and *blob is 0. */
PANDO_MUST_CHECK enum pando_status blob_write_co(struct pool_session *session, uint16_t table,
                                                 struct slice key, struct slice value,
                                                 blob_ref *blob);

/* Stores the whole size, and up to capacity bytes. STALE: that blob is not there (any more), or is not that
 * key's. */
PANDO_MUST_CHECK enum pando_status blob_read_co(struct pool_session *session, uint16_t table,
                                                struct slice key, blob_ref blob, void *to,
                                                size_t capacity, size_t *size);

/* A buffer that grows as it has to: all zero to begin with, the caller frees `bytes`. */
struct blob_buffer {
    uint8_t *bytes;
    size_t capacity;
};

/* Reads the whole value into the buffer; *value is valid until the buffer is used again. STALE as above. */
PANDO_MUST_CHECK enum pando_status blob_fetch_co(struct pool_session *session, uint16_t table,
                                                 struct slice key, blob_ref blob,
                                                 struct blob_buffer *buffer, struct slice *value);

/* The same of the first bytes only, as many as come with the header: they are not checked, the header is. */
PANDO_MUST_CHECK enum pando_status blob_glance_co(struct pool_session *session, uint16_t table,
                                                  struct slice key, blob_ref blob,
                                                  struct blob_buffer *buffer, struct slice *value);

/* STALE: it is not there (any more). */
PANDO_MUST_CHECK enum pando_status blob_free_co(struct pool_session *session, uint16_t table,
                                                blob_ref blob);

/* Tells a blob that was freed from one that is damaged, for readers who begin again at the leaf. Returns
 * STALE, or CORRUPT (and logs) if `blob` was not there the last time either: the leaf was read again in
 * between and still refers to it, so it was never freed. *last is 0 to begin with. */
PANDO_MUST_CHECK enum pando_status blob_missing(uint16_t table, blob_ref blob, blob_ref *last);

/* What a value of that size takes in the pool. */
uint64_t blob_bytes(uint64_t value_size);

#endif
