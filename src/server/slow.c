#include "server/slow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/long.h"

enum { TEXT_BYTES = 64 /* of "... (123 more bytes)" */ };

/* ---- keeping --------------------------------------------------------------------------------- */

enum pando_status slow_init(struct server *server)
{
    server->slow.entries = calloc(SLOW_LOG_MAX, sizeof(struct slow_entry *));
    return server->slow.entries == NULL ? PANDO_NO_MEMORY : PANDO_OK;
}

void slow_forget_oldest(struct slow *slow)
{
    struct slow_entry **place = &slow->entries[slow->first % SLOW_LOG_MAX];
    free(*place);
    *place = NULL;
    slow->first++;
    slow->count--;
}

void slow_fini(struct server *server)
{
    struct slow *slow = &server->slow;
    while (slow->entries != NULL && slow->count > 0)
        slow_forget_oldest(slow);
    free(slow->entries);
    slow->entries = NULL;
}

void slow_limits_changed(struct server *server)
{
    struct slow *slow = &server->slow;
    int64_t slower_us = atomic_load(&server->settings.slower_than_us);
    uint64_t latency_ms = atomic_load(&server->settings.latency_ms), limit_ns = UINT64_MAX;

    if (slower_us >= 0 && (uint64_t)slower_us < UINT64_MAX / 1000)
        limit_ns = (uint64_t)slower_us * 1000;
    if (latency_ms > 0 && latency_ms < limit_ns / RT_NS_PER_MS)
        limit_ns = latency_ms * RT_NS_PER_MS;
    atomic_store(&slow->limit_ns, limit_ns);
    rt_latch_lock(&slow->latch);
    while (slow->count > atomic_load(&server->settings.slowlog_length))
        slow_forget_oldest(slow);
    rt_latch_unlock(&slow->latch);
}

/* ---- noting ---------------------------------------------------------------------------------- */

/* Words that are nobody else's business. */
static bool is_secret(const struct command_call *call, size_t index)
{
    void (*run_co)(struct command_call * call) = call->command->run_co;
    if (run_co == command_auth_co)
        return index > 0;
    if (run_co == command_hello_co) {
        for (size_t i = index > 3 ? index - 2 : 2; i < index; i++) {
            if (call_word_is(call, i, "auth"))
                return true;
        }
    }
    return index >= 3 && index % 2 == 1 && strcmp(call->command->name, "config") == 0 &&
           call_word_is(call, 1, "set") && call_word_is(call, index - 1, "requirepass");
}

/* Writes what is kept of a word; returns its size. */
static size_t keep_word(const struct command_call *call, size_t index, size_t kept,
                        uint8_t out[SLOW_WORD_BYTES + TEXT_BYTES])
{
    struct slice word = call_word(call, index);
    char *text = (char *)out;
    if (kept < call->count && index == kept - 1)
        return (size_t)snprintf(text, TEXT_BYTES, "... (%zu more arguments)",
                                call->count - kept + 1);
    if (is_secret(call, index))
        return (size_t)snprintf(text, TEXT_BYTES, "(redacted)");
    if (call_is_long(call, index))
        return (size_t)snprintf(text, TEXT_BYTES, "... (%llu more bytes)",
                                (unsigned long long)call->incoming->size);
    size_t size = word.size < SLOW_WORD_BYTES ? word.size : SLOW_WORD_BYTES;
    if (size > 0)
        memcpy(out, word.data, size);
    if (word.size > size)
        size += (size_t)snprintf(text + size, TEXT_BYTES, "... (%zu more bytes)", word.size - size);
    return size;
}

static struct slow_entry *entry_of(const struct command_call *call, uint64_t duration_ns)
{
    struct slow_entry *entry =
        malloc(sizeof(*entry) + (size_t)SLOW_WORDS * (SLOW_WORD_BYTES + TEXT_BYTES));
    size_t used = 0;
    if (entry == NULL)
        return NULL;
    *entry = (struct slow_entry){.time_s = rt_wall_ms() / 1000, .duration_us = duration_ns / 1000};
    memcpy(entry->address, call->client->address, sizeof(entry->address));
    memcpy(entry->name, call->client->name, sizeof(entry->name));
    entry->count = call->count < SLOW_WORDS ? (unsigned)call->count : SLOW_WORDS;
    for (unsigned i = 0; i < entry->count; i++) {
        size_t size = keep_word(call, i, entry->count, entry->bytes + used);
        entry->sizes[i] = (uint16_t)size;
        used += size;
    }
    struct slow_entry *smaller = realloc(entry, sizeof(*entry) + used);
    return smaller != NULL ? smaller : entry;
}

static void note_entry(struct server *server, struct slow_entry *entry)
{
    struct slow *slow = &server->slow;
    uint64_t most = atomic_load(&server->settings.slowlog_length);
    rt_latch_lock(&slow->latch);
    entry->id = slow->next_id++;
    while (slow->count > 0 && slow->count >= most)
        slow_forget_oldest(slow);
    if (most > 0)
        slow->entries[(slow->first + slow->count++) % SLOW_LOG_MAX] = entry;
    else
        free(entry);
    rt_latch_unlock(&slow->latch);
}

static void note_event(struct server *server, enum latency_event event, uint64_t ms)
{
    struct slow *slow = &server->slow;
    uint64_t now_s = rt_wall_ms() / 1000;
    rt_latch_lock(&slow->latch);
    struct latency_series *series = &slow->series[event];
    uint64_t last = (series->count + LATENCY_SAMPLES - 1) % LATENCY_SAMPLES;
    if (ms > series->longest_ms)
        series->longest_ms = ms;
    if (series->count > 0 && series->samples[last].time_s == now_s) { /* one for a second */
        if (ms > series->samples[last].ms)
            series->samples[last].ms = ms;
    } else {
        uint64_t next = series->count++ % LATENCY_SAMPLES;
        series->samples[next].time_s = now_s;
        series->samples[next].ms = ms;
    }
    rt_latch_unlock(&slow->latch);
}

void slow_note(const struct command_call *call, uint64_t duration_ns)
{
    struct server *server = call->thread->server;
    int64_t slower_us = atomic_load(&server->settings.slower_than_us);
    uint64_t latency_ms = atomic_load(&server->settings.latency_ms);

    if (slower_us >= 0 && duration_ns / 1000 >= (uint64_t)slower_us) {
        struct slow_entry *entry = entry_of(call, duration_ns);
        if (entry != NULL)
            note_entry(server, entry);
    }
    if (latency_ms > 0 && duration_ns / RT_NS_PER_MS >= latency_ms)
        note_event(server,
                   (call->command->flags & COMMAND_FAST) != 0 ? LATENCY_FAST_COMMAND
                                                              : LATENCY_COMMAND,
                   duration_ns / RT_NS_PER_MS);
}
