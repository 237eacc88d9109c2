/*
 * auth.c - clients become somebody: who has no password yet is a stranger, and wrong ones are slowed
 * down per address. Where no password is asked for, who has sent no command yet gives way to newer clients.
 */
#include "base/log.h"
#include "server/net/client.h"

static const uint64_t LOOK_NS = 100 * RT_NS_PER_MS;

/* ---- strangers ------------------------------------------------------------------------------- */

static void enter(struct client *client, struct strangers *among)
{
    client->among = among;
    strangers_enter(among, &client->stranger, client->stream.fd);
}

/* Another one may have its place already: it ends then. */
static void leave(struct client *client)
{
    if (!strangers_leave(client->among, &client->stranger))
        client->closing = true;
    client->among = NULL;
}

/* Of the accepting thread, before the client has another. */
void client_arrived(struct server *server, struct client *client)
{
    client->user = server->has_password ? USER_NONE : USER_DEFAULT;
    enter(client, client->tls || client->user == USER_NONE ? server->strangers : server->silent);
}

void client_shook_hands(struct client *client)
{
    client->handshaking = false;
    if (client->user == USER_NONE)
        return;
    leave(client);
    if (!client->closing)
        enter(client, client->thread->server->silent);
}

void client_known(struct client *client)
{
    if (client->among != NULL)
        leave(client);
}

void client_become(struct client *client, enum client_user user)
{
    client->user = user;
    if (user != USER_NONE) {
        client_known(client);
        if (client->output != NULL)
            client->output->flush_bytes = OUTPUT_FLUSH_BYTES;
    } else if (client->among == NULL) {
        client->stranger_ns = rt_now_ns();
        enter(client, client->thread->server->strangers);
    }
}

/* ---- guesses --------------------------------------------------------------------------------- */

bool auth_begin_co(struct command_call *call, struct slice user, struct slice password,
                   struct guess *guess)
{
    struct client *client = call->client;
    struct server *server = call->thread->server;
    uint64_t now_ns = rt_now_ns();
    if (guesses_begin(server->guesses, socket_origin(client->stream.fd), user, password, now_ns,
                      guess) != PANDO_OK) {
        reply_error(call->reply, "ERR out of memory");
        return false;
    }
    if (guess->due_ns > now_ns &&
        !client_flush(client)) /* what was asked before is not kept back */
        return false;
    while (now_ns < guess->due_ns && !client->closing && !server_stopping(server)) {
        uint64_t left_ns = guess->due_ns - now_ns;
        rt_sleep_co(left_ns < LOOK_NS ? left_ns : LOOK_NS); /* it is the delay that is wanted */
        now_ns = rt_now_ns();
    }
    if (guess->refused || now_ns < guess->due_ns) {
        reply_error(call->reply,
                    "ERR too many wrong passwords from this address: try again in some seconds");
        return false;
    }
    return true;
}

void auth_end(struct command_call *call, const struct guess *guess, bool right)
{
    struct server *server = call->thread->server;
    uint64_t unsaid, now_ns = rt_now_ns();
    guesses_end(server->guesses, guess, right, now_ns);
    if (right)
        return;
    stats_add(&call->thread->stats.auth_failures, 1);
    if (log_limit_allows(&server->auth_log, now_ns, &unsaid))
        log_warn("wrong password", log_text("address", call->client->address),
                 log_u64("unsaid", unsaid));
}
