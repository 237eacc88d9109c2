/*
 * links.c - lists of CASes, one being filled for every memory node.
 */
#include "tree/sherman/links.h"

#include <stdlib.h>
#include <string.h>

enum { CASES_PER_LIST = 32 };

struct batch {
    uint32_t count;
    struct fabric_op ops[CASES_PER_LIST];
};

bool links_add(struct links *links, fabric_address address, uint8_t *bytes)
{
    if (links->count == links->capacity) {
        size_t capacity = links->capacity == 0 ? 1024 : 2 * links->capacity;
        struct link *grown = realloc(links->links, capacity * sizeof(*grown));
        if (grown == NULL)
            return false;
        links->links = grown;
        links->capacity = capacity;
    }
    struct link *link = &links->links[links->count++];
    node_unlink(bytes);
    link->address = address;
    memcpy(&link->unlinked, bytes, sizeof(link->unlinked));
    return true;
}

static enum pando_status send_co(struct sherman *self, uint16_t node, struct batch *batch)
{
    enum pando_status status =
        batch->count == 0 ? PANDO_OK
                          : pool_submit_co(self->base.session, node, batch->ops, batch->count);
    batch->count = 0;
    return status;
}

void links_link_co(struct sherman *self, const struct links *links)
{
    uint16_t nodes = pool_nodes(self->table->pool);
    struct batch *batches = calloc(nodes, sizeof(*batches));
    enum pando_status status = batches == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    for (size_t i = 0; i < links->count && status == PANDO_OK; i++) {
        const struct link *link = &links->links[i];
        uint16_t node = fabric_address_node(link->address);
        struct batch *batch = &batches[node];
        batch->ops[batch->count++] = fabric_cas(fabric_address_offset(link->address),
                                                link->unlinked, node_link_word(link->unlinked));
        if (batch->count == CASES_PER_LIST)
            status = send_co(self, node, batch);
    }
    for (uint16_t node = 0; node < nodes && status == PANDO_OK; node++)
        status = send_co(self, node, &batches[node]);
    free(batches);
}

void links_free(struct links *links)
{
    free(links->links);
}
