/*
 * pool.h - a client's view of a pool: memory nodes reached one-sided, and the other members.
 *
 * A process joins a pool once (struct pool) and gets an identity; each of its threads opens a
 * session (struct pool_session) with endpoints of its own. As a member it sends heartbeats, watches
 * those of the others, and when one stops, fences it everywhere, finishes what it left half done,
 * releases its locks and takes back its memory (rule member-recovery). A member that was itself
 * declared dead finds out at its next operation: FENCED. It then has to leave and join again.
 *
 * Suspends: everything that ends in _co. Threads: a session belongs to its loop; struct pool's
 * functions say themselves.
 */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#include <stdatomic.h>

#include "fabric/fabric.h"
#include "pool/call_fmt.h"
#include "pool/lists.h"
#include "pool/pool_fmt.h"
#include "pool/view.h"

struct pool;
struct pool_session;

struct pool_options {
    uint16_t memory_nodes; /* their ids are 0 .. n-1; all of the pool's */
    const char *name;      /* for people: host and process */
    uint64_t lease_ns;     /* 0 for 1 s: how long others wait before they call this member dead */
    uint32_t drift_ppm;    /* 0 for 10,000: how much clocks may disagree */
    bool no_recovery;      /* test only: never declares anybody dead */
    uint32_t freed_max; /* test only: blocks that may wait for their grace period; 0 for 262,144 */
    uint64_t pool;      /* id of the pool that is joined again; 0 for any */
    const atomic_bool *ending; /* NULL, or true when the process is to end: see pool_retry_co */
};

/* Joins, and starts the member's tasks on this loop. Errors as one line for a person: VERSION
 * another format, INVALID nodes that are not one pool, or not those that it had, FULL no member slot, and those of
 * fabric_connect_co. */
PANDO_MUST_CHECK enum pando_status pool_join_co(struct fabric *fabric,
                                                const struct pool_options *options,
                                                struct pool **out, char *error, size_t error_bytes);

/* Gives everything back and ends the member's tasks; all sessions are closed. On the loop that
 * joined. */
void pool_leave_co(struct pool *pool);

/* Any thread. */
struct fabric_identity pool_identity(const struct pool *pool);
uint64_t pool_id(const struct pool *pool);
uint16_t pool_nodes(const struct pool *pool);
struct pool_window pool_window(const struct pool *pool, uint16_t node);
uint64_t pool_lease_ns(const struct pool *pool);
uint64_t pool_grace_ns(const struct pool *pool); /* freed memory waits (rule stale-read-limit) */
struct fabric *pool_fabric(const struct pool *pool);

/* For engines: a count of bytes that this process's tables have of what is meant for all of them together. */
_Atomic uint64_t *pool_shared_bytes(struct pool *pool);

/* No other process can reach it: it ends with this one. */
bool pool_private(const struct pool *pool);

/* False from the moment the member may have been declared dead; by its own clock
 * (rule heartbeat-lease). */
bool pool_lease_valid(const struct pool *pool);

/* True for good once it is known to have been. */
bool pool_fenced(const struct pool *pool);

/* Whether the process is to end, as pool_options says. */
bool pool_ending(const struct pool *pool);

/* How long an operation tries before it gives up: ten leases, or two if the caller is leaving or the process
 * is to end. */
uint64_t pool_patience_ns(const struct pool *pool, bool leaving);

/* Whether a wait has lasted too long. *deadline_ns is 0 when it begins, or the caller's own limit; 0 becomes the
 * end of that patience, and no deadline is further away than two leases once the caller is leaving, or the
 * process is to end. */
bool pool_past(const struct pool *pool, bool leaving, uint64_t *deadline_ns);

/* For a member that holds a lock on something half changed and cannot reach it any more: from now
 * on it is dead, by its own word. It sends nothing any more, its heartbeats stop, and others recover
 * it. Any thread. */
void pool_resign(struct pool *pool);

/* Whoever watches over a member watches its loops, too: one that does not turn keeps the process from
 * its heartbeat. A loop that is not run for a while and on which no operation is under way says so
 * first. On the session's thread. */
void pool_session_pause(struct pool_session *session);
void pool_session_resume(struct pool_session *session);

/* Where a memory node's things are: its superblock as read when joining. */
const struct pool_superblock *pool_superblock(const struct pool *pool, uint16_t node);

/* Bytes of blocks that all memory nodes together could hold if they were empty, without their reserves. */
uint64_t pool_capacity(const struct pool *pool);

/* ---- sessions -------------------------------------------------------------------------------- */

PANDO_MUST_CHECK enum pando_status pool_session_open_co(struct pool *pool,
                                                        struct pool_session **out);

/* Waits for tasks that hold it. */
void pool_session_close_co(struct pool_session *session);

/* For a task of its own that uses the session, and that its caller does not wait for. On the session's loop. */
void pool_session_hold(struct pool_session *session);
void pool_session_release(struct pool_session *session);

struct pool *pool_session_pool(const struct pool_session *session);

/* Whether every memory node can be reached, as far as the session has noticed. On its loop. */
bool pool_session_whole(const struct pool_session *session);

/* Sums over the session's endpoints, by kind of target. */
void pool_session_counters(const struct pool_session *session,
                           struct fabric_counters out[FABRIC_TARGETS]);

/* ---- locks (rules lock-word, verify-after-lock, resolve-unknown, local-handover) ------------- */

struct pool_lock {
    fabric_address address;
    uint64_t word; /* what it holds while it is ours; unique for ever */
};

/* Where lock `index` of a bank is. */
fabric_address pool_lock_address(const struct pool *pool, uint16_t bank, uint32_t index);

/* The lock that protects an object, of which pool_address_ok: in its bank, never the directory's. */
fabric_address pool_lock_for(const struct pool *pool, fabric_address object);

/* Whether so many bytes there are part of some memory node's heap: what comes out of the pool is asked this
 * before its lock is computed, or it is followed. */
bool pool_address_ok(const struct pool *pool, fabric_address address, uint64_t bytes);

/* A word nobody used before, for a lock that is taken from 0; pool_lock_taken_from for others. Any
 * thread. */
uint64_t pool_lock_new_word(struct pool *pool);

/* The words of free locks, for lists that end in a release: their addresses stay valid. */
extern const uint64_t pool_lock_frees[POOL_LOCK_DEATHS_MAX + 1];

static inline const uint64_t *pool_lock_release(const struct pool_lock *lock)
{
    return &pool_lock_frees[pool_lock_deaths(lock->word)];
}

/* Takes the lock by CAS, backing off between tries. TIMEOUT after ten leases. */
PANDO_MUST_CHECK enum pando_status pool_lock_co(struct pool_session *session,
                                                fabric_address address, struct pool_lock *out);
/* OK also if the node cannot be reached now: the lock then is owed. */
PANDO_MUST_CHECK enum pando_status pool_unlock_co(struct pool_session *session,
                                                  const struct pool_lock *lock);

/* For who gives up on a lock that may be ours: the list that takes or releases it had an unknown outcome.
 * Releases it in the background, if it is, as soon as its node can be reached (owed.c). */
void pool_lock_owe(struct pool_session *session, const struct pool_lock *lock);

/* Marks of deaths in free lock words, of all nodes. Whoever takes them, then finds everything whole that
 * such locks protect, may clear them: those with which nobody died meanwhile become 0. */
struct pool_marks;
PANDO_MUST_CHECK enum pando_status pool_marks_take_co(struct pool_session *session,
                                                      struct pool_marks **out);
PANDO_MUST_CHECK enum pando_status pool_marks_clear_co(struct pool_session *session,
                                                       struct pool_marks *marks);
void pool_marks_free(struct pool_marks *marks);

/* What to do after a CAS found the lock held by `word` (0: the CAS itself failed), for those who
 * take locks in lists of their own: sleeps a growing, random while. A dead owner is recovered by
 * the monitors; a word whose owner is no member any more is taken away here. TIMEOUT: as
 * pool_retry_co. */
struct pool_backoff {
    bool few;       /* at most one task of each process asks: no need to wait long between tries */
    unsigned tries; /* all zero but for that to begin with */
    uint64_t deadline_ns;
};
PANDO_MUST_CHECK enum pando_status pool_lock_backoff_co(struct pool_session *session,
                                                        fabric_address lock, uint64_t word,
                                                        struct pool_backoff *backoff);

/* resolve-unknown (R11). A list that ended in releasing this lock failed with BROKEN: reconnects
 * (which fences the old session) and looks. *applied says whether it was; if not, the lock is still
 * ours and the list may be sent again. UNKNOWN or FENCED: it can no longer be said, or we are no
 * longer we. */
PANDO_MUST_CHECK enum pando_status pool_resolve_co(struct pool_session *session,
                                                   const struct pool_lock *lock, bool *applied);

/* ---- doing things again (retry.c) ------------------------------------------------------------ */

/* A loop that begins again when somebody was in the way, or a node could not be reached. */
struct pool_retry {
    const atomic_bool
        *leaving;   /* NULL, or true when the caller has not much time: others take over */
    unsigned count; /* all zero but for that to begin with */
    uint64_t deadline_ns;
};

/* Sleeps a growing, random while. TIMEOUT: ten leases have passed; or two since the caller was leaving, or
 * since the process was to end (pool_options). FENCED. */
PANDO_MUST_CHECK enum pando_status pool_retry_co(struct pool *pool, struct pool_retry *retry);

/* ---- what a dead writer may have left -------------------------------------------------------- */

/* Whether every member has beaten since the call before that asked, and none is being recovered: then what
 * is torn in memory since before that was left by nobody who died. The first call (since_ns is 0), and those
 * within half a lease of the last that looked, say no. A message at most every half lease. */
struct pool_watch {
    uint64_t since_ns;
    uint64_t beats[POOL_MEMBERS], now[POOL_MEMBERS];
};
PANDO_MUST_CHECK enum pando_status pool_all_beat_co(struct pool_session *session,
                                                    struct pool_watch *watch, bool *well);

/* ---- intents (rule intent-first) ------------------------------------------------------------- */

/* A slot for an intent, in the same bank as what it protects. Slots are bounded: suspends until one
 * is free. The slot's header word is 0. */
enum { POOL_INTENT_BYTES = 128 * 1024 - 64 }; /* three of the largest nodes, for a merge */
PANDO_MUST_CHECK enum pando_status pool_intent_take_co(struct pool_session *session, uint16_t bank,
                                                       fabric_address *slot);

/* Its header word is 0 again. */
void pool_intent_give(struct pool_session *session, fabric_address slot);

/* ---- memory ---------------------------------------------------------------------------------- */

/* The size of block for so many bytes: there are few sizes, eight between a power of two and the next,
 * and they fill their chunks. */
uint32_t pool_block_bytes(uint64_t size);

/* A block of that size (a multiple of 64, up to POOL_BLOCK_MAX) in a bank, or in any bank, in turns by
 * their room (POOL_ANY_NODE). Mostly without a message. Its contents are undefined but for its header; its
 * next version is block->version + 1. FULL: no memory on that node, or none a moment ago (a full one
 * is not asked again for a second, nor is one that did not answer: BROKEN); or on no node, each of which was
 * asked. Of any node: those that do
 * not answer are passed over, and left alone for a second; if all others are full, the error is theirs. */
enum { POOL_ANY_NODE = 0xffff };

/* The bank whose turn it is: they take turns in proportion to the room that they have. The credits are the
 * caller's, one for each of pool_banks, 0 to begin with; not for two threads at a time. Without a message. */
uint16_t pool_turn_next(struct pool *pool, int32_t *credits);
PANDO_MUST_CHECK enum pando_status pool_alloc_co(struct pool_session *session, uint16_t bank,
                                                 uint32_t block_bytes, struct pool_block *block);

/* Gives a block back; it is used again after the grace period. Its tenure word is written unless
 * the caller has done so (FREE, held by this member). block->version is the last version it had. Waits
 * while very many wait for the end of theirs. An error, TIMEOUT too: it is swept when this member leaves. */
PANDO_MUST_CHECK enum pando_status pool_free_co(struct pool_session *session,
                                                const struct pool_block *block,
                                                uint32_t block_bytes, bool tenure_written);

/* Vital blocks: what a process needs in order to serve at all, and to free memory (logs, maps). A part
 * of every memory node is kept for them (memnode_chunks.c), so that they can be had when pool_alloc_co
 * says FULL; slots for intents are such blocks, too. On any node, with a message each; freed ones go back
 * to their node after the grace period. Few, and not for data: the reserve is small. */
PANDO_MUST_CHECK enum pando_status
pool_vital_alloc_co(struct pool_session *session, uint32_t block_bytes, struct pool_block *block);
PANDO_MUST_CHECK enum pando_status pool_vital_free_co(struct pool_session *session,
                                                      const struct pool_block *block,
                                                      uint32_t block_bytes, bool tenure_written);

/* For tests and the checker: from now on this process's allocations (blocks, vital blocks and slots for
 * intents) are counted, and `count` of them fail with FULL, beginning with number `first` (1 is the next
 * one). `first` 0: none fails, and none is counted. Any thread. */
void pool_fail_allocations(struct pool *pool, uint64_t first, uint64_t count);

/* The same for blocks only: a process has its slots for intents from its first change on. */
void pool_fail_blocks(struct pool *pool, uint64_t first, uint64_t count);
uint64_t pool_allocations_asked(const struct pool *pool);

/* The same for a table, by its number: the pool knows then where it has memory. CORRUPT: it had some on a node whose window was replaced. */
PANDO_MUST_CHECK enum pando_status pool_table_alloc_co(struct pool_session *session, uint16_t table,
                                                       uint16_t bank, uint32_t block_bytes,
                                                       struct pool_block *block);
PANDO_MUST_CHECK enum pando_status pool_table_vital_alloc_co(struct pool_session *session,
                                                             uint16_t table, uint32_t block_bytes,
                                                             struct pool_block *block);

/* Whether the pool knows that the table in that slot has memory in a bank, for checks. STALE: it is not there. */
PANDO_MUST_CHECK enum pando_status pool_table_marked_co(struct pool_session *session, unsigned slot,
                                                        uint64_t table, uint16_t bank,
                                                        bool *marked);

/* ---- tables ---------------------------------------------------------------------------------- */

/* Whether it had memory in a window that was replaced: it can only be dropped. *node: in which. */
bool pool_table_lost(const struct pool *pool, const struct pool_entry *entry, uint16_t *node);

/* Frees all memory of a table that cannot be walked through, after nobody uses it any more (drop.c,
 * step 4). DENIED: the entry in that slot does not say that this member drops it. */
PANDO_MUST_CHECK enum pando_status pool_table_sweep_co(struct pool_session *session, unsigned slot,
                                                       uint16_t table);

struct pool_table_options {
    const char *name;
    const char *engine;
    uint32_t key_max;
    uint32_t value_inline;
    uint64_t root;
    uint64_t words[POOL_ENGINE_WORDS];
};

/* EXISTS: the name is taken. FULL: the directory is. INVALID: empty or too long a name, or one that
 * begins with '#'. */
PANDO_MUST_CHECK enum pando_status pool_table_create_co(struct pool_session *session,
                                                        const struct pool_table_options *options,
                                                        unsigned *slot, struct pool_entry *out);
/* In one round trip, unless the directory is nearly full. A name "#N" opens the table with number N that is
 * being dropped, to free it; "#N:SLOT" says where it is, else all entries are looked at. */
PANDO_MUST_CHECK enum pando_status pool_table_open_co(struct pool_session *session,
                                                      const char *name, unsigned *slot,
                                                      struct pool_entry *out);

/* Removes the name. What the table held is the engine's to free before. */
PANDO_MUST_CHECK enum pando_status pool_table_drop_co(struct pool_session *session,
                                                      const char *name);

/* Takes back a table that was entered without a root, if it has none still. EXISTS: it has one, and somebody
 * may be using it. NOT_FOUND: it is not there any more, or is being dropped. */
PANDO_MUST_CHECK enum pando_status pool_table_undo_co(struct pool_session *session, unsigned slot,
                                                      uint64_t table);

/* Runs fn while that table's place does not become another's: under the directory's lock. NOT_FOUND: it has
 * become another's, or nobody's. */
typedef enum pando_status (*pool_table_fn)(struct pool_session *session, void *context);
PANDO_MUST_CHECK enum pando_status pool_table_locked_co(struct pool_session *session, unsigned slot,
                                                        uint64_t table, pool_table_fn fn,
                                                        void *context);

/* How many tables the directory has room for: it grows with node 0's window, up to POOL_TABLES. */
unsigned pool_tables_max(const struct pool *pool);

/* The entry at a place, as it is now, whatever its state. INVALID: there is no such place. */
PANDO_MUST_CHECK enum pando_status pool_table_read_co(struct pool_session *session, unsigned slot,
                                                      struct pool_entry *out);

/* The first words of up to 128 entries, in one list. */
struct pool_glance {
    uint64_t state, root, table;
};
PANDO_MUST_CHECK enum pando_status pool_table_glance_co(struct pool_session *session,
                                                        const unsigned *slots,
                                                        struct pool_glance *out, unsigned count);

/* Calls fn, which does not suspend, for every entry that is not free, until it returns false. Reads the
 * directory piece by piece, and of that only what is in use: tables that are there all the time are told once,
 * those that come or go meanwhile perhaps. */
typedef bool (*pool_entry_fn)(void *context, unsigned slot, const struct pool_entry *entry);
PANDO_MUST_CHECK enum pando_status pool_directory_each_co(struct pool_session *session,
                                                          pool_entry_fn fn, void *context);

/* How many entries are not free, and how many of these are being dropped: at least 1 while that is not
 * known, because somebody died in the middle of a change. */
struct pool_directory_counts {
    uint64_t used, dropping;
};
PANDO_MUST_CHECK enum pando_status pool_directory_counts_co(struct pool_session *session,
                                                            struct pool_directory_counts *out);

/* All live entries, by name, each name once; free them. NO_MEMORY. */
PANDO_MUST_CHECK enum pando_status pool_table_list_co(struct pool_session *session,
                                                      struct pool_entry **out, unsigned *count);

/* Where an entry's root is, for messages. */
fabric_address pool_root_address(const struct pool *pool, unsigned slot);

/* CORRUPT, of this and of the next two: the word fails its check; *root and *found are not set. */
PANDO_MUST_CHECK enum pando_status pool_root_read_co(struct pool_session *session, unsigned slot,
                                                     uint64_t *root);

/* Of a table that may still be being created, which has a name before it has a root: waits up to two
 * leases for it. TIMEOUT: its creator is slow, or has died. */
PANDO_MUST_CHECK enum pando_status pool_root_await_co(struct pool_session *session, unsigned slot,
                                                      uint64_t *root);

/* STALE: it was something else; *found says what. */
PANDO_MUST_CHECK enum pando_status pool_root_swap_co(struct pool_session *session, unsigned slot,
                                                     uint64_t expected, uint64_t desired,
                                                     uint64_t *found);

/* ---- dropping a table that others use (drop.c) ----------------------------------------------- */

/* Nobody finds the name any more, and this member is to free the table. NOT_FOUND. */
PANDO_MUST_CHECK enum pando_status
pool_table_mark_co(struct pool_session *session, const char *name, unsigned *slot, uint64_t *table);

/* Makes this member the one that frees a table that is being dropped, if whoever did is gone. BUSY:
 * it is not. STALE: the entry has changed. */
PANDO_MUST_CHECK enum pando_status pool_table_take_over_co(struct pool_session *session,
                                                           unsigned slot, uint64_t state);

/* Its memory has been freed: the entry may be used again. OK also if it has been already. */
PANDO_MUST_CHECK enum pando_status pool_table_remove_co(struct pool_session *session, unsigned slot,
                                                        uint64_t table);

/* How many drops there were; one more; and that this member uses none of the tables of so many. */
PANDO_MUST_CHECK enum pando_status pool_drops_co(struct pool_session *session, uint64_t *drops);
PANDO_MUST_CHECK enum pando_status pool_drops_add_co(struct pool_session *session, uint64_t *drops);
PANDO_MUST_CHECK enum pando_status pool_drops_seen_co(struct pool_session *session, uint64_t drops,
                                                      bool settled);

/* Whether every member there is has said so, and each that it is settled. */
PANDO_MUST_CHECK enum pando_status
pool_drops_seen_by_all_co(struct pool_session *session, uint64_t drops, bool *all, bool *settled);

/* Whether each session has since been seen with no endpoint broken: then none of the lists that ended before
 * that time has an unknown outcome (rule failed-lists-linger). Any loop; ask again soon. */
bool pool_settled(struct pool *pool, uint64_t since_ns);

/* How many dead members were recovered so far. A table's entry has the count of when it was made. */
PANDO_MUST_CHECK enum pando_status pool_deaths_co(struct pool_session *session, uint64_t *deaths);

/* ---- calls between members (peers.c, answers.c) ---------------------------------------------- */

enum { POOL_CALL_BYTES_MAX = FABRIC_CALL_BYTES_MAX - 16 }; /* of a body, and of a reply */

/* Answers what other members call this process for, by table. It runs as a task on a loop of this
 * process, may suspend, and gets a session of that loop; request->reply has room for
 * POOL_CALL_BYTES_MAX. What it returns is what pool_call_co returns, so the outcome of an operation
 * goes into the reply, where it cannot be mistaken for that of the call. (FENCED, which then is this
 * process's own end, becomes BROKEN.) */
typedef enum pando_status (*pool_answer_fn)(void *context, struct pool_session *session,
                                            struct fabric_request *request);

/* EXISTS: that table has one. Any thread. */
PANDO_MUST_CHECK enum pando_status pool_answer(struct pool *pool, uint16_t table, pool_answer_fn fn,
                                               void *context);

/* No call is being answered for it when this returns. Not from an answer of that table. */
void pool_answer_stop_co(struct pool *pool, uint16_t table);

/* Calls another member, or this one. Up to reply_capacity bytes of the reply are stored; its size goes
 * to *reply_size. Connects once per session and member, and again, in bounded time, when that broke. While a
 * member cannot be connected to, which is tried less and less often, up to once in 16 leases, no call waits for
 * that but the first.
 * Not served: NOT_FOUND there is no such member in that incarnation (any more), or it cannot be
 * reached; UNSUPPORTED it listens nowhere; STALE nobody there answers for that table; AGAIN it has too much to do; FENCED we are.
 * BROKEN, TIMEOUT: it may have been served all the same. */
PANDO_MUST_CHECK enum pando_status pool_call_co(struct pool_session *session,
                                                struct fabric_identity member, uint16_t table,
                                                uint16_t method, struct slice body, void *reply,
                                                uint32_t reply_capacity, uint32_t *reply_size);

/* Tells a member that cannot be called that this one wants what it has of a table: it gets a call with this method, from
 * this member and with an empty body, within a part of a lease. That may get lost. The log says so the first time, when
 * the member's heartbeat shows that it lives, and again if it has answered a call since: as an error if it says where it
 * can be called. */
enum { POOL_WISH_METHOD = 0xffff };
void pool_wish_co(struct pool_session *session, struct fabric_identity member, uint16_t table);

/* ---- members and statistics ------------------------------------------------------------------ */

struct pool_member {
    uint16_t member;
    struct pool_heartbeat beat;
    struct pool_record record;
};

/* All slots that are not free, up to `capacity`. */
PANDO_MUST_CHECK enum pando_status pool_members_co(struct pool_session *session,
                                                   struct pool_member *out, unsigned capacity,
                                                   unsigned *count);

/* One slot's heartbeat as it is now. */
PANDO_MUST_CHECK enum pando_status pool_heartbeat_co(struct pool_session *session, uint16_t member,
                                                     struct pool_heartbeat *out);

/* Before this process works on what it has taken over, or was given, or found without an owner: finds out
 * which memory nodes must be kept off for now, because a dead member's recovery has not come to them yet
 * (partial.c). They answer BROKEN until it has. */
PANDO_MUST_CHECK enum pando_status pool_partial_begin_co(struct pool_session *session);

/* Declares a silent member dead and recovers it; the monitor does that by itself. NOT_FOUND: it is not
 * there in that incarnation. BUSY: another recovers it, or it was not silent for its lease, as far as
 * memory node 0 knows (rule fence-ticket): nothing was done to it. BROKEN, UNSUPPORTED: it cannot
 * be fenced, so nothing was taken over. */
PANDO_MUST_CHECK enum pando_status pool_recover_co(struct pool_session *session,
                                                   struct fabric_identity dead);

PANDO_MUST_CHECK enum pando_status pool_node_stats_co(struct pool_session *session, uint16_t node,
                                                      struct pool_node_stats *out);

/* What a node's memory is used for, as of some seconds ago at the most; free it. */
struct pool_usage {
    struct pool_usage_head head;
    const struct pool_usage_class *classes;
    const struct pool_usage_table *tables;
    void *bytes, *table_bytes; /* what these point to */
};
PANDO_MUST_CHECK enum pando_status pool_usage_co(struct pool_session *session, uint16_t node,
                                                 struct pool_usage *out);
void pool_usage_free(struct pool_usage *usage);

/* Recoveries this process has done since it joined. */
uint64_t pool_recoveries(const struct pool *pool);

/* How many intents of dead members this one could not read, and left out: each was torn, or is damaged. */
uint64_t pool_unreadable_intents(const struct pool *pool);

/* Rises after a member is no member any more, within a lease; and sometimes without. */
uint64_t pool_departures(const struct pool *pool);

#endif
