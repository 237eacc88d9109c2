/*
 * settings.h - what CONFIG SET changes while the server runs: every thread sees it at once. It ends with the
 * server, whose options are given when it starts.
 */
#ifndef SERVER_SETTINGS_H
#define SERVER_SETTINGS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/slice.h"
#include "rt/rt.h"

struct server;

struct server_settings {
    struct rt_latch latch; /* several of them change together; also over the server's password */
    _Atomic uint64_t max_clients;
    _Atomic uint64_t idle_timeout_ms; /* 0: idle clients stay */
    _Atomic int64_t slower_than_us;   /* SLOWLOG has commands that took so long; negative: none */
    _Atomic uint64_t slowlog_length;
    _Atomic uint64_t latency_ms; /* LATENCY has events that took so long; 0: none */
    atomic_int log_name;         /* of the log's level: there are two for one of them */
};

/* From the options the server was started with. */
void settings_init(struct server *server);

/* Whether it is the password of the user `default`, in a time that depends on the length of what was given
 * only. */
bool server_password_is(struct server *server, struct slice given);

#endif
