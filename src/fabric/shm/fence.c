/*
 * fence.c - who is attached to this process's window, and how to shut it out.
 *
 * Nothing stands between a process that has mapped a window and its memory, so a member is shut out
 * by ending its process (rule R15). That needs to be known: before a member gets the window, its
 * process is recorded there.
 */
#include "base/log.h"
#include "fabric/shm/shm_int.h"

static struct window_attachment *slot_of(const struct shm_fabric *fabric, uint16_t member)
{
    return (struct window_attachment *)(fabric->window.base + WINDOW_ATTACHMENTS) + member;
}

struct window_attachment shm_attachment(const struct shm_fabric *fabric, uint16_t member)
{
    return *slot_of(fabric, member);
}

/* The process id is what makes it valid: it goes first and comes last, for should this process be
 * killed in between. */
static void slot_set(struct window_attachment *slot, struct window_attachment value)
{
    __atomic_store_n(&slot->process, 0, __ATOMIC_SEQ_CST);
    slot->incarnation = value.incarnation;
    slot->start_time = value.start_time;
    __atomic_store_n(&slot->process, value.process, __ATOMIC_SEQ_CST);
}

static bool same_process(struct window_attachment a, struct window_attachment b)
{
    return a.process == b.process && a.start_time == b.start_time;
}

enum pando_status shm_attach(struct shm_fabric *fabric, struct fabric_identity identity,
                             struct window_attachment who, bool *fresh)
{
    struct window_attachment *slot = slot_of(fabric, identity.member);

    if (!window_admit(&fabric->window, identity))
        return PANDO_FENCED;
    who.incarnation = identity.incarnation;
    *fresh = slot->process == 0 || !same_process(*slot, who);
    if (!*fresh) {
        /* One that cannot be seen may be another with each new incarnation. */
        if (who.process == SHM_PROCESS_UNSEEN && slot->incarnation != who.incarnation)
            return PANDO_BUSY;
        if (shm_not_later((uint16_t)slot->incarnation, identity.incarnation))
            slot->incarnation = identity.incarnation;
        return PANDO_OK;
    }
    if (slot->process != 0 && shm_process_look(slot, NULL) != SHM_GONE) {
        log_warn("another process is attached as this member; fence that one first",
                 log_u64("member", identity.member), log_u64("process", slot->process));
        return PANDO_BUSY;
    }
    slot_set(slot, who);
    return PANDO_OK;
}

void shm_detach(struct shm_fabric *fabric, uint16_t member)
{
    slot_set(slot_of(fabric, member), (struct window_attachment){.process = 0});
}

enum pando_status shm_fence_window_co(struct shm_fabric *fabric, struct fabric_identity identity)
{
    struct fabric_identity self = fabric_identity_now(&fabric->base);

    window_fence(&fabric->window, identity);
    /* The owner of a window needs no attachment to write to it. */
    if (self.member == identity.member && shm_not_later(self.incarnation, identity.incarnation))
        return PANDO_UNSUPPORTED;
    struct window_attachment found = shm_attachment(fabric, identity.member);
    if (found.process == 0 || !shm_not_later((uint16_t)found.incarnation, identity.incarnation))
        return PANDO_OK;
    enum pando_status status = shm_process_end_co(&found);
    if (status != PANDO_OK)
        return status;
    /* Another process of this member may have come in meanwhile. */
    if (same_process(shm_attachment(fabric, identity.member), found))
        shm_detach(fabric, identity.member);
    log_info("fenced", log_u64("member", identity.member),
             log_u64("incarnation", identity.incarnation), log_u64("process", found.process));
    return PANDO_OK;
}
