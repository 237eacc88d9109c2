/*
 * client_commands.c - CLIENT and its subcommands. Clients belong to their loops: what concerns all of
 * them is asked of every loop by a message.
 */
#include <stdio.h>
#include <stdlib.h>

#include "server/keyspace.h"
#include "server/resp/number.h"

/* ---- asking all loops ------------------------------------------------------------------------ */

struct filter {
    uint64_t id;
    char address[SERVER_NAME_BYTES], local_address[SERVER_NAME_BYTES];
    int user; /* of client_user; negative: any */
    const struct client *skip;
    bool any_id;
};

struct question {
    struct rt_message message;
    struct server_thread *thread;
    const struct filter *filter;
    bool kill;
    struct bytes text; /* out: lines */
    int64_t count;     /* out */
    bool self;         /* out: the asker is among them */
    struct rt_countdown *left;
};

static const char *const user_names[] = {
    [USER_NONE] = "default", [USER_DEFAULT] = "default", [USER_READONLY] = "readonly"};

static bool filter_matches(const struct filter *filter, const struct client *client)
{
    if (client == filter->skip || (!filter->any_id && client->id != filter->id))
        return false;
    if (filter->address[0] != '\0' && strcmp(filter->address, client->address) != 0)
        return false;
    if (filter->local_address[0] != '\0' &&
        strcmp(filter->local_address, client->local_address) != 0)
        return false;
    return filter->user < 0 || (int)client->user == filter->user;
}

static size_t describe(const struct client *client, char *out, size_t size)
{
    uint64_t now_ns = rt_now_ns();
    size_t input = client->input == NULL ? 0 : bytes_used(&client->input->bytes);
    size_t output = client->output == NULL ? 0 : bytes_used(&client->output->reply.bytes);
    int used = snprintf(
        out, size,
        "id=%llu addr=%s laddr=%s fd=%d name=%s age=%llu idle=%llu flags=%c db=%u sub=0 psub=0 "
        "ssub=0 "
        "multi=%lld qbuf=%zu qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=%zu "
        "tot-mem=%zu events=r cmd=%s%s%s user=%s redir=-1 resp=%d lib-name=%s lib-ver=%s\n",
        (unsigned long long)client->id, client->address, client->local_address, client->stream.fd,
        client->name, (unsigned long long)((now_ns - client->created_ns) / RT_NS_PER_S),
        (unsigned long long)((now_ns - client->used_ns) / RT_NS_PER_S),
        client->transaction.open ? 'x' : 'N', client->database,
        client->transaction.open ? (long long)client->transaction.queued : -1LL, input, output,
        sizeof(*client) + input + output,
        client->last_command == NULL ? "NULL" : client->last_command->name,
        client->last_subcommand == NULL ? "" : "|",
        client->last_subcommand == NULL ? "" : client->last_subcommand->name,
        user_names[client->user], client->resp3 ? 3 : 2, client->library, client->library_version);
    return used < 0 ? 0 : (size_t)used < size ? (size_t)used : size - 1;
}

static void answer(struct rt_message *message)
{
    struct question *question = container_of(message, struct question, message);
    struct rt_countdown *left = question->left;
    list_for_each_safe (link, &question->thread->clients) {
        struct client *client = container_of(link, struct client, link);
        char line[1024];
        if (!filter_matches(question->filter, client))
            continue;
        question->count++;
        if (question->kill) {
            if (!client->running)
                client_close(client);
            else
                client->close_after = true;
            continue;
        }
        size_t size = describe(client, line, sizeof(line));
        uint8_t *room = bytes_reserve(&question->text, size, SIZE_MAX / 4);
        if (room == NULL)
            continue;
        memcpy(room, line, size);
        bytes_appended(&question->text, size);
    }
    rt_countdown_done(left);
}

/* Asks every loop; the lines in order of the threads go to *text, which the caller frees. */
static int64_t visit_clients_co(struct command_call *call, const struct filter *filter, bool kill,
                                struct bytes *text)
{
    struct server *server = call->thread->server;
    unsigned threads = server->options.threads;
    struct question *questions = calloc(threads, sizeof(*questions));
    struct rt_countdown left;
    int64_t count = 0;

    if (questions == NULL)
        return -1;
    rt_countdown_init(&left, threads);
    for (unsigned i = 0; i < threads; i++) {
        questions[i] = (struct question){.message = {.deliver = answer},
                                         .thread = &server->threads[i],
                                         .filter = filter,
                                         .kill = kill,
                                         .left = &left};
        rt_loop_post(server->threads[i].loop, &questions[i].message);
    }
    rt_countdown_wait_co(&left);
    for (unsigned i = 0; i < threads; i++) {
        size_t size = bytes_used(&questions[i].text);
        uint8_t *room = text == NULL ? NULL : bytes_reserve(text, size, SIZE_MAX / 4);
        if (room != NULL && size > 0) {
            memcpy(room, bytes_front(&questions[i].text), size);
            bytes_appended(text, size);
        }
        bytes_fini(&questions[i].text);
        count += questions[i].count;
    }
    free(questions);
    return count;
}

/* ---- LIST, INFO, KILL ------------------------------------------------------------------------ */

/* All clients are normal ones. False: it is no type, which was replied. */
static bool client_type(struct command_call *call, size_t index, struct filter *filter)
{
    struct slice type = call_word(call, index);
    if (call_word_is(call, index, "normal"))
        return true;
    filter->id = 0;
    filter->any_id = false;
    if (call_word_is(call, index, "master") || call_word_is(call, index, "replica") ||
        call_word_is(call, index, "slave") || call_word_is(call, index, "pubsub"))
        return true;
    reply_errorf(call->reply, "ERR Unknown client type '%.*s'",
                 (int)(type.size < 128 ? type.size : 128), (const char *)type.data);
    return false;
}

static void client_list_co(struct command_call *call)
{
    struct filter filter = {.any_id = true, .user = -1};
    struct bytes text = {0};
    int64_t id;

    if (call->count == 4 && call_word_is(call, 2, "type")) {
        if (!client_type(call, 3, &filter))
            return;
    } else if (call->count > 3 && call_word_is(call, 2, "id")) {
        for (size_t i = 3; i < call->count; i++) {
            if (!number_parse(call_word(call, i), &id) || id <= 0) {
                reply_error(call->reply, "ERR Invalid client ID");
                bytes_fini(&text);
                return;
            }
            filter.any_id = false;
            filter.id = (uint64_t)id;
            (void)visit_clients_co(call, &filter, false, &text);
        }
        reply_verbatim(call->reply, slice_of(text.data, bytes_used(&text)));
        bytes_fini(&text);
        return;
    } else if (call->count != 2) {
        reply_error(call->reply, "ERR syntax error");
        return;
    }
    (void)visit_clients_co(call, &filter, false, &text);
    reply_verbatim(call->reply, slice_of(bytes_front(&text), bytes_used(&text)));
    bytes_fini(&text);
}

static void client_info_co(struct command_call *call)
{
    char line[1024];
    reply_verbatim(call->reply, slice_of(line, describe(call->client, line, sizeof(line))));
}

static void copy_word(const struct command_call *call, size_t index, char *out, size_t size)
{
    struct slice word = call_word(call, index);
    snprintf(out, size, "%.*s", (int)(word.size < size ? word.size : size - 1),
             (const char *)word.data);
}

static bool kill_options(struct command_call *call, struct filter *filter)
{
    bool skip_me = true;
    for (size_t i = 2; i < call->count; i += 2) {
        int64_t id;
        if (i + 1 >= call->count) {
            reply_error(call->reply, "ERR syntax error");
            return false;
        }
        if (call_word_is(call, i, "id")) {
            if (!number_parse(call_word(call, i + 1), &id) || id < 1) {
                reply_error(call->reply, "ERR client-id should be greater than 0");
                return false;
            }
            filter->id = (uint64_t)id;
            filter->any_id = false;
        } else if (call_word_is(call, i, "addr")) {
            copy_word(call, i + 1, filter->address, sizeof(filter->address));
        } else if (call_word_is(call, i, "laddr")) {
            copy_word(call, i + 1, filter->local_address, sizeof(filter->local_address));
        } else if (call_word_is(call, i, "user")) {
            bool readonly = call_word_is(call, i + 1, "readonly");
            if (!readonly && !call_word_is(call, i + 1, "default")) {
                struct slice name = call_word(call, i + 1);
                reply_errorf(call->reply, "ERR No such user '%.*s'",
                             (int)(name.size < 128 ? name.size : 128), (const char *)name.data);
                return false;
            }
            filter->user = readonly ? USER_READONLY : USER_DEFAULT;
        } else if (call_word_is(call, i, "type")) {
            if (!client_type(call, i + 1, filter))
                return false;
        } else if (call_word_is(call, i, "skipme")) {
            bool yes = call_word_is(call, i + 1, "yes");
            if (!yes && !call_word_is(call, i + 1, "no")) {
                reply_error(call->reply, "ERR syntax error");
                return false;
            }
            skip_me = yes;
        } else {
            reply_error(call->reply, "ERR syntax error");
            return false;
        }
    }
    filter->skip = skip_me ? call->client : NULL;
    return true;
}

static void client_kill_co(struct command_call *call)
{
    struct filter filter = {.any_id = true, .user = -1};
    bool old_form = call->count == 3;
    if (old_form)
        copy_word(call, 2, filter.address, sizeof(filter.address));
    else if (!kill_options(call, &filter))
        return;
    int64_t count = visit_clients_co(call, &filter, true, NULL);
    if (!old_form)
        reply_integer(call->reply, count);
    else if (count > 0)
        reply_ok(call->reply);
    else
        reply_error(call->reply, "ERR No such client");
}

/* ---- the others ------------------------------------------------------------------------------ */

static void client_id_co(struct command_call *call)
{
    reply_integer(call->reply, (int64_t)call->client->id);
}

static void client_getname_co(struct command_call *call)
{
    if (call->client->name[0] == '\0')
        reply_null(call->reply);
    else
        reply_text(call->reply, call->client->name);
}

static void client_setname_co(struct command_call *call)
{
    if (!client_name_fits(call, call_word(call, 2)))
        return;
    copy_word(call, 2, call->client->name, sizeof(call->client->name));
    reply_ok(call->reply);
}

static void client_setinfo_co(struct command_call *call)
{
    bool name = call_word_is(call, 2, "lib-name");
    struct slice word = call_word(call, 2);
    if (!name && !call_word_is(call, 2, "lib-ver")) {
        reply_errorf(call->reply, "ERR Unrecognized option '%.*s'",
                     (int)(word.size < 128 ? word.size : 128), (const char *)word.data);
        return;
    }
    struct slice value = call_word(call, 3);
    for (size_t i = 0; i < value.size; i++) {
        if (value.data[i] <= ' ' || value.data[i] >= 0x7f) {
            reply_errorf(call->reply,
                         "ERR %s cannot contain spaces, newlines or special characters.",
                         name ? "lib-name" : "lib-ver");
            return;
        }
    }
    copy_word(call, 3, name ? call->client->library : call->client->library_version,
              SERVER_NAME_BYTES);
    reply_ok(call->reply);
}

static void client_reply_co(struct command_call *call)
{
    struct client *client = call->client;
    if (call_word_is(call, 2, "on")) {
        client->quiet = client->skip_next = client->skips = false;
        reply_ok(call->reply);
    } else if (call_word_is(call, 2, "off")) {
        client->quiet = true;
    } else if (call_word_is(call, 2, "skip")) {
        client->skip_next = !client->quiet;
    } else {
        reply_error(call->reply, "ERR syntax error");
    }
}

static void client_switch_co(struct command_call *call)
{
    if (call_word_is(call, 2, "on") || call_word_is(call, 2, "off"))
        reply_ok(call->reply);
    else
        reply_error(call->reply, "ERR syntax error");
}

static void client_help_co(struct command_call *call)
{
    static const char *const lines[] = {
        "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "GETNAME, SETNAME <name>, ID, INFO, SETINFO <lib-name|lib-ver> <value>",
        "LIST [TYPE normal|master|replica|pubsub] [ID <id> ...]",
        "KILL <ip:port> | ID <id> | ADDR <ip:port> | LADDR <ip:port> | USER <name> | SKIPME yes|no",
        "REPLY <ON|OFF|SKIP>, NO-EVICT <ON|OFF>, NO-TOUCH <ON|OFF>, HELP",
    };
    reply_array(call->reply, sizeof(lines) / sizeof(lines[0]));
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        reply_simple(call->reply, lines[i]);
}

const struct subcommand client_subcommands[] = {
    {"id", 2, 0, client_id_co},
    {"getname", 2, 0, client_getname_co},
    {"setname", 3, 0, client_setname_co},
    {"setinfo", 4, 0, client_setinfo_co},
    {"list", -2, COMMAND_ADMIN, client_list_co},
    {"info", 2, 0, client_info_co},
    {"kill", -3, COMMAND_ADMIN, client_kill_co},
    {"reply", 3, 0, client_reply_co},
    {"no-evict", 3, COMMAND_ADMIN, client_switch_co},
    {"no-touch", 3, 0, client_switch_co},
    {"help", 2, 0, client_help_co},
    {NULL, 0, 0, NULL},
};
