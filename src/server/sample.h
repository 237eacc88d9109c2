/*
 * sample.h - one key of a range whose size nobody knows, each about as likely as any other.
 */
#ifndef SERVER_SAMPLE_H
#define SERVER_SAMPLE_H

#include "server/keyspace.h"

struct sample {
    uint8_t key[KEYSPACE_KEY_MAX];
    size_t size;
    double keys; /* about how many there are that have not expired; 0: none was found */
};

/* Reads some thousand keys at the most. */
PANDO_MUST_CHECK enum pando_status sample_co(struct store_table *table, struct store_range range,
                                             struct sample *out);

#endif
