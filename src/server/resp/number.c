#include "server/resp/number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool number_parse(struct slice text, int64_t *out)
{
    const uint8_t *at = text.data, *end = text.data + text.size;
    if (text.size == 0 || text.size > 20)
        return false;
    if (text.size == 1 && *at == '0') {
        *out = 0;
        return true;
    }
    bool negative = *at == '-';
    at += negative;
    if (at == end || *at < '1' || *at > '9')
        return false;
    uint64_t value = 0;
    for (; at < end; at++) {
        uint64_t digit = (uint64_t)*at - '0';
        if (*at < '0' || *at > '9' || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    if (value > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

size_t number_format(char out[NUMBER_TEXT_MAX], int64_t value)
{
    char digits[NUMBER_TEXT_MAX];
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    size_t count = 0, size = 0;

    do {
        digits[count++] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (value < 0)
        out[size++] = '-';
    while (count > 0)
        out[size++] = digits[--count];
    return size;
}

bool number_parse_float(struct slice text, long double *out)
{
    char copy[NUMBER_FLOAT_TEXT_MAX], *end;
    if (text.size == 0 || text.size >= sizeof(copy))
        return false;
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    errno = 0;
    long double value = strtold(copy, &end);
    if (isspace((unsigned char)copy[0]) || (size_t)(end - copy) != text.size || isnan(value) ||
        (errno == ERANGE &&
         (value == HUGE_VALL || value == -HUGE_VALL || fpclassify(value) == FP_ZERO)) ||
        errno == EINVAL)
        return false;
    *out = value;
    return true;
}

size_t number_format_float(char out[NUMBER_FLOAT_TEXT_MAX], long double value)
{
    int size = snprintf(out, NUMBER_FLOAT_TEXT_MAX, "%.17Lf", value);
    if (size < 0 || size >= NUMBER_FLOAT_TEXT_MAX)
        return 0;
    if (memchr(out, '.', (size_t)size) != NULL) {
        while (out[size - 1] == '0')
            size--;
        size -= out[size - 1] == '.';
    }
    if (size == 2 && out[0] == '-' && out[1] == '0') {
        out[0] = '0';
        size = 1;
    }
    return (size_t)size;
}
