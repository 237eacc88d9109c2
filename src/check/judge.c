/*
 * judge.c - making the table, and judging what is left when all clients are gone.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "check/check_int.h"
#include "check/faults.h"
#include "owners/map_fmt.h"
#include "pool/block_fmt.h"

enum {
    JUDGE = 9999, /* as the number of a client */
    ALONE_TRIES = 400,
    NODE_DOUBLINGS = 5,
    /* What an operation that was cut short may leave behind for good. */
    LEFT_NODES = 3,
    LEFT_BLOBS = 2,
    BLOB_EXTRA_BYTES = 128,
};

/* ---- as a member of the pool ----------------------------------------------------------------- */

struct judge {
    struct cluster *cluster;
    struct pool *pool;
    struct pool_session *session;
    struct engine_table *table;
    struct check_actor actor;
    uint64_t census_bytes;
    bool corrupt; /* its last reads met damage */
    bool sound;   /* says the engine's verify */
};

static bool judge_join_co(struct judge *judge, struct cluster *cluster)
{
    char error[256] = "";
    struct pool_options options = {.memory_nodes = (uint16_t)cluster->options->memory,
                                   .name = "judge",
                                   .lease_ns = cluster->lease_ns,
                                   .no_recovery = cluster->options->no_recovery};
    *judge = (struct judge){.cluster = cluster};
    enum pando_status status =
        pool_join_co(cluster->checker, &options, &judge->pool, error, sizeof(error));
    if (status != PANDO_OK) {
        if (!check_lost(cluster))
            check_violate(cluster, "the judge cannot join the pool: %s", error);
        return false;
    }
    status = pool_session_open_co(judge->pool, &judge->session);
    if (status == PANDO_OK)
        return true;
    if (!check_lost(cluster))
        check_violate(cluster, "the judge cannot open a session: %s", pando_status_text(status));
    pool_leave_co(judge->pool);
    return false;
}

static bool judge_open_co(struct judge *judge)
{
    struct cluster *cluster = judge->cluster;
    struct engine_config config = {.without = cluster->options->without,
                                   .with = cluster->options->with,
                                   .cache_bytes = cluster->cache_bytes};
    struct engine *engine;
    char error[256] = "";
    enum pando_status status = engine_open_co(cluster->options->engine, judge->session, CHECK_TABLE,
                                              &config, &judge->table, error, sizeof(error));
    if (status == PANDO_OK) {
        status = engine_attach_co(judge->table, judge->session, &engine);
        if (status != PANDO_OK)
            engine_close_co(judge->table, judge->session);
    }
    if (status != PANDO_OK) {
        judge->table = NULL;
        if (check_lost(cluster) || (status == PANDO_CORRUPT && check_damaged(cluster)))
            cluster->result->corrupt += status == PANDO_CORRUPT;
        else
            check_violate(cluster, "the judge cannot open the table: %s",
                          error[0] != '\0' ? error : pando_status_text(status));
        return false;
    }
    judge->actor = (struct check_actor){
        .cluster = cluster, .number = JUDGE, .fabric = cluster->checker, .engine = engine};
    check_doing_init(cluster, &judge->actor.doing, JUDGE, cluster->checker);
    return true;
}

static void judge_close_co(struct judge *judge)
{
    if (judge->table != NULL) {
        check_doing_begin(judge->cluster, &judge->actor.doing, "close", 0);
        engine_detach_co(judge->actor.engine);
        engine_close_co(judge->table, judge->session);
        check_doing_fini(&judge->actor.doing);
    }
    judge->table = NULL;
}

static void judge_leave_co(struct judge *judge)
{
    judge_close_co(judge);
    pool_session_close_co(judge->session);
    pool_leave_co(judge->pool);
}

/* ---- setting up ------------------------------------------------------------------------------ */

/* In nodes that are as small as the engine can have them. */
static bool create_table_co(struct judge *judge)
{
    struct cluster *cluster = judge->cluster;
    struct engine_shape shape = cluster->shape;
    enum pando_status status = PANDO_INVALID;
    for (int i = 0; i < NODE_DOUBLINGS && status != PANDO_OK; i++) {
        shape = cluster->shape;
        shape.node_bytes <<= i;
        status = engine_create_co(cluster->options->engine, judge->session, CHECK_TABLE, &shape);
        if (status != PANDO_INVALID && status != PANDO_TOO_LARGE)
            break;
    }
    cluster->shape.node_bytes = shape.node_bytes;
    if (status == PANDO_OK)
        return true;
    check_violate(cluster, "the table cannot be created: %s", pando_status_text(status));
    return false;
}

static void preload_co(struct judge *judge)
{
    struct cluster *cluster = judge->cluster;
    unsigned percent = cluster->preload_percent;
    if (percent == 0)
        return;
    if (cluster->preload_bulk) {
        check_load_co(&judge->actor, percent,
                      CHECK_FILL_MIN + (unsigned)(rt_random() % (101 - CHECK_FILL_MIN)));
        return;
    }
    for (unsigned key = 0; key < cluster->key_count; key++) {
        if (rt_random() % 100 < percent)
            (void)check_put_co(&judge->actor, key, ENGINE_UPSERT);
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Until everybody else is gone: left, or recovered. */
static void wait_alone_co(struct judge *judge)
{
    struct pool_member *members = calloc(POOL_MEMBERS, sizeof(*members));
    unsigned count = 0;
    pando_assert(members != NULL);
    for (int i = 0; i < ALONE_TRIES; i++) {
        enum pando_status status = pool_members_co(judge->session, members, POOL_MEMBERS, &count);
        if (status == PANDO_OK && count == 1)
            break;
        if (status == PANDO_FENCED) {
            check_violate(judge->cluster, "the judge was fenced, and it was never silent");
            break;
        }
        rt_sleep_co(judge->cluster->lease_ns / 2);
    }
    free(members);
    if (count != 1)
        check_violate(judge->cluster,
                      "%u dead members were not recovered in %d leases after the last client ended",
                      count > 0 ? count - 1 : 0, ALONE_TRIES / 2);
}

static void verify_co(struct judge *judge)
{
    struct cluster *cluster = judge->cluster;
    struct engine_census census;
    char error[512] = "";
    check_doing_begin(cluster, &judge->actor.doing, "verify", 0);
    enum pando_status status = engine_verify_co(judge->actor.engine, &census, error, sizeof(error));
    check_doing_end(&judge->actor.doing);
    judge->census_bytes = census.bytes;
    judge->sound = status == PANDO_OK;
    if (judge->sound && judge->corrupt)
        check_violate(cluster, "a table that answers CORRUPT is sound, says its verify");
    else if (status != PANDO_OK && !(status == PANDO_CORRUPT && check_damaged(cluster)))
        check_violate(cluster, "the table's structure is damaged: %s",
                      error[0] != '\0' ? error : pando_status_text(status));
    check_trace(cluster,
                "census %" PRIu64 " nodes, %" PRIu64 " leaves, %" PRIu64 " pairs, %" PRIu64
                " bytes",
                census.nodes, census.leaves, census.pairs, census.bytes);
}

/* Once with caches from the beginning, once with empty ones. What a scan meets no get has repaired
 * before. */
static void final_reads_co(struct judge *judge)
{
    struct cluster *cluster = judge->cluster;
    bool reverse = cluster->options->seed % 2 == 1;
    judge->actor.alone = true;
    uint64_t corrupt = cluster->result->corrupt;
    (void)check_scan_all_co(&judge->actor, reverse);
    (void)check_scan_all_co(&judge->actor, !reverse);
    for (unsigned key = 0; key < cluster->key_count; key++)
        (void)check_get_co(&judge->actor, key);
    judge->corrupt = cluster->result->corrupt > corrupt;
    judge->actor.alone = false;
}

/* ---- windows, when nobody is a member -------------------------------------------------------- */

static void window_read(struct cluster *cluster, struct fabric *fabric, uint64_t offset, void *to,
                        size_t size)
{
    memset(to, 0, size);
    if (fabric_self_read(fabric, offset, to, size) != PANDO_OK)
        check_violate(cluster, "cannot look into memory node %u at %" PRIx64, fabric_self(fabric),
                      offset);
}

static void check_locks(struct cluster *cluster, struct fabric *fabric)
{
    static uint64_t words[POOL_LOCKS];
    window_read(cluster, fabric, FABRIC_DEVICE, words, sizeof(words));
    for (unsigned i = 0; i < POOL_LOCKS; i++) {
        if (!pool_lock_free(words[i]))
            check_violate(cluster,
                          "lock %u of memory node %u is still held in the end, by member %u", i,
                          fabric_self(fabric), pool_lock_owner(words[i]).member);
    }
}

static void check_members(struct cluster *cluster, struct fabric *fabric)
{
    static uint64_t beats[POOL_MEMBERS];
    window_read(cluster, fabric, fabric_window_first(fabric) + POOL_HEARTBEATS, beats,
                sizeof(beats));
    for (unsigned i = 1; i < POOL_MEMBERS; i++) {
        if (pool_heartbeat_unpack(beats[i]).state != POOL_FREE)
            check_violate(cluster, "member %u is still there in the end", i);
    }
}

struct memory_use {
    uint64_t live_bytes;   /* parts of tables */
    uint64_t nobody_bytes; /* in the hands of members that are no more */
    uint64_t nobody_blocks;
    uint64_t maps; /* of owners */
};

static void count_chunk(struct cluster *cluster, struct fabric *fabric, uint64_t at,
                        const struct pool_chunk *chunk, struct memory_use *use)
{
    for (uint32_t block = 0; block < pool_chunk_blocks(chunk); block++) {
        uint64_t word, offset = at + (uint64_t)block * chunk->block_bytes;
        window_read(cluster, fabric, offset + POOL_BLOCK_TENURE, &word, sizeof(word));
        struct pool_tenure tenure = pool_tenure_unpack(word);
        if (tenure.state == POOL_BLOCK_LIVE) {
            use->live_bytes += chunk->block_bytes;
            use->maps += tenure.kind == MAP_KIND;
        } else if (tenure.state == POOL_BLOCK_RAW || tenure.holder.member != 0) {
            use->nobody_bytes += chunk->block_bytes;
            use->nobody_blocks++;
        }
    }
}

static void count_memory(struct cluster *cluster, struct fabric *fabric, struct memory_use *use)
{
    uint64_t first = fabric_window_first(fabric);
    struct pool_superblock super;
    window_read(cluster, fabric, first, &super, sizeof(super));
    for (uint64_t i = 0; i < super.chunks; i++) {
        uint64_t words[2];
        window_read(cluster, fabric, first + POOL_CHUNK_TABLE + i * POOL_CHUNK_ENTRY_BYTES, words,
                    sizeof(words));
        struct pool_chunk chunk = pool_chunk_unpack(words[0], words[1]);
        uint64_t at = super.heap_offset + i * POOL_CHUNK_BYTES;
        count_chunk(cluster, fabric, at, &chunk, use);
    }
}

/* Every operation whose outcome nobody was told, and every task that was at work when something
 * failed, may have left as much as one operation takes. Without faults that is nothing.
 *
 * A flipped bit in a value that is then overwritten leaves that value: what cannot be read is not freed.
 *
 * A lost answer alone allows nothing. Whoever writes or frees a block connects again, so that nothing of the
 * list arrives any more (rule failed-lists-linger), and repeats it; whoever replaces a map finds
 * out which of the two blocks is left to be freed (map_swap_co). An operation that ends with an
 * error all the same is counted as such.
 *
 * Whoever dies between writing a map of owners and freeing the one it replaced leaves one of the two, which may be
 * larger than many pages: one for each process and event, as far as there are such blocks. */
static uint64_t leak_bound(const struct cluster *cluster, const struct memory_use *use)
{
    const struct check_options *options = cluster->options;
    const struct check_result *result = cluster->result;
    uint64_t events =
        result->kills + result->pauses + result->cuts + result->restarts * options->nodes;
    uint64_t operations =
        result->failed + events * options->threads * options->tasks + result->flips;
    uint64_t blobs = cluster->shape.value_size != 0
                         ? 0
                         : LEFT_BLOBS * (2 * cluster->value_max + BLOB_EXTRA_BYTES);
    uint64_t maps = use->maps > 1 ? use->maps - 1 : 0;
    maps = maps < events ? maps : events;
    return operations * (LEFT_NODES * (uint64_t)cluster->shape.node_bytes + blobs) +
           maps * MAP_BYTES;
}

static struct memory_use memory_use_co(struct cluster *cluster)
{
    struct memory_use use = {0};
    rt_sleep_co(RT_NS_PER_MS); /* until every CPU has seen every WRITE */
    for (unsigned i = 0; i < cluster->options->memory; i++)
        count_memory(cluster, cluster->memory[i].fabric, &use);
    if (use.nobody_blocks > 0)
        check_violate(cluster,
                      "memory was not taken back: %" PRIu64 " blocks (%" PRIu64
                      " bytes) belong to members that are gone",
                      use.nobody_blocks, use.nobody_bytes);
    return use;
}

static void check_windows_co(struct cluster *cluster, uint64_t census_bytes, bool sound)
{
    struct check_result *result = cluster->result;
    struct memory_use use = memory_use_co(cluster);
    for (unsigned i = 0; i < cluster->options->memory; i++)
        check_locks(cluster, cluster->memory[i].fabric);
    check_members(cluster, cluster->memory[0].fabric);
    if (!sound)
        return; /* what it refers to is not known */
    if (use.live_bytes < census_bytes)
        check_violate(cluster,
                      "the table has %" PRIu64 " bytes, but only %" PRIu64
                      " are marked as in use: others would be given away",
                      census_bytes, use.live_bytes);
    result->leaked_bytes = use.live_bytes > census_bytes ? use.live_bytes - census_bytes : 0;
    result->leaked_bound_bytes = leak_bound(cluster, &use);
    if (result->leaked_bytes > result->leaked_bound_bytes)
        check_violate(cluster,
                      "memory leaked: %" PRIu64
                      " bytes are marked as in use, the table has %" PRIu64
                      "; a difference of up to %" PRIu64 " would be allowed",
                      use.live_bytes, census_bytes, result->leaked_bound_bytes);
}

/* ---- the whole story ------------------------------------------------------------------------- */

/* A dropped table leaves nothing but what had leaked before. */
static void drop_co(struct cluster *cluster, bool sound)
{
    struct judge judge;
    if (!judge_join_co(&judge, cluster))
        return;
    if (judge_open_co(&judge)) {
        check_doing_begin(cluster, &judge.actor.doing, "drop", 0);
        engine_detach_co(judge.actor.engine);
        enum pando_status status = engine_drop_co(judge.table, judge.session);
        if (status != PANDO_OK && !(status == PANDO_CORRUPT && check_damaged(cluster)))
            check_violate(cluster, "the table cannot be dropped: %s", pando_status_text(status));
        engine_close_co(judge.table, judge.session);
        check_doing_fini(&judge.actor.doing);
        judge.table = NULL;
    }
    judge_leave_co(&judge);
    struct memory_use use = memory_use_co(cluster);
    if (sound && use.live_bytes > cluster->result->leaked_bytes)
        check_violate(cluster,
                      "%" PRIu64 " bytes are marked as in use after the table was dropped, %" PRIu64
                      " of them were not part of it before",
                      use.live_bytes, cluster->result->leaked_bytes);
}

/* Where the pool got full, also its reserve may be used up by what waits for its grace period: of blocks that a
 * member gives back in the middle of it, or that are swept, the node waits for a whole one. */
static void await_room_co(const struct judge *judge)
{
    if (judge->cluster->result->full > 0)
        rt_sleep_co(2 * pool_grace_ns(judge->pool) + 2 * CHECK_LEASE_NS);
}

/* Whoever was a member when a lock table was lost ends and joins again (rule resolve-unknown), the
 * judge, too. */
static bool judge_rejoin_co(struct judge *judge)
{
    struct cluster *cluster = judge->cluster;
    if (cluster->result->lock_tables == 0)
        return true;
    cluster->result->recoveries += pool_recoveries(judge->pool);
    judge_leave_co(judge);
    return judge_join_co(judge, cluster);
}

static void judge_co(struct cluster *cluster)
{
    struct judge judge;

    if (!judge_join_co(&judge, cluster)) {
        cluster->over = true;
        return;
    }
    if (!create_table_co(&judge) || !judge_open_co(&judge)) {
        cluster->over = true;
        judge_leave_co(&judge);
        return;
    }
    preload_co(&judge);
    /* Where keys have owners, these shall be the clients: they can die. */
    judge_close_co(&judge);
    cluster->ready = true;
    while (!cluster->over)
        rt_sleep_co(CHECK_LEASE_NS / 2);
    if (!judge_rejoin_co(&judge))
        return;
    if (!check_lost(cluster))
        wait_alone_co(&judge);
    await_room_co(&judge);
    if (!cluster->result->violated && judge_open_co(&judge))
        final_reads_co(&judge);
    cluster->result->recoveries += pool_recoveries(judge.pool);
    judge_leave_co(&judge);

    if (cluster->result->violated || !judge_join_co(&judge, cluster))
        return;
    if (judge_open_co(&judge)) {
        final_reads_co(&judge);
        if (!check_lost(cluster))
            verify_co(&judge);
    }
    judge_leave_co(&judge);
    if (cluster->result->violated || check_lost(cluster))
        return;
    check_windows_co(cluster, judge.census_bytes, judge.sound);
    drop_co(cluster, judge.sound);
}

void check_judge_task(void *arg)
{
    struct cluster *cluster = arg;
    judge_co(cluster);
    cluster->judged = true;
}
