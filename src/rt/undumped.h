/*
 * undumped.h - memory that core dumps leave out: secrets, keys, and the data of users.
 *
 * Processes stay dumpable (PR_SET_DUMPABLE) on purpose. Without that a crash of a server would leave
 * nothing to look at, its own user could neither attach a debugger nor read its /proc, and for the
 * library it would be a setting of an application that has not asked for it. So a core has stacks
 * and what the program keeps, but neither of what is below; docs/ARCHITECTURE.md says what is left.
 * All of it is a hint to the kernel and does not fail for its sake. Any thread.
 */
#ifndef RT_UNDUMPED_H
#define RT_UNDUMPED_H

#include <stddef.h>

/* Leaves memory out, with all pages that it touches: what lies beside it, or there after it was
 * freed, is then missing as well. */
void rt_undumped(const void *memory, size_t bytes);

/* An allocator whose memory is all left out, for keys of a library that takes one. Its blocks are
 * aligned to 16. NULL: no memory. What is freed is used again and not given back to the system, but
 * for blocks of more than 64 KiB. */
void *rt_undumped_alloc(size_t bytes);
void *rt_undumped_realloc(void *block, size_t bytes);
void rt_undumped_free(void *block);

#endif
