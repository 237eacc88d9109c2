#include "cmd/engine_name.h"

#include <stdio.h>
#include <string.h>

#include "store/engines.h"

static const struct baseline {
    const char *name, *engine, *without, *with;
    bool own_keys_only;
} baselines[] = {
    {"fg+", "sherman",
     "combine,onchip,hierarchical,queue,handover,twolevel,lockread,backoff,reuse,adopt,merge", "",
     false},
    {"p-sherman", "sherman", "", "alone", true},
};

bool engine_name_find(const char *name, struct engine_name *out)
{
    *out =
        (struct engine_name){.name = name, .engine = store_engine(name), .without = "", .with = ""};
    for (size_t i = 0; i < sizeof(baselines) / sizeof(baselines[0]); i++) {
        if (strcmp(baselines[i].name, name) != 0)
            continue;
        out->engine = store_engine(baselines[i].engine);
        out->without = baselines[i].without;
        out->with = baselines[i].with;
        out->own_keys_only = baselines[i].own_keys_only;
    }
    return out->engine != NULL;
}

static bool join(const char *own, const char *more, char *out, size_t out_bytes)
{
    more = more == NULL ? "" : more;
    const char *comma = own[0] != '\0' && more[0] != '\0' ? "," : "";
    int used = snprintf(out, out_bytes, "%s%s%s", own, comma, more);
    return used >= 0 && (size_t)used < out_bytes;
}

bool engine_name_without(const struct engine_name *name, const char *more, char *out,
                         size_t out_bytes)
{
    return join(name->without, more, out, out_bytes);
}

bool engine_name_with(const struct engine_name *name, const char *more, char *out, size_t out_bytes)
{
    return join(name->with, more, out, out_bytes);
}
