/*
 * queue.c - many operations in flight.
 *
 * They run as tasks on a thread of the queue's own, whose loop turns all the time: an operation that holds a
 * lock goes on whether or not the caller polls. A slot goes from the free list (the caller's) with a message
 * to the queue's loop, runs there, and comes back in the list of those that are done, under the latch.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "lib/pando_int.h"

enum kind { KIND_GET, KIND_PUT, KIND_DELETE };

struct slot {
    struct rt_message message; /* to the queue's loop */
    struct slot *next;         /* free or done */
    struct pando_queue *queue;
    struct pando_table *table;
    enum kind kind;
    enum store_put mode;
    struct slice key, value;
    void *buffer;
    size_t capacity;
    struct pando_completion completion;
};

struct pando_queue {
    struct pando_pool *pool;
    struct rt_thread *thread;
    struct context *context; /* the thread's */
    struct rt_task *main_task;
    atomic_bool closing;
    unsigned depth, in_flight;
    struct slot *free; /* the caller's */

    struct rt_latch latch;
    struct slot *done, **done_end;
    struct rt_task *waiter; /* in poll */
    struct slot slots[];
};

/* ---- on the queue's thread ------------------------------------------------------------------- */

static void slot_done(struct slot *slot)
{
    struct pando_queue *queue = slot->queue;
    slot->next = NULL;
    rt_latch_lock(&queue->latch);
    *queue->done_end = slot;
    queue->done_end = &slot->next;
    /* Under the latch: the waiter ends only after it has looked once more. */
    if (queue->waiter != NULL)
        rt_unpark(queue->waiter);
    queue->waiter = NULL;
    rt_latch_unlock(&queue->latch);
}

static enum pando_status slot_run_co(struct slot *slot)
{
    struct store_table *table;
    char error[256];
    enum pando_status status =
        context_table_co(slot->queue->context, slot->table, &table, error, sizeof(error));
    if (status != PANDO_OK)
        return status;
    switch (slot->kind) {
    case KIND_GET:
        status = store_get_co(table, slot->key, slot->buffer, slot->capacity,
                              &slot->completion.value_size);
        break;
    case KIND_PUT:
        status = store_put_co(table, slot->key, slot->value, slot->mode);
        break;
    case KIND_DELETE:
        status = store_delete_co(table, slot->key);
        break;
    }
    if (status == PANDO_NOT_FOUND && store_table_dropped(table))
        atomic_store(&slot->table->dropped, true);
    return status;
}

static void slot_task(void *arg)
{
    struct slot *slot = arg;
    slot->completion.status = slot_run_co(slot);
    slot_done(slot);
}

static void slot_deliver(struct rt_message *message)
{
    struct slot *slot = container_of(message, struct slot, message);
    if (rt_spawn(rt_loop_self(), slot_task, slot) == PANDO_OK)
        return;
    slot->completion.status = PANDO_NO_MEMORY;
    slot_done(slot);
}

/* Lies on the opener's stack until the queue is open, or is not. */
struct queue_call {
    struct library_call base;
    struct pando_queue *queue;
    struct rt_countdown done;
    enum pando_status status;
};

static void queue_main(void *arg)
{
    struct queue_call *open = arg;
    struct pando_queue *queue = open->queue;
    enum pando_status status = context_open_co(queue->pool, rt_loop_self(), &queue->context);
    queue->main_task = rt_task_self();
    open->status = status;
    rt_countdown_done(&open->done); /* and `open` is gone */
    if (status != PANDO_OK)
        return;
    while (!atomic_load(&queue->closing))
        (void)rt_park_co(RT_NEVER);
    context_close_co(queue->context);
}

#define NO_QUEUE(function) NO_HANDLE(function, "queue")

/* ---- opening and closing --------------------------------------------------------------------- */

static enum pando_status open_co(struct library_call *call)
{
    struct queue_call *open = container_of(call, struct queue_call, base);
    rt_countdown_init(&open->done, 1);
    enum pando_status status =
        rt_thread_start("pando-queue", queue_main, open, &open->queue->thread);
    if (status != PANDO_OK)
        return status;
    rt_countdown_wait_co(&open->done);
    return open->status;
}

static struct pando_queue *queue_create(struct pando_pool *pool, unsigned depth)
{
    struct pando_queue *queue = calloc(1, sizeof(*queue) + depth * sizeof(queue->slots[0]));
    if (queue == NULL)
        return NULL;
    queue->pool = pool;
    queue->depth = depth;
    queue->done_end = &queue->done;
    for (unsigned i = 0; i < depth; i++) {
        queue->slots[i].queue = queue;
        queue->slots[i].message.deliver = slot_deliver;
        queue->slots[i].next = queue->free;
        queue->free = &queue->slots[i];
    }
    return queue;
}

static void queues_add(struct pando_pool *pool, int delta)
{
    rt_latch_lock(&pool->latch);
    pool->queues += (unsigned)delta;
    rt_latch_unlock(&pool->latch);
}

enum pando_status pando_queue_open(struct pando_pool *pool, unsigned depth,
                                   struct pando_queue **out)
{
    struct queue_call call = {.base = {.what = "open a queue", .pool = pool, .fn_co = open_co}};
    enum pando_status status = pool_usable(pool, NO_POOL("pando_queue_open"));
    if (status != PANDO_OK)
        return status;
    if (out == NULL)
        return failure_null(&call.base, "where to tell the queue");
    if (depth == 0 || depth > PANDO_QUEUE_DEPTH_MAX)
        return failure_of(&call.base, PANDO_INVALID, "its depth is %u, and may be 1 to %d", depth,
                          PANDO_QUEUE_DEPTH_MAX);
    struct pando_queue *queue = call.queue = queue_create(pool, depth);
    if (queue == NULL)
        return failure_keep(&call.base, PANDO_NO_MEMORY);
    status = call_run(&call.base);
    if (status != PANDO_OK) {
        if (queue->thread != NULL)
            rt_thread_join(queue->thread);
        free(queue);
        return status;
    }
    queues_add(pool, 1);
    *out = queue;
    return PANDO_OK;
}

static struct slot *done_take(struct pando_queue *queue)
{
    struct slot *slot = queue->done;
    if (slot == NULL)
        return NULL;
    queue->done = slot->next;
    if (queue->done == NULL)
        queue->done_end = &queue->done;
    return slot;
}

void pando_queue_close(struct pando_queue *queue)
{
    if (queue == NULL || rt_loop_self() != NULL || queue->pool->forks != rt_forks())
        return;
    while (queue->in_flight > 0) {
        struct pando_completion lost[16];
        unsigned count;
        if (pando_queue_poll(queue, lost, 16, -1, &count) != PANDO_OK)
            break;
    }
    atomic_store(&queue->closing, true);
    rt_unpark(queue->main_task);
    rt_thread_join(queue->thread);
    queues_add(queue->pool, -1);
    free(queue);
}

/* ---- submitting ------------------------------------------------------------------------------ */

static const char *const submit_texts[] = {[KIND_GET] = "submit a get from",
                                           [KIND_PUT] = "submit a put into",
                                           [KIND_DELETE] = "submit a delete from"};
static const char *const done_texts[] = {
    [KIND_GET] = "get from", [KIND_PUT] = "put into", [KIND_DELETE] = "delete from"};

static enum pando_status submit_check(const struct pando_queue *queue, const struct slot *wanted)
{
    struct library_call call = {
        .what = submit_texts[wanted->kind], .pool = queue->pool, .table = wanted->table};
    const char *null = NULL;
    if (wanted->table == NULL)
        return failure_say(queue->pool, PANDO_INVALID, "%s a table that is NULL; nothing was done",
                           call.what);
    if (wanted->table->pool != queue->pool)
        return failure_of(&call, PANDO_INVALID, "the table is of another pool than the queue");
    if (wanted->key.data == NULL && wanted->key.size > 0)
        null = "the key";
    else if (wanted->value.data == NULL && wanted->value.size > 0)
        null = "the value";
    else if (wanted->buffer == NULL && wanted->capacity > 0)
        null = "the memory for the value";
    if (null != NULL)
        return failure_null(&call, null);
    if (queue->free == NULL)
        return failure_of(&call, PANDO_AGAIN,
                          "try again later: %u operations are in flight, the queue's depth; poll "
                          "it first",
                          queue->in_flight);
    return PANDO_OK;
}

static enum pando_status submit(struct pando_queue *queue, const struct slot *wanted,
                                const char *note)
{
    enum pando_status status = pool_usable(queue == NULL ? NULL : queue->pool, note);
    if (status == PANDO_OK)
        status = submit_check(queue, wanted);
    if (status != PANDO_OK)
        return status;
    struct slot *slot = queue->free;
    queue->free = slot->next;
    queue->in_flight++;
    atomic_fetch_add(&wanted->table->users, 1);
    slot->table = wanted->table;
    slot->kind = wanted->kind;
    slot->mode = wanted->mode;
    slot->key = wanted->key;
    slot->value = wanted->value;
    slot->buffer = wanted->buffer;
    slot->capacity = wanted->capacity;
    slot->completion = wanted->completion;
    rt_loop_post(rt_thread_loop(queue->thread), &slot->message);
    return PANDO_OK;
}

enum pando_status pando_submit_get(struct pando_queue *queue, struct pando_table *table,
                                   const void *key, size_t key_size, void *value, size_t capacity,
                                   uint64_t tag)
{
    struct slot wanted = {.table = table,
                          .kind = KIND_GET,
                          .key = slice_of(key, key_size),
                          .buffer = value,
                          .capacity = capacity,
                          .completion.tag = tag};
    return submit(queue, &wanted, NO_QUEUE("pando_submit_get"));
}

static enum pando_status submit_put(struct pando_queue *queue, struct pando_table *table,
                                    struct slice key, struct slice value, enum store_put mode,
                                    uint64_t tag, const char *note)
{
    struct slot wanted = {.table = table,
                          .kind = KIND_PUT,
                          .mode = mode,
                          .key = key,
                          .value = value,
                          .completion.tag = tag};
    return submit(queue, &wanted, note);
}

enum pando_status pando_submit_put(struct pando_queue *queue, struct pando_table *table,
                                   const void *key, size_t key_size, const void *value,
                                   size_t value_size, uint64_t tag)
{
    return submit_put(queue, table, slice_of(key, key_size), slice_of(value, value_size),
                      STORE_UPSERT, tag, NO_QUEUE("pando_submit_put"));
}

enum pando_status pando_submit_put_if(struct pando_queue *queue, struct pando_table *table,
                                      enum pando_condition condition, const void *key,
                                      size_t key_size, const void *value, size_t value_size,
                                      uint64_t tag)
{
    const char *note = NO_QUEUE("pando_submit_put_if");
    enum pando_status status = pool_usable(queue == NULL ? NULL : queue->pool, note);
    if (status != PANDO_OK)
        return status;
    if (condition != PANDO_IF_ABSENT && condition != PANDO_IF_PRESENT)
        return failure_say(queue->pool, PANDO_INVALID,
                           "submit a put into table '%s': %d is no condition; use PANDO_IF_ABSENT "
                           "or PANDO_IF_PRESENT",
                           table == NULL ? "" : table->name, (int)condition);
    return submit_put(queue, table, slice_of(key, key_size), slice_of(value, value_size),
                      condition == PANDO_IF_ABSENT ? STORE_INSERT : STORE_UPDATE, tag, note);
}

enum pando_status pando_submit_delete(struct pando_queue *queue, struct pando_table *table,
                                      const void *key, size_t key_size, uint64_t tag)
{
    struct slot wanted = {
        .table = table, .kind = KIND_DELETE, .key = slice_of(key, key_size), .completion.tag = tag};
    return submit(queue, &wanted, NO_QUEUE("pando_submit_delete"));
}

/* ---- polling --------------------------------------------------------------------------------- */

static void slot_give_back(struct slot *slot)
{
    struct pando_queue *queue = slot->queue;
    atomic_fetch_sub(&slot->table->users, 1);
    slot->next = queue->free;
    queue->free = slot;
    queue->in_flight--;
}

static struct slot *next_done(struct pando_queue *queue)
{
    rt_latch_lock(&queue->latch);
    struct slot *slot = done_take(queue);
    rt_latch_unlock(&queue->latch);
    return slot;
}

/* Keeps why an operation failed. Its table is still counted as in use. */
static void keep_failure(const struct slot *slot)
{
    struct library_call call = {.what = done_texts[slot->kind],
                                .pool = slot->queue->pool,
                                .table = slot->table,
                                .key_size = slot->key.size,
                                .value_size = slot->value.size};
    (void)failure_keep(&call, slot->completion.status);
}

static unsigned take_completions(struct pando_queue *queue, struct pando_completion *out,
                                 unsigned capacity)
{
    unsigned count = 0;
    struct slot *failed = NULL, *slot; /* the last that did: its table stays in use for its text */
    while (count < capacity && (slot = next_done(queue)) != NULL) {
        out[count++] = slot->completion;
        if (slot->completion.status != PANDO_OK) {
            struct slot *before = failed;
            failed = slot;
            slot = before;
        }
        if (slot != NULL)
            slot_give_back(slot);
    }
    if (failed != NULL) {
        keep_failure(failed);
        slot_give_back(failed);
    }
    return count;
}

struct poll_call {
    struct library_call base;
    struct pando_queue *queue;
    int timeout_ms;
};

/* Until something is done, or time is up. */
static enum pando_status wait_co(struct library_call *call)
{
    struct poll_call *poll = container_of(call, struct poll_call, base);
    struct pando_queue *queue = poll->queue;
    uint64_t deadline_ns =
        poll->timeout_ms < 0 ? RT_NEVER : rt_now_ns() + (uint64_t)poll->timeout_ms * RT_NS_PER_MS;
    for (;;) {
        rt_latch_lock(&queue->latch);
        bool over = queue->done != NULL || (deadline_ns != RT_NEVER && rt_now_ns() >= deadline_ns);
        queue->waiter = over ? NULL : rt_task_self();
        rt_latch_unlock(&queue->latch);
        if (over)
            return PANDO_OK;
        (void)rt_park_co(deadline_ns);
    }
}

enum pando_status pando_queue_poll(struct pando_queue *queue, struct pando_completion *out,
                                   unsigned capacity, int timeout_ms, unsigned *count)
{
    enum pando_status status =
        pool_usable(queue == NULL ? NULL : queue->pool, NO_QUEUE("pando_queue_poll"));
    if (status != PANDO_OK)
        return status;
    if (out == NULL || count == NULL || capacity == 0)
        return failure_say(queue->pool, PANDO_INVALID,
                           "poll a queue: there is no room for a completion, or nowhere to tell "
                           "how many; nothing was done");
    *count = take_completions(queue, out, capacity);
    if (*count > 0 || timeout_ms == 0 || queue->in_flight == 0)
        return PANDO_OK;
    struct poll_call call = {
        .base = {.what = "poll a queue", .pool = queue->pool, .fn_co = wait_co},
        .queue = queue,
        .timeout_ms = timeout_ms};
    status = call_run(&call.base);
    if (status == PANDO_OK) /* else its own failure would give way to a completion's */
        *count = take_completions(queue, out, capacity);
    return status;
}

unsigned pando_queue_in_flight(const struct pando_queue *queue)
{
    return queue == NULL ? 0 : queue->in_flight;
}
