/*
 * incoming.c - long words of requests: written into the pool as they arrive, while the connection's buffer
 * holds no more than what was read at once. What cannot be stored is passed over, and its command says why.
 *
 * An upload waits on its task, not between two tasks: what it has staged is freed where one can wait.
 */
#include <string.h>

#include "base/log.h"
#include "server/keyspace.h"
#include "server/long.h"

enum { READ_BYTES = 64 * 1024, UPLOADS_MAX = 64 /* of a thread */ };

/* ---- waiting for the other side -------------------------------------------------------------- */

bool client_wait_co(struct client *client, uint32_t events, uint64_t since_ns)
{
    const struct server *server = client->thread->server;
    uint64_t limit_ns = server->options.stalled_timeout_ms * RT_NS_PER_MS;
    uint64_t end_ns = limit_ns == 0 ? RT_NEVER : since_ns + limit_ns + 1;

    if (client->closing || !client->watched)
        return false;
    if (rt_now_ns() >= end_ns) {
        log_warn("client closed: it neither sends nor takes the rest of a long value",
                 log_u64("client", client->id), log_text("address", client->address));
        client->closing = true;
        return false;
    }
    client->waiter = rt_task_self();
    rt_fd_change(client->thread->loop, &client->io, events);
    (void)rt_park_co(end_ns);
    client->waiter = NULL;
    return !client->closing;
}

/* ---- what is taken --------------------------------------------------------------------------- */

/* Which word of a command may be long; 0: none. */
static size_t long_word_of(const struct command *command)
{
    static const struct {
        void (*run_co)(struct command_call *call);
        size_t word;
    } takers[] = {{command_set_co, 2},     {command_setnx_co, 2}, {command_getset_co, 2},
                  {command_append_co, 2},  {command_setex_co, 3}, {command_psetex_co, 3},
                  {command_setrange_co, 3}};
    for (size_t i = 0; command != NULL && i < sizeof(takers) / sizeof(takers[0]); i++) {
        if (takers[i].run_co == command->run_co)
            return takers[i].word;
    }
    return 0;
}

/* Opens the stage. What is in the way becomes the word's status, or will be found by the command. */
static void stage_open_co(struct client *client, struct slice key)
{
    struct incoming *incoming = &client->incoming;
    struct command_call call = {.client = client, .thread = client->thread};
    incoming->status = PANDO_DENIED;
    if (client->user == USER_READONLY || client->transaction.open || key.size > KEYSPACE_KEY_MAX)
        return; /* its command will not run */
    incoming->status = incoming->size > VALUE_BYTES_MAX ? PANDO_TOO_LARGE : PANDO_OK;
    if (incoming->status == PANDO_OK && !keyspace_is_open(client))
        incoming->status = keyspace_open_for_co(client, client->database);
    if (incoming->status == PANDO_OK)
        incoming->status = store_stage_open_co(keyspace_table(&call, key), key, incoming->size,
                                               false, &incoming->stage);
}

static bool waits_for_place(const void *context)
{
    const struct client *client = context;
    return client->thread->uploads >= UPLOADS_MAX && !client->closing && client->watched &&
           !server_stopping(client->thread->server);
}

/* False: the client is gone. When the server stops those that wait go on all the same. */
static bool upload_begin_co(struct client *client)
{
    struct server_thread *thread = client->thread;
    if (waits_for_place(client)) {
        rt_fd_change(thread->loop, &client->io, 0);
        client->queued = true;
        (void)rt_waitq_while_co(&thread->upload_ended, waits_for_place, client, RT_NEVER);
        client->queued = false;
        if (client->closing || !client->watched) {
            rt_waitq_wake_one(&thread->upload_ended); /* the place may be another's */
            return false;
        }
    }
    thread->uploads++;
    return true;
}

/* True: the word goes to the pool. */
static bool begin_co(struct client *client)
{
    struct resp_parser *parser = &client->input->parser;
    uint8_t *front = bytes_front(&client->input->bytes);
    const struct resp_word *words = parser->words + parser->first;
    size_t index = resp_words_pending(parser);

    if (index < 2 || client->incoming.active ||
        long_word_of(command_find(slice_of(front + words[0].offset, words[0].size))) != index)
        return false;
    if (!upload_begin_co(client))
        return false;
    client->incoming = (struct incoming){.active = true, .index = index, .size = parser->bulk_size};
    front = bytes_front(&client->input->bytes);
    words = parser->words + parser->first;
    stage_open_co(client, slice_of(front + words[1].offset, words[1].size));
    return true;
}

/* ---- taking it ------------------------------------------------------------------------------- */

static void fail_co(struct incoming *incoming, enum pando_status status)
{
    store_stage_close_co(incoming->stage);
    incoming->stage = NULL;
    incoming->status = status;
}

/* Takes what the buffer has of the word and of the end of line behind it. */
static void take_co(struct client *client, uint64_t *left)
{
    struct incoming *incoming = &client->incoming;
    struct bytes *bytes = &client->input->bytes;
    size_t at = client->input->parser.at, there = bytes_used(bytes) - at;
    size_t taken = there < *left ? there : *left;
    size_t value = *left > 2 && taken > *left - 2 ? (size_t)(*left - 2) : *left > 2 ? taken : 0;

    if (value > 0 && incoming->stage != NULL) {
        enum pando_status status =
            store_stage_add_co(incoming->stage, slice_of(bytes_front(bytes) + at, value));
        if (status != PANDO_OK)
            fail_co(incoming, status);
    }
    uint8_t *from = bytes_front(bytes) + at;
    memmove(from, from + taken, there - taken);
    bytes->tail -= taken;
    *left -= taken;
}

/* Some more bytes; false: it is over. */
static bool read_co(struct client *client, uint64_t *since_ns)
{
    struct bytes *bytes = &client->input->bytes;
    for (;;) {
        uint8_t *room = bytes_reserve(bytes, READ_BYTES, REQUEST_BYTES_MAX);
        if (room == NULL)
            return false;
        ssize_t got = stream_read(&client->stream, room, bytes->capacity - bytes->tail);
        if (got < 0)
            return false;
        if (got > 0) {
            bytes_appended(bytes, (size_t)got);
            stats_add(&client->thread->stats.bytes_in, (uint64_t)got);
            *since_ns = rt_coarse_ns();
            return true;
        }
        if (server_stopping(client->thread->server) ||
            !client_wait_co(client, RT_READABLE, *since_ns))
            return false;
    }
}

bool incoming_receive_co(struct client *client)
{
    struct resp_parser *parser = &client->input->parser;
    if (!begin_co(client)) {
        resp_long_kept(parser);
        return !client->closing;
    }
    uint64_t left = (uint64_t)parser->bulk_size + 2, since_ns = rt_now_ns();
    bool going = true;
    while (left > 0 && going) {
        if (bytes_used(&client->input->bytes) > parser->at)
            take_co(client, &left);
        if (left > 0)
            going = read_co(client, &since_ns);
    }
    client->thread->uploads--;
    rt_waitq_wake_one(&client->thread->upload_ended);
    if (!going || !resp_long_passed(parser)) {
        client->closing = true;
        return false;
    }
    return true;
}

void incoming_end_co(struct client *client)
{
    store_stage_close_co(client->incoming.stage);
    client->incoming = (struct incoming){0};
}
