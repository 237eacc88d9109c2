/*
 * command.h - the commands there are, and one call of one of them.
 */
#ifndef SERVER_COMMANDS_COMMAND_H
#define SERVER_COMMANDS_COMMAND_H

#include <stdbool.h>

#include "base/slice.h"
#include "server/resp/reply.h"
#include "server/resp/resp.h"

struct client;
struct incoming;
struct server_thread;
struct command;
struct subcommand;

/* One request. The words lie in the client's input and live until the call returns. */
struct command_call {
    struct client *client;
    struct server_thread *thread;
    const struct command *command;
    const struct subcommand *subcommand; /* once it was checked; NULL: the command has none */
    unsigned number;                     /* for the statistics; once it was checked */
    struct reply *reply;
    uint8_t *base;
    const struct resp_word *words;
    size_t count;
    struct incoming *incoming; /* NULL: no word is a long one */
    bool streams;              /* the reply is the client's, and may be sent in pieces */
    bool may_wait; /* set `postponed` instead of replying to run again, alone, with `streams` */
    bool postponed;
    struct store_table *held; /* an index that it works on: closed when it has ended */
    unsigned behind;          /* how many of the same batch were before it, one after the other */
};

static inline struct slice call_word(const struct command_call *call, size_t index)
{
    return slice_of(call->base + call->words[index].offset, call->words[index].size);
}

/* Whether a word is this one, which is in lower case. */
bool call_word_is(const struct command_call *call, size_t index, const char *lower);

enum command_flags {
    COMMAND_WRITE = 1,
    COMMAND_READONLY = 2,
    COMMAND_FAST = 4,
    COMMAND_NO_AUTH = 8,
    COMMAND_ADMIN = 16,
    COMMAND_LOADING = 32,
    /* Uses one key, which is word `last_key`, and nothing of the connection: calls for different keys
     * may overlap. */
    COMMAND_POINT = 64,
    COMMAND_RANGE = 128,     /* the words up to last_key name a table and a key */
    COMMAND_CONTAINER = 256, /* word 1 names one of its subcommands, which has flags of its own */
    COMMAND_AT_ONCE = 512,   /* runs inside of MULTI, too */
    COMMAND_SECRET = 1024,   /* words may be passwords: no buffer keeps them */
};

struct command {
    const char *name; /* lower case */
    int arity;        /* words with the name; negative: at least that many */
    unsigned flags;
    int first_key, last_key, key_step;
    const char *group, *since, *summary;
    void (*run_co)(struct command_call *call);
};

/* In the order of their numbers, 0 .. command_count-1. */
extern const struct command command_list[];
extern const unsigned command_count;

/* By name, in any case; NULL: unknown. */
const struct command *command_find(struct slice name);

/* Commands and subcommands as they are counted: the numbers of command_list first, then those of "config|get"
 * and the like. Whether a number is the command's or one of its subcommands'. */
unsigned command_numbers(void);
const char *command_number_name(unsigned number);
bool command_number_is(unsigned number, const struct command *command);

/* Fills what command_find uses. Before any thread starts; more often does no harm. */
void command_prepare(void);

/* Checks the request and runs it, and counts. */
void command_run_co(struct command_call *call);

/* One of CLIENT, CONFIG and other containers; arity as in struct command, both words counted. */
struct subcommand {
    const char *name; /* lower case; NULL ends a list */
    int arity;
    unsigned flags;
    void (*run_co)(struct command_call *call);
};

/* The subcommands of a container. */
extern const struct subcommand client_subcommands[], command_subcommands[], config_subcommands[],
    latency_subcommands[], memory_subcommands[], slowlog_subcommands[];

/* Replies what HELP says: a head and an end are added. */
void reply_help(struct command_call *call, const char *const *lines, size_t count);

/* ---- what the files with commands offer the table -------------------------------------------- */

#define COMMAND_FUNCTIONS(X)                                                                       \
    X(get)                                                                                         \
    X(set)                                                                                         \
    X(setnx)                                                                                       \
    X(setex)                                                                                       \
    X(psetex)                                                                                      \
    X(getdel)                                                                                      \
    X(getex)                                                                                       \
    X(getset)                                                                                      \
    X(mget)                                                                                        \
    X(mset)                                                                                        \
    X(msetnx)                                                                                      \
    X(append)                                                                                      \
    X(strlen)                                                                                      \
    X(getrange)                                                                                    \
    X(setrange)                                                                                    \
    X(incr)                                                                                        \
    X(decr)                                                                                        \
    X(incrby)                                                                                      \
    X(decrby)                                                                                      \
    X(incrbyfloat)                                                                                 \
    X(del)                                                                                         \
    X(exists)                                                                                      \
    X(type)                                                                                        \
    X(rename)                                                                                      \
    X(renamenx)                                                                                    \
    X(copy)                                                                                        \
    X(expire)                                                                                      \
    X(pexpire)                                                                                     \
    X(expireat)                                                                                    \
    X(pexpireat)                                                                                   \
    X(ttl)                                                                                         \
    X(pttl)                                                                                        \
    X(expiretime)                                                                                  \
    X(pexpiretime)                                                                                 \
    X(persist)                                                                                     \
    X(randomkey)                                                                                   \
    X(keys)                                                                                        \
    X(scan)                                                                                        \
    X(dbsize)                                                                                      \
    X(flushdb)                                                                                     \
    X(flushall)                                                                                    \
    X(ri_create)                                                                                   \
    X(ri_drop)                                                                                     \
    X(ri_list)                                                                                     \
    X(ri_set)                                                                                      \
    X(ri_get)                                                                                      \
    X(ri_del)                                                                                      \
    X(ri_exists)                                                                                   \
    X(ri_mget)                                                                                     \
    X(ri_mset)                                                                                     \
    X(ri_scan)                                                                                     \
    X(ri_range)                                                                                    \
    X(ri_prefix)                                                                                   \
    X(ri_delprefix)                                                                                \
    X(ri_len)                                                                                      \
    X(ping)                                                                                        \
    X(echo)                                                                                        \
    X(hello)                                                                                       \
    X(auth)                                                                                        \
    X(quit)                                                                                        \
    X(reset)                                                                                       \
    X(select)                                                                                      \
    X(container)                                                                                   \
    X(command)                                                                                     \
    X(info)                                                                                        \
    X(time)                                                                                        \
    X(multi)                                                                                       \
    X(exec)                                                                                        \
    X(discard)                                                                                     \
    X(watch)                                                                                       \
    X(unwatch)

#define COMMAND_DECLARE(name) void command_##name##_co(struct command_call *call);
COMMAND_FUNCTIONS(COMMAND_DECLARE)

#endif
