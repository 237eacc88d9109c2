/*
 * engine_side.h - an engine on an embedded pool, used by one task of one loop.
 */
#ifndef VS_LMDB_ENGINE_SIDE_H
#define VS_LMDB_ENGINE_SIDE_H

#include "store/env.h"
#include "work.h"

struct engine_ops;
struct engine_side;

struct engine_side_options {
    const struct engine_ops *engine;
    const char *without, *with; /* as in struct engine_config */
    uint64_t cache_bytes;
    unsigned fill;  /* per cent of a node */
    unsigned batch; /* lookups of one engine_batch_co */
};

/* Joins the pool and makes an empty table. False with *error set, as one line. */
bool engine_side_open_co(const struct env_place *place, const struct engine_side_options *options,
                         struct engine_side **out, char *error, size_t error_bytes);
void engine_side_close_co(struct engine_side *side);

/* `loaded` is called now and then with the number of pairs. */
bool engine_side_load_co(struct engine_side *side, uint64_t records,
                         void (*loaded)(void *context, uint64_t pairs), void *context, char *error,
                         size_t error_bytes);

void engine_side_run_co(struct engine_side *side, const struct work_round *round,
                        struct work_result *result);

/* Of all pairs: how many, and as the sum their fingerprint. */
void engine_side_census_co(struct engine_side *side, struct work_result *result);

#endif
