/*
 * info_commands.c - INFO and COMMAND: what the server is and can do.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/census.h"
#include "server/resp/pattern.h"

enum { INFO_BYTES = 64 * 1024 };

static const uint64_t PATIENCE_NS = 300 * RT_NS_PER_MS; /* for numbers of now */

/* ---- INFO ------------------------------------------------------------------------------------ */

struct text {
    char *bytes;
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(text->bytes + text->used, INFO_BYTES - text->used, format, arguments);
    va_end(arguments);
    if (size > 0)
        text->used +=
            (size_t)size < INFO_BYTES - text->used ? (size_t)size : INFO_BYTES - text->used - 1;
}

/* "1.50M", as Redis writes it. */
static const char *human(uint64_t bytes, char text[32])
{
    static const char units[] = "BKMGT";
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 2 < sizeof(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(text, 32, unit == 0 ? "%.0f%c" : "%.2f%c", value, units[unit]);
    return text;
}

static void info_server(struct server *server, const struct stats_sum *sum, struct text *text)
{
    const char *colon = strrchr(server->address_text[0], ':');
    add(text,
        "redis_version:%s\r\nredis_mode:standalone\r\nos:Linux\r\npando_version:%s\r\npool:%s\r\n"
        "arch_bits:64\r\nprocess_id:%d\r\nrun_id:%s\r\ntcp_port:%s\r\nserver_time_usec:%llu\r\n"
        "io_threads_active:%d\r\nthreads:%u\r\n"
        "uptime_in_seconds:%llu\r\nuptime_in_days:%llu\r\n",
        SERVER_REDIS_VERSION, PANDO_RELEASE, env_kind(server->options.env), rt_process_id(),
        server->run_id, colon == NULL ? "0" : colon + 1, (unsigned long long)rt_wall_us(),
        server->options.threads > 1, server->options.threads,
        (unsigned long long)(sum->uptime_ms / 1000),
        (unsigned long long)(sum->uptime_ms / 86400000));
}

static void info_clients(struct server *server, const struct stats_sum *sum, struct text *text)
{
    add(text,
        "connected_clients:%llu\r\ncluster_connections:0\r\nmaxclients:%llu\r\n"
        "blocked_clients:0\r\ntracking_clients:0\r\n",
        (unsigned long long)sum->clients,
        (unsigned long long)atomic_load(&server->settings.max_clients));
}

/* In an embedded pool the pool's memory is this process's, which is then told by its heap alone. */
static void info_memory(struct server *server, const struct stats_sum *sum, struct text *text)
{
    struct census *census = server->census;
    struct rt_usage usage;
    char words[2][32];
    (void)sum;
    rt_usage(&usage);
    rt_latch_lock(&census->latch);
    uint64_t pool = census->pool_bytes, pool_used = census->pool_used_bytes;
    unsigned nodes = census->pool_nodes;
    rt_latch_unlock(&census->latch);
    bool embedded = strcmp(env_kind(server->options.env), "embedded") == 0;
    uint64_t own = embedded ? usage.heap_bytes : usage.private_bytes;
    uint64_t used = own + pool_used;
    add(text,
        "used_memory:%llu\r\nused_memory_human:%s\r\nused_memory_rss:%llu\r\n"
        "used_memory_rss_human:%s\r\n",
        (unsigned long long)used, human(used, words[0]), (unsigned long long)usage.resident_bytes,
        human(usage.resident_bytes, words[1]));
    add(text,
        "used_memory_dataset:%llu\r\nmaxmemory:0\r\nmaxmemory_human:0B\r\n"
        "maxmemory_policy:noeviction\r\nmem_allocator:libc\r\nmem_cluster_links:0\r\n"
        "pando_server_memory:%llu\r\npando_pool_used_memory:%llu\r\npando_pool_memory:%llu\r\n"
        "pando_pool_nodes:%u\r\npando_pool_nodes_reached:%u\r\n",
        (unsigned long long)pool_used, (unsigned long long)own, (unsigned long long)pool_used,
        (unsigned long long)pool, env_memory_nodes(server->options.env), nodes);
}

static void info_cpu(struct server *server, const struct stats_sum *sum, struct text *text)
{
    struct rt_usage usage;
    (void)server;
    (void)sum;
    rt_usage(&usage);
    add(text,
        "used_cpu_sys:%.6f\r\nused_cpu_user:%.6f\r\nused_cpu_sys_children:0.000000\r\n"
        "used_cpu_user_children:0.000000\r\n",
        (double)usage.system_us / 1e6, (double)usage.user_us / 1e6);
}

static void info_keyspace(struct server *server, const struct stats_sum *sum, struct text *text)
{
    (void)sum;
    for (unsigned i = 0; i < SERVER_DATABASES; i++) {
        struct census_count count = census_count_of(server->census, i);
        if (count.keys == 0)
            continue;
        add(text, "db%u:keys=%llu,expires=%llu,avg_ttl=%llu\r\n", i, (unsigned long long)count.keys,
            (unsigned long long)count.expiring,
            (unsigned long long)(count.expiring == 0 ? 0 : count.ttl_ms / count.expiring));
    }
}

static void info_persistence(struct server *server, const struct stats_sum *sum, struct text *text)
{
    (void)server;
    (void)sum;
    add(text, "loading:0\r\nasync_loading:0\r\nrdb_bgsave_in_progress:0\r\naof_enabled:0\r\n");
}

static void info_stats(struct server *server, const struct stats_sum *sum, struct text *text)
{
    add(text,
        "total_connections_received:%llu\r\ntotal_commands_processed:%llu\r\n"
        "instantaneous_ops_per_sec:%llu\r\n"
        "total_net_input_bytes:%llu\r\ntotal_net_output_bytes:%llu\r\nrejected_connections:%llu\r\n"
        "expired_keys:%llu\r\nkeyspace_hits:%llu\r\nkeyspace_misses:%llu\r\n"
        "protocol_errors:%llu\r\nacl_access_denied_auth:%llu\r\nevicted_keys:0\r\n"
        "pubsub_channels:0\r\npubsub_patterns:0\r\nlatest_fork_usec:0\r\n",
        (unsigned long long)sum->connections, (unsigned long long)sum->commands,
        (unsigned long long)atomic_load(&server->commands_per_second),
        (unsigned long long)sum->bytes_in, (unsigned long long)sum->bytes_out,
        (unsigned long long)sum->rejected, (unsigned long long)sum->expired,
        (unsigned long long)sum->hits, (unsigned long long)sum->misses,
        (unsigned long long)sum->protocol_errors, (unsigned long long)sum->auth_failures);
}

static void info_replication(struct server *server, const struct stats_sum *sum, struct text *text)
{
    (void)sum;
    add(text, "role:master\r\nconnected_slaves:0\r\nmaster_replid:%s\r\nmaster_repl_offset:0\r\n",
        server->run_id);
}

static void info_cluster(struct server *server, const struct stats_sum *sum, struct text *text)
{
    (void)server;
    (void)sum;
    add(text, "cluster_enabled:0\r\n");
}

static void info_commandstats(struct server *server, const struct stats_sum *sum, struct text *text)
{
    (void)server;
    for (unsigned i = 0; i < command_numbers(); i++) {
        const struct stats_command_sum *command = &sum->command[i];
        if (command->calls + command->rejected == 0)
            continue;
        double us = (double)command->ns / 1000.0;
        add(text,
            "cmdstat_%s:calls=%llu,usec=%.0f,usec_per_call=%.2f,rejected_calls=%llu,"
            "failed_calls=%llu\r\n",
            command->name, (unsigned long long)command->calls, us,
            command->calls == 0 ? 0 : us / (double)command->calls,
            (unsigned long long)command->rejected, (unsigned long long)command->errors);
    }
}

static void info_latencystats(struct server *server, const struct stats_sum *sum, struct text *text)
{
    (void)server;
    for (unsigned i = 0; i < command_numbers(); i++) {
        const struct stats_command_sum *command = &sum->command[i];
        if (command->calls == 0)
            continue;
        add(text, "latency_percentiles_usec_%s:p50=%.3f,p99=%.3f,p99.9=%.3f\r\n", command->name,
            (double)stats_quantile_ns(command, 0.5) / 1000.0,
            (double)stats_quantile_ns(command, 0.99) / 1000.0,
            (double)stats_quantile_ns(command, 0.999) / 1000.0);
    }
}

static const struct {
    const char *name, *title;
    void (*write)(struct server *server, const struct stats_sum *sum, struct text *text);
    bool usual;
} sections[] = {
    {"server", "Server", info_server, true},
    {"clients", "Clients", info_clients, true},
    {"memory", "Memory", info_memory, true},
    {"persistence", "Persistence", info_persistence, true},
    {"stats", "Stats", info_stats, true},
    {"replication", "Replication", info_replication, true},
    {"cpu", "CPU", info_cpu, true},
    {"commandstats", "Commandstats", info_commandstats, false},
    {"latencystats", "Latencystats", info_latencystats, false},
    {"cluster", "Cluster", info_cluster, true},
    {"keyspace", "Keyspace", info_keyspace, true},
};

static bool section_wanted(const struct command_call *call, size_t section)
{
    if (call->count == 1)
        return sections[section].usual;
    for (size_t i = 1; i < call->count; i++) {
        if (call_word_is(call, i, sections[section].name) || call_word_is(call, i, "all") ||
            call_word_is(call, i, "everything") ||
            (call_word_is(call, i, "default") && sections[section].usual))
            return true;
    }
    return false;
}

/* Has what is not counted all the time counted. */
static void count_now_co(struct command_call *call)
{
    struct server *server = call->thread->server;
    for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
        if (sections[i].write == info_memory && section_wanted(call, i))
            census_ask_co(server, CENSUS_POOL, PATIENCE_NS);
        if (sections[i].write == info_keyspace && section_wanted(call, i))
            census_ask_co(server, CENSUS_KEYS, PATIENCE_NS);
    }
}

void command_info_co(struct command_call *call)
{
    struct server *server = call->thread->server;
    struct stats_sum *sum = malloc(sizeof(*sum));
    struct text text = {.bytes = malloc(INFO_BYTES)};

    if (sum == NULL || text.bytes == NULL) {
        reply_failure(call->reply, PANDO_NO_MEMORY);
    } else {
        count_now_co(call);
        server_stats_since_reset(server, sum);
        for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
            if (!section_wanted(call, i))
                continue;
            add(&text, "%s# %s\r\n", text.used > 0 ? "\r\n" : "", sections[i].title);
            sections[i].write(server, sum, &text);
        }
        reply_verbatim(call->reply, slice_of(text.bytes, text.used));
    }
    free(text.bytes);
    free(sum);
}

/* ---- COMMAND --------------------------------------------------------------------------------- */

static void reply_flags(struct reply *reply, const struct command *command)
{
    static const struct {
        unsigned flag;
        const char *name;
    } names[] = {{COMMAND_WRITE, "write"}, {COMMAND_READONLY, "readonly"},
                 {COMMAND_FAST, "fast"},   {COMMAND_NO_AUTH, "no_auth"},
                 {COMMAND_ADMIN, "admin"}, {COMMAND_LOADING, "loading"}};
    unsigned count = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        count += (command->flags & names[i].flag) != 0;
    reply_set(reply, count);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if ((command->flags & names[i].flag) != 0)
            reply_simple(reply, names[i].name);
    }
}

static void reply_command(struct reply *reply, const struct command *command)
{
    bool range = strncmp(command->name, "ri.", 3) == 0;
    reply_array(reply, 10);
    reply_text(reply, command->name);
    reply_integer(reply, command->arity);
    reply_flags(reply, command);
    reply_integer(reply, range ? 1 : command->first_key);
    reply_integer(reply, range ? 1 : command->last_key);
    reply_integer(reply, range ? 1 : command->key_step);
    reply_set(reply, 0);   /* categories */
    reply_array(reply, 0); /* tips */
    reply_array(reply, 0); /* key specifications */
    reply_array(reply, 0); /* subcommands */
}

static void command_all(struct command_call *call)
{
    reply_array(call->reply, command_count);
    for (unsigned i = 0; i < command_count; i++)
        reply_command(call->reply, &command_list[i]);
}

static void command_count_co(struct command_call *call)
{
    reply_integer(call->reply, command_count);
}

static void command_info_list_co(struct command_call *call)
{
    if (call->count == 2) {
        command_all(call);
        return;
    }
    reply_array(call->reply, call->count - 2);
    for (size_t i = 2; i < call->count; i++) {
        const struct command *command = command_find(call_word(call, i));
        if (command == NULL)
            reply_null(call->reply);
        else
            reply_command(call->reply, command);
    }
}

/* COMMAND LIST [FILTERBY MODULE|ACLCAT|PATTERN what]: there are no modules, and nothing has a category. */
static void command_names_co(struct command_call *call)
{
    bool filtered = call->count == 5 && call_word_is(call, 2, "filterby");
    bool pattern = filtered && call_word_is(call, 3, "pattern");
    bool none = filtered && (call_word_is(call, 3, "module") || call_word_is(call, 3, "aclcat"));
    uint64_t shown = 0;
    if (call->count > 2 && !pattern && !none) {
        reply_error(call->reply, "ERR syntax error");
        return;
    }
    size_t array = reply_array_begin(call->reply);
    for (unsigned i = 0; i < command_numbers() && !none; i++) { /* and "config|get" and the like */
        struct slice name = slice_of_text(command_number_name(i));
        if (pattern && !pattern_matches_folded(call_word(call, 4), name))
            continue;
        reply_bulk(call->reply, name);
        shown++;
    }
    reply_array_end(call->reply, array, shown);
}

static void reply_docs(struct reply *reply, const struct command *command)
{
    reply_text(reply, command->name);
    reply_map(reply, 3);
    reply_text(reply, "summary");
    reply_text(reply, command->summary);
    reply_text(reply, "since");
    reply_text(reply, command->since);
    reply_text(reply, "group");
    reply_text(reply, command->group);
}

static void command_docs_co(struct command_call *call)
{
    uint64_t count = 0;
    if (call->count == 2) {
        reply_map(call->reply, command_count);
        for (unsigned i = 0; i < command_count; i++)
            reply_docs(call->reply, &command_list[i]);
        return;
    }
    for (size_t i = 2; i < call->count; i++)
        count += command_find(call_word(call, i)) != NULL;
    reply_map(call->reply, count);
    for (size_t i = 2; i < call->count; i++) {
        const struct command *command = command_find(call_word(call, i));
        if (command != NULL)
            reply_docs(call->reply, command);
    }
}

static void command_getkeys_co(struct command_call *call)
{
    const struct command *command = command_find(call_word(call, 2));
    size_t count = call->count - 2;
    if (command == NULL) {
        reply_error(call->reply, "ERR Invalid command specified");
        return;
    }
    if (strcmp(command->name, "memory") == 0 && call_word_is(call, 3, "usage")) {
        if (count < 3) {
            reply_error(call->reply, "ERR Invalid number of arguments specified for command");
            return;
        }
        reply_array(call->reply, 1);
        reply_bulk(call->reply, call_word(call, 4));
        return;
    }
    if (command->first_key == 0 && (strncmp(command->name, "ri.", 3) != 0 || count < 2)) {
        reply_error(call->reply, "ERR The command has no key arguments");
        return;
    }
    if (command->arity > 0 ? count != (size_t)command->arity
                           : count < (size_t)abs(command->arity)) {
        reply_error(call->reply, "ERR Invalid number of arguments specified for command");
        return;
    }
    if (strncmp(command->name, "ri.", 3) == 0) { /* for others an index is one key: its name */
        reply_array(call->reply, 1);
        reply_bulk(call->reply, call_word(call, 3));
        return;
    }
    size_t last = command->last_key < 0 ? count - 1 : (size_t)command->last_key;
    size_t step = (size_t)command->key_step;
    reply_array(call->reply, (last - (size_t)command->first_key) / step + 1);
    for (size_t i = (size_t)command->first_key; i <= last; i += step)
        reply_bulk(call->reply, call_word(call, i + 2));
}

const struct subcommand command_subcommands[] = {
    {"count", 2, 0, command_count_co},      {"info", -2, 0, command_info_list_co},
    {"list", -2, 0, command_names_co},      {"docs", -2, 0, command_docs_co},
    {"getkeys", -4, 0, command_getkeys_co}, {NULL, 0, 0, NULL},
};

void command_command_co(struct command_call *call)
{
    if (call->count == 1)
        command_all(call);
    else
        command_container_co(call);
}
