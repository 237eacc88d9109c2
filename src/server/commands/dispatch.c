/*
 * dispatch.c - finding a command by its name, checking the request, counting.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "server/keyspace.h"

enum { NAME_MAX_BYTES = 16, HASH_SLOTS = 512, ARGUMENTS_SHOWN = 128 };

/* Filled once from the constant list: name -> number + 1. */
static struct {
    uint64_t words[2];
    uint16_t number;
    uint16_t size; /* of the name: zero bytes behind it are no part of it */
} slots[HASH_SLOTS];
static atomic_bool prepared;

enum { CONTAINERS = 6, FULL_NAME_BYTES = 32 };

static const struct {
    const char *name;
    const struct subcommand *list;
} containers[CONTAINERS] = {
    {"client", client_subcommands}, {"command", command_subcommands},
    {"config", config_subcommands}, {"latency", latency_subcommands},
    {"memory", memory_subcommands}, {"slowlog", slowlog_subcommands},
};

/* Filled with the slots: the first number of each container's subcommands, and all their names. */
static unsigned firsts[CONTAINERS + 1];
static char full_names[STATS_COMMANDS_MAX][FULL_NAME_BYTES];

static bool fold(struct slice name, uint64_t words[2])
{
    uint8_t folded[NAME_MAX_BYTES] = {0};
    if (name.size == 0 || name.size > NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < name.size; i++)
        folded[i] = name.data[i] >= 'A' && name.data[i] <= 'Z' ? name.data[i] | 0x20 : name.data[i];
    memcpy(words, folded, sizeof(folded));
    return true;
}

static unsigned slot_of(const uint64_t words[2])
{
    uint64_t hash = (words[0] ^ words[1] * UINT64_C(31)) * UINT64_C(0x9e3779b97f4a7c15);
    return (unsigned)(hash >> 55);
}

static void number_subcommands(void)
{
    unsigned number = command_count;
    for (unsigned i = 0; i < CONTAINERS; i++) {
        firsts[i] = number;
        for (const struct subcommand *sub = containers[i].list; sub->name != NULL; sub++) {
            pando_assert(number < STATS_COMMANDS_MAX);
            snprintf(full_names[number++], FULL_NAME_BYTES, "%s|%s", containers[i].name, sub->name);
        }
    }
    firsts[CONTAINERS] = number;
}

void command_prepare(void)
{
    if (atomic_exchange(&prepared, true))
        return;
    for (unsigned i = 0; i < command_count; i++) {
        uint64_t words[2];
        if (!fold(slice_of_text(command_list[i].name), words))
            continue;
        unsigned slot = slot_of(words);
        while (slots[slot].number != 0)
            slot = (slot + 1) % HASH_SLOTS;
        memcpy(slots[slot].words, words, sizeof(words));
        slots[slot].number = (uint16_t)(i + 1);
        slots[slot].size = (uint16_t)strlen(command_list[i].name);
    }
    number_subcommands();
}

unsigned command_numbers(void)
{
    return firsts[CONTAINERS];
}

const char *command_number_name(unsigned number)
{
    return number < command_count ? command_list[number].name : full_names[number];
}

bool command_number_is(unsigned number, const struct command *command)
{
    if (number < command_count)
        return &command_list[number] == command;
    for (unsigned i = 0; i < CONTAINERS; i++) {
        if (number >= firsts[i] && number < firsts[i + 1])
            return strcmp(containers[i].name, command->name) == 0;
    }
    return false;
}

const struct command *command_find(struct slice name)
{
    uint64_t words[2];
    if (!fold(name, words))
        return NULL;
    for (unsigned slot = slot_of(words); slots[slot].number != 0; slot = (slot + 1) % HASH_SLOTS) {
        if (slots[slot].words[0] == words[0] && slots[slot].words[1] == words[1] &&
            slots[slot].size == name.size)
            return &command_list[slots[slot].number - 1];
    }
    return NULL;
}

bool call_word_is(const struct command_call *call, size_t index, const char *lower)
{
    struct slice word = call_word(call, index);
    size_t size = strlen(lower);
    if (word.size != size)
        return false;
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = word.data[i];
        if ((byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte) != (uint8_t)lower[i])
            return false;
    }
    return true;
}

/* ---- subcommands ----------------------------------------------------------------------------- */

static void find_subcommand(struct command_call *call)
{
    for (unsigned i = 0; i < CONTAINERS; i++) {
        const struct subcommand *list = containers[i].list;
        if (strcmp(containers[i].name, call->command->name) != 0)
            continue;
        for (unsigned j = 0; list[j].name != NULL; j++) {
            if (!call_word_is(call, 1, list[j].name))
                continue;
            call->subcommand = &list[j];
            call->number = firsts[i] + j;
        }
    }
}

void command_container_co(struct command_call *call)
{
    call->subcommand->run_co(call);
}

static void upper_name(const struct command_call *call, char out[NAME_MAX_BYTES])
{
    size_t i = 0;
    for (; call->command->name[i] != '\0'; i++)
        out[i] = (char)(call->command->name[i] - 0x20);
    out[i] = '\0';
}

void reply_help(struct command_call *call, const char *const *lines, size_t count)
{
    char upper[NAME_MAX_BYTES], head[128];
    upper_name(call, upper);
    snprintf(head, sizeof(head),
             "%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", upper);
    reply_array(call->reply, count + 3);
    reply_simple(call->reply, head);
    for (size_t i = 0; i < count; i++)
        reply_simple(call->reply, lines[i]);
    reply_simple(call->reply, "HELP");
    reply_simple(call->reply, "    Prints this help.");
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* What is refused before it runs ends a transaction: EXEC says so, with the reason if it is EXEC itself. */
static void refuse(struct command_call *call, const char *text)
{
    struct client *client = call->client;
    client->transaction.broken = client->transaction.open;
    if (call->command == NULL || call->command->run_co != command_exec_co) {
        reply_error(call->reply, text);
        return;
    }
    client->transaction = (struct transaction){0};
    reply_errorf(call->reply, "EXECABORT Transaction discarded because of: %s",
                 strncmp(text, "ERR ", 4) == 0 ? text + 4 : text);
}

__attribute__((format(printf, 2, 3))) static void refusef(struct command_call *call,
                                                          const char *format, ...)
{
    char text[SERVER_ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    refuse(call, text);
}

static void reply_unknown(struct command_call *call)
{
    char text[512];
    struct slice name = call_word(call, 0);
    int used = snprintf(
        text, sizeof(text), "ERR unknown command '%.*s', with args beginning with: ",
        (int)(name.size < ARGUMENTS_SHOWN ? name.size : ARGUMENTS_SHOWN), (const char *)name.data);
    int shown = 0;
    for (size_t i = 1; i < call->count && shown < ARGUMENTS_SHOWN; i++) {
        struct slice word = call_word(call, i);
        int size = ARGUMENTS_SHOWN - shown;
        size = word.size < (size_t)size ? (int)word.size : size;
        int more = snprintf(text + used, sizeof(text) - (size_t)used, "'%.*s' ", size,
                            (const char *)word.data);
        if (more < 0 || used + more >= (int)sizeof(text))
            break;
        used += more;
        shown += more;
    }
    refuse(call, text);
}

static bool arity_fits(const struct command_call *call, int arity)
{
    return arity > 0 ? call->count == (size_t)arity : call->count >= (size_t)abs(arity);
}

/* Finds word 1 among the subcommands. */
static bool check_subcommand(struct command_call *call)
{
    struct slice word = call_word(call, 1);
    char upper[NAME_MAX_BYTES];
    find_subcommand(call);
    if (call->subcommand == NULL) {
        upper_name(call, upper);
        refusef(call, "ERR unknown subcommand '%.*s'. Try %s HELP.",
                (int)(word.size < ARGUMENTS_SHOWN ? word.size : ARGUMENTS_SHOWN),
                (const char *)word.data, upper);
        return false;
    }
    if (arity_fits(call, call->subcommand->arity))
        return true;
    refusef(call, "ERR wrong number of arguments for '%s|%s' command", call->command->name,
            call->subcommand->name);
    return false;
}

/* True: go on. */
static bool check(struct command_call *call)
{
    const struct command *command = call->command;
    struct client *client = call->client;

    if (command == NULL) {
        reply_unknown(call);
        return false;
    }
    call->number = (unsigned)(command - command_list);
    if ((command->flags & COMMAND_CONTAINER) != 0 && call->count > 1) {
        if (!check_subcommand(call))
            return false;
    } else if (!arity_fits(call, command->arity)) {
        refusef(call, "ERR wrong number of arguments for '%s' command", command->name);
        return false;
    }
    if (client->user == USER_NONE && (command->flags & COMMAND_NO_AUTH) == 0) {
        refuse(call, "NOAUTH Authentication required.");
        return false;
    }
    unsigned flags = call->subcommand != NULL ? call->subcommand->flags : command->flags;
    if (client->user == USER_READONLY && (flags & (COMMAND_WRITE | COMMAND_ADMIN)) != 0) {
        refusef(call, "NOPERM this user has no permissions to run the '%s%s%s' command",
                command->name, call->subcommand != NULL ? "|" : "",
                call->subcommand != NULL ? call->subcommand->name : "");
        return false;
    }
    return true;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* In a pipeline one of TIMED_EACH is timed, and counts for all of them: the clock costs as much as
 * parsing the request. */
enum { TIMED_EACH = 4 };

static void count(struct stats_command *counts, uint64_t ns, unsigned weight)
{
    stats_add(&counts->ns, ns * weight);
    stats_add(&counts->buckets[stats_bucket(ns)], weight);
}

/* One that was not timed can only be slow if it waited, and then the loop's clock has moved on since
 * the one before it. Whoever wants to see shorter times has all commands timed. */
static void look_if_slow(struct command_call *call, uint64_t slow_ns)
{
    struct client *client = call->client;
    uint64_t now_ns = rt_coarse_ns();
    if (now_ns <= client->used_ns || now_ns - client->used_ns < slow_ns)
        return;
    slow_note(call, now_ns - client->used_ns);
    client->used_ns = now_ns;
}

/* What was so before a command ran. */
struct before {
    uint64_t slow_ns, begin_ns;
    unsigned errors; /* in its reply */
    unsigned weight; /* of its time among the commands of its kind */
    bool timed;
};

static struct before count_begin(struct command_call *call)
{
    struct server_thread *thread = call->thread;
    uint64_t slow_ns = atomic_load_explicit(&thread->server->slow.limit_ns, memory_order_relaxed);
    bool all = slow_ns < SLOW_COARSE_NS;
    bool timed = call->behind % TIMED_EACH == 0 || all;

    stats_add(&thread->stats.commands, 1);
    return (struct before){.slow_ns = slow_ns,
                           .begin_ns = timed ? rt_now_ns() : 0,
                           .errors = call->reply->errors,
                           .weight = call->behind == 0 || all ? 1 : TIMED_EACH,
                           .timed = timed};
}

static void count_end(struct command_call *call, const struct before *before)
{
    struct stats_command *counts = &call->thread->stats.command[call->number];
    stats_add(&counts->calls, 1);
    if (call->reply->errors != before->errors)
        stats_add(&counts->errors, 1);
    if (!before->timed) {
        look_if_slow(call, before->slow_ns);
        return;
    }
    uint64_t end_ns = rt_now_ns(), ns = end_ns - before->begin_ns;
    call->client->used_ns = end_ns;
    count(counts, ns, before->weight);
    if (ns >= before->slow_ns)
        slow_note(call, ns);
}

/* ---- databases ------------------------------------------------------------------------------- */

/* False: it was not to be had, which was replied. */
static bool open_database_co(struct command_call *call)
{
    if ((call->command->flags & (COMMAND_READONLY | COMMAND_WRITE)) == 0 ||
        keyspace_is_open(call->client))
        return true;
    enum pando_status status = keyspace_open_for_co(call->client, call->client->database);
    if (status != PANDO_OK)
        reply_failure(call->reply, status);
    return status == PANDO_OK;
}

/* ---- web pages ------------------------------------------------------------------------------- */

/* A browser sends what a page has it send, to any port of its own machine: request line and headers are
 * unknown commands, and the page's lines behind them would run. No command has these names, and every
 * HTTP request with a body has one of them before it. */
static bool speaks_http(const struct command_call *call)
{
    return call->command == NULL &&
           (call_word_is(call, 0, "post") || call_word_is(call, 0, "host:"));
}

static void end_http(struct command_call *call)
{
    uint64_t unsaid;
    stats_add(&call->thread->stats.protocol_errors, 1);
    if (log_limit_allows(&call->thread->server->http_log, rt_now_ns(), &unsaid))
        log_warn("client closed: it speaks HTTP; a web page may be trying to have commands run",
                 log_text("address", call->client->address), log_u64("unsaid", unsaid));
    client_close(call->client);
}

void command_run_co(struct command_call *call)
{
    struct client *client = call->client;
    if (speaks_http(call)) {
        end_http(call);
        return;
    }
    client->last_command = call->command != NULL ? call->command : &command_list[0];
    bool fits = check(call);
    client->last_subcommand = call->subcommand;
    if (!fits) {
        client->used_ns = rt_now_ns();
        if (call->command != NULL)
            stats_add(&call->thread->stats.command[call->number].rejected, 1);
        return;
    }
    if (client->transaction.open && (call->command->flags & COMMAND_AT_ONCE) == 0) {
        client->used_ns = rt_now_ns();
        client->transaction.queued += client->transaction.queued < UINT32_MAX;
        reply_literal(call->reply, "+QUEUED\r\n");
        return;
    }
    if (!open_database_co(call))
        return;
    struct before before = count_begin(call);
    call->command->run_co(call);
    if (call->held != NULL)
        store_table_close(call->held);
    call->held = NULL;
    count_end(call, &before);
}
