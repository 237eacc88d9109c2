/*
 * Intents that a dead member left, as hostile as they may be: a memory node that starts finishes them, and
 * so does a member that recovers the dead one. Sound intents are built of what the input says, with images,
 * locks and homes anywhere; then bytes of them are overwritten, and the CRC is made right again or not.
 * Whatever they say, both end in bounded time, and a memory node that refuses says so.
 */
#include "base/crc32c.h"
#include "fuzz/memory_node.h"
#include "pool/broken.h"
#include "pool/intent.h"
#include "pool/pool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLOTS = 4, INTENT_BYTES = 1024, DEAD = 5, MEMBER_NODE = 0x8000 };

static const struct fabric_identity dead = {.member = DEAD, .incarnation = 3};
static struct fabric *member;
static struct input input;
static uint64_t slots[SLOTS]; /* their offsets */

/* Places of every kind: heap, tables of the pool, locks, the fabric's own, other nodes, nowhere. */
static fabric_address any_address(void)
{
    uint8_t choice = input_byte(&input);
    uint64_t rest = input_word(&input, 3);
    switch (choice % 8) {
    case 0:
    case 1:
        return node.memnode->super.heap_offset + POOL_CHUNK_BYTES + rest % POOL_CHUNK_BYTES;
    case 2:
        return node.memnode->first + rest % 4096;
    case 3:
        return node.memnode->first + POOL_HEARTBEATS + rest % (POOL_MEMBERS * 8);
    case 4:
        return FABRIC_DEVICE + rest % MEMNODE_DEVICE_BYTES;
    case 5:
        return fabric_address_make((uint16_t)choice, rest);
    case 6:
        return slots[rest % SLOTS] + rest / SLOTS % INTENT_SLOT_BYTES;
    default:
        return rest << 24 | rest;
    }
}

static uint64_t any_word(void)
{
    uint8_t choice = input_byte(&input);
    return choice % 4 == 0 ? input_word(&input, 8) : pool_lock_word(dead, choice);
}

static void fix_crc(uint64_t pool, uint64_t slot, uint8_t *bytes)
{
    uint64_t seed[2] = {pool, slot};
    uint32_t rest;
    memcpy(&rest, bytes + 4, 4);
    if (rest > INTENT_BYTES - 8)
        return;
    uint32_t crc = crc32c(crc32c(0, seed, sizeof(seed)), bytes + 8, rest);
    memcpy(bytes, &crc, 4);
}

static void put_intent(uint64_t pool, uint64_t slot)
{
    uint8_t bytes[INTENT_BYTES] = {0}, image[128];
    struct intent_builder builder;
    uint8_t choice = input_byte(&input);
    struct intent_lock home = {.address = choice & 1 ? any_address() : 0, .word = any_word()};

    /* Most homes are held as they say. */
    if (home.address != 0 && (choice & 2) == 0)
        (void)!fabric_self_write(node.fabric, fabric_address_offset(home.address), &home.word, 8);
    intent_begin(&builder, bytes, sizeof(bytes), home);
    for (unsigned i = 0; i < choice / 4 % 4; i++) {
        fabric_address address = any_address();
        intent_add_lock(&builder, (struct intent_lock){address, any_word()});
    }
    for (unsigned i = 0; i < choice / 16 % 4; i++) {
        size_t size = input_byte(&input) % sizeof(image);
        fabric_address address = any_address();
        input_copy(&input, image, size);
        intent_add_image(&builder, address, slice_of(image, size));
    }
    (void)intent_finish(&builder, pool, slot);
    uint8_t damages = input_byte(&input);
    for (unsigned i = 0; i < damages % 4; i++) {
        uint64_t at = input_word(&input, 2) % sizeof(bytes);
        bytes[at] = input_byte(&input);
    }
    if ((damages & 0x80) == 0)
        fix_crc(pool, slot, bytes);
    pando_assert(fabric_self_write(node.fabric, slot, bytes, sizeof(bytes)) == PANDO_OK);
}

/* Slots with intents of the dead member's. */
static void leave_intents(void)
{
    struct pool_grant_request request = {
        .block_bytes = INTENT_SLOT_BLOCK, .blocks_max = 1, .kind = POOL_CHUNK_VITAL};
    struct pool_tenure tenure = {
        .state = POOL_BLOCK_FREE, .kind = INTENT_SLOT_KIND, .holder = dead};
    uint64_t word = pool_tenure_pack(tenure);
    for (unsigned i = 0; i < SLOTS; i++) {
        struct pool_grant_reply reply = {0};
        struct pool_block block;
        pando_assert(memnode_grant(node.memnode, dead, &request, &reply, &block) == PANDO_OK);
        uint64_t at = fabric_address_offset(block.address);
        pando_assert(fabric_self_write(node.fabric, at + POOL_BLOCK_TENURE, &word, 8) == PANDO_OK);
        slots[i] = at + INTENT_SLOT_AT;
    }
    for (unsigned i = 0; i < SLOTS && input.size > 0; i++)
        put_intent(node.memnode->super.pool_id, slots[i]);
}

/* new-incarnation (R16) */
static void restart(void)
{
    node_close();
    enum pando_status status = node_open();
    pando_assert(status == PANDO_OK || status == PANDO_CORRUPT || status == PANDO_VERSION ||
                 status == PANDO_INVALID);
}

/* member-recovery (R14) */
static void recover(void *arg)
{
    struct pool_options options = {.memory_nodes = 1, .name = "fuzz", .lease_ns = 2 * RT_NS_PER_MS};
    struct pool_heartbeat beat = {.state = POOL_ALIVE, .incarnation = dead.incarnation};
    uint64_t word = pool_heartbeat_pack(beat);
    struct pool *pool;
    struct pool_session *session;
    char error[256];

    pando_assert(pool_join_co(arg, &options, &pool, error, sizeof(error)) == PANDO_OK);
    pando_assert(pool_session_open_co(pool, &session) == PANDO_OK);
    leave_intents();
    pando_assert(fabric_self_write(node.fabric, node.memnode->first + POOL_HEARTBEATS + DEAD * 8,
                                   &word, sizeof(word)) == PANDO_OK);
    pool_broken.judge = true; /* nobody waits for a lease here */
    enum pando_status status = pool_recover_co(session, dead);
    pando_assert(status < PANDO_STATUS_COUNT);
    pool_session_close_co(session);
    pool_leave_co(pool);
}

static void build(void)
{
    struct fabric_sim_node_options options = {
        .node = MEMBER_NODE, .target = FABRIC_COMPUTE, .host_bytes = 1 << 20, .threads = 1};
    node_build();
    pando_assert(fabric_sim_add(node.net, &options, &member) == PANDO_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (node.net == NULL)
        build();
    node_forget();
    pando_assert(node_open() == PANDO_OK);
    input = (struct input){data, size};
    if (input_byte(&input) & 1) {
        leave_intents();
        restart();
    } else {
        node_run_on(member, recover);
    }
    if (node.memnode != NULL)
        node_close();
    return 0;
}
