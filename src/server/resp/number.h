/*
 * number.h - numbers as Redis reads and writes them.
 */
#ifndef SERVER_RESP_NUMBER_H
#define SERVER_RESP_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

enum {
    NUMBER_TEXT_MAX = 24,         /* an int64 */
    NUMBER_FLOAT_TEXT_MAX = 5120, /* a long double without exponent */
};

/* Decimal, no spaces, no plus, no leading zeroes, nothing left over. */
bool number_parse(struct slice text, int64_t *out);

/* Returns the length; no terminating zero. */
size_t number_format(char out[NUMBER_TEXT_MAX], int64_t value);

/* As strtold reads it, but no leading space, nothing left over, no overflow and not "nan". */
bool number_parse_float(struct slice text, long double *out);

/* With up to 17 decimals and without trailing zeroes; never an exponent. */
size_t number_format_float(char out[NUMBER_FLOAT_TEXT_MAX], long double value);

#endif
