/*
 * The file of `pando dump`: what was written is read, every damaged byte is noticed, and so is every
 * place where a file is cut off.
 */
#include "store/dump.h"
#include "base/crc32c.h"
#include "base/prng.h"
#include "lib/check.h"

struct file {
    uint8_t *bytes;
    size_t size, capacity, at;
};

static void append(struct file *file, const void *bytes, size_t size)
{
    if (file->size + size > file->capacity) {
        file->capacity = 2 * (file->size + size);
        file->bytes = realloc(file->bytes, file->capacity);
        CHECK(file->bytes != NULL);
    }
    memcpy(file->bytes + file->size, bytes, size);
    file->size += size;
}

static size_t take(void *context, uint8_t *to, size_t size)
{
    struct file *file = context;
    size_t got = size < file->size - file->at ? size : file->size - file->at;
    memcpy(to, file->bytes + file->at, got);
    file->at += got;
    return got;
}

static const struct dump_table variable = {
    .shape = {.key_max = 64, .value_inline = 64, .node_bytes = 2048},
    .name = "users",
    .engine = "sherman",
};

/* Key `i` of a file, and its value: the value is longer than a block now and then. */
static struct slice key_of(unsigned i, uint8_t out[16])
{
    return slice_of(out, (size_t)snprintf((char *)out, 16, "%08u%s", i, i % 3 == 0 ? "x" : ""));
}

static size_t value_size(unsigned i, size_t most)
{
    return i % 100 == 99 ? most : i % 40;
}

static void write_file(struct file *file, unsigned pairs, size_t most)
{
    static uint8_t value[DUMP_VALUE_SHORT];
    uint8_t header[DUMP_HEADER_BYTES], tail[DUMP_TAIL_BLOCK], key[16];
    struct dump_block block = {0};
    struct dump_sums sums = {0};

    dump_header_build(&variable, header);
    append(file, header, sizeof(header));
    for (unsigned i = 0; i < pairs; i++) {
        memset(value, (int)i, value_size(i, most));
        CHECK(dump_block_add(&block, key_of(i, key), slice_of(value, value_size(i, most))));
        if (dump_block_full(&block) || i % 1000 == 37 || i + 1 == pairs) {
            dump_block_finish(&block, &sums);
            append(file, block.bytes, block.size);
            dump_block_reset(&block);
        }
    }
    CHECK_EQ_U64(sums.pairs, pairs);
    dump_tail_build(&sums, tail);
    append(file, tail, sizeof(tail));
    dump_block_free(&block);
}

/* Reads all of it; NOT_FOUND is the good end. */
static enum pando_status read_file(struct file *file, unsigned *pairs, size_t most, char error[160])
{
    struct dump_reader reader;
    struct slice key, value;
    uint8_t expected[16];
    file->at = 0;
    *pairs = 0;
    enum pando_status status = dump_read_open_co(&reader, take, file);
    while (status == PANDO_OK) {
        status = dump_read_co(&reader, &key, &value);
        if (status != PANDO_OK)
            break;
        CHECK(slice_equal(key, key_of(*pairs, expected)));
        CHECK_EQ_U64(value.size, value_size(*pairs, most));
        if (value.size > 0)
            CHECK(value.data[0] == (uint8_t)*pairs &&
                  value.data[value.size - 1] == (uint8_t)*pairs);
        (*pairs)++;
    }
    memcpy(error, reader.error, sizeof(reader.error));
    if (status == PANDO_NOT_FOUND) {
        CHECK_EQ_TEXT(reader.table.name, "users");
        CHECK_EQ_TEXT(reader.table.engine, "sherman");
        CHECK(memcmp(&reader.table.shape, &variable.shape, sizeof(variable.shape)) == 0);
    }
    dump_read_close(&reader);
    return status;
}

static void test_round_trip(unsigned pairs, size_t most)
{
    struct file file = {0};
    unsigned count;
    char error[160];
    write_file(&file, pairs, most);
    CHECK_STATUS(read_file(&file, &count, most, error), PANDO_NOT_FOUND);
    CHECK_EQ_U64(count, pairs);
    CHECK_EQ_TEXT(error, "");
    free(file.bytes);
}

static void test_damage(void)
{
    struct file file = {0};
    unsigned count;
    char error[160];
    write_file(&file, 120, 300);
    for (size_t i = 0; i < file.size; i++) {
        file.bytes[i] ^= 0x10;
        enum pando_status status = read_file(&file, &count, 300, error);
        if (status != PANDO_CORRUPT && status != PANDO_VERSION)
            CHECK_FAIL("byte %zu of %zu was changed and nobody noticed", i, file.size);
        CHECK(error[0] != '\0');
        file.bytes[i] ^= 0x10;
    }
    size_t whole = file.size;
    for (file.size = 0; file.size < whole; file.size++) {
        if (read_file(&file, &count, 300, error) != PANDO_CORRUPT)
            CHECK_FAIL("cut off after %zu of %zu bytes and nobody noticed", file.size, whole);
    }
    append(&file, "x", 1);
    CHECK_STATUS(read_file(&file, &count, 300, error), PANDO_CORRUPT);
    CHECK(strstr(error, "follows") != NULL);
    free(file.bytes);
}

/* Blocks that are whole, but missing or twice. */
static void test_blocks(void)
{
    struct file file = {0}, other = {0};
    struct dump_raw_block raw;
    unsigned count;
    char error[160];
    write_file(&file, 120, 300); /* blocks of 38 and 82 pairs, and the tail */
    memcpy(&raw, file.bytes + DUMP_HEADER_BYTES, sizeof(raw));
    CHECK_EQ_U64(raw.pairs, 38);
    size_t first_end = DUMP_HEADER_BYTES + DUMP_BLOCK_HEADER + raw.payload_bytes;

    append(&other, file.bytes, first_end);
    append(&other, file.bytes + file.size - DUMP_TAIL_BLOCK, DUMP_TAIL_BLOCK);
    CHECK_STATUS(read_file(&other, &count, 300, error), PANDO_CORRUPT);
    CHECK(strstr(error, "missing") != NULL);

    other.size = 0;
    append(&other, file.bytes, first_end);
    append(&other, file.bytes + DUMP_HEADER_BYTES, first_end - DUMP_HEADER_BYTES);
    CHECK_STATUS(read_file(&other, &count, 300, error), PANDO_CORRUPT);
    CHECK(strstr(error, "rise") != NULL);
    free(file.bytes);
    free(other.bytes);
}

/* A block that says it is enormous must not be believed before its bytes are there. */
static void test_huge_block(void)
{
    struct file file = {0};
    struct dump_raw_block raw = {
        .kind = DUMP_KIND_PAIRS, .payload_bytes = DUMP_PAYLOAD_MAX + 1, .pairs = 1};
    uint8_t header[DUMP_HEADER_BYTES];
    unsigned count;
    char error[160];
    dump_header_build(&variable, header);
    append(&file, header, sizeof(header));
    append(&file, &raw, sizeof(raw));
    CHECK_STATUS(read_file(&file, &count, 300, error), PANDO_CORRUPT);
    CHECK(strstr(error, "no sense") != NULL);
    free(file.bytes);
}

/* ---- long values ------------------------------------------------------------------------------ */

enum { LONG_BYTES = DUMP_VALUE_SHORT + 3 * DUMP_PART / 2 };

static uint8_t long_byte(uint64_t at)
{
    return (uint8_t)(at * 7 + at / 1000);
}

/* Three pairs, the second of which has a long value. */
static void write_long_file(struct file *file)
{
    uint8_t header[DUMP_HEADER_BYTES], tail[DUMP_TAIL_BLOCK];
    struct dump_block block = {0};
    struct dump_sums sums = {0};

    dump_header_build(&variable, header);
    append(file, header, sizeof(header));
    for (int i = 0; i < 3; i++) {
        struct slice key = slice_of("abc" + i, 1);
        if (i != 1) {
            CHECK(dump_block_add(&block, key, slice_of_text("short")));
            dump_block_finish(&block, &sums);
            append(file, block.bytes, block.size);
            dump_block_reset(&block);
            continue;
        }
        CHECK(dump_long_build(&block, key, LONG_BYTES, &sums));
        append(file, block.bytes, block.size);
        for (uint64_t at = 0; at < LONG_BYTES; at += DUMP_PART) {
            uint8_t *room = dump_part_room(&block);
            size_t size = LONG_BYTES - at < DUMP_PART ? LONG_BYTES - at : DUMP_PART;
            for (size_t j = 0; j < size; j++)
                room[j] = long_byte(at + j);
            dump_part_build(&block, size);
            append(file, block.bytes, block.size);
        }
        dump_block_reset(&block);
    }
    dump_tail_build(&sums, tail);
    append(file, tail, sizeof(tail));
    dump_block_free(&block);
}

/* Reads all of it, or as much as is sound; with `skip` the parts are left to the reader. */
static enum pando_status read_long_file(struct file *file, bool skip, char error[160])
{
    struct dump_reader reader;
    struct slice key, value, part;
    file->at = 0;
    enum pando_status status = dump_read_open_co(&reader, take, file);
    for (int i = 0; status == PANDO_OK; i++) {
        status = dump_read_co(&reader, &key, &value);
        if (status != PANDO_OK)
            break;
        CHECK(i < 3 && slice_equal(key, slice_of("abc" + i, 1)));
        CHECK(i == 1 ? value.data == NULL && value.size == LONG_BYTES
                     : slice_equal(value, slice_of_text("short")));
        for (uint64_t at = 0; i == 1 && !skip && at < LONG_BYTES && status == PANDO_OK;) {
            status = dump_read_part_co(&reader, &part);
            for (size_t j = 0; status == PANDO_OK && j < part.size; j += 509)
                CHECK(part.data[j] == long_byte(at + j));
            at += part.size;
        }
        CHECK(reader.payload_capacity <= 2 * DUMP_PART);
    }
    memcpy(error, reader.error, sizeof(reader.error));
    dump_read_close(&reader);
    return status;
}

static void set_version(struct file *file, uint32_t version)
{
    struct dump_raw_header raw;
    memcpy(&raw, file->bytes, sizeof(raw));
    raw.version = version;
    raw.crc = crc32c(0, &raw, offsetof(struct dump_raw_header, crc));
    memcpy(file->bytes, &raw, sizeof(raw));
}

static void test_long(void)
{
    struct file file = {0};
    char error[160];
    write_long_file(&file);
    CHECK_STATUS(read_long_file(&file, false, error), PANDO_NOT_FOUND);
    CHECK_STATUS(read_long_file(&file, true, error), PANDO_NOT_FOUND);
    for (size_t i = DUMP_HEADER_BYTES; i < file.size; i += i < 400 ? 1 : 250007) {
        file.bytes[i] ^= 0x10;
        CHECK_STATUS(read_long_file(&file, i % 2 == 0, error), PANDO_CORRUPT);
        file.bytes[i] ^= 0x10;
    }
    size_t whole = file.size;
    for (file.size = 200; file.size < whole; file.size += file.size < 400 ? 1 : 250007)
        CHECK_STATUS(read_long_file(&file, false, error), PANDO_CORRUPT);
    file.size = whole;
    /* Format 1 has no long values; all else is the same, and is read. */
    set_version(&file, 1);
    CHECK_STATUS(read_long_file(&file, false, error), PANDO_CORRUPT);
    CHECK(strstr(error, "no sense") != NULL);
    set_version(&file, 3);
    CHECK_STATUS(read_long_file(&file, false, error), PANDO_VERSION);
    free(file.bytes);
}

static void test_format_1(void)
{
    struct file file = {0};
    unsigned count;
    char error[160];
    write_file(&file, 1000, 300);
    set_version(&file, 1);
    CHECK_STATUS(read_file(&file, &count, 300, error), PANDO_NOT_FOUND);
    CHECK_EQ_U64(count, 1000);
    free(file.bytes);
}

int main(void)
{
    test_long();
    test_format_1();
    test_round_trip(0, 100);
    test_round_trip(1, 100);
    test_round_trip(10000, 100000);
    test_round_trip(100, DUMP_VALUE_SHORT);
    test_damage();
    test_blocks();
    test_huge_block();
    return 0;
}
