/*
 * transaction_commands.c - MULTI and what goes with it. There are no transactions: between MULTI and EXEC
 * commands are checked and answered QUEUED, as clients expect that send all of it at once, and EXEC then says
 * that none of them was run.
 */
#include "server/net/client.h"

void command_multi_co(struct command_call *call)
{
    struct client *client = call->client;
    if (client->transaction.open) {
        reply_error(call->reply, "ERR MULTI calls can not be nested");
        return;
    }
    client->transaction = (struct transaction){.open = true};
    reply_ok(call->reply);
}

void command_exec_co(struct command_call *call)
{
    struct client *client = call->client;
    struct transaction ended = client->transaction;
    client->transaction = (struct transaction){0};
    if (!ended.open)
        reply_error(call->reply, "ERR EXEC without MULTI");
    else if (ended.broken)
        reply_error(call->reply, "EXECABORT Transaction discarded because of previous errors.");
    else if (ended.queued == 0)
        reply_array(call->reply, 0); /* all of nothing was done */
    else
        reply_errorf(call->reply,
                     "EXECABORT Transaction discarded because of: this server has no transactions. "
                     "None of its %u commands was run; send them without MULTI and EXEC",
                     ended.queued);
}

void command_discard_co(struct command_call *call)
{
    if (!call->client->transaction.open) {
        reply_error(call->reply, "ERR DISCARD without MULTI");
        return;
    }
    call->client->transaction = (struct transaction){0};
    reply_ok(call->reply);
}

void command_watch_co(struct command_call *call)
{
    if (call->client->transaction.open)
        reply_error(call->reply, "ERR WATCH inside MULTI is not allowed");
    else
        reply_error(call->reply, "ERR WATCH is not supported: this server has no transactions, and "
                                 "EXEC would refuse what follows");
}

/* That no key is watched is so. Clients say it before they give a connection back. */
void command_unwatch_co(struct command_call *call)
{
    reply_ok(call->reply);
}
