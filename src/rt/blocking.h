/*
 * blocking.h - the helper threads behind rt_blocking_co on real loops.
 */
#ifndef RT_BLOCKING_H
#define RT_BLOCKING_H

#include "rt/rt.h"

enum pando_status rt_blocking_real_co(struct rt_loop *loop, rt_fn fn, void *arg);

#endif
