/*
 * links.c - lists of CASes, one being filled for every bank.
 */
#include "tree/blink/links.h"

#include <stdlib.h>
#include <string.h>

enum { CASES_PER_LIST = 32 };

struct batch {
    fabric_address at; /* of one of them */
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

static enum pando_status send_co(struct blink *self, struct batch *batch)
{
    enum pando_status status =
        batch->count == 0 ? PANDO_OK
                          : pool_cas_list_co(self->session, batch->at, batch->ops, batch->count);
    batch->count = 0;
    return status;
}

void links_link_co(struct blink *self, const struct links *links)
{
    uint16_t banks = pool_banks(self->tree->pool);
    struct batch *batches = calloc(banks, sizeof(*batches));
    enum pando_status status = batches == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    for (size_t i = 0; i < links->count && status == PANDO_OK; i++) {
        const struct link *link = &links->links[i];
        struct batch *batch = &batches[pool_bank(link->address)];
        batch->at = link->address;
        batch->ops[batch->count++] = fabric_cas(fabric_address_offset(link->address),
                                                link->unlinked, node_link_word(link->unlinked));
        if (batch->count == CASES_PER_LIST)
            status = send_co(self, batch);
    }
    for (uint16_t bank = 0; bank < banks && status == PANDO_OK; bank++)
        status = send_co(self, &batches[bank]);
    free(batches);
}

void links_free(struct links *links)
{
    free(links->links);
}
