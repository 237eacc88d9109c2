/*
 * window.h - the memory behind a process's window: how it is mapped, bounds, copies, atomics and
 * the fences recorded in it. Shared by the backends; no I/O but the mapping.
 */
#ifndef FABRIC_WINDOW_WINDOW_H
#define FABRIC_WINDOW_WINDOW_H

#include <stdbool.h>
#include <stddef.h>

#include "fabric/fabric.h"
#include "fabric/window/window_fmt.h"

struct window {
    uint8_t *base;
    uint64_t host_bytes; /* offsets 0 .. host_bytes */
    uint64_t
        device_bytes; /* offsets FABRIC_DEVICE .. + device_bytes; mapped behind the host part */
    uint64_t mapped_bytes;
    bool huge;   /* in 2 MiB pages */
    bool reused; /* it existed before, with its contents */
    int fd;      /* -1 for private memory */
};

/* What to do about contents of another format, for messages. */
#define WINDOW_OLD_ADVICE                                                                          \
    "its contents are untouched: dump its tables with the program that made it (pando dump) and "  \
    "load them with this one (pando load) into a window under another name"

enum window_open {
    WINDOW_CREATE,          /* to serve it: a regular file */
    WINDOW_CREATE_RESERVED, /* and all of its memory is taken now, so that none is missing later */
    WINDOW_CREATE_DAX,      /* or a DAX device, all of which becomes the window whatever it holds */
    WINDOW_ATTACH,          /* what another process serves */
};

/* Private memory of this process: simulated nodes and compute windows of tcp. Pages come on use. */
PANDO_MUST_CHECK enum pando_status window_map_private(struct window *window, uint16_t node,
                                                      uint64_t host_bytes, uint64_t device_bytes);

/* Memory without a name in hugepages (memfd) where enough are reserved, otherwise private: the
 * embedded default. */
PANDO_MUST_CHECK enum pando_status window_map_memfd(struct window *window, uint16_t node,
                                                    uint64_t host_bytes, uint64_t device_bytes);

/*
 * A file: on tmpfs, on hugetlbfs, a DAX device or an ordinary one. CREATE formats it when it is new
 * or empty, and keeps its contents when it holds a window of the same sizes already; ATTACH maps
 * what is there. Anything else is left as it is, and so is what others own or may open: file.h has
 * the rules. Errors go to `error` as one line for a person. VERSION: another format; BUSY: another
 * process serves it; DENIED: permissions, owner or mode; INVALID: not a window, or of another size.
 */
PANDO_MUST_CHECK enum pando_status window_map_file(struct window *window, const char *path,
                                                   enum window_open how, uint16_t node,
                                                   uint64_t host_bytes, uint64_t device_bytes,
                                                   char *error, size_t error_bytes);

/* The window of a server: the file at `path`, created or kept, or private memory when that is NULL.
 * NO_MEMORY, of one that is to be reserved: the machine, its control group or the file's folder has
 * not got as much. */
PANDO_MUST_CHECK enum pando_status window_map_served(struct window *window, const char *path,
                                                     enum window_open how, uint16_t node,
                                                     uint64_t host_bytes, uint64_t device_bytes,
                                                     char *error, size_t error_bytes);

void window_unmap(struct window *window);

/* The random id that it got when it was formatted: another one means that the contents are not those
 * that somebody has left there. Simulated machines choose theirs, so that a seed replays. */
uint64_t window_id(const struct window *window);
void window_set_id(struct window *window, uint64_t id);

/* Gives it another one: a new life. Any thread. */
void window_renew(const struct window *window);

/* Where [offset, offset + size) lies, or NULL if any of it is not the users'. */
static inline uint8_t *window_at(const struct window *window, uint64_t offset, uint64_t size)
{
    if (offset < FABRIC_DEVICE) {
        if (offset < WINDOW_FIRST || size > window->host_bytes ||
            offset > window->host_bytes - size)
            return NULL;
        return window->base + offset;
    }
    offset -= FABRIC_DEVICE;
    if (size > window->device_bytes || offset > window->device_bytes - size)
        return NULL;
    return window->base + window->host_bytes + offset;
}

/*
 * Asks for the cache lines of a part that is read or written soon; of a long one, which overlaps its own
 * misses, for the first. Only a hint: a part that is not there is left alone. What is to be read goes into
 * the second level of the cache: the first has so few buffers for lines on their way (24 on a Zen 4) that who
 * asks for a leaf's 16 lines waits. READs of 1 KB from shared memory are twice as fast this way, those of 64 B
 * as fast.
 */
static inline void window_prefetch(const struct window *window, uint64_t offset, uint64_t size,
                                   bool write)
{
    enum { LINE_BYTES = 64, MOST_BYTES = 2048 + LINE_BYTES, SECOND_LEVEL = 2 };
    const uint8_t *at = window_at(window, offset, size);
    if (at == NULL)
        return;
    uintptr_t line = (uintptr_t)at & ~(uintptr_t)(LINE_BYTES - 1), end = (uintptr_t)at + size;
    if (end - line > MOST_BYTES)
        end = line + MOST_BYTES;
    for (; line < end; line += LINE_BYTES) {
        if (write)
            __builtin_prefetch((const void *)line, 1);
        else
            __builtin_prefetch((const void *)line, 0, SECOND_LEVEL);
    }
}

/*
 * Executes a list on a window of this machine: the fences of copy-barriers (R5) included. Stops at
 * the first operation out of range and says RANGE; what came before has been done.
 */
PANDO_MUST_CHECK enum pando_status window_execute(const struct window *window,
                                                  struct fabric_op *ops, uint32_t count);

PANDO_MUST_CHECK enum pando_status window_read(const struct window *window, uint64_t offset,
                                               void *to, size_t size);
PANDO_MUST_CHECK enum pando_status window_write(const struct window *window, uint64_t offset,
                                                const void *from, size_t size);

/* The same as window_read, of what nobody has asked for ahead. */
PANDO_MUST_CHECK static inline enum pando_status
window_read_now(const struct window *window, uint64_t offset, void *to, size_t size)
{
    window_prefetch(window, offset, size, false);
    return window_read(window, offset, to, size);
}

/* ---- fences -----------------------------------------------------------------------------------
 */

/* Records it, never backwards; any thread. */
void window_fence(const struct window *window, struct fabric_identity identity);
bool window_fenced(const struct window *window, struct fabric_identity identity);

/* This identity is known to have joined: the fence of its member, if there is one, moves up to the
 * incarnation before, see window.c. Not of an identity that somebody merely claims: the fence would
 * shut out members that live. Any thread. */
void window_note_member(const struct window *window, struct fabric_identity identity);

#endif
