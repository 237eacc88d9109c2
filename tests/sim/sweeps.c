/*
 * fence-ticket (R61): memory is taken back from its holder, from the dead, and from a table that is being
 * dropped, by members only, whatever those claim who connect.
 */
#include "pool/call_fmt.h"
#include "pool/pool_int.h"
#include "sim/numbered.h"
#include "sim/pool_world.h"
#include "tree/sherman/sherman.h"

enum { MEMORIES = 2, CLIENTS = 3, KEYS = 3000, FAR = 20000, BLOCK = 65536 };

static const uint64_t LEASE_NS = 200 * RT_NS_PER_MS;

static struct pool_world place;
static bool done;

struct member {
    struct pool *pool;
    struct pool_session *session;
    struct fabric_identity identity;
};

static struct member join_co(unsigned client)
{
    struct member self;
    self.pool = pool_world_join_co(&place, place.clients[client], &self.session);
    self.identity = pool_identity(self.pool);
    return self;
}

/* ---- the table ------------------------------------------------------------------------------- */

static struct engine_table *table;
static struct engine *engine;
static struct pool_entry entry;

static void entry_read_co(struct member *self)
{
    unsigned slot;
    CHECK_OK(pool_table_open_co(self->session, "t", &slot, &entry));
}

static void table_make_co(struct member *self)
{
    struct engine_config config = {.cache_bytes = 1 << 20};
    struct number_feed feed = {.end = KEYS};
    char error[256] = "";
    CHECK_OK(engine_create_co(&sherman_engine, self->session, "t", &number_shape));
    CHECK_OK(
        engine_open_co(&sherman_engine, self->session, "t", &config, &table, error, sizeof(error)));
    CHECK_OK(engine_attach_co(table, self->session, &engine));
    CHECK_OK(engine_bulk_load_co(engine, number_feed_next, &feed, 90));
    entry_read_co(self);
}

static void table_verify_co(void)
{
    struct engine_census census;
    char error[256] = "";
    if (engine_verify_co(engine, &census, error, sizeof(error)) != PANDO_OK)
        CHECK_FAIL("the table is damaged: %s", error);
    CHECK_EQ_U64(census.pairs, KEYS);
    CHECK_EQ_U64(census.damaged, 0);
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct pool_sweep_request sweep_of_table(const struct fabric_ticket *pass)
{
    struct pool_sweep_request request = {.table = (uint32_t)entry.table};
    memcpy(request.pass, pass->seal, sizeof(request.pass));
    return request;
}

static struct pool_sweep_request sweep_of_member(struct fabric_identity who,
                                                 const struct fabric_ticket *pass)
{
    struct pool_sweep_request request = {.member = who.member, .incarnation = who.incarnation};
    memcpy(request.pass, pass->seal, sizeof(request.pass));
    return request;
}

static enum pando_status sweep_co(struct fabric_endpoint *endpoint,
                                  const struct pool_sweep_request *request)
{
    return fabric_call_co(endpoint, POOL_SWEEP, slice_of(request, sizeof(*request)), NULL, 0, NULL);
}

static enum pando_status return_co(struct fabric_endpoint *endpoint, const struct pool_block *block,
                                   const struct fabric_ticket *pass)
{
    struct {
        struct pool_return_request head;
        struct pool_block block;
    } request = {.head = {.blocks = 1}, .block = *block};
    memcpy(request.head.pass, pass->seal, sizeof(request.head.pass));
    return fabric_call_co(endpoint, POOL_RETURN, slice_of(&request, sizeof(request)), NULL, 0,
                          NULL);
}

/* ---- who never joined ------------------------------------------------------------------------ */

/* All that one can ask for who connects as `who` from that compute node, and shows what it has. */
static void refused_co(unsigned client, struct fabric_identity who,
                       const struct fabric_ticket *pass, struct member *honest,
                       const struct pool_block *block)
{
    for (uint16_t node = 0; node < MEMORIES; node++) {
        struct fabric_endpoint *endpoint;
        struct pool_sweep_request requests[] = {
            sweep_of_table(pass),
            sweep_of_member(honest->identity, pass),
            sweep_of_member(who, pass),
        };
        CHECK_OK(fabric_connect_co(place.clients[client], node, &endpoint));
        for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
            CHECK_STATUS(sweep_co(endpoint, &requests[i]), PANDO_DENIED);
        CHECK_STATUS(return_co(endpoint, block, pass), PANDO_DENIED);
        fabric_disconnect_co(endpoint);
    }
}

/* Nobody, and one whose slot is free. */
static void strangers_co(struct member *honest, const struct pool_block *block,
                         const struct fabric_ticket *former)
{
    const struct fabric_ticket none = {0};
    const struct fabric_ticket *const passes[] = {&none, &honest->pool->pass, former};
    const struct fabric_identity claims[] = {{0, 0}, {77, FAR}};
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        fabric_set_identity(place.clients[2], claims[i]);
        for (size_t j = 0; j < sizeof(passes) / sizeof(passes[0]); j++)
            refused_co(2, claims[i], passes[j], honest, block);
    }
}

/* With the identities of members that live, without their passes: none, or one of an earlier time. The
 * simulator lets no other process connect as these. */
static void impostors_co(struct member *honest, struct member *self, const struct pool_block *block,
                         const struct fabric_ticket *former)
{
    const struct fabric_ticket none = {0};
    struct fabric_endpoint *endpoint;

    refused_co(0, honest->identity, &none, honest, block);
    refused_co(0, honest->identity, former, honest, block);
    refused_co(1, self->identity, &none, honest, block);
    refused_co(1, self->identity, former, honest, block);
    fabric_set_identity(place.clients[2], former->who); /* from before */
    CHECK(fabric_connect_co(place.clients[2], 0, &endpoint) != PANDO_OK);
}

/* ---- who joined, and is confused ------------------------------------------------------------- */

static void sweep_refused_co(struct member *self, const struct pool_sweep_request *request)
{
    for (uint16_t node = 0; node < MEMORIES; node++)
        CHECK_STATUS(sweep_co(pool_endpoint(self->session, node), request), PANDO_DENIED);
}

/* It may take back its own memory, and no living member's and no table's that it does not drop. */
static void confused_co(struct member *self, struct member *honest)
{
    struct pool_sweep_request request = sweep_of_member(honest->identity, &self->pool->pass);
    struct fabric_ticket seal;

    sweep_refused_co(self, &request);
    request = sweep_of_member(self->identity, &self->pool->pass);
    request.incarnation++;
    sweep_refused_co(self, &request);
    request = sweep_of_table(&self->pool->pass);
    for (uint32_t slot = 0; slot < pool_tables_max(self->pool) + 2; slot++) {
        request.slot = slot;
        CHECK_STATUS(sweep_co(pool_endpoint(self->session, 0), &request), PANDO_DENIED);
    }
    /* What node 0 says of other tables and other members. */
    CHECK_OK(
        fabric_seal_make_drop(place.memory[0], self->identity, (uint32_t)entry.table + 1, &seal));
    memcpy(request.drop, seal.seal, sizeof(request.drop));
    sweep_refused_co(self, &request);
    CHECK_OK(
        fabric_seal_make_drop(place.memory[0], honest->identity, (uint32_t)entry.table, &seal));
    memcpy(request.drop, seal.seal, sizeof(request.drop));
    sweep_refused_co(self, &request);
    memcpy(request.drop, request.pass, sizeof(request.drop));
    sweep_refused_co(self, &request);
    CHECK_STATUS(pool_table_sweep_co(self->session, 0, (uint16_t)entry.table), PANDO_DENIED);
}

/* ---- what is as it should be ----------------------------------------------------------------- */

static uint64_t blocks_free_co(struct member *self)
{
    uint64_t all = 0;
    for (uint16_t node = 0; node < MEMORIES; node++) {
        struct pool_node_stats stats;
        CHECK_OK(pool_node_stats_co(self->session, node, &stats));
        all += stats.chunks_free * POOL_CHUNK_BYTES + stats.blocks_free_bytes;
    }
    return all;
}

/* Only the one that drops it, also with a pass that nobody takes any more, as after a change of secrets. */
static void drop_co(struct member *self, struct member *other)
{
    unsigned slot;
    uint64_t number, before = blocks_free_co(self);

    engine_detach_co(engine);
    engine_close_co(table, self->session);
    CHECK_OK(pool_table_mark_co(self->session, "t", &slot, &number));
    CHECK_EQ_U64(number, entry.table);
    CHECK_STATUS(pool_table_sweep_co(other->session, slot, (uint16_t)number), PANDO_DENIED);
    CHECK_EQ_U64(blocks_free_co(self), before);
    self->pool->pass.seal[0] ^= 1;
    CHECK_OK(pool_table_sweep_co(self->session, slot, (uint16_t)number));
    CHECK(blocks_free_co(self) >= before + (uint64_t)KEYS * 16);
    CHECK_OK(pool_table_remove_co(self->session, slot, number));
    CHECK_STATUS(pool_table_sweep_co(self->session, slot, (uint16_t)number), PANDO_DENIED);
}

static void task(void *arg)
{
    struct pool_block block;
    (void)arg;
    struct member honest = join_co(0), self = join_co(1);
    struct fabric_ticket former = self.pool->pass;
    pool_world_leave_co(self.pool, self.session);
    self = join_co(1);
    CHECK_EQ_U64(self.identity.member, former.who.member);

    table_make_co(&honest);
    CHECK_OK(pool_alloc_co(honest.session, 0, BLOCK, &block));
    uint64_t before = blocks_free_co(&self);
    strangers_co(&honest, &block, &former);
    impostors_co(&honest, &self, &block, &former);
    confused_co(&self, &honest);
    CHECK_EQ_U64(blocks_free_co(&self), before);
    table_verify_co();
    CHECK(!pool_fenced(honest.pool) && !pool_fenced(self.pool));
    CHECK_OK(pool_free_co(honest.session, &block, BLOCK, false));
    drop_co(&honest, &self);
    pool_world_leave_co(honest.pool, honest.session);
    pool_world_leave_co(self.pool, self.session);
    done = true;
}

int main(void)
{
    struct pool_world_options options = {.net = {.seed = 1},
                                         .memnode = {.seed = 31},
                                         .memories = MEMORIES,
                                         .clients = CLIENTS,
                                         .memory_bytes = 42 << 20,
                                         .lease_ns = LEASE_NS};
    pool_world_build(&place, &options);
    pool_world_spawn(&place, 2, task);
    CHECK(pool_world_ends(&place, 60 * RT_NS_PER_S));
    CHECK(done);
    pool_world_destroy(&place);
    return 0;
}
