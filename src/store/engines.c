#include "store/engines.h"

#include <string.h>

#include "tree/dex/dex.h"
#include "tree/sherman/sherman.h"

const struct engine_ops *store_default_engine(const struct pool *pool)
{
    return pool_private(pool) ? &sherman_engine : &dex_engine;
}

#define ENTRY(name) &name##_engine,
static const struct engine_ops *const engines[] = {STORE_ENGINES(ENTRY, )};
enum { ENGINES = sizeof(engines) / sizeof(engines[0]) };

const struct engine_ops *store_engine(const char *name)
{
    for (int i = 0; i < ENGINES; i++) {
        if (strcmp(name, engines[i]->name) == 0)
            return engines[i];
    }
    return NULL;
}

const char *store_engine_names(void)
{
    return STORE_ENGINE_NAMES(", ");
}

/* A request begins with its engine's number. */
enum pando_status store_memory_pushdown(const struct memnode_place *place,
                                        struct fabric_request *request)
{
    uint16_t number;
    if (request->body.size < sizeof(number))
        return PANDO_INVALID;
    memcpy(&number, request->body.data, sizeof(number));
    for (int i = 0; i < ENGINES; i++) {
        const struct engine_pushdown *pushdown = engines[i]->pushdown;
        if (pushdown != NULL && pushdown->number == number)
            return pushdown->run(place, request);
    }
    return PANDO_INVALID;
}

const struct engine_block_kind *store_block_kind(uint8_t kind)
{
    for (int i = 0; i < ENGINES; i++) {
        for (size_t k = 0; k < engines[i]->kind_count; k++) {
            if (engines[i]->kinds[k].kind == kind)
                return &engines[i]->kinds[k];
        }
    }
    return NULL;
}

uint32_t store_level_at(uint8_t kind)
{
    const struct engine_block_kind *found = store_block_kind(kind);
    return found != NULL ? found->level_at : 0;
}
