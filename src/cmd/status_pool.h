/*
 * status_pool.h - what `pando status` says about the inside of a pool: memory, members, tables.
 */
#ifndef CMD_STATUS_POOL_H
#define CMD_STATUS_POOL_H

#include <stdio.h>

#include "base/json.h"
#include "pool/pool.h"

struct pool_report {
    enum pando_status status; /* OK: the rest is there */
    char error[512];
    uint64_t id;
    struct fabric_identity self; /* the member that looks */
    unsigned nodes, member_count, table_count;
    struct pool_node_stats *stats; /* of each node */
    struct pool_window *windows;   /* of each node */
    struct pool_usage *usage;      /* of each node */
    int *lost;                     /* of each table: the node it has lost memory on, or -1 */
    uint64_t *table_bytes;         /* by the tables' numbers */
    struct pool_member *members;
    struct pool_entry *tables;
};

/* Joins the pool to look at it, and leaves. */
void pool_report_co(struct pool_report *report, struct fabric *fabric, unsigned nodes);
void pool_report_print(const struct pool_report *report, FILE *out);
void pool_report_json(const struct pool_report *report, struct json *json);
void pool_report_free(struct pool_report *report);

#endif
