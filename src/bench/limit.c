/*
 * limit.c - the raw rate of the one-sided operations that a perfect engine would need
 * for the same workload, by as many clients on the same pool:
 *
 *   a read    a READ of one leaf-sized block
 *   a write   a list [CAS of a lock, READ of the block], then a list [WRITE of a pair, WRITE of the
 *             lock]
 *   a scan    READs of as many blocks as its pairs fill, at once
 *
 * Clients draw their operations as they do for the engine, so that both are after the same keys with
 * the same popularity, and pay the same for drawing them; a key's block is where it lies among all
 * keys. Blocks are allocated for this, by the first thread of each compute node for all of it, so nothing
 * of the table is touched. Locks are those of the blocks and are respected: somebody's table may
 * share them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_int.h"
#include "pool/lab.h"

enum {
    SIM_BLOCKS = 1024, /* of a compute node; a simulated memory has no caches */
    SCAN_LEAVES_MAX = 64,
    PAIR_OFFSET = 64, /* behind the part of a block that belongs to the pool */
};

static const uint64_t REAL_BYTES_MAX = (uint64_t)256 << 20;

struct bench_limit {
    struct pool_block *blocks;
    uint32_t count;
    uint8_t *buffers; /* for each client, as many leaves as a scan reads */
    uint32_t leaves_per_client, clients;
};

static uint32_t scan_leaves(const struct bench_plan *plan)
{
    uint32_t leaves = (plan->scan_length + plan->pairs_per_leaf - 1) / plan->pairs_per_leaf;
    return leaves == 0 ? 1 : leaves > SCAN_LEAVES_MAX ? SCAN_LEAVES_MAX : leaves;
}

static uint32_t blocks_wanted(const struct bench_thread *thread)
{
    const struct bench_plan *plan = thread->run->plan;
    if (env_simulated(thread->run->env))
        return SIM_BLOCKS;
    uint64_t most = REAL_BYTES_MAX / plan->shape.node_bytes;
    uint64_t leaves = plan->space.records / plan->pairs_per_leaf + 1;
    uint64_t wanted = leaves < most ? leaves : most;
    return wanted < SIM_BLOCKS ? SIM_BLOCKS : (uint32_t)wanted;
}

/* A block, and its pages made present. */
static enum pando_status block_co(struct bench_thread *thread, const uint8_t *zeroes,
                                  struct pool_block *block)
{
    uint32_t bytes = thread->run->plan->shape.node_bytes;
    enum pando_status status = pool_alloc_co(thread->session, POOL_ANY_NODE, bytes, block);
    if (status != PANDO_OK)
        return status;
    struct fabric_op write = fabric_write(fabric_address_offset(block->address) + PAIR_OFFSET,
                                          zeroes, bytes - PAIR_OFFSET);
    return pool_lab_submit_co(thread->session, block->address, &write, 1);
}

bool bench_limit_open_co(struct bench_thread *thread)
{
    const struct bench_plan *plan = thread->run->plan;
    uint32_t wanted = blocks_wanted(thread);
    struct bench_limit *limit = calloc(1, sizeof(*limit));
    if (limit == NULL)
        return false;
    thread->node->limit = limit;
    limit->leaves_per_client = scan_leaves(plan);
    limit->clients = plan->threads * plan->coroutines;
    limit->blocks = calloc(wanted, sizeof(*limit->blocks));
    size_t bytes = (size_t)limit->clients * limit->leaves_per_client * plan->shape.node_bytes;
    limit->buffers = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (limit->blocks == NULL || limit->buffers == NULL)
        return false;
    memset(limit->buffers, 0, bytes);
    while (limit->count < wanted &&
           block_co(thread, limit->buffers, &limit->blocks[limit->count]) == PANDO_OK)
        limit->count++;
    return limit->count > 0;
}

void bench_limit_close_co(struct bench_thread *thread)
{
    struct bench_limit *limit = thread->node->limit;
    uint32_t bytes = thread->run->plan->shape.node_bytes;
    if (limit == NULL)
        return;
    enum pando_status status = PANDO_OK;
    /* A memory node that does not answer is waited for once, not for every block: the rest is swept
     * when this member is gone. */
    for (uint32_t i = 0; limit->blocks != NULL && i < limit->count && status == PANDO_OK; i++) {
        struct pool_block block = limit->blocks[i];
        block.version++;
        status = pool_free_co(thread->session, &block, bytes, false);
    }
    free(limit->blocks);
    free(limit->buffers);
    free(limit);
    thread->node->limit = NULL;
}

/* ---- operations ------------------------------------------------------------------------------ */

static uint64_t block_of(const struct bench_client *client, uint64_t position)
{
    const struct bench_limit *limit = client->thread->node->limit;
    uint64_t positions = client->thread->run->plan->space.positions;
    uint64_t index = (uint64_t)((__uint128_t)(position % positions) * limit->count / positions);
    return limit->blocks[index].address;
}

static uint8_t *buffer_of(struct bench_client *client, uint32_t leaf)
{
    const struct bench_limit *limit = client->thread->node->limit;
    uint32_t bytes = client->thread->run->plan->shape.node_bytes;
    size_t number = (size_t)client->thread->place->thread * client->thread->run->plan->coroutines +
                    client->index;
    return limit->buffers + (number * limit->leaves_per_client + leaf) * (size_t)bytes;
}

/* Posts a list and waits for it, without what the pool does besides for those who go on after a failure: here
 * a failure ends the measurement. */
static enum pando_status raw_list_co(struct bench_client *client, uint64_t block,
                                     struct fabric_op *ops, uint32_t count)
{
    struct fabric_list list = {.ops = ops, .count = count};
    fabric_post(pool_lab_endpoint(client->thread->session, block), &list);
    return fabric_wait_co(&list);
}

static enum pando_status raw_read_co(struct bench_client *client, uint64_t block)
{
    struct fabric_op read = fabric_read(fabric_address_offset(block), buffer_of(client, 0),
                                        client->thread->run->plan->shape.node_bytes);
    return raw_list_co(client, block, &read, 1);
}

static enum pando_status raw_write_co(struct bench_client *client, uint64_t block)
{
    struct bench_thread *thread = client->thread;
    const struct bench_plan *plan = thread->run->plan;
    uint64_t zero = 0;
    uint64_t lock = fabric_address_offset(pool_lock_for(thread->node->pool, block));
    uint8_t *buffer = buffer_of(client, 0);
    struct fabric_op ops[] = {
        fabric_cas(lock, 0, pool_lock_new_word(thread->node->pool)),
        fabric_read(fabric_address_offset(block), buffer, plan->shape.node_bytes),
    };
    enum pando_status status = raw_list_co(client, block, ops, 2);
    if (status != PANDO_OK)
        return status;
    bool taken = ops[0].old == 0;
    ops[0] = fabric_write(fabric_address_offset(block) + PAIR_OFFSET, buffer, plan->update_bytes);
    ops[1] = fabric_write(lock, &zero, sizeof(zero));
    return raw_list_co(client, block, ops, taken ? 2 : 1);
}

static enum pando_status raw_scan_co(struct bench_client *client, uint64_t position)
{
    struct bench_thread *thread = client->thread;
    const struct bench_plan *plan = thread->run->plan;
    struct fabric_list lists[SCAN_LEAVES_MAX];
    struct fabric_op reads[SCAN_LEAVES_MAX];
    uint32_t count = thread->node->limit->leaves_per_client;
    enum pando_status status = PANDO_OK;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t block = block_of(client, position + (uint64_t)i * plan->pairs_per_leaf);
        reads[i] =
            fabric_read(fabric_address_offset(block), buffer_of(client, i), plan->shape.node_bytes);
        lists[i] = (struct fabric_list){.ops = &reads[i], .count = 1};
        fabric_post(pool_lab_endpoint(thread->session, block), &lists[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        enum pando_status done = fabric_wait_co(&lists[i]);
        status = status == PANDO_OK ? done : status;
    }
    return status;
}

void bench_limit_main(void *arg)
{
    struct bench_client *client = arg;
    struct bench_thread *thread = client->thread;
    const struct bench_plan *plan = thread->run->plan;
    enum pando_status status = PANDO_OK;
    struct workload_op op;

    while (!thread->stop && status == PANDO_OK) {
        if (!workload_next(&client->limit_work, &op)) {
            bench_client_draw_anew(client);
            if (!workload_next(&client->limit_work, &op))
                break;
        }
        if (op.none) {
            rt_sleep_co(BENCH_IDLE_NS);
            continue;
        }
        workload_key(op.position, op.serial, client->key_word, plan->shape.key_size);
        if (op.kind == WORKLOAD_SCAN)
            status = raw_scan_co(client, op.position);
        else if (workload_kind_writes(op.kind))
            status = raw_write_co(client, block_of(client, op.position));
        else
            status = raw_read_co(client, block_of(client, op.position));
        thread->done += thread->counting;
    }
    if (status != PANDO_OK)
        bench_fail(thread->run, "limit: %s", pando_status_text(status));
    rt_countdown_done(&thread->left);
}

void bench_limit_text(const struct bench_plan *plan, char *out, size_t out_bytes)
{
    const uint8_t *percent = plan->workload->percent;
    uint32_t bytes = plan->shape.node_bytes;
    char parts[3][96];
    unsigned count = 0;

    if (percent[WORKLOAD_READ] > 0)
        snprintf(parts[count++], sizeof(parts[0]), "READ %u", bytes);
    if (percent[WORKLOAD_SCAN] > 0)
        snprintf(parts[count++], sizeof(parts[0]), "%u x READ %u", scan_leaves(plan), bytes);
    if (percent[WORKLOAD_READ] + percent[WORKLOAD_SCAN] < 100)
        snprintf(parts[count++], sizeof(parts[0]), "CAS + READ %u, then WRITE %u + WRITE 8", bytes,
                 plan->update_bytes);
    snprintf(out, out_bytes, "%s%s%s", parts[0], count > 1 ? " or " : "",
             count > 1 ? parts[1] : "");
}
