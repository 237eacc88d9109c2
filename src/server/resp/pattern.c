#include "server/resp/pattern.h"

/* One [...] at *at (behind the bracket) against a byte; *at moves behind it. */
static bool class_matches(struct slice pattern, size_t *at, uint8_t byte)
{
    size_t i = *at;
    bool negated = i < pattern.size && pattern.data[i] == '^';
    bool found = false;

    i += negated;
    for (; i < pattern.size && pattern.data[i] != ']'; i++) {
        uint8_t low = pattern.data[i];
        if (low == '\\' && i + 1 < pattern.size) {
            found |= pattern.data[++i] == byte;
        } else if (i + 2 < pattern.size && pattern.data[i + 1] == '-') {
            uint8_t high = pattern.data[i + 2];
            if (low > high) {
                uint8_t swapped = low;
                low = high;
                high = swapped;
            }
            i += 2;
            found |= byte >= low && byte <= high;
        } else {
            found |= low == byte;
        }
    }
    *at = i < pattern.size ? i + 1 : i; /* an open class ends with the pattern */
    return found != negated;
}

/* One byte of text against what is at *at of the pattern, which is not '*'. */
static bool step(struct slice pattern, size_t *at, uint8_t byte)
{
    uint8_t special = pattern.data[(*at)++];
    switch (special) {
    case '?':
        return true;
    case '[':
        return class_matches(pattern, at, byte);
    case '\\':
        if (*at < pattern.size)
            special = pattern.data[(*at)++];
        return special == byte;
    default:
        return special == byte;
    }
}

/* Only the last star matters when something fails behind it: no recursion. */
bool pattern_matches(struct slice pattern, struct slice text)
{
    size_t in_pattern = 0, in_text = 0;
    size_t star = 0, star_text = 0; /* behind the last star, and where it began to match */
    bool starred = false;

    while (in_text < text.size) {
        if (in_pattern < pattern.size && pattern.data[in_pattern] == '*') {
            star = ++in_pattern;
            star_text = in_text;
            starred = true;
            if (star == pattern.size)
                return true;
            continue;
        }
        if (in_pattern < pattern.size && step(pattern, &in_pattern, text.data[in_text])) {
            in_text++;
            continue;
        }
        if (!starred)
            return false;
        in_pattern = star;
        in_text = ++star_text;
    }
    while (in_pattern < pattern.size && pattern.data[in_pattern] == '*')
        in_pattern++;
    return in_pattern == pattern.size;
}

struct slice pattern_prefix(struct slice pattern)
{
    size_t size = 0;
    for (; size < pattern.size; size++) {
        uint8_t byte = pattern.data[size];
        if (byte == '*' || byte == '?' || byte == '[' || byte == '\\')
            break;
    }
    return slice_of(pattern.data, size);
}

size_t prefix_end(uint8_t *prefix, size_t size)
{
    while (size > 0 && prefix[size - 1] == 0xff)
        size--;
    if (size > 0)
        prefix[size - 1]++;
    return size;
}

bool pattern_matches_folded(struct slice pattern, struct slice text)
{
    uint8_t folded[64];
    if (pattern.size > sizeof(folded))
        return false;
    for (size_t i = 0; i < pattern.size; i++)
        folded[i] = pattern.data[i] >= 'A' && pattern.data[i] <= 'Z' ? pattern.data[i] | 0x20
                                                                     : pattern.data[i];
    return pattern_matches(slice_of(folded, pattern.size), text);
}
