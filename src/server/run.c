/*
 * run.c - the requests of one connection. One after the other where operations never wait (the pool is
 * this machine's memory); else in windows of calls that overlap, whose replies keep their order.
 *
 * A window holds calls of one key each, all different: what comes behind one that it does not go
 * with waits until the window is done.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "server/server_int.h"

/* ---- windows --------------------------------------------------------------------------------- */

static uint64_t hash_word(uint64_t hash, struct slice word)
{
    for (size_t i = 0; i < word.size; i++)
        hash = (hash ^ word.data[i]) * UINT64_C(0x100000001b3);
    return (hash ^ word.size) * UINT64_C(0x9e3779b97f4a7c15);
}

/* What the call must not overlap with itself on. */
static uint64_t call_hash(const struct call *call)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 1; i <= call->command->last_key; i++)
        hash = hash_word(hash, call_word(call, (size_t)i));
    return hash;
}

static bool fits_window(const struct call *call)
{
    const struct command *command = call->command;
    size_t least = command == NULL ? 0 : (size_t)abs(command->arity);
    return command != NULL && (command->flags & COMMAND_POINT) != 0 && call->count >= least &&
           call->count > (size_t)command->last_key && !call->client->quiet &&
           !call->client->skip_next;
}

static bool in_window(const struct window *window, uint64_t hash)
{
    for (unsigned i = 0; i < window->count; i++) {
        if (window->hashes[i] == hash)
            return true;
    }
    return false;
}

static void slot_task(void *arg)
{
    struct slot *slot = arg;
    command_run_co(&slot->call);
    rt_countdown_done(&slot->window->left);
}

static void append_reply(struct reply *to, struct reply *from)
{
    if (from->overflow)
        to->overflow = true;
    reply_raw(to, bytes_front(&from->bytes), bytes_used(&from->bytes));
    to->errors += from->errors;
    from->bytes.head = from->bytes.tail = 0;
    from->overflow = false;
    if (from->bytes.capacity > OUTPUT_BYTES)
        bytes_fini(&from->bytes);
}

/* Runs what the window holds and writes the replies. */
static void window_run_co(struct window *window, struct client *client)
{
    struct reply *reply = &client->output->reply;
    if (window->count == 1) {
        window->slots[0].call.reply = reply;
        command_run_co(&window->slots[0].call);
    } else if (window->count > 1) {
        rt_countdown_init(&window->left, window->count);
        for (unsigned i = 0; i < window->count; i++) {
            struct slot *slot = &window->slots[i];
            slot->reply.resp3 = client->resp3;
            slot->reply.errors = 0;
            slot->call.reply = &slot->reply;
            if (rt_spawn(client->thread->loop, slot_task, slot) != PANDO_OK)
                slot_task(slot);
        }
        rt_countdown_wait_co(&window->left);
        for (unsigned i = 0; i < window->count; i++)
            append_reply(reply, &window->slots[i].reply);
    }
    window->count = 0;
}

/* ---- one request after the other ------------------------------------------------------------- */

static void run_alone_co(struct call *call)
{
    struct client *client = call->client;
    size_t mark = reply_mark(call->reply);
    bool quiet = client->quiet, skip = client->skip_next;
    client->skip_next = false;
    command_run_co(call);
    if (skip || (quiet && client->quiet))
        reply_rewind(call->reply, mark);
}

/* False: stop here for now. */
static bool room_for_replies(struct client *client)
{
    if (client->closing || client->close_after)
        return false;
    if (bytes_used(&client->output->reply.bytes) < OUTPUT_FLUSH_BYTES)
        return true;
    if (!client_flush(client))
        return false;
    if (bytes_used(&client->output->reply.bytes) == 0)
        return true;
    client->backlog = true;
    return false;
}

static enum resp_result next_request(struct client *client, struct call *call, char *error)
{
    struct input *input = client->input;
    struct resp_limits limits = {.bulk_max = SERVER_BULK_MAX,
                                 .untrusted = client->user == USER_NONE};
    struct resp_request request;

    uint8_t *front = bytes_front(&input->bytes);
    enum resp_result result =
        resp_parse(&input->parser, front, bytes_used(&input->bytes), &limits, &request, error);
    if (result != RESP_REQUEST)
        return result;
    *call = (struct call){
        .client = client,
        .thread = client->thread,
        .reply = &client->output->reply,
        .base = front,
        .words = input->parser.words + request.first,
        .count = request.count,
    };
    call->command = command_find(call_word(call, 0));
    return result;
}

/* After the last request that could be understood was answered. */
static void requests_end(struct client *client, enum resp_result result, const char *error)
{
    if (result == RESP_WRONG) {
        stats_add(&client->thread->stats.protocol_errors, 1);
        reply_errorf(&client->output->reply, "ERR %s", error);
        client->close_after = true;
    } else if (result == RESP_NO_MEMORY) {
        client->closing = true;
    }
}

static void run_in_order_co(struct client *client)
{
    struct call call;
    char error[RESP_ERROR_MAX];
    enum resp_result result = RESP_MORE;
    unsigned behind = 0;
    while (room_for_replies(client)) {
        result = next_request(client, &call, error);
        if (result != RESP_REQUEST)
            break;
        call.behind = behind++;
        run_alone_co(&call);
    }
    requests_end(client, result, error);
}

/* Words may move while a window grows: they are looked up when it runs. */
static void slot_fill(struct slot *slot, const struct call *call, const struct client *client)
{
    slot->call = *call;
    slot->call.base = bytes_front(&client->input->bytes);
}

static void window_fix_words(struct window *window, const size_t *firsts,
                             const struct client *client)
{
    for (unsigned i = 0; i < window->count; i++)
        window->slots[i].call.words = client->input->parser.words + firsts[i];
}

static void run_overlapped_co(struct client *client, struct window *window)
{
    size_t firsts[WINDOW_WIDTH];
    struct call call;
    char error[RESP_ERROR_MAX];
    enum resp_result result = RESP_MORE;

    while (room_for_replies(client)) {
        result = next_request(client, &call, error);
        if (result != RESP_REQUEST)
            break;
        size_t first = (size_t)(call.words - client->input->parser.words);
        bool fits = fits_window(&call);
        uint64_t hash = fits ? call_hash(&call) : 0;
        if (window->count > 0 &&
            (!fits || window->count == WINDOW_WIDTH || in_window(window, hash))) {
            window_fix_words(window, firsts, client);
            window_run_co(window, client);
        }
        if (!fits) {
            run_alone_co(&call);
            continue;
        }
        firsts[window->count] = first;
        window->hashes[window->count] = hash;
        slot_fill(&window->slots[window->count++], &call, client);
    }
    if (window->count > 0) {
        window_fix_words(window, firsts, client);
        window_run_co(window, client);
    }
    requests_end(client, result, error);
}

void requests_run_co(struct client *client)
{
    struct server_thread *thread = client->thread;
    struct window *window = thread->overlap ? window_take(thread) : NULL;
    if (window != NULL) {
        run_overlapped_co(client, window);
        window_give(thread, window);
    } else {
        run_in_order_co(client);
    }
    struct input *input = client->input;
    bytes_taken(&input->bytes, resp_forget(&input->parser));
}
