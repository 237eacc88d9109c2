#include "fabric/stream/bytes.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

enum { CAPACITY_MIN = 4096, ALIGN = 8 };

int bytes_init(struct bytes *bytes, size_t capacity)
{
    *bytes = (struct bytes){.capacity = capacity};
    bytes->data = capacity == 0 ? NULL : malloc(capacity);
    return capacity == 0 || bytes->data != NULL ? 0 : -1;
}

/* What lies between two places, if it may be secret. */
static void overwrite(const struct bytes *bytes, size_t from, size_t to)
{
    if (!bytes->secret || from >= to)
        return;
    size_t size = to - from < BYTES_SECRET ? to - from : BYTES_SECRET;
    OPENSSL_cleanse(bytes->data + from, size);
}

void bytes_fini(struct bytes *bytes)
{
    overwrite(bytes, bytes->head, bytes->tail);
    free(bytes->data);
    *bytes = (struct bytes){0};
}

void bytes_wipe(struct bytes *bytes)
{
    if (bytes->capacity > 0)
        OPENSSL_cleanse(bytes->data, bytes->capacity);
    bytes->head = bytes->tail = 0;
}

uint8_t *bytes_reserve_slow(struct bytes *bytes, size_t size, size_t limit)
{
    size_t used = bytes_used(bytes);
    if (used > limit || size > limit - used)
        return NULL;
    /* What was sent or read in part leaves the front at any byte; keep words where they were. */
    size_t shift = bytes->head % ALIGN;
    if (bytes->capacity < shift + used + size) {
        size_t capacity = bytes->capacity < CAPACITY_MIN ? CAPACITY_MIN : bytes->capacity;
        while (capacity < shift + used + size)
            capacity *= 2;
        uint8_t *data = malloc(capacity);
        if (data == NULL)
            return NULL;
        if (used > 0)
            memcpy(data + shift, bytes->data + bytes->head, used);
        overwrite(bytes, bytes->head, bytes->tail);
        free(bytes->data);
        bytes->data = data;
        bytes->capacity = capacity;
    } else if (used > 0) {
        size_t end = shift + used;
        memmove(bytes->data + shift, bytes->data + bytes->head, used);
        overwrite(bytes, bytes->head > end ? bytes->head : end, bytes->tail);
    }
    bytes->head = shift;
    bytes->tail = shift + used;
    return bytes->data + bytes->tail;
}
