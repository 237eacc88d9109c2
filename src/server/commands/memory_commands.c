/*
 * memory_commands.c - MEMORY: what a key takes of the pool.
 */
#include "server/keyspace.h"

/* MEMORY USAGE key [SAMPLES n]: values have no parts to be sampled. */
static void memory_usage_co(struct command_call *call)
{
    struct slice key = call_word(call, 2);
    struct glance glance;
    enum pando_status status;
    int64_t samples;

    for (size_t i = 3; i < call->count; i += 2) {
        if (!call_word_is(call, i, "samples") || i + 1 == call->count) {
            reply_error(call->reply, "ERR syntax error");
            return;
        }
        if (!call_integer(call, i + 1, &samples))
            return;
        if (samples < 0) {
            reply_error(call->reply, "ERR syntax error");
            return;
        }
    }
    struct store_table *table = keyspace_table(call, key);
    if (!keyspace_glance_co(table, key, &glance, &status)) {
        if (status == PANDO_NOT_FOUND)
            reply_null(call->reply);
        else
            reply_failure(call->reply, status);
        return;
    }
    uint64_t stored = glance.size + (glance.expire_ms != 0 ? VALUE_HEAD_EXPIRES : 0);
    uint64_t bytes = store_pair_bytes(store_table_shape(table), key.size, stored);
    reply_integer(call->reply, (int64_t)bytes);
}

static void memory_purge_co(struct command_call *call)
{
    rt_heap_trim();
    reply_ok(call->reply);
}

static void memory_help_co(struct command_call *call)
{
    static const char *const lines[] = {
        "PURGE",
        "    Give memory that this server has freed back to its machine.",
        "USAGE <key> [SAMPLES <count>]",
        "    Return the bytes that <key> and its value take in the pool.",
    };
    reply_help(call, lines, sizeof(lines) / sizeof(lines[0]));
}

const struct subcommand memory_subcommands[] = {
    {"usage", -3, COMMAND_READONLY, memory_usage_co},
    {"purge", 2, COMMAND_ADMIN, memory_purge_co},
    {"help", 2, 0, memory_help_co},
    {NULL, 0, 0, NULL},
};
