/*
 * cluster.c - the simulated cluster of one seed, and what befalls it.
 */
#include "check/check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "check/check_int.h"
#include "check/faults.h"
#include "pool/pool_fmt.h"
#include "store/engines.h"

enum {
    CPU_COST_NS = 50,
    FIXED_KEY_BYTES = 8,
    VARIABLE_KEY_BYTES = 16,
    CACHE_BYTES = 4096,
    LONGEST_PAUSE_LEASES = 5, /* beyond its lease; at eight a process ends itself */
    INTERMISSION_SEEDS = 8,   /* one in so many has one */
    SLOW_OPS = 200,           /* at most, where values are large or many operations fail */
    BLOB_KEYS = 24,           /* at most, where values are large */
};

static const uint64_t COMPUTE_BYTES = 64 << 10;       /* as without --window */
static const uint64_t JANITOR_NS = 30 * RT_NS_PER_US; /* as long as faults may begin */
static const uint64_t JANITOR_LATE_NS = RT_NS_PER_MS;
static const uint64_t FAULTS_WITHIN_NS = 2 * CHECK_LEASE_NS;
static const double STALLS = 0.2;
static const uint64_t STALL_NS = 2 * RT_NS_PER_MS;

void check_violate(struct cluster *cluster, const char *format, ...)
{
    struct check_result *result = cluster->result;
    va_list arguments;
    if (result->violated)
        return;
    result->violated = true;
    va_start(arguments, format);
    vsnprintf(result->text, sizeof(result->text), format, arguments);
    va_end(arguments);
    check_trace(cluster, "VIOLATION %s", result->text);
}

void check_trace(struct cluster *cluster, const char *format, ...)
{
    va_list arguments;
    if (!cluster->options->trace)
        return;
    printf("%12.3f us ", (double)sim_now_ns(cluster->sim) / 1000);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

static void trace_event(void *context, uint64_t now_ns, const char *what, uint64_t a, uint64_t b,
                        uint64_t c)
{
    (void)context;
    printf("%12.3f us %-8s %llx %llx %llx\n", (double)now_ns / 1000, what, (unsigned long long)a,
           (unsigned long long)b, (unsigned long long)c);
}

/* ---- keys and shape -------------------------------------------------------------------------- */

static uint64_t below(struct cluster *cluster, uint64_t bound)
{
    return prng_below(&cluster->prng, bound);
}

static bool chance(struct cluster *cluster, unsigned percent)
{
    return below(cluster, 100) < percent;
}

static struct slice key_slice(const struct check_key *key)
{
    return slice_of(key->bytes, key->size);
}

static int key_compare(const void *a, const void *b)
{
    return slice_compare(key_slice(a), key_slice(b));
}

/* Numbers, close together or far apart; or texts of all lengths, of few letters so that they share
 * beginnings and some are beginnings of others. */
static void key_make(struct cluster *cluster, struct check_key *key, unsigned number, bool far)
{
    if (cluster->shape.key_size != 0) {
        uint64_t word = far ? hash_u64(number + 1) : number * 3;
        for (unsigned i = 0; i < FIXED_KEY_BYTES; i++)
            key->bytes[i] = (uint8_t)(word >> (56 - 8 * i));
        key->size = FIXED_KEY_BYTES;
        return;
    }
    key->size = below(cluster, cluster->shape.key_max + 1);
    for (size_t i = 0; i < key->size; i++)
        key->bytes[i] = (uint8_t)(far ? below(cluster, 256) : 'a' + below(cluster, 3));
}

/* Sorted and without doubles. */
static void plan_keys(struct cluster *cluster)
{
    bool far = chance(cluster, 50);
    unsigned kept = 0, keys = cluster->options->keys;

    if ((cluster->faults & CHECK_FAULTS_BLOBS) != 0 && keys > BLOB_KEYS)
        keys = BLOB_KEYS;

    cluster->keys = calloc(keys, sizeof(*cluster->keys));
    pando_assert(cluster->keys != NULL);
    for (unsigned i = 0; i < keys; i++)
        key_make(cluster, &cluster->keys[i], i, far);
    qsort(cluster->keys, keys, sizeof(*cluster->keys), key_compare);
    for (unsigned i = 0; i < keys; i++) {
        if (kept == 0 || key_compare(&cluster->keys[kept - 1], &cluster->keys[i]) != 0)
            cluster->keys[kept++] = cluster->keys[i];
    }
    cluster->key_count = kept;
}

static void plan_table(struct cluster *cluster)
{
    cluster->shape = (struct engine_shape){.key_size = FIXED_KEY_BYTES,
                                           .value_size = 8,
                                           .key_max = FIXED_KEY_BYTES,
                                           .value_inline = 8,
                                           .node_bytes = 256};
    if (cluster->options->seed % 2 == 0 || (cluster->faults & CHECK_FAULTS_BLOBS) != 0) {
        cluster->shape.key_size = cluster->shape.value_size = 0;
        cluster->shape.key_max = VARIABLE_KEY_BYTES;
        cluster->shape.value_inline = chance(cluster, 50) ? 8 : 24;
    }
    cluster->cache_bytes = chance(cluster, 75) ? CACHE_BYTES : 0;
    cluster->preload_bulk = chance(cluster, 50);
    cluster->preload_percent = (unsigned)below(cluster, 101);
    plan_keys(cluster);
    check_plan_operations(cluster);
}

/* ---- building -------------------------------------------------------------------------------- */

static bool memory_open(struct cluster *cluster, struct check_memory *memory)
{
    char error[256];
    struct memnode_options options = {.work = store_memory_pushdown,
                                      .level_at = store_level_at,
                                      .seed = cluster->options->seed + 1};
    if (memory->back != BACK_SAME)
        options.seed = hash_u64(options.seed); /* a window of its own */
    pando_assert(cluster->memnode_count < CHECK_MEMNODES_MAX);
    enum pando_status status = memnode_open(
        memory->fabric, &options, &cluster->memnodes[cluster->memnode_count], error, sizeof(error));
    if (status != PANDO_OK) {
        check_violate(cluster, "memory node %u cannot open its window: %s",
                      fabric_self(memory->fabric), error);
        return false;
    }
    cluster->memnode_count++;
    return true;
}

static void add_node(struct cluster *cluster, uint16_t node, enum fabric_target target,
                     uint64_t bytes, unsigned threads, struct fabric **out)
{
    struct fabric_sim_node_options options = {
        .node = node,
        .target = target,
        .host_bytes = bytes,
        .device_bytes = target == FABRIC_MEMORY ? MEMNODE_DEVICE_BYTES : 0,
        .threads = threads};
    enum pando_status status = fabric_sim_add(cluster->net, &options, out);
    pando_assert(status == PANDO_OK);
}

static void build(struct cluster *cluster)
{
    const struct check_options *options = cluster->options;
    static struct sim_nic_model model;
    bool slow = (cluster->faults & (CHECK_FAULTS_BLOBS | CHECK_FAULTS_LOST)) != 0;
    model = *sim_nic_model("cx5");
    for (int i = 0; i < RT_COST_COUNT; i++)
        model.costs[i] = CPU_COST_NS;
    if (cluster->link_bytes_per_ns > 0)
        model.bytes_per_ns = cluster->link_bytes_per_ns;
    struct fabric_sim_options network = {
        .seed = options->seed,
        .model = &model,
        .chaos = {.tear = 0.3,
                  .spread = 0.3,
                  .spread_ns = 3000,
                  .delay = 0.05,
                  .delay_ns = 20000,
                  .late_cpu = 0.2,
                  .late_cpu_ns = 200000, /* keys change hands in less */
                  .no_fencing = options->no_fencing,
                  .no_windows = options->no_windows},
        .shuffle = true,
        .race_probability = 0.05,
        .stall_probability = STALLS,
        .stall_ns = STALL_NS,
    };
    cluster->net = fabric_sim_create(&network);
    pando_assert(cluster->net != NULL);
    cluster->sim = fabric_sim_world(cluster->net);
    if (options->trace)
        sim_set_trace(cluster->sim, trace_event, NULL);
    for (unsigned i = 0; i < options->memory; i++) {
        add_node(cluster, (uint16_t)i, FABRIC_MEMORY, cluster->memory_bytes, 2,
                 &cluster->memory[i].fabric);
        (void)memory_open(cluster, &cluster->memory[i]);
    }
    unsigned ops = slow && options->ops > SLOW_OPS ? SLOW_OPS : options->ops;
    for (unsigned i = 0; i < options->nodes; i++) {
        struct check_slot *slot = &cluster->slots[i];
        slot->number = i;
        slot->ops_left = ops / options->nodes;
        add_node(cluster, (uint16_t)(CHECK_COMPUTE_FIRST + i), FABRIC_COMPUTE, COMPUTE_BYTES,
                 options->threads, &slot->fabric);
    }
    add_node(cluster, CHECK_CHECKER, FABRIC_COMPUTE, COMPUTE_BYTES, 1, &cluster->checker);
}

/* ---- planning faults ------------------------------------------------------------------------- */

/* At an operation that it probably gets to; in one of ten cases while it is still joining. */
static uint64_t some_operation(struct cluster *cluster)
{
    const struct check_options *options = cluster->options;
    if (chance(cluster, 10))
        return 1 + below(cluster, 20);
    return 1 + below(cluster, 20 + 4 * (uint64_t)(options->ops / options->nodes));
}

static void plan_kill(struct cluster *cluster, struct check_slot *slot, unsigned replaced_percent)
{
    fabric_sim_kill_at(slot->fabric, some_operation(cluster));
    slot->replace = chance(cluster, replaced_percent);
}

static void plan_cut(struct cluster *cluster, const struct check_slot *slot)
{
    struct check_cut *cut = &cluster->cuts[cluster->cut_count++];
    uint64_t most = chance(cluster, 50) ? CHECK_LEASE_NS / 2 : 4 * CHECK_LEASE_NS;
    cut->a = fabric_self(slot->fabric);
    cut->b = (uint16_t)below(cluster, cluster->options->memory);
    cut->at_ns = below(cluster, FAULTS_WITHIN_NS);
    cut->heal_ns = cut->at_ns + 1 + below(cluster, most);
}

static void plan_client_faults(struct cluster *cluster, struct check_slot *slot)
{
    if ((cluster->faults & CHECK_FAULTS_SHORT) == 0) {
        if (chance(cluster, 50))
            plan_kill(cluster, slot, 50);
        return;
    }
    sim_node_set_drift(fabric_sim_machine(slot->fabric), (int)below(cluster, 4000) - 2000);
    switch (below(cluster, 5)) {
    case 0:
        plan_kill(cluster, slot, 60);
        break;
    case 1:
        cluster->result->pauses++;
        fabric_sim_pause_at(slot->fabric, some_operation(cluster),
                            CHECK_LEASE_NS + below(cluster, LONGEST_PAUSE_LEASES * CHECK_LEASE_NS));
        break;
    case 2:
        cluster->result->pauses++;
        fabric_sim_pause_at(slot->fabric, some_operation(cluster), below(cluster, CHECK_LEASE_NS));
        break;
    case 3:
        plan_cut(cluster, slot);
        break;
    default:
        break;
    }
    if (chance(cluster, 15))
        plan_cut(cluster, slot);
}

static void plan_faults(struct cluster *cluster)
{
    const struct check_options *options = cluster->options;
    check_faults_plan(cluster);
    if ((cluster->faults & (CHECK_FAULTS_CRASH | CHECK_FAULTS_SHORT)) == 0)
        return;
    for (unsigned i = 0; i < options->nodes; i++)
        plan_client_faults(cluster, &cluster->slots[i]);
    if ((cluster->faults & CHECK_FAULTS_SHORT) == 0 || !chance(cluster, 30))
        return;
    struct check_memory *memory = &cluster->memory[below(cluster, options->memory)];
    if (memory->kill_ns != 0)
        return; /* is planned already */
    memory->kill_ns = 1 + below(cluster, FAULTS_WITHIN_NS);
    memory->restart_ns = memory->kill_ns + 1 + below(cluster, CHECK_LEASE_NS / 4);
}

/* ---- the janitor: what happens at a time rather than at an operation ---------------------------
 */

static void tend_slot(struct cluster *cluster, struct check_slot *slot, uint64_t now_ns)
{
    if (!fabric_sim_dead(slot->fabric))
        return;
    if (!slot->down) {
        slot->down = true;
        cluster->result->kills++;
        slot->replace_at_ns = now_ns + below(cluster, 2 * CHECK_LEASE_NS);
    }
    if (!slot->replace || slot->ops_left == 0 || now_ns < slot->replace_at_ns)
        return;
    enum pando_status status = fabric_sim_restart(slot->fabric, false, &slot->fabric);
    pando_assert(status == PANDO_OK);
    slot->down = false;
    slot->replace = false;
    if (chance(cluster, 30))
        plan_kill(cluster, slot, 30);
    check_client_start(cluster, slot);
}

static void tend_cut(struct cluster *cluster, struct check_cut *cut, uint64_t since_ns, bool end)
{
    if (cut->state == CUT_PLANNED && end)
        cut->state = CUT_OVER;
    if (cut->state == CUT_PLANNED && since_ns >= cut->at_ns) {
        fabric_sim_cut(cluster->net, cut->a, cut->b);
        cut->state = CUT_NOW;
        if (cut->outage)
            cluster->result->outages++;
        else
            cluster->result->cuts++;
    }
    if (cut->state == CUT_NOW && (end || since_ns >= cut->heal_ns)) {
        fabric_sim_heal(cluster->net, cut->a, cut->b);
        cut->state = CUT_OVER;
    }
}

/* The window of another pool. */
static void make_foreign(struct cluster *cluster, struct check_memory *memory)
{
    uint64_t at = fabric_window_first(memory->fabric) + offsetof(struct pool_superblock, pool_id);
    uint64_t id = hash_u64(cluster->options->seed + 99);
    enum pando_status status = fabric_self_write(memory->fabric, at, &id, sizeof(id));
    pando_assert(status == PANDO_OK);
}

/* Clients work all at the same time and then for a while not at all. A lock table is lost while some are
 * at work, if they come to that. */
static bool due(struct cluster *cluster, const struct check_memory *memory, uint64_t since_ns)
{
    enum { AT_WORK = 4 };
    if (memory->kill_ns == 0 || since_ns < memory->kill_ns)
        return false;
    return memory->lock_losses == 0 || check_at_work(cluster) >= AT_WORK ||
           since_ns >= memory->kill_ns + CHECK_LEASE_NS / 2;
}

static void tend_memory(struct cluster *cluster, struct check_memory *memory, uint64_t since_ns)
{
    if (due(cluster, memory, since_ns)) {
        memory->kill_ns = 0;
        memory->down = true;
        fabric_sim_kill(memory->fabric);
        if (memory->back != BACK_SAME)
            cluster->result->lost++;
        else if (memory->outage)
            cluster->result->outages++;
        else
            cluster->result->restarts++;
    }
    if (memory->down && since_ns >= memory->restart_ns && memory->back != BACK_NEVER) {
        bool keep = memory->back == BACK_SAME;
        enum pando_status status = fabric_sim_restart(memory->fabric, keep, &memory->fabric);
        pando_assert(status == PANDO_OK);
        memory->down = false;
        if (memory->lock_losses > 0) {
            fabric_sim_lose_device(memory->fabric);
            cluster->result->lock_tables++;
            memory->lock_losses--;
        }
        if (memory_open(cluster, memory) && memory->back == BACK_FOREIGN)
            make_foreign(cluster, memory);
        if (memory->lock_losses > 0)
            check_plan_lock_loss(cluster, memory, since_ns);
    }
}

static bool clients_ended(const struct cluster *cluster)
{
    if (!cluster->started || cluster->running > 0)
        return false;
    for (unsigned i = 0; i < cluster->options->nodes; i++) {
        const struct check_slot *slot = &cluster->slots[i];
        if (fabric_sim_dead(slot->fabric) && slot->replace && slot->ops_left > 0)
            return false;
    }
    for (unsigned i = 0; i < cluster->options->memory; i++) {
        if (cluster->memory[i].down && cluster->memory[i].back != BACK_NEVER)
            return false;
    }
    return true;
}

/* Whoever is at something for too long after the faults will not end: that ends the run. */
static void find_hang(struct cluster *cluster)
{
    uint64_t for_ns;
    if (!cluster->healed || cluster->result->violated)
        return;
    struct check_doing *doing = check_doing_oldest(cluster, &for_ns);
    if (doing == NULL || for_ns < cluster->served_within_ns)
        return;
    check_violate(cluster,
                  "client %" PRIu32 ": a %s of key %u has no end %.1f s after the last fault; it "
                  "began %.1f s before",
                  doing->number, doing->what, doing->key, (double)for_ns / 1e9,
                  (double)(sim_now_ns(cluster->sim) - doing->since_ns) / 1e9);
    sim_stop(cluster->sim);
}

static void janitor_fire(struct rt_timer *timer)
{
    struct cluster *cluster =
        container_of(container_of(timer, struct sim_event, timer), struct cluster, janitor);
    uint64_t now_ns = sim_now_ns(cluster->sim);

    if (cluster->over) {
        find_hang(cluster);
        if (!cluster->judged && !cluster->result->violated)
            sim_event_at(&cluster->janitor, now_ns + JANITOR_LATE_NS);
        return;
    }
    if (cluster->ready && !cluster->started) {
        cluster->started = true;
        cluster->ready_ns = now_ns;
        for (unsigned i = 0; i < cluster->options->nodes; i++)
            check_client_start(cluster, &cluster->slots[i]);
    }
    if (cluster->started) {
        uint64_t since_ns = now_ns - cluster->ready_ns;
        for (unsigned i = 0; i < cluster->options->nodes; i++)
            tend_slot(cluster, &cluster->slots[i], now_ns);
        for (unsigned i = 0; i < cluster->options->memory; i++)
            tend_memory(cluster, &cluster->memory[i], since_ns);
        check_faults_tend(cluster, since_ns);
        bool end = clients_ended(cluster);
        for (unsigned i = 0; i < cluster->cut_count; i++)
            tend_cut(cluster, &cluster->cuts[i], since_ns, end);
        if (!cluster->healed && check_faults_over(cluster)) {
            cluster->healed = true;
            cluster->healed_ns = now_ns;
            check_trace(cluster, "no fault is left");
        }
        find_hang(cluster);
        cluster->over = end;
    }
    bool late = cluster->started && now_ns - cluster->ready_ns > 2 * FAULTS_WITHIN_NS;
    sim_event_at(&cluster->janitor, now_ns + (late ? JANITOR_LATE_NS : JANITOR_NS));
}

/* ---- one seed -------------------------------------------------------------------------------- */

static void tell_hang(struct cluster *cluster, size_t tasks)
{
    uint64_t for_ns = 0;
    struct check_doing *doing = check_doing_oldest(cluster, &for_ns);
    if (doing == NULL)
        check_violate(cluster, "it did not end: %zu tasks wait for something that does not happen",
                      tasks);
    else
        check_violate(cluster,
                      "it did not end: %zu tasks wait for something that does not happen; client "
                      "%" PRIu32 " for the end of a %s of key %u, for %.1f s",
                      tasks, doing->number, doing->what, doing->key, (double)for_ns / 1e9);
}

static void run(struct cluster *cluster)
{
    enum pando_status status =
        rt_spawn(fabric_sim_loop(cluster->checker, 0), check_judge_task, cluster);
    pando_assert(status == PANDO_OK);
    sim_event_init(&cluster->janitor, cluster->sim, janitor_fire);
    sim_event_at(&cluster->janitor, JANITOR_NS);
    enum sim_end end = sim_run(cluster->sim, cluster->longest_ns);
    size_t tasks = sim_live_tasks(cluster->sim);
    cluster->ended = end == SIM_QUIET && tasks == 0;
    if (!cluster->ended)
        tell_hang(cluster, tasks);
}

/* What clients saw is judged also when something else was wrong: it may be the reason. */
static void judge(struct cluster *cluster)
{
    struct check_result *result = cluster->result;
    char text[CHECK_TEXT_BYTES / 2];

    result->operations = history_size(cluster->history);
    if (!cluster->ended)
        return; /* what did not return is not in the history */
    enum history_verdict verdict = history_check(cluster->history, 0, text, sizeof(text));
    if (verdict == HISTORY_UNDECIDED)
        result->undecided = 1;
    if (verdict != HISTORY_BAD)
        return;
    size_t used = result->violated ? strlen(result->text) : 0;
    if (used > 0 && used < sizeof(result->text) - 1)
        result->text[used++] = '\n';
    snprintf(result->text + used, sizeof(result->text) - used, "%s", text);
    result->violated = true;
}

/* Damage and loss are told as errors, once for each key: here they are what was asked for. The level
 * that was in force. */
static int log_quiet(const struct cluster *cluster)
{
    int level = atomic_load(&log_level_now);
    if ((cluster->faults & (CHECK_FAULTS_FLIPS | CHECK_FAULTS_LOST)) != 0 &&
        level == LOG_LEVEL_ERROR && !cluster->options->trace)
        atomic_store(&log_level_now, LOG_LEVEL_ERROR - 1);
    return level;
}

void check_seed(const struct check_options *options, struct check_result *result)
{
    struct cluster *cluster = calloc(1, sizeof(*cluster));
    pando_assert(cluster != NULL);
    *result = (struct check_result){0};
    cluster->options = options;
    cluster->result = result;
    pool_broken = options->broken;
    prng_seed(&cluster->prng, options->seed * 77 + 1);
    prng_seed(&cluster->faults_prng, options->seed * 131 + 7);
    list_init(&cluster->doings);
    cluster->intermission = options->seed % INTERMISSION_SEEDS == 3;
    check_faults_choose(cluster);
    plan_table(cluster);
    cluster->history = history_create(cluster->key_count);
    pando_assert(cluster->history != NULL);
    build(cluster);
    plan_faults(cluster);
    int level = log_quiet(cluster);
    run(cluster);
    atomic_store(&log_level_now, level);
    judge(cluster);
    result->virtual_ns = sim_now_ns(cluster->sim);
    result->trace_hash = sim_trace_hash(cluster->sim);
    fabric_sim_destroy(cluster->net);
    for (unsigned i = 0; i < cluster->memnode_count; i++)
        memnode_close(cluster->memnodes[i]);
    history_destroy(cluster->history);
    free(cluster->keys);
    free(cluster);
}
