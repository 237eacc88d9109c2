#include "pool/intent.h"

#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"

static uint32_t intent_crc(uint64_t pool, fabric_address slot, const uint8_t *rest, size_t size)
{
    uint64_t seed[2] = {pool, slot};
    return crc32c(crc32c(0, seed, sizeof(seed)), rest, size);
}

static size_t padded(size_t size)
{
    return (size + 7) & ~(size_t)7;
}

static void put(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
}

/* ---- building -------------------------------------------------------------------------------- */

static uint8_t *grow(struct intent_builder *builder, size_t size)
{
    if (builder->overflow || size > builder->capacity - builder->size) {
        builder->overflow = true;
        return NULL;
    }
    uint8_t *at = builder->buffer + builder->size;
    memset(at, 0, size);
    builder->size += size;
    return at;
}

static void count_up(struct intent_builder *builder, size_t offset, uint16_t most)
{
    uint16_t count;
    put(&count, builder->buffer + offset, sizeof(count));
    if (count == most)
        builder->overflow = true;
    count++;
    put(builder->buffer + offset, &count, sizeof(count));
}

void intent_begin(struct intent_builder *builder, void *buffer, size_t capacity,
                  struct intent_lock home)
{
    *builder = (struct intent_builder){.buffer = buffer, .capacity = capacity};
    uint8_t *header = grow(builder, INTENT_HEADER);
    if (header == NULL)
        return;
    put(header + 8, &home.address, 8);
    put(header + 16, &home.word, 8);
}

void intent_add_lock(struct intent_builder *builder, struct intent_lock lock)
{
    uint8_t *at = grow(builder, INTENT_LOCK_BYTES);
    if (at == NULL)
        return;
    put(at, &lock.address, 8);
    put(at + 8, &lock.word, 8);
    count_up(builder, 24, INTENT_LOCKS_MAX);
}

void intent_add_image(struct intent_builder *builder, fabric_address address, struct slice bytes)
{
    uint32_t size = (uint32_t)bytes.size;
    uint8_t *at = grow(builder, INTENT_IMAGE_HEADER + padded(bytes.size));
    if (at == NULL)
        return;
    put(at, &address, 8);
    put(at + 8, &size, 4);
    put(at + INTENT_IMAGE_HEADER, bytes.data, bytes.size);
    count_up(builder, 26, INTENT_IMAGES_MAX);
}

size_t intent_finish(struct intent_builder *builder, uint64_t pool, fabric_address slot)
{
    if (builder->overflow)
        return 0;
    uint32_t rest = (uint32_t)(builder->size - 8);
    uint32_t crc = intent_crc(pool, slot, builder->buffer + 8, rest);
    put(builder->buffer, &crc, 4);
    put(builder->buffer + 4, &rest, 4);
    return builder->size;
}

/* ---- reading --------------------------------------------------------------------------------- */

bool intent_read(struct intent *intent, uint64_t pool, fabric_address slot, const void *bytes,
                 size_t size)
{
    const uint8_t *at = bytes;
    uint32_t crc, rest;
    uint16_t locks, images;

    if (size < INTENT_HEADER)
        return false;
    put(&crc, at, 4);
    put(&rest, at + 4, 4);
    if (rest < INTENT_HEADER - 8 || rest > size - 8 || crc != intent_crc(pool, slot, at + 8, rest))
        return false;
    const uint8_t *end = at + 8 + rest;
    put(&intent->home.address, at + 8, 8);
    put(&intent->home.word, at + 16, 8);
    put(&locks, at + 24, 2);
    put(&images, at + 26, 2);
    if (locks > INTENT_LOCKS_MAX || images > INTENT_IMAGES_MAX)
        return false;
    at += INTENT_HEADER;
    if ((size_t)(end - at) < (size_t)locks * INTENT_LOCK_BYTES)
        return false;
    for (uint16_t i = 0; i < locks; i++, at += INTENT_LOCK_BYTES) {
        put(&intent->locks[i].address, at, 8);
        put(&intent->locks[i].word, at + 8, 8);
    }
    for (uint16_t i = 0; i < images; i++) {
        uint32_t length;
        if (end - at < INTENT_IMAGE_HEADER)
            return false;
        put(&intent->images[i].address, at, 8);
        put(&length, at + 8, 4);
        at += INTENT_IMAGE_HEADER;
        if (padded(length) > (size_t)(end - at))
            return false;
        intent->images[i].bytes = slice_of(at, length);
        at += padded(length);
    }
    intent->lock_count = locks;
    intent->image_count = images;
    return at == end;
}
