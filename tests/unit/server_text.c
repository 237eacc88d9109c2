/*
 * What the server reads and writes as text: requests, numbers, patterns, stored values.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "server/keyspace.h"
#include "server/resp/number.h"
#include "server/resp/pattern.h"
#include "server/resp/reply.h"
#include "server/resp/resp.h"
#include "server/stats.h"
#include "server/value.h"

static struct slice text(const char *string)
{
    return slice_of_text(string);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void test_integers(void)
{
    static const struct {
        const char *text;
        bool fine;
        int64_t value;
    } cases[] = {
        {"0", true, 0},
        {"-1", true, -1},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"-0", false, 0},
        {"01", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1e3", false, 0},
        {"99999999999999999999999", false, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t value = 0;
        char out[NUMBER_TEXT_MAX];
        pando_assert(number_parse(text(cases[i].text), &value) == cases[i].fine);
        pando_assert(value == cases[i].value);
        if (cases[i].fine) {
            size_t size = number_format(out, value);
            pando_assert(size == strlen(cases[i].text) && memcmp(out, cases[i].text, size) == 0);
        }
    }
}

static void test_floats(void)
{
    static const struct {
        const char *text, *shown; /* NULL: refused */
    } cases[] = {{"3.5", "3.5"},   {"10", "10"},   {"1e3", "1000"}, {"-0", "0"},       {"5.", "5"},
                 {".5", "0.5"},    {"nan", NULL},  {" 1", NULL},    {"1 ", NULL},      {"", NULL},
                 {"1e5000", NULL}, {"0x10", "16"}, {"abc", NULL},   {"-2.25", "-2.25"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        long double value;
        char out[NUMBER_FLOAT_TEXT_MAX];
        bool fine = number_parse_float(text(cases[i].text), &value);
        pando_assert(fine == (cases[i].shown != NULL));
        if (fine) {
            size_t size = number_format_float(out, value);
            pando_assert(size == strlen(cases[i].shown) && memcmp(out, cases[i].shown, size) == 0);
        }
    }
}

/* ---- patterns -------------------------------------------------------------------------------- */

static void test_patterns(void)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"*", "", true},
        {"*", "abc", true},
        {"a*c", "abbbc", true},
        {"a*c", "abbbd", false},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"[abc]x", "bx", true},
        {"[^abc]x", "bx", false},
        {"[a-c]x", "bx", true},
        {"[c-a]x", "bx", true},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"a**b", "ab", true},
        {"*a*b*c", "xxaxxbxxc", true},
        {"*a*b*c", "xxaxxbxx", false},
        {"abc", "abcd", false},
        {"", "", true},
        {"", "a", false},
        {"[", "a", false},
        {"h\\[e\\]llo", "h[e]llo", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        pando_assert(pattern_matches(text(cases[i].pattern), text(cases[i].text)) ==
                     cases[i].matches);
    pando_assert(pattern_prefix(text("user:*")).size == 5);
    pando_assert(pattern_prefix(text("a\\b")).size == 1);
    pando_assert(pattern_prefix(text("abc")).size == 3);
    uint8_t prefix[] = {'a', 0xff, 0xff};
    pando_assert(prefix_end(prefix, 3) == 1 && prefix[0] == 'b');
    uint8_t last[] = {0xff, 0xff};
    pando_assert(prefix_end(last, 2) == 0);
    /* What is slow elsewhere: many stars against a long text that almost matches. */
    char stars[64], long_text[4000];
    memset(long_text, 'a', sizeof(long_text));
    for (size_t i = 0; i < sizeof(stars); i++)
        stars[i] = i % 2 == 0 ? '*' : 'a';
    stars[sizeof(stars) - 1] = 'b';
    pando_assert(
        !pattern_matches(slice_of(stars, sizeof(stars)), slice_of(long_text, sizeof(long_text))));
}

/* ---- stored values --------------------------------------------------------------------------- */

static void test_values(void)
{
    static const uint8_t firsts[] = {0, 'a', 0xf7, 0xf8, 0xf9, 0xff};
    for (size_t i = 0; i < sizeof(firsts); i++) {
        for (uint64_t expire_ms = 0; expire_ms < 2; expire_ms++) {
            uint8_t stored[32], data[] = {firsts[i], 'x'};
            struct value value = {0};
            size_t head = value_head_size(slice_of(data, 2), expire_ms);
            value_head_write(stored, head, expire_ms);
            memcpy(stored + head, data, 2);
            pando_assert(value_read(slice_of(stored, head + 2), &value));
            pando_assert(value.expire_ms == expire_ms);
            pando_assert(slice_equal(value.data, slice_of(data, 2)));
        }
    }
    struct value value;
    uint8_t strange[] = {0xfa, 1, 2}, cut[] = {VALUE_MARK_EXPIRES, 1, 2};
    pando_assert(value_read(slice_of(NULL, 0), &value) && value.data.size == 0);
    pando_assert(!value_read(slice_of(strange, 3), &value));
    pando_assert(!value_read(slice_of(cut, 3), &value));
}

/* ---- replies --------------------------------------------------------------------------------- */

static void expect_reply(struct reply *reply, const char *wanted)
{
    size_t size = bytes_used(&reply->bytes);
    if (size != strlen(wanted) || memcmp(bytes_front(&reply->bytes), wanted, size) != 0) {
        fprintf(stderr, "reply: %.*s\nwanted: %s\n", (int)size,
                (const char *)bytes_front(&reply->bytes), wanted);
        abort();
    }
    reply_rewind(reply, 0);
}

static void test_replies(void)
{
    struct reply reply = {.limit = 4096};
    reply_bulk(&reply, text("abc"));
    reply_null(&reply);
    reply_map(&reply, 1);
    expect_reply(&reply, "$3\r\nabc\r\n$-1\r\n*2\r\n");
    reply.resp3 = true;
    reply_null(&reply);
    reply_map(&reply, 1);
    reply_verbatim(&reply, text("hi"));
    expect_reply(&reply, "_\r\n%1\r\n=6\r\ntxt:hi\r\n");
    reply_error(&reply, "ERR two\r\nlines");
    expect_reply(&reply, "-ERR two  lines\r\n");
    size_t mark = reply_array_begin(&reply);
    reply_integer(&reply, -5);
    reply_array_end(&reply, mark, 1);
    expect_reply(&reply, "*1\r\n:-5\r\n");
    uint8_t *room = reply_bulk_begin(&reply, 10);
    memcpy(room, "xxhello", 7);
    reply_bulk_end(&reply, 2, 5);
    expect_reply(&reply, "$5\r\nhello\r\n");
    static const char large[5000];
    reply_bulk(&reply, slice_of(large, sizeof(large)));
    pando_assert(reply.overflow);
    bytes_fini(&reply.bytes);
}

/* Nobody is told that nothing was changed after something was. */
static void test_failures(void)
{
    for (int status = PANDO_OK + 1; status < PANDO_STATUS_COUNT; status++) {
        for (uint64_t changed = 0; changed < 3; changed++) {
            struct reply reply = {.limit = 4096};
            char said[256] = "", count[32];
            reply_failure_after(&reply, (enum pando_status)status, changed);
            pando_assert(bytes_used(&reply.bytes) < sizeof(said));
            memcpy(said, bytes_front(&reply.bytes), bytes_used(&reply.bytes));
            snprintf(count, sizeof(count), "-UNKNOWN %d keys were changed", (int)changed);
            pando_assert(said[0] == '-');
            pando_assert((strstr(said, count) != NULL) == (changed > 0));
            pando_assert(changed == 0 || strstr(said, "nothing") == NULL);
            /* Whoever may have changed something does not say so either. */
            pando_assert(status != PANDO_UNKNOWN || strstr(said, "nothing") == NULL);
            bytes_fini(&reply.bytes);
        }
    }
    pando_assert(failure_of(PANDO_BROKEN, PANDO_UNKNOWN) == PANDO_UNKNOWN);
    pando_assert(failure_of(PANDO_UNKNOWN, PANDO_BROKEN) == PANDO_UNKNOWN);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void expect_request(const char *bytes, enum resp_result wanted, size_t words,
                           const char *error_wanted)
{
    struct resp_limits limits = {.bulk_max = 1000};
    struct resp_parser parser;
    struct resp_request request = {0};
    char error[RESP_ERROR_MAX] = "";
    size_t size = strlen(bytes);
    uint8_t *copy = malloc(size + 1);
    pando_assert(copy != NULL);
    memcpy(copy, bytes, size);
    resp_init(&parser);
    enum resp_result result = resp_parse(&parser, copy, size, &limits, &request, error);
    pando_assert(result == wanted && request.count == words);
    pando_assert(strcmp(error, error_wanted) == 0);
    resp_fini(&parser);
    free(copy);
}

static void test_requests(void)
{
    expect_request("*1\r\n$4\r\nPING\r\n", RESP_REQUEST, 1, "");
    expect_request("*1\r\n$4\r\nPIN", RESP_MORE, 0, "");
    expect_request("*0\r\n\r\n  \r\nPING a 'b c'\r\n", RESP_REQUEST, 3, "");
    expect_request("*1\r\n$1001\r\n", RESP_WRONG, 0, "Protocol error: invalid bulk length");
    expect_request("*1\r\nx4\r\n", RESP_WRONG, 0, "Protocol error: expected '$', got 'x'");
    expect_request("*1048577\r\n", RESP_WRONG, 0, "Protocol error: invalid multibulk length");
    expect_request("a 'b\r\n", RESP_WRONG, 0, "Protocol error: unbalanced quotes in request");
}

static void test_buckets(void)
{
    for (uint64_t ns = 0; ns < UINT64_C(1) << 41; ns = ns * 5 / 4 + 1) {
        unsigned bucket = stats_bucket(ns);
        uint64_t capped = ns < UINT64_C(1) << 40 ? ns : (UINT64_C(1) << 40) - 1;
        pando_assert(bucket < STATS_BUCKETS && capped <= stats_bucket_limit_ns(bucket));
        pando_assert(bucket == 0 || capped > stats_bucket_limit_ns(bucket - 1));
    }
}

int main(void)
{
    test_integers();
    test_floats();
    test_patterns();
    test_values();
    test_replies();
    test_failures();
    test_requests();
    test_buckets();
    printf("server_text: ok\n");
    return 0;
}
