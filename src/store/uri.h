/*
 * uri.h - the names of pools.
 *
 *   embedded:SIZE
 *   shm:NAME[,NAME...]                names or paths; the i-th is memory node i
 *   tcp:host:port[,host:port...]      the i-th is memory node i
 *   verbs:host:port[,host:port...]    the same, over RDMA; the ports are for setting it up
 *   sim:OPTION=VALUE[,...]            a simulated cluster; every option has a default:
 *       nic=cx5|cx5-dex|cx6  the model of the network cards and the CPUs (fabric/sim/model.c)
 *       compute=N, memory=N  how many nodes of each kind
 *       memory-threads=N     loops of each memory node, which serve calls
 *       size=SIZE            of each memory node's window
 *       seed=N               of everything random
 *       onchip=0|1           whether lock words lie in on-chip memory (1) or are as slow as host
 *                            memory
 *       embedded=0|1         with onchip=0: as slow as words inside the nodes that others read
 *       shuffle=0|1          choose among runnable tasks at random
 *       tear, spread, delay, late-cpu, race = 0 .. 1
 *                            chances that the adversary uses a freedom of the memory model
 */
#ifndef STORE_URI_H
#define STORE_URI_H

#include <stdbool.h>

#include "fabric/fabric.h"

enum {
    URI_MEMORY_MAX = 64,
    URI_COMPUTE_MAX = 256,
    URI_SIM_THREADS_MAX = 64,
    URI_SHOWN_MAX = 64, /* characters of a faulty text that an error repeats */
};

enum uri_kind { URI_EMBEDDED, URI_SHM, URI_TCP, URI_VERBS, URI_SIM };

struct uri_sim {
    char nic[8];
    uint64_t seed;
    unsigned memory_threads;
    bool onchip, embedded;
    bool shuffle;
    double tear, spread, delay, late_cpu, race;
};

struct uri {
    enum uri_kind kind;
    unsigned memory;                                  /* nodes */
    unsigned compute;                                 /* nodes in this process */
    uint64_t size_bytes;                              /* embedded and sim: of each memory node */
    char places[URI_MEMORY_MAX][FABRIC_LOCATION_MAX]; /* shm, tcp, verbs: as written */
    struct uri_sim sim;
};

/* INVALID with one line for a person that says what is wrong, with what, and gives an example.
 * `out` is set only on success. */
PANDO_MUST_CHECK enum pando_status uri_parse(const char *text, struct uri *out, char *error,
                                             size_t error_bytes);

/* "embedded", "shm", "tcp", "verbs" or "sim". */
const char *uri_kind_name(enum uri_kind kind);

#endif
