/*
 * row_writer.h - new nodes on their way to the pool: many are written at the same time, each from a
 * buffer of its own. Nobody else knows them yet.
 */
#ifndef TREE_ROW_ROW_WRITER_H
#define TREE_ROW_ROW_WRITER_H

#include <stdint.h>

#include "pool/pool.h"

enum { ROW_WRITES = 32 };

struct row_writer {
    struct pool_session *session;
    uint32_t node_bytes;
    uint8_t *buffers; /* ROW_WRITES nodes being written */
    struct pool_write writes[ROW_WRITES];
    uint32_t next;
    enum pando_status status; /* of the first write that failed */
};

/* NO_MEMORY. Lies still until row_writer_fini, with nothing on its way: after row_writer_finish_co. */
PANDO_MUST_CHECK enum pando_status
row_writer_init(struct row_writer *writer, struct pool_session *session, uint32_t node_bytes);
void row_writer_fini(struct row_writer *writer);

/* The buffer to build the next node in; waits for the write that used it last. */
uint8_t *row_writer_buffer_co(struct row_writer *writer);

/* Sends what was built there. */
void row_writer_post(struct row_writer *writer, fabric_address address);

/* Waits for all. */
PANDO_MUST_CHECK enum pando_status row_writer_finish_co(struct row_writer *writer);

#endif
