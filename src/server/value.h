/*
 * value.h - stored bytes of a numbered database, taken apart and put together (value_fmt.h).
 */
#ifndef SERVER_VALUE_H
#define SERVER_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"
#include "server/value_fmt.h"

struct value {
    struct slice data;
    uint64_t expire_ms; /* 0: never */
};

/* False: a header that this version does not know. `data` lies in the stored bytes. */
static inline bool value_read(struct slice stored, struct value *out)
{
    if (stored.size == 0 || stored.data[0] < VALUE_MARK_FIRST) {
        *out = (struct value){.data = stored};
        return true;
    }
    if (stored.data[0] == VALUE_MARK_ESCAPED) {
        *out = (struct value){
            .data = slice_of(stored.data + VALUE_HEAD_ESCAPED, stored.size - VALUE_HEAD_ESCAPED)};
        return true;
    }
    if (stored.data[0] != VALUE_MARK_EXPIRES || stored.size < VALUE_HEAD_EXPIRES)
        return false;
    out->data = slice_of(stored.data + VALUE_HEAD_EXPIRES, stored.size - VALUE_HEAD_EXPIRES);
    memcpy(&out->expire_ms, stored.data + 1, sizeof(out->expire_ms));
    return true;
}

/* Size of the header that this value needs. */
static inline size_t value_head_size(struct slice data, uint64_t expire_ms)
{
    if (expire_ms != 0)
        return VALUE_HEAD_EXPIRES;
    return data.size > 0 && data.data[0] >= VALUE_MARK_FIRST ? VALUE_HEAD_ESCAPED : 0;
}

/* Writes a header of that size. */
static inline void value_head_write(uint8_t *out, size_t head_size, uint64_t expire_ms)
{
    if (head_size == VALUE_HEAD_ESCAPED) {
        out[0] = VALUE_MARK_ESCAPED;
    } else if (head_size == VALUE_HEAD_EXPIRES) {
        out[0] = VALUE_MARK_EXPIRES;
        memcpy(out + 1, &expire_ms, sizeof(expire_ms));
    }
}

#endif
