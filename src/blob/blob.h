/*
 * blob.h - values that are too long for a node: blocks of their own in the pool, written whole before
 * anything refers to them and never changed.
 *
 * A reference is one word (blob_fmt.h): the address, and in the bits that addresses do not use the low bits
 * of the block's version. The blob's header has the version and a check of the key. A reference therefore
 * means one value of one key for ever: it never comes to mean what is written to the same block
 * later (rule stale-read-limit).
 */
#ifndef BLOB_BLOB_H
#define BLOB_BLOB_H

#include "base/slice.h"
#include "blob/blob_fmt.h"
#include "engine/engine.h"
#include "pool/pool.h"

/* ---- writing --------------------------------------------------------------------------------- */

/* If it fails nothing is left of it, and *blob is 0. Long values are written from the caller's memory. */
PANDO_MUST_CHECK enum pando_status blob_write_co(struct pool_session *session, uint16_t table,
                                                 struct slice key, struct slice value,
                                                 blob_ref *blob);

/*
 * Writing a value that comes in pieces, with memory for one segment:
 *
 *   blob_begin_co    the size of all pieces is known; takes the head block
 *   blob_append_co   any number of times
 *   blob_finish_co   puts the prefix in front and makes the value readable
 *   blob_abort_co    at any time, instead: nothing is left
 *
 * After a failure only blob_abort_co may follow. If the writer dies before blob_finish_co has begun, the
 * sweep of its memory takes all blocks back.
 */
struct blob_writer {
    struct pool_session *session;
    uint16_t table;
    uint64_t key;
    uint64_t body, written; /* bytes of all pieces, and of those that came */
    struct blob_head head;
    uint64_t head_bytes;
    uint32_t segments, done;
    struct pool_block *blocks; /* of the segments, `done` of them */
    uint8_t *buffer;           /* a segment being filled, or a short value */
    uint32_t filled;
};

/* *writer is overwritten. TOO_LARGE, NO_MEMORY, FULL (also, at once, if the pool could not hold it when it were
 * empty): nothing is left, and blob_abort_co does no harm. */
PANDO_MUST_CHECK enum pando_status blob_begin_co(struct blob_writer *writer,
                                                 struct pool_session *session, uint16_t table,
                                                 struct slice key, uint64_t body);

/* INVALID: more bytes than were announced. */
PANDO_MUST_CHECK enum pando_status blob_append_co(struct blob_writer *writer, struct slice piece);

/* The prefix has up to BLOB_PREFIX_MAX bytes. INVALID: fewer bytes came than were announced. The writer's
 * memory is freed on OK; the value is the caller's, to be referred to or freed. */
PANDO_MUST_CHECK enum pando_status blob_finish_co(struct blob_writer *writer, struct slice prefix,
                                                  blob_ref *blob);
void blob_abort_co(struct blob_writer *writer);

/* Frees the memory only: the session is gone. */
void blob_forget(struct blob_writer *writer);

/* ---- reading --------------------------------------------------------------------------------- */

/* A part of a value that is read. */
struct blob_part {
    uint64_t offset; /* may be beyond the end */
    void *to;
    size_t capacity;
    bool
        freed_too; /* the value was live when the caller came by the reference, and need not be any more */
    uint64_t size; /* out: of the whole value */
    size_t got;    /* out: up to capacity bytes from the offset on */
};

/* Reads and checks the segments that the part touches. STALE: that blob is not there (any more), or is not
 * that key's. */
PANDO_MUST_CHECK enum pando_status blob_read_co(struct pool_session *session, uint16_t table,
                                                struct slice key, blob_ref blob,
                                                struct blob_part *part);

/* The same of the value that a leaf refers to, for an engine, whose reader begins again at the leaf when the
 * value was freed meanwhile: STALE, or CORRUPT as blob_missing says. */
PANDO_MUST_CHECK enum pando_status blob_read_found_co(struct pool_session *session, uint16_t table,
                                                      struct slice key, blob_ref blob,
                                                      struct engine_part *part, blob_ref *missing);

/* The same of the value that part->reference means, which may have been freed since. */
PANDO_MUST_CHECK enum pando_status blob_read_again_co(struct pool_session *session, uint16_t table,
                                                      struct slice key, struct engine_part *part);

/* Reads all of a value to check it, a segment at a time, and tells what it takes in the pool. STALE as above. */
PANDO_MUST_CHECK enum pando_status blob_check_co(struct pool_session *session, uint16_t table,
                                                 struct slice key, blob_ref blob,
                                                 uint64_t *pool_bytes);

/* A buffer that grows as it has to: all zero to begin with, the caller frees `bytes`. */
struct blob_buffer {
    uint8_t *bytes;
    size_t capacity;
};

/* Reads the whole value into the buffer; *value is valid until the buffer is used again. STALE as above.
 * RANGE: it has more than `most` bytes; value->size says how many. */
PANDO_MUST_CHECK enum pando_status blob_fetch_co(struct pool_session *session, uint16_t table,
                                                 struct slice key, blob_ref blob, uint64_t most,
                                                 struct blob_buffer *buffer, struct slice *value);

/* The same of the first bytes only, as many as come with the header: they are not checked, the header and the
 * prefix of a long value are. */
PANDO_MUST_CHECK enum pando_status blob_glance_co(struct pool_session *session, uint16_t table,
                                                  struct slice key, blob_ref blob,
                                                  struct blob_buffer *buffer, struct slice *value);

/* The same of a value that is stored in segments; all of any other. Both are checked. */
PANDO_MUST_CHECK enum pando_status blob_front_co(struct pool_session *session, uint16_t table,
                                                 struct slice key, blob_ref blob,
                                                 struct blob_buffer *buffer, struct slice *value);

/* ---- the rest -------------------------------------------------------------------------------- */

/* STALE: it is not there (any more). */
PANDO_MUST_CHECK enum pando_status blob_free_co(struct pool_session *session, uint16_t table,
                                                blob_ref blob);

/* Bytes of the blocks that a value of that size takes in the pool, if blob_write_co writes it; of a staged one it
 * may be a block's step more or less, since other bytes of it are in front. */
uint64_t blob_pool_bytes(uint64_t size);

/* Tells a blob that was freed from one that is damaged, for readers who begin again at the leaf. Returns
 * STALE, or CORRUPT (and logs) if `blob` was not there the last time either: the leaf was read again in
 * between and still refers to it, so it was never freed. *last is 0 to begin with. */
PANDO_MUST_CHECK enum pando_status blob_missing(uint16_t table, blob_ref blob, blob_ref *last);

/* ---- an engine's staged values (engine.h) ----------------------------------------------------- */

PANDO_MUST_CHECK enum pando_status blob_stage_open_co(struct pool_session *session, uint16_t table,
                                                      struct slice key, uint64_t size,
                                                      struct engine_stage **out);
enum pando_status blob_stage_add_co(struct engine_stage *stage, struct slice bytes);
enum pando_status blob_stage_seal_co(struct engine_stage *stage, struct slice head,
                                     uint64_t *reference);
void blob_stage_close_co(struct engine_stage *stage, enum engine_stage_end end);

#endif
