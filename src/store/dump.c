#include "store/dump.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"

enum { CRC_AT = 12 /* in a block's header */ };

static uint32_t block_crc(const uint8_t *header, const uint8_t *payload, size_t size)
{
    return crc32c(crc32c(0, header, CRC_AT), payload, size);
}

/* ---- writing --------------------------------------------------------------------------------- */

void dump_header_build(const struct dump_table *table, uint8_t out[DUMP_HEADER_BYTES])
{
    struct dump_raw_header raw = {
        .version = DUMP_VERSION,
        .header_bytes = DUMP_HEADER_BYTES,
        .key_size = table->shape.key_size,
        .value_size = table->shape.value_size,
        .key_max = table->shape.key_max,
        .value_inline = table->shape.value_inline,
        .node_bytes = table->shape.node_bytes,
    };
    memcpy(raw.magic, DUMP_MAGIC, sizeof(raw.magic));
    snprintf(raw.name, sizeof(raw.name), "%s", table->name);
    snprintf(raw.engine, sizeof(raw.engine), "%s", table->engine);
    raw.crc = crc32c(0, &raw, offsetof(struct dump_raw_header, crc));
    memcpy(out, &raw, sizeof(raw));
}

static bool reserve(uint8_t **bytes, size_t *capacity, size_t wanted)
{
    if (wanted <= *capacity)
        return true;
    size_t grown = *capacity < 4096 ? 4096 : *capacity;
    while (grown < wanted)
        grown *= 2;
    uint8_t *moved = realloc(*bytes, grown);
    if (moved == NULL)
        return false;
    *bytes = moved;
    *capacity = grown;
    return true;
}

bool dump_block_add(struct dump_block *block, struct slice key, struct slice value)
{
    uint32_t sizes[2] = {(uint32_t)key.size, (uint32_t)value.size};
    size_t more = DUMP_PAIR_HEADER + key.size + value.size;

    pando_assert(key.size <= STORE_KEY_MAX && value.size <= DUMP_VALUE_SHORT);
    if (block->size == 0)
        block->size = DUMP_BLOCK_HEADER;
    if (!reserve(&block->bytes, &block->capacity, block->size + more))
        return false;
    uint8_t *to = block->bytes + block->size;
    memcpy(to, sizes, sizeof(sizes));
    if (key.size > 0)
        memcpy(to + DUMP_PAIR_HEADER, key.data, key.size);
    if (value.size > 0)
        memcpy(to + DUMP_PAIR_HEADER + key.size, value.data, value.size);
    block->size += more;
    block->pairs++;
    return true;
}

bool dump_block_full(const struct dump_block *block)
{
    return block->size >= DUMP_BLOCK_HEADER + DUMP_BLOCK_USUAL;
}

static void set_block_header(uint8_t *bytes, uint32_t kind, size_t payload, uint32_t pairs)
{
    struct dump_raw_block raw = {.kind = kind, .payload_bytes = (uint32_t)payload, .pairs = pairs};
    memcpy(bytes, &raw, sizeof(raw));
    raw.crc = block_crc(bytes, bytes + DUMP_BLOCK_HEADER, payload);
    memcpy(bytes, &raw, sizeof(raw));
}

void dump_block_finish(struct dump_block *block, struct dump_sums *sums)
{
    pando_assert(block->pairs > 0);
    size_t payload = block->size - DUMP_BLOCK_HEADER;
    set_block_header(block->bytes, DUMP_KIND_PAIRS, payload, block->pairs);
    sums->pairs += block->pairs;
    sums->bytes += payload - (uint64_t)block->pairs * DUMP_PAIR_HEADER;
}

bool dump_long_build(struct dump_block *block, struct slice key, uint64_t size,
                     struct dump_sums *sums)
{
    uint32_t words[2] = {(uint32_t)key.size, 0};
    pando_assert(block->pairs == 0 && key.size <= STORE_KEY_MAX);
    if (!reserve(&block->bytes, &block->capacity, DUMP_BLOCK_HEADER + DUMP_LONG_HEADER + key.size))
        return false;
    uint8_t *to = block->bytes + DUMP_BLOCK_HEADER;
    memcpy(to, words, sizeof(words));
    memcpy(to + sizeof(words), &size, sizeof(size));
    if (key.size > 0)
        memcpy(to + DUMP_LONG_HEADER, key.data, key.size);
    block->size = DUMP_BLOCK_HEADER + DUMP_LONG_HEADER + key.size;
    set_block_header(block->bytes, DUMP_KIND_LONG, DUMP_LONG_HEADER + key.size, 1);
    sums->pairs++;
    sums->bytes += key.size + size;
    return true;
}

uint8_t *dump_part_room(struct dump_block *block)
{
    return reserve(&block->bytes, &block->capacity, DUMP_BLOCK_HEADER + DUMP_PART)
               ? block->bytes + DUMP_BLOCK_HEADER
               : NULL;
}

void dump_part_build(struct dump_block *block, size_t size)
{
    pando_assert(size <= DUMP_PART);
    block->size = DUMP_BLOCK_HEADER + size;
    set_block_header(block->bytes, DUMP_KIND_PART, size, 0);
}

void dump_block_reset(struct dump_block *block)
{
    block->size = 0;
    block->pairs = 0;
}

void dump_block_free(struct dump_block *block)
{
    free(block->bytes);
    *block = (struct dump_block){0};
}

void dump_tail_build(const struct dump_sums *sums, uint8_t out[DUMP_TAIL_BLOCK])
{
    uint64_t words[2] = {sums->pairs, sums->bytes};
    memcpy(out + DUMP_BLOCK_HEADER, words, sizeof(words));
    set_block_header(out, DUMP_KIND_TAIL, sizeof(words), 0);
}

/* ---- reading --------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static enum pando_status
fail(struct dump_reader *reader, enum pando_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reader->error, sizeof(reader->error), format, arguments);
    va_end(arguments);
    reader->over = true;
    reader->left = 0;
    return status;
}

static enum pando_status corrupt(struct dump_reader *reader, const char *what)
{
    return fail(reader, PANDO_CORRUPT, "%s, in the block that ends at byte %llu", what,
                (unsigned long long)reader->offset);
}

static bool take_co(struct dump_reader *reader, void *to, size_t size)
{
    size_t got = reader->source(reader->context, to, size);
    pando_assert(got <= size);
    reader->offset += got;
    return got == size;
}

static bool name_ok(const char *name, size_t size)
{
    return name[0] != '\0' && memchr(name, '\0', size) != NULL;
}

enum pando_status dump_read_open_co(struct dump_reader *reader, dump_source_fn source,
                                    void *context)
{
    struct dump_raw_header raw;
    *reader = (struct dump_reader){.source = source, .context = context};
    if (!take_co(reader, &raw, sizeof(raw)) || memcmp(raw.magic, DUMP_MAGIC, 8) != 0)
        return fail(reader, PANDO_CORRUPT, "this is no file of pando dump");
    if (raw.version < DUMP_VERSION_LEAST || raw.version > DUMP_VERSION)
        return fail(reader, PANDO_VERSION, "it has format %u and this program reads %d to %d",
                    raw.version, DUMP_VERSION_LEAST, DUMP_VERSION);
    reader->version = raw.version;
    if (raw.crc != crc32c(0, &raw, offsetof(struct dump_raw_header, crc)))
        return fail(reader, PANDO_CORRUPT, "its header fails its check");
    struct store_shape shape = {.key_size = raw.key_size,
                                .value_size = raw.value_size,
                                .key_max = raw.key_max,
                                .value_inline = raw.value_inline,
                                .node_bytes = raw.node_bytes};
    reader->table.shape = shape;
    if (raw.header_bytes != DUMP_HEADER_BYTES || raw.zero != 0 || raw.zero_2 != 0 ||
        !name_ok(raw.name, sizeof(raw.name)) || !name_ok(raw.engine, sizeof(raw.engine)) ||
        raw.key_max > STORE_KEY_MAX || store_shape_check(&shape) != PANDO_OK)
        return fail(reader, PANDO_CORRUPT, "its header makes no sense");
    memcpy(reader->table.name, raw.name, sizeof(raw.name));
    memcpy(reader->table.engine, raw.engine, sizeof(raw.engine));
    return PANDO_OK;
}

static enum pando_status read_tail(struct dump_reader *reader)
{
    uint64_t words[2];
    uint8_t more;
    memcpy(words, reader->payload, sizeof(words));
    if (words[0] != reader->sums.pairs || words[1] != reader->sums.bytes)
        return fail(reader, PANDO_CORRUPT,
                    "its tail counts %llu pairs and there are %llu: blocks are missing",
                    (unsigned long long)words[0], (unsigned long long)reader->sums.pairs);
    if (take_co(reader, &more, 1))
        return fail(reader, PANDO_CORRUPT, "something follows its end");
    reader->over = true;
    return PANDO_NOT_FOUND;
}

/* Whether a block's header makes sense where it stands. */
static bool block_ok(const struct dump_reader *reader, const struct dump_raw_block *raw)
{
    uint64_t part = reader->long_left < DUMP_PART ? reader->long_left : DUMP_PART;
    if (reader->long_left > 0)
        return raw->kind == DUMP_KIND_PART && raw->pairs == 0 && raw->payload_bytes == part;
    switch (raw->kind) {
    case DUMP_KIND_TAIL:
        return raw->payload_bytes == DUMP_TAIL_BYTES && raw->pairs == 0;
    case DUMP_KIND_LONG:
        return reader->version > 1 && raw->pairs == 1 && raw->payload_bytes >= DUMP_LONG_HEADER &&
               raw->payload_bytes <= DUMP_LONG_HEADER + STORE_KEY_MAX;
    case DUMP_KIND_PAIRS:
        return raw->payload_bytes <= DUMP_PAYLOAD_MAX && raw->pairs != 0 &&
               raw->payload_bytes / DUMP_PAIR_HEADER >= raw->pairs;
    default:
        return false;
    }
}

/* Reads and checks the next block, whichever it is. */
static enum pando_status read_block_co(struct dump_reader *reader, struct dump_raw_block *raw)
{
    if (!take_co(reader, raw, sizeof(*raw)))
        return fail(reader, PANDO_CORRUPT, "it is cut off at byte %llu",
                    (unsigned long long)reader->offset);
    if (!block_ok(reader, raw))
        return corrupt(reader, "a block's header makes no sense");
    if (!reserve(&reader->payload, &reader->payload_capacity, raw->payload_bytes))
        return fail(reader, PANDO_NO_MEMORY, "out of memory");
    if (!take_co(reader, reader->payload, raw->payload_bytes))
        return fail(reader, PANDO_CORRUPT, "it is cut off at byte %llu",
                    (unsigned long long)reader->offset);
    if (raw->crc != block_crc((const uint8_t *)raw, reader->payload, raw->payload_bytes))
        return corrupt(reader, "a block fails its check");
    reader->at = 0;
    reader->end = raw->payload_bytes;
    return PANDO_OK;
}

/* Keys fit the table and rise. */
static enum pando_status take_key(struct dump_reader *reader, struct slice key)
{
    const struct store_shape *shape = &reader->table.shape;
    if (key.size > shape->key_max || (shape->key_size != 0 && key.size != shape->key_size))
        return corrupt(reader, "a pair does not fit the table");
    if (reader->any && slice_compare(key, slice_of(reader->last_key, reader->last_key_size)) <= 0)
        return corrupt(reader, "keys do not rise");
    if (key.size > 0)
        memcpy(reader->last_key, key.data, key.size);
    reader->last_key_size = key.size;
    reader->any = true;
    return PANDO_OK;
}

/* What a LONG block says. */
static enum pando_status read_long(struct dump_reader *reader, struct slice *key,
                                   struct slice *value)
{
    uint32_t words[2];
    uint64_t size;
    memcpy(words, reader->payload, sizeof(words));
    memcpy(&size, reader->payload + sizeof(words), sizeof(size));
    if (words[0] != reader->end - DUMP_LONG_HEADER || words[1] != 0 || size <= DUMP_VALUE_SHORT ||
        size > STORE_VALUE_MAX || reader->table.shape.value_size != 0)
        return corrupt(reader, "a long value makes no sense");
    enum pando_status status =
        take_key(reader, slice_of(reader->payload + DUMP_LONG_HEADER, words[0]));
    if (status != PANDO_OK)
        return status;
    *key = slice_of(reader->last_key, words[0]);
    *value = slice_of(NULL, size);
    reader->long_left = size;
    reader->sums.pairs++;
    reader->sums.bytes += words[0] + size;
    return PANDO_OK;
}

enum pando_status dump_read_part_co(struct dump_reader *reader, struct slice *part)
{
    struct dump_raw_block raw;
    if (reader->over)
        return PANDO_CORRUPT;
    if (reader->long_left == 0)
        return PANDO_NOT_FOUND;
    enum pando_status status = read_block_co(reader, &raw);
    if (status != PANDO_OK)
        return status;
    reader->long_left -= raw.payload_bytes;
    *part = slice_of(reader->payload, raw.payload_bytes);
    return PANDO_OK;
}

/* Reads the next block: of pairs, or of a long value. NOT_FOUND: it was the tail. */
static enum pando_status next_block_co(struct dump_reader *reader, struct slice *key,
                                       struct slice *value, bool *is_long)
{
    struct dump_raw_block raw;
    enum pando_status status = read_block_co(reader, &raw);
    *is_long = status == PANDO_OK && raw.kind == DUMP_KIND_LONG;
    if (status != PANDO_OK)
        return status;
    if (raw.kind == DUMP_KIND_TAIL)
        return read_tail(reader);
    if (*is_long)
        return read_long(reader, key, value);
    reader->left = raw.pairs;
    return PANDO_OK;
}

/* One pair of the block in memory. */
static enum pando_status next_pair(struct dump_reader *reader, struct slice *key,
                                   struct slice *value)
{
    const struct store_shape *shape = &reader->table.shape;
    uint32_t sizes[2];
    if (reader->end - reader->at < DUMP_PAIR_HEADER)
        return corrupt(reader, "a pair is longer than its block");
    memcpy(sizes, reader->payload + reader->at, sizeof(sizes));
    reader->at += DUMP_PAIR_HEADER;
    if (sizes[0] > STORE_KEY_MAX || sizes[1] > DUMP_VALUE_SHORT ||
        reader->end - reader->at < (size_t)sizes[0] + sizes[1])
        return corrupt(reader, "a pair is longer than its block");
    if (shape->value_size != 0 && sizes[1] != shape->value_size)
        return corrupt(reader, "a pair does not fit the table");
    *key = slice_of(reader->payload + reader->at, sizes[0]);
    *value = slice_of(key->data + sizes[0], sizes[1]);
    enum pando_status status = take_key(reader, *key);
    if (status != PANDO_OK)
        return status;
    reader->at += (size_t)sizes[0] + sizes[1];
    reader->left--;
    if (reader->left == 0 && reader->at != reader->end)
        return corrupt(reader, "a block is longer than its pairs");
    reader->sums.pairs++;
    reader->sums.bytes += (uint64_t)sizes[0] + sizes[1];
    return PANDO_OK;
}

enum pando_status dump_read_co(struct dump_reader *reader, struct slice *key, struct slice *value)
{
    struct slice part;
    bool is_long = false;
    if (reader->over)
        return reader->error[0] != '\0' ? PANDO_CORRUPT : PANDO_NOT_FOUND;
    while (reader->long_left > 0) {
        enum pando_status status = dump_read_part_co(reader, &part);
        if (status != PANDO_OK)
            return status;
    }
    if (reader->left == 0) {
        enum pando_status status = next_block_co(reader, key, value, &is_long);
        if (status != PANDO_OK || is_long)
            return status;
    }
    return next_pair(reader, key, value);
}

void dump_read_close(struct dump_reader *reader)
{
    free(reader->payload);
    reader->payload = NULL;
    reader->payload_capacity = 0;
    reader->left = 0;
}
