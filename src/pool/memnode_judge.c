/*
 * memnode_judge.c - node 0 judges who has joined, who is dead and who drops a table (rule fence-ticket).
 *
 * It watches the heartbeats as members watch each other's, on its own clock, and sixteen times a lease,
 * so that it knows when one of them asks. A member is silent when its word has not changed by a beat for
 * its lease. Only for silent ones does it say yes, and only for those whose word says fenced, who can
 * never beat again, does it give a ticket: no living member can be fenced, whoever asks, and a ticket
 * that is kept harms nobody later.
 *
 *   alive or joining, and silent     the asker may declare it dead: CAS, then ask again
 *   fenced, and silent               a ticket
 *   not silent, or not known yet     AGAIN: after a restart of the node, say, for a lease
 *   free, or another incarnation     NOT_FOUND: nobody is there to be fenced
 *
 * member-recovery (R14) holds here, too: a look that came late gives everybody a whole lease.
 *
 * The watch is a task of the fabric's and its memory is the fabric's, as both go on until that closes. It
 * ends when all have left, or no word has changed for long, and begins anew with the next
 * who joins or asks.
 */
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "pool/broken.h"
#include "pool/memnode_int.h"

enum {
    LOOKS_PER_LEASE = 16,
    QUIET_LOOKS = 128, /* none of which saw a change: the watch ends */
    MARGIN_PART = 32,  /* of a lease, for clocks that differ; observers wait longer than that */
};

static const uint64_t LEASE_MIN_NS = RT_NS_PER_MS;
static const uint64_t LEASE_MAX_NS = 60 * RT_NS_PER_S;
static const uint64_t PAUSE_MAX_NS = RT_NS_PER_S / 8;

/* A member's word, and since when it was not changed by a beat. */
struct watched {
    uint64_t word;
    uint64_t since_ns; /* after the READ that first saw it; 0: never looked at */
    uint64_t lease_ns; /* as its record says; 0: not read yet */
    bool joining;      /* it was not more than that when it fell silent */
};

struct heartbeat_judge {
    struct rt_latch latch; /* over what follows */
    uint64_t looked_ns;    /* when the last look was sent */
    uint64_t shortest_ns;  /* of the members' leases */
    bool nobody;           /* all words were free */
    uint64_t joining_ns;   /* the lease of the last one that joined */
    struct watched members[POOL_MEMBERS];
    uint64_t beats[POOL_MEMBERS]; /* the watch's own */
};

static uint64_t heartbeat_at(const struct fabric *fabric, uint16_t member)
{
    return fabric_window_first(fabric) + POOL_HEARTBEATS + (uint64_t)member * 8;
}

static uint64_t lease_at(const struct fabric *fabric, uint16_t member)
{
    return fabric_window_first(fabric) + POOL_RECORDS + (uint64_t)member * POOL_RECORD_BYTES +
           offsetof(struct pool_record, lease_ns);
}

static uint64_t lease_within(uint64_t lease_ns)
{
    if (lease_ns < LEASE_MIN_NS)
        return LEASE_MIN_NS;
    return lease_ns > LEASE_MAX_NS ? LEASE_MAX_NS : lease_ns;
}

/* ---- the watch ------------------------------------------------------------------------------- */

/* What is known of a member after its word has changed. A word that became fenced is no beat. */
static struct watched changed(const struct watched *former, uint64_t word, uint64_t now_ns)
{
    struct pool_heartbeat was = pool_heartbeat_unpack(former->word);
    struct pool_heartbeat is = pool_heartbeat_unpack(word);
    bool same =
        former->since_ns != 0 && was.incarnation == is.incarnation && was.state != POOL_FREE;
    struct watched now = {.word = word, .since_ns = now_ns, .joining = is.state == POOL_JOINING};

    if (same && is.state == POOL_FENCED) {
        now = *former;
        now.word = word;
    } else if (same && was.state == is.state) {
        now.lease_ns = former->lease_ns;
    }
    return now;
}

/* The record of one that joins is not its own yet. */
static enum pando_status lease_read_co(struct fabric_endpoint *endpoint, struct fabric *fabric,
                                       uint16_t member, struct watched *now)
{
    enum pool_member_state state = pool_heartbeat_unpack(now->word).state;
    uint64_t lease_ns;
    if (now->lease_ns != 0 || now->joining || state == POOL_FREE)
        return PANDO_OK;
    struct fabric_op read = fabric_read(lease_at(fabric, member), &lease_ns, sizeof(lease_ns));
    enum pando_status status = fabric_submit_co(endpoint, &read, 1);
    if (status == PANDO_OK)
        now->lease_ns = lease_within(lease_ns);
    return status;
}

static uint64_t shorter(uint64_t than_ns, const struct watched *now, uint64_t joining_ns)
{
    enum pool_member_state state = pool_heartbeat_unpack(now->word).state;
    uint64_t lease_ns = state == POOL_JOINING ? joining_ns : now->lease_ns;
    return state != POOL_FREE && lease_ns != 0 && lease_ns < than_ns ? lease_ns : than_ns;
}

/* One look at all words; *any: some had changed. */
static enum pando_status read_heartbeats_co(struct heartbeat_judge *judge, struct fabric *fabric,
                                            struct fabric_endpoint *endpoint, bool *any)
{
    struct fabric_op read =
        fabric_read(heartbeat_at(fabric, 0), judge->beats, sizeof(judge->beats));
    uint64_t sent_ns = rt_now_ns(), shortest_ns = LEASE_MAX_NS;
    rt_latch_lock(&judge->latch);
    uint64_t joining_ns = judge->joining_ns;
    rt_latch_unlock(&judge->latch);
    enum pando_status status = fabric_submit_co(endpoint, &read, 1);
    uint64_t now_ns = rt_now_ns();
    bool late = sent_ns - judge->looked_ns > judge->shortest_ns / 2 ||
                now_ns - sent_ns > judge->shortest_ns / 2;

    bool nobody = true;
    *any = false;
    for (uint16_t member = 1; member < POOL_MEMBERS && status == PANDO_OK; member++) {
        struct watched now = judge->members[member];
        uint64_t word = judge->beats[member];
        bool other = now.since_ns == 0 || now.word != word;
        if (other) {
            *any = *any || now.since_ns != 0;
            now = changed(&now, word, now_ns);
        }
        bool unread = now.lease_ns == 0;
        status = lease_read_co(endpoint, fabric, member, &now);
        other = other || (unread && now.lease_ns != 0);
        if (late)
            now.since_ns = now_ns;
        nobody = nobody && pool_heartbeat_unpack(word).state == POOL_FREE;
        shortest_ns = shorter(shortest_ns, &now, joining_ns);
        if ((!other && !late) || status != PANDO_OK)
            continue;
        rt_latch_lock(&judge->latch);
        judge->members[member] = now;
        rt_latch_unlock(&judge->latch);
    }
    if (status != PANDO_OK)
        return status;
    rt_latch_lock(&judge->latch);
    judge->looked_ns = sent_ns;
    judge->shortest_ns = shortest_ns;
    judge->nobody = nobody;
    rt_latch_unlock(&judge->latch);
    return status;
}

/* Looks until that fails, or need not go on: false then. */
static bool watch_heartbeats_co(struct heartbeat_judge *judge, struct fabric *fabric,
                                struct fabric_endpoint *endpoint)
{
    unsigned quiet = 0;
    while (quiet < QUIET_LOOKS) {
        uint64_t begin_ns = rt_now_ns();
        bool any;
        if (read_heartbeats_co(judge, fabric, endpoint, &any) != PANDO_OK)
            return true;
        uint64_t pause_ns = judge->shortest_ns / LOOKS_PER_LEASE;
        if (judge->nobody ||
            !fabric_rest_co(fabric, begin_ns + (pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS)))
            return false;
        quiet = any ? 0 : quiet + 1;
    }
    return false;
}

/* An endpoint that broke is made anew; a process that cannot reach itself is at its end. */
static void watch_co(struct fabric *fabric)
{
    struct heartbeat_judge *judge = fabric_attendant_memory(fabric, sizeof(*judge));
    struct fabric_endpoint *endpoint;
    bool going = judge != NULL;

    while (going && fabric_connect_co(fabric, fabric_self(fabric), &endpoint) == PANDO_OK) {
        going = watch_heartbeats_co(judge, fabric, endpoint);
        fabric_disconnect_co(endpoint);
    }
}

/* A pool that only this process reaches has one process to judge, itself. */
static bool watches(const struct memnode *memnode)
{
    return memnode->super.node == 0 && fabric_location(memnode->fabric)[0] != '\0';
}

/* NULL: this node does not watch, or has no memory to. */
static struct heartbeat_judge *judge_of(const struct memnode *memnode)
{
    return watches(memnode)
               ? fabric_attendant_memory(memnode->fabric, sizeof(struct heartbeat_judge))
               : NULL;
}

void memnode_judge_start(struct memnode *memnode)
{
    fabric_set_pool(memnode->fabric, memnode->super.pool_id);
    struct heartbeat_judge *judge = judge_of(memnode);
    if (judge == NULL)
        return; /* no memory: nobody will be declared dead, which observers log */
    rt_latch_lock(&judge->latch);
    memset(judge->members, 0, sizeof(judge->members));
    judge->looked_ns = 0;
    judge->shortest_ns = judge->joining_ns = 0;
    rt_latch_unlock(&judge->latch);
    for (uint16_t member = 1; member < POOL_MEMBERS; member++) {
        uint64_t word = memnode_load(memnode, heartbeat_at(memnode->fabric, member));
        if (pool_heartbeat_unpack(word).state == POOL_FREE)
            continue;
        fabric_attend(memnode->fabric, watch_co);
        break;
    }
}

/* ---- judging --------------------------------------------------------------------------------- */

static bool silent(const struct memnode *memnode, uint16_t member, uint64_t word, uint64_t asked_ns,
                   uint64_t lease_ns)
{
    struct pool_heartbeat is = pool_heartbeat_unpack(word);

    if (!watches(memnode) || pool_broken.judge || pool_broken.lease)
        return true;
    struct heartbeat_judge *judge = fabric_attendant_memory(memnode->fabric, sizeof(*judge));
    if (judge == NULL)
        return false;
    rt_latch_lock(&judge->latch);
    struct watched known = judge->members[member];
    uint64_t looked_ns = judge->looked_ns;
    rt_latch_unlock(&judge->latch);
    struct pool_heartbeat was = pool_heartbeat_unpack(known.word);
    if (known.since_ns == 0 || was.state == POOL_FREE || was.incarnation != is.incarnation ||
        (is.state != POOL_FENCED && known.word != word))
        return false;
    uint64_t needed_ns = known.joining               ? lease_ns * POOL_JOINING_LEASES
                         : known.lease_ns > lease_ns ? known.lease_ns
                                                     : lease_ns;
    /* The watch must be at it: a node that stood still saw nothing change. */
    if (asked_ns > looked_ns && asked_ns - looked_ns > lease_ns / 2)
        return false;
    return asked_ns > known.since_ns &&
           asked_ns - known.since_ns >= needed_ns + needed_ns / MARGIN_PART;
}

/* Whether the caller is a living member, and its lease. Behind a barrier. */
static bool asker_lives(struct memnode *memnode, struct fabric_identity who, uint64_t *lease_ns)
{
    struct pool_heartbeat beat =
        pool_heartbeat_unpack(memnode_load(memnode, heartbeat_at(memnode->fabric, who.member)));
    *lease_ns = lease_within(memnode_load(memnode, lease_at(memnode->fabric, who.member)));
    return beat.state == POOL_ALIVE && beat.incarnation == who.incarnation;
}

enum pando_status memnode_ticket_co(struct memnode *memnode, struct fabric_request *request)
{
    struct pool_ticket_request asked;
    struct pool_ticket_reply reply = {0};
    uint64_t asked_ns = rt_now_ns(), lease_ns;

    if (memnode->super.node != 0)
        return PANDO_UNSUPPORTED;
    if (request->body.size != sizeof(asked))
        return PANDO_INVALID;
    memcpy(&asked, request->body.data, sizeof(asked));
    if (asked.member == 0 || asked.member >= POOL_MEMBERS || asked.zero != 0)
        return PANDO_INVALID;
    enum pando_status status = memnode_barrier_co(memnode);
    if (status != PANDO_OK)
        return status;
    if (request->from.member == 0 || request->from.member >= POOL_MEMBERS)
        return PANDO_DENIED;
    if (!asker_lives(memnode, request->from, &lease_ns))
        return PANDO_FENCED; /* it is none, or is dead itself and does not know it yet */
    if (watches(memnode))
        fabric_attend(memnode->fabric, watch_co);
    struct fabric_identity who = {.member = asked.member, .incarnation = asked.incarnation};
    uint64_t word = memnode_load(memnode, heartbeat_at(memnode->fabric, who.member));
    struct pool_heartbeat beat = pool_heartbeat_unpack(word);
    if (beat.state == POOL_FREE || beat.incarnation != who.incarnation)
        return PANDO_NOT_FOUND;
    if (!silent(memnode, who.member, word, asked_ns, lease_ns))
        return PANDO_AGAIN;
    reply.claimed = beat.state == POOL_FENCED;
    if (reply.claimed)
        status = fabric_seal_make(memnode->fabric, FABRIC_SEAL_FENCE, who, &reply.ticket);
    memcpy(request->reply, &reply, sizeof(reply));
    request->reply_size = sizeof(reply);
    return status;
}

/* ---- drops ----------------------------------------------------------------------------------- */

bool memnode_drops(struct memnode *memnode, struct fabric_identity who, uint32_t slot,
                   uint32_t table)
{
    uint64_t at = memnode->super.directory + (uint64_t)slot * POOL_ENTRY_BYTES;
    if (slot >= memnode->super.groups * POOL_GROUP_ENTRIES)
        return false;
    uint64_t state = memnode_load(memnode, at + offsetof(struct pool_entry, state));
    struct fabric_identity by = pool_dropping_by(state);
    return pool_entry_dropping(state) && by.member == who.member &&
           by.incarnation == who.incarnation &&
           memnode_load(memnode, at + offsetof(struct pool_entry, table)) == table;
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* The watch then looks as often as this member's lease wants it, from now on. */
static void expect(const struct memnode *memnode, uint64_t lease_ns)
{
    struct heartbeat_judge *judge = judge_of(memnode);
    if (judge == NULL)
        return;
    rt_latch_lock(&judge->latch);
    judge->joining_ns = lease_within(lease_ns);
    rt_latch_unlock(&judge->latch);
    fabric_attend(memnode->fabric, watch_co);
}

/* Node 0 knows from the heartbeats. */
static enum pando_status pass_give(struct memnode *memnode, struct fabric_request *request)
{
    struct fabric_ticket pass;
    struct fabric_identity who = request->from;
    uint64_t lease_ns;

    if (request->body.size != sizeof(lease_ns))
        return PANDO_INVALID;
    memcpy(&lease_ns, request->body.data, sizeof(lease_ns));
    uint64_t word = memnode_load(memnode, heartbeat_at(memnode->fabric, who.member));
    struct pool_heartbeat beat = pool_heartbeat_unpack(word);

    if (beat.incarnation != who.incarnation ||
        (beat.state != POOL_JOINING && beat.state != POOL_ALIVE))
        return PANDO_DENIED;
    enum pando_status status = fabric_seal_make(memnode->fabric, FABRIC_SEAL_MEMBER, who, &pass);
    if (status != PANDO_OK)
        return status;
    fabric_note_member(memnode->fabric, who);
    expect(memnode, lease_ns);
    memcpy(request->reply, &pass, sizeof(pass));
    request->reply_size = sizeof(pass);
    return PANDO_OK;
}

/* The others see it by the pass. The first client of a pool has just written the pool's id. */
static enum pando_status pass_look(struct memnode *memnode, struct fabric_request *request)
{
    struct fabric_ticket pass;

    if (request->body.size != sizeof(pass))
        return PANDO_INVALID;
    memcpy(&pass, request->body.data, sizeof(pass));
    uint64_t pool =
        memnode_load(memnode, memnode->first + offsetof(struct pool_superblock, pool_id));
    if (pool == 0)
        return PANDO_DENIED;
    fabric_set_pool(memnode->fabric, pool);
    if (pass.who.member != request->from.member ||
        pass.who.incarnation != request->from.incarnation)
        return PANDO_DENIED;
    enum pando_status status = fabric_seal_check(memnode->fabric, FABRIC_SEAL_MEMBER, &pass);
    if (status == PANDO_OK)
        fabric_note_member(memnode->fabric, pass.who);
    return status;
}

enum pando_status memnode_pass_co(struct memnode *memnode, struct fabric_request *request)
{
    if (request->from.member == 0 || request->from.member >= POOL_MEMBERS)
        return PANDO_DENIED;
    enum pando_status status = memnode_barrier_co(memnode);
    if (status != PANDO_OK)
        return status;
    return memnode->super.node == 0 ? pass_give(memnode, request) : pass_look(memnode, request);
}
