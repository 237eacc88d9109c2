/*
 * run.c - the requests of one connection. One after the other where operations never wait (the pool is
 * this machine's memory); else in pipelines of calls that overlap, whose replies keep their order.
 *
 * A pipeline holds calls of one key each, all different: what comes behind one that it does not go
 * with waits until the pipeline is done. A request with nothing behind it needs no pipeline.
 */
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/assert.h"
#include "server/long.h"

/* ---- pipelines ------------------------------------------------------------------------------- */

static uint64_t hash_word(uint64_t hash, struct slice word)
{
    for (size_t i = 0; i < word.size; i++)
        hash = (hash ^ word.data[i]) * UINT64_C(0x100000001b3);
    return (hash ^ word.size) * UINT64_C(0x9e3779b97f4a7c15);
}

/* What the call must not overlap with itself on. */
static uint64_t call_hash(const struct command_call *call)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 1; i <= call->command->last_key; i++)
        hash = hash_word(hash, call_word(call, (size_t)i));
    return hash;
}

static bool fits_pipeline(const struct command_call *call)
{
    const struct command *command = call->command;
    size_t least = command == NULL ? 0 : (size_t)abs(command->arity);
    return command != NULL && (command->flags & COMMAND_POINT) != 0 && call->incoming == NULL &&
           call->count >= least && call->count > (size_t)command->last_key &&
           !call->client->quiet && !call->client->skip_next && !call->client->transaction.open;
}

static bool in_pipeline(const struct pipeline *pipeline, uint64_t hash)
{
    for (unsigned i = 0; i < pipeline->count; i++) {
        if (pipeline->hashes[i] == hash)
            return true;
    }
    return false;
}

/* Words may move while a pipeline grows: they are looked up when it runs. */
static void slots_find_words(struct pipeline *pipeline, const struct client *client)
{
    for (unsigned i = 0; i < pipeline->count; i++) {
        struct slot *slot = &pipeline->slots[i];
        slot->call.base = bytes_front(&client->input->bytes);
        slot->call.words = client->input->parser.words + slot->first_word;
    }
}

static void slot_task(void *arg)
{
    struct slot *slot = arg;
    command_run_co(&slot->call);
    rt_countdown_done(&slot->pipeline->left);
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

/* Runs what the pipeline holds and writes the replies. */
static void pipeline_run_co(struct pipeline *pipeline, struct client *client)
{
    struct reply *reply = &client->output->reply;
    slots_find_words(pipeline, client);
    if (pipeline->count == 1) {
        pipeline->slots[0].call.reply = reply;
        pipeline->slots[0].call.streams = true;
        command_run_co(&pipeline->slots[0].call);
    } else if (pipeline->count > 1) {
        rt_countdown_init(&pipeline->left, pipeline->count);
        for (unsigned i = 0; i < pipeline->count; i++) {
            struct slot *slot = &pipeline->slots[i];
            slot->reply.resp3 = client->resp3;
            slot->reply.errors = 0;
            slot->call.reply = &slot->reply;
            slot->call.may_wait = true;
            if (rt_spawn(client->thread->loop, slot_task, slot) != PANDO_OK)
                slot_task(slot);
        }
        rt_countdown_wait_co(&pipeline->left);
        for (unsigned i = 0; i < pipeline->count; i++) {
            struct slot *slot = &pipeline->slots[i];
            append_reply(reply, &slot->reply);
            if (!slot->call.postponed || client->closing)
                continue;
            slot->call.reply = reply;
            slot->call.postponed = slot->call.may_wait = false;
            slot->call.streams = true;
            command_run_co(&slot->call);
        }
    }
    pipeline->count = 0;
}

/* Takes a call that may overlap with others, which are run first if it does not go with them. False: the call
 * is to run alone, or not at all if the client is closing; the others have run. */
static bool pipeline_take_in_co(struct pipeline *pipeline, const struct command_call *call)
{
    struct client *client = call->client;
    const struct input *input = client->input;
    bool last = input->parser.at == bytes_used(&input->bytes);
    bool fits = fits_pipeline(call) && (pipeline->count > 0 || !last);
    uint64_t hash = fits ? call_hash(call) : 0;

    if (pipeline->count > 0 &&
        (!fits || pipeline->count == PIPELINE_WIDTH || in_pipeline(pipeline, hash)))
        pipeline_run_co(pipeline, client);
    if (!fits || client->closing)
        return false;
    struct slot *slot = &pipeline->slots[pipeline->count];
    slot->call = *call;
    slot->first_word = (size_t)(call->words - input->parser.words);
    pipeline->hashes[pipeline->count++] = hash;
    return true;
}

/* ---- one request after the other ------------------------------------------------------------- */

/* The request that was parsed last, with what unescaping its words has left behind them. */
static void forget_words(const struct command_call *call)
{
    size_t begin = call->words[0].offset;
    OPENSSL_cleanse(call->base + begin, call->client->input->parser.at - begin);
}

/* What CLIENT REPLY says of a call before it runs alone. */
struct alone {
    size_t mark; /* of the reply, should it be taken back */
    bool quiet;
};

static struct alone alone_begin(struct command_call *call)
{
    struct client *client = call->client;
    struct alone alone = {.mark = reply_mark(call->reply), .quiet = client->quiet};
    client->skips = client->skip_next;
    client->skip_next = false;
    call->streams = !client->skips && !alone.quiet;
    return alone;
}

static void alone_end_co(struct command_call *call, const struct alone *alone)
{
    struct client *client = call->client;
    if (call->incoming != NULL)
        incoming_end_co(client);
    if (call->command != NULL && (call->command->flags & COMMAND_SECRET) != 0)
        forget_words(call);
    if (client->skips || (alone->quiet && client->quiet))
        reply_rewind(call->reply, alone->mark);
}

/* False: stop here for now. */
static bool room_for_replies(struct client *client)
{
    if (client->closing || client->close_after)
        return false;
    if (bytes_used(&client->output->reply.bytes) < client->output->flush_bytes)
        return true;
    if (!client_flush(client))
        return false;
    if (bytes_used(&client->output->reply.bytes) == 0)
        return true;
    client->backlog = true;
    return false;
}

static enum resp_result next_request(struct client *client, struct command_call *call, char *error)
{
    struct input *input = client->input;
    struct resp_limits limits = {.bulk_max = SERVER_BULK_MAX,
                                 .long_min = LONG_BYTES,
                                 .untrusted = client->user == USER_NONE};
    struct resp_request request;

    uint8_t *front = bytes_front(&input->bytes);
    enum resp_result result =
        resp_parse(&input->parser, front, bytes_used(&input->bytes), &limits, &request, error);
    if (result != RESP_REQUEST)
        return result;
    if (client->among != NULL && client->user != USER_NONE)
        client_known(client);
    if (client->closing)
        return RESP_MORE;
    *call = (struct command_call){
        .client = client,
        .thread = client->thread,
        .reply = &client->output->reply,
        .base = front,
        .words = input->parser.words + request.first,
        .count = request.count,
        .incoming = client->incoming.active ? &client->incoming : NULL,
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
        client->close_after = client->linger = true;
    } else if (result == RESP_NO_MEMORY) {
        client->close_after = true;
    }
}

void requests_run_co(struct client *client)
{
    struct server_thread *thread = client->thread;
    /* A stranger may wait for his turn to give a password: he holds no more than he must. */
    bool overlap = thread->overlap && client->user != USER_NONE;
    struct pipeline *pipeline = overlap ? pipeline_take(thread) : NULL;
    enum resp_result result = RESP_MORE;
    char error[RESP_ERROR_MAX];
    struct command_call call;
    unsigned behind = 0;

    while (room_for_replies(client)) {
        result = next_request(client, &call, error);
        if (result != RESP_REQUEST)
            break;
        if (pipeline != NULL && pipeline_take_in_co(pipeline, &call))
            continue;
        if (client->closing)
            break;
        call.behind = pipeline == NULL ? behind++ : 0;
        struct alone alone = alone_begin(&call);
        command_run_co(&call);
        alone_end_co(&call, &alone);
    }
    if (pipeline != NULL) {
        pipeline_run_co(pipeline, client);
        pipeline_give(thread, pipeline);
    }
    requests_end(client, result, error);
    struct input *input = client->input;
    /* What is not run any more may be a password, behind a single quotation mark for example. */
    if (client->closing || client->close_after)
        OPENSSL_cleanse(bytes_front(&input->bytes), bytes_used(&input->bytes));
    bytes_taken(&input->bytes, resp_forget(&input->parser));
}
