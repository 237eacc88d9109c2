/*
 * outgoing.c - long values on their way to a client: a piece is read when the one before has been taken.
 */
#include "server/net/outgoing.h"

#include "base/log.h"
#include "server/long.h"
#include "server/resp/number.h"

enum { PIECE_BYTES = STORE_PART_USUAL };

/* Until the client has taken all replies; false: it is closing. */
static bool drain_co(struct client *client)
{
    if (!client_flush(client))
        return false;
    while (bytes_used(&client->output->reply.bytes) > 0) {
        if (!client_wait_co(client, RT_WRITABLE, client->taken_ns) || !client_flush(client))
            return false;
    }
    return true;
}

static enum pando_status piece_co(struct store_table *table, struct slice key, uint64_t reference,
                                  uint64_t offset, size_t size, struct reply *reply)
{
    uint8_t *room = reply_room(reply, size);
    if (room == NULL)
        return PANDO_OK; /* over the limit: the connection ends */
    struct store_part part = {
        .offset = offset, .to = room, .capacity = size, .reference = reference};
    enum pando_status status = store_part_co(table, key, &part);
    if (status == PANDO_OK && part.got != size)
        status = PANDO_STALE;
    if (status == PANDO_OK)
        reply_wrote(reply, size);
    return status;
}

enum pando_status long_send_co(struct command_call *call, struct store_table *table,
                               struct slice key, uint64_t reference, uint64_t skip, uint64_t size)
{
    struct client *client = call->client;
    struct reply *reply = call->reply;
    size_t mark = reply_mark(reply);
    char head[NUMBER_TEXT_MAX + 4] = "$";
    size_t head_size = 1 + number_format(head + 1, (int64_t)size);

    reply_raw(reply, head, head_size);
    reply_literal(reply, "\r\n");
    for (uint64_t done = 0; done < size && !reply->overflow;) {
        uint64_t left = size - done;
        size_t piece = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        enum pando_status status = piece_co(table, key, reference, skip + done, piece, reply);
        if (status != PANDO_OK && (done == 0 || !call->streams)) { /* nothing of it was sent */
            reply_rewind(reply, mark);
            return status;
        }
        if (status != PANDO_OK) {
            log_warn("client closed: the value it was reading was replaced, or cannot be read",
                     log_u64("client", client->id), log_text("address", client->address),
                     log_text("status", pando_status_text(status)), log_u64("sent", done),
                     log_u64("bytes", size));
            client->closing = true;
            return PANDO_OK;
        }
        done += piece;
        client->taken_ns = rt_coarse_ns();
        if (!call->streams)
            continue;
        if (!drain_co(client)) {
            client->closing = true;
            return PANDO_OK;
        }
    }
    reply_literal(reply, "\r\n");
    return PANDO_OK;
}
