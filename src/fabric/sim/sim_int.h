/*
 * sim_int.h - what the files of the simulated fabric share.
 *
 * A *machine* stays: its NIC port, its window, its clock. A *process* is one life on it; after a
 * kill and a restart there is a new one, and the old one is a ghost whose operations all fail.
 */
#ifndef FABRIC_SIM_SIM_INT_H
#define FABRIC_SIM_SIM_INT_H

#include "fabric/fabric_int.h"
#include "fabric/sim/fabric_sim.h"
#include "fabric/window/window.h"

struct port {
    double tx_free, link_out_free;
    double rx_free, link_in_free;
    double *bucket_free; /* host buckets, then on-chip ones */
};

/* A WRITE that the target's CPU does not see yet, and what it sees instead. */
struct late_write {
    struct list link;
    uint64_t visible_ns;
    uint64_t offset;
    uint32_t size;
    uint64_t endpoint_id; /* through which it came */
    uint8_t old[];
};

struct machine {
    struct list link;
    uint16_t node;
    struct sim_node *clock;
    struct port port;
    struct window window;
    struct process *process; /* its present or last life */
    struct list late_writes; /* newest last */
    size_t late_count;
};

struct process {
    struct fabric base;
    struct fabric_sim *net;
    struct machine *machine;
    struct list link; /* in net->processes */
    uint32_t life;
    bool dead;
    uint64_t posted;
    uint64_t kill_at, pause_at, pause_ns;
    unsigned threads, next_thread;
    struct rt_loop **loops;
    struct list endpoints;
    fabric_sim_datagram_fn datagram_fn;
    void *datagram_context;
};

struct endpoint {
    struct fabric_endpoint base;
    struct process *source;
    struct machine *target;
    uint32_t target_life; /* the connection is with that life of it */
    struct list link;
    struct sim_event break_event;
    uint64_t id; /* never reused: names the session's lists after the endpoint is gone */
};

enum transfer_stage {
    TRANSFER_LEAVE,
    TRANSFER_ARRIVE,
    TRANSFER_STEP,
    TRANSFER_RESPOND,
    TRANSFER_HELD
};

/* One application of [from, to) of an operation at a time. */
struct step {
    double at_ns;
    uint32_t op;
    uint32_t from, to; /* bytes of a READ or WRITE */
};

enum { STEPS_PER_OP = 6 };

/* A list on its way. Belongs to the network; outlives a broken endpoint as an orphan with copies of
 * what it needs. */
struct transfer {
    struct sim_event event;
    struct list link; /* in net->transfers */
    struct fabric_sim *net;
    enum transfer_stage stage, held_stage;
    struct endpoint *endpoint; /* NULL for an orphan */
    struct fabric_list *list;  /* likewise */
    struct fabric_op *ops;
    uint32_t count;
    struct fabric_identity identity;
    uint64_t endpoint_id;
    struct machine *source, *target;
    uint32_t target_life;
    enum pando_status status;
    struct fabric_op *orphan_ops; /* own copies, WRITE bytes behind them */
    struct step *steps;
    uint32_t step_count, step_next, step_limit, step_capacity;
    uint64_t bytes_run; /* of all operations; all of them, or the list is not answered with OK */
    double request_bytes, response_bytes, extra_ns;
    bool received; /* the response has come through the poster's link */
};

struct link_cut {
    struct list link;
    uint16_t a, b;
    bool silent; /* see fabric_sim_silence */
};

struct fabric_sim {
    struct sim *sim;
    struct fabric_sim_options options;
    struct sim_nic_model model;
    struct list machines, processes, transfers, rpcs, cuts;
    struct machine *by_node[UINT16_MAX + 1];
    struct list free_transfers;
    uint64_t next_endpoint_id;
    double answers_lost;  /* see fabric_sim_lose_answers */
    uint64_t answer_lost; /* lists until the one of fabric_sim_lose_answer; 0: none */
    unsigned unheard;     /* see fabric_sim_unheard */
};

extern const struct fabric_ops sim_fabric_ops;

/* node.c */
bool sim_linked(const struct fabric_sim *net, const struct machine *a, const struct machine *b);

/* Whether who sends to the other is not told that it does not arrive. */
bool sim_silent(const struct fabric_sim *net, const struct machine *a, const struct machine *b);

/* Counts an operation of the process and makes the fault that is due at it. Returns the ns by which
 * the operation leaves late. */
uint64_t sim_process_posts(struct process *process);

/* port.c: the time at which the last byte comes to the other port, and the time at which that has
 * taken it in. */
double sim_port_send(struct fabric_sim *net, struct port *from, double now, double bytes,
                     uint32_t messages);
double sim_port_receive(struct fabric_sim *net, struct port *to, double now, double bytes,
                        uint32_t messages);
double sim_port_atomic(struct fabric_sim *net, struct port *port, double now, uint64_t offset,
                       double **bucket);
double sim_port_message(struct fabric_sim *net, struct port *port, double now);
double sim_jitter(struct fabric_sim *net);

/* endpoint.c */
enum pando_status sim_connect_co(struct fabric *fabric, uint16_t node, uint64_t window,
                                 struct fabric_endpoint **out);
void sim_disconnect_co(struct fabric_endpoint *endpoint);
enum pando_status sim_reconnect_co(struct fabric_endpoint *endpoint);
void sim_endpoint_break(struct endpoint *endpoint);
void sim_endpoint_break_later(struct endpoint *endpoint);
enum pando_status sim_renew_co(struct fabric *fabric);

/* transfer.c */
void sim_post(struct fabric_endpoint *endpoint, struct fabric_list *list);
void sim_transfer_orphan(struct transfer *transfer);
void sim_transfer_drop(struct transfer *transfer);
void sim_transfers_release(struct fabric_sim *net);  /* after a link healed */
void sim_transfers_of_dead(struct process *process); /* decides what becomes of its lists */
void sim_transfers_fence(struct machine *target, struct fabric_identity identity);
void sim_transfers_end_session(struct machine *target, uint64_t endpoint_id);
void sim_transfers_end_others(struct machine *target); /* all but its own */
void sim_transfers_destroy(struct fabric_sim *net);
void sim_transfer_respond(struct transfer *transfer, double at_ns);
bool sim_transfer_lost(const struct transfer *transfer); /* the life it was sent to is over */

/* chaos.c */
void sim_chaos_plan(struct transfer *transfer, double at_ns);
void sim_chaos_step(struct transfer *transfer);
bool sim_chaos_on(const struct fabric_sim *net);

/* late.c: what the target's CPU sees */
void sim_late_record(struct fabric_sim *net, struct machine *machine, uint64_t endpoint_id,
                     const struct fabric_op *op);
void sim_late_flush(struct machine *machine, uint64_t endpoint_id); /* 0: all of them */
enum pando_status sim_self_read(struct fabric *fabric, uint64_t offset, void *to, size_t size);
enum pando_status sim_self_write(struct fabric *fabric, uint64_t offset, const void *from,
                                 size_t size);

/* rpc.c */
enum rpc_kind { RPC_CONNECT, RPC_RECONNECT, RPC_FENCE, RPC_CALL };
enum pando_status sim_rpc_co(struct process *source, struct machine *target, enum rpc_kind kind,
                             struct fabric_identity identity, uint64_t endpoint_id,
                             uint32_t *target_life, uint64_t *window);
enum pando_status sim_call_co(struct fabric_endpoint *endpoint, uint16_t method, struct slice body,
                              void *reply, uint32_t reply_capacity, uint32_t *reply_size);
enum pando_status sim_fence_co(struct fabric_endpoint *endpoint,
                               const struct fabric_ticket *ticket);
enum pando_status sim_fence_own_co(struct fabric *fabric, struct fabric_identity dead);
void sim_rpcs_of_dead(struct process *process);
void sim_rpcs_destroy(struct fabric_sim *net);

#endif
