/*
 * engine_name.h - engines as the commands that measure and check them name them: those there are, and
 * baselines of the papers, which are one of them with techniques switched off (or on).
 */
#ifndef CMD_ENGINE_NAME_H
#define CMD_ENGINE_NAME_H

#include "engine/engine.h"

struct engine_name {
    const char *name; /* as it was asked for */
    const struct engine_ops *engine;
    const char *without; /* what that name switches off; "" for nothing */
    const char *with;    /* what it switches on, likewise */
    bool own_keys_only;  /* right only if compute nodes write only keys of their own */
};

/* False: there is no such. */
bool engine_name_find(const char *name, struct engine_name *out);

/* What the name switches off, and more (NULL for nothing), as one list. False: it does not fit. */
bool engine_name_without(const struct engine_name *name, const char *more, char *out,
                         size_t out_bytes);

/* The same of what it switches on. */
bool engine_name_with(const struct engine_name *name, const char *more, char *out,
                      size_t out_bytes);

#endif
