#include "base/parse.h"

#include "base/prng.h"
#include "lib/check.h"

typedef enum pando_status parse_function(const char *text, uint64_t *out);

static void check_parses(parse_function *parse, const char *text, uint64_t expected)
{
    uint64_t value = ~expected;
    enum pando_status status = parse(text, &value);
    if (status != PANDO_OK || value != expected)
        CHECK_FAIL("'%s' gives %s, %" PRIu64 ", not %" PRIu64, text, pando_status_text(status),
                   value, expected);
}

/* The output must stay as it was. */
static void check_rejects(parse_function *parse, enum pando_status expected, const char *text)
{
    uint64_t value = 0x5eed;
    enum pando_status status = parse(text, &value);
    if (status != expected || value != 0x5eed)
        CHECK_FAIL("'%s' gives %s, %" PRIu64, text, pando_status_text(status), value);
}

static void test_u64(void)
{
    struct prng prng;
    char text[32];

    check_parses(parse_u64, "0", 0);
    check_parses(parse_u64, "007", 7);
    check_parses(parse_u64, "18446744073709551615", UINT64_MAX);
    check_rejects(parse_u64, PANDO_RANGE, "18446744073709551616");
    check_rejects(parse_u64, PANDO_RANGE, "184467440737095516150");
    check_rejects(parse_u64, PANDO_RANGE, "99999999999999999999999999999999999999999");
    check_rejects(parse_u64, PANDO_INVALID, "99999999999999999999999x");
    static const char *const garbage[] = {"", " 1", "1 ", "+1", "-1", "0x10", "1.0", "1e3", "x"};
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
        check_rejects(parse_u64, PANDO_INVALID, garbage[i]);

    prng_seed(&prng, 11);
    for (int i = 0; i < 10000; i++) {
        uint64_t value = prng_next(&prng) >> prng_below(&prng, 64);
        snprintf(text, sizeof(text), "%" PRIu64, value);
        check_parses(parse_u64, text, value);
    }
}

static void test_size(void)
{
    static const char *const garbage[] = {
        "",    "G",    ".5G",           "1.G",   "1.5",   "1.5B", "12Q", "1iB",
        "1Ki", "1KBB", "1KiBB",         "1 K",   "-1K",   "1KB ", "1BK", "1bk",
        "1b",  "1PB",  "1.0000000000G", "1..5G", "1.5.G", "1,5G"};

    check_parses(parse_size, "0", 0);
    check_parses(parse_size, "4096", 4096);
    check_parses(parse_size, "512B", 512);
    check_parses(parse_size, "1K", 1024);
    check_parses(parse_size, "1k", 1024);
    check_parses(parse_size, "64M", UINT64_C(64) << 20);
    check_parses(parse_size, "64MB", UINT64_C(64) << 20);
    check_parses(parse_size, "64MiB", UINT64_C(64) << 20);
    check_parses(parse_size, "8G", UINT64_C(8) << 30);
    check_parses(parse_size, "8g", UINT64_C(8) << 30);
    check_parses(parse_size, "1.5G", UINT64_C(3) << 29);
    check_parses(parse_size, "0.5T", UINT64_C(1) << 39);
    check_parses(parse_size, "0.3K", 307);
    check_parses(parse_size, "1.999999999K", 2047);
    check_parses(parse_size, "16777215T", UINT64_C(16777215) << 40);
    /* 2^64 - 2^40 / 10^9, rounded down */
    check_parses(parse_size, "16777215.999999999T", UINT64_MAX - 1099);
    check_parses(parse_size, "18446744073709551615", UINT64_MAX);
    check_rejects(parse_size, PANDO_RANGE, "16777216T");
    check_rejects(parse_size, PANDO_RANGE, "18446744073709551615K");
    check_rejects(parse_size, PANDO_RANGE, "18446744073709551616");
    check_rejects(parse_size, PANDO_RANGE, "18446744073709551616.5K");
    check_rejects(parse_size, PANDO_INVALID, "18446744073709551616Q");
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
        check_rejects(parse_size, PANDO_INVALID, garbage[i]);
}

static void test_duration(void)
{
    static const char *const garbage[] = {"",      "5",   "00",   "s",  "5 s", "5S",   "-5s",
                                          "1.5ns", "5ss", "5min", "5d", "1.s", "5msx", ".5s"};

    check_parses(parse_duration_ns, "0", 0);
    check_parses(parse_duration_ns, "100ns", 100);
    check_parses(parse_duration_ns, "3us", 3000);
    check_parses(parse_duration_ns, "10ms", 10000000);
    check_parses(parse_duration_ns, "5s", UINT64_C(5000000000));
    check_parses(parse_duration_ns, "1.5s", 1500000000);
    check_parses(parse_duration_ns, "0.0015us", 1);
    check_parses(parse_duration_ns, "2m", UINT64_C(120000000000));
    check_parses(parse_duration_ns, "1h", UINT64_C(3600000000000));
    check_parses(parse_duration_ns, "18446744073709551615ns", UINT64_MAX);
    check_rejects(parse_duration_ns, PANDO_RANGE, "18446744073709551616ns");
    check_rejects(parse_duration_ns, PANDO_RANGE, "18446744074s");
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
        check_rejects(parse_duration_ns, PANDO_INVALID, garbage[i]);
}

static void check_address(const char *text, const char *host, const char *port_text, uint16_t port)
{
    struct host_port parsed;
    CHECK_OK(parse_host_port(text, &parsed));
    CHECK_EQ_TEXT(parsed.host, host);
    CHECK_EQ_TEXT(parsed.port_text, port_text);
    CHECK_EQ_U64(parsed.port, port);
}

static void test_host_port(void)
{
    static const char *const garbage[] = {
        "",         ":",        "host",         "host:",      ":7000",
        "host:x",   "host:-1",  "host:70 ",     " host:7000", "ho st:1",
        "::1:7000", "[::1]",    "[::1]:",       "[::1]7000",  "[::1:7000",
        "[]:1",     "[host]:1", "[10.0.0.1]:1", "[::g]:1",    "[fe80::1%]:1",
        "a..b:1",   "-host:1",  "host:1:2",     "http://h:1", "[::1]x:7000"};
    struct host_port untouched = {.port = 77};
    char text[300];

    check_address("localhost:7000", "localhost", "7000", 7000);
    check_address("127.0.0.1:0", "127.0.0.1", "0", 0);
    check_address("node-1.rack_2.example:65535", "node-1.rack_2.example", "65535", 65535);
    check_address("h:0080", "h", "80", 80);
    check_address("[::1]:7000", "::1", "7000", 7000);
    check_address("[::]:7000", "::", "7000", 7000);
    check_address("[fe80::1%eth0]:7000", "fe80::1%eth0", "7000", 7000);

    CHECK_STATUS(parse_host_port("host:65536", &untouched), PANDO_RANGE);
    CHECK_STATUS(parse_host_port("host:99999999999999999999", &untouched), PANDO_RANGE);
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        if (parse_host_port(garbage[i], &untouched) != PANDO_INVALID)
            CHECK_FAIL("'%s' is accepted", garbage[i]);
    }
    CHECK_EQ_U64(untouched.port, 77);

    memset(text, 'a', sizeof(text));
    snprintf(text + HOST_PORT_HOST_MAX, sizeof(text) - HOST_PORT_HOST_MAX, ":1");
    CHECK_OK(parse_host_port(text, &untouched));
    CHECK_EQ_U64(strlen(untouched.host), HOST_PORT_HOST_MAX);
    text[HOST_PORT_HOST_MAX] = 'a';
    snprintf(text + HOST_PORT_HOST_MAX + 1, 10, ":1");
    CHECK_STATUS(parse_host_port(text, &untouched), PANDO_INVALID);
}

static void check_format(uint64_t bytes, const char *expected)
{
    char text[FORMAT_SIZE_MAX];
    CHECK_EQ_TEXT(format_size(text, sizeof(text), bytes), expected);
}

static void test_format_size(void)
{
    check_format(0, "0 B");
    check_format(512, "512 B");
    check_format(1023, "1023 B");
    check_format(1024, "1.0 KiB");
    check_format(1536, "1.5 KiB");
    check_format((1 << 20) - 1, "1.0 MiB");
    check_format(1023 * 1024 + 900, "1023.9 KiB");
    check_format(UINT64_C(8) << 30, "8.0 GiB");
    check_format(UINT64_C(1) << 40, "1.0 TiB");
    check_format(UINT64_MAX, "16.0 EiB");
}

int main(void)
{
    test_u64();
    test_size();
    test_duration();
    test_host_port();
    test_format_size();
    return 0;
}
