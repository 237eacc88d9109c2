/*
 * status.c - `pando status`: the memory nodes of a pool, whether they can be reached, and what is in
 * the pool.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/cmd.h"
#include "cmd/status_pool.h"
#include "fabric/verbs/verbs.h"

enum { PROBES = 200, PROBE_BYTES = 64 };

struct settings {
    struct cmd_pool pool;
    const char *json;
};

static const struct config_option options[] = {
    CMD_POOL_OPTIONS(struct settings),
    {.name = "json",
     .metavar = "FILE",
     .help = "Also write everything as JSON to FILE; '-' prints JSON alone.",
     CONFIG_TEXT_INTO(struct settings, json)},
};

static const struct config_command command = {
    .name = "status",
    .summary =
        "Shows the memory nodes of a pool: where they are, whether they can be reached, how "
        "large they are and how long a READ takes; and what is in the pool: memory, members, "
        "tables. Exits with 1 if a node cannot be reached.",
    .example = "pando status --pool tcp:127.0.0.1:7000 --secret-file pando.secret",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
};

struct node_status {
    enum pando_status status; /* of connecting and reading */
    struct env_window window;
    bool on_chip; /* its lock table, as far as is known */
    uint64_t read_p50_ns;
};

struct status {
    struct env *env;
    unsigned nodes;
    struct node_status *node;
    struct pool_report report; /* if all nodes can be reached */
};

/* ---- finding out ----------------------------------------------------------------------------- */

static enum pando_status read_latency_co(struct fabric_endpoint *endpoint, uint64_t offset,
                                         uint64_t *out_ns)
{
    uint8_t buffer[PROBE_BYTES];
    struct histogram *latencies = malloc(sizeof(*latencies));
    enum pando_status status = latencies == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    if (status == PANDO_OK)
        histogram_init(latencies);
    for (int i = 0; status == PANDO_OK && i < PROBES; i++) {
        struct fabric_op op = fabric_read(offset, buffer, sizeof(buffer));
        uint64_t begin_ns = rt_now_ns();
        status = fabric_submit_co(endpoint, &op, 1);
        histogram_add(latencies, rt_now_ns() - begin_ns);
    }
    if (status == PANDO_OK)
        *out_ns = histogram_quantile(latencies, 0.5);
    free(latencies);
    return status;
}

static void node_status_co(struct env *env, struct fabric *fabric, unsigned number,
                           struct node_status *node)
{
    struct fabric_endpoint *endpoint;
    node->status = fabric_connect_co(fabric, (uint16_t)number, &endpoint);
    if (node->status != PANDO_OK)
        return;
    node->on_chip = strcmp(env_kind(env), "verbs") == 0 ? fabric_verbs_peer_on_chip(endpoint)
                                                        : env_simulated(env);
    node->status = env_window_co(endpoint, &node->window);
    if (node->status == PANDO_OK)
        node->status = read_latency_co(endpoint, node->window.first, &node->read_p50_ns);
    fabric_disconnect_co(endpoint);
}

static void status_main_co(void *context, const struct env_place *place)
{
    struct status *status = context;
    if (place->compute_node != 0)
        return;
    bool all = true;
    for (unsigned i = 0; i < status->nodes; i++) {
        node_status_co(place->env, place->fabric, i, &status->node[i]);
        all = all && status->node[i].status == PANDO_OK;
    }
    if (all)
        pool_report_co(&status->report, place->fabric, status->nodes);
}

/* ---- saying it ------------------------------------------------------------------------------- */

/* What is wrong is said on stderr in either case. */
static void print_node(const struct status *status, unsigned number, bool in_words)
{
    const struct node_status *node = &status->node[number];
    char text[512], host[FORMAT_SIZE_MAX], device[FORMAT_SIZE_MAX];

    if (node->status != PANDO_OK) {
        env_explain_connect(status->env, number, node->status, text, sizeof(text));
        cmd_error("status", "%s", text);
        return;
    }
    if (!in_words)
        return;
    printf("node %-3u %s at %s: %s, lock table %s %s, READ of %d B %.2f us%s\n", number,
           env_kind(status->env), env_memory_place(status->env, number),
           format_size(host, sizeof(host), node->window.host_bytes),
           format_size(device, sizeof(device), node->window.device_bytes),
           node->on_chip ? "on the card" : "in host memory", PROBE_BYTES,
           (double)node->read_p50_ns / 1000, env_simulated(status->env) ? " (simulated)" : "");
}

static void json_node(struct json *json, const struct status *status, unsigned number)
{
    const struct node_status *node = &status->node[number];
    json_begin_object(json);
    json_key(json, "node");
    json_u64(json, number);
    json_key(json, "place");
    json_string(json, env_memory_place(status->env, number));
    json_key(json, "status");
    json_string(json, pando_status_text(node->status));
    if (node->status == PANDO_OK) {
        json_key(json, "window_bytes");
        json_u64(json, node->window.host_bytes);
        json_key(json, "device_bytes");
        json_u64(json, node->window.device_bytes);
        json_key(json, "device_on_chip");
        json_bool(json, node->on_chip);
        json_key(json, "read_p50_ns");
        json_u64(json, node->read_p50_ns);
    }
    json_end_object(json);
}

static bool write_json(const struct status *status, const struct settings *settings)
{
    struct json json;
    if (settings->json == NULL)
        return true;
    json_init(&json);
    json_begin_object(&json);
    json_key(&json, "pool");
    json_string(&json, settings->pool.uri);
    json_key(&json, "kind");
    json_string(&json, env_kind(status->env));
    json_key(&json, "nodes");
    json_begin_array(&json);
    for (unsigned i = 0; i < status->nodes; i++)
        json_node(&json, status, i);
    json_end_array(&json);
    if (status->report.stats != NULL && status->report.status == PANDO_OK)
        pool_report_json(&status->report, &json);
    json_end_object(&json);
    bool written = cmd_write_json("status", &json, settings->json);
    json_fini(&json);
    return written;
}

static int report(const struct status *status, const struct settings *settings)
{
    bool json_alone = settings->json != NULL && strcmp(settings->json, "-") == 0;
    unsigned reached = 0;

    for (unsigned i = 0; i < status->nodes; i++)
        reached += status->node[i].status == PANDO_OK;
    if (!json_alone)
        printf("pool     %s: %u of %u memory nodes reached\n", settings->pool.uri, reached,
               status->nodes);
    for (unsigned i = 0; i < status->nodes; i++)
        print_node(status, i, !json_alone);
    bool inside = reached == status->nodes && status->report.status == PANDO_OK;
    if (inside && !json_alone)
        pool_report_print(&status->report, stdout);
    else if (!inside && reached == status->nodes)
        cmd_error("status", "%s", status->report.error);
    if (!write_json(status, settings))
        return EXIT_FAILED;
    return inside ? EXIT_OK : EXIT_FAILED;
}

static int status_of(struct env *env, const struct settings *settings)
{
    struct status status = {.env = env, .nodes = env_memory_nodes(env)};
    int result = EXIT_FAILED;

    status.node = calloc(status.nodes, sizeof(*status.node));
    if (status.node == NULL) {
        cmd_error("status", "out of memory");
        return result;
    }
    enum pando_status ran = env_run(env, 1, status_main_co, &status);
    if (ran == PANDO_OK)
        result = report(&status, settings);
    else
        cmd_error("status", "cannot run: %s", pando_status_text(ran));
    pool_report_free(&status.report);
    free(status.node);
    return result;
}

int cmd_status(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    int result;

    if (cmd_load(&config, &command, argc, argv, &settings, &result)) {
        struct env *env = cmd_pool_open("status", &settings.pool, &result);
        if (env != NULL) {
            result = status_of(env, &settings);
            env_close(env);
        }
    }
    config_fini(&config);
    return result;
}
