/*
 * records.c - pairs in buckets. A bucket is a header (version, held or not, and the epoch in which its
 * pairs were kept), a word of tags (a byte of each pair's hash, 0 for none; and which were used since
 * somebody last looked for one to replace), and the slots. All access is to whole words, relaxed;
 * readers look at the header before and after.
 */
#include "tree/dex/records.h"

#include <string.h>

#include "base/prng.h"
#include "rt/rt.h"

enum {
    SLOTS = 7,
    HEADER_WORDS = 2,
    LINE = 64,
    SLOT_MOST = 256,        /* longer pairs are not worth it */
    SLOT_OF_VARYING = 128,  /* pairs of up to 124 bytes */
    SIZES = 4,              /* where they vary: of key and value, 2 bytes each */
    USED_SHIFT = SLOTS * 8, /* in the tags */
};

static const uint64_t HELD = 1, STEP = 2, VERSION_MASK = UINT32_MAX;

typedef _Atomic uint64_t word;

enum pando_status records_create(struct records *records, const struct records_options *options)
{
    bool fixed = options->key_size != 0 && options->value_size != 0;
    uint64_t longest = (uint64_t)options->key_max + options->value_max + SIZES;
    uint64_t slot = fixed                       ? options->key_size + options->value_size
                    : longest < SLOT_OF_VARYING ? longest
                                                : SLOT_OF_VARYING;

    *records = (struct records){.key_size = fixed ? options->key_size : 0,
                                .value_size = fixed ? options->value_size : 0,
                                .slot_bytes = (uint32_t)((slot + 7) & ~(uint64_t)7)};
    records->stride = (HEADER_WORDS * 8 + SLOTS * records->slot_bytes + LINE - 1) / LINE * LINE;
    uint64_t count = options->bytes / records->stride;
    if (slot > SLOT_MOST || count == 0)
        return PANDO_OK;
    records->count = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
    records->bytes = (size_t)records->count * records->stride;
    records->memory = rt_pages_map(records->bytes);
    return records->memory != NULL ? PANDO_OK : PANDO_NO_MEMORY;
}

void records_destroy(struct records *records)
{
    if (records->memory != NULL)
        rt_pages_unmap(records->memory, records->bytes);
    records->memory = NULL;
}

/* ---- places ---------------------------------------------------------------------------------- */

uint64_t records_hash(const struct records *records, struct slice key)
{
    const uint8_t *bytes = key.data;
    uint64_t hash = key.size, part = 0;

    if (records->memory == NULL)
        return 0;
    for (size_t at = 0; at < key.size; at += sizeof(part)) {
        size_t left = key.size - at;
        part = 0;
        memcpy(&part, bytes + at, left < sizeof(part) ? left : sizeof(part));
        hash = hash_u64(hash ^ part);
    }
    return hash;
}

static word *bucket_of(const struct records *records, uint64_t hash)
{
    uint64_t index = (hash & UINT32_MAX) * records->count >> 32;
    return (word *)(void *)(records->memory + index * records->stride);
}

static word *slot_of(const struct records *records, word *bucket, unsigned slot)
{
    return bucket + HEADER_WORDS + (size_t)slot * (records->slot_bytes / 8);
}

/* Of a hash: never 0. */
static uint8_t tag_of(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 56);
    return tag != 0 ? tag : 1;
}

/* The slots with this tag, as bits at the top of their bytes: exactly those, since what was forgotten lies
 * in its slot still. */
static uint64_t slots_with(uint64_t tags, uint8_t tag)
{
    const uint64_t ones = 0x01010101010101, rest = 0x7f7f7f7f7f7f7f, tops = 0x80808080808080;
    uint64_t other = (tags ^ tag * ones) & (((uint64_t)1 << USED_SHIFT) - 1);
    return ~(((other & rest) + rest) | other) & tops;
}

static unsigned first_slot(uint64_t slots)
{
    return (unsigned)__builtin_ctzll(slots) / 8;
}

void records_prefetch(const struct records *records, uint64_t hash)
{
    if (records->memory == NULL)
        return;
    const uint8_t *bucket = (const uint8_t *)bucket_of(records, hash);
    __builtin_prefetch(bucket);
    __builtin_prefetch(bucket + LINE);
}

static uint64_t load(const word *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* A slot's bytes, taken out word by word; perhaps torn. */
static size_t slot_read(const struct records *records, const word *slot, uint8_t *bytes,
                        size_t *key_bytes)
{
    uint32_t words = records->slot_bytes / 8;
    uint16_t sizes[2];

    for (uint32_t i = 0; i < words; i++) {
        uint64_t part = load(&slot[i]);
        memcpy(bytes + (size_t)i * 8, &part, sizeof(part));
    }
    *key_bytes = records->key_size;
    if (records->key_size != 0)
        return records->value_size;
    memcpy(sizes, bytes, sizeof(sizes));
    *key_bytes = sizes[0];
    size_t most = records->slot_bytes - SIZES;
    return sizes[0] + sizes[1] <= most ? sizes[1] : SIZE_MAX;
}

static void slot_write(const struct records *records, word *slot, struct slice key,
                       struct slice value)
{
    uint8_t bytes[SLOT_MOST] = {0};
    uint16_t sizes[2] = {(uint16_t)key.size, (uint16_t)value.size};
    size_t at = 0;

    if (records->key_size == 0) {
        memcpy(bytes, sizes, sizeof(sizes));
        at = sizeof(sizes);
    }
    if (key.size > 0)
        memcpy(bytes + at, key.data, key.size);
    if (value.size > 0)
        memcpy(bytes + at + key.size, value.data, value.size);
    for (uint32_t i = 0; i < records->slot_bytes / 8; i++) {
        uint64_t part;
        memcpy(&part, bytes + (size_t)i * 8, sizeof(part));
        atomic_store_explicit(&slot[i], part, memory_order_relaxed);
    }
}

/* Whether the slot has the key; then its value's bytes are there. */
static bool slot_has(const struct records *records, const word *slot, struct slice key,
                     uint8_t *bytes, struct slice *value)
{
    size_t key_bytes;
    uint64_t begins;

    if (records->key_size >= sizeof(begins)) {
        memcpy(&begins, key.data, sizeof(begins));
        if (load(slot) != begins)
            return false;
    }
    size_t value_bytes = slot_read(records, slot, bytes, &key_bytes);
    const uint8_t *begin = bytes + (records->key_size == 0 ? SIZES : 0);
    bool is_word = records->key_size == sizeof(begins); /* and was compared above */

    if (value_bytes == SIZE_MAX || (!is_word && !slice_equal(slice_of(begin, key_bytes), key)))
        return false;
    *value = slice_of(begin + key_bytes, value_bytes);
    return true;
}

static bool fits(const struct records *records, struct slice key, struct slice value)
{
    if (records->key_size != 0)
        return key.size == records->key_size && value.size == records->value_size;
    return key.size + value.size + SIZES <= records->slot_bytes;
}

/* ---- operations ------------------------------------------------------------------------------ */

bool records_get(struct records *records, uint64_t hash, struct slice key, void *value,
                 size_t capacity, size_t *size, struct records_ticket *ticket)
{
    uint8_t bytes[SLOT_MOST];
    struct slice found;

    *ticket = (struct records_ticket){.header = HELD};
    if (records->memory == NULL)
        return false;
    word *bucket = bucket_of(records, hash);
    uint64_t header = atomic_load_explicit(&bucket[0], memory_order_acquire);
    ticket->header = header;
    ticket->room = true;
    if ((header & HELD) != 0 ||
        header >> 32 != atomic_load_explicit(&records->epoch, memory_order_relaxed))
        return false;
    uint64_t tags = load(&bucket[1]);
    ticket->room = slots_with(tags, 0) != 0;
    for (uint64_t slots = slots_with(tags, tag_of(hash)); slots != 0; slots &= slots - 1) {
        unsigned i = first_slot(slots);
        if (!slot_has(records, slot_of(records, bucket, i), key, bytes, &found))
            continue;
        atomic_thread_fence(memory_order_acquire);
        if (load(&bucket[0]) != header)
            return false;
        *size = found.size;
        if (found.size > 0)
            memcpy(value, found.data, found.size < capacity ? found.size : capacity);
        uint64_t used = (uint64_t)1 << (USED_SHIFT + i);
        if ((tags & used) == 0)
            atomic_fetch_or_explicit(&bucket[1], used, memory_order_relaxed);
        return true;
    }
    return false;
}

/* The slot with the key, a free one, or one that was not used lately. */
static unsigned slot_for(struct records *records, word *bucket, uint64_t hash, struct slice key,
                         uint64_t *tags)
{
    uint8_t bytes[SLOT_MOST];
    struct slice value;
    unsigned choice = SLOTS;
    unsigned begin = (unsigned)(hash >> 40) % SLOTS;

    for (uint64_t slots = slots_with(*tags, tag_of(hash)); slots != 0; slots &= slots - 1) {
        if (slot_has(records, slot_of(records, bucket, first_slot(slots)), key, bytes, &value))
            return first_slot(slots);
    }
    if (slots_with(*tags, 0) != 0)
        choice = first_slot(slots_with(*tags, 0));
    for (unsigned i = 0; i < SLOTS && choice == SLOTS; i++) {
        unsigned slot = (begin + i) % SLOTS;
        if ((*tags >> (USED_SHIFT + slot) & 1) == 0)
            choice = slot;
    }
    if (choice < SLOTS)
        return choice;
    *tags &= ((uint64_t)1 << USED_SHIFT) - 1;
    return begin;
}

void records_keep(struct records *records, uint64_t hash, const struct records_ticket *ticket,
                  struct slice key, struct slice value)
{
    uint64_t header = ticket->header;

    if (records->memory == NULL || (header & HELD) != 0 || !fits(records, key, value))
        return;
    word *bucket = bucket_of(records, hash);
    if (!atomic_compare_exchange_strong_explicit(&bucket[0], &header, header | HELD,
                                                 memory_order_acquire, memory_order_relaxed))
        return;
    atomic_thread_fence(memory_order_release); /* before anything is changed */
    uint64_t epoch = atomic_load_explicit(&records->epoch, memory_order_relaxed);
    uint64_t tags = header >> 32 == epoch ? load(&bucket[1]) : 0;
    unsigned slot = slot_for(records, bucket, hash, key, &tags);
    slot_write(records, slot_of(records, bucket, slot), key, value);
    tags &= ~((uint64_t)0xff << slot * 8 | (uint64_t)1 << (USED_SHIFT + slot));
    tags |= (uint64_t)tag_of(hash) << slot * 8;
    atomic_store_explicit(&bucket[1], tags, memory_order_relaxed);
    uint64_t version = (header + STEP) & VERSION_MASK;
    atomic_store_explicit(&bucket[0], epoch << 32 | version, memory_order_release);
}

struct records_ticket records_forget(struct records *records, struct slice key)
{
    uint8_t bytes[SLOT_MOST];
    struct slice value;
    unsigned spins = 0;
    bool was_there = false;

    if (records->memory == NULL)
        return (struct records_ticket){.header = HELD};
    uint64_t hash = records_hash(records, key);
    word *bucket = bucket_of(records, hash);
    uint64_t header = load(&bucket[0]) & ~HELD;
    while (!atomic_compare_exchange_weak_explicit(&bucket[0], &header, header | HELD,
                                                  memory_order_acquire, memory_order_relaxed)) {
        if ((header & HELD) != 0)
            rt_relax(&spins);
        header &= ~HELD;
    }
    atomic_thread_fence(memory_order_release);
    uint64_t tags = load(&bucket[1]);
    for (uint64_t slots = slots_with(tags, tag_of(hash)); slots != 0; slots &= slots - 1) {
        unsigned i = first_slot(slots);
        if (!slot_has(records, slot_of(records, bucket, i), key, bytes, &value))
            continue;
        was_there = true;
        tags &= ~((uint64_t)0xff << i * 8);
        atomic_store_explicit(&bucket[1], tags, memory_order_relaxed);
    }
    uint64_t version = (header + STEP) & VERSION_MASK;
    header = (header & ~VERSION_MASK) | version;
    atomic_store_explicit(&bucket[0], header, memory_order_release);
    return (struct records_ticket){.header = header, .room = was_there};
}

void records_forget_all(struct records *records)
{
    atomic_fetch_add(&records->epoch, 1);
}
