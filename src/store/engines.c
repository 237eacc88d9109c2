#include "store/engines.h"

#include <string.h>

#include "tree/dex/dex.h"
#include "tree/sherman/sherman.h"

const char store_default_engine[] = "dex";

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
