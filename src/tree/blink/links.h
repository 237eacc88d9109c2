/*
 * links.h - nodes that were written unlinked (rule unlinked-sibling), to be linked when their root
 * is in place.
 */
#ifndef TREE_BLINK_LINKS_H
#define TREE_BLINK_LINKS_H

#include "tree/blink/blink.h"

struct link {
    fabric_address address;
    uint64_t unlinked; /* the header word */
};

/* All zero to begin with. */
struct links {
    struct link *links;
    size_t count, capacity;
};

/* Makes a node unlinked that was built in `bytes`, and notes it. False: no memory. */
bool links_add(struct links *links, fabric_address address, uint8_t *bytes);

/* Links them all, many in a list. What fails is left to whoever comes by it. */
void links_link_co(struct blink *self, const struct links *links);
void links_free(struct links *links);

#endif
