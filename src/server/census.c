#include "server/census.h"

#include <stdlib.h>
#include <string.h>

enum {
    STEP_KEYS = 512,
    AT_ONCE_KEYS = 16 * 1024, /* of a table are counted without a pause */
    FIRST_REST = 1, /* afterwards it rests so many times as long as it worked: the first time, */
    REST = 9,       /* and later */
};

static const uint64_t REST_MAX_NS = 40 * RT_NS_PER_MS;

/* One count of one table. */
struct tally {
    struct census_table table;
    uint8_t last[KEYSPACE_KEY_MAX];
    size_t last_size;
    bool resumed; /* last was seen in the step before */
    bool failed;  /* no memory */
    uint64_t examined, now_ms;
};

/* ---- marks ----------------------------------------------------------------------------------- */

static void table_free(struct census_table *table)
{
    free(table->marks);
    free(table->bytes);
    *table = (struct census_table){0};
}

/* Forgets every second one. */
static void thin_out(struct census_table *table)
{
    size_t used = 0;
    for (size_t i = 0; 2 * i < table->mark_count; i++) {
        struct census_mark mark = table->marks[2 * i];
        memmove(table->bytes + used, table->bytes + mark.offset, mark.size);
        mark.offset = (uint32_t)used;
        used += mark.size;
        table->marks[i] = mark;
    }
    table->mark_count = (table->mark_count + 1) / 2;
    table->used = used;
    table->apart *= 2;
}

static bool add_mark(struct census_table *table, struct slice key)
{
    if (table->mark_count == table->mark_capacity) {
        size_t capacity = table->mark_capacity == 0 ? 64 : table->mark_capacity * 2;
        struct census_mark *marks = realloc(table->marks, capacity * sizeof(*marks));
        if (marks == NULL)
            return false;
        table->marks = marks;
        table->mark_capacity = capacity;
    }
    if (table->capacity - table->used < key.size) {
        size_t capacity = (table->capacity + key.size) * 2;
        uint8_t *bytes = realloc(table->bytes, capacity);
        if (bytes == NULL)
            return false;
        table->bytes = bytes;
        table->capacity = capacity;
    }
    if (key.size > 0)
        memcpy(table->bytes + table->used, key.data, key.size);
    table->marks[table->mark_count++] =
        (struct census_mark){(uint32_t)table->used, (uint16_t)key.size};
    table->used += key.size;
    return true;
}

/* ---- counting -------------------------------------------------------------------------------- */

static bool count_pair(void *context, struct slice key, struct slice stored)
{
    struct tally *tally = context;
    struct census_table *table = &tally->table;
    struct value value;

    if (tally->resumed && slice_equal(key, slice_of(tally->last, tally->last_size)))
        return true;
    if (key.size > 0)
        memcpy(tally->last, key.data, key.size);
    tally->last_size = key.size;
    tally->examined++;
    bool known = value_read(stored, &value);
    if (known && value.expire_ms != 0) {
        if (value.expire_ms <= tally->now_ms)
            return tally->examined < STEP_KEYS;
        table->expiring++;
        table->ttl_ms += value.expire_ms - tally->now_ms;
    }
    if (table->keys % table->apart == 0 && !add_mark(table, key)) {
        tally->failed = true;
        return false;
    }
    table->keys++;
    if (table->mark_count == CENSUS_MARKS)
        thin_out(table);
    return tally->examined < STEP_KEYS;
}

/* False: it is over, or cannot go on. */
static bool step_co(struct store_table *table, struct tally *tally)
{
    struct store_range range = {.values = STORE_SCAN_GLANCE,
                                .low = slice_of(tally->last, tally->last_size),
                                .no_high = true,
                                .limit = STEP_KEYS + 1};
    tally->examined = 0;
    tally->now_ms = rt_wall_ms();
    enum pando_status status = store_scan_co(table, &range, count_pair, tally);
    tally->resumed = true;
    tally->failed |= status != PANDO_OK && status != PANDO_NOT_FOUND;
    return status == PANDO_OK && !tally->failed && tally->examined == STEP_KEYS;
}

/* Of a table that was never counted, what is known so far. */
static void publish_part(struct census *census, struct census_table *out, const struct tally *tally)
{
    rt_latch_lock(&census->latch);
    if (!out->complete) {
        out->keys = tally->table.keys;
        out->expiring = tally->table.expiring;
        out->ttl_ms = tally->table.ttl_ms;
    }
    rt_latch_unlock(&census->latch);
}

static void publish(struct census *census, struct census_table *out, struct tally *tally)
{
    rt_latch_lock(&census->latch);
    struct census_table former = *out;
    *out = tally->table;
    out->complete = true;
    rt_latch_unlock(&census->latch);
    table_free(&former);
}

static void pool_co(struct server_thread *thread);

static void rest_co(struct server_thread *thread, const struct tally *tally, uint64_t worked_ns,
                    bool first)
{
    if (tally->table.keys < AT_ONCE_KEYS) {
        rt_yield_co();
        return;
    }
    uint64_t rest_ns = worked_ns * (first ? FIRST_REST : REST);
    rt_sleep_co(rest_ns < REST_MAX_NS ? rest_ns : REST_MAX_NS);
    pool_co(thread);
}

static void count_table_co(struct server_thread *thread, struct store_table *table,
                           struct census_table *out)
{
    struct census *census = thread->server->census;
    struct tally *tally = calloc(1, sizeof(*tally));
    rt_latch_lock(&census->latch);
    bool going = tally != NULL, first = !out->complete;
    rt_latch_unlock(&census->latch);
    if (going)
        tally->table.apart = CENSUS_APART;
    while (going && !server_stopping(thread->server)) {
        uint64_t begin_ns = rt_now_ns();
        going = step_co(table, tally);
        publish_part(census, out, tally);
        if (going)
            rest_co(thread, tally, rt_now_ns() - begin_ns, first);
    }
    if (tally != NULL && !tally->failed && !going)
        publish(census, out, tally);
    else if (tally != NULL)
        table_free(&tally->table);
    free(tally);
}

static void keys_co(struct server_thread *thread)
{
    struct census *census = thread->server->census;
    uint64_t asked = atomic_load(&census->asked[CENSUS_KEYS]);
    if (asked == atomic_load(&census->answered[CENSUS_KEYS]))
        return;
    for (unsigned i = 0; i < SERVER_DATABASES && !server_stopping(thread->server); i++) {
        if (keyspace_find_co(thread, i) != PANDO_OK)
            continue;
        for (int j = 0; j < 2; j++)
            count_table_co(thread, thread->databases[i].tables[j], &census->tables[i][j]);
    }
    rt_latch_lock(&census->latch);
    census->counted_ns = rt_now_ns();
    rt_latch_unlock(&census->latch);
    atomic_store(&census->answered[CENSUS_KEYS], asked);
    rt_waitq_wake_all(&census->answer);
}

/* ---- the pool -------------------------------------------------------------------------------- */

static void pool_co(struct server_thread *thread)
{
    struct server *server = thread->server;
    struct census *census = server->census;
    uint64_t asked = atomic_load(&census->asked[CENSUS_POOL]), bytes = 0, used = 0;
    unsigned nodes = env_memory_nodes(server->options.env), reached = 0;

    if (asked == atomic_load(&census->answered[CENSUS_POOL]))
        return;
    for (unsigned i = 0; i < nodes; i++) {
        struct store_memory memory;
        if (store_memory_co(thread->store, (uint16_t)i, &memory) != PANDO_OK)
            continue;
        bytes += memory.bytes;
        used += memory.used_bytes;
        reached++;
    }
    rt_latch_lock(&census->latch);
    census->pool_bytes = bytes;
    census->pool_used_bytes = used;
    census->pool_nodes = reached;
    rt_latch_unlock(&census->latch);
    atomic_store(&census->answered[CENSUS_POOL], asked);
    rt_waitq_wake_all(&census->answer);
}

/* ---- the task -------------------------------------------------------------------------------- */

static void set_task(struct census *census, struct rt_task *task)
{
    rt_latch_lock(&census->latch);
    census->task = task;
    rt_latch_unlock(&census->latch);
}

static void census_task(void *arg)
{
    struct server_thread *thread = arg;
    struct census *census = thread->server->census;
    set_task(census, rt_task_self());
    while (!server_stopping(thread->server)) {
        pool_co(thread);
        keys_co(thread);
        bool asked = false;
        for (int i = 0; i < CENSUS_QUESTIONS; i++)
            asked |= atomic_load(&census->asked[i]) != atomic_load(&census->answered[i]);
        if (!asked && !server_stopping(thread->server))
            (void)rt_park_co(rt_now_ns() + RT_NS_PER_S);
    }
    set_task(census, NULL);
    rt_unpark(thread->task);
}

struct census *census_create(void)
{
    struct census *census = calloc(1, sizeof(*census));
    if (census != NULL)
        rt_waitq_init(&census->answer);
    return census;
}

void census_destroy(struct census *census)
{
    for (unsigned i = 0; i < SERVER_DATABASES; i++) {
        table_free(&census->tables[i][0]);
        table_free(&census->tables[i][1]);
    }
    free(census);
}

void census_start(struct server_thread *thread)
{
    enum pando_status status = rt_spawn(thread->loop, census_task, thread);
    (void)status; /* without it the numbers are missing */
}

void census_stop_co(struct server_thread *thread)
{
    struct census *census = thread->server->census;
    while (census->task != NULL) {
        rt_unpark(census->task);
        (void)rt_park_co(rt_now_ns() + RT_NS_PER_S);
    }
}

void census_ask_co(struct server *server, enum census_question question, uint64_t patience_ns)
{
    struct census *census = server->census;
    uint64_t limit_ns = rt_now_ns() + patience_ns;
    uint64_t wanted = atomic_fetch_add(&census->asked[question], 1) + 1;
    rt_latch_lock(&census->latch);
    if (census->task != NULL)
        rt_unpark(census->task);
    rt_latch_unlock(&census->latch);
    while (atomic_load(&census->answered[question]) < wanted && rt_now_ns() < limit_ns &&
           !server_stopping(server))
        (void)rt_waitq_wait_co(&census->answer, limit_ns);
}

/* ---- asking ---------------------------------------------------------------------------------- */

struct census_count census_count_of(struct census *census, unsigned database)
{
    struct census_count count = {0};
    rt_latch_lock(&census->latch);
    for (int i = 0; i < 2; i++) {
        const struct census_table *table = &census->tables[database][i];
        count.keys += table->keys;
        count.expiring += table->expiring;
        count.ttl_ms += table->ttl_ms;
    }
    rt_latch_unlock(&census->latch);
    return count;
}

void census_forget(struct census *census, unsigned database)
{
    struct census_table former[2];
    rt_latch_lock(&census->latch);
    memcpy(former, census->tables[database], sizeof(former));
    memset(census->tables[database], 0, sizeof(former));
    rt_latch_unlock(&census->latch);
    table_free(&former[0]);
    table_free(&former[1]);
}

uint64_t census_keys_of(struct census *census, unsigned database, int which)
{
    rt_latch_lock(&census->latch);
    const struct census_table *table = &census->tables[database][which];
    uint64_t keys = table->complete ? table->keys : 0;
    rt_latch_unlock(&census->latch);
    return keys;
}

static void copy_mark(const struct census_table *table, size_t index, uint8_t *key, size_t *size)
{
    struct census_mark mark = table->marks[index];
    if (mark.size > 0)
        memcpy(key, table->bytes + mark.offset, mark.size);
    *size = mark.size;
}

bool census_place_of(struct census *census, unsigned database, int which, struct census_place *out)
{
    const struct census_table *table = &census->tables[database][which];
    rt_latch_lock(&census->latch);
    bool found = table->complete && table->mark_count > 0;
    if (found) {
        size_t index = (size_t)(rt_random() % table->keys / table->apart);
        copy_mark(table, index, out->low, &out->low_size);
        if (index == 0) /* what came before the first */
            out->low_size = 0;
        out->no_high = index + 1 == table->mark_count;
        out->high_size = 0;
        if (!out->no_high)
            copy_mark(table, index + 1, out->high, &out->high_size);
        out->apart = table->apart;
    }
    rt_latch_unlock(&census->latch);
    return found;
}
