/*
 * fence.c - who is attached to this process's window, and how to shut it out.
 *
 * Nothing stands between a process that has mapped a window and its memory, so a member is shut out
 * by ending its process (rule binding-fence). That needs to be known: before a member gets the window, a
 * descriptor of its process is taken and kept. What identifies it is also written to a file of the
 * owner (attached.c), for the owner's next life: by that the next one takes descriptors again.
 *
 * The window has a copy. All members can write there, so nobody is killed for what it says: an owner
 * that finds no file (it was removed, or a program before there were files made it) takes those for
 * attached who are in the window, but a fence of one that lives is refused until its process has
 * connected again or ended.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/shm/fence_int.h"

static struct window_attachment *record_of(const struct shm_fabric *fabric, uint16_t member)
{
    return (struct window_attachment *)(fabric->window.base + WINDOW_ATTACHMENTS) + member;
}

/* The process id is what makes it valid: it goes first and comes last, for should this process be
 * killed in between. */
static void record_set(struct window_attachment *record, struct window_attachment value)
{
    __atomic_store_n(&record->process, 0, __ATOMIC_SEQ_CST);
    record->incarnation = value.incarnation;
    record->start_time = value.start_time;
    __atomic_store_n(&record->process, value.process, __ATOMIC_SEQ_CST);
}

/* Takes the descriptor over. */
static void attached_set(struct shm_fabric *fabric, uint16_t member, struct shm_attached value)
{
    bool known = value.who.process != 0 && !value.hearsay;
    struct window_attachment *own = shm_attached_record(fabric, member, known);
    shm_process_let_go(&fabric->attached[member]);
    fabric->attached[member] = value;
    if (own != NULL)
        record_set(own, known ? value.who : (struct window_attachment){0});
    record_set(record_of(fabric, member), value.who);
}

static const struct shm_attached nobody = {.pidfd = -1};

/* ---- the former life's ----------------------------------------------------------------------- */

/* Process ids and start times are used again after the machine has started anew. */
static bool other_boot(const struct window_boot *then, const struct window_boot *now)
{
    static const struct window_boot unknown;
    return memcmp(then, now, sizeof(*now)) != 0 && memcmp(then, &unknown, sizeof(unknown)) != 0 &&
           memcmp(now, &unknown, sizeof(unknown)) != 0;
}

enum pando_status shm_attachments_open(struct shm_fabric *fabric, char *error, size_t error_bytes)
{
    struct window_boot *boot = (struct window_boot *)(fabric->window.base + WINDOW_BOOT);
    const struct window_boot now = shm_boot_now();

    enum pando_status status = shm_attached_open(fabric, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    fabric->attached = calloc(FABRIC_MEMBERS_MAX, sizeof(fabric->attached[0]));
    if (fabric->attached == NULL) {
        snprintf(error, error_bytes, "no memory");
        shm_attached_close(fabric, false);
        return PANDO_NO_MEMORY;
    }
    bool recorded = fabric->record != NULL;
    const struct window_boot then = recorded ? fabric->record->boot : *boot;
    bool valid = fabric->window.reused && !other_boot(&then, &now);
    for (uint16_t member = 0; member < FABRIC_MEMBERS_MAX; member++) {
        struct shm_attached found = {.pidfd = -1, .hearsay = !recorded};
        found.who = recorded ? fabric->record->members[member] : *record_of(fabric, member);
        fabric->attached[member] = nobody;
        if (!valid || found.who.process == 0 || shm_process_look(&found) == SHM_GONE)
            found = nobody;
        attached_set(fabric, member, found);
    }
    if (recorded)
        fabric->record->boot = now;
    *boot = now;
    return PANDO_OK;
}

void shm_attachments_close(struct shm_fabric *fabric)
{
    bool anybody = false;
    if (fabric->attached == NULL)
        return;
    for (uint16_t member = 0; member < FABRIC_MEMBERS_MAX; member++) {
        anybody |= shm_is_attached(fabric, member);
        shm_process_let_go(&fabric->attached[member]);
    }
    shm_attached_close(fabric, fabric->temporary || !anybody);
    free(fabric->attached);
}

/* ---- this one's ------------------------------------------------------------------------------ */

bool shm_is_attached(const struct shm_fabric *fabric, uint16_t member)
{
    return fabric->attached[member].who.process != 0;
}

static bool same_process(struct window_attachment a, struct window_attachment b)
{
    return a.process == b.process && a.start_time == b.start_time;
}

enum pando_status shm_attach(struct shm_fabric *fabric, struct fabric_identity identity,
                             struct shm_attached *who, bool *fresh)
{
    struct shm_attached *slot = &fabric->attached[identity.member];

    if (window_fenced(&fabric->window, identity))
        return PANDO_FENCED;
    who->who.incarnation = identity.incarnation;
    *fresh = slot->who.process == 0 || !same_process(slot->who, who->who);
    if (!*fresh && slot->hearsay && who->pidfd >= 0) { /* it is true */
        if (!shm_not_later((uint16_t)slot->who.incarnation, identity.incarnation))
            who->who.incarnation = slot->who.incarnation;
        attached_set(fabric, identity.member, *who);
        who->pidfd = -1;
        return PANDO_OK;
    }
    if (!*fresh) {
        /* One that cannot be seen may be another with each new incarnation. */
        if (slot->who.process == SHM_PROCESS_UNSEEN &&
            slot->who.incarnation != who->who.incarnation)
            return PANDO_BUSY;
        if (shm_not_later((uint16_t)slot->who.incarnation, identity.incarnation)) {
            slot->who.incarnation = identity.incarnation;
            record_of(fabric, identity.member)->incarnation = identity.incarnation;
            struct window_attachment *own = shm_attached_record(fabric, identity.member, false);
            if (own != NULL && own->process == slot->who.process)
                own->incarnation = identity.incarnation;
        }
        return PANDO_OK;
    }
    if (slot->who.process != 0 && shm_process_look(slot) != SHM_GONE) {
        log_warn("another process is attached as this member; fence that one first",
                 log_u64("member", identity.member), log_u64("process", slot->who.process));
        return PANDO_BUSY;
    }
    attached_set(fabric, identity.member, *who);
    who->pidfd = -1; /* it is kept there */
    return PANDO_OK;
}

void shm_detach(struct shm_fabric *fabric, uint16_t member)
{
    attached_set(fabric, member, nobody);
}

enum pando_status shm_fence_window_co(struct shm_fabric *fabric, struct fabric_identity identity)
{
    struct fabric_identity self = fabric_identity_now(&fabric->base);
    struct shm_attached *slot = &fabric->attached[identity.member];

    window_fence(&fabric->window, identity);
    /* The owner of a window needs no attachment to write to it. */
    if (self.member == identity.member && shm_not_later(self.incarnation, identity.incarnation))
        return PANDO_UNSUPPORTED;
    struct window_attachment found = slot->who;
    if (found.process == 0 || !shm_not_later((uint16_t)found.incarnation, identity.incarnation))
        return PANDO_OK;
    enum pando_status status = shm_process_end_co(slot);
    if (status != PANDO_OK)
        return status;
    /* Another process of this member may have come in meanwhile. */
    if (same_process(slot->who, found))
        shm_detach(fabric, identity.member);
    log_info("fenced", log_u64("member", identity.member),
             log_u64("incarnation", identity.incarnation), log_u64("process", found.process));
    return PANDO_OK;
}
