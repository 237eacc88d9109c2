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
#include "store/store.h"

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

/* What is logged, how and where: CMD_LOG_OPTIONS of the settings. */
struct cmd_log {
    const char *level;
    const char *format; /* NULL: text */
    const char *file;   /* NULL: stderr */
};

/* Sets up the log; false, with an error said, if that cannot be. */
bool cmd_log_begin(const char *command, const struct cmd_log *log);

/* "0.01", of seconds; an hour at the most. */
bool cmd_parse_seconds(const char *text, uint64_t *out_ns);

/* Text that others chose, such as a table's name, as a terminal may have it: control characters, and what is no
 * UTF-8, become \xNN. Cut to fit `out`, which is returned; CMD_NAME_BYTES do for a table's name. */
enum { CMD_NAME_BYTES = 4 * STORE_NAME_MAX };
const char *cmd_printable(const char *text, char *out, size_t out_bytes);

/* Writes a finished JSON text to a file, or to stdout for "-"; false with an error said. What is there must be a
 * regular file, which it replaces: no link is followed, and no device written to. */
bool cmd_write_json(const char *command, struct json *json, const char *path);

/* ---- pools ----------------------------------------------------------------------------------- */

/* Options of every command that uses a pool: a member `pool` of the settings. */
struct cmd_pool {
    const char *uri;
    const char *secret_file, *verbs;
    const char *tls_ca, *tls_cert, *tls_key;
    const char *peer_listen, *peer_advertise;
    bool require_tls, insecure_tcp;
    struct cmd_log log;
    bool no_member;  /* not an option: the command does not join the pool */
    uint64_t window; /* CMD_WINDOW_OPTION */
};

#define CMD_LOG_OPTIONS(settings, member, default_level)                                           \
    {.name = "log-level",                                                                          \
     .metavar = "LEVEL",                                                                           \
     .help = "What is logged: error, warn, info or debug.",                                        \
     .default_text = default_level,                                                                \
     CONFIG_TEXT_INTO(settings, member.level)},                                                    \
        {.name = "log-format",                                                                     \
         .metavar = "FORMAT",                                                                      \
         .help = "How: text (logfmt) or json, an object a line.",                                  \
         .default_text = "text",                                                                   \
         CONFIG_TEXT_INTO(settings, member.format)},                                               \
    {                                                                                              \
        .name = "log-file", .metavar = "FILE",                                                     \
        .help = "Where: at the end of this file instead of stderr. `pando serve` and `pando "      \
                "memory` open it again at SIGHUP.",                                                \
        CONFIG_TEXT_INTO(settings, member.file)                                                    \
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
         .help = "tcp, verbs: the memory nodes have certificates, signed by this authority "       \
                 "(PEM).",                                                                         \
         CONFIG_TEXT_INTO(settings, pool.tls_ca)},                                                 \
        {.name = "tls-cert",                                                                       \
         .metavar = "FILE",                                                                        \
         .help = "tcp, verbs: this client's own certificate, where memory nodes ask for one "      \
                 "(PEM).",                                                                         \
         CONFIG_TEXT_INTO(settings, pool.tls_cert)},                                               \
        {.name = "tls-key",                                                                        \
         .metavar = "FILE",                                                                        \
         .help = "tcp, verbs: its private key (PEM).",                                             \
         CONFIG_TEXT_INTO(settings, pool.tls_key)},                                                \
        {.name = "require-tls",                                                                    \
         .help = "tcp, verbs: TLS on loopback, too; elsewhere it is used in any case.",            \
         CONFIG_BOOL_INTO(settings, pool.require_tls)},                                            \
        {.name = "insecure-tcp",                                                                   \
         .help = "tcp, verbs: plain TCP also off loopback. Who is on the path can then read and "  \
                 "write all of the pool. The memory nodes need this option, too.",                 \
         CONFIG_BOOL_INTO(settings, pool.insecure_tcp)},                                           \
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
        CMD_LOG_OPTIONS(settings, pool.log, "error")

/* Of commands that serve for long. */
#define CMD_WINDOW_OPTION(settings)                                                                \
    {                                                                                              \
        .name = "window", .metavar = "SIZE",                                                       \
        .help = "Memory of this process (of every compute node, if simulated) that the other "     \
                "members of the pool reach directly, for engines that keep something there; it "   \
                "is taken at start. 0: none but what being called needs.",                         \
        .default_text = "0", CONFIG_SIZE_INTO(settings, pool.window)                               \
    }

/* Opens the pool of the options; NULL with an error said. */
struct env *cmd_pool_open(const char *command, const struct cmd_pool *pool, int *out_exit);

/* ---- what the machine gives ------------------------------------------------------------------ */

/* Raises the limit of open files to `wanted`, or as far as it may be; returns what it is then. */
uint64_t cmd_files(uint64_t wanted);

#endif
