/*
 * status_pool.h - what `pando status` says about the inside of a pool: memory, members, tables.
 */
#ifndef CMD_STATUS_POOL_H
#define CMD_STATUS_POOL_H

#include <stdio.h>

#include "base/json.h"
#include "pool/pool.h"

struct pool_view {
    enum pando_status status; /* OK: the rest is there */
    char error[512];
    uint64_t id;
    struct fabric_identity self; /* the member that looks */
    unsigned nodes, member_count, table_count;
    struct pool_node_stats *stats; /* of each node */
    struct pool_window *windows;   /* of each node */
    struct pool_usage *usage;      /* of each node */
    int *lost;                     /* of each table: the node it has lost memory on, or -1 */
    struct pool_member *members;
    struct pool_entry *tables;
};

/* Joins the pool to look at it, and leaves. */
void pool_view_co(struct pool_view *view, struct fabric *fabric, unsigned nodes);
void pool_view_print(const struct pool_view *view, FILE *out);
void pool_view_json(const struct pool_view *view, struct json *json);
void pool_view_free(struct pool_view *view);

#endif
