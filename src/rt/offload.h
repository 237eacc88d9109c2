/*
 * offload.h - the helper threads behind rt_offload_co on real loops.
 */
#ifndef RT_OFFLOAD_H
#define RT_OFFLOAD_H

#include "rt/rt.h"

enum pando_status rt_offload_real_co(struct rt_loop *loop, rt_fn fn, void *arg);

#endif
