/*
 * row_writer.c - a ring of buffers, each with the WRITE of it.
 */
#include "tree/row/row_writer.h"

#include <stdlib.h>

enum pando_status row_writer_init(struct row_writer *writer, struct pool_session *session,
                                  uint32_t node_bytes)
{
    *writer = (struct row_writer){
        .session = session,
        .node_bytes = node_bytes,
        .buffers = aligned_alloc(64, (size_t)ROW_WRITES * node_bytes),
    };
    return writer->buffers == NULL ? PANDO_NO_MEMORY : PANDO_OK;
}

void row_writer_fini(struct row_writer *writer)
{
    free(writer->buffers);
}

static uint8_t *buffer_of(const struct row_writer *writer)
{
    return writer->buffers + (size_t)writer->next * writer->node_bytes;
}

static void wait_co(struct row_writer *writer, struct pool_write *write)
{
    enum pando_status status = pool_write_wait_co(writer->session, write);
    *write = (struct pool_write){0};
    if (writer->status == PANDO_OK)
        writer->status = status;
}

uint8_t *row_writer_buffer_co(struct row_writer *writer)
{
    wait_co(writer, &writer->writes[writer->next]);
    return buffer_of(writer);
}

void row_writer_post(struct row_writer *writer, fabric_address address)
{
    struct pool_write *write = &writer->writes[writer->next];

    write->address = address;
    write->from = buffer_of(writer);
    write->size = writer->node_bytes;
    pool_write_begin(writer->session, write);
    writer->next = (writer->next + 1) % ROW_WRITES;
}

enum pando_status row_writer_finish_co(struct row_writer *writer)
{
    for (uint32_t i = 0; i < ROW_WRITES; i++)
        wait_co(writer, &writer->writes[i]);
    return writer->status;
}
