/*
 * queue.c - making, connecting and ending queue pairs, and posting to them.
 */
#include "fabric/verbs/queue.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"

enum {
    COMPLETIONS = QUEUE_LIST_REQUESTS + QUEUE_SENDS + QUEUE_RECEIVES + 8,
    RETRIES = 7,
    /* Credits make sure that there is always a receive; a peer that breaks that rule is given up
     * after this many tries of 10 ms. */
    NOT_READY_RETRIES = 6,
    NOT_READY_TIMER = 20,
    TIMEOUT_MIN = 14, /* 67 ms */
    TIMEOUT_MAX = 20, /* 4.3 s */
    HOP_LIMIT = 64,
    PSN_MASK = 0xffffff,
};

static const char NO_MEMORY_TEXT[] = "the device has no room for another connection";

/* ---- making ---------------------------------------------------------------------------------- */

static enum pando_status fail_errno(const struct lane *lane, const char *what)
{
    int code = errno;
    log_warn("RDMA connection not made", log_text("device", lane->device->name),
             log_text("what", what), log_errno("why", code));
    return code == ENOMEM ? PANDO_NO_MEMORY : PANDO_IO;
}

static enum pando_status make_pair(struct queue *queue, enum queue_role role)
{
    struct device *device = queue->lane->device;
    struct ibv_qp_init_attr attributes = {
        .send_cq = queue->completions,
        .recv_cq = queue->completions,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = QUEUE_LIST_REQUESTS + QUEUE_SENDS,
                .max_recv_wr = QUEUE_RECEIVES,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = DEVICE_INLINE},
    };
    queue->pair = ibv_create_qp(device->domain, &attributes);
    if (queue->pair == NULL)
        return fail_errno(queue->lane, NO_MEMORY_TEXT);
    atomic_fetch_add_explicit(&device->pairs_made, 1, memory_order_relaxed);
    queue->inline_max = attributes.cap.max_inline_data;

    /* Only a server's window can be reached; a client's end serves nothing but packets. */
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT,
        .port_num = device->port,
        .qp_access_flags = role == QUEUE_SERVES ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                                                      IBV_ACCESS_REMOTE_ATOMIC
                                                : 0,
    };
    if (ibv_modify_qp(queue->pair, &init,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
        return fail_errno(queue->lane, "queue pair to INIT");
    return PANDO_OK;
}

enum pando_status queue_create(struct queue *queue, struct lane *lane, enum queue_role role)
{
    struct device *device = lane->device;
    size_t bytes = (QUEUE_RECEIVES + QUEUE_SENDS) * (size_t)VERBS_PACKET_BYTES;

    *queue = (struct queue){.lane = lane, .first_psn = (uint32_t)rt_entropy() & PSN_MASK};
    list_init(&queue->link);
    list_init(&queue->hot_link);
    if (atomic_load(&device->gone))
        return PANDO_IO;
    enum pando_status status = device_memory_open(device, &queue->packets, bytes);
    if (status != PANDO_OK)
        return status;
    queue->completions = ibv_create_cq(device->context, COMPLETIONS, queue, lane->channel, 0);
    status = queue->completions == NULL ? fail_errno(lane, NO_MEMORY_TEXT) : make_pair(queue, role);
    if (status != PANDO_OK) {
        queue_destroy(queue);
        return status;
    }
    for (unsigned i = 0; i < QUEUE_RECEIVES; i++)
        queue_receive(queue, i);
    if (queue->failure == NULL)
        return PANDO_OK;
    queue_destroy(queue);
    return PANDO_IO;
}

void queue_tell(const struct queue *queue, struct verbs_end *out)
{
    const struct device *device = queue->lane->device;
    *out = (struct verbs_end){
        .number = queue->pair->qp_num,
        .first_psn = queue->first_psn,
        .lid = device->lid,
        .mtu = (uint8_t)device->mtu,
        .link = (uint8_t)device->link,
        .credits = QUEUE_CREDITS,
        .packet_bytes = VERBS_PACKET_BYTES,
        .atomics = device->atomics_in,
    };
    memcpy(out->gid, device->gid.raw, sizeof(out->gid));
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* The card waits 4.096 us << result for an answer, and asks RETRIES times again. */
static uint8_t timeout_exponent(uint64_t timeout_ns)
{
    unsigned exponent = TIMEOUT_MIN;
    while (exponent < TIMEOUT_MAX &&
           ((uint64_t)4096 << (exponent + 1)) * (RETRIES + 1) <= timeout_ns)
        exponent++;
    return (uint8_t)exponent;
}

static bool is_ipv4(const uint8_t gid[16])
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

static bool can_reach(const struct device *device, const struct verbs_end *peer)
{
    const char *why = NULL;
    if (peer->link != device->link)
        why = "one side is on InfiniBand, the other on Ethernet";
    else if (device->link == VERBS_LINK_ETHERNET && is_ipv4(peer->gid) != is_ipv4(device->gid.raw))
        why = "one side's GID is IPv4, the other's IPv6; choose with gid=INDEX";
    if (why != NULL)
        log_warn("RDMA cannot reach the peer", log_text("device", device->name),
                 log_text("why", why));
    return why == NULL;
}

static enum pando_status ready_to_receive(struct queue *queue, const struct verbs_end *peer)
{
    const struct device *device = queue->lane->device;
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = peer->mtu < device->mtu ? (enum ibv_mtu)peer->mtu : device->mtu,
        .dest_qp_num = peer->number,
        .rq_psn = peer->first_psn,
        .max_dest_rd_atomic = device->atomics_in,
        .min_rnr_timer = NOT_READY_TIMER,
        .ah_attr = {.port_num = device->port, .dlid = peer->lid},
    };
    if (device->link == VERBS_LINK_ETHERNET || peer->lid == 0) {
        attributes.ah_attr.is_global = 1;
        attributes.ah_attr.grh.sgid_index = device->gid_index;
        attributes.ah_attr.grh.hop_limit = HOP_LIMIT;
        memcpy(attributes.ah_attr.grh.dgid.raw, peer->gid, sizeof(peer->gid));
    }
    if (ibv_modify_qp(queue->pair, &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
        return fail_errno(queue->lane, "queue pair to RTR (is there a route to the peer's GID?)");
    return PANDO_OK;
}

static enum pando_status ready_to_send(struct queue *queue, const struct verbs_end *peer,
                                       uint64_t timeout_ns)
{
    const struct device *device = queue->lane->device;
    queue->atomics_out = peer->atomics < device->atomics_out ? peer->atomics : device->atomics_out;
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTS,
        .timeout = timeout_exponent(timeout_ns),
        .retry_cnt = RETRIES,
        .rnr_retry = NOT_READY_RETRIES,
        .sq_psn = queue->first_psn,
        .max_rd_atomic = queue->atomics_out,
    };
    if (ibv_modify_qp(queue->pair, &attributes,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0)
        return fail_errno(queue->lane, "queue pair to RTS");
    return PANDO_OK;
}

enum pando_status queue_connect(struct queue *queue, const struct verbs_end *peer,
                                uint64_t timeout_ns)
{
    if (!can_reach(queue->lane->device, peer))
        return PANDO_UNSUPPORTED;
    enum pando_status status = ready_to_receive(queue, peer);
    return status == PANDO_OK ? ready_to_send(queue, peer, timeout_ns) : status;
}

/* ---- ending ---------------------------------------------------------------------------------- */

void queue_destroy(struct queue *queue)
{
    if (queue->lane == NULL)
        return;
    if (queue->in_flight)
        rt_flight_add(queue->lane->loop, -1);
    list_remove(&queue->hot_link);
    list_remove(&queue->link);
    if (queue->pair != NULL)
        ibv_destroy_qp(queue->pair);
    if (queue->completions != NULL)
        ibv_destroy_cq(queue->completions);
    device_memory_close(&queue->packets);
    *queue = (struct queue){0};
    list_init(&queue->link);
    list_init(&queue->hot_link);
}

/* ---- posting --------------------------------------------------------------------------------- */

bool queue_post(struct queue *queue, struct ibv_send_wr *chain, uint32_t count)
{
    struct ibv_send_wr *bad;
    int failed = ibv_post_send(queue->pair, chain, &bad);
    if (failed == 0) {
        queue->list_requests += count;
        return true;
    }
    queue_fail(queue, failed == ENOMEM ? "the send queue is full" : "the device takes no requests");
    return false;
}

uint8_t *queue_receive_place(const struct queue *queue, unsigned place)
{
    return queue->packets.base + (size_t)place * VERBS_PACKET_BYTES;
}

uint8_t *queue_send_place(const struct queue *queue, unsigned place)
{
    return queue_receive_place(queue, QUEUE_RECEIVES + place);
}

bool queue_send(struct queue *queue, unsigned place, uint32_t bytes)
{
    struct ibv_sge piece = {.addr = (uintptr_t)queue_send_place(queue, place),
                            .length = bytes,
                            .lkey = queue->packets.region->lkey};
    struct ibv_send_wr *bad, request = {.wr_id = (uint64_t)QUEUE_ID_SEND << 32 | place,
                                        .sg_list = &piece,
                                        .num_sge = 1,
                                        .opcode = IBV_WR_SEND,
                                        .send_flags = IBV_SEND_SIGNALED};
    if (ibv_post_send(queue->pair, &request, &bad) == 0)
        return true;
    queue_fail(queue, "the device takes no packets");
    return false;
}

void queue_receive(struct queue *queue, unsigned place)
{
    struct ibv_sge piece = {.addr = (uintptr_t)queue_receive_place(queue, place),
                            .length = VERBS_PACKET_BYTES,
                            .lkey = queue->packets.region->lkey};
    struct ibv_recv_wr *bad, request = {.wr_id = (uint64_t)QUEUE_ID_RECEIVE << 32 | place,
                                        .sg_list = &piece,
                                        .num_sge = 1};
    if (ibv_post_recv(queue->pair, &request, &bad) != 0)
        queue_fail(queue, "the device takes no receives");
}

void queue_fail(struct queue *queue, const char *why)
{
    if (queue->failure != NULL)
        return;
    snprintf(queue->failure_text, sizeof(queue->failure_text), "%s", why);
    queue->failure = queue->failure_text;
    if (queue->ops != NULL)
        queue_heat(queue); /* it is reported from there */
}
