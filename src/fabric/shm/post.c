/*
 * post.c - lists: executed by the CPU of whoever posts them.
 *
 * What costs time here is cache misses. A lone task has nothing to overlap them with, so its list
 * is executed at once. When others could run, the list waits for the end of the loop's turn, and
 * its cache lines are asked for. Those of a list of several lines are asked for when it comes: they
 * are fetched side by side, while other tasks run. Those of short lists are asked for at the end
 * of the turn, all in a row: a prefetch whose page is not in the TLB holds up all that follows it
 * until the page is found, and only prefetches side by side look for their pages side by side. A
 * long transfer overlaps its own misses: it is executed at once, too.
 */
#include "fabric/shm/shm_int.h"

enum {
    AT_ONCE_MAX = 16,  /* then the loop gets a turn: timers and descriptors want to be looked at */
    SHORT_BYTES = 256, /* up to here a list has too few lines to overlap them with each other */
    LONG_BYTES = 2048, /* a list of so many bytes needs no help */
    PREFETCH_LISTS_MAX = 64, /* more would drive each other out of the cache */
};

static void prefetch(const struct shm_endpoint *endpoint, const struct fabric_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fabric_op *op = &list->ops[i];
        window_prefetch(endpoint->window, op->offset, op->size, op->kind != FABRIC_READ);
    }
}

static uint64_t bytes_of(const struct fabric_list *list)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < list->count; i++)
        bytes += list->ops[i].size;
    return bytes;
}

static struct fabric_list *deferred_take(struct shm_endpoint *endpoint)
{
    struct fabric_list *list = endpoint->deferred;
    endpoint->deferred = list->next;
    if (endpoint->deferred == NULL) {
        endpoint->deferred_end = &endpoint->deferred;
        rt_poller_remove(&endpoint->poller);
    }
    return list;
}

static void deferred_add(struct shm_endpoint *endpoint, struct fabric_list *list)
{
    if (endpoint->deferred == NULL)
        rt_poller_add(endpoint->base.loop, &endpoint->poller);
    list->next = NULL;
    *endpoint->deferred_end = list;
    endpoint->deferred_end = &list->next;
}

/* Windows of compute nodes may begin a new life under the feet of who has mapped them. What was
 * read counts only if that had not begun afterwards. */
static bool same_life(const struct shm_endpoint *endpoint)
{
    return endpoint->base.target != FABRIC_COMPUTE ||
           window_id(endpoint->window) == endpoint->base.window;
}

static enum pando_status execute(struct shm_endpoint *endpoint, struct fabric_list *list)
{
    if (!same_life(endpoint))
        return PANDO_BROKEN;
    enum pando_status status = window_execute(endpoint->window, list->ops, list->count);
    return same_life(endpoint) ? status : PANDO_BROKEN;
}

/* For as many of the lists that wait as the cache can hold: how many. */
static unsigned prefetch_short(const struct shm_endpoint *endpoint)
{
    unsigned count = 0;
    for (const struct fabric_list *list = endpoint->deferred;
         list != NULL && count < PREFETCH_LISTS_MAX; list = list->next, count++) {
        if (bytes_of(list) <= SHORT_BYTES)
            prefetch(endpoint, list);
    }
    return count;
}

static bool execute_deferred(struct rt_poller *poller)
{
    struct shm_endpoint *endpoint = container_of(poller, struct shm_endpoint, poller);

    endpoint->executed_at_once = 0;
    while (endpoint->deferred != NULL) {
        for (unsigned ready = prefetch_short(endpoint); ready > 0; ready--) {
            struct fabric_list *list = deferred_take(endpoint);
            fabric_list_done(&endpoint->base, list, execute(endpoint, list));
        }
    }
    return true;
}

void shm_lists_init(struct shm_endpoint *endpoint)
{
    endpoint->deferred = NULL;
    endpoint->deferred_end = &endpoint->deferred;
    endpoint->poller.poll = execute_deferred;
    endpoint->executed_at_once = 0;
}

void shm_lists_post(struct fabric_endpoint *base, struct fabric_list *list)
{
    struct shm_endpoint *endpoint = shm_endpoint_of(base);
    uint64_t bytes = bytes_of(list);

    if (endpoint->deferred == NULL && endpoint->executed_at_once < AT_ONCE_MAX &&
        (rt_loop_runnable(base->loop) == 0 || bytes >= LONG_BYTES)) {
        endpoint->executed_at_once++;
        fabric_list_done(base, list, execute(endpoint, list));
        return;
    }
    if (bytes > SHORT_BYTES)
        prefetch(endpoint, list);
    deferred_add(endpoint, list);
}

void shm_lists_fail(struct shm_endpoint *endpoint, enum pando_status status)
{
    while (endpoint->deferred != NULL)
        fabric_list_done(&endpoint->base, deferred_take(endpoint), status);
}
