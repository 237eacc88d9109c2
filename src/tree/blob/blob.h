/*
 * blob.h - values that are too long for a node: blocks of their own in the pool, written whole before
 * anything refers to them and never changed. A reference is one word, the address.
 */
#ifndef TREE_BLOB_BLOB_H
#define TREE_BLOB_BLOB_H

#include "base/slice.h"
#include "pool/pool.h"

/* If it fails nothing is left of it, and *blob is 0. */
PANDO_MUST_CHECK enum pando_status blob_write_co(struct pool_session *session, uint16_t table,
                                                 struct slice value, fabric_address *blob);

/* STALE: it was freed meanwhile. The whole size, and up to capacity bytes. */
PANDO_MUST_CHECK enum pando_status blob_read_co(struct pool_session *session, uint16_t table,
                                                fabric_address blob, void *to, size_t capacity,
                                                size_t *size);
PANDO_MUST_CHECK enum pando_status blob_free_co(struct pool_session *session, uint16_t table,
                                                fabric_address blob);

/* What a value of that size takes in the pool. */
uint64_t blob_bytes(uint64_t value_size);

#endif
