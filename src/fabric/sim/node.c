/*
 * node.c - the network, its machines, the processes on them, and their faults.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "fabric/sim/sim_int.h"

static const uint64_t BREAK_NS = 100 * RT_NS_PER_US;
static const uint64_t CALL_NS = 2 * RT_NS_PER_S;

struct fabric_sim *fabric_sim_create(const struct fabric_sim_options *options)
{
    struct fabric_sim *net = calloc(1, sizeof(*net));
    if (net == NULL)
        return NULL;
    struct sim_options world = {
        .seed = options->seed,
        .shuffle = options->shuffle,
        .race_probability = options->race_probability,
        .race_delay_ns = options->chaos.spread_ns,
        .stall_probability = options->stall_probability,
        .stall_ns = options->stall_ns,
    };
    memcpy(world.costs, options->model->costs, sizeof(world.costs));
    net->options = *options;
    net->model = *options->model;
    if (net->options.break_ns == 0)
        net->options.break_ns = BREAK_NS;
    if (net->options.call_ns == 0)
        net->options.call_ns = CALL_NS;
    list_init(&net->machines);
    list_init(&net->processes);
    list_init(&net->transfers);
    list_init(&net->free_transfers);
    list_init(&net->rpcs);
    list_init(&net->cuts);
    net->sim = sim_create(&world);
    if (net->sim == NULL) {
        free(net);
        return NULL;
    }
    return net;
}

static void process_free(struct process *process)
{
    struct list *link;
    while ((link = list_pop_front(&process->endpoints)) != NULL)
        free(container_of(link, struct endpoint, link));
    free(process->loops);
    free(process->base.kept);
    free(process);
}

static void machine_free(struct machine *machine)
{
    sim_late_flush(machine, 0);
    window_unmap(&machine->window);
    free(machine->port.bucket_free);
    free(machine);
}

void fabric_sim_destroy(struct fabric_sim *net)
{
    struct list *link;
    sim_transfers_destroy(net);
    sim_rpcs_destroy(net);
    while ((link = list_pop_front(&net->cuts)) != NULL)
        free(container_of(link, struct link_cut, link));
    sim_destroy(net->sim);
    while ((link = list_pop_front(&net->processes)) != NULL)
        process_free(container_of(link, struct process, link));
    while ((link = list_pop_front(&net->machines)) != NULL)
        machine_free(container_of(link, struct machine, link));
    free(net);
}

struct sim *fabric_sim_world(struct fabric_sim *net)
{
    return net->sim;
}

/* ---- machines and processes ---------------------------------------------------------------------
 */

static struct process *process_create(struct fabric_sim *net, struct machine *machine,
                                      enum fabric_target target, unsigned threads, uint32_t life)
{
    struct process *process = calloc(1, sizeof(*process));
    if (process == NULL)
        return NULL;
    fabric_init(&process->base, &sim_fabric_ops, machine->node, target);
    process->base.window = &machine->window;
    process->base.window_bytes = machine->window.host_bytes;
    process->base.device_bytes = machine->window.device_bytes;
    /* All nodes know each other; it says that there is something to be reached. */
    snprintf(process->base.location, sizeof(process->base.location), "sim:%u", machine->node);
    process->net = net;
    process->machine = machine;
    process->life = life;
    process->threads = threads;
    list_init(&process->endpoints);
    process->loops = calloc(threads, sizeof(*process->loops));
    if (process->loops == NULL)
        goto err;
    for (unsigned i = 0; i < threads; i++) {
        process->loops[i] = sim_loop_create(machine->clock);
        if (process->loops[i] == NULL)
            goto err;
    }
    process->base.home = process->loops[0];
    list_push_back(&net->processes, &process->link);
    machine->process = process;
    return process;

err:
    free(process->loops);
    free(process);
    return NULL;
}

/* Repeats with the seed, and is another one in every life without memory. */
static uint64_t machine_window_id(const struct fabric_sim *net, uint16_t node, uint32_t life)
{
    return hash_u64(net->options.seed ^ hash_u64((uint64_t)node << 32 | life)) | 1;
}

enum pando_status fabric_sim_add(struct fabric_sim *net,
                                 const struct fabric_sim_node_options *options, struct fabric **out)
{
    pando_assert(options->threads > 0);
    if (net->by_node[options->node] != NULL)
        return PANDO_EXISTS;
    if (options->device_bytes > net->model.device_bytes)
        return PANDO_TOO_LARGE;
    struct machine *machine = calloc(1, sizeof(*machine));
    if (machine == NULL)
        return PANDO_NO_MEMORY;
    machine->node = options->node;
    list_init(&machine->late_writes);
    machine->clock = sim_node_create(net->sim);
    machine->port.bucket_free = calloc((size_t)net->model.buckets * 2, sizeof(double));
    if (machine->clock == NULL || machine->port.bucket_free == NULL)
        goto err_free;
    if (window_map_private(&machine->window, options->node, options->host_bytes,
                           options->device_bytes) != PANDO_OK)
        goto err_free;
    window_set_id(&machine->window, machine_window_id(net, options->node, 1));
    struct process *process = process_create(net, machine, options->target, options->threads, 1);
    if (process == NULL)
        goto err_window;
    list_push_back(&net->machines, &machine->link);
    net->by_node[options->node] = machine;
    *out = &process->base;
    return PANDO_OK;

err_window:
    window_unmap(&machine->window);
err_free:
    free(machine->port.bucket_free);
    free(machine);
    return PANDO_NO_MEMORY;
}

static struct process *process_of(const struct fabric *fabric)
{
    return container_of(fabric, struct process, base);
}

struct rt_loop *fabric_sim_loop(struct fabric *fabric, unsigned thread)
{
    struct process *process = process_of(fabric);
    pando_assert(thread < process->threads);
    return process->loops[thread];
}

unsigned fabric_sim_threads(struct fabric *fabric)
{
    return process_of(fabric)->threads;
}

struct sim_node *fabric_sim_machine(struct fabric *fabric)
{
    return process_of(fabric)->machine->clock;
}

static enum pando_status sim_add_peer(struct fabric *fabric, uint16_t node,
                                      enum fabric_target target, const char *location)
{
    (void)target;
    (void)location;
    return process_of(fabric)->net->by_node[node] == NULL ? PANDO_NOT_FOUND : PANDO_OK;
}

/* The world owns everything; a closed process only stops being heard of. */
static void sim_close(struct fabric *fabric)
{
    process_of(fabric)->base.handler = NULL;
}

const struct fabric_ops sim_fabric_ops = {
    .add_peer = sim_add_peer,
    .connect_co = sim_connect_co,
    .disconnect_co = sim_disconnect_co,
    .reconnect_co = sim_reconnect_co,
    .post = sim_post,
    .call_co = sim_call_co,
    .fence_co = sim_fence_co,
    .self_read = sim_self_read,
    .self_write = sim_self_write,
    .renew_co = sim_renew_co,
    .fence_own_co = sim_fence_own_co,
    .close = sim_close,
};

/* ---- faults ---------------------------------------------------------------------------------- */

bool fabric_sim_dead(const struct fabric *fabric)
{
    return process_of(fabric)->dead;
}

uint64_t fabric_sim_posted(const struct fabric *fabric)
{
    return process_of(fabric)->posted;
}

void fabric_sim_kill(struct fabric *fabric)
{
    struct process *dead = process_of(fabric);
    struct fabric_sim *net = dead->net;

    if (dead->dead)
        return;
    sim_trace(net->sim, "kill", dead->base.node, dead->life, dead->posted);
    dead->dead = true;
    sim_transfers_of_dead(dead);
    list_for_each (link, &dead->endpoints)
        sim_endpoint_break(container_of(link, struct endpoint, link));
    sim_rpcs_of_dead(dead);
    list_for_each (process_link, &net->processes) {
        struct process *other = container_of(process_link, struct process, link);
        list_for_each (link, &other->endpoints) {
            struct endpoint *endpoint = container_of(link, struct endpoint, link);
            if (endpoint->target == dead->machine)
                sim_endpoint_break_later(endpoint);
        }
    }
}

void fabric_sim_kill_at(struct fabric *fabric, uint64_t k)
{
    process_of(fabric)->kill_at = k;
}

void fabric_sim_pause_at(struct fabric *fabric, uint64_t k, uint64_t duration_ns)
{
    process_of(fabric)->pause_at = k;
    process_of(fabric)->pause_ns = duration_ns;
}

void fabric_sim_pause(struct fabric *fabric, uint64_t duration_ns)
{
    struct process *process = process_of(fabric);
    sim_trace(process->net->sim, "pause", process->base.node, duration_ns, process->posted);
    sim_node_pause(process->machine->clock, sim_now_ns(process->net->sim) + duration_ns);
}

uint64_t sim_process_posts(struct process *process)
{
    struct fabric_sim *net = process->net;
    const struct fabric_sim_chaos *chaos = &net->options.chaos;
    uint64_t late_ns = 0;

    process->posted++;
    if (chaos->delay > 0 && prng_chance(sim_prng(net->sim), chaos->delay))
        late_ns = prng_below(sim_prng(net->sim), chaos->delay_ns + 1);
    if (process->pause_at != 0 && process->posted == process->pause_at) {
        fabric_sim_pause(&process->base, process->pause_ns);
        if (prng_chance(sim_prng(net->sim), 0.7))
            late_ns += prng_below(sim_prng(net->sim), process->pause_ns + 1);
    }
    if (process->kill_at != 0 && process->posted == process->kill_at)
        fabric_sim_kill(&process->base);
    return late_ns;
}

enum pando_status fabric_sim_restart(struct fabric *fabric, bool keep, struct fabric **out)
{
    struct process *dead = process_of(fabric);
    struct machine *machine = dead->machine;

    pando_assert(dead->dead && machine->process == dead);
    sim_late_flush(machine, 0);
    if (!keep) {
        uint64_t host_bytes = machine->window.host_bytes;
        uint64_t device_bytes = machine->window.device_bytes;
        window_unmap(&machine->window);
        enum pando_status status =
            window_map_private(&machine->window, machine->node, host_bytes, device_bytes);
        if (status != PANDO_OK)
            return status;
        window_set_id(&machine->window,
                      machine_window_id(dead->net, machine->node, dead->life + 1));
    }
    struct process *process =
        process_create(dead->net, machine, dead->base.target, dead->threads, dead->life + 1);
    if (process == NULL)
        return PANDO_NO_MEMORY;
    sim_trace(dead->net->sim, "restart", machine->node, process->life, keep);
    *out = &process->base;
    return PANDO_OK;
}

void fabric_sim_lose_device(struct fabric *restarted)
{
    struct process *process = process_of(restarted);
    struct window *window = &process->machine->window;
    uint8_t *device = window_at(window, FABRIC_DEVICE, (uint32_t)window->device_bytes);
    pando_assert(device != NULL);
    memset(device, 0, window->device_bytes);
    process->base.device_lost = true;
    sim_trace(process->net->sim, "lose", process->base.node, process->life, 0);
}

static struct link_cut *cut_find(const struct fabric_sim *net, uint16_t a, uint16_t b)
{
    list_for_each (link, &net->cuts) {
        struct link_cut *cut = container_of(link, struct link_cut, link);
        if ((cut->a == a && cut->b == b) || (cut->a == b && cut->b == a))
            return cut;
    }
    return NULL;
}

bool sim_linked(const struct fabric_sim *net, const struct machine *a, const struct machine *b)
{
    return list_empty(&net->cuts) || cut_find(net, a->node, b->node) == NULL;
}

bool sim_silent(const struct fabric_sim *net, const struct machine *a, const struct machine *b)
{
    const struct link_cut *cut = cut_find(net, a->node, b->node);
    return cut != NULL && cut->silent;
}

unsigned fabric_sim_unheard(const struct fabric_sim *net)
{
    return net->unheard;
}

void fabric_sim_lose_answers(struct fabric_sim *net, double chance)
{
    net->answers_lost = chance;
}

void fabric_sim_lose_answer(struct fabric_sim *net, uint64_t number)
{
    net->answer_lost = number;
}

static void cut_add(struct fabric_sim *net, uint16_t a, uint16_t b, bool silent)
{
    if (cut_find(net, a, b) != NULL)
        return;
    struct link_cut *cut = calloc(1, sizeof(*cut));
    pando_assert(cut != NULL);
    cut->a = a;
    cut->b = b;
    cut->silent = silent;
    list_push_back(&net->cuts, &cut->link);
    sim_trace(net->sim, "cut", a, b, silent);
}

void fabric_sim_cut(struct fabric_sim *net, uint16_t a, uint16_t b)
{
    cut_add(net, a, b, false);
}

void fabric_sim_silence(struct fabric_sim *net, uint16_t a, uint16_t b)
{
    cut_add(net, a, b, true);
}

void fabric_sim_heal(struct fabric_sim *net, uint16_t a, uint16_t b)
{
    struct link_cut *cut = cut_find(net, a, b);
    if (cut == NULL)
        return;
    list_remove(&cut->link);
    free(cut);
    sim_trace(net->sim, "heal", a, b, 0);
    sim_transfers_release(net);
}

void fabric_sim_flip(struct fabric *fabric, uint64_t offset, uint8_t bits)
{
    struct process *process = process_of(fabric);
    uint8_t *byte = window_at(&process->machine->window, offset, 1);
    pando_assert(byte != NULL);
    sim_late_flush(process->machine, 0); /* so that no CPU sees the byte as it was */
    sim_trace(process->net->sim, "flip", fabric->node, offset, bits);
    __atomic_fetch_xor(byte, bits, __ATOMIC_SEQ_CST);
}
