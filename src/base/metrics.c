#include "base/metrics.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_names[] = {
    [METRICS_COUNTER] = "counter",
    [METRICS_GAUGE] = "gauge",
    [METRICS_SUMMARY] = "summary",
    [METRICS_HISTOGRAM] = "histogram",
};

static bool reserve(struct metrics *metrics, size_t more)
{
    if (metrics->failed)
        return false;
    size_t wanted = metrics->size + more + 1, capacity = metrics->capacity;
    if (wanted <= capacity)
        return true;
    capacity = capacity < 4096 ? 4096 : capacity;
    while (capacity < wanted)
        capacity *= 2;
    char *text = realloc(metrics->text, capacity);
    if (text == NULL) {
        metrics->failed = true;
        return false;
    }
    metrics->text = text;
    metrics->capacity = capacity;
    return true;
}

__attribute__((format(printf, 2, 3))) static void put(struct metrics *metrics, const char *format,
                                                      ...)
{
    enum { LINE_MAX_BYTES = 1024 };
    va_list arguments;
    if (!reserve(metrics, LINE_MAX_BYTES))
        return;
    va_start(arguments, format);
    int size = vsnprintf(metrics->text + metrics->size, LINE_MAX_BYTES, format, arguments);
    va_end(arguments);
    if (size < 0 || size >= LINE_MAX_BYTES)
        metrics->failed = true; /* nothing here is that long */
    else
        metrics->size += (size_t)size;
}

void metrics_fini(struct metrics *metrics)
{
    free(metrics->text);
    *metrics = (struct metrics){0};
}

void metrics_family(struct metrics *metrics, const char *name, enum metrics_type type,
                    const char *help)
{
    put(metrics, "# HELP %s %s\n", name, help);
    put(metrics, "# TYPE %s %s\n", name, type_names[type]);
}

static void put_name(struct metrics *metrics, const char *name, const char *labels)
{
    if (labels == NULL || labels[0] == '\0')
        put(metrics, "%s ", name);
    else
        put(metrics, "%s{%s} ", name, labels);
}

void metrics_u64(struct metrics *metrics, const char *name, const char *labels, uint64_t value)
{
    put_name(metrics, name, labels);
    put(metrics, "%" PRIu64 "\n", value);
}

void metrics_double(struct metrics *metrics, const char *name, const char *labels, double value)
{
    put_name(metrics, name, labels);
    put(metrics, "%.9g\n", value);
}

void metrics_one(struct metrics *metrics, const char *name, enum metrics_type type,
                 const char *help, uint64_t value)
{
    metrics_family(metrics, name, type, help);
    metrics_u64(metrics, name, NULL, value);
}

const char *metrics_escape(const char *value, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (const char *p = value; *p != '\0' && used + 3 < out_bytes; p++) {
        if (*p == '"' || *p == '\\') {
            out[used++] = '\\';
            out[used++] = *p;
        } else if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f) {
            out[used++] = '?'; /* a name may hold anything; a label must be UTF-8 */
        } else {
            out[used++] = *p;
        }
    }
    if (out_bytes > 0)
        out[used] = '\0';
    return out;
}
