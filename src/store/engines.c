#include "store/engines.h"

#include <string.h>

#include "tree/sherman/sherman.h"

const struct engine_ops *store_engine(const char *name)
{
    return strcmp(name, sherman_engine.name) == 0 ? &sherman_engine : NULL;
}

const char *store_engine_names(void)
{
    return "sherman";
}
