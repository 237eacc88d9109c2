/*
 * history.c - keeping histories, and turning scans and verdicts into words. The search for an order
 * is in linearize.c.
 */
#include "check/history_int.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

enum {
    EFFORT = 1000 * 1000,
    SHOWN_MAX = 24, /* operations in a message */
    SHOWN_BEFORE = 6,
};

struct history *history_create(uint32_t keys)
{
    struct history *history = calloc(1, sizeof(*history));
    if (history == NULL)
        return NULL;
    history->keys = calloc(keys, sizeof(*history->keys));
    if (history->keys == NULL) {
        free(history);
        return NULL;
    }
    history->key_count = keys;
    return history;
}

void history_destroy(struct history *history)
{
    for (uint32_t i = 0; i < history->key_count; i++)
        free(history->keys[i].ops);
    free(history->keys);
    free(history);
}

/* Nothing can follow from it, whatever happened. */
static bool says_nothing(const struct history_op *op)
{
    if (op->outcome != HISTORY_UNKNOWN)
        return false;
    return op->kind == HISTORY_GET || (op->kind == HISTORY_MODIFY && op->seen == op->value);
}

enum pando_status history_add(struct history *history, const struct history_op *op)
{
    pando_assert(op->key < history->key_count);
    if (says_nothing(op))
        return PANDO_OK;
    struct history_key *key = &history->keys[op->key];
    if (key->count == key->capacity) {
        size_t capacity = key->capacity == 0 ? 32 : key->capacity * 2;
        struct history_op *ops = realloc(key->ops, capacity * sizeof(*ops));
        if (ops == NULL)
            return PANDO_NO_MEMORY;
        key->ops = ops;
        key->capacity = capacity;
    }
    key->ops[key->count] = *op;
    if (op->outcome == HISTORY_UNKNOWN)
        key->ops[key->count].done = UINT64_MAX;
    key->count++;
    history->size++;
    return PANDO_OK;
}

size_t history_size(const struct history *history)
{
    return history->size;
}

/* ---- scans ----------------------------------------------------------------------------------- */

static const char *scan_fault(const struct history_scan *scan, size_t *at)
{
    for (size_t i = 0; i < scan->count; i++) {
        uint32_t key = scan->pairs[i].key;
        *at = i;
        if (key < scan->first || key >= scan->end)
            return "returned a key outside its bounds";
        if (i == 0)
            continue;
        uint32_t last = scan->pairs[i - 1].key;
        if (key == last)
            return "returned a key twice";
        if ((key < last) != scan->reverse)
            return "returned keys out of order";
    }
    *at = scan->count;
    return scan->limit != 0 && scan->count > scan->limit ? "returned more than its limit" : NULL;
}

static enum pando_status add_seen(struct history *history, const struct history_scan *scan,
                                  uint32_t key, uint64_t seen, uint64_t done, uint64_t done_ns)
{
    struct history_op op = {.kind = HISTORY_GET,
                            .key = key,
                            .client = scan->client,
                            .seen = seen,
                            .call = scan->call,
                            .done = done,
                            .call_ns = scan->call_ns,
                            .done_ns = done_ns,
                            .scan = true};
    return history_add(history, &op);
}

/* The keys that a scan passed over before it got to a certain place. */
static enum pando_status add_missing(struct history *history, const struct history_scan *scan,
                                     uint32_t from, uint32_t to, uint64_t done, uint64_t done_ns)
{
    enum pando_status status = PANDO_OK;
    for (uint32_t key = from; key < to && status == PANDO_OK; key++)
        status = add_seen(history, scan, key, 0, done, done_ns);
    return status;
}

enum pando_status history_add_scan(struct history *history, const struct history_scan *scan,
                                   char *text, size_t text_bytes)
{
    size_t at;
    const char *fault = scan_fault(scan, &at);
    uint32_t low = scan->first, high = scan->end; /* not looked at yet */
    enum pando_status status = PANDO_OK;

    if (fault != NULL) {
        snprintf(text, text_bytes,
                 "a %s scan of keys %" PRIu32 " to %" PRIu32 ", limit %" PRIu64
                 ", by client %" PRIu32 " %s (pair %zu, key %" PRIu32 ")",
                 scan->reverse ? "reverse" : "forward", scan->first, scan->end, scan->limit,
                 scan->client, fault, at, at < scan->count ? scan->pairs[at].key : 0);
        return PANDO_INVALID;
    }
    for (size_t i = 0; i < scan->count && status == PANDO_OK; i++) {
        const struct history_pair *pair = &scan->pairs[i];
        if (scan->reverse)
            status = add_missing(history, scan, pair->key + 1, high, pair->time, pair->time_ns);
        else
            status = add_missing(history, scan, low, pair->key, pair->time, pair->time_ns);
        if (status == PANDO_OK)
            status = add_seen(history, scan, pair->key, pair->value, pair->time, pair->time_ns);
        low = scan->reverse ? low : pair->key + 1;
        high = scan->reverse ? pair->key : high;
    }
    bool to_the_end = scan->complete && (scan->limit == 0 || scan->count < scan->limit);
    if (status == PANDO_OK && to_the_end)
        status = add_missing(history, scan, low, high, scan->done, scan->done_ns);
    return status;
}

/* ---- words ----------------------------------------------------------------------------------- */

struct writer {
    char *text;
    size_t bytes, used;
};

__attribute__((format(printf, 2, 3))) static void say(struct writer *to, const char *format, ...)
{
    va_list arguments;
    if (to->used >= to->bytes)
        return;
    va_start(arguments, format);
    int size = vsnprintf(to->text + to->used, to->bytes - to->used, format, arguments);
    va_end(arguments);
    if (size > 0)
        to->used += (size_t)size;
}

static void say_value(struct writer *to, uint64_t value)
{
    if (value == 0)
        say(to, "nothing");
    else
        say(to, "%" PRIx64, value);
}

static void say_what(struct writer *to, const struct history_op *op)
{
    static const char *const names[] = {"get", "put", "insert", "update", "delete", "modify"};
    say(to, "client %-3" PRIu32 " %s%s", op->client, names[op->kind], op->scan ? " (scan)" : "");
    switch (op->kind) {
    case HISTORY_GET:
        say(to, " saw ");
        say_value(to, op->seen);
        break;
    case HISTORY_MODIFY:
        say(to, " of ");
        say_value(to, op->seen);
        say(to, " to ");
        say_value(to, op->value);
        break;
    case HISTORY_PUT:
    case HISTORY_INSERT:
    case HISTORY_UPDATE:
        say(to, " ");
        say_value(to, op->value);
        break;
    case HISTORY_DELETE:
        break;
    }
    if (op->outcome == HISTORY_REFUSED)
        say(to, op->kind == HISTORY_INSERT ? ": exists" : ": not found");
    if (op->outcome == HISTORY_UNKNOWN)
        say(to, ": outcome unknown");
}

static void say_op(struct writer *to, const struct history_op *op, bool mark)
{
    say(to, "\n  %c %10.3f us .. ", mark ? '*' : ' ', (double)op->call_ns / 1000);
    if (op->outcome == HISTORY_UNKNOWN)
        say(to, "%13s", "?    ");
    else
        say(to, "%10.3f us", (double)op->done_ns / 1000);
    say(to, "  ");
    say_what(to, op);
}

/* ---- what matters of a bad key --------------------------------------------------------------- */

/* The history of a key up to a time: what had not returned by then may or may not have happened. */
static size_t cut_at(const struct history_key *key, uint64_t time, struct history_op *out)
{
    size_t count = 0;
    for (size_t i = 0; i < key->count; i++) {
        struct history_op op = key->ops[i];
        if (op.call > time)
            continue;
        if (op.done > time) {
            op.done = UINT64_MAX;
            op.outcome = op.outcome == HISTORY_REFUSED ? HISTORY_REFUSED : HISTORY_UNKNOWN;
            if (op.outcome == HISTORY_REFUSED || says_nothing(&op))
                continue;
        }
        out[count++] = op;
    }
    return count;
}

static int by_time(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The first return at which no order was possible any more: histories that can be ordered can be so
 * at every earlier time. */
static uint64_t breaking_time(const struct history_key *key, uint64_t effort)
{
    uint64_t *times = malloc(key->count * sizeof(*times));
    struct history_op *ops = malloc(key->count * sizeof(*ops));
    size_t low = 0, high = 0;
    uint64_t found = UINT64_MAX - 1;

    if (times != NULL && ops != NULL) {
        for (size_t i = 0; i < key->count; i++) {
            if (key->ops[i].done != UINT64_MAX)
                times[high++] = key->ops[i].done;
        }
        qsort(times, high, sizeof(*times), by_time);
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            size_t count = cut_at(key, times[middle], ops);
            if (linearize(ops, count, effort) == HISTORY_BAD) {
                found = times[middle];
                high = middle;
            } else {
                low = middle + 1;
            }
        }
    }
    free(times);
    free(ops);
    return found;
}

/* Whether an operation helps to understand the one that broke it. */
static bool concerns(const struct history_op *op, const struct history_op *culprit)
{
    if (op->call <= culprit->done && op->done >= culprit->call && op->kind != HISTORY_GET)
        return true;
    return culprit->seen != 0 && (op->value == culprit->seen || op->seen == culprit->seen) &&
           op->call < culprit->done;
}

static void explain(const struct history *history, uint32_t key_number, uint64_t effort,
                    struct writer *to)
{
    struct history_key *key = &history->keys[key_number];
    uint64_t time = breaking_time(key, effort);
    const struct history_op *culprit = NULL;
    unsigned shown = 0, before = 0;

    qsort(key->ops, key->count, sizeof(*key->ops), history_by_call);
    for (size_t i = 0; i < key->count; i++) {
        if (key->ops[i].done == time)
            culprit = &key->ops[i];
    }
    say(to, "key %" PRIu32 ": no order of its %zu operations explains what was seen", key_number,
        key->count);
    if (culprit == NULL)
        return;
    say(to, "; the one marked * cannot be (the operations around it follow)");
    /* The last few that had ended before it began, and those that concern it. */
    for (size_t i = 0; i < key->count; i++)
        before += key->ops[i].done < culprit->call;
    for (size_t i = 0; i < key->count && shown < SHOWN_MAX; i++) {
        const struct history_op *op = &key->ops[i];
        bool late = op->done < culprit->call && before-- <= SHOWN_BEFORE;
        if (op != culprit && !late && !concerns(op, culprit))
            continue;
        say_op(to, op, op == culprit);
        shown++;
    }
    if (shown == SHOWN_MAX)
        say(to, "\n    ...");
}

/* ---- judging --------------------------------------------------------------------------------- */

enum history_verdict history_check_key(const struct history *history, uint32_t key, uint64_t effort)
{
    const struct history_key *one = &history->keys[key];
    struct history_op *ops = malloc((one->count + 1) * sizeof(*ops));
    if (ops == NULL)
        return HISTORY_UNDECIDED;
    if (one->count > 0)
        memcpy(ops, one->ops, one->count * sizeof(*ops));
    enum history_verdict verdict = linearize(ops, one->count, effort == 0 ? EFFORT : effort);
    free(ops);
    return verdict;
}

enum history_verdict history_check(const struct history *history, uint64_t effort, char *text,
                                   size_t text_bytes)
{
    struct writer to = {.text = text, .bytes = text_bytes};
    uint32_t undecided = 0;

    if (text_bytes > 0)
        text[0] = '\0';
    if (effort == 0)
        effort = EFFORT;
    for (uint32_t key = 0; key < history->key_count; key++) {
        enum history_verdict verdict = history_check_key(history, key, effort);
        if (verdict == HISTORY_BAD) {
            explain(history, key, effort, &to);
            return HISTORY_BAD;
        }
        undecided += verdict == HISTORY_UNDECIDED;
    }
    if (undecided == 0)
        return HISTORY_GOOD;
    say(&to, "UNDECIDED: the search was given up for %" PRIu32 " of %" PRIu32 " keys", undecided,
        history->key_count);
    return HISTORY_UNDECIDED;
}
