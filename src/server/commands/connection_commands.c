/*
 * connection_commands.c - commands about the connection: who, how, which database.
 */
#include <stdio.h>

#include "server/keyspace.h"
#include "server/resp/number.h"

void command_ping_co(struct command_call *call)
{
    if (call->count > 2)
        reply_error(call->reply, "ERR wrong number of arguments for 'ping' command");
    else if (call->count == 2)
        reply_bulk(call->reply, call_word(call, 1));
    else
        reply_literal(call->reply, "+PONG\r\n");
}

void command_echo_co(struct command_call *call)
{
    reply_bulk(call->reply, call_word(call, 1));
}

void command_quit_co(struct command_call *call)
{
    reply_ok(call->reply);
    call->client->close_after = true;
}

void command_time_co(struct command_call *call)
{
    char text[NUMBER_TEXT_MAX];
    uint64_t us = rt_wall_us();
    reply_array(call->reply, 2);
    reply_bulk(call->reply, slice_of(text, number_format(text, (int64_t)(us / 1000000))));
    reply_bulk(call->reply, slice_of(text, number_format(text, (int64_t)(us % 1000000))));
}

void command_select_co(struct command_call *call)
{
    unsigned number;
    if (!call_database(call, 1, &number))
        return;
    enum pando_status status = keyspace_open_for_co(call->client, number);
    if (status != PANDO_OK) {
        reply_failure(call->reply, status);
        return;
    }
    call->client->database = number;
    reply_ok(call->reply);
}

void command_reset_co(struct command_call *call)
{
    struct client *client = call->client;
    client->database = 0;
    client->resp3 = call->reply->resp3 = false;
    client->quiet = client->skip_next = client->skips = false;
    client->transaction = (struct transaction){0};
    client->name[0] = '\0';
    client_become(client, client->thread->server->has_password ? USER_NONE : USER_DEFAULT);
    reply_simple(call->reply, "RESET");
}

/* ---- who ------------------------------------------------------------------------------------- */

/* In a time that depends on the length of what was given only. */
static bool same_secret(const struct secret *secret, struct slice given)
{
    unsigned difference = secret->size != given.size;
    for (size_t i = 0; i < given.size; i++)
        difference |= secret->bytes[i % sizeof(secret->bytes)] ^ given.data[i];
    return difference == 0;
}

static bool password_is(struct server *server, const struct secret *password, struct slice given)
{
    rt_latch_lock(&server->settings.latch);
    bool same = same_secret(password, given);
    rt_latch_unlock(&server->settings.latch);
    return same;
}

bool server_password_is(struct server *server, struct slice given)
{
    return password_is(server, &server->password, given);
}

/* False: the error was replied. */
static bool authenticate_co(struct command_call *call, struct slice user, struct slice password)
{
    struct server *server = call->thread->server;
    struct guess guess;
    if (!auth_begin_co(call, user, password, &guess))
        return false;
    bool is_default = slice_equal(user, slice_of_text("default"));
    bool is_readonly = slice_equal(user, slice_of_text("readonly"));

    if ((is_default && !server->has_password) ||
        (is_default && server_password_is(server, password))) {
        auth_end(call, &guess, true);
        client_become(call->client, USER_DEFAULT);
        return true;
    }
    if (is_readonly && server->has_readonly_password &&
        password_is(server, &server->readonly_password, password)) {
        auth_end(call, &guess, true);
        client_become(call->client, USER_READONLY);
        return true;
    }
    auth_end(call, &guess, false);
    reply_error(call->reply, "WRONGPASS invalid username-password pair or user is disabled.");
    return false;
}

void command_auth_co(struct command_call *call)
{
    if (call->count > 3) {
        reply_error(call->reply, "ERR syntax error");
        return;
    }
    if (call->count == 2 && !call->thread->server->has_password) {
        reply_error(call->reply,
                    "ERR AUTH <password> called without any password configured for the default "
                    "user. Are you sure your configuration is correct?");
        return;
    }
    bool named = call->count == 3;
    if (authenticate_co(call, named ? call_word(call, 1) : slice_of_text("default"),
                        call_word(call, named ? 2 : 1)))
        reply_ok(call->reply);
}

/* ---- HELLO ----------------------------------------------------------------------------------- */

bool client_name_fits(struct command_call *call, struct slice name)
{
    bool fine = name.size < SERVER_NAME_BYTES;
    for (size_t i = 0; i < name.size; i++)
        fine = fine && name.data[i] > ' ' && name.data[i] < 0x7f;
    if (!fine && name.size >= SERVER_NAME_BYTES)
        reply_errorf(call->reply, "ERR Client names have at most %d characters here",
                     SERVER_NAME_BYTES - 1);
    else if (!fine)
        reply_error(call->reply, "ERR Client names cannot contain spaces, newlines or special "
                                 "characters.");
    return fine;
}

struct hello {
    int64_t version;
    struct slice name;
    bool has_name;
};

static bool hello_options_co(struct command_call *call, struct hello *hello)
{
    for (size_t i = 2; i < call->count; i++) {
        size_t left = call->count - i - 1;
        if (call_word_is(call, i, "auth") && left >= 2) {
            if (!authenticate_co(call, call_word(call, i + 1), call_word(call, i + 2)))
                return false;
            i += 2;
        } else if (call_word_is(call, i, "setname") && left >= 1) {
            hello->name = call_word(call, ++i);
            hello->has_name = true;
            if (!client_name_fits(call, hello->name))
                return false;
        } else {
            struct slice word = call_word(call, i);
            reply_errorf(call->reply, "ERR Syntax error in HELLO option '%.*s'",
                         (int)(word.size < 128 ? word.size : 128), (const char *)word.data);
            return false;
        }
    }
    return true;
}

void command_hello_co(struct command_call *call)
{
    struct client *client = call->client;
    struct hello hello = {.version = client->resp3 ? 3 : 2};

    if (call->count >= 2) {
        if (!number_parse(call_word(call, 1), &hello.version)) {
            reply_error(call->reply, "ERR Protocol version is not an integer or out of range");
            return;
        }
        if (hello.version < 2 || hello.version > 3) {
            reply_error(call->reply, "NOPROTO unsupported protocol version");
            return;
        }
    }
    if (!hello_options_co(call, &hello))
        return;
    if (client->user == USER_NONE) {
        reply_error(call->reply,
                    "NOAUTH HELLO must be called with the client already authenticated, otherwise "
                    "the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the "
                    "client and select the RESP protocol version at the same time");
        return;
    }
    if (hello.has_name)
        snprintf(client->name, sizeof(client->name), "%.*s", (int)hello.name.size,
                 (const char *)hello.name.data);
    client->resp3 = call->reply->resp3 = hello.version == 3;
    reply_map(call->reply, 7);
    reply_text(call->reply, "server");
    reply_text(call->reply, "redis");
    reply_text(call->reply, "version");
    reply_text(call->reply, SERVER_REDIS_VERSION);
    reply_text(call->reply, "proto");
    reply_integer(call->reply, hello.version);
    reply_text(call->reply, "id");
    reply_integer(call->reply, (int64_t)client->id);
    reply_text(call->reply, "mode");
    reply_text(call->reply, "standalone");
    reply_text(call->reply, "role");
    reply_text(call->reply, "master");
    reply_text(call->reply, "modules");
    reply_array(call->reply, 0);
}
