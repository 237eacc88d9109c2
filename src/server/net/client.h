/*
 * client.h - the connections of the server: what each has, and the buffers that they share.
 *
 * Everything belongs to the loop of the client's thread, unless it says otherwise.
 */
#ifndef SERVER_NET_CLIENT_H
#define SERVER_NET_CLIENT_H

#include "fabric/stream/stream.h"
#include "rt/io.h"
#include "server/commands/command.h"
#include "server/net/guesses.h"
#include "server/resp/resp.h"
#include "server/server_int.h"

enum {
    INPUT_BYTES = 32 * 1024,        /* of a pooled buffer; larger ones are freed after use */
    OUTPUT_BYTES = 16 * 1024,       /* the same */
    OUTPUT_FLUSH_BYTES = 64 * 1024, /* replies are sent before there are more than these */
    STRANGER_READ_BYTES = 1024,     /* of who has not given the password: read at once */
    STRANGER_BYTES_MAX = 8 * 1024,  /* and of one request; a password may have SECRET_BYTES_MAX */
    STRANGER_FLUSH_BYTES = 2048,
    STRANGERS_MAX = 2048,
    SILENT_MAX = 65536,     /* who have sent nothing yet, where no password is asked for */
    SILENT_SHARE_MIN = 128, /* of them may be one address's, or a half of all */
    PIPELINE_WIDTH = 64,    /* calls of one connection that overlap */
};

/* ---- buffers --------------------------------------------------------------------------------- */

/* Idle clients have none of these: they come from the thread's pool. */
struct input {
    struct list link;
    struct bytes bytes;
    struct resp_parser parser;
};

struct output {
    struct list link;
    struct reply reply;
    size_t flush_bytes; /* replies are sent before there are more than these */
};

struct slot {
    struct command_call call;
    size_t first_word; /* of the call, among the parser's words */
    struct reply reply;
    struct pipeline *pipeline;
};

/* Calls of one connection that run at the same time. */
struct pipeline {
    struct list link;
    unsigned count;
    struct rt_countdown left;
    uint64_t hashes[PIPELINE_WIDTH];
    struct slot slots[PIPELINE_WIDTH];
};

/* ---- clients --------------------------------------------------------------------------------- */

enum client_user { USER_NONE, USER_DEFAULT, USER_READONLY };

/* A long word of the request that is being received or run. */
struct incoming {
    bool active;
    size_t index; /* of the word */
    uint64_t size;
    enum pando_status status; /* why it is not in the pool */
    struct store_stage *stage;
    uint64_t reference; /* 0: not sealed */
    uint64_t expire_ms; /* with which it was sealed */
};

/* What MULTI began: commands are counted, not kept, as EXEC runs none of them. */
struct transaction {
    bool open;
    bool broken; /* a command was refused already */
    uint32_t queued;
};

struct client {
    struct rt_fd io;
    struct stream stream;
    struct list link;
    struct server_thread *thread;
    struct rt_message handover; /* from the accepting thread */
    struct input *input;        /* NULL: nothing is pending */
    struct output *output;
    uint64_t id;
    uint64_t created_ns, used_ns;
    uint64_t taken_ns; /* when the other side took bytes last, or there was nothing to take */
    struct incoming incoming;
    struct rt_task *waiter; /* its task, when that waits for the socket, */
    bool queued;            /* or for other clients' uploads */
    unsigned database;
    enum client_user user;
    struct stranger stranger;
    struct strangers *among; /* the server's strangers, its silent ones, or NULL */
    uint64_t stranger_ns;    /* since when it could have given the password */
    const struct command *last_command;
    const struct subcommand *last_subcommand;
    bool watched; /* io is in the loop */
    bool tls, handshaking;
    bool running;     /* its task is alive */
    bool backlog;     /* there may be whole requests in the input */
    bool closing;     /* close it as soon as its task has ended */
    bool close_after; /* when the replies are out */
    bool linger;      /* and then take what it still sends, so that it reads them */
    bool resp3;
    bool quiet, skip_next; /* CLIENT REPLY */
    bool skips;            /* this command has no reply, unless it is CLIENT REPLY ON */
    struct transaction transaction;
    bool no_evict, no_touch;
    char name[SERVER_NAME_BYTES], library[SERVER_NAME_BYTES], library_version[SERVER_NAME_BYTES];
    char address[SERVER_NAME_BYTES], local_address[SERVER_NAME_BYTES];
};

/* client.c. A socket that was accepted, on the loop that will serve it. */
void client_open(struct server_thread *thread, struct client *client);
/* Now, or as soon as its task has ended. */
void client_close(struct client *client);
/* Its task looks again whether it may go on waiting for the socket, or for others. */
void client_wake(struct client *client);
/* linger.c. After the last reply to somebody who may be sending still: what is closed with bytes unread is
 * reset, and the reply lost. Takes a bounded amount for a bounded time. */
void client_linger_co(struct client *client);
/* Sends what there is; false: it is closing. */
bool client_flush(struct client *client);
/* Once a second. */
void client_look_after(struct client *client, uint64_t now_ns);

/* auth.c. A new one is a stranger; on the accepting thread. */
void client_arrived(struct server *server, struct client *client);
/* It has been through TLS' handshake. */
void client_shook_hands(struct client *client);
/* It has done all that is asked of it. */
void client_known(struct client *client);
/* It has given a password, or has to again. */
void client_become(struct client *client, enum client_user user);
/* Before a password is looked at: waits if its address has tried many wrong ones. False: it is not to
 * be looked at; the error was replied. And what came of it, if it was. */
bool auth_begin_co(struct command_call *call, struct slice user, struct slice password,
                   struct guess *guess);
void auth_end(struct command_call *call, const struct guess *guess, bool right);

/* connection_commands.c. Whether it may be a client's name; if not that was replied. */
bool client_name_fits(struct command_call *call, struct slice name);

/* run.c: executes what the input holds. */
void requests_run_co(struct client *client);

/* buffers.c. Strangers have small ones, which are not pooled. */
struct input *input_take(struct server_thread *thread, bool stranger);
void input_give(struct server_thread *thread, struct input *input);
struct output *output_take(struct server_thread *thread, bool stranger);
void output_give(struct server_thread *thread, struct output *output);
/* Nothing of a secret reply is left; for an output whose replies were sent, or are not going to be. */
void output_forget(struct output *output);
struct pipeline *pipeline_take(struct server_thread *thread);
void pipeline_give(struct server_thread *thread, struct pipeline *pipeline);
void buffers_free(struct server_thread *thread);

/* incoming.c. Takes the long word that the parser stands at: into client->incoming, or lets the buffer have
 * it. False: the client is to be closed. */
bool incoming_receive_co(struct client *client);
/* Frees what a request's long word has in the pool, unless a key has it. */
void incoming_end_co(struct client *client);
/* Waits until the client's socket may be ready, or client_wake is called, or it has stood still since then for
 * too long: then, and when it is closed, false, perhaps at the next call. On the client's task. */
bool client_wait_co(struct client *client, uint32_t events, uint64_t since_ns);

#endif
