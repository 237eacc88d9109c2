/*
 * pair_cache.c - pairs in buckets. A bucket begins with a header (version, held or not, and the epoch in which its
 * pairs were kept) and a word of tags, a byte for each slot: six bits of its pair's hash, 0 for none, and how
 * often it was asked for since it came, up to 2. The last byte is the slot where to look first for a pair
 * to replace. Then come the slots. The buckets of a lent frame have one header between them, the frame's.
 *
 * All access is to whole words, relaxed; readers look at the header before and after. A frame that is not
 * lent stays held, so that nobody who comes late believes it or changes it.
 */
#include "tree/dex/cache/pair_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/prng.h"

enum {
    SLOTS_MOST = 7, /* of a bucket: two lines of 8-byte keys and values */
    TAGS_AT = 1,    /* words */
    SLOTS_AT = 2,
    USES_BITS = 3, /* of a tag, that count them, */
    USES_MOST = 2, /* up to this: more would change nothing */
    LINE = 64,
    SLOT_MOST = 256,       /* longer pairs are not worth it */
    SLOT_OF_VARYING = 128, /* pairs of up to 124 bytes */
    SIZES = 4,             /* where they vary: of key and value, 2 bytes each */
};

static const uint64_t HELD = 1, STEP = 2, VERSION_MASK = UINT32_MAX;

typedef _Atomic uint64_t word;

static uint32_t bucket_bytes(uint32_t slots, uint32_t slot_bytes)
{
    return (SLOTS_AT * 8 + slots * slot_bytes + LINE - 1) / LINE * LINE;
}

/* As many slots as wanted, in as many buckets as a page has room for. */
static void set_shape(struct pair_cache *records, uint32_t page_bytes)
{
    uint32_t wanted = bucket_bytes(SLOTS_MOST, records->slot_bytes);
    records->buckets = page_bytes > wanted ? page_bytes / wanted : 1;
    uint32_t room = page_bytes / records->buckets / LINE * LINE;
    records->slots = room > SLOTS_AT * 8 ? (room - SLOTS_AT * 8) / records->slot_bytes : 0;
    if (records->slots > SLOTS_MOST)
        records->slots = SLOTS_MOST;
    records->stride = bucket_bytes(records->slots, records->slot_bytes);
    records->all = ((uint64_t)1 << records->slots * 8) - 1;
}

enum pando_status pair_cache_create(struct pair_cache *records, struct frames *frames,
                                    const struct pair_cache_options *options)
{
    bool fixed = options->key_size != 0 && options->value_size != 0;
    uint64_t longest = (uint64_t)options->key_max + options->value_max + SIZES;
    uint64_t slot = fixed                       ? options->key_size + options->value_size
                    : longest < SLOT_OF_VARYING ? longest
                                                : SLOT_OF_VARYING;

    *records = (struct pair_cache){.frames = frames,
                                   .key_size = fixed ? options->key_size : 0,
                                   .value_size = fixed ? options->value_size : 0,
                                   .slot_bytes = (uint32_t)((slot + 7) & ~(uint64_t)7)};
    set_shape(records, frames->page_bytes);
    uint64_t group_bytes = (uint64_t)records->buckets * records->stride;
    uint64_t own = options->bytes / group_bytes;
    if (slot > SLOT_MOST || records->slots == 0 || own == 0)
        return PANDO_OK;
    records->own = own < UINT32_MAX / 4 ? (uint32_t)own : UINT32_MAX / 4;
    records->bytes = (size_t)(records->own * group_bytes);
    records->most = options->lent_most < UINT32_MAX / 4 ? options->lent_most : UINT32_MAX / 4;
    records->memory = rt_pages_map(records->bytes);
    records->lent = malloc((records->most + (size_t)1) * sizeof(*records->lent));
    atomic_init(&records->count, records->own);
    if (records->memory != NULL && records->lent != NULL)
        return PANDO_OK;
    pair_cache_destroy(records);
    return PANDO_NO_MEMORY;
}

void pair_cache_destroy(struct pair_cache *records)
{
    if (records->memory != NULL)
        rt_pages_unmap(records->memory, records->bytes);
    free(records->lent);
    *records = (struct pair_cache){0};
}

/* ---- places ---------------------------------------------------------------------------------- */

static uint64_t hash_of(struct slice key)
{
    const uint8_t *bytes = key.data;
    uint64_t hash = key.size, part = 0;

    for (size_t at = 0; at < key.size; at += sizeof(part)) {
        size_t left = key.size - at;
        part = 0;
        memcpy(&part, bytes + at, left < sizeof(part) ? left : sizeof(part));
        hash = hash_u64(hash ^ part);
    }
    return hash;
}

/* With all bits up to the highest of `count`. */
static uint32_t bits_of(uint32_t count)
{
    return UINT32_MAX >> __builtin_clz(count);
}

static uint32_t group_among(uint32_t count, uint64_t hash)
{
    uint32_t bits = bits_of(count), group = (uint32_t)hash & bits;
    return group < count ? group : group & bits >> 1;
}

struct place {
    uint32_t group;
    word *header;
    word *bucket;
};

static struct place place_at(const struct pair_cache *records, uint32_t group, uint32_t bucket)
{
    struct place place = {.group = group};
    if (group < records->own) {
        uint64_t index = (uint64_t)group * records->buckets + bucket;
        place.bucket = (word *)(void *)(records->memory + index * records->stride);
        place.header = place.bucket;
        return place;
    }
    uint32_t frame =
        atomic_load_explicit(&records->lent[group - records->own], memory_order_acquire);
    place.bucket = (word *)(void *)(frame_bytes(records->frames, frame) + bucket * records->stride);
    place.header = &frame_at(records->frames, frame)->pairs;
    return place;
}

/* Where a key belongs now. */
static struct place place_of(const struct pair_cache *records, uint64_t hash)
{
    uint32_t count = atomic_load_explicit(&records->count, memory_order_acquire);
    return place_at(records, group_among(count, hash),
                    (uint32_t)((hash >> 32 & 0xffff) * records->buckets >> 16));
}

static word *slot_of(const struct pair_cache *records, word *bucket, unsigned slot)
{
    return bucket + SLOTS_AT + (size_t)slot * (records->slot_bytes / 8);
}

static uint64_t load(const word *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

/* ---- tags ------------------------------------------------------------------------------------ */

static const uint64_t EACH = 0x0101010101010101; /* byte */

/* Of a hash, where a slot's byte has it: never 0. */
static uint8_t tag_of(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 56 & ~(uint64_t)USES_BITS);
    return tag != 0 ? tag : USES_BITS + 1;
}

/* The slots with this tag, as bits at the top of their bytes: exactly those, since what was forgotten lies
 * in its slot still. */
static uint64_t slots_with(const struct pair_cache *records, uint64_t tags, uint8_t tag)
{
    const uint64_t rest = 0x7f * EACH, tops = 0x80 * EACH;
    uint64_t other = (tags ^ tag * EACH) & ~(USES_BITS * EACH);
    return ~(((other & rest) + rest) | other) & tops & records->all;
}

static unsigned first_slot(uint64_t slots)
{
    return (unsigned)__builtin_ctzll(slots) / 8;
}

static uint8_t byte_at(uint64_t tags, unsigned slot)
{
    return (uint8_t)(tags >> slot * 8);
}

static uint64_t with_byte(uint64_t tags, unsigned slot, uint8_t byte)
{
    return (tags & ~((uint64_t)0xff << slot * 8)) | (uint64_t)byte << slot * 8;
}

static void tags_store(word *bucket, uint64_t tags)
{
    atomic_store_explicit(&bucket[TAGS_AT], tags, memory_order_relaxed);
}

/* All that a header which is held stands for. */
static void clear(const struct pair_cache *records, const struct place *place)
{
    if (place->group < records->own) {
        tags_store(place->bucket, 0);
        return;
    }
    for (uint32_t i = 0; i < records->buckets; i++)
        tags_store(place_at(records, place->group, i).bucket, 0);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* A slot's bytes, taken out word by word; perhaps torn. */
static size_t slot_read(const struct pair_cache *records, const word *slot, uint8_t *bytes,
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

static void slot_write(const struct pair_cache *records, word *slot, struct slice key,
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
static bool slot_has(const struct pair_cache *records, const word *slot, struct slice key,
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

static bool fits(const struct pair_cache *records, struct slice key, struct slice value)
{
    if (records->key_size != 0)
        return key.size == records->key_size && value.size == records->value_size;
    return key.size + value.size + SIZES <= records->slot_bytes;
}

/* ---- operations ------------------------------------------------------------------------------ */

static void find_place(const struct pair_cache *records, struct pair_cache_token *token)
{
    struct place place = place_of(records, token->hash);
    token->at = place.header;
    token->bucket = place.bucket;
}

void pair_cache_ask(const struct pair_cache *records, struct slice key,
                    struct pair_cache_token *token)
{
    *token = (struct pair_cache_token){.header = HELD};
    if (records->memory == NULL)
        return;
    token->hash = hash_of(key);
    find_place(records, token);
    if (token->at != token->bucket)
        __builtin_prefetch(token->at);
    __builtin_prefetch(token->bucket);
    __builtin_prefetch((const uint8_t *)token->bucket + LINE);
}

/* As long as it is what the caller knows. */
static bool hold_if(word *at, uint64_t header)
{
    bool held = (header & HELD) == 0 &&
                atomic_compare_exchange_strong_explicit(at, &header, header | HELD,
                                                        memory_order_acquire, memory_order_relaxed);
    if (held)
        atomic_thread_fence(memory_order_release); /* before anything is changed */
    return held;
}

/* One more use. Should the word have changed meanwhile, it is not worth another try. A lent frame may be a
 * page by now, unless it is held. */
static void count_use(const struct pair_cache_token *token, uint64_t tags, unsigned slot)
{
    bool lent = token->at != token->bucket;
    if ((byte_at(tags, slot) & USES_BITS) >= USES_MOST ||
        (lent && !hold_if(token->at, token->header)))
        return;
    (void)atomic_compare_exchange_strong_explicit(&token->bucket[TAGS_AT], &tags,
                                                  tags + ((uint64_t)1 << slot * 8),
                                                  memory_order_relaxed, memory_order_relaxed);
    if (lent)
        atomic_store_explicit(token->at, token->header, memory_order_release);
}

bool pair_cache_get(struct pair_cache *records, struct slice key, void *value, size_t capacity,
                    size_t *size, struct pair_cache_token *token)
{
    uint8_t bytes[SLOT_MOST];
    struct slice found;

    if (records->memory == NULL)
        return false;
    uint64_t header = atomic_load_explicit(token->at, memory_order_acquire);
    token->header = header;
    token->room = true;
    if ((header & HELD) != 0 ||
        header >> 32 != atomic_load_explicit(&records->epoch, memory_order_relaxed))
        return false;
    uint64_t tags = load(&token->bucket[TAGS_AT]);
    for (uint64_t slots = slots_with(records, tags, tag_of(token->hash)); slots != 0;
         slots &= slots - 1) {
        unsigned i = first_slot(slots);
        if (!slot_has(records, slot_of(records, token->bucket, i), key, bytes, &found))
            continue;
        atomic_thread_fence(memory_order_acquire);
        if (load(token->at) != header)
            return false;
        *size = found.size;
        if (found.size > 0)
            memcpy(value, found.data, found.size < capacity ? found.size : capacity);
        count_use(token, tags, i);
        return true;
    }
    token->room = slots_with(records, tags, 0) != 0;
    return false;
}

/* The slot that was used least, from the hand on. What all were used is then forgotten, so that new ones have
 * a chance. */
static unsigned slot_to_replace(const struct pair_cache *records, uint64_t *tags)
{
    unsigned hand = byte_at(*tags, SLOTS_MOST), choice = 0, least = USES_MOST + 1;

    for (unsigned i = 0; i < records->slots && least > 0; i++) {
        unsigned slot = hand + i < records->slots ? hand + i : hand + i - records->slots;
        unsigned uses = byte_at(*tags, slot) & USES_BITS;
        if (uses < least) {
            least = uses;
            choice = slot;
        }
    }
    unsigned next = choice + 1 < records->slots ? choice + 1 : 0;
    *tags = with_byte(*tags - (least * EACH & records->all), SLOTS_MOST, (uint8_t)next);
    return choice;
}

/* The slot with the key, a free one, or one whose pair goes. */
static unsigned slot_for(const struct pair_cache *records, word *bucket, uint64_t hash,
                         struct slice key, uint64_t *tags)
{
    uint8_t bytes[SLOT_MOST];
    struct slice value;

    for (uint64_t slots = slots_with(records, *tags, tag_of(hash)); slots != 0;
         slots &= slots - 1) {
        if (slot_has(records, slot_of(records, bucket, first_slot(slots)), key, bytes, &value))
            return first_slot(slots);
    }
    uint64_t free = slots_with(records, *tags, 0);
    return free != 0 ? first_slot(free) : slot_to_replace(records, tags);
}

/* Lets go, as changed. */
static uint64_t give(word *header, uint64_t held, uint64_t epoch)
{
    uint64_t now = epoch << 32 | ((held + STEP) & VERSION_MASK & ~HELD);
    atomic_store_explicit(header, now, memory_order_release);
    return now;
}

void pair_cache_keep(struct pair_cache *records, const struct pair_cache_token *token,
                     struct slice key, struct slice value)
{
    uint64_t hash = token->hash;

    if (records->memory == NULL || !fits(records, key, value) || !hold_if(token->at, token->header))
        return;
    struct place place = place_of(records, hash);
    if (place.header != token->at) {
        atomic_store_explicit(token->at, token->header, memory_order_release);
        return;
    }
    uint64_t epoch = atomic_load_explicit(&records->epoch, memory_order_relaxed);
    if (token->header >> 32 != epoch)
        clear(records, &place);
    uint64_t tags = load(&place.bucket[TAGS_AT]);
    unsigned slot = slot_for(records, place.bucket, hash, key, &tags);
    slot_write(records, slot_of(records, place.bucket, slot), key, value);
    tags_store(place.bucket, with_byte(tags, slot, tag_of(hash)));
    (void)give(place.header, token->header, epoch);
}

/* The place of a key, held: where it was asked for, if that is its place still. One that is held may be so for
 * good: then the key belongs to another soon. */
static uint64_t hold_place(const struct pair_cache *records, struct pair_cache_token *token)
{
    unsigned spins = 0;
    for (;;) {
        uint64_t header = load(token->at);
        if (hold_if(token->at, header)) {
            if (place_of(records, token->hash).header == token->at)
                return header;
            atomic_store_explicit(token->at, header, memory_order_release);
        }
        rt_relax(&spins);
        find_place(records, token);
    }
}

void pair_cache_forget(struct pair_cache *records, struct slice key, struct pair_cache_token *token)
{
    uint8_t bytes[SLOT_MOST];
    struct slice value;

    if (records->memory == NULL)
        return;
    uint64_t header = hold_place(records, token);
    uint64_t tags = load(&token->bucket[TAGS_AT]);
    token->room = false;
    for (uint64_t slots = slots_with(records, tags, tag_of(token->hash)); slots != 0;
         slots &= slots - 1) {
        unsigned i = first_slot(slots);
        if (!slot_has(records, slot_of(records, token->bucket, i), key, bytes, &value))
            continue;
        token->room = true;
        tags = with_byte(tags, i, 0);
        tags_store(token->bucket, tags);
    }
    token->header = give(token->at, header, header >> 32);
}

void pair_cache_forget_all(struct pair_cache *records)
{
    atomic_fetch_add(&records->epoch, 1);
}

/* ---- growing and shrinking ------------------------------------------------------------------- */

static uint64_t slot_hash(const struct pair_cache *records, const word *slot)
{
    uint8_t bytes[SLOT_MOST];
    size_t key_bytes;
    (void)slot_read(records, slot, bytes, &key_bytes);
    const uint8_t *begin = bytes + (records->key_size == 0 ? SIZES : 0);
    return hash_of(slice_of(begin, key_bytes));
}

/* What belongs to group `group` of `count` goes from one bucket to the other. */
static void move(const struct pair_cache *records, word *from, word *to, uint32_t group,
                 uint32_t count)
{
    uint64_t stays = load(&from[TAGS_AT]), goes = 0;

    for (unsigned i = 0; i < records->slots; i++) {
        word *slot = slot_of(records, from, i), *place = slot_of(records, to, i);
        if (byte_at(stays, i) == 0 || group_among(count, slot_hash(records, slot)) != group)
            continue;
        for (uint32_t w = 0; w < records->slot_bytes / 8; w++)
            atomic_store_explicit(&place[w], load(&slot[w]), memory_order_relaxed);
        goes = with_byte(goes, i, byte_at(stays, i));
        stays = with_byte(stays, i, 0);
    }
    tags_store(to, goes);
    tags_store(from, stays);
}

/* Waits for it. */
static uint64_t hold(word *at)
{
    unsigned spins = 0;
    for (;;) {
        uint64_t header = load(at);
        if (hold_if(at, header))
            return header;
        rt_relax(&spins);
    }
}

/* A header for all buckets of a group that is lent, else one for each. */
static uint32_t headers_of(const struct pair_cache *records, uint32_t group)
{
    return group < records->own ? records->buckets : 1;
}

/* Makes the group `count` of a frame. All of the group that loses keys to it is held while they change hands:
 * whoever had a token for it, or waits for it, finds that it has changed, and looks where its key belongs. */
static void split(struct pair_cache *records, uint32_t count, uint32_t frame)
{
    uint32_t from = count & bits_of(count) >> 1;
    uint64_t epoch = atomic_load(&records->epoch);
    word *new = &frame_at(records->frames, frame)->pairs;

    /* Who counted the groups before the last one went may come here already: a frame is held until it is one. */
    atomic_store_explicit(new, load(new) | HELD, memory_order_relaxed);
    atomic_store_explicit(&records->lent[count - records->own], frame, memory_order_release);
    for (uint32_t i = 0; i < headers_of(records, from); i++)
        (void)hold(place_at(records, from, i).header);
    for (uint32_t i = 0; i < records->buckets; i++) {
        struct place old = place_at(records, from, i);
        if (load(old.header) >> 32 != epoch)
            clear(records, &old);
        move(records, old.bucket, place_at(records, count, i).bucket, count, count + 1);
    }
    (void)give(new, load(new), epoch);
    atomic_store_explicit(&records->count, count + 1, memory_order_release);
    for (uint32_t i = 0; i < headers_of(records, from); i++) {
        word *header = place_at(records, from, i).header;
        (void)give(header, load(header), epoch);
    }
}

bool pair_cache_grow(struct pair_cache *records, uint32_t frame)
{
    if (records->memory == NULL)
        return false;
    rt_latch_lock(&records->latch);
    uint32_t count = atomic_load_explicit(&records->count, memory_order_relaxed);
    bool grows = count - records->own < records->most;
    if (grows)
        split(records, count, frame);
    rt_latch_unlock(&records->latch);
    return grows;
}

uint32_t pair_cache_shrink(struct pair_cache *records)
{
    uint32_t frame = FRAME_NONE;
    if (records->memory == NULL)
        return frame;
    rt_latch_lock(&records->latch);
    uint32_t last = atomic_load_explicit(&records->count, memory_order_relaxed) - 1;
    if (last >= records->own) {
        frame = atomic_load_explicit(&records->lent[last - records->own], memory_order_relaxed);
        (void)hold(place_at(records, last, 0).header); /* for good */
        atomic_store_explicit(&records->count, last, memory_order_release);
    }
    rt_latch_unlock(&records->latch);
    return frame;
}

uint32_t pair_cache_lent(const struct pair_cache *records)
{
    return atomic_load_explicit(&records->count, memory_order_relaxed) - records->own;
}
