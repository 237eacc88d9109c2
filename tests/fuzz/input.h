/*
 * input.h - a fuzzer's input, taken byte by byte; zeroes where it ends.
 */
#ifndef TESTS_FUZZ_INPUT_H
#define TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct input {
    const uint8_t *data;
    size_t size;
};

static inline uint8_t input_byte(struct input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

static inline void input_copy(struct input *input, void *to, size_t size)
{
    size_t here = size < input->size ? size : input->size;
    memset(to, 0, size);
    if (here > 0)
        memcpy(to, input->data, here);
    input->data += here;
    input->size -= here;
}

static inline uint64_t input_word(struct input *input, size_t bytes)
{
    uint64_t word = 0;
    input_copy(input, &word, bytes);
    return word;
}

#endif
