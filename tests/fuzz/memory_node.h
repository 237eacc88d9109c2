/*
 * memory_node.h - a memory node in a simulated world that many inputs are tried on: its window is as
 * good as new for each of them, and each runs as a task of the node.
 */
#ifndef TESTS_FUZZ_MEMORY_NODE_H
#define TESTS_FUZZ_MEMORY_NODE_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/fabric_int.h"
#include "fabric/sim/fabric_sim.h"
#include "fabric/window/window.h"
#include "fuzz/input.h"
#include "pool/memnode_int.h"
#include "tree/dex/pushdown/memory_side.h"

enum { FUZZ_CHUNKS = 6 };

static struct {
    struct fabric_sim *net;
    struct fabric *fabric;
    struct memnode *memnode;
    uint8_t fabrics_own[WINDOW_FIRST]; /* of a new window */
} node;

/* Formats the window, or finds in it what is there. */
static inline enum pando_status node_open(void)
{
    struct memnode_options options = {.seed = 100, .work = dex_memory_pushdown};
    char error[256];
    return memnode_open(node.fabric, &options, &node.memnode, error, sizeof(error));
}

static inline void node_close(void)
{
    memnode_close(node.memnode);
    node.memnode = NULL;
}

static inline void node_build(void)
{
    struct fabric_sim_options options = {.seed = 5, .model = sim_nic_model("cx5")};
    struct fabric_sim_node_options self = {.target = FABRIC_MEMORY,
                                           .host_bytes = (FUZZ_CHUNKS + 1) * POOL_CHUNK_BYTES,
                                           .device_bytes = MEMNODE_DEVICE_BYTES,
                                           .threads = 1};
    log_set_level(LOG_LEVEL_ERROR);
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* an input touches a few small pages */
    node.net = fabric_sim_create(&options);
    pando_assert(node.net != NULL);
    pando_assert(fabric_sim_add(node.net, &self, &node.fabric) == PANDO_OK);
    memcpy(node.fabrics_own, node.fabric->window->base, WINDOW_FIRST);
}

/* The pages that the last input touched are given back: zeroes again. */
static inline void node_forget(void)
{
    const struct window *window = node.fabric->window;
    pando_assert(madvise(window->base, window->mapped_bytes, MADV_DONTNEED) == 0);
    memcpy(window->base, node.fabrics_own, WINDOW_FIRST);
}

/* Until nothing is left to do: whatever it is, it ends. */
static inline void node_run_on(struct fabric *fabric, rt_fn main)
{
    struct sim *world = fabric_sim_world(node.net);
    pando_assert(rt_spawn(fabric_sim_loop(fabric, 0), main, fabric) == PANDO_OK);
    pando_assert(sim_run(world, sim_now_ns(world) + 3600 * RT_NS_PER_S) == SIM_QUIET);
    pando_assert(sim_live_tasks(world) == 0);
}

#endif
