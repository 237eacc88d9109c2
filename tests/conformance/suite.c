#include "conformance/suite.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "rt/sim/sim.h"

void suite_run_case(const struct env_ops *ops, const struct suite_case *test,
                    const struct env_options *options)
{
    struct env_options mine = *options;
    mine.handler = (test->flags & CASE_NO_HANDLER) != 0 ? NULL : suite_handler;
    struct env *env = ops->open(&mine);
    test->run(env);
    ops->close(env);
}

/* ---- clients --------------------------------------------------------------------------------- */

struct client_start {
    struct client client;
    client_fn fn;
    _Atomic unsigned *missing; /* clients that are not yet connected */
};

static void client_main(void *arg)
{
    struct client_start *start = arg;
    struct client *client = &start->client;
    CHECK_OK(fabric_connect_co(client->fabric, ENV_TARGET, &client->endpoint));
    atomic_fetch_sub(start->missing, 1);
    while (atomic_load(start->missing) > 0)
        moment_co();
    start->fn(client);
    fabric_disconnect_co(client->endpoint);
}

static void run_clients(struct env *env, struct fabric **fabrics, unsigned count, client_fn fn,
                        void *arg)
{
    struct client_start starts[ENV_TASKS_MAX];
    struct env_task tasks[ENV_TASKS_MAX];
    _Atomic unsigned missing = count;

    CHECK(count <= ENV_TASKS_MAX);
    for (unsigned i = 0; i < count; i++) {
        starts[i] = (struct client_start){
            .client = {.env = env, .fabric = fabrics[i], .index = i, .arg = arg},
            .fn = fn,
            .missing = &missing};
        tasks[i] = (struct env_task){.fabric = fabrics[i], .fn = client_main, .arg = &starts[i]};
    }
    env_run(env, tasks, count);
}

void suite_clients(struct env *env, unsigned count, client_fn fn, void *arg)
{
    CHECK(count <= ENV_TASKS_MAX);
    for (unsigned i = 0; i < count; i++) {
        struct fabric_identity identity = {.member = (uint16_t)(10 + i), .incarnation = 1};
        if (env->members[i] == NULL)
            env->members[i] = env_client(env, identity);
    }
    run_clients(env, env->members, count, fn, arg);
}

void suite_threads(struct env *env, struct fabric *fabric, unsigned count, client_fn fn, void *arg)
{
    struct fabric *fabrics[ENV_TASKS_MAX];
    CHECK(count <= ENV_TASKS_MAX);
    for (unsigned i = 0; i < count; i++)
        fabrics[i] = fabric;
    run_clients(env, fabrics, count, fn, arg);
}

/* ---- steps ----------------------------------------------------------------------------------- */

void write_co(struct client *client, uint64_t offset, const void *from, uint32_t size)
{
    struct fabric_op op = fabric_write(offset, from, size);
    CHECK_OK(fabric_submit_co(client->endpoint, &op, 1));
}

void read_co(struct client *client, uint64_t offset, void *to, uint32_t size)
{
    struct fabric_op op = fabric_read(offset, to, size);
    CHECK_OK(fabric_submit_co(client->endpoint, &op, 1));
}

void put_co(struct client *client, uint64_t offset, uint64_t word)
{
    write_co(client, offset, &word, sizeof(word));
}

uint64_t get_co(struct client *client, uint64_t offset)
{
    uint64_t word = 0;
    read_co(client, offset, &word, sizeof(word));
    return word;
}

void fill_words_co(struct client *client, uint64_t offset, uint64_t word, uint32_t count)
{
    uint64_t *words = allocate(count * sizeof(*words));
    for (uint32_t i = 0; i < count; i++)
        words[i] = word;
    write_co(client, offset, words, count * (uint32_t)sizeof(*words));
    free(words);
}

void moment_co(void)
{
    if (sim_of_loop(rt_loop_self()) == NULL)
        sched_yield(); /* the one that is waited for may need the processor */
    rt_sleep_co(100 + rt_random() % 2000);
}

void suite_sleep_co(struct env *env, unsigned ms)
{
    rt_sleep_co(ms * (env->ops->simulated ? RT_NS_PER_US : RT_NS_PER_MS));
}

void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    CHECK(memory != NULL);
    return memory;
}

void pattern_fill(uint8_t *to, uint64_t stream, uint64_t first, size_t size)
{
    for (size_t i = 0; i < size; i++)
        to[i] = pattern_byte(stream, first + i);
}

void pattern_check(const uint8_t *bytes, uint64_t stream, uint64_t first, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != pattern_byte(stream, first + i))
            CHECK_FAIL("byte %zu of %zu (pattern %" PRIu64 ") is 0x%02x, not 0x%02x", i, size,
                       stream, bytes[i], pattern_byte(stream, first + i));
    }
}

/* ---- the writer ------------------------------------------------------------------------------ */

enum {
    WRITER_DEPTH = 16,
    WRITER_OPS = 4,
    WRITER_WORDS = ENV_WRITER_BYTES / 8,
    WRITER_TRIES = 100,
};

struct writer_slot {
    struct fabric_list list;
    struct fabric_op ops[WRITER_OPS];
    uint64_t words[WRITER_WORDS];
};

static void writer_post(struct env_writer *writer, struct fabric_endpoint *endpoint,
                        struct writer_slot *slot, uint64_t value)
{
    uint32_t part = WRITER_WORDS / WRITER_OPS;
    for (uint32_t i = 0; i < WRITER_WORDS; i++)
        slot->words[i] = value;
    for (uint32_t i = 0; i < WRITER_OPS; i++)
        slot->ops[i] =
            fabric_write(writer->offset + 8 * i * part, slot->words + i * part, 8 * part);
    slot->list = (struct fabric_list){.ops = slot->ops, .count = WRITER_OPS};
    fabric_post(endpoint, &slot->list);
}

static enum pando_status writer_reconnect_co(struct fabric_endpoint *endpoint)
{
    enum pando_status status = PANDO_BROKEN;
    for (int i = 0; i < WRITER_TRIES && status != PANDO_OK && status != PANDO_FENCED; i++) {
        status = fabric_reconnect_co(endpoint);
        if (status != PANDO_OK)
            rt_sleep_co(100 * RT_NS_PER_US);
    }
    return status;
}

/* Writes until something fails, and then until nothing is in flight. */
static enum pando_status writer_write_co(struct env_writer *writer,
                                         struct fabric_endpoint *endpoint, uint64_t *value)
{
    struct writer_slot *slots = allocate(WRITER_DEPTH * sizeof(*slots));
    enum pando_status first = PANDO_OK;
    unsigned at = 0;

    while (first == PANDO_OK) {
        struct writer_slot *slot = &slots[at++ % WRITER_DEPTH];
        first = fabric_wait_co(&slot->list);
        if (first != PANDO_OK)
            break;
        writer_post(writer, endpoint, slot, ++*value);
        if (*value % 64 == 0)
            rt_yield_co(); /* where lists are done at once the loop has to look around too */
    }
    for (unsigned i = 0; i < WRITER_DEPTH; i++) {
        enum pando_status status = fabric_wait_co(&slots[i].list);
        if (status == PANDO_FENCED)
            first = status;
    }
    free(slots);
    return first;
}

void env_writer_main(void *arg)
{
    struct env_writer *writer = arg;
    struct fabric_endpoint *endpoint;
    uint64_t value = 0;

    enum pando_status status = fabric_connect_co(writer->fabric, ENV_TARGET, &endpoint);
    if (status == PANDO_OK) {
        while (status == PANDO_OK) {
            status = writer_write_co(writer, endpoint, &value);
            if (status == PANDO_BROKEN)
                status = writer_reconnect_co(endpoint);
        }
        fabric_disconnect_co(endpoint);
    }
    writer->status = status;
    writer->ended = true;
}
