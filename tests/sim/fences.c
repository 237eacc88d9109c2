/*
 * A member slot that was fenced goes on being used for more than two laps of the incarnations, and at no
 * point does anything of a fenced incarnation get in.
 */
#include "base/log.h"
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"
#include "lib/fence.h"

enum { MEMBER = 5, LIVES = 2 * 65536 + 40000, FENCE_EVERY = 45000, LOOK_EVERY = 1000 };

static struct fabric *memory, *client, *recoverer;
static bool done;

static struct fabric_endpoint *connect_as_co(unsigned life)
{
    struct fabric_endpoint *endpoint;
    fabric_set_identity(client, (struct fabric_identity){MEMBER, (uint16_t)life});
    CHECK_OK(fabric_connect_co(client, 0, &endpoint));
    fabric_note_member(memory,
                       (struct fabric_identity){MEMBER, (uint16_t)life}); /* as by its pass */
    return endpoint;
}

static void refused_co(unsigned life)
{
    struct fabric_endpoint *endpoint;
    fabric_set_identity(client, (struct fabric_identity){MEMBER, (uint16_t)life});
    CHECK_STATUS(fabric_connect_co(client, 0, &endpoint), PANDO_FENCED);
}

/* Lives one after another: most leave, some are fenced with their endpoint still open. */
static void lives_task(void *arg)
{
    (void)arg;
    struct fabric_endpoint *judge;
    uint64_t word = 0, at = fabric_window_first(memory);
    unsigned fenced = 0;

    CHECK_OK(fabric_connect_co(recoverer, 0, &judge));
    CHECK_OK(fence_co(judge, (struct fabric_identity){MEMBER + 1, 0}));
    for (unsigned life = 1; life <= LIVES; life++) {
        struct fabric_endpoint *endpoint = connect_as_co(life);
        struct fabric_op read = fabric_read(at, &word, sizeof(word));
        CHECK_OK(fabric_submit_co(endpoint, &read, 1));
        if (life % FENCE_EVERY == 100) {
            struct fabric_op write = fabric_write(at, &life, sizeof(life));
            CHECK_OK(fence_co(judge, (struct fabric_identity){MEMBER, (uint16_t)life}));
            CHECK_STATUS(fabric_submit_co(endpoint, &write, 1), PANDO_FENCED);
            fenced = life;
            refused_co(life);
        }
        fabric_disconnect_co(endpoint);
        if (fenced != 0 && life % LOOK_EVERY == 0 && life - fenced < 32768)
            refused_co(fenced);
        if (fenced != 0 && life - fenced > 32768)
            CHECK(fabric_fenced(memory, (struct fabric_identity){MEMBER, (uint16_t)(life - 1)}));
    }
    CHECK_OK(fabric_submit_co(
        judge,
        &(struct fabric_op){
            .kind = FABRIC_READ, .size = sizeof(word), .offset = at, .read_to = &word},
        1));
    CHECK(word == 0); /* no fenced life has written */
    fabric_disconnect_co(judge);
    done = true;
}

int main(void)
{
    struct fabric_sim_options options = {.seed = 3, .model = sim_nic_model("cx5")};
    struct fabric_sim *net = fabric_sim_create(&options);
    struct fabric_sim_node_options node = {
        .target = FABRIC_MEMORY, .host_bytes = 1 << 20, .threads = 1};
    CHECK_OK(fabric_sim_add(net, &node, &memory));
    node.node = 0x8001;
    node.target = FABRIC_COMPUTE;
    CHECK_OK(fabric_sim_add(net, &node, &client));
    node.node = 0x8002;
    CHECK_OK(fabric_sim_add(net, &node, &recoverer));

    CHECK_OK(rt_spawn(fabric_sim_loop(client, 0), lives_task, NULL));
    CHECK(sim_run(fabric_sim_world(net), 3600 * RT_NS_PER_S) == SIM_QUIET);
    CHECK(done);
    /* A window that nobody of that slot has connected to for long: seeing the lives is enough. */
    struct fabric_identity late = {MEMBER + 1, 0};
    for (unsigned life = 1; life <= LIVES; life++) {
        late.incarnation = (uint16_t)life;
        CHECK(!fabric_fenced(memory, late));
        fabric_note_member(memory, late);
    }
    fabric_sim_destroy(net);
    return 0;
}
