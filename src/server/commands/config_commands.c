/*
 * config_commands.c - CONFIG: what the settings are, and changing those that can be changed while the server
 * runs. Of several all are changed or none.
 */
#include <stdio.h>
#include <stdlib.h>

#include <openssl/crypto.h>

#include "base/log.h"
#include "server/keyspace.h"
#include "server/resp/number.h"
#include "server/resp/pattern.h"

enum { NAMES_SHOWN = 128, TEXT_BYTES = SECRET_BYTES_MAX + 1, WHY_BYTES = 128 };

enum kind { FIXED, NUMBER, LEVEL, PASSWORD };

struct setting {
    const char *name;
    enum kind kind;
    const char *text; /* of a fixed one */
    size_t offset;    /* of a number in struct server_settings */
    int64_t least, most;
    unsigned unit;   /* what is kept is so many times what is shown */
    bool everywhere; /* Redis does not let it be changed either */
};

#define SETTING(field) offsetof(struct server_settings, field)

static const struct setting list[] = {
    {"appendonly", FIXED, "no", 0, 0, 0, 1, false},
    {"save", FIXED, "", 0, 0, 0, 1, false},
    {"databases", FIXED, "16", 0, 0, 0, 1, true},
    {"maxclients", NUMBER, NULL, SETTING(max_clients), 1, UINT32_MAX, 1, false},
    {"timeout", NUMBER, NULL, SETTING(idle_timeout_ms), 0, INT32_MAX, 1000, false},
    {"loglevel", LEVEL, NULL, 0, 0, 0, 1, false},
    {"requirepass", PASSWORD, NULL, 0, 0, 0, 1, false},
    {"slowlog-log-slower-than", NUMBER, NULL, SETTING(slower_than_us), -1, INT64_MAX, 1, false},
    {"slowlog-max-len", NUMBER, NULL, SETTING(slowlog_length), 0, SLOW_LOG_MAX, 1, false},
    {"latency-monitor-threshold", NUMBER, NULL, SETTING(latency_ms), 0, INT64_MAX, 1, false},
    {"proto-max-bulk-len", FIXED, "536870912", 0, 0, 0, 1, false},
    {"client-query-buffer-limit", FIXED, "67108864", 0, 0, 0, 1, false},
    {"maxmemory", FIXED, "0", 0, 0, 0, 1, false},
    {"maxmemory-policy", FIXED, "noeviction", 0, 0, 0, 1, false},
    {"cluster-enabled", FIXED, "no", 0, 0, 0, 1, true},
};
enum { SETTINGS = sizeof(list) / sizeof(list[0]) };

/* Redis has two names for what is told by default. */
static const struct {
    const char *name;
    enum log_level level;
} levels[] = {{"debug", LOG_LEVEL_DEBUG},
              {"verbose", LOG_LEVEL_INFO},
              {"notice", LOG_LEVEL_INFO},
              {"warning", LOG_LEVEL_WARN}};
enum { LEVELS = sizeof(levels) / sizeof(levels[0]), LEVEL_NOTICE = 2 };

void settings_init(struct server *server)
{
    const struct server_options *options = &server->options;
    struct server_settings *settings = &server->settings;
    atomic_store(&settings->max_clients, options->max_clients);
    atomic_store(&settings->idle_timeout_ms, options->idle_timeout_ms);
    atomic_store(&settings->slower_than_us, SLOW_THAN_USUAL_US);
    atomic_store(&settings->slowlog_length, SLOW_LOG_USUAL);
    atomic_store(&settings->log_name, LEVEL_NOTICE);
    atomic_store(&server->slow.limit_ns, SLOW_THAN_USUAL_US * UINT64_C(1000));
}

/* ---- values ---------------------------------------------------------------------------------- */

static _Atomic uint64_t *number_of(struct server *server, const struct setting *setting)
{
    return (_Atomic uint64_t *)((char *)&server->settings + setting->offset);
}

/* The name that was set last, if the log has its level still; else the first of that level. */
static const char *level_name(const struct server *server)
{
    int now = atomic_load(&log_level_now), last = atomic_load(&server->settings.log_name);
    if ((int)levels[last].level == now)
        return levels[last].name;
    return now == LOG_LEVEL_DEBUG ? "debug" : now == LOG_LEVEL_INFO ? "notice" : "warning";
}

/* Under the latch. Returns the size. */
static size_t value_of(struct server *server, const struct setting *setting, char text[TEXT_BYTES])
{
    switch (setting->kind) {
    case FIXED:
        return (size_t)snprintf(text, TEXT_BYTES, "%s", setting->text);
    case NUMBER:
        return (size_t)snprintf(text, TEXT_BYTES, "%lld",
                                (long long)atomic_load(number_of(server, setting)) /
                                    (long long)setting->unit);
    case LEVEL:
        return (size_t)snprintf(text, TEXT_BYTES, "%s", level_name(server));
    case PASSWORD:
        break;
    }
    if (!server->has_password)
        return 0;
    memcpy(text, server->password.bytes, server->password.size);
    return server->password.size;
}

/* ---- GET ------------------------------------------------------------------------------------- */

static void config_get_co(struct command_call *call)
{
    struct server *server = call->thread->server;
    size_t chosen[SETTINGS] = {0}; /* by which word */
    uint64_t count = 0;
    char *text = malloc(TEXT_BYTES);

    if (text == NULL) {
        reply_failure(call->reply, PANDO_NO_MEMORY);
        return;
    }
    for (size_t word = 2; word < call->count; word++) {
        for (size_t i = 0; i < SETTINGS; i++) {
            if (chosen[i] != 0 ||
                !pattern_matches_folded(call_word(call, word), slice_of_text(list[i].name)))
                continue;
            chosen[i] = word;
            count++;
        }
    }
    reply_map(call->reply, count);
    rt_latch_lock(&server->settings.latch);
    for (size_t i = 0; i < SETTINGS; i++) {
        if (chosen[i] == 0)
            continue;
        /* A name is repeated as it was written; a pattern is not. */
        if (call_word_is(call, chosen[i], list[i].name))
            reply_bulk(call->reply, call_word(call, chosen[i]));
        else
            reply_text(call->reply, list[i].name);
        call->reply->bytes.secret |= list[i].kind == PASSWORD;
        reply_bulk(call->reply, slice_of(text, value_of(server, &list[i], text)));
    }
    rt_latch_unlock(&server->settings.latch);
    OPENSSL_cleanse(text, TEXT_BYTES);
    free(text);
}

/* ---- SET ------------------------------------------------------------------------------------- */

static bool number_fits(struct server *server, const struct setting *setting, struct slice word,
                        int64_t *number, char why[WHY_BYTES])
{
    uint64_t most_clients = server->options.clients_possible;
    if (!number_parse(word, number)) {
        snprintf(why, WHY_BYTES, "argument couldn't be parsed into an integer");
        return false;
    }
    if (*number < setting->least || *number > setting->most) {
        snprintf(why, WHY_BYTES, "argument must be between %lld and %lld inclusive",
                 (long long)setting->least, (long long)setting->most);
        return false;
    }
    if (setting->offset == SETTING(max_clients) && most_clients != 0 &&
        (uint64_t)*number > most_clients) {
        snprintf(why, WHY_BYTES,
                 "The operating system is not able to handle the specified number of clients, try "
                 "with %llu",
                 (unsigned long long)most_clients);
        return false;
    }
    return true;
}

/* Whether the setting can have this value; `number` is what to set for numbers and levels. */
static bool value_fits(const struct command_call *call, const struct setting *setting, size_t index,
                       int64_t *number, char why[WHY_BYTES])
{
    struct slice word = call_word(call, index);
    switch (setting->kind) {
    case FIXED:
        snprintf(why, WHY_BYTES, "can't set immutable config: this server has one value for it");
        return slice_equal(word, slice_of_text(setting->text));
    case NUMBER:
        return number_fits(call->thread->server, setting, word, number, why);
    case LEVEL:
        snprintf(why, WHY_BYTES,
                 "argument(s) must be one of the following: debug, verbose, notice, warning");
        for (*number = 0; *number < LEVELS; (*number)++) {
            if (call_word_is(call, index, levels[*number].name))
                return true;
        }
        return false;
    case PASSWORD:
        snprintf(why, WHY_BYTES, "a password has at most %d bytes", SECRET_BYTES_MAX);
        return word.size <= SECRET_BYTES_MAX;
    }
    return false;
}

/* Under the latch. */
static void apply(struct command_call *call, const struct setting *setting, size_t index,
                  int64_t number)
{
    struct server *server = call->thread->server;
    struct slice word = call_word(call, index);
    switch (setting->kind) {
    case FIXED:
        break;
    case NUMBER:
        atomic_store(number_of(server, setting), (uint64_t)number * setting->unit);
        break;
    case LEVEL:
        atomic_store(&server->settings.log_name, (int)number);
        log_set_level(levels[number].level);
        break;
    case PASSWORD:
        secret_forget(&server->password);
        if (word.size > 0)
            memcpy(server->password.bytes, word.data, word.size);
        server->password.size = word.size;
        server->has_password = word.size > 0;
        break;
    }
}

static const struct setting *setting_of(const struct command_call *call, size_t index)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        if (call_word_is(call, index, list[i].name))
            return &list[i];
    }
    return NULL;
}

static void reply_unknown(struct command_call *call, size_t index)
{
    struct slice name = call_word(call, index);
    reply_errorf(call->reply, "ERR Unknown option or number of arguments for CONFIG SET - '%.*s'",
                 (int)(name.size < NAMES_SHOWN ? name.size : NAMES_SHOWN), (const char *)name.data);
}

static void reply_failed(struct command_call *call, struct slice name, const char *why)
{
    reply_errorf(call->reply, "ERR CONFIG SET failed (possibly related to argument '%.*s') - %s",
                 (int)(name.size < NAMES_SHOWN ? name.size : NAMES_SHOWN), (const char *)name.data,
                 why);
}

/* All names are known, each is there once, and none of what never changes. */
static bool names_fit(struct command_call *call)
{
    const struct setting *seen[SETTINGS];
    size_t count = 0;
    for (size_t word = 2; word < call->count; word += 2) {
        const struct setting *setting = setting_of(call, word);
        if (setting == NULL) {
            reply_unknown(call, word);
            return false;
        }
        if (setting->kind == FIXED && setting->everywhere) {
            reply_failed(call, call_word(call, word), "can't set immutable config");
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            if (seen[i] != setting)
                continue;
            reply_failed(call, call_word(call, word), "duplicate parameter");
            return false;
        }
        seen[count++] = setting;
    }
    return true;
}

static void config_set_co(struct command_call *call)
{
    struct server *server = call->thread->server;
    int64_t numbers[SETTINGS] = {0};
    char why[WHY_BYTES];

    if (call->count % 2 != 0) {
        reply_error(call->reply, "ERR syntax error");
        return;
    }
    if (!names_fit(call))
        return;
    for (size_t word = 2; word < call->count; word += 2) {
        const struct setting *setting = setting_of(call, word);
        if (!value_fits(call, setting, word + 1, &numbers[setting - list], why)) {
            reply_failed(call, slice_of_text(setting->name), why);
            return;
        }
    }
    rt_latch_lock(&server->settings.latch);
    for (size_t word = 2; word < call->count; word += 2) {
        const struct setting *setting = setting_of(call, word);
        apply(call, setting, word + 1, numbers[setting - list]);
    }
    rt_latch_unlock(&server->settings.latch);
    slow_limits_changed(server);
    for (size_t word = 2; word < call->count; word += 2)
        log_info("setting changed by a client", log_text("setting", setting_of(call, word)->name),
                 log_text("address", call->client->address));
    reply_ok(call->reply);
}

/* ---- the others ------------------------------------------------------------------------------ */

static void config_rewrite_co(struct command_call *call)
{
    reply_error(call->reply,
                "ERR CONFIG REWRITE is not supported: what CONFIG SET changes ends with "
                "this server, whose options are given when it starts");
}

static void config_resetstat_co(struct command_call *call)
{
    enum pando_status status = server_stats_reset(call->thread->server);
    if (status == PANDO_OK)
        reply_ok(call->reply);
    else
        reply_failure(call->reply, status);
}

static void config_help_co(struct command_call *call)
{
    static const char *const lines[] = {
        "GET <pattern>",
        "    Return parameters matching the glob-like <pattern> and their values.",
        "SET <directive> <value>",
        "    Set the configuration <directive> to <value>.",
        "RESETSTAT",
        "    Reset statistics reported by the INFO command.",
        "REWRITE",
        "    Is refused: what SET changes ends with the server.",
    };
    reply_help(call, lines, sizeof(lines) / sizeof(lines[0]));
}

const struct subcommand config_subcommands[] = {
    {"get", -3, COMMAND_ADMIN, config_get_co},
    {"set", -4, COMMAND_ADMIN, config_set_co},
    {"rewrite", 2, COMMAND_ADMIN, config_rewrite_co},
    {"resetstat", 2, COMMAND_ADMIN, config_resetstat_co},
    {"help", 2, 0, config_help_co},
    {NULL, 0, 0, NULL},
};
