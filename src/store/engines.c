#include "store/engines.h"

#include <string.h>

#include "tree/dex/dex.h"
#include "tree/dex/memory_side.h"
#include "tree/sherman/sherman.h"

const struct engine_ops *store_default_engine(const struct pool *pool)
{
    return pool_private(pool) ? &sherman_engine : &dex_engine;
}

static const struct engine_ops *const engines[] = {&dex_engine, &sherman_engine};
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
    return "dex, sherman";
}

/* Only one engine has any, so far. */
enum pando_status store_memory_work(const struct memnode_place *place,
                                    struct fabric_request *request)
{
    return dex_memory_work(place, request);
}
