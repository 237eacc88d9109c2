/*
 * reply.h - replies as clients read them, RESP2 or RESP3, written straight into an output buffer.
 *
 * What does not fit under the limit is dropped and remembered: the connection is closed then, as the
 * reply has a hole. Nothing here fails otherwise.
 */
#ifndef SERVER_RESP_REPLY_H
#define SERVER_RESP_REPLY_H

#include <stdbool.h>

#include "base/slice.h"
#include "fabric/stream/bytes.h"

struct reply {
    struct bytes bytes;
    size_t limit;
    bool resp3;
    bool overflow;
    unsigned errors; /* how many error replies were written */
};

/* Room for `size` bytes in one piece, to be followed by reply_wrote; NULL: over the limit. */
uint8_t *reply_room(struct reply *reply, size_t size);
static inline void reply_wrote(struct reply *reply, size_t size)
{
    bytes_appended(&reply->bytes, size);
}

void reply_raw(struct reply *reply, const void *text, size_t size);
#define reply_literal(reply, text) reply_raw(reply, text, sizeof(text) - 1)

static inline void reply_ok(struct reply *reply)
{
    reply_literal(reply, "+OK\r\n");
}

void reply_simple(struct reply *reply, const char *text);

/* "ERR something": the code comes first. Control characters become spaces. */
void reply_error(struct reply *reply, const char *text);
__attribute__((format(printf, 2, 3))) void reply_errorf(struct reply *reply, const char *format,
                                                        ...);

void reply_integer(struct reply *reply, int64_t value);
void reply_bulk(struct reply *reply, struct slice value);
void reply_text(struct reply *reply, const char *text);
void reply_null(struct reply *reply);
void reply_null_array(struct reply *reply);
void reply_array(struct reply *reply, uint64_t count);
void reply_map(struct reply *reply, uint64_t pairs);
void reply_set(struct reply *reply, uint64_t count);

/* Text for people: a verbatim string in RESP3. */
void reply_verbatim(struct reply *reply, struct slice text);

/* A bulk string of at most `capacity` bytes that is written before its size is known. Begin returns
 * where; end says how much of it, from `skip` on, is the value. */
uint8_t *reply_bulk_begin(struct reply *reply, size_t capacity);
void reply_bulk_end(struct reply *reply, size_t skip, size_t size);

/* An array whose length is known afterwards. */
size_t reply_array_begin(struct reply *reply);
void reply_array_end(struct reply *reply, size_t mark, uint64_t count);

/* How much there is, and taking back what was written since. */
static inline size_t reply_mark(const struct reply *reply)
{
    return bytes_used(&reply->bytes);
}
static inline void reply_rewind(struct reply *reply, size_t mark)
{
    reply->bytes.tail = reply->bytes.head + mark;
}

#endif
