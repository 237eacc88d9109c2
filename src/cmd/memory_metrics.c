#include "cmd/memory_metrics.h"

#include <stdio.h>
#include <stdlib.h>

#include "fabric/shm/shm.h"
#include "fabric/tcp/tcp.h"
#include "http/http.h"
#include "http/metrics_pool.h"

struct memory_metrics {
    struct fabric *fabric;
    memory_served_fn served; /* may be NULL */
    struct memnode *memnode;
    struct http *http;
    struct rt_thread *thread;
    struct rt_waitq stop;
    _Atomic bool stopping;
    uint64_t begin_ns;
};

static const char *const method_names[POOL_METHODS] = {
    "unknown",
    [POOL_GRANT] = "grant",
    [POOL_RETURN] = "return",
    [POOL_SWEEP] = "sweep",
    [POOL_STATS] = "stats",
    [POOL_PUSHDOWN] = "work",
    [POOL_PUSHDOWN_SEEN] = "work-seen",
    [POOL_USAGE] = "usage",
    [POOL_PASS] = "pass",
    [POOL_TICKET] = "ticket",
    [POOL_WAITING] = "waiting",
};

static void put_served(const struct memory_metrics *self, struct metrics *out)
{
    struct fabric_served served;
    struct memnode_calls calls;
    char labels[64];
    if (self->served != NULL) {
        self->served(self->fabric, &served);
        metrics_one(out, "pando_memory_connections", METRICS_GAUGE,
                    "Endpoints connected to this node.", served.connections);
        metrics_one(out, "pando_memory_lists_total", METRICS_COUNTER,
                    "Lists of operations executed for others.", served.lists);
        metrics_one(out, "pando_memory_operations_total", METRICS_COUNTER, "Operations in them.",
                    served.operations);
        metrics_one(out, "pando_strangers_evicted_total", METRICS_COUNTER,
                    "Connections that proved nothing and were closed to make room for others.",
                    served.evicted);
    }
    memnode_calls(self->memnode, &calls);
    metrics_family(out, "pando_memory_calls_total", METRICS_COUNTER, "Calls answered, by method.");
    for (unsigned i = 0; i < POOL_METHODS; i++) {
        snprintf(labels, sizeof(labels), "method=\"%s\"", method_names[i]);
        metrics_u64(out, "pando_memory_calls_total", labels, calls.answered[i]);
    }
    metrics_one(out, "pando_memory_call_errors_total", METRICS_COUNTER,
                "Calls answered with an error.", calls.errors);
}

static void content_co(void *context, struct metrics *out)
{
    struct memory_metrics *self = context;
    struct pool_node_stats stats;
    unsigned count = 0;
    metrics_build(out);
    metrics_family(out, "pando_uptime_seconds", METRICS_GAUGE, "Time since the node began.");
    metrics_double(out, "pando_uptime_seconds", NULL, (double)(rt_now_ns() - self->begin_ns) / 1e9);
    char labels[64];
    snprintf(labels, sizeof(labels), "id=\"%016llx\"",
             (unsigned long long)fabric_window_id(self->fabric));
    metrics_family(out, "pando_memory_window_info", METRICS_GAUGE,
                   "1, with the id of the window: another id is another memory.");
    metrics_u64(out, "pando_memory_window_info", labels, 1);
    metrics_one(out, "pando_memory_window_refusals_total", METRICS_COUNTER,
                "Clients refused because they expect another window at this node.",
                fabric_window_refusals(self->fabric));
    put_served(self, out);
    memnode_stats(self->memnode, &stats);
    metrics_nodes(out, &stats, fabric_self(self->fabric), 1);
    if (fabric_self(self->fabric) != 0)
        return; /* node 0 knows the members */
    struct pool_member *members = calloc(POOL_MEMBERS, sizeof(*members));
    if (members == NULL) {
        out->failed = true;
        return;
    }
    memnode_members(self->memnode, members, POOL_MEMBERS, &count);
    metrics_members(out, members, count);
    free(members);
}

static void thread_main(void *arg)
{
    struct memory_metrics *self = arg;
    self->begin_ns = rt_now_ns();
    if (http_start(self->http) != PANDO_OK)
        return;
    /* A wake-up between the look and the wait would be missed: look again now and then. */
    while (!self->stopping)
        (void)rt_waitq_wait_co(&self->stop, rt_now_ns() + RT_NS_PER_S);
    http_stop_co(self->http);
}

enum pando_status memory_metrics_start(const char *listen, struct fabric *fabric,
                                       memory_served_fn served, struct memnode *memnode,
                                       struct memory_metrics **out, char *error, size_t error_bytes)
{
    struct memory_metrics *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return PANDO_NO_MEMORY;
    self->fabric = fabric;
    self->served = served;
    self->memnode = memnode;
    rt_waitq_init(&self->stop);
    enum pando_status status = http_open(listen, content_co, self, &self->http, error, error_bytes);
    if (status != PANDO_OK) {
        free(self);
        return status;
    }
    status = rt_thread_start("pando-metrics", thread_main, self, &self->thread);
    if (status != PANDO_OK) {
        snprintf(error, error_bytes, "--metrics: cannot start a thread");
        http_close(self->http);
        free(self);
        return status;
    }
    *out = self;
    return PANDO_OK;
}

const char *memory_metrics_address(const struct memory_metrics *metrics)
{
    return http_address(metrics->http);
}

void memory_metrics_stop(struct memory_metrics *metrics)
{
    metrics->stopping = true;
    (void)rt_waitq_wake_all(&metrics->stop);
    rt_thread_join(metrics->thread);
    http_close(metrics->http);
    free(metrics);
}
