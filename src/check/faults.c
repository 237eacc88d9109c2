/*
 * faults.c - faults of a seed that begin at a time: long outages, pauses of several clients at
 * once, flipped bits. Plans them, makes them happen, and says when none is left.
 */
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "check/faults.h"
#include "pool/block_fmt.h"
#include "pool/pool.h"
#include "pool/pool_fmt.h"

enum {
    STRUCK_PERCENT = 60,  /* of seeds, if there are several kinds to choose from */
    PAUSE_LEASES = 5,     /* beyond its lease; at eight a process ends itself */
    SMALL_CHUNKS_MIN = 5, /* so that one of them is kept for what is vital */
    SMALL_CHUNKS_MAX = 11,
    BIG_VALUE_BYTES = 3 << 20,
    LOCK_LOSSES_MAX = 3, /* of a memory node */
    VITAL_HEADER_BYTES = 128,
};

static const uint64_t MEMORY_BYTES = 1 << 30; /* of a window; little of it is ever touched */
static const uint64_t LONGEST_NS = 30 * RT_NS_PER_S;

/* On slow links a heartbeat waits for megabytes. */
static const uint64_t SLOW_LEASE_NS = 250 * RT_NS_PER_MS;
static const uint64_t SLOW_SERVED_WITHIN_NS = 30 * RT_NS_PER_S;
static const uint64_t LOST_SERVED_WITHIN_NS = 20 * RT_NS_PER_S;
static const uint64_t SLOW_LONGEST_NS = 300 * RT_NS_PER_S;

static const uint64_t WITHIN_NS = 2 * CHECK_LEASE_NS;
static const double LOST_ANSWERS = 0.003; /* of all lists */

/* The kinds that are planned here, of which a seed has at most one: what it shows is then its work. */
static const unsigned kinds[] = {CHECK_FAULTS_OUTAGE, CHECK_FAULTS_PAUSES, CHECK_FAULTS_FLIPS,
                                 CHECK_FAULTS_FULL,   CHECK_FAULTS_ALLOC,  CHECK_FAULTS_BLOBS,
                                 CHECK_FAULTS_LOST,   CHECK_FAULTS_LOCKS};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static uint64_t below(struct cluster *cluster, uint64_t bound)
{
    return prng_below(&cluster->faults_prng, bound);
}

/* ---- planning -------------------------------------------------------------------------------- */

/* Longer than a lease; than most retries go on; than any of them does. */
static uint64_t long_ns(struct cluster *cluster)
{
    switch (below(cluster, 3)) {
    case 0:
        return CHECK_LEASE_NS + below(cluster, 4 * CHECK_LEASE_NS);
    case 1:
        return 5 * CHECK_LEASE_NS + below(cluster, 20 * CHECK_LEASE_NS);
    default:
        return RT_NS_PER_S / 2 + below(cluster, 2 * RT_NS_PER_S);
    }
}

static void plan_cut(struct cluster *cluster, uint16_t a, uint16_t b, uint64_t at_ns, uint64_t ns)
{
    if (cluster->cut_count == CHECK_CUTS_MAX || a == b)
        return;
    cluster->cuts[cluster->cut_count++] =
        (struct check_cut){.a = a, .b = b, .at_ns = at_ns, .heal_ns = at_ns + ns, .outage = true};
}

/* A memory node dies and comes back with its window, or some clients lose it from sight, or each
 * other. */
static void plan_outage(struct cluster *cluster)
{
    const struct check_options *options = cluster->options;
    uint64_t at_ns = 1 + below(cluster, WITHIN_NS), ns = long_ns(cluster), what = below(cluster, 4);
    unsigned node = (unsigned)below(cluster, options->memory);
    unsigned other = (unsigned)below(cluster, options->nodes);

    if (what < 2) {
        cluster->memory[node].kill_ns = at_ns;
        cluster->memory[node].restart_ns = at_ns + ns;
        cluster->memory[node].outage = true;
        return;
    }
    for (unsigned i = 0; i < options->nodes; i++) {
        if (below(cluster, 3) != 0)
            plan_cut(cluster, fabric_self(cluster->slots[i].fabric),
                     what == 2 ? (uint16_t)node : fabric_self(cluster->slots[other].fabric),
                     at_ns + below(cluster, CHECK_LEASE_NS / 4), ns);
    }
}

/* Dies, and what comes back, if anything does, is not what it was. */
static void plan_loss(struct cluster *cluster)
{
    static const int backs[] = {BACK_EMPTY, BACK_FOREIGN, BACK_NEVER};
    struct check_memory *memory = &cluster->memory[below(cluster, cluster->options->memory)];
    memory->kill_ns = 1 + below(cluster, WITHIN_NS);
    memory->restart_ns = memory->kill_ns + 1 + below(cluster, 2 * CHECK_LEASE_NS);
    memory->back = backs[below(cluster, 3)];
}

/* Some memory nodes, one at least, lose their lock tables, each time in a short restart. */
static void plan_lock_losses(struct cluster *cluster)
{
    unsigned memory = cluster->options->memory, first = (unsigned)below(cluster, memory);
    for (unsigned i = 0; i < memory; i++) {
        if (i == first || below(cluster, 2) == 0) {
            cluster->memory[i].lock_losses = 1 + (unsigned)below(cluster, LOCK_LOSSES_MAX);
            check_plan_lock_loss(cluster, &cluster->memory[i], 0);
        }
    }
}

void check_plan_lock_loss(struct cluster *cluster, struct check_memory *memory, uint64_t since_ns)
{
    memory->kill_ns = since_ns + 1 + below(cluster, WITHIN_NS);
    memory->restart_ns = memory->kill_ns + 1 + below(cluster, CHECK_LEASE_NS / 4);
}

/* Two at least, for different times; all of them in one of four cases. */
static void plan_pauses(struct cluster *cluster)
{
    struct check_pause *pause = &cluster->pause;
    unsigned nodes = cluster->options->nodes, first = (unsigned)below(cluster, nodes);
    unsigned count =
        below(cluster, 4) == 0 || nodes < 3 ? nodes : 2 + (unsigned)below(cluster, nodes - 2);
    pause->at_ns = 1 + below(cluster, WITHIN_NS);
    for (unsigned i = 0; i < count; i++)
        pause->for_ns[(first + i) % nodes] =
            CHECK_LEASE_NS + below(cluster, PAUSE_LEASES * CHECK_LEASE_NS);
}

static void plan_flips(struct cluster *cluster)
{
    unsigned count = 1 + (unsigned)below(cluster, CHECK_FLIPS_MAX);
    for (unsigned i = 0; i < count; i++)
        cluster->flip_at_ns[i] = 1 + below(cluster, 2 * WITHIN_NS);
}

static unsigned all_kinds(void)
{
    unsigned all = 0;
    for (unsigned i = 0; i < KINDS; i++)
        all |= kinds[i];
    return all;
}

/* With one kind alone it strikes every seed. */
static unsigned choose(struct cluster *cluster)
{
    unsigned wanted[KINDS], count = 0;
    for (unsigned i = 0; i < KINDS; i++) {
        if ((cluster->options->faults & kinds[i]) != 0)
            wanted[count++] = kinds[i];
    }
    if (count == 0)
        return 0;
    bool more = (cluster->options->faults & ~wanted[0]) != 0;
    if (more && below(cluster, 100) >= STRUCK_PERCENT)
        return 0;
    return wanted[below(cluster, count)];
}

/* 5 to 100 MB/s. */
static void make_slow(struct cluster *cluster)
{
    static const double speeds[] = {0.1, 0.05, 0.02, 0.005};
    cluster->link_bytes_per_ns = speeds[below(cluster, 4)];
    cluster->value_max = BIG_VALUE_BYTES;
    cluster->lease_ns = SLOW_LEASE_NS;
    cluster->served_within_ns = SLOW_SERVED_WITHIN_NS;
    cluster->longest_ns = SLOW_LONGEST_NS;
}

void check_faults_choose(struct cluster *cluster)
{
    unsigned kind = choose(cluster);
    cluster->faults = (cluster->options->faults & ~all_kinds()) | kind;
    cluster->lease_ns = CHECK_LEASE_NS;
    cluster->memory_bytes = MEMORY_BYTES;
    cluster->value_max = CHECK_VALUE_BYTES_MAX;
    cluster->served_within_ns = CHECK_SERVED_WITHIN_NS;
    cluster->longest_ns = LONGEST_NS;
    if (kind == CHECK_FAULTS_FULL)
        cluster->memory_bytes =
            (SMALL_CHUNKS_MIN + below(cluster, SMALL_CHUNKS_MAX - SMALL_CHUNKS_MIN)) *
            POOL_CHUNK_BYTES;
    if (kind == CHECK_FAULTS_BLOBS)
        make_slow(cluster);
    /* An operation is tried again for some seconds, whoever comes behind it at a lock waits for it,
     * and all of them are to fail. */
    if (kind == CHECK_FAULTS_LOST) {
        cluster->served_within_ns = LOST_SERVED_WITHIN_NS;
        cluster->longest_ns = SLOW_LONGEST_NS;
    }
    /* With flipped bits answers may be lost and clients be killed. Where keys have owners some always are: what
     * an owner leaves to others is read after its death only. */
    unsigned with = CHECK_FAULTS_ANSWERS | CHECK_FAULTS_CRASH;
    if (kind == CHECK_FAULTS_FLIPS)
        cluster->faults = kind | (cluster->options->faults & with);
    if (kind == CHECK_FAULTS_FLIPS && cluster->options->engine->owners_co != NULL &&
        below(cluster, 2) == 0)
        cluster->faults |= CHECK_FAULTS_CRASH;
}

void check_faults_plan(struct cluster *cluster)
{
    switch (cluster->faults & all_kinds()) {
    case CHECK_FAULTS_OUTAGE:
        plan_outage(cluster);
        break;
    case CHECK_FAULTS_PAUSES:
        plan_pauses(cluster);
        break;
    case CHECK_FAULTS_LOST:
        plan_loss(cluster);
        break;
    case CHECK_FAULTS_FLIPS:
        plan_flips(cluster);
        break;
    case CHECK_FAULTS_LOCKS:
        plan_lock_losses(cluster);
        break;
    default:
        break;
    }
}

/* One, some, or many in a row, soon or later in this life. */
void check_faults_joined(struct cluster *cluster, const struct check_slot *slot, struct pool *pool)
{
    static const unsigned counts[] = {1, 3, 20};
    if ((cluster->faults & CHECK_FAULTS_ALLOC) == 0 || slot->ops_left == 0)
        return;
    uint64_t first = 1 + below(cluster, below(cluster, 2) == 0 ? 10 : 100);
    pool_fail_allocations(pool, first, 1 + below(cluster, counts[below(cluster, 3)]));
}

/* ---- flipped bits ---------------------------------------------------------------------------- */

/* A block of the table, each with the same chance; its offset, 0 if there is none. Of vital blocks only: the map
 * of owners, and their logs. */
static uint64_t some_block(struct cluster *cluster, struct fabric *fabric, bool vital,
                           uint32_t *block_bytes)
{
    uint64_t first = fabric_window_first(fabric), chosen = 0, seen = 0;
    struct pool_superblock super;
    if (fabric_self_read(fabric, first, &super, sizeof(super)) != PANDO_OK)
        return 0;
    for (uint64_t i = 0; i < super.chunks; i++) {
        uint64_t words[2], at = super.heap_offset + i * POOL_CHUNK_BYTES, word;
        if (fabric_self_read(fabric, first + POOL_CHUNK_TABLE + i * POOL_CHUNK_ENTRY_BYTES, words,
                             sizeof(words)) != PANDO_OK)
            return 0;
        struct pool_chunk chunk = pool_chunk_unpack(words[0], words[1]);
        if (vital && chunk.kind != POOL_CHUNK_VITAL)
            continue;
        for (uint32_t j = 0; j < pool_chunk_blocks(&chunk); j++) {
            uint64_t block = at + (uint64_t)j * chunk.block_bytes;
            if (fabric_self_read(fabric, block + POOL_BLOCK_TENURE, &word, sizeof(word)) ==
                    PANDO_OK &&
                pool_tenure_unpack(word).state == POOL_BLOCK_LIVE && below(cluster, ++seen) == 0) {
                chosen = block;
                *block_bytes = chunk.block_bytes;
            }
        }
    }
    return chosen;
}

/* Anything but the tenure, which is the pool's. Blocks are rarely filled to their end. */
static bool flip_block(struct cluster *cluster, bool vital)
{
    unsigned node = (unsigned)below(cluster, cluster->options->memory);
    struct fabric *fabric = cluster->memory[node].fabric;
    uint32_t block_bytes = 0;
    uint64_t block = some_block(cluster, fabric, vital, &block_bytes);

    if (block == 0)
        return false;
    uint32_t most = vital ? VITAL_HEADER_BYTES : 256;
    uint32_t within = (vital || below(cluster, 2) == 0) && block_bytes > most ? most : block_bytes;
    uint64_t byte = below(cluster, within - 8);
    byte += byte >= POOL_BLOCK_TENURE ? 8 : 0;
    fabric_sim_flip(fabric, block + byte, (uint8_t)(1 << below(cluster, 8)));
    check_trace(cluster, "a bit is flipped in memory node %u at %" PRIx64 ", byte %" PRIu64, node,
                block, byte);
    return true;
}

/* The directory's word for the root of the table. */
static bool flip_root(struct cluster *cluster)
{
    struct fabric *fabric = cluster->memory[0].fabric;
    struct pool_superblock super;
    struct pool_entry entry;
    uint64_t at;

    if (fabric_self_read(fabric, fabric_window_first(fabric), &super, sizeof(super)) != PANDO_OK)
        return false;
    for (uint64_t i = 0; i < super.groups * POOL_GROUP_ENTRIES; i++) {
        at = super.directory + i * POOL_ENTRY_BYTES;
        if (fabric_self_read(fabric, at, &entry, sizeof(entry)) != PANDO_OK)
            return false;
        if (entry.state != POOL_ENTRY_LIVE || strcmp(entry.name, CHECK_TABLE) != 0)
            continue;
        unsigned bit = (unsigned)below(cluster, 64);
        at += offsetof(struct pool_entry, root) + bit / 8;
        fabric_sim_flip(fabric, at, (uint8_t)(1 << bit % 8));
        check_trace(cluster, "bit %u of the root's word is flipped", bit);
        return true;
    }
    return false;
}

/* What a member has of the pool's own is left alone: a heartbeat, a lock word or a tenure with a flipped bit is
 * another one that is as good, and no answer is wrong or right then. */
static void flip(struct cluster *cluster)
{
    uint64_t what = below(cluster, 8);
    bool done = what == 0 ? flip_root(cluster) : what <= 2 ? flip_block(cluster, true) : false;
    cluster->result->flips += done || flip_block(cluster, false);
}

bool check_damaged(const struct cluster *cluster)
{
    return cluster->result->flips > 0 || check_lost(cluster);
}

bool check_lost(const struct cluster *cluster)
{
    return cluster->result->lost > 0;
}

/* ---- as time goes by ------------------------------------------------------------------------- */

static void tend_pause(struct cluster *cluster, struct check_pause *pause, uint64_t since_ns)
{
    if (pause->at_ns == 0 || pause->done || since_ns < pause->at_ns)
        return;
    pause->done = true;
    for (unsigned i = 0; i < cluster->options->nodes; i++) {
        struct fabric *fabric = cluster->slots[i].fabric;
        if (pause->for_ns[i] == 0 || fabric_sim_dead(fabric))
            continue;
        fabric_sim_pause(fabric, pause->for_ns[i]);
        cluster->result->pauses++;
        if (since_ns + pause->for_ns[i] > pause->end_ns)
            pause->end_ns = since_ns + pause->for_ns[i];
    }
}

static bool losing_answers(const struct cluster *cluster, uint64_t since_ns)
{
    return (cluster->faults & CHECK_FAULTS_ANSWERS) != 0 && since_ns < 2 * WITHIN_NS;
}

void check_faults_tend(struct cluster *cluster, uint64_t since_ns)
{
    fabric_sim_lose_answers(cluster->net, losing_answers(cluster, since_ns) ? LOST_ANSWERS : 0);
    tend_pause(cluster, &cluster->pause, since_ns);
    for (unsigned i = 0; i < CHECK_FLIPS_MAX; i++) {
        if (cluster->flip_at_ns[i] == 0 || since_ns < cluster->flip_at_ns[i])
            continue;
        cluster->flip_at_ns[i] = 0;
        flip(cluster);
    }
}

bool check_faults_over(const struct cluster *cluster)
{
    uint64_t since_ns = sim_now_ns(cluster->sim) - cluster->ready_ns;
    const struct check_pause *pause = &cluster->pause;

    if (losing_answers(cluster, since_ns) ||
        (pause->at_ns != 0 && (!pause->done || since_ns < pause->end_ns)))
        return false;
    for (unsigned i = 0; i < CHECK_FLIPS_MAX; i++) {
        if (cluster->flip_at_ns[i] != 0)
            return false;
    }
    for (unsigned i = 0; i < cluster->cut_count; i++) {
        if (cluster->cuts[i].state != CUT_OVER)
            return false;
    }
    for (unsigned i = 0; i < cluster->options->memory; i++) {
        const struct check_memory *memory = &cluster->memory[i];
        if ((memory->down && memory->back != BACK_NEVER) || memory->kill_ns != 0)
            return false;
    }
    return true;
}

/* ---- what everybody is at -------------------------------------------------------------------- */

void check_doing_init(struct cluster *cluster, struct check_doing *doing, uint32_t number,
                      struct fabric *fabric)
{
    *doing = (struct check_doing){.number = number, .fabric = fabric};
    list_push_back(&cluster->doings, &doing->link);
}

void check_doing_fini(struct check_doing *doing)
{
    list_remove(&doing->link);
}

void check_doing_begin(struct cluster *cluster, struct check_doing *doing, const char *what,
                       unsigned key)
{
    doing->what = what;
    doing->key = key;
    doing->since_ns = sim_now_ns(cluster->sim);
}

void check_doing_end(struct check_doing *doing)
{
    doing->what = NULL;
}

unsigned check_at_work(const struct cluster *cluster)
{
    unsigned count = 0;
    list_for_each (link, &cluster->doings)
        count += container_of(link, struct check_doing, link)->what != NULL;
    return count;
}

struct check_doing *check_doing_oldest(struct cluster *cluster, uint64_t *for_ns)
{
    struct check_doing *oldest = NULL;
    uint64_t now_ns = sim_now_ns(cluster->sim);
    list_for_each (link, &cluster->doings) {
        struct check_doing *doing = container_of(link, struct check_doing, link);
        if (doing->what == NULL || fabric_sim_dead(doing->fabric))
            continue;
        if (oldest == NULL || doing->since_ns < oldest->since_ns)
            oldest = doing;
    }
    if (oldest != NULL) {
        uint64_t from_ns =
            oldest->since_ns > cluster->healed_ns ? oldest->since_ns : cluster->healed_ns;
        *for_ns = now_ns > from_ns ? now_ns - from_ns : 0;
    }
    return oldest;
}
