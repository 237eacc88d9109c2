/*
 * env_real.h - real processes: what the backends for shared memory and TCP have in common.
 *
 * The program starts itself again (/proc/self/exe) for a target and for a writer. A target ends
 * when its standard input does, so that none outlives the case; the first line it prints is its
 * location.
 */
#ifndef CONFORMANCE_ENV_REAL_H
#define CONFORMANCE_ENV_REAL_H

#include "conformance/env.h"

struct real_backend {
    const struct env_ops *ops;
    const char *nowhere; /* a location, of the folder if it begins with a slash */
    bool links;          /* there are links of its own that can be cut, see link.h */

    /* Opens the window in the folder; at a location, or anywhere if that is NULL. */
    enum pando_status (*open_target)(const char *folder, const char *location, struct fabric **out,
                                     char *error, size_t error_bytes);
    enum pando_status (*start_target)(struct fabric *fabric);
    enum pando_status (*open_client)(const char *folder, uint16_t node,
                                     const struct env_client *client, struct fabric **out,
                                     char *error, size_t error_bytes);
};

struct env *real_open(const struct real_backend *backend, const struct env_options *options);

/* The main function of the processes it starts. */
int real_process(const struct real_backend *backend, int argc, char **argv, fabric_handler handler);

void real_close(struct env *env);
struct fabric *real_client(struct env *env, const struct env_client *client);
void real_run(struct env *env, const struct env_task *tasks, unsigned count);
void real_place_target(struct env *env, struct fabric *client, bool right);
void real_kill_target(struct env *env);
void real_restart_target(struct env *env);
void real_hide_target(struct env *env);
void real_show_target(struct env *env);
void real_writer_start(struct env *env, struct fabric_identity identity, uint64_t offset);
void real_writer_pause_co(struct env *env);
void real_writer_resume_co(struct env *env);
void real_writer_kill_co(struct env *env);
enum env_end real_writer_end_co(struct env *env);

#define REAL_ENV_OPS                                                                               \
    .patience_ns = 15 * RT_NS_PER_S, .linger_ns = 200 * RT_NS_PER_MS, .close = real_close,         \
    .client = real_client, .run = real_run, .place_target = real_place_target,                     \
    .kill_target = real_kill_target, .restart_target = real_restart_target,                        \
    .hide_target = real_hide_target, .show_target = real_show_target,                              \
    .writer_start = real_writer_start, .writer_pause_co = real_writer_pause_co,                    \
    .writer_resume_co = real_writer_resume_co, .writer_kill_co = real_writer_kill_co,              \
    .writer_end_co = real_writer_end_co

#endif
