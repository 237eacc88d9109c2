/*
 * damage.c - telling damage from changes under way (rule proven-repair).
 *
 * A node or cell that fails its check may be one that somebody is writing, one whose writer died and is
 * about to be recovered, or bytes of something else that a stale pointer leads to. Under the node's lock
 * the first two are excluded: whoever writes holds it, and recovery redoes intents before it releases
 * it. A stale pointer is excluded by the way from the root, read while the lock is held: a node is
 * unlinked only under its lock. What remains is damage. It is never written over.
 */
#include <stdio.h>

#include "base/log.h"
#include "tree/blink/blink_int.h"

static const uint64_t SAY_AGAIN_NS = 10 * RT_NS_PER_S;

void blink_key_text(struct slice key, char out[BLINK_KEY_TEXT])
{
    enum { SHOWN = 24 };
    size_t used = 0;
    for (size_t i = 0; i < key.size && i < SHOWN; i++) {
        uint8_t byte = key.data[i];
        bool plain = byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
        used += (size_t)snprintf(out + used, BLINK_KEY_TEXT - used, plain ? "%c" : "\\x%02x", byte);
    }
    snprintf(out + used, BLINK_KEY_TEXT - used, "%s", key.size > SHOWN ? "..." : "");
}

/* Whether it was not said lately of this very node: operations meet it again and again. */
static bool worth_saying(struct blink_tree *tree, fabric_address address)
{
    enum { SAID = sizeof(tree->said) / sizeof(tree->said[0]) };
    uint64_t now_ns = rt_now_ns();
    unsigned i = 0;

    rt_latch_lock(&tree->handles_latch);
    while (i < SAID && tree->said[i].address != address)
        i++;
    bool worth = i == SAID || now_ns - tree->said[i].at_ns >= SAY_AGAIN_NS;
    if (i == SAID)
        i = tree->said_next++ % SAID;
    if (worth)
        tree->said[i] = (struct blink_damage_said){address, now_ns};
    rt_latch_unlock(&tree->handles_latch);
    return worth;
}

enum pando_status blink_damaged(struct blink *self, fabric_address address, struct slice key,
                                const char *what)
{
    struct blink_tree *tree = self->tree;
    char text[BLINK_KEY_TEXT];

    blink_count(&tree->damage);
    blink_key_text(key, text);
    if (worth_saying(tree, address))
        log_error("damaged node; keys in its range answer CORRUPT until the table is dropped",
                  log_text("what", what), log_u64("table", tree->id),
                  log_u64("node", pool_node_of(tree->pool, address)),
                  log_hex("offset", fabric_address_offset(address)), log_text("key", text));
    return PANDO_CORRUPT;
}

/* Whether the way from the root to the target leads to that address. Takes no locks. */
static enum pando_status leads_to_co(struct blink *self, const struct blink_target *target,
                                     fabric_address address, uint8_t *bytes, bool *leads)
{
    const struct node_layout *layout = &self->tree->layout;
    struct node_header header;
    fabric_address at;
    uint32_t index;
    uint64_t pointer_ns = rt_coarse_ns();
    enum pando_status status = blink_root_co(self, true, &at);

    *leads = false;
    for (int moves = 0; status == PANDO_OK && moves < BLINK_WAY_MAX; moves++) {
        *leads = at == address;
        if (*leads || at == 0)
            return PANDO_OK;
        uint64_t read_ns = rt_coarse_ns();
        status = blink_read_linked_co(self, at, pointer_ns, bytes, &header);
        if (status != PANDO_OK)
            break;
        pointer_ns = read_ns;
        switch (blink_fits(self, target, &header)) {
        case FIT_NOT:
            return PANDO_OK;
        case FIT_RIGHT:
            at = header.sibling;
            continue;
        case FIT:
            break;
        }
        if (header.level <= target->level)
            return PANDO_OK;
        at = target->before ? inner_child_before(layout, bytes, target->key, &index)
                            : inner_child(layout, bytes, target->key, &index);
    }
    return status == PANDO_STALE ? PANDO_OK : status;
}

struct step blink_suspect_co(struct blink *self, const struct blink_target *target,
                             fabric_address address)
{
    struct blink_scratch *scratch = blink_scratch_take(self);
    struct node_header header;
    struct blink_lock lock;
    bool leads = false;

    if (scratch == NULL)
        return step_of(PANDO_NO_MEMORY);
    enum pando_status status = blink_lock_co(self, address, scratch->node, &lock);
    if (status == PANDO_OK) {
        bool unlinked = node_unlinked(&self->tree->layout, address, scratch->node, &header);
        if (unlinked || !node_header_read(&self->tree->layout, address, scratch->node, &header))
            status = leads_to_co(self, target, address, scratch->other, &leads);
        if (status == PANDO_OK && leads && unlinked) {
            /* It is linked after all, and whoever did that has not said so. */
            status = blink_link_co(self, address, scratch->node);
            leads = false;
            if (status == PANDO_STALE)
                status = PANDO_OK;
        } else if (status == PANDO_OK && leads) {
            /* Once more: what was read may have been damaged on its way. */
            status = blink_read_co(self, address, scratch->node, &header);
            leads = status == PANDO_STALE;
            if (leads)
                status = PANDO_OK;
        }
        enum pando_status released = blink_unlock_co(self, &lock);
        if (status == PANDO_OK)
            status = released;
    }
    blink_scratch_give(self, scratch);
    if (status == PANDO_OK && leads)
        status = blink_damaged(self, address, target->key, "no valid node where one is linked");
    return step_restart_after(status);
}
