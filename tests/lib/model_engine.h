/*
 * model_engine.h - an engine that is nothing but a sorted array in this process, for testing what
 * tests engines. It is correct, unless told to have one of the faults that such tests have to find.
 *
 * Its tables are shared by all compute nodes that live in this process, simulated or not; of the
 * pool it uses only as much as makes its operations fail when their client dies or is cut off.
 * Between reading and writing it lets time pass.
 *
 * `without` of struct engine_config knows "delay" (no time passes) and the faults:
 *   break-update   now and then two writers of a key do not exclude each other
 *   break-read     a get returns the value before the last
 *   break-miss     a scan leaves out a pair
 *   break-twice    a scan returns a pair twice
 *   break-order    a scan returns two pairs in the wrong order
 *   break-ghost    a scan returns a pair that was overwritten
 *   break-write    a write is acknowledged and lost
 *   break-torn     a value is half old and half new
 *   break-status   an insert of a key that is there says that it was done
 *   break-memory   memory of the pool is marked as used and forgotten
 *   break-lock     a lock of the pool is left held
 *   break-hang     an operation does not end
 */
#ifndef TESTS_LIB_MODEL_ENGINE_H
#define TESTS_LIB_MODEL_ENGINE_H

#include "engine/engine.h"

extern const struct engine_ops model_engine;

/* All faults' names, NULL at the end. */
extern const char *const model_engine_faults[];

/* Frees all tables; nobody has one open. */
void model_engine_reset(void);

/* ---- the sorted array, for those who need one to compare with ---------------------------------
 */

struct model_pair {
    struct slice key, value; /* owned */
    struct slice previous;   /* the value before; for faults */
};

/* All zero is empty. Allocation failures abort. */
struct model_map {
    struct model_pair *pairs;
    size_t count, capacity;
};

/* The index of the first key at or above. */
size_t model_map_find(const struct model_map *map, struct slice key);

/* NULL when absent. */
struct model_pair *model_map_get(const struct model_map *map, struct slice key);
void model_map_put(struct model_map *map, struct slice key, struct slice value);
bool model_map_remove(struct model_map *map, struct slice key);
void model_map_clear(struct model_map *map);

#endif
