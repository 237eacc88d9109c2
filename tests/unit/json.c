#include "base/json.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/prng.h"
#include "lib/check.h"

static void test_structure(void)
{
    struct json json;
    size_t size;

    json_init(&json);
    json_begin_object(&json);
    json_key(&json, "empty");
    json_begin_array(&json);
    json_end_array(&json);
    json_key(&json, "list");
    json_begin_array(&json);
    json_u64(&json, UINT64_MAX);
    json_i64(&json, INT64_MIN);
    json_begin_object(&json);
    json_end_object(&json);
    json_begin_object(&json);
    json_key(&json, "a");
    json_bool(&json, true);
    json_key(&json, "b");
    json_bool(&json, false);
    json_end_object(&json);
    json_begin_object(&json);
    json_key(&json, "c");
    json_null(&json);
    json_end_object(&json);
    json_null(&json);
    json_end_array(&json);
    json_key(&json, "k\"ey");
    json_string(&json, "value");
    json_end_object(&json);

    const char *expected = "{\"empty\":[],\"list\":[18446744073709551615,-9223372036854775808,{},"
                           "{\"a\":true,\"b\":false},{\"c\":null},null],\"k\\\"ey\":\"value\"}";
    CHECK_EQ_TEXT(json_finish(&json, &size), expected);
    CHECK_EQ_U64(size, strlen(expected));
    json_fini(&json);
}

static void check_string(struct slice text, const char *expected)
{
    struct json json;
    char quoted[256];

    snprintf(quoted, sizeof(quoted), "\"%s\"", expected);
    json_init(&json);
    json_slice(&json, text);
    CHECK_EQ_TEXT(json_finish(&json, NULL), quoted);
    json_fini(&json);
}

#define REPLACED "\xef\xbf\xbd"

static void test_strings(void)
{
    check_string(slice_of(NULL, 0), "");
    check_string(slice_of_text("plain"), "plain");
    check_string(slice_of("a\0b", 3), "a\\u0000b");
    check_string(slice_of_text("\"\\\b\f\n\r\t\x01\x1f\x7f/"),
                 "\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f/");
    check_string(slice_of_text("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"),
                 "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf");

    /* A lone continuation, a wrong lead, overlong forms, a surrogate, above U+10FFFF, cut short. */
    check_string(slice_of_text("a\x80z"), "a" REPLACED "z");
    check_string(slice_of_text("\xff\xfe"), REPLACED REPLACED);
    check_string(slice_of_text("\xc0\xaf"), REPLACED REPLACED);
    check_string(slice_of_text("\xe0\x9f\xbf"), REPLACED REPLACED REPLACED);
    check_string(slice_of_text("\xf0\x8f\xbf\xbf"), REPLACED REPLACED REPLACED REPLACED);
    check_string(slice_of_text("\xed\xa0\x80"), REPLACED REPLACED REPLACED);
    check_string(slice_of_text("\xf4\x90\x80\x80"), REPLACED REPLACED REPLACED REPLACED);
    check_string(slice_of_text("x\xe2\x82"), "x" REPLACED REPLACED);
    check_string(slice_of_text("\xe2\x82\""), REPLACED REPLACED "\\\"");
}

static void check_double(double value, const char *expected)
{
    struct json json;

    json_init(&json);
    json_double(&json, value);
    CHECK_EQ_TEXT(json_finish(&json, NULL), expected);
    json_fini(&json);
}

static void test_doubles(void)
{
    check_double(0, "0");
    check_double(1.5, "1.5");
    check_double(-0.1, "-0.1");
    check_double(1.0 / 3, "0.333333");
    check_double(123456.4, "123456");
    check_double(999999.7, "1e+06");
    check_double(1234567.4, "1234567");
    check_double(-123456789012345.0, "-123456789012345");
    check_double(1e15, "1e+15");
    check_double(1e-9, "1e-09");
    check_double(DBL_MAX, "1.79769e+308");
    check_double(NAN, "null");
    check_double(INFINITY, "null");
    check_double(-INFINITY, "null");
}

/* Outgrows the first buffer many times over; read back with a reader of its own. */
static void test_growth(void)
{
    struct json json;
    struct prng prng;
    size_t size;

    prng_seed(&prng, 5);
    json_init(&json);
    json_begin_array(&json);
    for (int i = 0; i < 20000; i++)
        json_u64(&json, prng_next(&prng));
    json_end_array(&json);

    const char *text = json_finish(&json, &size);
    CHECK(text != NULL && text[0] == '[' && text[size - 1] == ']' && text[size] == '\0');
    prng_seed(&prng, 5);
    for (int i = 0; i < 20000; i++) {
        char *end;
        CHECK_EQ_U64(strtoull(text + 1, &end, 10), prng_next(&prng));
        CHECK(*end == (i == 19999 ? ']' : ','));
        text = end;
    }
    json_fini(&json);
}

static void nest(struct json *json, int levels)
{
    for (int i = 0; i < levels; i++) {
        if (i % 2 == 0) {
            json_begin_array(json);
        } else {
            json_begin_object(json);
            json_key(json, "k");
        }
    }
}

static void test_deepest(void)
{
    struct json json;

    json_init(&json);
    nest(&json, JSON_DEPTH_MAX - 1);
    json_begin_object(&json);
    json_end_object(&json);
    for (int i = JSON_DEPTH_MAX - 2; i >= 0; i--) {
        if (i % 2 == 0)
            json_end_array(&json);
        else
            json_end_object(&json);
    }
    const char *text = json_finish(&json, NULL);
    CHECK(strncmp(text, "[{\"k\":[{\"k\":[", 13) == 0);
    json_fini(&json);
}

static void misuse_depth(struct json *json)
{
    nest(json, JSON_DEPTH_MAX + 1);
}

static void misuse_value_without_key(struct json *json)
{
    json_begin_object(json);
    json_u64(json, 1);
}

static void misuse_key_in_array(struct json *json)
{
    json_begin_array(json);
    json_key(json, "k");
}

static void misuse_key_without_value(struct json *json)
{
    json_begin_object(json);
    json_key(json, "k");
    json_end_object(json);
}

static void misuse_wrong_end(struct json *json)
{
    json_begin_object(json);
    json_end_array(json);
}

static void misuse_two_values(struct json *json)
{
    json_u64(json, 1);
    json_u64(json, 2);
}

static void misuse_unfinished(struct json *json)
{
    json_begin_array(json);
    json_finish(json, NULL);
}

static void check_aborts(void (*misuse)(struct json *))
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct json json;
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(2);
        json_init(&json);
        misuse(&json);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    test_structure();
    test_strings();
    test_doubles();
    test_growth();
    test_deepest();
    check_aborts(misuse_depth);
    check_aborts(misuse_value_without_key);
    check_aborts(misuse_key_in_array);
    check_aborts(misuse_key_without_value);
    check_aborts(misuse_wrong_end);
    check_aborts(misuse_two_values);
    check_aborts(misuse_unfinished);
    return 0;
}
