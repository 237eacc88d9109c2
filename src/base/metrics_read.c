/*
 * The reading side of metrics.h.
 */
#include <stdlib.h>
#include <string.h>

#include "base/metrics.h"

enum { NUMBER_MAX = 64 };

static bool is_name(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
}

static void skip(struct slice *slice, size_t size)
{
    slice->data += size;
    slice->size -= size;
}

/* Up to the brace that closes the labels; false: there is none. Braces may stand inside quotes. */
static bool take_labels(struct slice *line, struct slice *labels)
{
    bool quoted = false;
    skip(line, 1);
    for (size_t i = 0; i < line->size; i++) {
        uint8_t c = line->data[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (c == '}' && !quoted) {
            *labels = slice_of(line->data, i);
            skip(line, i + 1);
            return true;
        }
    }
    return false;
}

static bool parse_line(struct slice line, struct metrics_sample *out)
{
    char number[NUMBER_MAX];
    char *end;
    size_t name = 0;

    *out = (struct metrics_sample){0};
    while (name < line.size && is_name(line.data[name]))
        name++;
    if (name == 0 || name == line.size)
        return false;
    out->name = slice_of(line.data, name);
    skip(&line, name);
    if (line.data[0] == '{' && !take_labels(&line, &out->labels))
        return false;
    if (line.size < 2 || line.data[0] != ' ' || line.size - 1 >= sizeof(number))
        return false;
    memcpy(number, line.data + 1, line.size - 1);
    number[line.size - 1] = '\0';
    out->value = strtod(number, &end);
    return end != number && *end == '\0';
}

bool metrics_next(struct slice *text, struct metrics_sample *out)
{
    while (text->size > 0) {
        const uint8_t *end = memchr(text->data, '\n', text->size);
        size_t size = end == NULL ? text->size : (size_t)(end - text->data);
        struct slice line = slice_of(text->data, size);
        skip(text, end == NULL ? size : size + 1);
        if (parse_line(line, out))
            return true;
    }
    return false;
}

bool metrics_is(const struct metrics_sample *sample, const char *name)
{
    return slice_equal(sample->name, slice_of_text(name));
}

/* The text in quotes that the slice begins with; its size with the quotes, or 0. */
static size_t unquote(struct slice from, char *out, size_t out_bytes)
{
    size_t used = 0;
    if (from.size == 0 || from.data[0] != '"')
        return 0;
    for (size_t i = 1; i < from.size; i++) {
        uint8_t c = from.data[i];
        if (c == '"') {
            if (out_bytes > 0)
                out[used] = '\0';
            return i + 1;
        }
        if (c == '\\' && i + 1 < from.size) {
            c = from.data[++i];
            c = c == 'n' ? '\n' : c;
        }
        if (used + 1 < out_bytes)
            out[used++] = (char)c;
    }
    return 0;
}

bool metrics_label(const struct metrics_sample *sample, const char *label, char *out,
                   size_t out_bytes)
{
    struct slice rest = sample->labels;
    char ignored[1];
    while (rest.size > 0) {
        size_t name = 0;
        while (name < rest.size && is_name(rest.data[name]))
            name++;
        if (name == rest.size || rest.data[name] != '=')
            return false;
        bool wanted = slice_equal(slice_of(rest.data, name), slice_of_text(label));
        skip(&rest, name + 1);
        size_t value = unquote(rest, wanted ? out : ignored, wanted ? out_bytes : sizeof(ignored));
        if (value == 0 || wanted)
            return value > 0;
        skip(&rest, value);
        if (rest.size > 0 && rest.data[0] == ',')
            skip(&rest, 1);
    }
    return false;
}
