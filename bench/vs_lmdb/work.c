#include "work.h"

#include <inttypes.h>
#include <stdio.h>

static void expect_scan(struct work_round *round, uint64_t first, uint64_t records)
{
    uint64_t end = first + WORK_SCAN_PAIRS < records ? first + WORK_SCAN_PAIRS : records;
    round->pairs += end - first;
    for (uint64_t i = first; i < end; i++)
        round->sum += work_value(i);
}

void work_round_draw(struct work_round *round, enum work_job job, struct prng *prng,
                     uint64_t records, uint64_t *keys, size_t count)
{
    *round = (struct work_round){.job = job, .keys = keys, .count = count, .salt = prng_next(prng)};
    for (size_t i = 0; i < count; i++) {
        uint64_t record = prng_below(prng, records);
        keys[i] = work_key(record);
        if (job == WORK_SCAN) {
            expect_scan(round, record, records);
            continue;
        }
        round->pairs++;
        if (job != WORK_UPDATE)
            round->sum += work_value(record);
    }
}

uint64_t work_fingerprint_loaded(uint64_t records)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < records; i++)
        sum += work_fingerprint(work_key(i), work_value(i));
    return sum;
}

bool work_result_check(const struct work_round *round, struct work_result *result, const char *side)
{
    static const char *const names[WORK_JOBS] = {"search", "scan", "update", "batch search"};
    if (result->error[0] != '\0')
        return false;
    if (result->pairs == round->pairs && result->sum == round->sum)
        return true;
    snprintf(result->error, sizeof(result->error),
             "%s: %s: %" PRIu64 " pairs with checksum %016" PRIx64 ", not %" PRIu64
             " with %016" PRIx64 "; its figures mean nothing",
             side, names[round->job], result->pairs, result->sum, round->pairs, round->sum);
    return false;
}
