/*
 * bench.h - `pando bench`: its options (bench.c) and its report (bench_report.c). bench/bench.h is what
 * measures.
 */
#ifndef CMD_BENCH_H
#define CMD_BENCH_H

#include <stdio.h>

#include "base/json.h"
#include "bench/bench.h"

int cmd_bench(int argc, char **argv);

/* One line. */
void bench_report_line(FILE *out, const struct env *env, const struct bench_plan *plan,
                       const struct bench_outcome *outcome);
void bench_report_json(struct json *json, const struct env *env, const struct bench_plan *plan,
                       const struct bench_outcome *outcome);

#endif
