/*
 * memory_metrics.h - GET /metrics of a memory node, on a thread of its own: nothing a scraper does
 * delays a client.
 */
#ifndef CMD_MEMORY_METRICS_H
#define CMD_MEMORY_METRICS_H

#include "pool/memnode.h"

struct memory_metrics;

/* How the fabric says what it has done for others. */
typedef void (*memory_served_fn)(const struct fabric *fabric, struct fabric_served *out);

/* `executes`: this process executes the lists of others itself. Errors as one line for a person. Not
 * from a task. */
PANDO_MUST_CHECK enum pando_status memory_metrics_start(const char *listen, struct fabric *fabric,
                                                        memory_served_fn served, bool executes,
                                                        struct memnode *memnode,
                                                        struct memory_metrics **out, char *error,
                                                        size_t error_bytes);
const char *memory_metrics_address(const struct memory_metrics *metrics);
void memory_metrics_stop(struct memory_metrics *metrics);

#endif
