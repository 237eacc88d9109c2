/*
 * How often the machine takes a core away from a thread that never asks it for anything, and for how long:
 *
 *   stalls SECONDS
 *
 * Prints how many a second were of 5 us or longer, and their median in microseconds, as "rate median". No server's
 * p99 is better than this makes it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/histogram.h"

static const uint64_t NS_PER_S = 1000000000, STALL_NS = 5000;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv)
{
    static struct histogram histogram;
    double seconds = argc == 2 ? strtod(argv[1], NULL) : 0;

    if (!(seconds > 0)) {
        fprintf(stderr, "use: stalls SECONDS\n");
        return 2;
    }
    histogram_init(&histogram);
    uint64_t last_ns = now_ns(), end_ns = last_ns + (uint64_t)(seconds * (double)NS_PER_S);
    while (last_ns < end_ns) {
        uint64_t ns = now_ns();
        if (ns - last_ns >= STALL_NS)
            histogram_add(&histogram, ns - last_ns);
        last_ns = ns;
    }
    printf("%.0f %.1f\n", (double)histogram_count(&histogram) / seconds,
           (double)histogram_quantile(&histogram, 0.5) / 1e3);
    return 0;
}
