/*
 * map.h - the partition map: which member owns which keys. In the pool it is as map_fmt.h says; here
 * it is a struct that nobody changes once others see it.
 */
#ifndef OWNERS_MAP_H
#define OWNERS_MAP_H

#include "base/slice.h"
#include "engine/engine.h"
#include "owners/map_fmt.h"
#include "pool/pool.h"

/* Members as words: 0 is nobody. */
static inline uint64_t map_member(struct fabric_identity identity)
{
    return (uint64_t)identity.member << 16 | identity.incarnation;
}

static inline struct fabric_identity map_identity(uint64_t member)
{
    return (struct fabric_identity){.member = (uint16_t)(member >> 16),
                                    .incarnation = (uint16_t)member};
}

struct map_partition {
    struct slice low; /* in the map's own memory */
    uint64_t owner, taker;
    uint64_t epoch;
    fabric_address log;
    uint64_t log_version;
    bool frozen; /* in this process only: being given away, so operations wait */
};

struct map {
    fabric_address address; /* of the block; 0: not in the pool */
    uint64_t version;
    uint32_t bytes; /* in the block */
    uint64_t epoch;
    fabric_address root;
    uint32_t count; /* at least one: the first begins at the empty key */
    struct map_partition parts[MAP_PARTITIONS_MAX];
    uint32_t key_bytes;
    uint8_t keys[MAP_BYTES];
};

/* The partition that has this key. */
static inline const struct map_partition *map_find(const struct map *map, struct slice key)
{
    uint32_t low = 0, high = map->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (slice_compare(map->parts[middle].low, key) <= 0)
            low = middle;
        else
            high = middle;
    }
    return &map->parts[low];
}

/* The partition with a key, or with those just below it. */
static inline const struct map_partition *map_partition_of(const struct map *map, struct slice key,
                                                           bool before)
{
    const struct map_partition *part = map_find(map, key);
    return before && part > map->parts && slice_equal(part->low, key) ? part - 1 : part;
}

/* Where a partition ends; false: at the end of all keys. */
bool map_partition_high(const struct map *map, const struct map_partition *part,
                        struct slice *high);

struct map *map_create(void); /* NULL when memory is gone; one partition of nobody */
struct map *map_copy(const struct map *map);

/* Makes a partition begin at this key; FULL: more than a block has room for; INVALID: no key is so
 * long. */
PANDO_MUST_CHECK enum pando_status map_cut(struct map *map, struct slice key);

/* Makes one of neighbours that agree in everything; of nobody's whatever their epochs. */
void map_join(struct map *map);

/* Whether it is half full. */
bool map_crowded(const struct map *map);

/* Reads the one that counts; the caller frees it. CORRUPT: there is none. */
PANDO_MUST_CHECK enum pando_status map_read_co(struct pool_session *session, unsigned slot,
                                               uint16_t table, struct map **out);

/* Puts `to` in the place of `from`, with the next epoch and a block of its own. STALE: another was
 * faster; UNKNOWN: it cannot be told; read it again. FULL, NO_MEMORY: nothing was changed. `from` NULL: the
 * table's first. */
PANDO_MUST_CHECK enum pando_status map_swap_co(struct pool_session *session, unsigned slot,
                                               uint16_t table, const struct map *from,
                                               struct map *to);

/* Frees the block of a table that is dropped. */
PANDO_MUST_CHECK enum pando_status map_free_co(struct pool_session *session, const struct map *map);

/* Its owners, each once, and how many partitions each has. */
unsigned map_owners(const struct map *map, struct engine_owner *out, unsigned capacity);

/* What the pool gives for a map of that size. */
uint32_t map_block_bytes(uint32_t bytes);

/* Bytes in, bytes out: for the above, and for tests. */
uint32_t map_encode(const struct map *map, uint64_t pool, uint16_t table, uint64_t tenure,
                    uint8_t bytes[MAP_BYTES]); /* bytes used; 0: does not fit */
bool map_decode(struct map *map, uint64_t pool, uint16_t table, fabric_address address,
                const uint8_t bytes[MAP_BYTES]);

#endif
