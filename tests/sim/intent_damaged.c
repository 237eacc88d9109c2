/*
 * A dead member's intent that cannot be read is left out by whoever recovers the member, and counted; one that can
 * be read is not.
 */
#include <stdlib.h>

#include "pool/intent.h"
#include "pool/pool_int.h"
#include "sim/dex_world.h"

static struct {
    struct fabric *dying, *memory;
    fabric_address slots[2];
    bool written, done;
} world;

static void dying_task(void *arg)
{
    struct dex_member self;
    struct intent_builder builder;
    struct pool_lock lock;
    uint64_t image[8] = {1};
    uint8_t *buffer = aligned_alloc(8, POOL_INTENT_BYTES);

    dex_join_co(arg, &self);
    fabric_address object =
        fabric_address_make(0, pool_superblock(self.pool, 0)->heap_offset + 8 * POOL_CHUNK_BYTES);
    CHECK_OK(pool_lock_co(self.session, pool_lock_for(self.pool, object), &lock));
    for (unsigned i = 0; i < 2; i++) {
        CHECK_OK(pool_intent_take_co(self.session, 0, &world.slots[i]));
        intent_begin(&builder, buffer, POOL_INTENT_BYTES,
                     (struct intent_lock){lock.address, lock.word});
        intent_add_image(&builder, object + 64 * i, slice_of(image, sizeof(image)));
        struct fabric_op write =
            fabric_write(fabric_address_offset(world.slots[i]), buffer,
                         (uint32_t)intent_finish(&builder, pool_id(self.pool), world.slots[i]));
        CHECK_OK(pool_submit_co(self.session, 0, &write, 1));
    }
    free(buffer);
    world.written = true;
    while (!fabric_sim_dead(world.dying))
        rt_sleep_co(LEASE_NS);
    dex_leave_co(&self);
}

static void heir_task(void *arg)
{
    struct dex_member self;

    dex_join_co(arg, &self);
    while (!world.written)
        rt_sleep_co(LEASE_NS);
    fabric_sim_flip(world.memory, fabric_address_offset(world.slots[0]) + 40, 4);
    fabric_sim_kill(world.dying);
    while (pool_recoveries(self.pool) == 0)
        rt_sleep_co(LEASE_NS);
    CHECK_EQ_U64(pool_unreadable_intents(self.pool), 1);
    dex_leave_co(&self);
    world.done = true;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 3, 17);
    world.dying = place.members[0];
    world.memory = place.memory;
    dex_world_run(&place, dying_task, heir_task);
    CHECK(world.done);
    return 0;
}
