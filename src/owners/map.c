/*
 * map.c - reading and replacing partition maps.
 */
#include "owners/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "pool/cell.h"

enum { READS_MAX = 16, LOOKS_MAX = 8, FIRST_READ = 512 };

static const uint64_t LOOK_PAUSE_NS = 4 * RT_NS_PER_US;

static uint32_t pad8(uint32_t size)
{
    return (size + 7) & ~(uint32_t)7;
}

/* Bytes of the block that it would take, wherever that lies. */
static uint32_t encoded_bytes(const struct map *map)
{
    uint32_t bytes = MAP_HEADER + map->count * MAP_PART;
    for (uint32_t i = 0; i < map->count; i++)
        bytes += pad8((uint32_t)map->parts[i].low.size);
    return bytes;
}

bool map_partition_high(const struct map *map, const struct map_partition *part, struct slice *high)
{
    const struct map_partition *next = part + 1;
    if (next == map->parts + map->count)
        return false;
    *high = next->low;
    return true;
}

struct map *map_create(void)
{
    struct map *map = calloc(1, sizeof(*map));
    if (map != NULL) {
        map->count = 1;
        map->parts[0].low = slice_of(map->keys, 0);
    }
    return map;
}

/* Copies a key into the map's own memory, where there is room for it. */
static struct slice keep_key(struct map *map, struct slice key)
{
    uint8_t *to = map->keys + map->key_bytes;
    pando_assert(key.size <= sizeof(map->keys) - map->key_bytes);
    memcpy(to, key.data, key.size);
    map->key_bytes += (uint32_t)key.size;
    return slice_of(to, key.size);
}

struct map *map_copy(const struct map *map)
{
    struct map *copy = malloc(sizeof(*copy));
    if (copy == NULL)
        return NULL;
    *copy = *map;
    /* Only keys that are in use: maps live on as copies of copies. */
    copy->key_bytes = 0;
    for (uint32_t i = 0; i < copy->count; i++)
        copy->parts[i].low = keep_key(copy, map->parts[i].low);
    return copy;
}

enum pando_status map_cut(struct map *map, struct slice key)
{
    uint32_t at = (uint32_t)(map_find(map, key) - map->parts);
    if (slice_equal(map->parts[at].low, key))
        return PANDO_OK;
    if (key.size > PANDO_KEY_MAX)
        return PANDO_INVALID;
    if (map->count == MAP_PARTITIONS_MAX || map->key_bytes + key.size > sizeof(map->keys) ||
        encoded_bytes(map) + MAP_PART + pad8((uint32_t)key.size) > MAP_BYTES)
        return PANDO_FULL;
    memmove(&map->parts[at + 2], &map->parts[at + 1],
            (map->count - at - 1) * sizeof(map->parts[0]));
    map->count++;
    map->parts[at + 1] = map->parts[at];
    map->parts[at + 1].low = keep_key(map, key);
    return PANDO_OK;
}

/* Records and pages of a partition that somebody works on carry its epoch: it is the same for all
 * of it. */
static bool alike(const struct map_partition *a, const struct map_partition *b)
{
    return a->owner == b->owner && a->taker == b->taker &&
           (a->epoch == b->epoch || a->owner == 0) && a->log == b->log &&
           a->log_version == b->log_version && a->frozen == b->frozen;
}

void map_join(struct map *map)
{
    uint32_t kept = 0;
    for (uint32_t i = 1; i < map->count; i++) {
        struct map_partition *last = &map->parts[kept];
        if (!alike(last, &map->parts[i]))
            map->parts[++kept] = map->parts[i];
        else if (map->parts[i].epoch > last->epoch)
            last->epoch = map->parts[i].epoch;
    }
    map->count = kept + 1;
}

bool map_crowded(const struct map *map)
{
    return map->count > MAP_PARTITIONS_MAX / 2 || encoded_bytes(map) > MAP_BYTES / 2;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static struct cell_place place_of(uint64_t pool, uint16_t table, fabric_address address)
{
    return (struct cell_place){.pool = pool, .table = table, .kind = MAP_KIND, .address = address};
}

uint32_t map_encode(const struct map *map, uint64_t pool, uint16_t table, uint64_t tenure,
                    uint8_t bytes[MAP_BYTES])
{
    struct map_head_fmt head = {.address = map->address,
                                .version = map->version,
                                .tenure = tenure,
                                .epoch = map->epoch,
                                .root = map->root,
                                .parts = map->count};
    uint32_t at = MAP_HEADER + map->count * MAP_PART;

    memset(bytes, 0, MAP_BYTES);
    for (uint32_t i = 0; i < map->count; i++) {
        const struct map_partition *part = &map->parts[i];
        struct map_part_fmt out = {.owner = part->owner,
                                   .taker = part->taker,
                                   .epoch = part->epoch,
                                   .log = part->log,
                                   .log_version = part->log_version,
                                   .key_at = at,
                                   .key_size = (uint32_t)part->low.size};
        if (at + pad8(out.key_size) > MAP_BYTES)
            return 0;
        memcpy(bytes + MAP_HEADER + i * MAP_PART, &out, sizeof(out));
        memcpy(bytes + at, part->low.data, part->low.size);
        at += pad8(out.key_size);
    }
    head.bytes = at;
    memcpy(bytes, &head, sizeof(head));
    struct cell_place place = place_of(pool, table, map->address);
    head.cell =
        cell_header(&place, (uint16_t)map->version, 0, bytes + CELL_HEADER, at - CELL_HEADER);
    memcpy(bytes, &head.cell, sizeof(head.cell));
    return at;
}

/* Keys lie one behind the other, where the encoder puts them: none over another. */
static bool part_decode(struct map *map, uint32_t i, const uint8_t *bytes, uint32_t size,
                        uint32_t *at)
{
    struct map_part_fmt part;
    memcpy(&part, bytes + MAP_HEADER + i * MAP_PART, sizeof(part));
    if (part.key_at != *at || part.key_size > size - *at || part.key_size > PANDO_KEY_MAX ||
        (i == 0) != (part.key_size == 0))
        return false;
    *at += pad8(part.key_size);
    map->parts[i] =
        (struct map_partition){.low = keep_key(map, slice_of(bytes + part.key_at, part.key_size)),
                               .owner = part.owner,
                               .taker = part.taker,
                               .epoch = part.epoch,
                               .log = part.log,
                               .log_version = part.log_version};
    return *at <= size && (i == 0 || slice_compare(map->parts[i - 1].low, map->parts[i].low) < 0);
}

bool map_decode(struct map *map, uint64_t pool, uint16_t table, fabric_address address,
                const uint8_t bytes[MAP_BYTES])
{
    struct cell_place place = place_of(pool, table, address);
    struct map_head_fmt head;

    memcpy(&head, bytes, sizeof(head));
    if (!cell_valid(&place, bytes, MAP_BYTES) || head.address != address || head.parts == 0 ||
        head.parts > MAP_PARTITIONS_MAX || head.bytes > MAP_BYTES ||
        head.bytes != cell_payload_bytes(head.cell) + CELL_HEADER ||
        MAP_HEADER + head.parts * MAP_PART > head.bytes)
        return false;
    map->address = address;
    map->version = head.version;
    map->bytes = head.bytes;
    map->epoch = head.epoch;
    map->root = head.root;
    map->count = head.parts;
    map->key_bytes = 0;
    uint32_t at = MAP_HEADER + head.parts * MAP_PART;
    for (uint32_t i = 0; i < head.parts; i++) {
        if (!part_decode(map, i, bytes, head.bytes, &at))
            return false;
    }
    return at == head.bytes;
}

/* ---- in the pool ----------------------------------------------------------------------------- */

/* Two sizes only: the reserve that they are taken from when the pool is full is divided by sizes. */
uint32_t map_block_bytes(uint32_t bytes)
{
    return bytes <= FIRST_READ ? FIRST_READ : MAP_BYTES;
}

/* The block at an address: what most maps take first, the rest if there is more. */
static enum pando_status read_block_co(struct pool_session *session, fabric_address address,
                                       uint8_t bytes[MAP_BYTES])
{
    struct map_head_fmt head;
    struct fabric_op read = fabric_read(fabric_address_offset(address), bytes, FIRST_READ);
    enum pando_status status = pool_read_list_co(session, address, &read, 1);
    if (status != PANDO_OK)
        return status;
    memcpy(&head, bytes, sizeof(head));
    if (head.bytes <= FIRST_READ || head.bytes > MAP_BYTES)
        return PANDO_OK;
    read.size = head.bytes;
    return pool_read_list_co(session, address, &read, 1);
}

enum pando_status map_read_co(struct pool_session *session, unsigned slot, uint16_t table,
                              struct map **out)
{
    struct map *map = map_create();
    uint8_t *bytes = calloc(1, MAP_BYTES);
    enum pando_status status = map == NULL || bytes == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    bool found = false;

    /* A block that was replaced is freed: look again. */
    for (int i = 0; i < READS_MAX && status == PANDO_OK && !found; i++) {
        fabric_address address = 0;
        status = pool_root_read_co(session, slot, &address);
        if (status == PANDO_OK && address == 0)
            break;
        if (status == PANDO_OK)
            status = read_block_co(session, address, bytes);
        found = status == PANDO_OK &&
                map_decode(map, pool_id(pool_session_pool(session)), table, address, bytes);
    }
    free(bytes);
    /* The root, or the size in the map's head, leads out of the window. */
    if (status == PANDO_RANGE || (status == PANDO_OK && !found))
        status = PANDO_CORRUPT;
    if (status != PANDO_OK) {
        free(map);
        return status;
    }
    *out = map;
    return PANDO_OK;
}

static uint64_t tenure_of(const struct pool *pool, uint16_t table)
{
    return pool_tenure_pack((struct pool_tenure){
        .state = POOL_BLOCK_LIVE, .kind = MAP_KIND, .table = table, .holder = pool_identity(pool)});
}

/* The CAS may have had no answer. UNKNOWN: somebody has replaced what was there, or ours. */
static enum pando_status swap_root_co(struct pool_session *session, unsigned slot,
                                      fabric_address from, fabric_address to)
{
    uint64_t found = 0;
    enum pando_status status = pool_root_swap_co(session, slot, from, to, &found);
    for (int i = 0; i < READS_MAX && (status == PANDO_BROKEN || status == PANDO_TIMEOUT); i++) {
        status = pool_root_read_co(session, slot, &found);
        if (status == PANDO_OK && found != to)
            status =
                found == from ? pool_root_swap_co(session, slot, from, to, &found) : PANDO_UNKNOWN;
    }
    return status;
}

/* Whether somebody has given a map's block back. Nothing that a flipped bit makes of a map looks so. */
static enum pando_status given_back_co(struct pool_session *session, const struct map *map,
                                       bool *out)
{
    uint64_t words[2]; /* version, tenure */
    struct fabric_op read =
        fabric_read(fabric_address_offset(map->address) + POOL_BLOCK_VERSION, words, sizeof(words));
    enum pando_status status = pool_read_list_co(session, map->address, &read, 1);
    if (status != PANDO_OK)
        return status;
    struct pool_tenure tenure = pool_tenure_unpack(words[1]);
    *out = words[0] == map->version && tenure.state == POOL_BLOCK_FREE && tenure.kind == 0 &&
           tenure.table == 0;
    return PANDO_OK;
}

/* The outcome of a swap is unknown, nothing of it arrives any more, and the root has changed. Returns the map
 * that is left to us to free. Whoever replaces a map gives its block back at once: if that is `from`, another
 * replaced it and nobody saw `to`; if it is `to`, it was in force, and `from` is ours as after any swap. NULL:
 * neither was given back soon. That one died or cannot reach the block, and one of the two stays for good. */
static const struct map *replaced_co(struct pool_session *session, const struct map *from,
                                     const struct map *to)
{
    for (int i = 0; i < LOOKS_MAX && from != NULL; i++) {
        bool from_back = false, to_back = false;
        enum pando_status status = given_back_co(session, from, &from_back);
        if (status == PANDO_OK)
            status = given_back_co(session, to, &to_back);
        if (status != PANDO_OK || (from_back && to_back))
            return NULL;
        if (from_back || to_back)
            return from_back ? to : from;
        rt_sleep_co(LOOK_PAUSE_NS << i); /* another process is writing it */
    }
    return NULL;
}

enum pando_status map_swap_co(struct pool_session *session, unsigned slot, uint16_t table,
                              const struct map *from, struct map *to)
{
    struct pool *pool = pool_session_pool(session);
    struct pool_block block;
    uint32_t size = encoded_bytes(to);
    uint8_t *bytes = malloc(MAP_BYTES);

    if (bytes == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status =
        size > MAP_BYTES ? PANDO_FULL
                         : pool_table_vital_alloc_co(session, table, map_block_bytes(size), &block);
    if (status != PANDO_OK)
        goto err_free;
    to->address = block.address;
    to->version = block.version + 1;
    to->bytes = size;
    to->epoch = from == NULL ? 1 : from->epoch + 1;
    size = map_encode(to, pool_id(pool), table, tenure_of(pool, table), bytes);
    struct fabric_op write = fabric_write(fabric_address_offset(block.address), bytes, size);
    const struct map *unused = to; /* nobody has seen it */
    status = pool_write_unseen_co(session, block.address, &write, 1);
    if (status == PANDO_OK) {
        status = swap_root_co(session, slot, from == NULL ? 0 : from->address, to->address);
        if (status == PANDO_NO_MEMORY)
            status = PANDO_BROKEN; /* the CAS may have been sent */
        unused = status == PANDO_OK        ? from
                 : status == PANDO_STALE   ? to
                 : status == PANDO_UNKNOWN ? replaced_co(session, from, to)
                                           : NULL; /* may be applied: rule failed-lists-linger */
    }
    if (unused != NULL) {
        enum pando_status freed = map_free_co(session, unused);
        (void)freed;
    }
err_free:
    free(bytes);
    return status;
}

enum pando_status map_free_co(struct pool_session *session, const struct map *map)
{
    struct pool_block block = {.address = map->address, .version = map->version};
    return pool_vital_free_co(session, &block, map_block_bytes(map->bytes), false);
}

unsigned map_owners(const struct map *map, struct engine_owner *out, unsigned capacity)
{
    uint64_t owners[MAP_PARTITIONS_MAX];
    unsigned count = 0;
    for (uint32_t part = 0; part < map->count; part++) {
        unsigned i = 0;
        while (i < count && owners[i] != map->parts[part].owner)
            i++;
        if (i == count) {
            owners[count++] = map->parts[part].owner;
            if (i < capacity)
                out[i] = (struct engine_owner){.member = map_identity(owners[i])};
        }
        if (i < capacity)
            out[i].ranges++;
    }
    return count;
}
