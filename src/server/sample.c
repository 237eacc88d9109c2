/*
 * sample.c - a random key among keys of which only the order is known, as if they were a trie.
 *
 * All keys of a range begin with some prefix. The bytes that follow it are looked up with one seek for each, and
 * the range is gone into at these, until few keys are left, which are read. That is done SAMPLES times at the most:
 * as long as there are enough, each way gets its part of them; then random ways are gone, and what is met there
 * stands for those that were not (Knuth, "Estimating the efficiency of backtrack programs", in strata). The key
 * is chosen among those that were met by what they stand for, and what all stand for is about how many there are.
 */
#include "server/sample.h"

#include <stdlib.h>
#include <string.h>

enum {
    SAMPLES = 32,   /* places that are read */
    FEW_KEYS = 128, /* are read and chosen from */
    DEPTH_MAX =
        32, /* keys of many lengths that begin alike go deep: then the first of them are taken */
    SEEKS_MAX = 2048 /* of all samples; what is left is not gone into then */
};

struct key {
    size_t size;
    uint8_t bytes[KEYSPACE_KEY_MAX + 1];
};

/* Keys that are left, and how they go on. */
struct place {
    struct key low, high;
    bool no_high;
    size_t prefix; /* bytes that all begin with; those of `low` */
    int next[257]; /* bytes that follow it; -1: none does, in one key */
    unsigned ways;
};

struct few {
    struct key key; /* one of them */
    uint64_t read, seen;
};

struct sampler {
    struct store_table *table;
    unsigned seeks;
    struct key found, last;
    struct few few;
    struct sample *out;
};

static struct slice slice_of_key(const struct key *key)
{
    return slice_of(key->bytes, key->size);
}

static void key_set(struct key *key, struct slice bytes)
{
    if (bytes.size > 0)
        memcpy(key->bytes, bytes.data, bytes.size);
    key->size = bytes.size;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool take_key(void *context, struct slice key, struct slice stored)
{
    (void)stored;
    key_set(context, key);
    return false;
}

static struct store_range range_of(const struct place *place)
{
    return (struct store_range){.low = slice_of_key(&place->low),
                                .high = slice_of_key(&place->high),
                                .no_high = place->no_high,
                                .values = STORE_SCAN_KEYS,
                                .limit = 1};
}

/* The first key of a range, or the last. NOT_FOUND: there is none. */
static enum pando_status seek_co(struct sampler *sampler, const struct store_range *range,
                                 struct key *out)
{
    out->size = SIZE_MAX;
    sampler->seeks++;
    enum pando_status status = store_scan_co(sampler->table, range, take_key, out);
    return status == PANDO_OK && out->size == SIZE_MAX ? PANDO_NOT_FOUND : status;
}

static bool take_few(void *context, struct slice key, struct slice stored)
{
    struct few *few = context;
    struct value value;
    few->read++;
    if ((!value_read(stored, &value) || !value_expired(&value)) && rt_random() % ++few->seen == 0)
        key_set(&few->key, key);
    return true;
}

/* *all: no more than FEW_KEYS are left. */
static enum pando_status read_few_co(struct sampler *sampler, const struct place *place, bool *all)
{
    struct store_range range = range_of(place);
    range.values = STORE_SCAN_GLANCE;
    range.limit = FEW_KEYS;
    sampler->few.read = sampler->few.seen = 0;
    enum pando_status status = store_scan_co(sampler->table, &range, take_few, &sampler->few);
    *all = sampler->few.read < FEW_KEYS;
    return status;
}

/* ---- one step -------------------------------------------------------------------------------- */

static int byte_behind(const struct key *key, size_t prefix)
{
    return key->size > prefix ? key->bytes[prefix] : -1;
}

/* The least key that begins with the prefix and this byte or a later one. */
static void begin_at(struct key *key, const struct place *place, int byte)
{
    memmove(key->bytes, place->low.bytes, place->prefix);
    key->size = place->prefix;
    if (byte >= 0)
        key->bytes[key->size++] = (uint8_t)byte;
}

/* Finds the prefix and what follows it. */
static enum pando_status find_prefix_co(struct sampler *sampler, struct place *place)
{
    struct store_range range = range_of(place);
    enum pando_status status = seek_co(sampler, &range, &sampler->found);
    range.reverse = true;
    if (status == PANDO_OK)
        status = seek_co(sampler, &range, &sampler->last);
    if (status != PANDO_OK)
        return status;
    place->low = sampler->found;
    place->prefix = 0;
    while (place->prefix < place->low.size && place->prefix < sampler->last.size &&
           place->low.bytes[place->prefix] == sampler->last.bytes[place->prefix])
        place->prefix++;
    place->ways = 0;
    place->next[place->ways++] = byte_behind(&place->low, place->prefix);
    int end = byte_behind(&sampler->last, place->prefix);
    while (place->next[place->ways - 1] < end) {
        struct key from;
        begin_at(&from, place, place->next[place->ways - 1] + 1);
        range = range_of(place);
        range.low = slice_of_key(&from);
        status = seek_co(sampler, &range, &sampler->found);
        if (status != PANDO_OK)
            return status;
        int byte = byte_behind(&sampler->found, place->prefix);
        if (byte <= place->next[place->ways - 1] || byte > end ||
            memcmp(sampler->found.bytes, place->low.bytes, place->prefix) != 0)
            return PANDO_NOT_FOUND; /* the last one has just gone */
        place->next[place->ways++] = byte;
    }
    return PANDO_OK;
}

/* The part of a place where the keys go on with one of its bytes. */
static void narrow(const struct place *from, struct place *to, unsigned way)
{
    *to = *from;
    if (way > 0)
        begin_at(&to->low, from, from->next[way]);
    if (way + 1 < from->ways) {
        begin_at(&to->high, from, from->next[way] + 1);
        to->no_high = false;
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool by_chance(double part, double all)
{
    return (double)(rt_random() >> 11) * 0x1p-53 * all < part;
}

/* Each of the few stands for `weight` keys. */
static void take_sample(struct sampler *sampler, double weight)
{
    struct sample *out = sampler->out;
    double part = weight * (double)sampler->few.seen;
    if (part == 0)
        return;
    out->keys += part;
    if (!by_chance(part, out->keys))
        return;
    memcpy(out->key, sampler->few.key.bytes, sampler->few.key.size);
    out->size = sampler->few.key.size;
}

static enum pando_status visit_co(struct sampler *sampler, const struct place *place,
                                  unsigned samples, double weight, unsigned depth);

/* Shares the samples out to the ways, or takes as many random ones of them. */
static enum pando_status go_into_co(struct sampler *sampler, const struct place *place,
                                    struct place *below, unsigned samples, double weight,
                                    unsigned depth)
{
    unsigned gone = samples < place->ways ? samples : place->ways;
    unsigned spare = samples - gone, left = gone;
    enum pando_status status = PANDO_OK;

    weight *= (double)place->ways / gone;
    for (unsigned way = 0; way < place->ways && status == PANDO_OK; way++) {
        if (rt_random() % (place->ways - way) >= left)
            continue;
        unsigned more = spare / left--;
        spare -= more;
        narrow(place, below, way);
        status = visit_co(sampler, below, 1 + more, weight, depth + 1);
        rt_yield_co(); /* others of this thread wait */
    }
    return status;
}

static enum pando_status visit_co(struct sampler *sampler, const struct place *place,
                                  unsigned samples, double weight, unsigned depth)
{
    struct {
        struct place place, below;
    } * heap;
    bool all;
    enum pando_status status = read_few_co(sampler, place, &all);
    if (status != PANDO_OK)
        return status;
    if (all || depth == DEPTH_MAX || sampler->seeks > SEEKS_MAX) {
        take_sample(sampler, weight);
        return PANDO_OK;
    }
    heap = malloc(sizeof(*heap));
    if (heap == NULL)
        return PANDO_NO_MEMORY;
    heap->place = *place;
    status = find_prefix_co(sampler, &heap->place);
    if (status == PANDO_OK)
        status = go_into_co(sampler, &heap->place, &heap->below, samples, weight, depth);
    free(heap);
    return status == PANDO_NOT_FOUND ? PANDO_OK : status;
}

enum pando_status sample_co(struct store_table *table, struct store_range range, struct sample *out)
{
    struct {
        struct sampler sampler;
        struct place all;
    } *heap = malloc(sizeof(*heap));
    out->keys = 0;
    if (heap == NULL)
        return PANDO_NO_MEMORY;
    heap->sampler = (struct sampler){.table = table, .out = out};
    key_set(&heap->all.low, range.low);
    key_set(&heap->all.high, range.high);
    heap->all.no_high = range.no_high;
    enum pando_status status = visit_co(&heap->sampler, &heap->all, SAMPLES, 1, 0);
    free(heap);
    return status;
}
