/*
 * records.c - pairs in groups. A group is a frame: its word `pairs` is the header (version, held or not, and
 * the epoch in which its pairs were kept), its page is divided into parts. A part begins with two words of
 * tags, a byte for each slot: six bits of its pair's hash, 0 for none, and how often it was asked for since
 * it came, up to 3. The last byte is where to look first for a pair to replace. Then come the slots.
 *
 * All access is to whole words, relaxed; readers look at the header before and after. A frame that is not
 * lent stays held, so that nobody who comes late believes it or changes it.
 */
#include "tree/dex/records.h"

#include <stdlib.h>
#include <string.h>

#include "base/prng.h"

enum {
    SLOTS_MOST = 15, /* of a part */
    TAG_WORDS = 2,
    TAG_BYTES = TAG_WORDS * 8,
    HAND = SLOTS_MOST, /* its place among the tags */
    USES_MOST = 3,     /* the bits of a tag that count them */
    LINE = 64,
    PREFETCH_LINES = 4,
    SLOT_MOST = 256,       /* longer pairs are not worth it */
    SLOT_OF_VARYING = 128, /* pairs of up to 124 bytes */
    SIZES = 4,             /* where they vary: of key and value, 2 bytes each */
};

static const uint64_t HELD = 1, STEP = 2, VERSION_MASK = UINT32_MAX;

typedef _Atomic uint64_t word;

enum pando_status records_create(struct records *records, struct frames *frames,
                                 const struct records_options *options)
{
    bool fixed = options->key_size != 0 && options->value_size != 0;
    uint64_t longest = (uint64_t)options->key_max + options->value_max + SIZES;
    uint64_t slot = fixed                       ? options->key_size + options->value_size
                    : longest < SLOT_OF_VARYING ? longest
                                                : SLOT_OF_VARYING;
    uint32_t slot_bytes = (uint32_t)((slot + 7) & ~(uint64_t)7);
    uint32_t parts = frames->page_bytes / (TAG_BYTES + SLOTS_MOST * slot_bytes);

    *records = (struct records){.key_size = fixed ? options->key_size : 0,
                                .value_size = fixed ? options->value_size : 0,
                                .slot_bytes = slot_bytes,
                                .least = options->least,
                                .most = options->most,
                                .parts = parts > 0 ? parts : 1};
    records->part_bytes = frames->page_bytes / records->parts & ~(uint32_t)7;
    records->slots = (records->part_bytes - TAG_BYTES) / slot_bytes;
    if (records->slots > SLOTS_MOST)
        records->slots = SLOTS_MOST;
    if (slot > SLOT_MOST || records->slots == 0 || options->least == 0)
        return PANDO_OK;
    records->group_frames = malloc(options->most * sizeof(*records->group_frames));
    if (records->group_frames == NULL)
        return PANDO_NO_MEMORY;
    records->frames = frames;
    for (uint32_t i = 0; i < options->least; i++)
        atomic_init(&records->group_frames[i], i);
    atomic_init(&records->count, options->least);
    return PANDO_OK;
}

void records_destroy(struct records *records)
{
    free(records->group_frames);
    *records = (struct records){0};
}

/* ---- places ---------------------------------------------------------------------------------- */

uint64_t records_hash(const struct records *records, struct slice key)
{
    const uint8_t *bytes = key.data;
    uint64_t hash = key.size, part = 0;

    if (records->frames == NULL)
        return 0;
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

/* The frame to which a key belongs now. */
static uint32_t frame_of(const struct records *records, uint64_t hash)
{
    uint32_t count = atomic_load_explicit(&records->count, memory_order_acquire);
    return atomic_load_explicit(&records->group_frames[group_among(count, hash)],
                                memory_order_relaxed);
}

static word *header_of(const struct records *records, uint32_t frame)
{
    return &frame_at(records->frames, frame)->pairs;
}

static word *part_at(const struct records *records, uint32_t frame, uint32_t part)
{
    return (word *)(void *)(frame_bytes(records->frames, frame) + part * records->part_bytes);
}

static word *part_of(const struct records *records, uint32_t frame, uint64_t hash)
{
    return part_at(records, frame, (uint32_t)((hash >> 32 & 0xffff) * records->parts >> 16));
}

static word *slot_of(const struct records *records, word *part, unsigned slot)
{
    return part + TAG_WORDS + (size_t)slot * (records->slot_bytes / 8);
}

static uint64_t load(const word *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

void records_prefetch(const struct records *records, uint64_t hash)
{
    if (records->frames == NULL)
        return;
    uint32_t frame = frame_of(records, hash);
    const uint8_t *part = (const uint8_t *)part_of(records, frame, hash);
    __builtin_prefetch(frame_at(records->frames, frame));
    for (unsigned i = 0; i < PREFETCH_LINES; i++)
        __builtin_prefetch(part + i * LINE);
}

/* ---- tags ------------------------------------------------------------------------------------ */

/* Of a hash, where a slot's byte has it: never 0. */
static uint8_t tag_of(uint64_t hash)
{
    uint8_t tag = (uint8_t)(hash >> 56 & ~(uint64_t)USES_MOST);
    return tag != 0 ? tag : USES_MOST + 1;
}

/* The slots of a word of tags with this one, as bits at the top of their bytes: exactly those, since what
 * was forgotten lies in its slot still. */
static uint64_t slots_with(uint64_t tags, uint8_t tag)
{
    const uint64_t ones = 0x0101010101010101, rest = 0x7f7f7f7f7f7f7f7f, tops = 0x8080808080808080;
    uint64_t other = (tags ^ tag * ones) & ~(USES_MOST * ones);
    return ~(((other & rest) + rest) | other) & tops;
}

static unsigned first_slot(uint64_t slots)
{
    return (unsigned)__builtin_ctzll(slots) / 8;
}

/* All of a part's, for who holds the group. */
struct tags {
    uint8_t of[TAG_BYTES];
};

static struct tags tags_load(const word *part)
{
    struct tags tags;
    for (unsigned i = 0; i < TAG_WORDS; i++) {
        uint64_t part_word = load(&part[i]);
        memcpy(&tags.of[i * 8], &part_word, sizeof(part_word));
    }
    return tags;
}

static void tags_store(word *part, const struct tags *tags)
{
    for (unsigned i = 0; i < TAG_WORDS; i++) {
        uint64_t part_word;
        memcpy(&part_word, &tags->of[i * 8], sizeof(part_word));
        atomic_store_explicit(&part[i], part_word, memory_order_relaxed);
    }
}

static bool is_free(uint8_t tag)
{
    return (tag & ~USES_MOST) == 0;
}

static bool has_room(const struct records *records, const struct tags *tags)
{
    for (unsigned i = 0; i < records->slots; i++) {
        if (is_free(tags->of[i]))
            return true;
    }
    return false;
}

static void group_clear(const struct records *records, uint32_t frame)
{
    const struct tags none = {{0}};
    for (uint32_t i = 0; i < records->parts; i++)
        tags_store(part_at(records, frame, i), &none);
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
    if (records->frames == NULL)
        return false;
    uint32_t frame = frame_of(records, hash);
    word *at = header_of(records, frame), *part = part_of(records, frame, hash);
    uint64_t header = atomic_load_explicit(at, memory_order_acquire);
    *ticket = (struct records_ticket){.header = header, .frame = frame, .room = true};
    if ((header & HELD) != 0 ||
        header >> 32 != atomic_load_explicit(&records->epoch, memory_order_relaxed))
        return false;
    for (unsigned w = 0; w < TAG_WORDS; w++) {
        uint64_t tags = load(&part[w]);
        for (uint64_t slots = slots_with(tags, tag_of(hash)); slots != 0; slots &= slots - 1) {
            unsigned i = first_slot(slots);
            if (w * 8 + i >= records->slots ||
                !slot_has(records, slot_of(records, part, w * 8 + i), key, bytes, &found))
                continue;
            atomic_thread_fence(memory_order_acquire);
            if (load(at) != header)
                return false;
            *size = found.size;
            if (found.size > 0)
                memcpy(value, found.data, found.size < capacity ? found.size : capacity);
            /* One more use. Should the word have changed meanwhile, it is not worth another try. */
            if ((tags >> i * 8 & USES_MOST) < USES_MOST)
                (void)atomic_compare_exchange_strong_explicit(
                    &part[w], &tags, tags + ((uint64_t)1 << i * 8), memory_order_relaxed,
                    memory_order_relaxed);
            return true;
        }
    }
    struct tags tags = tags_load(part);
    ticket->room = has_room(records, &tags);
    return false;
}

static unsigned next_slot(const struct records *records, unsigned slot)
{
    return slot + 1 < records->slots ? slot + 1 : 0;
}

/* The slot with the key, a free one, or the one that was used least, from the hand on. What all were used
 * is then forgotten, so that new ones have a chance. */
static unsigned slot_for(const struct records *records, word *part, uint64_t hash, struct slice key,
                         struct tags *tags)
{
    uint8_t bytes[SLOT_MOST];
    struct slice value;
    unsigned choice = records->slots, least = USES_MOST + 1;

    for (unsigned i = 0; i < records->slots; i++) {
        if ((tags->of[i] & ~USES_MOST) == tag_of(hash) &&
            slot_has(records, slot_of(records, part, i), key, bytes, &value))
            return i;
    }
    unsigned slot = tags->of[HAND];
    for (unsigned i = 0; i < records->slots; i++, slot = next_slot(records, slot)) {
        unsigned uses = tags->of[slot] & USES_MOST;
        if (is_free(tags->of[slot]))
            return slot;
        if (uses < least) {
            least = uses;
            choice = slot;
        }
    }
    for (unsigned i = 0; i < records->slots; i++)
        tags->of[i] = (uint8_t)(tags->of[i] - least);
    tags->of[HAND] = (uint8_t)next_slot(records, choice);
    return choice;
}

/* Lets go of a group, as changed. */
static uint64_t give(word *header, uint64_t held, uint64_t epoch)
{
    uint64_t now = epoch << 32 | ((held + STEP) & VERSION_MASK & ~HELD);
    atomic_store_explicit(header, now, memory_order_release);
    return now;
}

void records_keep(struct records *records, uint64_t hash, const struct records_ticket *ticket,
                  struct slice key, struct slice value)
{
    uint64_t header = ticket->header;

    if (records->frames == NULL || (header & HELD) != 0 || !fits(records, key, value))
        return;
    word *at = header_of(records, ticket->frame);
    if (!atomic_compare_exchange_strong_explicit(at, &header, header | HELD, memory_order_acquire,
                                                 memory_order_relaxed))
        return;
    atomic_thread_fence(memory_order_release); /* before anything is changed */
    if (frame_of(records, hash) != ticket->frame) {
        atomic_store_explicit(at, header, memory_order_release);
        return;
    }
    uint64_t epoch = atomic_load_explicit(&records->epoch, memory_order_relaxed);
    if (header >> 32 != epoch)
        group_clear(records, ticket->frame);
    word *part = part_of(records, ticket->frame, hash);
    struct tags tags = tags_load(part);
    unsigned slot = slot_for(records, part, hash, key, &tags);
    slot_write(records, slot_of(records, part, slot), key, value);
    tags.of[slot] = tag_of(hash);
    tags_store(part, &tags);
    (void)give(at, header, epoch);
}

static uint64_t hold(word *at)
{
    unsigned spins = 0;
    uint64_t header = load(at) & ~HELD;
    while (!atomic_compare_exchange_weak_explicit(at, &header, header | HELD, memory_order_acquire,
                                                  memory_order_relaxed)) {
        if ((header & HELD) != 0)
            rt_relax(&spins);
        header &= ~HELD;
    }
    atomic_thread_fence(memory_order_release);
    return header;
}

/* The group of a key, held. One that is held may be so for good: then the key belongs to another soon. */
static uint32_t hold_for(const struct records *records, uint64_t hash, uint64_t *header)
{
    unsigned spins = 0;
    for (;;) {
        uint32_t frame = frame_of(records, hash);
        word *at = header_of(records, frame);
        *header = load(at);
        if ((*header & HELD) == 0 &&
            atomic_compare_exchange_strong_explicit(at, header, *header | HELD,
                                                    memory_order_acquire, memory_order_relaxed)) {
            atomic_thread_fence(memory_order_release);
            if (frame_of(records, hash) == frame)
                return frame;
            atomic_store_explicit(at, *header, memory_order_release);
        }
        rt_relax(&spins);
    }
}

struct records_ticket records_forget(struct records *records, struct slice key)
{
    uint8_t bytes[SLOT_MOST];
    struct slice value;
    bool was_there = false;
    uint64_t header;

    if (records->frames == NULL)
        return (struct records_ticket){.header = HELD};
    uint64_t hash = records_hash(records, key);
    uint32_t frame = hold_for(records, hash, &header);
    word *part = part_of(records, frame, hash);
    struct tags tags = tags_load(part);
    for (unsigned i = 0; i < records->slots; i++) {
        if ((tags.of[i] & ~USES_MOST) != tag_of(hash) ||
            !slot_has(records, slot_of(records, part, i), key, bytes, &value))
            continue;
        was_there = true;
        tags.of[i] = 0;
        tags_store(part, &tags);
    }
    header = give(header_of(records, frame), header, header >> 32);
    return (struct records_ticket){.header = header, .frame = frame, .room = was_there};
}

void records_forget_all(struct records *records)
{
    atomic_fetch_add(&records->epoch, 1);
}

/* ---- growing and shrinking ------------------------------------------------------------------- */

static uint64_t slot_hash(const struct records *records, const word *slot)
{
    uint8_t bytes[SLOT_MOST];
    size_t key_bytes;
    size_t value_bytes = slot_read(records, slot, bytes, &key_bytes);
    const uint8_t *begin = bytes + (records->key_size == 0 ? SIZES : 0);
    (void)value_bytes; /* it was written whole */
    return records_hash(records, slice_of(begin, key_bytes));
}

/* Of a part of the group `from`, what belongs to group `group` of `count` goes to the frame `to`. */
static void move_part(const struct records *records, uint32_t from, uint32_t to, uint32_t part,
                      uint32_t group, uint32_t count)
{
    word *source = part_at(records, from, part), *target = part_at(records, to, part);
    struct tags old = tags_load(source), stays = old, goes = {{0}};

    for (unsigned i = 0; i < records->slots; i++) {
        word *slot = slot_of(records, source, i), *place = slot_of(records, target, i);
        if (is_free(old.of[i]) || group_among(count, slot_hash(records, slot)) != group)
            continue;
        for (uint32_t w = 0; w < records->slot_bytes / 8; w++)
            atomic_store_explicit(&place[w], load(&slot[w]), memory_order_relaxed);
        goes.of[i] = old.of[i];
        stays.of[i] = 0;
    }
    tags_store(target, &goes);
    tags_store(source, &stays);
}

/*
 * The group that loses keys is held while they change hands: whoever had a ticket for it, or waits for it,
 * finds that it has changed, and looks where its key belongs.
 */
bool records_grow(struct records *records, uint32_t frame)
{
    if (records->frames == NULL)
        return false;
    rt_latch_lock(&records->latch);
    uint32_t count = atomic_load_explicit(&records->count, memory_order_relaxed);
    bool grows = count < records->most;
    if (grows) {
        uint32_t from = atomic_load_explicit(&records->group_frames[count & bits_of(count) >> 1],
                                             memory_order_relaxed);
        word *old = header_of(records, from), *new = header_of(records, frame);
        uint64_t header = hold(old);
        for (uint32_t i = 0; i < records->parts; i++)
            move_part(records, from, frame, i, count, count + 1);
        (void)give(new, load(new), header >> 32);
        atomic_store_explicit(&records->group_frames[count], frame, memory_order_relaxed);
        atomic_store_explicit(&records->count, count + 1, memory_order_release);
        (void)give(old, header, header >> 32);
    }
    rt_latch_unlock(&records->latch);
    return grows;
}

uint32_t records_shrink(struct records *records)
{
    uint32_t frame = FRAME_NONE;
    if (records->frames == NULL)
        return frame;
    rt_latch_lock(&records->latch);
    uint32_t count = atomic_load_explicit(&records->count, memory_order_relaxed);
    if (count > records->least) {
        frame = atomic_load_explicit(&records->group_frames[count - 1], memory_order_relaxed);
        (void)hold(header_of(records, frame)); /* for good */
        atomic_store_explicit(&records->count, count - 1, memory_order_release);
    }
    rt_latch_unlock(&records->latch);
    return frame;
}
