/*
 * Arbitrary bytes where `pando top` expects a server's metrics.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/metrics.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const labels[] = {"node", "command", "le", "x"};
    uint8_t *input = malloc(size == 0 ? 1 : size); /* of its exact size */
    struct metrics_sample sample;
    char value[8];
    pando_assert(input != NULL);
    if (size > 0)
        memcpy(input, data, size);
    struct slice text = slice_of(input, size);
    while (metrics_next(&text, &sample)) {
        pando_assert(sample.name.size > 0);
        for (unsigned i = 0; i < 4; i++) {
            if (metrics_label(&sample, labels[i], value, sizeof(value)))
                pando_assert(strnlen(value, sizeof(value)) < sizeof(value));
        }
    }
    free(input);
    return 0;
}
