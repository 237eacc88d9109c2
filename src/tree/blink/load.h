/*
 * load.h - filling an empty tree bottom-up: leaves, which are the engine's, from left to right, then one
 * level after the other. The root pointer is swapped when all is written, so that a load that fails half-way
 * changes nothing: what it has written is given back. Until then nodes are unlinked (rule
 * unlinked-sibling): the table may have had others in the same blocks, whose addresses clients
 * still know. Then they are linked; what a death leaves unlinked is linked by whoever comes by it
 * from the root.
 */
#ifndef TREE_BLINK_LOAD_H
#define TREE_BLINK_LOAD_H

#include "tree/blink/blink.h"
#include "tree/blink/links.h"
#include "tree/row/row.h"
#include "tree/row/row_writer.h"
#include "tree/row/taken.h"

struct blink_load {
    struct blink *self;
    struct blink_scratch *scratch;
    unsigned fill; /* percent */
    struct row_writer writer;
    struct taken taken;
    struct links links;
};

/* NO_MEMORY. With blink_load_fini in any case. */
PANDO_MUST_CHECK enum pando_status blink_load_init(struct blink_load *load, struct blink *self,
                                                   unsigned fill);
void blink_load_fini(struct blink_load *load);

/* A block for a node. */
PANDO_MUST_CHECK enum pando_status blink_load_block_co(struct blink_load *load,
                                                       struct pool_block *block);

/* Sends a node that was built in row_writer_buffer_co's buffer, and adds it to its level. */
PANDO_MUST_CHECK enum pando_status blink_load_post(struct blink_load *load,
                                                   const struct node_header *header,
                                                   uint8_t *buffer, struct row *row);

/* Fills the tree with what leaves_co makes: a level of leaves. EXISTS: the tree is not empty. */
typedef enum pando_status (*blink_leaves_fn)(void *context, struct row *row);
PANDO_MUST_CHECK enum pando_status blink_load_co(struct blink_load *load, blink_leaves_fn leaves_co,
                                                 void *context);

#endif
