/*
 * memnode_refusal.c - what a memory node says in its own log when it refuses a client that expects
 * another window than the node has (windows.c): it has come back empty, or it is another's.
 */
#include <stddef.h>
#include <stdio.h>

#include "base/log.h"
#include "pool/memnode_int.h"

enum { TEXT_BYTES = 384 };

/* 0 where it cannot be read, too. */
static uint64_t super_word(struct memnode *memnode, size_t at)
{
    uint64_t word = 0;
    return memnode_word_read(memnode, memnode->first + at, &word) == PANDO_OK ? word : 0;
}

/* Node 0 gets its pool's id when it is formatted: that it is empty does not show. */
static void say_first(char text[TEXT_BYTES])
{
    snprintf(
        text, TEXT_BYTES,
        "refused a client that expects another window: this one is new, or another pool's. The "
        "pool that the client is of is lost unless the window that it asked for can be started "
        "again; to begin anew, start every memory node with a new --shm name");
}

static void say_other(char text[TEXT_BYTES], uint16_t node, bool empty)
{
    snprintf(
        text, TEXT_BYTES,
        "refused a client that expects another window: this one %s. What memory node %u held is "
        "lost unless the window that the client asked for can be started again; if it cannot, "
        "`pando memory --replace %u`%s: tables with data there answer CORRUPT until they are "
        "dropped",
        empty ? "is empty" : "is another pool's, or was replaced", node, node,
        empty ? "" : " with a new --shm name");
}

void memnode_refusal(void *context, const struct fabric_refusal *refusal)
{
    struct memnode *memnode = context;
    uint16_t node = memnode->super.node;
    char text[TEXT_BYTES];
    uint64_t unsaid;

    if (!log_seldom_allows(&memnode->refusal_log, refusal->at_ns, &unsaid))
        return;
    if (memnode->replace) { /* it was started to be another one */
        log_info("refused a client of the lost window that this one replaces: members join again "
                 "as soon as they learn of it",
                 log_u64("node", node), log_hex("asked", refusal->expected),
                 log_u64("member", refusal->from.member), log_u64("unsaid", unsaid));
        return;
    }
    if (node == 0)
        say_first(text);
    else
        say_other(text, node, super_word(memnode, offsetof(struct pool_superblock, pool_id)) == 0);
    log_error(text, log_u64("node", node), log_hex("asked", refusal->expected),
              log_hex("window", fabric_window_id(memnode->fabric)),
              log_u64("member", refusal->from.member), log_u64("unsaid", unsaid));
}
