/*
 * usage.c - what a memory node says its memory is used for.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/pool_int.h"

enum { TRIES = 50 };

static bool sound(const struct pool_usage *usage, uint32_t size)
{
    const struct pool_usage_head *head = &usage->head;
    return size >= sizeof(*head) && head->classes <= POOL_USAGE_CLASSES &&
           head->tables <= POOL_USAGE_TABLES &&
           size == sizeof(*head) + head->classes * sizeof(struct pool_usage_class) +
                       head->tables * sizeof(struct pool_usage_table);
}

enum pando_status pool_usage_co(struct pool_session *session, uint16_t node, struct pool_usage *out)
{
    uint32_t size = 0;
    enum pando_status status = PANDO_AGAIN;
    uint8_t *reply = malloc(POOL_USAGE_BYTES_MAX);
    if (reply == NULL)
        return PANDO_NO_MEMORY;
    for (int i = 0; i < TRIES && status == PANDO_AGAIN; i++) {
        if (i > 0)
            rt_sleep_co(20 * RT_NS_PER_MS);
        status = pool_reconnect_co(session, node);
        if (status == PANDO_OK)
            status = fabric_call_co(pool_endpoint(session, node), POOL_USAGE, slice_of(NULL, 0),
                                    reply, POOL_USAGE_BYTES_MAX, &size);
    }
    *out = (struct pool_usage){0};
    if (status == PANDO_OK && size >= sizeof(out->head))
        memcpy(&out->head, reply, sizeof(out->head));
    if (status == PANDO_OK && !sound(out, size))
        status = PANDO_CORRUPT;
    if (status != PANDO_OK) {
        free(reply);
        return status;
    }
    out->bytes = reply;
    out->classes = (const struct pool_usage_class *)(reply + sizeof(out->head));
    out->tables = (const struct pool_usage_table *)(out->classes + out->head.classes);
    return PANDO_OK;
}

void pool_usage_free(struct pool_usage *usage)
{
    free(usage->bytes);
    *usage = (struct pool_usage){0};
}
