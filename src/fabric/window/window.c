#include "fabric/window/window.h"

#include <stdatomic.h>

#include "base/assert.h"
#include "fabric/window/copy.h"

enum pando_status window_read(const struct window *window, uint64_t offset, void *to, size_t size)
{
    const uint8_t *at = window_at(window, offset, size);
    if (at == NULL)
        return PANDO_RANGE;
    copy_from_shared(to, at, size);
    atomic_thread_fence(memory_order_acquire);
    return PANDO_OK;
}

enum pando_status window_write(const struct window *window, uint64_t offset, const void *from,
                               size_t size)
{
    uint8_t *at = window_at(window, offset, size);
    if (at == NULL)
        return PANDO_RANGE;
    atomic_thread_fence(memory_order_release);
    copy_to_shared(at, from, size);
    return PANDO_OK;
}

enum pando_status window_execute(const struct window *window, struct fabric_op *ops, uint32_t count)
{
    bool wrote = false; /* a WRITE before this operation that is not yet behind a full fence */

    for (uint32_t i = 0; i < count; i++) {
        struct fabric_op *op = &ops[i];
        uint8_t *at = window_at(window, op->offset, op->size);
        if (at == NULL)
            return PANDO_RANGE;
        switch (op->kind) {
        case FABRIC_READ:
            /* Pairs with the same fence in another process's list: of two lists that WRITE one
             * word and READ the other's, at least one sees the other. */
            if (wrote)
                atomic_thread_fence(memory_order_seq_cst);
            wrote = false;
            copy_from_shared(op->read_to, at, op->size);
            atomic_thread_fence(memory_order_acquire);
            break;
        case FABRIC_WRITE:
            /* Earlier WRITEs are seen before this one. */
            atomic_thread_fence(memory_order_release);
            copy_to_shared(at, op->write_from, op->size);
            wrote = true;
            break;
        case FABRIC_CAS:
            if ((uintptr_t)at % 8 != 0)
                return PANDO_RANGE;
            op->old = op->expected;
            /* On failure `old` receives the word found; acquire-release orders it with both sides.
             */
            (void)__atomic_compare_exchange_n((copy_word *)at, &op->old, op->operand, false,
                                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
            wrote = false;
            break;
        case FABRIC_FAA:
            if ((uintptr_t)at % 8 != 0)
                return PANDO_RANGE;
            op->old = __atomic_fetch_add((copy_word *)at, op->operand, __ATOMIC_SEQ_CST);
            wrote = false;
            break;
        default:
            return PANDO_INVALID;
        }
    }
    return PANDO_OK;
}

/* ---- fences ---------------------------------------------------------------------------------- */

static uint64_t *fence_word(const struct window *window, uint16_t member)
{
    return (uint64_t *)(window->base + WINDOW_FENCES) + member;
}

/*
 * Incarnations wrap: "not later than" on a circle of 65,536. A fence that stood still would cover the
 * half of the circle behind it and, after 32,768 more incarnations, the next members too. So it moves:
 * incarnation n exists only after the slot was free, that is, after n - 1 has left or was recovered
 * (fenced at every window), so who knows that n has joined may shut out n - 1 and all before it. That is
 * known from the heartbeats, or from n's pass, never from a claim alone: one client that claimed later
 * incarnations of all members would shut them all out. Nothing that was shut out gets in by that: the fence only moves forward, and what it covered before is at most half a
 * circle behind it still, unless its sender slept through 32,768 lives of its slot (whose locks and
 * blocks, which name 16 bits of the incarnation too, would by then be another's). Every member shows its
 * pass at every memory node, and every recovery fences there, so none of them misses an incarnation;
 * windows of members follow the heartbeats (members.c).
 */
static bool fence_covers(uint64_t word, uint16_t incarnation)
{
    return word != 0 && (int16_t)(uint16_t)(incarnation - (uint16_t)word) <= 0;
}

void window_fence(const struct window *window, struct fabric_identity identity)
{
    uint64_t *word = fence_word(window, identity.member);
    uint64_t now = __atomic_load_n(word, __ATOMIC_RELAXED);
    do {
        if (fence_covers(now, identity.incarnation))
            return;
    } while (!__atomic_compare_exchange_n(word, &now, (uint64_t)1 << 16 | identity.incarnation,
                                          false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
}

void window_note_member(const struct window *window, struct fabric_identity identity)
{
    if (identity.member == 0 || identity.member >= FABRIC_MEMBERS_MAX)
        return;
    uint64_t *word = fence_word(window, identity.member);
    uint64_t now = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    uint64_t before = (uint64_t)1 << 16 | (uint16_t)(identity.incarnation - 1);
    do {
        if (fence_covers(now, identity.incarnation))
            return;
    } while (now != 0 && now != before &&
             !__atomic_compare_exchange_n(word, &now, before, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
}

bool window_fenced(const struct window *window, struct fabric_identity identity)
{
    if (identity.member == 0)
        return false;
    if (identity.member >= FABRIC_MEMBERS_MAX)
        return true;
    return fence_covers(__atomic_load_n(fence_word(window, identity.member), __ATOMIC_SEQ_CST),
                        identity.incarnation);
}
