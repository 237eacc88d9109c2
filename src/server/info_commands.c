/*
 * info_commands.c - INFO, CONFIG and COMMAND: what the server is and can do.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/keyspace.h"
#include "server/pattern.h"

enum { INFO_BYTES = 16 * 1024, NAMES_SHOWN = 128 };

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

static void info_server(const struct server *server, const struct stats_sum *sum, struct text *text)
{
    const char *colon = strrchr(server->address_text[0], ':');
    add(text,
        "redis_version:%s\r\nredis_mode:standalone\r\npando_version:%s\r\npool:%s\r\n"
        "arch_bits:64\r\nrun_id:%s\r\ntcp_port:%s\r\nio_threads_active:%d\r\nthreads:%u\r\n"
        "uptime_in_seconds:%llu\r\nuptime_in_days:%llu\r\n",
        SERVER_REDIS_VERSION, PANDO_RELEASE, env_kind(server->options.env), server->run_id,
        colon == NULL ? "0" : colon + 1, server->options.threads > 1, server->options.threads,
        (unsigned long long)(sum->uptime_ms / 1000),
        (unsigned long long)(sum->uptime_ms / 86400000));
}

static void info_clients(const struct server *server, const struct stats_sum *sum,
                         struct text *text)
{
    add(text, "connected_clients:%llu\r\nmaxclients:%llu\r\nblocked_clients:0\r\n",
        (unsigned long long)sum->clients, (unsigned long long)server->options.max_clients);
}

static void info_persistence(const struct server *server, const struct stats_sum *sum,
                             struct text *text)
{
    (void)server;
    (void)sum;
    add(text, "loading:0\r\nasync_loading:0\r\nrdb_bgsave_in_progress:0\r\naof_enabled:0\r\n");
}

static void info_stats(const struct server *server, const struct stats_sum *sum, struct text *text)
{
    (void)server;
    add(text,
        "total_connections_received:%llu\r\ntotal_commands_processed:%llu\r\n"
        "total_net_input_bytes:%llu\r\ntotal_net_output_bytes:%llu\r\nrejected_connections:%llu\r\n"
        "expired_keys:%llu\r\nkeyspace_hits:%llu\r\nkeyspace_misses:%llu\r\n"
        "protocol_errors:%llu\r\nacl_access_denied_auth:%llu\r\n",
        (unsigned long long)sum->connections, (unsigned long long)sum->commands,
        (unsigned long long)sum->bytes_in, (unsigned long long)sum->bytes_out,
        (unsigned long long)sum->rejected, (unsigned long long)sum->expired,
        (unsigned long long)sum->hits, (unsigned long long)sum->misses,
        (unsigned long long)sum->protocol_errors, (unsigned long long)sum->auth_failures);
}

static void info_replication(const struct server *server, const struct stats_sum *sum,
                             struct text *text)
{
    (void)sum;
    add(text, "role:master\r\nconnected_slaves:0\r\nmaster_replid:%s\r\nmaster_repl_offset:0\r\n",
        server->run_id);
}

static void info_cluster(const struct server *server, const struct stats_sum *sum,
                         struct text *text)
{
    (void)server;
    (void)sum;
    add(text, "cluster_enabled:0\r\n");
}

static void info_commandstats(const struct server *server, const struct stats_sum *sum,
                              struct text *text)
{
    (void)server;
    for (unsigned i = 0; i < command_count; i++) {
        const struct stats_command_sum *command = &sum->command[i];
        if (command->calls == 0)
            continue;
        double us = (double)command->ns / 1000.0;
        add(text,
            "cmdstat_%s:calls=%llu,usec=%.0f,usec_per_call=%.2f,rejected_calls=0,"
            "failed_calls=%llu\r\n",
            command->name, (unsigned long long)command->calls, us, us / (double)command->calls,
            (unsigned long long)command->errors);
    }
}

static void info_latencystats(const struct server *server, const struct stats_sum *sum,
                              struct text *text)
{
    (void)server;
    for (unsigned i = 0; i < command_count; i++) {
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
    void (*write)(const struct server *server, const struct stats_sum *sum, struct text *text);
    bool usual;
} sections[] = {
    {"server", "Server", info_server, true},
    {"clients", "Clients", info_clients, true},
    {"persistence", "Persistence", info_persistence, true},
    {"stats", "Stats", info_stats, true},
    {"replication", "Replication", info_replication, true},
    {"commandstats", "Commandstats", info_commandstats, false},
    {"latencystats", "Latencystats", info_latencystats, false},
    {"cluster", "Cluster", info_cluster, true},
};

static bool section_wanted(const struct call *call, size_t section)
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

void command_info_co(struct call *call)
{
    struct server *server = call->thread->server;
    struct stats_sum *sum = malloc(sizeof(*sum));
    struct text text = {.bytes = malloc(INFO_BYTES)};

    if (sum == NULL || text.bytes == NULL) {
        reply_failure(call->reply, PANDO_NO_MEMORY);
    } else {
        server_stats(server, sum);
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

/* ---- CONFIG ---------------------------------------------------------------------------------- */

struct setting {
    const char *name;
    const char *text; /* NULL: a number of the server's */
    size_t offset;
    unsigned divisor;
};

static const struct setting settings[] = {
    {"appendonly", "no", 0, 1},
    {"save", "", 0, 1},
    {"databases", "16", 0, 1},
    {"maxclients", NULL, offsetof(struct server_options, max_clients), 1},
    {"timeout", NULL, offsetof(struct server_options, idle_timeout_ms), 1000},
    {"proto-max-bulk-len", "16777216", 0, 1},
    {"client-query-buffer-limit", "67108864", 0, 1},
    {"maxmemory", "0", 0, 1},
    {"maxmemory-policy", "noeviction", 0, 1},
    {"cluster-enabled", "no", 0, 1},
};
enum { SETTINGS = sizeof(settings) / sizeof(settings[0]) };

static void config_get_co(struct call *call)
{
    const struct server *server = call->thread->server;
    size_t chosen[SETTINGS] = {0}; /* by which word */
    uint64_t count = 0;

    for (size_t word = 2; word < call->count; word++) {
        for (size_t i = 0; i < SETTINGS; i++) {
            if (chosen[i] != 0 ||
                !pattern_matches_folded(call_word(call, word), slice_of_text(settings[i].name)))
                continue;
            chosen[i] = word;
            count++;
        }
    }
    reply_map(call->reply, count);
    for (size_t i = 0; i < SETTINGS; i++) {
        uint64_t number;
        char text[32];
        if (chosen[i] == 0)
            continue;
        /* A name is repeated as it was written; a pattern is not. */
        if (call_word_is(call, chosen[i], settings[i].name))
            reply_bulk(call->reply, call_word(call, chosen[i]));
        else
            reply_text(call->reply, settings[i].name);
        memcpy(&number, (const char *)&server->options + settings[i].offset, sizeof(number));
        snprintf(text, sizeof(text), "%llu", (unsigned long long)(number / settings[i].divisor));
        reply_text(call->reply, settings[i].text != NULL ? settings[i].text : text);
    }
}

static void config_set_co(struct call *call)
{
    if (call->count % 2 != 0) {
        reply_error(call->reply, "ERR syntax error");
        return;
    }
    for (size_t word = 2; word < call->count; word += 2) {
        bool known = false;
        for (size_t i = 0; i < SETTINGS; i++)
            known |= call_word_is(call, word, settings[i].name);
        struct slice name = call_word(call, word);
        if (!known) {
            reply_errorf(
                call->reply, "ERR Unknown option or number of arguments for CONFIG SET - '%.*s'",
                (int)(name.size < NAMES_SHOWN ? name.size : NAMES_SHOWN), (const char *)name.data);
            return;
        }
    }
    struct slice name = call_word(call, 2);
    reply_errorf(
        call->reply,
        "ERR CONFIG SET failed (possibly related to argument '%.*s') - can't set immutable "
        "config: options are given when the server starts",
        (int)(name.size < NAMES_SHOWN ? name.size : NAMES_SHOWN), (const char *)name.data);
}

static void config_resetstat_co(struct call *call)
{
    reply_ok(call->reply); /* counters only grow, for those who watch them */
}

static void config_help_co(struct call *call)
{
    reply_array(call->reply, 1);
    reply_simple(call->reply, "CONFIG GET <pattern> ..., CONFIG RESETSTAT, CONFIG HELP");
}

void command_config_co(struct call *call)
{
    static const struct subcommand list[] = {
        {"get", -3, config_get_co},
        {"set", -4, config_set_co},
        {"resetstat", 2, config_resetstat_co},
        {"help", 2, config_help_co},
    };
    subcommand_run_co(call, list, sizeof(list) / sizeof(list[0]));
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

static void command_all(struct call *call)
{
    reply_array(call->reply, command_count);
    for (unsigned i = 0; i < command_count; i++)
        reply_command(call->reply, &command_list[i]);
}

static void command_count_co(struct call *call)
{
    reply_integer(call->reply, command_count);
}

static void command_info_list_co(struct call *call)
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

static void command_names_co(struct call *call)
{
    reply_array(call->reply, command_count);
    for (unsigned i = 0; i < command_count; i++)
        reply_text(call->reply, command_list[i].name);
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

static void command_docs_co(struct call *call)
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

static void command_getkeys_co(struct call *call)
{
    const struct command *command = command_find(call_word(call, 2));
    size_t count = call->count - 2;
    if (command == NULL) {
        reply_error(call->reply, "ERR Invalid command specified");
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

void command_command_co(struct call *call)
{
    static const struct subcommand list[] = {
        {"count", 2, command_count_co},      {"info", -2, command_info_list_co},
        {"list", -2, command_names_co},      {"docs", -2, command_docs_co},
        {"getkeys", -4, command_getkeys_co},
    };
    if (call->count == 1)
        command_all(call);
    else
        subcommand_run_co(call, list, sizeof(list) / sizeof(list[0]));
}
