#include "server/resp/reply.h"

#include <stdarg.h>
#include <stdio.h>

#include "server/resp/number.h"

enum {
    HEAD_MAX = NUMBER_TEXT_MAX + 4, /* type, number, end of line */
    ERROR_MAX = 512,
};

uint8_t *reply_room(struct reply *reply, size_t size)
{
    uint8_t *room = bytes_reserve(&reply->bytes, size, reply->limit);
    if (room == NULL)
        reply->overflow = true;
    return room;
}

void reply_raw(struct reply *reply, const void *text, size_t size)
{
    uint8_t *room = reply_room(reply, size);
    if (room == NULL)
        return;
    memcpy(room, text, size);
    reply_wrote(reply, size);
}

/* "$12\r\n" and the like; returns its length. */
static size_t head_write(uint8_t *out, char type, int64_t number)
{
    size_t size = 1;
    out[0] = (uint8_t)type;
    if ((uint64_t)number < 100) { /* nearly all of them */
        if (number >= 10)
            out[size++] = (uint8_t)('0' + number / 10);
        out[size++] = (uint8_t)('0' + number % 10);
    } else {
        size += number_format((char *)out + 1, number);
    }
    out[size++] = '\r';
    out[size++] = '\n';
    return size;
}

static void reply_head(struct reply *reply, char type, int64_t number)
{
    uint8_t *room = reply_room(reply, HEAD_MAX);
    if (room != NULL)
        reply_wrote(reply, head_write(room, type, number));
}

void reply_simple(struct reply *reply, const char *text)
{
    reply_literal(reply, "+");
    reply_raw(reply, text, strlen(text));
    reply_literal(reply, "\r\n");
}

void reply_error(struct reply *reply, const char *text)
{
    size_t size = strlen(text);
    uint8_t *room = reply_room(reply, size + 3);
    reply->errors++;
    if (room == NULL)
        return;
    *room++ = '-';
    for (size_t i = 0; i < size; i++)
        room[i] = text[i] == '\r' || text[i] == '\n' ? ' ' : (uint8_t)text[i];
    room[size] = '\r';
    room[size + 1] = '\n';
    reply_wrote(reply, size + 3);
}

void reply_errorf(struct reply *reply, const char *format, ...)
{
    char text[ERROR_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    reply_error(reply, text);
}

void reply_integer(struct reply *reply, int64_t value)
{
    reply_head(reply, ':', value);
}

void reply_bulk(struct reply *reply, struct slice value)
{
    uint8_t *room = reply_room(reply, HEAD_MAX + value.size + 2);
    if (room == NULL)
        return;
    size_t size = head_write(room, '$', (int64_t)value.size);
    if (value.size > 0)
        memcpy(room + size, value.data, value.size);
    size += value.size;
    room[size] = '\r';
    room[size + 1] = '\n';
    reply_wrote(reply, size + 2);
}

void reply_text(struct reply *reply, const char *text)
{
    reply_bulk(reply, slice_of_text(text));
}

void reply_null(struct reply *reply)
{
    if (reply->resp3)
        reply_literal(reply, "_\r\n");
    else
        reply_literal(reply, "$-1\r\n");
}

void reply_null_array(struct reply *reply)
{
    if (reply->resp3)
        reply_literal(reply, "_\r\n");
    else
        reply_literal(reply, "*-1\r\n");
}

void reply_array(struct reply *reply, uint64_t count)
{
    reply_head(reply, '*', (int64_t)count);
}

void reply_map(struct reply *reply, uint64_t pairs)
{
    reply_head(reply, reply->resp3 ? '%' : '*', (int64_t)(reply->resp3 ? pairs : 2 * pairs));
}

void reply_set(struct reply *reply, uint64_t count)
{
    reply_head(reply, reply->resp3 ? '~' : '*', (int64_t)count);
}

void reply_verbatim(struct reply *reply, struct slice text)
{
    if (!reply->resp3) {
        reply_bulk(reply, text);
        return;
    }
    reply_head(reply, '=', (int64_t)text.size + 4);
    reply_literal(reply, "txt:");
    reply_raw(reply, text.data, text.size);
    reply_literal(reply, "\r\n");
}

uint8_t *reply_bulk_begin(struct reply *reply, size_t capacity)
{
    uint8_t *room = reply_room(reply, HEAD_MAX + capacity + 2);
    return room == NULL ? NULL : room + HEAD_MAX;
}

void reply_bulk_end(struct reply *reply, size_t skip, size_t size)
{
    uint8_t *room = reply->bytes.data + reply->bytes.tail;
    size_t at = head_write(room, '$', (int64_t)size);
    memmove(room + at, room + HEAD_MAX + skip, size);
    at += size;
    room[at] = '\r';
    room[at + 1] = '\n';
    reply_wrote(reply, at + 2);
}

size_t reply_array_begin(struct reply *reply)
{
    size_t mark = reply_mark(reply);
    if (reply_room(reply, HEAD_MAX) != NULL)
        reply_wrote(reply, HEAD_MAX);
    return mark;
}

void reply_array_end(struct reply *reply, size_t mark, uint64_t count)
{
    if (reply_mark(reply) < mark + HEAD_MAX)
        return;
    uint8_t *room = bytes_front(&reply->bytes) + mark;
    size_t rest = reply_mark(reply) - mark - HEAD_MAX;
    size_t size = head_write(room, '*', (int64_t)count);
    memmove(room + size, room + HEAD_MAX, rest);
    reply_rewind(reply, mark + size + rest);
}
