#include "tree/blink/cache/grace.h"

#include <stdlib.h>

#include "base/assert.h"

void grace_init(struct grace *grace)
{
    atomic_init(&grace->now, 1);
    list_init(&grace->readers);
    grace->first = grace->count = 0;
}

void grace_fini(struct grace *grace)
{
    pando_assert(list_empty(&grace->readers));
    grace_collect(grace);
    pando_assert(grace->count == 0);
}

void grace_join(struct grace *grace, struct grace_reader *reader)
{
    atomic_init(&reader->since, 0);
    list_push_back(&grace->readers, &reader->link);
}

void grace_part(struct grace_reader *reader)
{
    pando_assert(atomic_load(&reader->since) == 0);
    list_remove(&reader->link);
}

bool grace_room(struct grace *grace, uint32_t items)
{
    if (grace->count + items > GRACE_ITEMS)
        grace_collect(grace);
    return grace->count + items <= GRACE_ITEMS;
}

void grace_retire(struct grace *grace, void *memory)
{
    pando_assert(grace->count < GRACE_ITEMS);
    grace->items[(grace->first + grace->count++) % GRACE_ITEMS] =
        (struct grace_item){.memory = memory, .since = atomic_fetch_add(&grace->now, 1) + 1};
}

void grace_collect(struct grace *grace)
{
    uint64_t oldest = UINT64_MAX;
    if (grace->count == 0)
        return;
    list_for_each (link, &grace->readers) {
        const struct grace_reader *reader = container_of(link, struct grace_reader, link);
        uint64_t since = atomic_load(&reader->since);
        if (since != 0 && since < oldest)
            oldest = since;
    }
    while (grace->count > 0 && grace->items[grace->first].since <= oldest) {
        free(grace->items[grace->first].memory);
        grace->first = (grace->first + 1) % GRACE_ITEMS;
        grace->count--;
    }
}
