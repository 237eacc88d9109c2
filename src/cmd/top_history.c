#include "cmd/top_history.h"

#include <string.h>

enum { HEIGHTS = 8 };

static const char *const block[HEIGHTS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const ascii[HEIGHTS] = {"_", ".", "-", "=", "+", "*", "%", "#"};

void top_history_add(struct top_history *history, const double value[TOP_SERIES])
{
    for (int i = 0; i < TOP_SERIES; i++)
        history->value[i][history->looks % TOP_HISTORY_MAX] = value[i];
    history->looks++;
}

/* The first look that is still remembered. */
static uint64_t first_look(const struct top_history *history)
{
    return history->looks > TOP_HISTORY_MAX ? history->looks - TOP_HISTORY_MAX : 0;
}

/* The largest value of the looks from `begin` to before `end`, as far as they are remembered. */
static double most_of(const struct top_history *history, enum top_series series, uint64_t begin,
                      uint64_t end)
{
    double most = 0;
    uint64_t first = first_look(history);
    for (uint64_t i = begin < first ? first : begin; i < end && i < history->looks; i++) {
        double value = history->value[series][i % TOP_HISTORY_MAX];
        most = value > most ? value : most;
    }
    return most;
}

double top_history_most(const struct top_history *history, enum top_series series)
{
    return most_of(history, series, 0, history->looks);
}

unsigned top_history_bars(const struct top_history *history, enum top_series series, unsigned width,
                          double all, bool blocks, char *out, size_t out_bytes)
{
    const char *const *bars = blocks ? block : ascii;
    unsigned shown = 0;
    size_t used = 0;

    out[0] = '\0';
    if (history->looks == 0 || width < 2)
        return 0;
    /* The same looks share a bar for as long as they are remembered, so bars move and do not change.
     * One bar less than there is room for, as the first may begin in the middle. */
    uint64_t each = (TOP_HISTORY_MAX + width - 2) / (width - 1);
    uint64_t last = (history->looks - 1) / each;
    for (uint64_t i = first_look(history) / each; i <= last && shown < width; i++) {
        double value = most_of(history, series, i * each, (i + 1) * each);
        double share = all > 0 ? value / all : 0;
        int height = share <= 0 ? 0 : (int)(share * HEIGHTS);
        const char *bar = bars[height < HEIGHTS ? height : HEIGHTS - 1];
        size_t size = strlen(bar);
        if (used + size + 1 > out_bytes)
            break;
        memcpy(out + used, bar, size + 1);
        used += size;
        shown++;
    }
    return shown;
}
