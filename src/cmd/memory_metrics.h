/*
 * memory_metrics.h - GET /metrics of a memory node, on a thread of its own: nothing a scraper does
 * delays a client.
 */
#ifndef CMD_MEMORY_METRICS_H
#define CMD_MEMORY_METRICS_H

#include "pool/memnode.h"

struct memory_metrics;

/* What the node's fabric has done for others; NULL where its card does it. */
typedef void (*memory_served_fn)(const struct fabric *fabric, struct fabric_served *out);

/* Errors as one line for a person. Not from a task. */
PANDO_MUST_CHECK enum pando_status memory_metrics_start(const char *listen, struct fabric *fabric,
                                                        memory_served_fn served,
                                                        struct memnode *memnode,
                                                        struct memory_metrics **out, char *error,
                                                        size_t error_bytes);
const char *memory_metrics_address(const struct memory_metrics *metrics);
void memory_metrics_stop(struct memory_metrics *metrics);

#endif
