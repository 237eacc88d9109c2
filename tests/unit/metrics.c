/*
 * Writing and reading the text format of Prometheus.
 */
#include "base/metrics.h"
#include "lib/check.h"

static void test_write(void)
{
    struct metrics metrics = {0};
    char escaped[32];
    metrics_one(&metrics, "a_total", METRICS_COUNTER, "A count.", UINT64_MAX);
    metrics_family(&metrics, "b", METRICS_GAUGE, "Two.");
    metrics_double(&metrics, "b", "x=\"1\"", 0.25);
    char labels[64];
    snprintf(labels, sizeof(labels), "x=\"%s\"",
             metrics_escape("q\"b\\n\n\xff}", escaped, sizeof(escaped)));
    metrics_u64(&metrics, "b", labels, 2);
    CHECK(!metrics.failed);
    CHECK_EQ_TEXT(metrics.text, "# HELP a_total A count.\n# TYPE a_total counter\n"
                                "a_total 18446744073709551615\n"
                                "# HELP b Two.\n# TYPE b gauge\nb{x=\"1\"} 0.25\n"
                                "b{x=\"q\\\"b\\\\n??}\"} 2\n");
    metrics_fini(&metrics);
    CHECK_EQ_TEXT(metrics_escape("abcdefgh", escaped, 6), "abc");
}

static void test_read(void)
{
    struct slice text =
        slice_of_text("# HELP a A.\n# TYPE a counter\na 1\n\nb{x=\"1\",y=\"}\\\"\"} 2.5\n"
                      "broken{x=\"1\n{} 1\nc{} +Inf\nd 1 2\ne notanumber\nf{x=1} 3\nlast 7");
    struct metrics_sample sample;
    char value[16];

    CHECK(metrics_next(&text, &sample) && metrics_is(&sample, "a") && sample.value == 1);
    CHECK(!metrics_label(&sample, "x", value, sizeof(value)));
    CHECK(metrics_next(&text, &sample) && metrics_is(&sample, "b") && sample.value == 2.5);
    CHECK(metrics_label(&sample, "x", value, sizeof(value)));
    CHECK_EQ_TEXT(value, "1");
    CHECK(metrics_label(&sample, "y", value, sizeof(value)));
    CHECK_EQ_TEXT(value, "}\"");
    CHECK(metrics_label(&sample, "y", value, 2));
    CHECK_EQ_TEXT(value, "}");
    CHECK(!metrics_label(&sample, "z", value, sizeof(value)));
    CHECK(metrics_next(&text, &sample) && metrics_is(&sample, "c") && sample.value > 1e308);
    CHECK(metrics_next(&text, &sample) && metrics_is(&sample, "f"));
    CHECK(!metrics_label(&sample, "x", value, sizeof(value)));
    CHECK(metrics_next(&text, &sample) && metrics_is(&sample, "last") && sample.value == 7);
    CHECK(!metrics_next(&text, &sample));
}

int main(void)
{
    test_write();
    test_read();
    return 0;
}
