/*
 * log_limit.h - how many lines a second, or a minute, may be logged of what others can cause at will, so
 * that they cannot fill a disk. Zeroed to begin with; any thread.
 *
 *   if (log_limit_allows(&limit, rt_now_ns(), &unsaid))
 *       log_warn("wrong password", log_u64("unsaid", unsaid));
 */
#ifndef BASE_LOG_LIMIT_H
#define BASE_LOG_LIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { LOG_LIMIT_PER_S = 10 };

struct log_limit {
    _Atomic uint64_t second, lines, unsaid;
};

/* True: log it, with the number of lines that were left out since the last one. Threads that ask in
 * the same instant may get a few lines more. */
static inline bool log_limit_allows(struct log_limit *limit, uint64_t now_ns, uint64_t *unsaid)
{
    uint64_t second = now_ns / UINT64_C(1000000000) + 1;
    if (atomic_exchange(&limit->second, second) != second)
        atomic_store(&limit->lines, 0);
    if (atomic_fetch_add(&limit->lines, 1) >= LOG_LIMIT_PER_S) {
        atomic_fetch_add(&limit->unsaid, 1);
        return false;
    }
    *unsaid = atomic_exchange(&limit->unsaid, 0);
    return true;
}

/* One line a minute: for what goes on until a person does something about it. */
struct log_seldom {
    _Atomic uint64_t not_before_ns, unsaid;
};

/* As log_limit_allows, but true once a minute and to one thread only. */
static inline bool log_seldom_allows(struct log_seldom *seldom, uint64_t now_ns, uint64_t *unsaid)
{
    uint64_t not_before = atomic_load(&seldom->not_before_ns);
    if (now_ns < not_before || !atomic_compare_exchange_strong(&seldom->not_before_ns, &not_before,
                                                               now_ns + UINT64_C(60000000000))) {
        atomic_fetch_add(&seldom->unsaid, 1);
        return false;
    }
    *unsaid = atomic_exchange(&seldom->unsaid, 0);
    return true;
}

#endif
