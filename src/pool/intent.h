/*
 * intent.h - building and reading intents: bytes in, bytes out, no I/O.
 *
 * A writer that changes several words builds an intent in a buffer and sends one list:
 *     [WRITE intent] [WRITE changes...] [WRITE 0 to the intent's header word] [WRITE 0 to the home
 * lock] Whoever finds it dead redoes what intents of its say (pool/recover.c).
 */
#ifndef POOL_INTENT_H
#define POOL_INTENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/slice.h"
#include "fabric/fabric.h"
#include "pool/intent_fmt.h"

struct intent_lock {
    fabric_address address;
    uint64_t word;
};

/* ---- building -------------------------------------------------------------------------------- */

struct intent_builder {
    uint8_t *buffer; /* aligned to 8 */
    size_t capacity;
    size_t size;
    bool overflow; /* it did not fit: no intent */
};

/* Locks before images. A home of address 0: none is held, see intent_fmt.h. */
void intent_begin(struct intent_builder *builder, void *buffer, size_t capacity,
                  struct intent_lock home);
void intent_add_lock(struct intent_builder *builder, struct intent_lock lock);
void intent_add_image(struct intent_builder *builder, fabric_address address, struct slice bytes);

/* Bytes to WRITE to the slot, or 0 when it did not fit. */
size_t intent_finish(struct intent_builder *builder, uint64_t pool, fabric_address slot);

/* ---- reading --------------------------------------------------------------------------------- */

struct intent_image {
    fabric_address address;
    struct slice bytes; /* in the buffer that was read */
};

struct intent {
    struct intent_lock home;
    uint32_t lock_count, image_count;
    struct intent_lock locks[INTENT_LOCKS_MAX];
    struct intent_image images[INTENT_IMAGES_MAX];
};

/* Whether it has no images: a guard (intent_fmt.h). */
static inline bool intent_is_guard(const struct intent *intent)
{
    return intent->image_count == 0;
}

/* False when there is no whole and sound intent in these bytes. */
bool intent_read(struct intent *intent, uint64_t pool, fabric_address slot, const void *bytes,
                 size_t size);

#endif
