/*
 * fabric_sim.h - the fabric of a simulated world: a model of NICs and links in virtual time, and an
 * adversary that uses every freedom fabric.h leaves, and none that it does not.
 *
 * With all chances of `struct fabric_sim_chaos` zero it is a performance model: lists are executed
 * at one point in time each. With chances it tears, spreads and reorders as rules 1 and 2 allow.
 * Everything random comes from the world's seed.
 */
#ifndef FABRIC_SIM_FABRIC_SIM_H
#define FABRIC_SIM_FABRIC_SIM_H

#include "fabric/fabric.h"
#include "fabric/sim/nic.h"
#include "rt/sim/sim.h"

struct fabric_sim;

/* Chances are per transfer, from 0 to 1. */
struct fabric_sim_chaos {
    double tear;          /* a transfer is applied in pieces, at different times, in any order */
    double spread;        /* operations of a list that are not ordered move apart */
    uint64_t spread_ns;   /* how far pieces and operations may lie apart */
    double delay;         /* a list is late */
    uint64_t delay_ns;    /* by up to this much */
    double late_cpu;      /* a WRITE is seen late by the target's own CPU */
    uint64_t late_cpu_ns; /* by up to this much */
    double datagram_loss;
    double datagram_duplicate;
    /* Test only, to show that a checker notices: */
    bool no_fencing; /* lists of the fenced get through */
    bool no_windows; /* who connects again takes any window for the one that it knew */
};

struct fabric_sim_options {
    uint64_t seed;
    const struct sim_nic_model *model; /* costs of CPUs are taken from it too */
    struct fabric_sim_chaos chaos;
    bool shuffle;             /* see rt/sim: random choice among runnable tasks */
    double race_probability;  /* see rt/sim */
    double stall_probability; /* likewise */
    uint64_t stall_ns;
    uint64_t break_ns; /* until an unreachable peer breaks an endpoint; 0 for 100 us */
    uint64_t call_ns;  /* until a call or a connection that nobody answers has failed; 0 for 2 s */
};

/* The network and its world; NULL when memory is gone. */
struct fabric_sim *fabric_sim_create(const struct fabric_sim_options *options);

/* With all its nodes; their fabrics are not closed one by one. Tasks should have ended. */
void fabric_sim_destroy(struct fabric_sim *net);

struct sim *fabric_sim_world(struct fabric_sim *net);

struct fabric_sim_node_options {
    uint16_t node;
    enum fabric_target target;
    uint64_t host_bytes;
    uint64_t device_bytes; /* at most the model's; 0 for none */
    unsigned threads;      /* loops; calls to the node are served on them in turn */
};

/* A machine with one process on it. All nodes know each other; fabric_add_peer does nothing. */
PANDO_MUST_CHECK enum pando_status fabric_sim_add(struct fabric_sim *net,
                                                  const struct fabric_sim_node_options *options,
                                                  struct fabric **out);

struct rt_loop *fabric_sim_loop(struct fabric *fabric, unsigned thread);
unsigned fabric_sim_threads(struct fabric *fabric);
struct sim_node *fabric_sim_machine(struct fabric *fabric);

/* ---- faults, as data ---------------------------------------------------------------------------
 */

/* The process dies now. Its lists in flight are applied, cut short or lost; peers' endpoints to it
 * break. What of its code still runs has no effect and sees every operation fail. */
void fabric_sim_kill(struct fabric *fabric);
bool fabric_sim_dead(const struct fabric *fabric);

/* Operations (lists, calls, fences) this process has posted. */
uint64_t fabric_sim_posted(const struct fabric *fabric);

/* The same at its k-th operation from the beginning, counted from 1: that one may be sent, cut
 * short or lost. */
void fabric_sim_kill_at(struct fabric *fabric, uint64_t k);

/* At its k-th operation the whole machine stops for that long; the list then being posted may leave
 * late, up to the end of the pause. */
void fabric_sim_pause_at(struct fabric *fabric, uint64_t k, uint64_t duration_ns);
void fabric_sim_pause(struct fabric *fabric, uint64_t duration_ns);

/* A new process on the machine of a dead one, under the same node id. With keep, its window still
 * has its contents (a named mapping); without, it is empty. */
PANDO_MUST_CHECK enum pando_status fabric_sim_restart(struct fabric *dead, bool keep,
                                                      struct fabric **out);

/* The on-chip part of a process that has just been restarted with its window kept is lost, as a card's
 * own memory is. Before it serves anybody. */
void fabric_sim_lose_device(struct fabric *restarted);

/* Cuts or heals the link between two nodes. Messages wait; endpoints break after break_ns. */
void fabric_sim_cut(struct fabric_sim *net, uint16_t a, uint16_t b);
void fabric_sim_heal(struct fabric_sim *net, uint16_t a, uint16_t b);

/* The same, but what is sent is lost without a word, as by a firewall that drops packets: connections and calls
 * fail only after call_ns, with TIMEOUT, and an endpoint breaks with its call. */
void fabric_sim_silence(struct fabric_sim *net, uint16_t a, uint16_t b);

/* How many connections and calls wait now for an answer that was lost that way. */
unsigned fabric_sim_unheard(const struct fabric_sim *net);

/* Flips bits of a byte in the window of a node, as memory does that fails. */
void fabric_sim_flip(struct fabric *fabric, uint64_t offset, uint8_t bits);

/* From now on a list's endpoint breaks with this chance when the list has been executed, instead of the
 * answer coming back: its outcome is unknown to who sent it. */
void fabric_sim_lose_answers(struct fabric_sim *net, double chance);

/* The same for one list, the one that is executed as number `number` from now on; 0: none. */
void fabric_sim_lose_answer(struct fabric_sim *net, uint64_t number);

/* ---- datagrams ------------------------------------------------------------------------------- */

enum { FABRIC_SIM_DATAGRAM_MAX = 4096 };

/* Runs on a loop of the receiving node, not on a task. */
typedef void (*fabric_sim_datagram_fn)(void *context, uint16_t from, struct slice bytes);
void fabric_sim_on_datagram(struct fabric *fabric, fabric_sim_datagram_fn fn, void *context);

/* Unreliable: may be lost, doubled or overtaken. TOO_LARGE over the limit. */
PANDO_MUST_CHECK enum pando_status fabric_sim_datagram(struct fabric *fabric, uint16_t to,
                                                       struct slice bytes);

#endif
