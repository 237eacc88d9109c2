/* Every implementation against a bit-at-a-time one, over alignments, lengths and splits. */
#include "base/crc32c.h"

#include "base/prng.h"
#include "lib/check.h"

#define LENGTH_MAX    4096
#define ALIGNMENT_MAX 16

typedef uint32_t crc_function(uint32_t seed, const void *data, size_t size);

static uint32_t bitwise_step(uint32_t crc, uint8_t byte)
{
    crc ^= byte;
    for (int bit = 0; bit < 8; bit++)
        crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
    return crc;
}

static uint32_t bitwise(uint32_t seed, const uint8_t *data, size_t size)
{
    uint32_t crc = ~seed;
    for (size_t i = 0; i < size; i++)
        crc = bitwise_step(crc, data[i]);
    return ~crc;
}

/* The check value, and the vectors of RFC 3720, appendix B.4. */
static void test_known(crc_function *crc)
{
    uint8_t buffer[32];

    CHECK_EQ_U64(crc(0, "", 0), 0);
    CHECK_EQ_U64(crc(0x12345678, "", 0), 0x12345678);
    CHECK_EQ_U64(crc(0, "123456789", 9), 0xe3069283u);
    memset(buffer, 0, sizeof(buffer));
    CHECK_EQ_U64(crc(0, buffer, sizeof(buffer)), 0x8a9136aau);
    memset(buffer, 0xff, sizeof(buffer));
    CHECK_EQ_U64(crc(0, buffer, sizeof(buffer)), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        buffer[i] = (uint8_t)i;
    CHECK_EQ_U64(crc(0, buffer, sizeof(buffer)), 0x46dd794eu);
    for (int i = 0; i < 32; i++)
        buffer[i] = (uint8_t)(31 - i);
    CHECK_EQ_U64(crc(0, buffer, sizeof(buffer)), 0x113fdb5cu);
}

/* Of three words and what follows them, as of all of it in one piece. */
static void test_after_words(const uint8_t *random)
{
    uint64_t words[3];
    memcpy(words, random, sizeof(words));
    for (size_t length = 0; length + sizeof(words) <= LENGTH_MAX; length++)
        CHECK_EQ_U64(
            crc32c_after_words(words[0], words[1], words[2], random + sizeof(words), length),
            crc32c_portable(0, random, sizeof(words) + length));
}

/* The reference grows with the length, so that all lengths cost one pass per alignment. */
static void test_lengths(crc_function *crc, const uint8_t *random)
{
    static _Alignas(64) uint8_t buffer[LENGTH_MAX + ALIGNMENT_MAX];

    for (size_t alignment = 0; alignment < ALIGNMENT_MAX; alignment++) {
        uint8_t *data = buffer + alignment;
        uint32_t seed = alignment == 0 ? 0 : (uint32_t)hash_u64(alignment);
        uint32_t expected = ~seed;
        memcpy(data, random, LENGTH_MAX);
        for (size_t length = 0; length <= LENGTH_MAX; length++) {
            CHECK_EQ_U64(crc(seed, data, length), ~expected);
            if (length < LENGTH_MAX)
                expected = bitwise_step(expected, data[length]);
        }
    }
}

static void test_chaining(crc_function *crc, const uint8_t *data, size_t size)
{
    struct prng prng;
    uint32_t whole = bitwise(0, data, size);

    prng_seed(&prng, 1);
    CHECK_EQ_U64(crc(0, data, size), whole);
    for (int round = 0; round < 200; round++) {
        size_t first = prng_below(&prng, size + 1);
        size_t second = first + prng_below(&prng, size - first + 1);
        uint32_t value = crc(0, data, first);
        value = crc(value, data + first, second - first);
        value = crc(value, data + second, size - second);
        CHECK_EQ_U64(value, whole);
    }
}

int main(void)
{
    static uint8_t random[3 * LENGTH_MAX + 5];
    size_t count;
    const struct crc32c_implementation *implementations = crc32c_implementations(&count);
    struct prng prng;

    prng_seed(&prng, 42);
    for (size_t i = 0; i < sizeof(random); i++)
        random[i] = (uint8_t)prng_next(&prng);
    for (size_t i = 0; i < count; i++) {
        printf("%s\n", implementations[i].name);
        test_known(implementations[i].function);
        test_lengths(implementations[i].function, random);
        test_chaining(implementations[i].function, random, sizeof(random));
    }
    CHECK(implementations[0].function == crc32c_portable);
    CHECK_EQ_TEXT(implementations[count - 1].name, crc32c_name());
    test_known(crc32c);
    test_lengths(crc32c, random);
    test_after_words(random);
    return 0;
}
