/*
 * slow_commands.c - SLOWLOG and LATENCY: the commands that took long, and how long all of them took.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/keyspace.h"
#include "server/resp/number.h"

enum { SHOWN_USUAL = 10 };

static const char *const event_names[LATENCY_EVENTS] = {
    [LATENCY_COMMAND] = "command",
    [LATENCY_FAST_COMMAND] = "fast-command",
};

/* ---- SLOWLOG --------------------------------------------------------------------------------- */

static void reply_entry(struct reply *reply, const struct slow_entry *entry)
{
    size_t at = 0;
    reply_array(reply, 6);
    reply_integer(reply, (int64_t)entry->id);
    reply_integer(reply, (int64_t)entry->time_s);
    reply_integer(reply, (int64_t)entry->duration_us);
    reply_array(reply, entry->count);
    for (unsigned i = 0; i < entry->count; i++) {
        reply_bulk(reply, slice_of(entry->bytes + at, entry->sizes[i]));
        at += entry->sizes[i];
    }
    reply_text(reply, entry->address);
    reply_text(reply, entry->name);
}

static void slowlog_get_co(struct command_call *call)
{
    struct slow *slow = &call->thread->server->slow;
    int64_t count = SHOWN_USUAL;
    if (call->count > 3) {
        reply_error(call->reply, "ERR unknown subcommand or wrong number of arguments for 'get'. "
                                 "Try SLOWLOG HELP.");
        return;
    }
    if (call->count == 3) {
        if (!number_parse(call_word(call, 2), &count) || count < -1) {
            reply_error(call->reply, "ERR count should be greater than or equal to -1");
            return;
        }
    }
    rt_latch_lock(&slow->latch);
    uint64_t shown = count < 0 || (uint64_t)count > slow->count ? slow->count : (uint64_t)count;
    reply_array(call->reply, shown);
    for (uint64_t i = 0; i < shown; i++) /* the newest comes first */
        reply_entry(call->reply, slow->entries[(slow->first + slow->count - 1 - i) % SLOW_LOG_MAX]);
    rt_latch_unlock(&slow->latch);
}

static void slowlog_len_co(struct command_call *call)
{
    struct slow *slow = &call->thread->server->slow;
    rt_latch_lock(&slow->latch);
    uint64_t count = slow->count;
    rt_latch_unlock(&slow->latch);
    reply_integer(call->reply, (int64_t)count);
}

static void slowlog_reset_co(struct command_call *call)
{
    struct slow *slow = &call->thread->server->slow;
    rt_latch_lock(&slow->latch);
    while (slow->count > 0)
        slow_forget_oldest(slow);
    rt_latch_unlock(&slow->latch);
    reply_ok(call->reply);
}

static void slowlog_help_co(struct command_call *call)
{
    static const char *const lines[] = {
        "GET [<count>]",
        "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
        "    Entries are made of:",
        "    id, timestamp, time in microseconds, arguments array, client IP and port,",
        "    client name",
        "LEN",
        "    Return the length of the slowlog.",
        "RESET",
        "    Reset the slowlog.",
    };
    reply_help(call, lines, sizeof(lines) / sizeof(lines[0]));
}

const struct subcommand slowlog_subcommands[] = {
    {"get", -2, COMMAND_ADMIN, slowlog_get_co},
    {"len", 2, COMMAND_ADMIN, slowlog_len_co},
    {"reset", 2, COMMAND_ADMIN, slowlog_reset_co},
    {"help", 2, 0, slowlog_help_co},
    {NULL, 0, 0, NULL},
};

/* ---- LATENCY --------------------------------------------------------------------------------- */

static void latency_latest_co(struct command_call *call)
{
    struct slow *slow = &call->thread->server->slow;
    size_t array = reply_array_begin(call->reply);
    uint64_t shown = 0;
    rt_latch_lock(&slow->latch);
    for (unsigned i = 0; i < LATENCY_EVENTS; i++) {
        const struct latency_series *series = &slow->series[i];
        uint64_t last = (series->count + LATENCY_SAMPLES - 1) % LATENCY_SAMPLES;
        if (series->count == 0)
            continue;
        reply_array(call->reply, 4);
        reply_text(call->reply, event_names[i]);
        reply_integer(call->reply, (int64_t)series->samples[last].time_s);
        reply_integer(call->reply, (int64_t)series->samples[last].ms);
        reply_integer(call->reply, (int64_t)series->longest_ms);
        shown++;
    }
    rt_latch_unlock(&slow->latch);
    reply_array_end(call->reply, array, shown);
}

static void latency_history_co(struct command_call *call)
{
    struct slow *slow = &call->thread->server->slow;
    const struct latency_series *series = NULL;
    for (unsigned i = 0; i < LATENCY_EVENTS; i++) {
        if (slice_equal(call_word(call, 2), slice_of_text(event_names[i])))
            series = &slow->series[i];
    }
    if (series == NULL) {
        reply_array(call->reply, 0);
        return;
    }
    rt_latch_lock(&slow->latch);
    uint64_t kept = series->count < LATENCY_SAMPLES ? series->count : LATENCY_SAMPLES;
    reply_array(call->reply, kept);
    for (uint64_t i = series->count - kept; i < series->count; i++) {
        reply_array(call->reply, 2);
        reply_integer(call->reply, (int64_t)series->samples[i % LATENCY_SAMPLES].time_s);
        reply_integer(call->reply, (int64_t)series->samples[i % LATENCY_SAMPLES].ms);
    }
    rt_latch_unlock(&slow->latch);
}

static void latency_reset_co(struct command_call *call)
{
    struct slow *slow = &call->thread->server->slow;
    int64_t forgotten = 0;
    rt_latch_lock(&slow->latch);
    for (unsigned i = 0; i < LATENCY_EVENTS; i++) {
        bool wanted = call->count == 2;
        for (size_t word = 2; word < call->count; word++)
            wanted |= slice_equal(call_word(call, word), slice_of_text(event_names[i]));
        if (!wanted || slow->series[i].count == 0)
            continue;
        memset(&slow->series[i], 0, sizeof(slow->series[i]));
        forgotten++;
    }
    rt_latch_unlock(&slow->latch);
    reply_integer(call->reply, forgotten);
}

static void latency_doctor_co(struct command_call *call)
{
    struct server *server = call->thread->server;
    struct slow *slow = &server->slow;
    char text[512];
    int used = 0;
    uint64_t limit_ms = atomic_load(&server->settings.latency_ms);
    if (limit_ms == 0)
        used = snprintf(text, sizeof(text),
                        "Latency monitoring is disabled. Enable it with: CONFIG SET "
                        "latency-monitor-threshold <milliseconds>.\n");
    rt_latch_lock(&slow->latch);
    for (unsigned i = 0; i < LATENCY_EVENTS; i++) {
        const struct latency_series *series = &slow->series[i];
        if (series->count > 0)
            used += snprintf(text + used, sizeof(text) - (size_t)used,
                             "%s: slow in %llu seconds of those watched; the longest took %llu "
                             "ms. SLOWLOG GET shows the commands.\n",
                             event_names[i], (unsigned long long)series->count,
                             (unsigned long long)series->longest_ms);
    }
    rt_latch_unlock(&slow->latch);
    if (used == 0)
        used = snprintf(text, sizeof(text), "No command has taken %llu ms or longer.\n",
                        (unsigned long long)limit_ms);
    reply_verbatim(call->reply, slice_of(text, (size_t)used));
}

/* How many calls took at most so long, at powers of two of microseconds where there are more. */
static void reply_histogram(struct reply *reply, const struct stats_command_sum *command)
{
    uint64_t counts[STATS_BUCKETS], limits[STATS_BUCKETS], sum = 0;
    unsigned steps = 0;
    for (unsigned i = 0; i < STATS_BUCKETS; i++) {
        if (command->buckets[i] == 0)
            continue;
        uint64_t limit_us = 1;
        while (limit_us * 1000 < stats_bucket_limit_ns(i))
            limit_us *= 2;
        sum += command->buckets[i];
        if (steps == 0 || limits[steps - 1] != limit_us)
            limits[steps++] = limit_us;
        counts[steps - 1] = sum;
    }
    reply_map(reply, 2);
    reply_text(reply, "calls");
    reply_integer(reply, (int64_t)command->calls);
    reply_text(reply, "histogram_usec");
    reply_map(reply, steps);
    for (unsigned i = 0; i < steps; i++) {
        reply_integer(reply, (int64_t)limits[i]);
        reply_integer(reply, (int64_t)counts[i]);
    }
}

static void latency_histogram_co(struct command_call *call)
{
    struct stats_sum *sum = malloc(sizeof(*sum));
    bool wanted[STATS_COMMANDS_MAX] = {false};
    uint64_t shown = 0;
    if (sum == NULL) {
        reply_failure(call->reply, PANDO_NO_MEMORY);
        return;
    }
    server_stats_since_reset(call->thread->server, sum);
    for (size_t word = 2; word < call->count; word++) {
        const struct command *command = command_find(call_word(call, word));
        for (unsigned i = 0; i < command_numbers(); i++)
            wanted[i] |= (command != NULL && command_number_is(i, command)) ||
                         call_word_is(call, word, command_number_name(i));
    }
    for (unsigned i = 0; i < command_numbers(); i++) {
        wanted[i] = (wanted[i] || call->count == 2) && sum->command[i].calls > 0;
        shown += wanted[i];
    }
    reply_map(call->reply, shown);
    for (unsigned i = 0; i < command_numbers(); i++) {
        if (!wanted[i])
            continue;
        reply_text(call->reply, command_number_name(i));
        reply_histogram(call->reply, &sum->command[i]);
    }
    free(sum);
}

static void latency_help_co(struct command_call *call)
{
    static const char *const lines[] = {
        "DOCTOR",
        "    Return a human readable latency analysis report.",
        "HISTORY <event>",
        "    Return time-latency samples for the <event> class.",
        "LATEST",
        "    Return the latest latency samples for all events.",
        "RESET [<event> ...]",
        "    Reset latency data of one or more <event> classes.",
        "    (default: reset all data for all event classes)",
        "HISTOGRAM [COMMAND ...]",
        ("    Return a cumulative distribution of latencies in the format of a histogram for the "
         "specified command names."),
        "    If no commands are specified then all histograms are replied.",
    };
    reply_help(call, lines, sizeof(lines) / sizeof(lines[0]));
}

const struct subcommand latency_subcommands[] = {
    {"latest", 2, COMMAND_ADMIN, latency_latest_co},
    {"history", 3, COMMAND_ADMIN, latency_history_co},
    {"reset", -2, COMMAND_ADMIN, latency_reset_co},
    {"doctor", 2, COMMAND_ADMIN, latency_doctor_co},
    {"histogram", -2, COMMAND_ADMIN, latency_histogram_co},
    {"help", 2, 0, latency_help_co},
    {NULL, 0, 0, NULL},
};
