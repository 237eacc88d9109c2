/*
 * broken.h - a test that is given the name of a rule of the pool runs with that rule broken, and has to
 * fail then: scripts/mutations does so.
 */
#ifndef TESTS_LIB_BROKEN_H
#define TESTS_LIB_BROKEN_H

#include <string.h>

#include "lib/check.h"
#include "pool/broken.h"

static inline void break_rule(int argc, char **argv)
{
    const struct {
        const char *name;
        bool *broken;
    } rules[] = {{"grace", &pool_broken.grace},
                 {"floor", &pool_broken.floor},
                 {"judge", &pool_broken.judge},
                 {"kept", &pool_broken.kept},
                 {"lost-locks", &pool_broken.lost_locks},
                 {"old-reads", &pool_broken.old_reads},
                 {"window-fence", &pool_broken.window_fence}};
    bool known = argc == 1;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && argc == 2; i++) {
        if (strcmp(argv[1], rules[i].name) == 0)
            *rules[i].broken = known = true;
    }
    CHECK(known);
}

#endif
