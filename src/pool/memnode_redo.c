/*
 * memnode_redo.c - new-incarnation (R16): before a restarted memory node serves anybody, it finishes what intents say
 * about its own memory. A list may have been cut off in the middle by the node's own death; its
 * writer, if it lives, still holds the lock and does the same again, which changes nothing.
 *
 * If the lock table was lost, the words of the locks that intents name are put back first. An
 * intent is cleared before any of its locks is released, so a whole one says that its writer held
 * them when the node died. Its writer finds out that the table was lost and ends; it is then
 * recovered as if it had died: the intent redone, also on other nodes, and its locks released.
 * Other locks are free after the loss. What was under way under them is nothing, or one list that
 * intent-first (R18) lets do without an intent: whoever comes next may repair that. An intent on
 * another node may name locks of this one: these are put back from its guard here (intent_fmt.h),
 * which is whole for as long as that intent can be redone.
 */
#include <stdlib.h>

#include "base/log.h"
#include "pool/intent.h"
#include "pool/memnode_int.h"

static bool home_lock_holds(struct memnode *memnode, const struct intent *intent)
{
    uint64_t word;
    if (intent->home.address == 0)
        return true; /* it is of what one member alone writes, and there until all is done */
    return fabric_address_node(intent->home.address) == memnode->super.node &&
           memnode_word_read(memnode, fabric_address_offset(intent->home.address), &word) ==
               PANDO_OK &&
           word == intent->home.word;
}

/* An intent that cannot be read is that of a list that was cut off in its first WRITE, and then nothing behind
 * it was done; or it is damaged, and what it was to finish is found torn by who reads it. */
static bool intent_sound(struct memnode *memnode, fabric_address slot, uint8_t *buffer,
                         uint32_t size, struct intent *intent)
{
    if (intent_read(intent, memnode->super.pool_id, slot, buffer, size))
        return true;
    log_warn("left out an intent that cannot be read", log_hex("slot", slot));
    memnode->stats.intents_damaged++;
    return false;
}

static void restore_lock(struct memnode *memnode, const struct intent_lock *lock)
{
    uint64_t offset = fabric_address_offset(lock->address);
    if (lock->address == 0 || fabric_address_node(lock->address) != memnode->super.node)
        return;
    if (offset < FABRIC_DEVICE || offset >= FABRIC_DEVICE + memnode->super.locks * 8 ||
        offset % 8 != 0 || memnode_word_write(memnode, offset, lock->word) != PANDO_OK)
        log_error("an intent names a lock outside the lock table", log_hex("lock", lock->address));
}

/* Puts back the lock words that a whole intent names. */
static void restore_locks(struct memnode *memnode, const struct intent *intent)
{
    restore_lock(memnode, &intent->home);
    for (uint32_t i = 0; i < intent->lock_count; i++)
        restore_lock(memnode, &intent->locks[i]);
}

static unsigned redo_slot(struct memnode *memnode, uint64_t offset, uint8_t *buffer, uint32_t size,
                          struct intent *intent)
{
    uint64_t header;
    fabric_address slot = fabric_address_make(memnode->super.node, offset);

    if (memnode_word_read(memnode, offset, &header) != PANDO_OK || header == 0 ||
        fabric_self_read(memnode->fabric, offset, buffer, size) != PANDO_OK ||
        !intent_sound(memnode, slot, buffer, size, intent))
        return 0;
    if (fabric_device_lost(memnode->fabric))
        restore_locks(memnode, intent);
    if (intent_is_guard(intent))
        return 0;
    if (!home_lock_holds(memnode, intent))
        return 0;
    for (uint32_t i = 0; i < intent->image_count; i++) {
        const struct intent_image *image = &intent->images[i];
        if (fabric_address_node(image->address) != memnode->super.node)
            continue;
        if (fabric_self_write(memnode->fabric, fabric_address_offset(image->address),
                              image->bytes.data, image->bytes.size) != PANDO_OK)
            log_error("an intent names memory outside the window", log_hex("slot", slot));
    }
    return 1;
}

static bool is_slot(struct memnode *memnode, uint64_t block)
{
    uint64_t word;
    if (memnode_word_read(memnode, block + POOL_BLOCK_TENURE, &word) != PANDO_OK)
        return false;
    return intent_slot_tenure(pool_tenure_unpack(word));
}

/* Of one chunk of vital blocks; how many. */
static enum pando_status redo_chunk(struct memnode *memnode, uint64_t index, unsigned *redone)
{
    const struct chunk *chunk = &memnode->chunks[index];
    uint8_t *buffer = malloc(INTENT_SLOT_BYTES);
    struct intent *intent = malloc(sizeof(*intent));
    enum pando_status status = buffer == NULL || intent == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    for (uint32_t i = 0; i < chunk->blocks && status == PANDO_OK; i++) {
        uint64_t block = memnode_block_offset(memnode, index, i);
        if (is_slot(memnode, block))
            *redone +=
                redo_slot(memnode, block + INTENT_SLOT_AT, buffer, INTENT_SLOT_BYTES, intent);
    }
    free(intent);
    free(buffer);
    return status;
}

enum pando_status memnode_intents_redo(struct memnode *memnode)
{
    enum pando_status status = PANDO_OK;
    unsigned redone = 0;

    for (uint64_t i = 0; i < memnode->super.chunks && status == PANDO_OK; i++) {
        if (intent_chunk(&memnode->chunks[i].entry))
            status = redo_chunk(memnode, i, &redone);
    }
    if (redone > 0)
        log_info("finished writes that were cut off", log_u64("intents", redone));
    return status;
}
