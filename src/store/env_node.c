/*
 * env_node.c - a memory node as it is seen from outside: why it cannot be reached, and how much of it
 * there is.
 */
#include <stdio.h>
#include <string.h>

#include "store/env.h"

void env_explain_connect(const struct env *env, unsigned node, enum pando_status status, char *out,
                         size_t out_bytes)
{
    const char *place = env_memory_place(env, node);
    bool shm = strcmp(env_kind(env), "shm") == 0;
    const char *advice = NULL;
    char trouble[256];

    switch (status) {
    case PANDO_NOT_FOUND:
    case PANDO_BROKEN:
    case PANDO_TIMEOUT:
        advice = shm ? "no memory node answers there; start one with `pando memory --shm`"
                     : "no memory node answers there; start one with `pando memory --listen`";
        break;
    case PANDO_DENIED:
        advice =
            shm ? "no permission; run as the user who runs the memory node"
                : "refused; give the memory node's own secret with --secret-file, and the same "
                  "--tls options; its log says why";
        break;
    case PANDO_INVALID:
        advice = "another node than this answers there; list the memory nodes in the order of "
                 "their --node";
        break;
    case PANDO_IO:
    case PANDO_UNSUPPORTED:
        advice = strcmp(env_kind(env), "verbs") == 0
                     ? "the two RDMA devices cannot reach each other, or one is gone; choose with "
                       "--verbs, and see the log (--log-level warn) of both sides"
                     : pando_status_text(status);
        break;
    case PANDO_VERSION:
        advice = "it speaks another version; use programs of one release";
        break;
    default:
        advice = pando_status_text(status);
    }
    if (env_fabric(env) != NULL) {
        fabric_connect_error(env_fabric(env), (uint16_t)node, trouble, sizeof(trouble));
        if (trouble[0] != '\0')
            advice = trouble;
    }
    snprintf(out, out_bytes, "memory node %u at %s:%s: %s", node, env_kind(env), place, advice);
}

/* ---- windows --------------------------------------------------------------------------------- */

static enum pando_status reaches_co(struct fabric_endpoint *endpoint, uint64_t offset, bool *out)
{
    uint8_t byte;
    struct fabric_op op = fabric_read(offset, &byte, 1);
    enum pando_status status = fabric_submit_co(endpoint, &op, 1);
    if (status != PANDO_OK && status != PANDO_RANGE)
        return status;
    *out = status == PANDO_OK;
    return PANDO_OK;
}

/* The end of what can be reached from `low`, which can be, below `high`, which cannot. */
static enum pando_status find_end_co(struct fabric_endpoint *endpoint, uint64_t low, uint64_t high,
                                     uint64_t *out)
{
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        bool reached;
        enum pando_status status = reaches_co(endpoint, middle, &reached);
        if (status != PANDO_OK)
            return status;
        if (reached)
            low = middle;
        else
            high = middle;
    }
    *out = high;
    return PANDO_OK;
}

enum pando_status env_window_co(struct fabric_endpoint *endpoint, struct env_window *out)
{
    struct env_window window = {.first = 4096};
    bool reached = false;
    enum pando_status status = PANDO_OK;

    /* Windows begin at a small power of two. */
    while (status == PANDO_OK && !reached && window.first < FABRIC_DEVICE / 2) {
        window.first *= 2;
        status = reaches_co(endpoint, window.first, &reached);
    }
    if (status == PANDO_OK && !reached)
        status = PANDO_RANGE;
    if (status == PANDO_OK)
        status = find_end_co(endpoint, window.first, FABRIC_DEVICE, &window.host_bytes);
    if (status == PANDO_OK)
        status = reaches_co(endpoint, FABRIC_DEVICE, &reached);
    if (status == PANDO_OK && reached) {
        status = find_end_co(endpoint, FABRIC_DEVICE, 2 * FABRIC_DEVICE, &window.device_bytes);
        window.device_bytes -= FABRIC_DEVICE;
    }
    if (status == PANDO_OK)
        *out = window;
    return status;
}
