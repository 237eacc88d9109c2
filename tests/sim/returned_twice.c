/*
 * A client that writes its name into the tenures of blocks it has returned has them taken back once more by a
 * sweep: the memory node does not count more blocks of a chunk than there are.
 */
#include "pool/block_fmt.h"
#include "pool/pool_int.h"
#include "sim/dex_world.h"

enum { BLOCK = 128 * 1024, BLOCKS = POOL_CHUNK_BYTES / BLOCK, RETURNED = BLOCKS - 1 };

static struct dex_world place;
static unsigned done;

static void claim_co(struct dex_member *self, const struct pool_block *block)
{
    uint64_t word = pool_tenure_pack(
        (struct pool_tenure){.state = POOL_BLOCK_FREE, .holder = pool_identity(self->pool)});
    struct fabric_op write = fabric_write(fabric_address_offset(block->address) + POOL_BLOCK_TENURE,
                                          &word, sizeof(word));
    CHECK_OK(pool_submit_co(self->session, 0, &write, 1));
}

static void member_task(void *arg)
{
    struct pool_block blocks[BLOCKS];
    struct {
        struct pool_return_request head;
        struct pool_block blocks[RETURNED];
    } request = {.head = {.blocks = RETURNED}};
    struct dex_member self;
    struct pool_node_stats stats;

    memnode_stats(place.memnode, &stats);
    uint64_t before = stats.chunks_free;
    dex_join_co(arg, &self);
    for (unsigned i = 0; i < BLOCKS; i++) {
        CHECK_OK(pool_alloc_co(self.session, 0, BLOCK, &blocks[i]));
        claim_co(&self, &blocks[i]);
    }
    memcpy(request.blocks, blocks, sizeof(request.blocks));
    memcpy(request.head.pass, self.pool->pass.seal, sizeof(request.head.pass));
    CHECK_OK(fabric_call_co(pool_endpoint(self.session, 0), POOL_RETURN,
                            slice_of(&request, sizeof(request)), NULL, 0, NULL));
    for (unsigned i = 0; i < RETURNED; i++)
        claim_co(&self, &blocks[i]);
    struct pool_sweep_request sweep = {.member = pool_identity(self.pool).member,
                                       .incarnation = pool_identity(self.pool).incarnation};
    memcpy(sweep.pass, self.pool->pass.seal, sizeof(sweep.pass));
    CHECK_OK(fabric_call_co(pool_endpoint(self.session, 0), POOL_SWEEP,
                            slice_of(&sweep, sizeof(sweep)), NULL, 0, NULL));
    dex_leave_co(&self);
    memnode_stats(place.memnode, &stats);
    /* They are held, so that the chunk is not free yet. */
    CHECK_EQ_U64(stats.blocks_free_bytes, POOL_CHUNK_BYTES);
    CHECK_EQ_U64(stats.chunks_free, before - 1);
    done++;
}

int main(void)
{
    dex_world_build(&place, 51, 9);
    dex_world_run(&place, member_task, NULL);
    CHECK_EQ_U64(done, 1);
    return 0;
}
