#include "cmd/progress.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"

enum { BAR = 24 };
static const uint64_t BETWEEN_NS = 100 * RT_NS_PER_MS;

void progress_begin(struct progress *progress, const char *what)
{
    *progress = (struct progress){
        .what = what, .terminal = isatty(STDERR_FILENO) == 1, .begin_ns = rt_machine_ns()};
}

void progress_show(struct progress *progress, double fraction, uint64_t pairs, uint64_t bytes)
{
    char bar[BAR + 1], percent[8] = "   ?", size[FORMAT_SIZE_MAX], rate[FORMAT_SIZE_MAX];
    uint64_t now_ns = rt_machine_ns();
    if (!progress->terminal || now_ns - progress->drawn_ns < BETWEEN_NS)
        return;
    progress->drawn_ns = now_ns;
    double seconds = (double)(now_ns - progress->begin_ns) / 1e9;
    fraction = fraction > 1 ? 1 : fraction;
    int full = fraction < 0 ? 0 : (int)(fraction * BAR);
    memset(bar, '#', (size_t)full);
    memset(bar + full, '.', (size_t)(BAR - full));
    bar[BAR] = '\0';
    if (fraction >= 0)
        snprintf(percent, sizeof(percent), "%3d%%", (int)(fraction * 100));
    fprintf(stderr, "\r%s [%s] %s %" PRIu64 " pairs %s %s/s\033[K", progress->what, bar, percent,
            pairs, format_size(size, sizeof(size), bytes),
            format_size(rate, sizeof(rate), seconds > 0 ? (uint64_t)((double)bytes / seconds) : 0));
    fflush(stderr);
}

uint64_t progress_end_ns(struct progress *progress)
{
    if (progress->terminal && progress->drawn_ns != 0)
        fprintf(stderr, "\r\033[K");
    return rt_machine_ns() - progress->begin_ns;
}
