/* Which locks a partial recovery keeps: those that are named, all of a node, and all when in doubt. */
#include "pool/kept.h"

#include <stdlib.h>

#include "lib/check.h"

static struct intent intent_of(fabric_address home, fabric_address other)
{
    struct intent intent = {.home.address = home};
    if (other != 0)
        intent.locks[intent.lock_count++].address = other;
    return intent;
}

static fabric_address lock_at(uint16_t node, uint64_t index)
{
    return fabric_address_make(node, FABRIC_DEVICE + 8 * index);
}

int main(void)
{
    struct kept_locks *kept = calloc(1, sizeof(*kept));
    CHECK(kept != NULL);
    CHECK(!kept_has(kept, lock_at(0, 1)));

    struct intent intent = intent_of(lock_at(0, 1), lock_at(1, 2));
    kept_intent(kept, &intent);
    kept_intent(kept, &intent);
    CHECK_EQ_U64(kept->count, 2);
    CHECK(kept_has(kept, lock_at(0, 1)) && kept_has(kept, lock_at(1, 2)));
    CHECK(!kept_has(kept, lock_at(0, 2)) && !kept_has(kept, lock_at(1, 1)));

    /* One without a home lock. */
    intent = intent_of(0, 0);
    kept_intent(kept, &intent);
    CHECK_EQ_U64(kept->count, 2);

    kept_node(kept, 2);
    CHECK(kept_has(kept, lock_at(2, 7)) && !kept_has(kept, lock_at(3, 7)));

    for (uint64_t i = 0; kept->count < KEPT_LOCKS_MAX; i++) {
        intent = intent_of(lock_at(3, i), 0);
        kept_intent(kept, &intent);
    }
    CHECK(!kept_has(kept, lock_at(4, 0)));
    intent = intent_of(lock_at(5, 0), 0);
    kept_intent(kept, &intent);
    CHECK(kept_has(kept, lock_at(4, 0)));
    free(kept);
    return 0;
}
