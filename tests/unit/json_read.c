/*
 * Reading JSON: what is right comes out, what is wrong is refused, and nothing is read past the end.
 */
#include "base/json_read.h"

#include <stdlib.h>

#include "base/json.h"
#include "lib/check.h"

static bool skips(const char *text)
{
    struct json_reader reader;
    size_t size = strlen(text);
    char *copy = malloc(size + 1); /* of its exact size, for sanitizers */
    CHECK(copy != NULL);
    copy = realloc(copy, size == 0 ? 1 : size);
    CHECK(copy != NULL);
    memcpy(copy, text, size);
    json_read_init(&reader, copy, size);
    bool skipped = json_read_skip(&reader) && json_read_end(&reader);
    free(copy);
    return skipped;
}

static void test_skip(void)
{
    const char *good[] = {"0",     "-1.5e+3",         "true",         "null",
                          "\"\"",  "\"\\u0041\\n\"",  "{}",           "[]",
                          " [ ] ", "[1,[2,{}],\"\"]", "{\"a\":[{}]}", "{\"\":1 , \"b\":2}"};
    const char *bad[] = {"",
                         "[",
                         "]",
                         "[1,]",
                         "[,1]",
                         "[1 2]",
                         "{1:2}",
                         "{\"a\"}",
                         "{\"a\":}",
                         "{\"a\":1,}",
                         "{\"a\":1 \"b\":2}",
                         "\"",
                         "\"\\",
                         "\"\\x\"",
                         "\"\\u12",
                         "\"\n\"",
                         "tru",
                         "1 2",
                         "[}",
                         "{]",
                         "[[]"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        if (!skips(good[i]))
            CHECK_FAIL("%s is refused", good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (skips(bad[i]))
            CHECK_FAIL("%s is taken", bad[i]);
    }
    char deep[2 * JSON_DEPTH_MAX + 3] = "";
    for (int depth = 1; depth <= JSON_DEPTH_MAX + 1; depth++) {
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        deep[2 * depth] = '\0';
        CHECK(skips(deep) == (depth <= JSON_DEPTH_MAX));
    }
}

static bool string_of(const char *text, char *out, size_t out_bytes)
{
    struct json_reader reader;
    json_read_init(&reader, text, strlen(text));
    return json_read_string(&reader, out, out_bytes) && json_read_end(&reader);
}

static void test_strings(void)
{
    static const char *const pairs[][2] = {
        {"\"abc\"", "abc"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"", "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\"\\ud83dx\"", "\xef\xbf\xbdx"},
        {"\"\\ud83d\\u0041\"", "\xef\xbf\xbd"
                               "A"},
        {"\"\xff\"", "\xff"},
    };
    char out[32];
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        CHECK(string_of(pairs[i][0], out, sizeof(out)));
        CHECK_EQ_TEXT(out, pairs[i][1]);
    }
    CHECK(string_of("\"abc\"", out, 4) && !string_of("\"abcd\"", out, 4));
    CHECK(!string_of("\"\\u0000\"", out, sizeof(out)) && !string_of("\"a", out, sizeof(out)));
}

static bool number_of(const char *text, uint64_t *out)
{
    struct json_reader reader;
    json_read_init(&reader, text, strlen(text));
    return json_read_u64(&reader, out) && json_read_end(&reader);
}

static void test_numbers(void)
{
    uint64_t value = 1;
    CHECK(number_of("0", &value) && value == 0);
    CHECK(number_of("18446744073709551615", &value) && value == UINT64_MAX);
    const char *bad[] = {"18446744073709551616", "-1", "1.5", "1e3", "01", "", "x", "\"1\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!number_of(bad[i], &value));
}

/* What the writer writes. */
static void test_members(void)
{
    struct json json;
    struct json_reader reader;
    char key[8];
    uint64_t value = 0, sum = 0;
    size_t size;
    json_init(&json);
    json_begin_object(&json);
    json_key(&json, "skip");
    json_double(&json, -1.5);
    json_key(&json, "list");
    json_begin_array(&json);
    for (uint64_t i = 1; i <= 3; i++)
        json_u64(&json, i);
    json_end_array(&json);
    json_end_object(&json);
    const char *text = json_finish(&json, &size);
    CHECK(text != NULL);
    json_read_init(&reader, text, size);
    CHECK(json_read_begin(&reader, '{'));
    CHECK(json_read_member(&reader, key, sizeof(key)) && strcmp(key, "skip") == 0);
    CHECK(json_read_skip(&reader));
    CHECK(json_read_member(&reader, key, sizeof(key)) && strcmp(key, "list") == 0);
    CHECK(json_read_begin(&reader, '['));
    while (json_read_element(&reader) && json_read_u64(&reader, &value))
        sum += value;
    CHECK(sum == 6 && !json_read_member(&reader, key, sizeof(key)) && json_read_end(&reader));
    CHECK(json_read_offset(&reader) == size);
    json_fini(&json);
}

int main(void)
{
    test_skip();
    test_strings();
    test_numbers();
    test_members();
    return 0;
}
