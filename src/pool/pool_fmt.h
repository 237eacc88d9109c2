/*
 * pool_fmt.h - what lies in a memory node's window. All integers little endian, words aligned to 8.
 *
 *   where               what
 *   first               superblock, 4 KiB (first = fabric_window_first)
 *   + 4 KiB             heartbeats: 1,024 words, one per member            (used on node 0)
 *   + 12 KiB            member records: 1,024 x 256 bytes                  (used on node 0)
 *   + 268 KiB           head of the table directory, 4 KiB                 (used on node 0)
 *   + 272 KiB           numbers of tables in use: a bit each, 8 KiB        (used on node 0)
 *   + 280 KiB           windows of the pool's nodes: 256 x 16 bytes        (used on node 0)
 *   + 284 KiB           chunk table: one 16-byte entry per chunk
 *   directory           8 to 1,024 groups of 16 entries of 256 bytes       (node 0 only)
 *   heap_offset         chunks of 1 MiB
 *   device + 0          lock table: 32,768 words (on-chip memory where there is some)
 *
 * superblock
 *    0  8  magic          8  4  format version     12  2  node         14  2  zero
 *   16  8  pool id: random on node 0, on others 0 until the first client joins them to a pool
 *   24  8  memory nodes in the pool: 0 until the first client says (node 0 only)
 *   32  8  heap offset   40  8  chunks             48  8  lock words
 *   56  8  starts: times a memory node opened it
 *   64  8  lock table's life: changes when the lock table was lost, as on-chip memory is
 *   72  8  barrier: the node's own atomics, after which its CPU sees every WRITE that has completed
 *   80  8  replaces: 1 in a window that was made to take the place of a lost one, until it has
 *   88  8  directory: offset of its first group, and 96  8  how many there are; 0 but on node 0
 *  128  8  drops: goes up whenever a table begins to be dropped (node 0 only; drop.c)
 *  136  8  epoch: up by 2 whenever a node's window is replaced; odd meanwhile (node 0 only; windows.c)
 *  144  8  deaths: goes up whenever a dead member has been recovered (node 0 only)
 *  152  8  fences: goes up whenever members that hold something in their windows have to look for
 *          those that are dead (node 0 only; window_fences.c)
 *
 * heartbeat word: state 8, incarnation 16, counter 40 (from the high end)
 *   0 free, 1 joining, 2 alive, 3 fenced: being recovered; the counter then is the recoverer's
 *   member 10, its incarnation 16, partial 1 (partial.c), and a count 13 that goes on while it works
 *
 * member record
 *    0  8  lease, ns      8  2  node id of its window   10  2  zero
 *   12  4  epoch at which it joined
 *   16 64  name (host and process), NUL-terminated
 *   80 96  location of its window, NUL-terminated
 *  176  8  drops seen: bit 63 says that it keeps this word, bit 62 that no list of its that was about
 *          these tables has an unknown outcome (rule failed-lists-linger), the rest is the latest count of
 *          drops whose tables it does not use any more
 *  184  8  of a member that is there, fences: bit 63 says that it holds something in its window; what
 *          that has for engines, in slabs of 64 KiB, 23 (bits 40 to 62); and the count of fences that
 *          it has come to 40 (the rest). 0 of an older program's member, which holds nothing, but does
 *          not wait for those that do: the first engine that does raises the format's version.
 *          Of a dead member, missing: of a partial recovery, a bit for each memory node (0 to 63) that
 *          it has not come to yet
 *  192 64  wishes: what members who cannot call it want of it; a word each, 0 if none: table 16,
 *          member 16, incarnation 16 (from bit 47 down; wishes.c)
 *
 * head of the directory: changed under its lock only (directory_change.c)
 *    0  8  changing: 1 while head, numbers and entries may disagree, as after a death
 *    8  8  the number that was given last   16  8  entries that are not free
 *   24  8  of these, in neither group of their names   32  8  of these, being dropped
 *   64 128 a bit for each group: it has entries that are not free
 *
 * directory entry, in one of the two groups that its name's hash names, if these had room
 *    0  8  state: 0 free, 1 live, 2 being dropped; with 2 also who drops it: member 16 at bit 16,
 *          incarnation 16 at bit 32   8  8  root: an address as a checked word (checked_word.h: it
 *          has at most 56 bits), changed by CAS; 0 while there is none
 *   16  8  table's number, from 1     24  4  largest key      28  4  inline value bytes
 *   32 64  name, NUL-terminated       96 16  engine, NUL-terminated
 *  112  8  uses: nodes that the table has memory on 40 (a bit each, node mod 40), and the epoch at
 *          which that was so 24 (from the high end; uses.c)
 *  120  8  deaths when it was made
 *  128 128 the engine's own words
 *
 * window of a node
 *    0  8  id of the window (window_fmt.h); 0 until the first client joins the node to the pool
 *    8  8  the epoch since which it is this one; 0 if it always was
 *
 * chunk table entry
 *    0  8  kind, block bytes / 64, and a check of both (pool_chunk_pack); kinds: 0 free, 1 blocks,
 *          2 the rest of a block that begins in a chunk before it, 3 vital blocks
 *    8  8  version floor: no block here ever had a version as high
 *
 * lock word (rule lock-word), from the high end
 *   free   0 61, deaths 3: how many holders died here since it was last known that every cell under
 *          this word is whole; 7 stands for seven or more, and for a lock table that was lost
 *   held   member 16 (never 0), incarnation 16, deaths 3 as found when it was taken, acquisition 29
 *          A death leaves at most one torn cell (rule intent-first): so many may be repaired.
 */
#ifndef POOL_POOL_FMT_H
#define POOL_POOL_FMT_H

#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"

#define POOL_MAGIC 0x314c4f4f50444e50u /* "PNDPOOL1" */

enum {
    POOL_VERSION = 6,
    POOL_MEMBERS = FABRIC_MEMBERS_MAX,
    POOL_GROUPS_MAX = 1024,
    POOL_GROUPS_MIN = 8,
    POOL_GROUP_ENTRIES = 16,
    POOL_TABLES = POOL_GROUPS_MAX * POOL_GROUP_ENTRIES, /* at the most: pool_tables_max */
    POOL_DIRECTORY_PART = 128,                          /* of node 0's window is directory */
    POOL_TABLE_NUMBER_MAX = UINT16_MAX,                 /* a block's tenure has 16 bits for it */
    POOL_CHUNK_BYTES = 1024 * 1024,
    POOL_BLOCK_MAX = 8 * 1024 * 1024, /* a block may take several chunks in a row */
    POOL_LOCKS = 32768,
    POOL_JOINING_LEASES = 4, /* of its observer, before one that joins is taken for dead */
    POOL_LOCK_DIRECTORY = 0, /* the lock word that protects the directory on node 0 */
    POOL_NAME_MAX = 64,

    POOL_DROPS = 128, /* offsets from the first byte of the users */
    POOL_EPOCH = 136,
    POOL_DEATHS = 144,
    POOL_FENCES = 152,
    POOL_HEARTBEATS = 4096,
    POOL_RECORDS = POOL_HEARTBEATS + POOL_MEMBERS * 8,
    POOL_RECORD_BYTES = 256,
    POOL_WISHES = 8,
    POOL_DIRECTORY = POOL_RECORDS + POOL_MEMBERS * POOL_RECORD_BYTES,
    POOL_NUMBERS = POOL_DIRECTORY + 4096,
    POOL_NUMBER_WORDS = (POOL_TABLE_NUMBER_MAX + 1) / 64,
    POOL_ENTRY_BYTES = 256,
    POOL_GROUP_BYTES = POOL_GROUP_ENTRIES * POOL_ENTRY_BYTES,
    POOL_NODES_MAX = 256,
    POOL_WINDOWS = POOL_NUMBERS + POOL_NUMBER_WORDS * 8,
    POOL_WINDOW_BYTES = 16,
    POOL_CHUNK_TABLE = POOL_WINDOWS + POOL_NODES_MAX * POOL_WINDOW_BYTES,
    POOL_CHUNK_ENTRY_BYTES = 16,
};
_Static_assert(POOL_CHUNK_TABLE == 284 * 1024, "the table above");
_Static_assert(POOL_MEMBERS <= 1 << 10, "a member fits into the recoverer's bits");

struct pool_superblock {
    uint64_t magic;
    uint32_t version;
    uint16_t node;
    uint16_t zero;
    uint64_t pool_id;
    uint64_t nodes;
    uint64_t heap_offset;
    uint64_t chunks;
    uint64_t locks;
    uint64_t starts;
    uint64_t locks_life;
    uint64_t barrier;
    uint64_t replaces;
    uint64_t directory;
    uint64_t groups;
};
_Static_assert(sizeof(struct pool_superblock) == 104, "format");

enum { POOL_GROUP_WORDS = POOL_GROUPS_MAX / 64 };

struct pool_directory_head {
    uint64_t changing;
    uint64_t number;
    uint64_t used;
    uint64_t astray;
    uint64_t dropping;
    uint64_t zero[3];
    uint64_t groups[POOL_GROUP_WORDS];
};
_Static_assert(sizeof(struct pool_directory_head) == 192, "format");
_Static_assert(offsetof(struct pool_directory_head, groups) == 64, "format");

struct pool_window {
    uint64_t id;
    uint64_t since;
};
_Static_assert(sizeof(struct pool_window) == POOL_WINDOW_BYTES, "format");

struct pool_record {
    uint64_t lease_ns;
    uint16_t node;
    uint16_t zero;
    uint32_t epoch;
    char name[POOL_NAME_MAX];
    char location[FABRIC_LOCATION_MAX];
    uint64_t drops_seen;
    union {
        uint64_t fences;  /* of a member that is there */
        uint64_t missing; /* of one whose recovery is partial */
    };
    uint64_t wishes[POOL_WISHES];
};
_Static_assert(sizeof(struct pool_record) == POOL_RECORD_BYTES, "format");

enum { POOL_ENGINE_WORDS = 16, POOL_ENGINE_NAME_MAX = 16 };

/* pool_table_read_co and its like give it as it lies there: `root` is to be unpacked. */
struct pool_entry {
    uint64_t state;
    uint64_t root;
    uint64_t table;
    uint32_t key_max;
    uint32_t value_inline;
    char name[POOL_NAME_MAX];
    char engine[POOL_ENGINE_NAME_MAX];
    uint64_t uses;
    uint64_t deaths;
    uint64_t words[POOL_ENGINE_WORDS];
};
_Static_assert(sizeof(struct pool_entry) == POOL_ENTRY_BYTES, "format");

enum { POOL_USES_NODES = 40, POOL_USES_EPOCH = 24 };

/* A table's memory: on these nodes, at this epoch. */
struct pool_uses {
    uint64_t nodes, epoch;
};

static inline uint64_t pool_uses_bit(uint16_t node)
{
    return (uint64_t)1 << node % POOL_USES_NODES;
}

static inline uint64_t pool_uses_pack(struct pool_uses uses)
{
    return uses.nodes << POOL_USES_EPOCH | uses.epoch;
}

static inline struct pool_uses pool_uses_unpack(uint64_t word)
{
    return (struct pool_uses){.nodes = word >> POOL_USES_EPOCH,
                              .epoch = word & (((uint64_t)1 << POOL_USES_EPOCH) - 1)};
}

/* What a member says about its window. */
struct pool_fences {
    bool holds;     /* engines keep something of the pool there */
    uint64_t slabs; /* of POOL_SLAB_BYTES, for engines */
    uint64_t count; /* of fences: all that were called for by then are in force there */
};

enum { POOL_FENCES_SLABS_SHIFT = 40, POOL_FENCES_SLABS_MAX = (1 << 23) - 1 };
#define POOL_FENCES_HOLDS ((uint64_t)1 << 63)

static inline uint64_t pool_fences_pack(struct pool_fences fences)
{
    uint64_t slabs = fences.slabs > POOL_FENCES_SLABS_MAX ? POOL_FENCES_SLABS_MAX : fences.slabs;
    return (fences.holds ? POOL_FENCES_HOLDS : 0) | slabs << POOL_FENCES_SLABS_SHIFT |
           (fences.count & (((uint64_t)1 << POOL_FENCES_SLABS_SHIFT) - 1));
}

static inline struct pool_fences pool_fences_unpack(uint64_t word)
{
    return (struct pool_fences){
        .holds = (word & POOL_FENCES_HOLDS) != 0,
        .slabs = word >> POOL_FENCES_SLABS_SHIFT & POOL_FENCES_SLABS_MAX,
        .count = word & (((uint64_t)1 << POOL_FENCES_SLABS_SHIFT) - 1),
    };
}

/* Whether it has come to that count, of which the record has the low bits: they wrap. */
static inline bool pool_fences_reached(struct pool_fences fences, uint64_t count)
{
    return (int64_t)((fences.count - count) << (64 - POOL_FENCES_SLABS_SHIFT)) >= 0;
}

static inline uint64_t pool_wish_pack(uint16_t table, struct fabric_identity from)
{
    return (uint64_t)table << 32 | (uint64_t)from.member << 16 | from.incarnation;
}

static inline struct fabric_identity pool_wish_from(uint64_t word)
{
    return (struct fabric_identity){.member = (uint16_t)(word >> 16),
                                    .incarnation = (uint16_t)word};
}

enum pool_entry_state { POOL_ENTRY_FREE, POOL_ENTRY_LIVE, POOL_ENTRY_DROPPING };

#define POOL_DROPS_KEPT    ((uint64_t)1 << 63) /* in drops_seen */
#define POOL_DROPS_SETTLED ((uint64_t)1 << 62)

static inline bool pool_entry_dropping(uint64_t state)
{
    return (state & 0xff) == POOL_ENTRY_DROPPING;
}

static inline uint64_t pool_dropping_pack(struct fabric_identity by)
{
    return (uint64_t)by.incarnation << 32 | (uint64_t)by.member << 16 | POOL_ENTRY_DROPPING;
}

static inline struct fabric_identity pool_dropping_by(uint64_t state)
{
    return (struct fabric_identity){.member = (uint16_t)(state >> 16),
                                    .incarnation = (uint16_t)(state >> 32)};
}

/* ---- heartbeats ------------------------------------------------------------------------------ */

enum pool_member_state { POOL_FREE, POOL_JOINING, POOL_ALIVE, POOL_FENCED };

struct pool_heartbeat {
    enum pool_member_state state;
    uint16_t incarnation;
    uint64_t counter;
};

static inline uint64_t pool_heartbeat_pack(struct pool_heartbeat beat)
{
    return (uint64_t)beat.state << 56 | (uint64_t)beat.incarnation << 40 |
           (beat.counter & (((uint64_t)1 << 40) - 1));
}

static inline struct pool_heartbeat pool_heartbeat_unpack(uint64_t word)
{
    return (struct pool_heartbeat){
        .state = (enum pool_member_state)(word >> 56),
        .incarnation = (uint16_t)(word >> 40),
        .counter = word & (((uint64_t)1 << 40) - 1),
    };
}

/* Who recovers a fenced member, and how far it has come. */
static inline uint64_t pool_recoverer_pack(struct fabric_identity recoverer, uint64_t progress)
{
    return (uint64_t)recoverer.member << 30 | (uint64_t)recoverer.incarnation << 14 |
           (progress & 0x1fff);
}

#define POOL_RECOVERY_PARTIAL ((uint64_t)1 << 13) /* in the counter of a fenced member */

/* A dead member that is fenced, and whose intents are redone, at all nodes but those that are missing. */
static inline bool pool_heartbeat_partial(const struct pool_heartbeat *beat)
{
    return beat->state == POOL_FENCED && (beat->counter & POOL_RECOVERY_PARTIAL) != 0;
}

static inline struct fabric_identity pool_recoverer(const struct pool_heartbeat *beat)
{
    return (struct fabric_identity){.member = (uint16_t)(beat->counter >> 30 & 0x3ff),
                                    .incarnation = (uint16_t)(beat->counter >> 14)};
}

/* ---- locks ----------------------------------------------------------------------------------- */

enum { POOL_LOCK_DEATHS_MAX = 7, POOL_LOCK_DEATHS_SHIFT = 29 };

/* A held word of a lock that is taken from 0. */
static inline uint64_t pool_lock_word(struct fabric_identity owner, uint32_t acquisition)
{
    return (uint64_t)owner.member << 48 | (uint64_t)owner.incarnation << 32 |
           (acquisition & (((uint32_t)1 << POOL_LOCK_DEATHS_SHIFT) - 1));
}

static inline bool pool_lock_free(uint64_t word)
{
    return word <= POOL_LOCK_DEATHS_MAX;
}

/* The free value that a held word was taken from: what its release writes back. */
static inline unsigned pool_lock_deaths(uint64_t word)
{
    return (unsigned)(word >> POOL_LOCK_DEATHS_SHIFT) & POOL_LOCK_DEATHS_MAX;
}

/* The same acquisition of a lock whose free value is `deaths`. */
static inline uint64_t pool_lock_taken_from(uint64_t word, uint64_t deaths)
{
    return (word & ~((uint64_t)POOL_LOCK_DEATHS_MAX << POOL_LOCK_DEATHS_SHIFT)) |
           deaths << POOL_LOCK_DEATHS_SHIFT;
}

/* What a held word becomes when its holder died with it. */
static inline uint64_t pool_lock_after_death(uint64_t word)
{
    unsigned deaths = pool_lock_deaths(word);
    return deaths < POOL_LOCK_DEATHS_MAX ? deaths + 1 : deaths;
}

static inline struct fabric_identity pool_lock_owner(uint64_t word)
{
    return (struct fabric_identity){.member = (uint16_t)(word >> 48),
                                    .incarnation = (uint16_t)(word >> 32)};
}

/* ---- chunks ---------------------------------------------------------------------------------- */

enum pool_chunk_kind {
    POOL_CHUNK_FREE,
    POOL_CHUNK_BLOCKS,
    POOL_CHUNK_REST,
    POOL_CHUNK_VITAL,
    POOL_CHUNK_DAMAGED, /* never in the window: what an entry with a wrong check is */
};

struct pool_chunk {
    enum pool_chunk_kind kind;
    uint32_t block_bytes; /* a multiple of 64 */
    uint64_t version_floor;
};

/* An entry's first word: the blocks' size in units of 64 bytes (bits 32 to 49), the kind (56 and 57), and a
 * check of both (50 to 55 and 58 to 63). It is 0 for a free chunk. */
#define POOL_CHUNK_CHECKED (((uint64_t)3 << 56) | (((uint64_t)1 << 50) - 1))

static inline uint64_t pool_chunk_check(uint64_t word)
{
    uint64_t check = (word & POOL_CHUNK_CHECKED) * UINT64_C(0x9e3779b97f4a7c15) >> 52;
    return (check & 63) << 50 | check >> 6 << 58;
}

static inline uint64_t pool_chunk_pack(const struct pool_chunk *chunk)
{
    uint64_t word = (uint64_t)chunk->kind << 56 | (uint64_t)(chunk->block_bytes / 64) << 32;
    return word | pool_chunk_check(word);
}

static inline struct pool_chunk pool_chunk_unpack(uint64_t word, uint64_t version_floor)
{
    bool sound = (word & ~POOL_CHUNK_CHECKED) == pool_chunk_check(word);
    return (struct pool_chunk){
        .kind = sound ? (enum pool_chunk_kind)(word >> 56 & 3) : POOL_CHUNK_DAMAGED,
        .block_bytes = (uint32_t)(word >> 32 & 0x3ffff) * 64,
        .version_floor = version_floor,
    };
}

/* How many free chunks a node keeps for vital blocks (memnode_chunks.c). */
static inline uint64_t pool_reserve_chunks(uint64_t chunks)
{
    enum { PART = 16, MOST = 64, FROM = 4 };
    uint64_t reserve = chunks / PART;
    if (reserve > MOST)
        return MOST;
    return reserve == 0 && chunks >= FROM ? 1 : reserve;
}

/* Whether blocks begin in such a chunk, and how many: one that is larger than a chunk takes several. */
static inline uint32_t pool_chunk_blocks(const struct pool_chunk *chunk)
{
    if ((chunk->kind != POOL_CHUNK_BLOCKS && chunk->kind != POOL_CHUNK_VITAL) ||
        chunk->block_bytes == 0 || chunk->block_bytes > POOL_BLOCK_MAX)
        return 0;
    return chunk->block_bytes > POOL_CHUNK_BYTES ? 1 : POOL_CHUNK_BYTES / chunk->block_bytes;
}

#endif
