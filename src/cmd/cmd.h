/*
 * cmd.h - the commands of the `pando` program, and what they share: options, errors, pools.
 *
 * A command gets its own part of the command line (argv[0] is its name) and returns the exit
 * status.
 */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include <stdio.h>

#include "base/config.h"
#include "base/histogram.h"
#include "base/json.h"
#include "base/parse.h"
#include "store/env.h"

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct cmd {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

int cmd_memory(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_shell(int argc, char **argv);
int cmd_fabric_bench(int argc, char **argv);
int cmd_serve(int argc, char **argv);

/* How the program was called: for what people are told to type. */
extern const char *cmd_program;

/* ---- options and errors ---------------------------------------------------------------------- */

/* Reads the options. False: there is nothing more to do (help was printed, or an error), and the
 * command ends with *out_exit. config_fini is due in either case. */
bool cmd_load(struct config *config, const struct config_command *command, int argc, char **argv,
              void *settings, int *out_exit);

/* "pando COMMAND: ..." on stderr. */
__attribute__((format(printf, 2, 3))) void cmd_error(const char *command, const char *format, ...);

/* The same for something wrong with the command line; returns EXIT_USAGE. */
__attribute__((format(printf, 2, 3))) int cmd_usage(const char *command, const char *format, ...);

/* Sets the log's level; false, with an error said, if there is no such level. */
bool cmd_log_level(const char *command, const char *level);

/* Writes a finished JSON text to a file, or to stdout for "-"; false with an error said. */
bool cmd_write_json(const char *command, struct json *json, const char *path);

/* ---- pools ----------------------------------------------------------------------------------- */

/* Options of every command that uses a pool: a member `pool` of the settings. */
struct cmd_pool {
    const char *uri;
    const char *secret_file, *verbs;
    const char *tls_ca, *tls_cert, *tls_key;
    const char *peer_listen, *peer_advertise;
    const char *log_level;
    bool no_member; /* not an option: the command does not join the pool */
};

#define CMD_LOG_LEVEL_OPTION(settings, member, level)                                              \
    {                                                                                              \
        .name = "log-level", .metavar = "LEVEL",                                                   \
        .help = "What is logged on stderr: error, warn, info or debug.", .default_text = level,    \
        CONFIG_TEXT_INTO(settings, member)                                                         \
    }

#define CMD_METRICS_OPTION(settings, member)                                                       \
    {                                                                                              \
        .name = "metrics", .metavar = "HOST:PORT",                                                 \
        .help = "Answer GET /metrics for Prometheus here, for example 127.0.0.1:9380; a port "     \
                "alone is one of 127.0.0.1.",                                                      \
        CONFIG_TEXT_INTO(settings, member)                                                         \
    }

#define CMD_POOL_OPTIONS(settings) CMD_POOL_OPTIONS_IF(settings, true)

/* The same, for a command that may also do without a pool. */
#define CMD_POOL_OPTIONS_IF(settings, needed)                                                      \
    {.name = "pool",                                                                               \
     .metavar = "URI",                                                                             \
     .help = "The pool: embedded:SIZE, shm:NAME[,NAME...], tcp:HOST:PORT[,HOST:PORT...], "         \
             "verbs:HOST:PORT[,HOST:PORT...] or sim:nic=cx5,compute=8,memory=8,seed=1.",           \
     .required = needed,                                                                           \
     CONFIG_TEXT_INTO(settings, pool.uri)},                                                        \
        {.name = "secret-file",                                                                    \
         .metavar = "FILE",                                                                        \
         .help = "tcp, verbs: the secret that the memory nodes have too; readable by its owner "   \
                 "only.",                                                                          \
         CONFIG_TEXT_INTO(settings, pool.secret_file)},                                            \
        {.name = "verbs",                                                                          \
         .metavar = "DEVICE",                                                                      \
         .help = "verbs: the RDMA device, NAME, NAME/PORT or either with ,gid=INDEX; the first "   \
                 "active one if this is not given.",                                               \
         CONFIG_TEXT_INTO(settings, pool.verbs)},                                                  \
        {.name = "tls-ca",                                                                         \
         .metavar = "FILE",                                                                        \
         .help = "tcp: use TLS 1.3 and trust certificates that this authority signed (PEM).",      \
         CONFIG_TEXT_INTO(settings, pool.tls_ca)},                                                 \
        {.name = "tls-cert",                                                                       \
         .metavar = "FILE",                                                                        \
         .help = "tcp: this client's own certificate, where memory nodes ask for one, and for "    \
                 "being called by other members (PEM).",                                           \
         CONFIG_TEXT_INTO(settings, pool.tls_cert)},                                               \
        {.name = "tls-key",                                                                        \
         .metavar = "FILE",                                                                        \
         .help = "tcp: its private key (PEM).",                                                    \
         CONFIG_TEXT_INTO(settings, pool.tls_key)},                                                \
        {.name = "peer-listen",                                                                    \
         .metavar = "HOST:PORT",                                                                   \
         .help = "tcp, verbs: where other members of the pool call this one, for example "         \
                 "10.0.0.2:7100; or none. If this is not given: any port of the address that "     \
                 "leads to the first memory node.",                                                \
         CONFIG_TEXT_INTO(settings, pool.peer_listen)},                                            \
        {.name = "peer-advertise",                                                                 \
         .metavar = "HOST:PORT",                                                                   \
         .help = "tcp, verbs: what they are told, if that is not the address it listens on.",      \
         CONFIG_TEXT_INTO(settings, pool.peer_advertise)},                                         \
        CMD_LOG_LEVEL_OPTION(settings, pool.log_level, "error")

/* Opens the pool of the options; NULL with an error said. */
struct env *cmd_pool_open(const char *command, const struct cmd_pool *pool, int *out_exit);

/* One line: why a memory node cannot be reached, and what to do. */
void cmd_explain_connect(const struct env *env, unsigned node, enum pando_status status, char *out,
                         size_t out_bytes);

/* How much of a node's memory can be reached, found by reading at its edges. */
struct cmd_window {
    uint64_t first;        /* first byte of the users */
    uint64_t host_bytes;   /* end of the ordinary memory */
    uint64_t device_bytes; /* on-chip memory, from FABRIC_DEVICE on */
};
PANDO_MUST_CHECK enum pando_status cmd_window_co(struct fabric_endpoint *endpoint,
                                                 struct cmd_window *out);

/* ---- the clock on the wall ------------------------------------------------------------------- */

uint64_t cmd_clock_ns(void);

#endif
