#include "server/commands/expiry.h"

#include "server/keyspace.h"

static bool parse_time_option(struct command_call *call, size_t *at, struct expiry_options *out)
{
    static const struct {
        const char *name;
        unsigned unit;
    } kinds[] = {{"ex", EXPIRY_SECONDS},
                 {"px", EXPIRY_MS},
                 {"exat", EXPIRY_SECONDS | EXPIRY_ABSOLUTE},
                 {"pxat", EXPIRY_ABSOLUTE}};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (!call_word_is(call, *at, kinds[i].name))
            continue;
        bool same = out->unit == kinds[i].unit;
        if ((out->has_time && !same) || out->keep_ttl || out->persist || *at + 1 >= call->count)
            return false;
        out->has_time = true;
        out->unit = kinds[i].unit;
        out->word = ++*at;
        return true;
    }
    return false;
}

static bool parse_option(struct command_call *call, size_t *at, enum expiry_command command,
                         struct expiry_options *out)
{
    bool set = command == EXPIRY_SET;
    if (set && call_word_is(call, *at, "nx") && !out->exists)
        out->not_exists = true;
    else if (set && call_word_is(call, *at, "xx") && !out->not_exists)
        out->exists = true;
    else if (set && call_word_is(call, *at, "get"))
        out->get = true;
    else if (set && call_word_is(call, *at, "keepttl") && !out->has_time)
        out->keep_ttl = true;
    else if (!set && call_word_is(call, *at, "persist") && !out->has_time)
        out->persist = true;
    else
        return parse_time_option(call, at, out);
    return true;
}

bool expiry_parse(struct command_call *call, size_t first, enum expiry_command command,
                  struct expiry_options *out)
{
    for (size_t at = first; at < call->count; at++) {
        if (!parse_option(call, &at, command, out)) {
            reply_error(call->reply, "ERR syntax error");
            return false;
        }
    }
    return true;
}

bool expiry_moment(struct command_call *call, const struct expiry_options *options,
                   uint64_t *out_ms)
{
    int64_t time;
    *out_ms = 0;
    if (!options->has_time)
        return true;
    if (!call_integer(call, options->word, &time))
        return false;
    bool seconds = (options->unit & EXPIRY_SECONDS) != 0;
    bool absolute = (options->unit & EXPIRY_ABSOLUTE) != 0;
    bool wrong = time <= 0 || (seconds && __builtin_mul_overflow(time, 1000, &time)) ||
                 (!absolute && __builtin_add_overflow(time, (int64_t)rt_wall_ms(), &time));
    if (wrong) {
        reply_errorf(call->reply, "ERR invalid expire time in '%s' command", call->command->name);
        return false;
    }
    atomic_store_explicit(&call->thread->server->expiry_written, true, memory_order_relaxed);
    *out_ms = (uint64_t)time;
    return true;
}
