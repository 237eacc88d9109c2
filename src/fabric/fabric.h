/*
 * fabric.h - one-sided READ, WRITE, CAS and FAA on the memory of other processes, and calls.
 *
 * Every process has a *window*: memory that others reach by (node, offset). Memory nodes have big
 * windows, compute nodes small ones. A thread reaches a node through an *endpoint* of its own. What
 * is asked of it at once is a *list*: an ordered array of operations on one target, with one
 * completion; a list is one round trip.
 *
 * The memory model. Engines rely on this and on nothing else; the conformance suite checks it on
 * every backend, and the simulated one uses every freedom it leaves.
 *
 *  1. An aligned 8-byte word is never torn. Anything longer may be, at 8-byte granularity and in
 *     any order: a READ may see some words from before a concurrent WRITE and some from after.
 *  2. In one list these pairs happen in order at the target: a WRITE before anything later, a CAS
 *     or FAA before a later READ. "In order" means that whoever sees the second effect sees the
 *     first.
 *     No other pair is ordered (not READ before WRITE, not CAS before WRITE, not two READs), and
 *     neither are two lists, unless the first completed before the second was posted.
 *  3. CAS and FAA are atomic among fabric atomics, and with aligned 8-byte WRITEs. A process's own
 *     threads touch such words through the fabric too (an endpoint to oneself is allowed). A CAS
 *     that fails stores nothing.
 *  4. A completed WRITE is visible to every READ posted later, through any endpoint of anyone.
 *  There
 *     is no order between endpoints. A target's own CPU may see a WRITE later than that: at the
 *     latest
 *     when it serves a call posted behind it on the same endpoint, or after an atomic of its own
 *     on its
 *     own window.
 *  5. When an endpoint breaks, every outstanding list fails with BROKEN. Such a list may still be
 *     applied, wholly or in part (in a way that point 2 allows), until fabric_fence_co for its
 *     sender's identity, or fabric_reconnect_co by the sender itself, has returned at that target.
 *
 * Threads: an endpoint is used on the loop that connected it. A struct fabric may be shared by all
 * threads of its process. Nothing here blocks a thread; only functions ending in _co suspend.
 */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "pando/pando.h"
#include "rt/rt.h"

struct fabric;
struct fabric_endpoint;

enum {
    FABRIC_LIST_OPS_MAX = 256,           /* operations in a list */
    FABRIC_LIST_BYTES_MAX = 1024 * 1024, /* READ and WRITE bytes of a list */
    FABRIC_CALL_BYTES_MAX = 64 * 1024,   /* of a request, and of a reply */
    FABRIC_CALLS_MAX = 256,              /* calls in flight on an endpoint; more may get AGAIN */
    FABRIC_OUTSTANDING_MAX = 16 * 1024,  /* lists in flight on an endpoint; more get AGAIN */
    FABRIC_MEMBERS_MAX = 1024,           /* identities that can be fenced: members 1 to 1023 */
    FABRIC_LOCATION_MAX = 96,            /* bytes of a location, its final NUL included */
    FABRIC_SEAL_BYTES = 16,
    FABRIC_NODE_UNKNOWN = 0xffff, /* of a process that is told its node id later */
};

/* ---- addresses ------------------------------------------------------------------------------- */

/* 64 bits: node 16, offset 48. The upper half of the offsets is the target's on-chip memory, where
 * it has some; elsewhere it is ordinary memory under the same name. Address 0 is nowhere: the first
 * bytes of every window belong to the fabric and cannot be reached. */
typedef uint64_t fabric_address;

#define FABRIC_DEVICE ((uint64_t)1 << 47) /* offset of the first on-chip byte */

static inline fabric_address fabric_address_make(uint16_t node, uint64_t offset)
{
    return (uint64_t)node << 48 | offset;
}

static inline uint16_t fabric_address_node(fabric_address address)
{
    return (uint16_t)(address >> 48);
}

static inline uint64_t fabric_address_offset(fabric_address address)
{
    return address & (((uint64_t)1 << 48) - 1);
}

/* ---- operations and lists -------------------------------------------------------------------- */

enum fabric_kind { FABRIC_READ, FABRIC_WRITE, FABRIC_CAS, FABRIC_FAA };

struct fabric_op {
    enum fabric_kind kind;
    uint32_t size;   /* READ, WRITE: bytes, at least 1; CAS, FAA: 8 */
    uint64_t offset; /* in the target's window; aligned to 8 for CAS and FAA */
    union {
        void *read_to;
        const void *write_from;
    };
    uint64_t expected; /* CAS: stored over only if equal */
    uint64_t operand;  /* CAS: the new value; FAA: what is added */
    uint64_t old;      /* out, CAS and FAA: the value before; a CAS succeeded if old == expected */
};

static inline struct fabric_op fabric_read(uint64_t offset, void *to, uint32_t size)
{
    return (struct fabric_op){.kind = FABRIC_READ, .size = size, .offset = offset, .read_to = to};
}

static inline struct fabric_op fabric_write(uint64_t offset, const void *from, uint32_t size)
{
    return (struct fabric_op){
        .kind = FABRIC_WRITE, .size = size, .offset = offset, .write_from = from};
}

/* In place, for a list that is filled step by step: a whole operation that was just made in parts
 * cannot be copied without a wait. */
static inline void fabric_write_at(struct fabric_op *op, uint64_t offset, const void *from,
                                   uint32_t size)
{
    op->kind = FABRIC_WRITE;
    op->size = size;
    op->offset = offset;
    op->write_from = from;
}

static inline struct fabric_op fabric_cas(uint64_t offset, uint64_t expected, uint64_t desired)
{
    return (struct fabric_op){
        .kind = FABRIC_CAS, .size = 8, .offset = offset, .expected = expected, .operand = desired};
}

static inline struct fabric_op fabric_faa(uint64_t offset, uint64_t addend)
{
    return (struct fabric_op){.kind = FABRIC_FAA, .size = 8, .offset = offset, .operand = addend};
}

/*
 * A list in flight. From fabric_post until it is no longer pending, the list, its operations and
 * their buffers belong to the fabric.
 */
struct fabric_list {
    struct fabric_op *ops;
    uint32_t count;
    bool pending;
    enum pando_status status; /* valid when no longer pending */
    struct rt_task *waiter;
    struct fabric_list *next; /* the backend's */
    uint64_t scratch;         /* the backend's */
};

/* Starts a list; never suspends. It may be complete when this returns. A list is refused whole,
 * with nothing done: INVALID or TOO_LARGE for its shape, AGAIN for too many in flight. What the
 * target refuses (RANGE, FENCED) leaves no effect of that operation and of none after it. */
void fabric_post(struct fabric_endpoint *endpoint, struct fabric_list *list);

/* Waits until a posted list is done; its status. */
PANDO_MUST_CHECK enum pando_status fabric_wait_co(struct fabric_list *list);

/* Both: one round trip. */
PANDO_MUST_CHECK enum pando_status fabric_submit_co(struct fabric_endpoint *endpoint,
                                                    struct fabric_op *ops, uint32_t count);

/* ---- peers and endpoints --------------------------------------------------------------------- */

enum fabric_target { FABRIC_MEMORY, FABRIC_COMPUTE, FABRIC_TARGETS };

/* Where other processes find this one's window: what they give to fabric_add_peer. Empty when it
 * has no window that others can reach. Lives as long as the fabric. */
const char *fabric_location(const struct fabric *fabric);

/* Says where a node is to be found; again: for later connects it is found there instead. The fabric
 * knows itself already. Any thread. */
PANDO_MUST_CHECK enum pando_status fabric_add_peer(struct fabric *fabric, uint16_t node,
                                                   enum fabric_target target, const char *location);

/* Who is speaking: a member of the pool and which life of it. Member 0 is nobody yet. */
struct fabric_identity {
    uint16_t member;
    uint16_t incarnation;
};

/* The identity of endpoints connected or reconnected from now on. */
void fabric_set_identity(struct fabric *fabric, struct fabric_identity identity);

/* Connects this loop to a node. FENCED: this identity is not let in any more. NOT_FOUND: nobody
 * said where it is. BROKEN, TIMEOUT: nobody answers there. DENIED: wrong secret or no permission.
 * BUSY (shm and sim): another process is connected as this member, whatever its incarnation; it has
 * to disconnect, or to be fenced. */
PANDO_MUST_CHECK enum pando_status fabric_connect_co(struct fabric *fabric, uint16_t node,
                                                     struct fabric_endpoint **out);

/* The same to a memory node that has to have the window of this id, 0 for any. INVALID: it has another
 * one, and has let nobody in. */
PANDO_MUST_CHECK enum pando_status fabric_connect_window_co(struct fabric *fabric, uint16_t node,
                                                            uint64_t window,
                                                            struct fabric_endpoint **out);

/* Why connecting to a node failed the last time: what is wrong and what to do, in one line without
 * the node's name; "" where the status says it all. Any thread. */
void fabric_connect_error(struct fabric *fabric, uint16_t node, char *out, size_t size);

/* No list or call may be outstanding. */
void fabric_disconnect_co(struct fabric_endpoint *endpoint);

/* An endpoint breaks on its own (peer or network gone, no answer in time) and stays broken until
 * reconnected: lists and calls fail with BROKEN at once. */
bool fabric_broken(const struct fabric_endpoint *endpoint);

/* Connects a broken endpoint again, in place. First fences the old session at the target: when this
 * returns OK, no list that had failed can be applied any more. INVALID: a memory node with another
 * window answers than the one that was connected; nothing was sent to it. */
PANDO_MUST_CHECK enum pando_status fabric_reconnect_co(struct fabric_endpoint *endpoint);

/* What a memory node says about a member, sealed so that others of the pool can check it (seal.c). */
enum fabric_seal {
    FABRIC_SEAL_FENCE,  /* this incarnation is dead and may be fenced: a ticket */
    FABRIC_SEAL_MEMBER, /* this incarnation has joined: a pass */
};
struct fabric_ticket {
    struct fabric_identity who;
    uint8_t seal[FABRIC_SEAL_BYTES];
};

/* The pool that seals are about, once it is known; 0 before. Any thread. */
void fabric_set_pool(struct fabric *fabric, uint64_t pool);

/* Making one is for the node that has the heartbeats, and for tests. Any thread. */
PANDO_MUST_CHECK enum pando_status fabric_seal_make(const struct fabric *fabric,
                                                    enum fabric_seal about,
                                                    struct fabric_identity who,
                                                    struct fabric_ticket *out);

/* DENIED: it is about something else, another identity or another pool, or nobody made it. */
PANDO_MUST_CHECK enum pando_status fabric_seal_check(const struct fabric *fabric,
                                                     enum fabric_seal about,
                                                     const struct fabric_ticket *ticket);

/* The same of a member and a table: that it drops that one. */
PANDO_MUST_CHECK enum pando_status fabric_seal_make_drop(const struct fabric *fabric,
                                                         struct fabric_identity who, uint32_t table,
                                                         struct fabric_ticket *out);
PANDO_MUST_CHECK enum pando_status fabric_seal_check_drop(const struct fabric *fabric,
                                                          uint32_t table,
                                                          const struct fabric_ticket *ticket);

/* When it returns OK, nothing that the ticket's identity (or an earlier incarnation of the member) has
 * sent or will send takes effect at this endpoint's target. The target remembers it over a restart.
 * DENIED: the ticket is not for this identity, or not of this pool; nothing was fenced.
 * AGAIN: the target is serving too many fences of this endpoint. UNSUPPORTED: that peer cannot be
 * fenced from here (say, a process one may not kill), so nobody may take over from it. */
PANDO_MUST_CHECK enum pando_status fabric_fence_co(struct fabric_endpoint *endpoint,
                                                   const struct fabric_ticket *ticket);

/* The same at this process's own window, by itself: of an identity of which it has read on node 0
 * that it is dead, which is as good as a ticket. For lists alone: calls of it that run here are not
 * waited for, as they may be waiting for what only its recovery frees. OK also without a window. */
PANDO_MUST_CHECK enum pando_status fabric_fence_own_co(struct fabric *fabric,
                                                       struct fabric_identity dead);

/* ---- calls ----------------------------------------------------------------------------------- */

/* A request being served, on a task of a loop of the serving process. */
struct fabric_request {
    struct fabric_identity from;
    uint16_t method;
    struct slice body;   /* until the handler returns */
    uint8_t *reply;      /* FABRIC_CALL_BYTES_MAX to write the reply into */
    uint32_t reply_size; /* out */
};

/* Returns the status the caller gets. May suspend. */
typedef enum pando_status (*fabric_handler)(void *context, struct fabric_request *request);

/* Sets what answers calls to this process; before it listens. */
void fabric_serve(struct fabric *fabric, fabric_handler handler, void *context);

/* A client was refused because it expects another window than this memory node's. */
struct fabric_refusal {
    struct fabric_identity from;
    uint64_t expected; /* the window's id */
    uint64_t at_ns;
};

/* Is told of one. Does not suspend; on any thread. */
typedef void (*fabric_refusal_fn)(void *context, const struct fabric_refusal *refusal);

/* Sets who is told; before it listens. */
void fabric_on_window_refusal(struct fabric *fabric, fabric_refusal_fn told, void *context);

/* How many were refused. Any thread. */
uint64_t fabric_window_refusals(const struct fabric *fabric);

/* One method that is answered by somebody else than the rest, who comes and goes while the process
 * listens: a member, which may live in the process of a memory node. Memory of the caller. */
struct fabric_answerer {
    uint16_t method;
    fabric_handler handler;
    void *context;
    atomic_uint running; /* the fabric's; calls that are being answered */
};

/* From now on, and in place of whoever did so before. Any thread. */
void fabric_answer(struct fabric *fabric, struct fabric_answerer *answerer);

/* When it returns, none of its calls is running, and none will. OK also if it never began. */
void fabric_answer_end_co(struct fabric *fabric, struct fabric_answerer *answerer);

/* Runs attend(fabric) as a task beside the calls, on a loop that serves them, unless one such task
 * runs already; if the fabric does not serve yet, when it does. The task waits by fabric_rest_co, and
 * ends soon when that says false: the fabric closes. Nothing runs where no loop serves (an embedded
 * pool). Any thread. */
void fabric_attend(struct fabric *fabric, void (*attend)(struct fabric *fabric));
bool fabric_rest_co(struct fabric *fabric, uint64_t until_ns);

/* Memory for that task: zeroed at the first call, the same at each later one, freed with the fabric.
 * NULL: no memory. Before the fabric listens. */
void *fabric_attendant_memory(struct fabric *fabric, size_t bytes);

/* Sends a request and waits for the reply, of which up to reply_capacity bytes are stored and whose
 * size goes to *reply_size. A transport failure is BROKEN or TIMEOUT, and the call may have been
 * served all the same. */
PANDO_MUST_CHECK enum pando_status fabric_call_co(struct fabric_endpoint *endpoint, uint16_t method,
                                                  struct slice body, void *reply,
                                                  uint32_t reply_capacity, uint32_t *reply_size);

/* ---- one's own window ------------------------------------------------------------------------ */

uint16_t fabric_self(const struct fabric *fabric);

/* Gives its id to a process that was opened as FABRIC_NODE_UNKNOWN, also again. One that was opened
 * with an id keeps it. Any thread. */
void fabric_set_node(struct fabric *fabric, uint16_t node);
uint64_t fabric_window_bytes(const struct fabric *fabric);
uint64_t fabric_device_bytes(const struct fabric *fabric);

/* The window's random id, made when it was formatted: windows with equal ids have one history. 0
 * without a window. */
uint64_t fabric_window_id(const struct fabric *fabric);

/* The window has kept its contents over a restart, but the on-chip part is empty again. */
bool fabric_device_lost(const struct fabric *fabric);

/* First byte of the window that is not the fabric's own. */
uint64_t fabric_window_first(const struct fabric *fabric);

/* Copies between the process's own window and plain memory by word-sized atomic accesses. RANGE
 * when outside. Point 4 above says what may be seen. For words that others CAS, use an endpoint. */
PANDO_MUST_CHECK enum pando_status fabric_self_read(struct fabric *fabric, uint64_t offset,
                                                    void *to, size_t size);
PANDO_MUST_CHECK enum pando_status fabric_self_write(struct fabric *fabric, uint64_t offset,
                                                     const void *from, size_t size);

/* Whether others may have kept a way to write to this process's window that was to end: shm, after
 * fabric_window_renew_co. Any thread. */
bool fabric_window_stale(const struct fabric *fabric);

/* Begins a new life of this process's window, with another id: every connection of others to it
 * ends (one's own endpoints do not), and they may connect anew. OK: nothing that came over one of
 * them takes effect any more. UNSUPPORTED: lists of others fail from now on, but one that is being
 * executed may still write (shm). TIMEOUT: a call is still running. */
PANDO_MUST_CHECK enum pando_status fabric_window_renew_co(struct fabric *fabric);

/* Whether this identity is shut out at this process's window. */
bool fabric_fenced(const struct fabric *fabric, struct fabric_identity identity);

/* Says that this identity is a member of the pool, which the caller knows from the heartbeats or from
 * its pass: its member's earlier incarnations are over. Call it for every member, so that their fences
 * do not grow old. */
void fabric_note_member(const struct fabric *fabric, struct fabric_identity identity);

/* Reads the files of its secrets and certificates again (tcp, verbs), for connections made from now
 * on; those that stand go on. `text` then has one line about what is in use, or "", or about what is
 * wrong with the files: then everything stays as it was. UNSUPPORTED: this fabric has no such files.
 * Any thread that may block; never suspends. */
PANDO_MUST_CHECK enum pando_status fabric_reload(struct fabric *fabric, char *text,
                                                 size_t text_bytes);

/* Closes the process's part of the fabric; every endpoint is disconnected by then. */
void fabric_close(struct fabric *fabric);

/* ---- counters -------------------------------------------------------------------------------- */

/* Round trips, verbs and bytes: the currency of this field. */
struct fabric_counters {
    uint64_t lists; /* = round trips of one-sided operations */
    uint64_t reads;
    uint64_t writes;
    uint64_t atomics;
    uint64_t calls;
    uint64_t bytes_out; /* WRITE and operands of atomics, request bodies */
    uint64_t bytes_in;  /* READ and results of atomics, reply bodies */
    uint64_t retries;   /* counted by engines: what had to be done again */
};

/* What a process has done for others; 0 where the others do it themselves, as on shared memory. */
struct fabric_served {
    uint64_t connections; /* now */
    uint64_t lists, operations;
    uint64_t evicted; /* connections that proved nothing and had to make room */
};

/* The kind of node at the other end. */
enum fabric_target fabric_endpoint_target(const struct fabric_endpoint *endpoint);
uint16_t fabric_endpoint_node(const struct fabric_endpoint *endpoint);

/* The id of the target's window as it was told when this endpoint last connected. */
uint64_t fabric_endpoint_window(const struct fabric_endpoint *endpoint);

/* Owned by the endpoint; the caller may add to retries. */
struct fabric_counters *fabric_endpoint_counters(struct fabric_endpoint *endpoint);

void fabric_counters_add(struct fabric_counters *sum, const struct fabric_counters *more);

#endif
