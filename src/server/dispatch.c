/*
 * dispatch.c - finding a command by its name, checking the request, counting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/server_int.h"

enum { NAME_MAX_BYTES = 16, HASH_SLOTS = 512, ARGUMENTS_SHOWN = 128 };

/* Filled once from the constant list: name -> number + 1. */
static struct {
    uint64_t words[2];
    uint16_t number;
} slots[HASH_SLOTS];
static atomic_bool prepared;

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
    }
}

const struct command *command_find(struct slice name)
{
    uint64_t words[2];
    if (!fold(name, words))
        return NULL;
    for (unsigned slot = slot_of(words); slots[slot].number != 0; slot = (slot + 1) % HASH_SLOTS) {
        if (slots[slot].words[0] == words[0] && slots[slot].words[1] == words[1])
            return &command_list[slots[slot].number - 1];
    }
    return NULL;
}

bool call_word_is(const struct call *call, size_t index, const char *lower)
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

void subcommand_run_co(struct call *call, const struct subcommand *list, size_t count)
{
    struct slice word = call_word(call, 1);
    char upper[NAME_MAX_BYTES];
    size_t i = 0;
    for (; call->command->name[i] != '\0'; i++)
        upper[i] = (char)(call->command->name[i] - 0x20);
    upper[i] = '\0';
    for (i = 0; i < count; i++) {
        if (!call_word_is(call, 1, list[i].name))
            continue;
        if (list[i].arity > 0 ? call->count == (size_t)list[i].arity
                              : call->count >= (size_t)abs(list[i].arity))
            list[i].run_co(call);
        else
            reply_errorf(call->reply, "ERR wrong number of arguments for '%s|%s' command",
                         call->command->name, list[i].name);
        return;
    }
    reply_errorf(call->reply, "ERR unknown subcommand '%.*s'. Try %s HELP.",
                 (int)(word.size < ARGUMENTS_SHOWN ? word.size : ARGUMENTS_SHOWN),
                 (const char *)word.data, upper);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void reply_unknown(struct call *call)
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
    reply_error(call->reply, text);
}

/* True: go on. */
static bool check(struct call *call)
{
    const struct command *command = call->command;
    struct client *client = call->client;

    if (command == NULL) {
        reply_unknown(call);
        return false;
    }
    if (command->arity > 0 ? call->count != (size_t)command->arity
                           : call->count < (size_t)abs(command->arity)) {
        reply_errorf(call->reply, "ERR wrong number of arguments for '%s' command", command->name);
        return false;
    }
    if (client->user == USER_NONE && (command->flags & COMMAND_NO_AUTH) == 0) {
        reply_error(call->reply, "NOAUTH Authentication required.");
        return false;
    }
    if (client->user == USER_READONLY && (command->flags & (COMMAND_WRITE | COMMAND_ADMIN)) != 0) {
        reply_errorf(call->reply, "NOPERM this user has no permissions to run the '%s' command",
                     command->name);
        return false;
    }
    return true;
}

/* In a pipeline one of TIMED_EACH is timed, and counts for all of them: the clock costs as much as
 * parsing the request. */
enum { TIMED_EACH = 4 };

static void count(struct stats_command *counts, uint64_t begin_ns, unsigned weight)
{
    uint64_t ns = rt_now_ns() - begin_ns;
    stats_add(&counts->ns, ns * weight);
    stats_add(&counts->buckets[stats_bucket(ns)], weight);
}

void command_run_co(struct call *call)
{
    struct stats_thread *stats = &call->thread->stats;
    unsigned errors = call->reply->errors;
    bool timed = call->behind % TIMED_EACH == 0;
    uint64_t begin_ns = timed ? rt_now_ns() : 0;

    stats_add(&stats->commands, 1);
    call->client->last_command = call->command != NULL ? call->command : &command_list[0];
    if (timed)
        call->client->used_ns = begin_ns;
    if (check(call))
        call->command->run_co(call);
    if (call->command == NULL)
        return;
    struct stats_command *counts = &stats->command[call->command - command_list];
    stats_add(&counts->calls, 1);
    if (timed)
        count(counts, begin_ns, call->behind == 0 ? 1 : TIMED_EACH);
    if (call->reply->errors != errors)
        stats_add(&counts->errors, 1);
}
