/*
 * Datagrams: lost, doubled and overtaken as often as was asked for, and never more than that.
 */
#include "fabric/sim/fabric_sim.h"
#include "lib/check.h"

enum { COUNT = 5000 };

static unsigned seen[COUNT], received, overtaken, last;

static void on_datagram(void *context, uint16_t from, struct slice bytes)
{
    unsigned number;
    (void)context;
    CHECK(from == 1 && bytes.size == sizeof(number));
    memcpy(&number, bytes.data, sizeof(number));
    CHECK(number < COUNT);
    seen[number]++;
    received++;
    overtaken += number < last;
    last = number;
}

static void send_task(void *arg)
{
    static uint8_t large[FABRIC_SIM_DATAGRAM_MAX + 1];
    for (unsigned i = 0; i < COUNT; i++) {
        CHECK_OK(fabric_sim_datagram(arg, 2, slice_of(&i, sizeof(i))));
        rt_sleep_co(200);
    }
    CHECK_STATUS(fabric_sim_datagram(arg, 2, slice_of(large, sizeof(large))), PANDO_TOO_LARGE);
    CHECK_STATUS(fabric_sim_datagram(arg, 77, slice_of(large, 1)), PANDO_NOT_FOUND);
}

static void run(double loss, double duplicate)
{
    struct fabric_sim_options options = {
        .seed = 3,
        .model = sim_nic_model("cx5"),
        .chaos = {.datagram_loss = loss, .datagram_duplicate = duplicate}};
    struct fabric_sim *net = fabric_sim_create(&options);
    struct fabric *nodes[2];
    for (uint16_t i = 0; i < 2; i++) {
        struct fabric_sim_node_options node = {.node = (uint16_t)(i + 1),
                                               .target = FABRIC_COMPUTE,
                                               .host_bytes = 1 << 20,
                                               .threads = 1};
        CHECK_OK(fabric_sim_add(net, &node, &nodes[i]));
    }
    memset(seen, 0, sizeof(seen));
    received = overtaken = last = 0;
    fabric_sim_on_datagram(nodes[1], on_datagram, NULL);
    CHECK_OK(rt_spawn(fabric_sim_loop(nodes[0], 0), send_task, nodes[0]));
    CHECK(sim_run(fabric_sim_world(net), RT_NEVER) == SIM_QUIET);
    fabric_sim_destroy(net);
}

int main(void)
{
    run(0, 0);
    for (unsigned i = 0; i < COUNT; i++)
        CHECK(seen[i] == 1);
    CHECK(overtaken > 0);

    run(0.2, 0.1);
    unsigned lost = 0, doubled = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        CHECK(seen[i] <= 2);
        lost += seen[i] == 0;
        doubled += seen[i] == 2;
    }
    CHECK(lost > COUNT * 15 / 100 && lost < COUNT * 25 / 100);
    CHECK(doubled > COUNT * 5 / 100 && doubled < COUNT * 11 / 100);
    return 0;
}
