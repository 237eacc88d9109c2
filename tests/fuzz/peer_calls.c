/*
 * Calls between members, hostile on either side. Either a member that owns a DEX table is called with
 * arbitrary headers and bodies, between which its own operations go on; or a member asks an owner whose
 * replies are arbitrary. Whatever comes, every operation ends in bounded time.
 * Both live on from input to input; an artifact is tried on new ones.
 *
 * The first byte chooses the side, the rest is a sequence of calls: what kind, how a sound one is damaged.
 */
#include <sys/prctl.h>

#include "base/assert.h"
#include "fuzz/input.h"
#include "owners/call_fmt.h"
#include "pool/peer_fmt.h"
#include "sim/dex_world.h"
#include "tree/dex/dex_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The worlds outlive the inputs, and what only their tasks' stacks refer to is not seen by LeakSanitizer. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}

enum {
    KEYS = 12,
    CALLS_MAX = 12,
    BODY_MAX = 2048,
    INPUTS_MAX = 1000,
    CHANGED_MAX = 16,
    KEY_BYTES = 4
};

static const struct engine_shape shape = {.key_max = 16, .value_inline = 32, .node_bytes = 4096};

static struct input input;

/* A world for each side, kept from input to input; not for long once something in it is no longer as it was. */
static struct place {
    struct dex_world world;
    bool hostile_owner;
    struct dex_member owner, other;
    struct engine *owners, *others;
    struct fabric_endpoint *endpoint; /* of the other to the owner */
    unsigned inputs;
    bool changed; /* keys were given away, or values are nonsense */
} * place, *places[2];

static struct slice key_of(uint32_t i, uint8_t *to)
{
    uint32_t big = __builtin_bswap32(i);
    memcpy(to, &big, KEY_BYTES);
    return slice_of(to, KEY_BYTES);
}

/* ---- requests -------------------------------------------------------------------------------- */

static size_t put_modify(uint8_t *to, uint8_t choice, struct slice key)
{
    struct owners_modify_request head = {.if_absent = choice % 3,
                                         .if_present = choice / 4 % 3,
                                         .blob = choice / 16 % 2,
                                         .expect = choice / 64 % 4,
                                         .key_size = (uint32_t)key.size,
                                         .value_size = choice & 16 ? 8 : input_byte(&input) % 40,
                                         .expected_size = input_byte(&input) % 16};
    memcpy(to, &head, sizeof(head));
    memcpy(to + sizeof(head), key.data, key.size);
    input_copy(&input, to + sizeof(head) + key.size, head.value_size + head.expected_size);
    return sizeof(head) + key.size + head.value_size + head.expected_size;
}

static size_t put_give(uint8_t *to, uint8_t choice, struct slice key)
{
    struct owners_give_request head = {
        .to = choice & 1   ? map_member(pool_identity(place->other.pool))
              : choice & 2 ? map_member(pool_identity(place->owner.pool))
                           : input_word(&input, 4),
        .low_size = (uint32_t)key.size,
        .high_size = choice & 4 ? OWNERS_GIVE_NO_HIGH : KEY_BYTES};
    memcpy(to, &head, sizeof(head));
    memcpy(to + sizeof(head), key.data, key.size);
    (void)key_of(input_byte(&input), to + sizeof(head) + key.size);
    return sizeof(head) + key.size + (choice & 4 ? 0 : KEY_BYTES);
}

/* A sound body for the method. */
static size_t put_body(uint8_t *to, uint16_t method, uint8_t choice)
{
    uint8_t bytes[KEY_BYTES];
    struct slice key = key_of(input_byte(&input) % (2 * KEYS), bytes);
    switch (method) {
    case OWNERS_CALL_MODIFY:
        return put_modify(to, choice, key);
    case OWNERS_CALL_GIVE:
        return put_give(to, choice, key);
    case OWNERS_CALL_LEAF:
        memset(to, 0, sizeof(struct owners_leaf_request));
        to[0] = choice & 1;
        to += sizeof(struct owners_leaf_request);
        memcpy(to, key.data, key.size);
        return sizeof(struct owners_leaf_request) + key.size;
    case OWNERS_CALL_GET:
    case OWNERS_CALL_TAKE:
        memcpy(to, key.data, key.size);
        return key.size;
    default:
        return choice % 64;
    }
}

static void call_owner_co(void)
{
    uint8_t body[BODY_MAX] = {0};
    uint8_t choice = input_byte(&input), damages = input_byte(&input);
    uint8_t *reply = malloc(FABRIC_CALL_BYTES_MAX);
    uint32_t got = 0;
    struct fabric_identity owner = pool_identity(place->owner.pool);
    struct pool_peer_request head = {.magic = POOL_PEER_MAGIC,
                                     .table = dex_of(place->owners)->table->id,
                                     .method = 1 + choice % 8,
                                     .member = owner.member,
                                     .incarnation = owner.incarnation};
    memcpy(body, &head, sizeof(head));
    size_t size = sizeof(head) + put_body(body + sizeof(head), head.method, choice / 8);
    for (unsigned i = 0; i < damages % 4; i++) {
        uint64_t at = input_byte(&input) % (damages & 4 ? 64u : size);
        body[at] = input_byte(&input);
    }
    if (damages & 0x80)
        size = input_word(&input, 2) % (sizeof(body) + 1);
    memcpy(&head, body, sizeof(head));
    enum pando_status status =
        fabric_call_co(place->endpoint, POOL_PEER_METHOD, slice_of(body, size), reply,
                       FABRIC_CALL_BYTES_MAX, &got);
    struct pool_peer_reply answer = {0};
    pando_assert(status != PANDO_OK || got >= sizeof(answer));
    if (status == PANDO_OK)
        memcpy(&answer, reply, sizeof(answer));
    place->changed |= head.method == OWNERS_CALL_GIVE && answer.status == PANDO_OK;
    free(reply);
}

/* ---- replies --------------------------------------------------------------------------------- */

static enum pando_status hostile_answer(void *context, struct pool_session *session,
                                        struct fabric_request *request)
{
    struct dex_table *table = context;
    (void)session;
    uint8_t choice = input_byte(&input);
    uint32_t size = choice % 2 == 0 ? input_byte(&input) : table->layout.page_bytes;
    memset(request->reply, 0, size);
    if (choice % 2 == 1) { /* a leaf, sound or nearly */
        struct page_header header = {.address = 0x123456, .no_high = true};
        page_init(&table->layout, &header, request->reply);
        for (uint32_t i = 0; i < choice / 8 % 4; i++) {
            uint8_t key[KEY_BYTES];
            struct page_pair pair = {.key = key_of(i, key), .value = slice_of("12345678", 8)};
            pair.blob = choice & 2;
            (void)page_push(&table->layout, request->reply, &pair);
        }
    }
    uint8_t damages = input_byte(&input);
    for (unsigned i = 0; i < damages % 8 && size > 0; i++) {
        uint64_t at = input_word(&input, 2) % size;
        request->reply[at] = input_byte(&input);
    }
    if (choice % 2 == 1 && (damages & 0x80) == 0)
        page_seal(&table->layout, request->reply);
    request->reply_size = size;
    return choice & 4 ? (enum pando_status)(input_byte(&input) % PANDO_STATUS_COUNT) : PANDO_OK;
}

static bool scanned(void *context, struct slice key, struct slice value)
{
    uint32_t *count = context;
    (void)value;
    pando_assert(key.size <= shape.key_max);
    return ++*count < 100;
}

static struct engine_change change(void *context, const struct slice *old)
{
    (void)context;
    return (struct engine_change){.what =
                                      old != NULL && old->size > 2 ? ENGINE_REMOVE : ENGINE_STORE,
                                  .value = slice_of("changed", 7)};
}

/* What comes of it depends on the replies; that it ends does not. */
static void operate_co(struct engine *engine)
{
    uint8_t bytes[KEY_BYTES], choice = input_byte(&input);
    static const uint8_t long_value[8000];
    uint8_t value[64];
    size_t size;
    uint32_t count = 0;
    struct slice key = key_of(input_byte(&input) % KEYS, bytes);
    struct engine_range range = {.low = key, .no_high = true, .reverse = choice & 0x80};
    enum pando_status status;
    switch (choice % 5) {
    case 0:
        status = engine_get_co(engine, key, value, sizeof(value), &size);
        break;
    case 1:
        status =
            engine_put_co(engine, key, slice_of(long_value, choice & 8 ? sizeof(long_value) : 5),
                          (enum engine_put)(choice / 16 % 3));
        break;
    case 2:
        status = engine_delete_co(engine, key);
        break;
    case 3:
        status = engine_scan_co(engine, &range, scanned, &count);
        break;
    default:
        status = engine_modify_co(engine, key, choice & 8, change, NULL);
        break;
    }
    pando_assert(status < PANDO_STATUS_COUNT);
}

/* ---- the two members ------------------------------------------------------------------------- */

static void owner_task(void *arg)
{
    struct dex_member *self = &place->owner;
    uint8_t key[KEY_BYTES];

    dex_join_co(arg, self);
    CHECK_OK(engine_create_co(&dex_engine, self->session, "t", &shape));
    CHECK_OK(dex_open_co(self, "t", NULL));
    CHECK_OK(engine_attach_co(self->table, self->session, &place->owners));
    for (uint32_t i = 0; i < KEYS; i++)
        CHECK_OK(engine_put_co(place->owners, key_of(i, key), slice_of("12345678", i % 8),
                               ENGINE_UPSERT));
    sim_stop(fabric_sim_world(place->world.net));
}

static void other_task(void *arg)
{
    struct dex_member *self = &place->other;
    dex_join_co(arg, self);
    if (!place->hostile_owner) {
        CHECK_OK(fabric_connect_co(arg, 0x8000, &place->endpoint));
    } else {
        struct dex_table *table = dex_of(place->owners)->table;
        CHECK_OK(dex_open_co(self, "t", NULL));
        CHECK_OK(engine_attach_co(self->table, self->session, &place->others));
        pool_answer_stop_co(place->owner.pool, table->id);
        CHECK_OK(pool_answer(place->owner.pool, table->id, hostile_answer, table));
    }
    sim_stop(fabric_sim_world(place->world.net));
}

static void leave(struct dex_member *self, struct engine *engine)
{
    if (engine != NULL) {
        engine_detach_co(engine);
        engine_close_co(self->table, self->session);
    }
    dex_leave_co(self);
}

static void owner_end_task(void *arg)
{
    (void)arg;
    leave(&place->owner, place->owners);
    sim_stop(fabric_sim_world(place->world.net));
}

static void other_end_task(void *arg)
{
    (void)arg;
    if (place->endpoint != NULL)
        fabric_disconnect_co(place->endpoint);
    leave(&place->other, place->others);
    sim_stop(fabric_sim_world(place->world.net));
}

/* Until the task ends: it does, in bounded time. */
static void run(unsigned member, rt_fn task)
{
    struct fabric *fabric = place->world.members[member];
    struct sim *world = fabric_sim_world(place->world.net);
    pando_assert(rt_spawn(fabric_sim_loop(fabric, 0), task, fabric) == PANDO_OK);
    pando_assert(sim_run(world, sim_now_ns(world) + 60 * RT_NS_PER_S) == SIM_STOPPED);
}

static void place_build(bool hostile_owner)
{
    place = calloc(1, sizeof(*place));
    pando_assert(place != NULL);
    place->hostile_owner = hostile_owner;
    dex_world_build(&place->world, 41, 9);
    run(0, owner_task);
    run(1, other_task);
}

static void place_destroy(void)
{
    struct sim *world = fabric_sim_world(place->world.net);
    run(1, other_end_task);
    run(0, owner_end_task);
    pando_assert(sim_run(world, sim_now_ns(world) + 60 * RT_NS_PER_S) == SIM_QUIET);
    fabric_sim_destroy(place->world.net);
    memnode_close(place->world.memnode);
    free(place);
}

/* ---- an input -------------------------------------------------------------------------------- */

static void calls_task(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < CALLS_MAX && input.size > 0; i++) {
        if (place->hostile_owner)
            operate_co(place->others);
        else
            call_owner_co();
    }
    sim_stop(fabric_sim_world(place->world.net));
}

/* The owner goes on; what was called for may have made its values nonsense. */
static void look_task(void *arg)
{
    struct engine_range all = {.no_high = true};
    uint32_t count = 0;
    (void)arg;
    if (engine_scan_co(place->owners, &all, scanned, &count) != PANDO_OK)
        place->changed = true;
    sim_stop(fabric_sim_world(place->world.net));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* an input touches a few small pages */
    input = (struct input){data, size};
    bool hostile_owner = input_byte(&input) & 1;
    place = places[hostile_owner];
    if (place == NULL)
        place_build(hostile_owner);
    run(1, calls_task);
    if (!hostile_owner && !place->changed)
        run(0, look_task);
    if (++place->inputs >= (place->changed ? CHANGED_MAX : INPUTS_MAX)) {
        place_destroy();
        place = NULL;
    }
    places[hostile_owner] = place;
    return 0;
}
