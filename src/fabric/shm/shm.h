/*
 * shm.h - the fabric of processes that share a machine: windows are mappings, operations are copies
 * by the caller's own CPU. Also the embedded default (one process) and the way to CXL memory.
 *
 * One-sided operations need nobody's help. Calls, fences and the knowledge that a peer is alive go
 * through a unix socket beside the mapping, served by a thread of the process that owns the window.
 * A peer is fenced by killing it: whoever may map a window could not be kept from writing
 * otherwise.
 */
#ifndef FABRIC_SHM_SHM_H
#define FABRIC_SHM_SHM_H

#include "fabric/fabric.h"

struct fabric_shm_options {
    uint16_t node;
    enum fabric_target target;
    /* The window: a path, or NULL for anonymous memory that only this process reaches. A path is
     * the window's location; the socket is beside it, with ".sock" added. */
    const char *path;
    bool dax;       /* the path is a DAX device, all of which becomes the window */
    bool temporary; /* the file goes with the process: compute windows */
    bool reserved;  /* all of a file's memory is taken at open: NO_MEMORY, or there is enough */
    uint64_t host_bytes;   /* 0: no window, a client only */
    uint64_t device_bytes; /* ordinary memory under the names of on-chip memory */
};

/* Errors as one line for a person in `error`. Not from a task. */
PANDO_MUST_CHECK enum pando_status fabric_shm_open(const struct fabric_shm_options *options,
                                                   struct fabric **out, char *error,
                                                   size_t error_bytes);

/* Begins to let others in: after fabric_serve and whatever else has to be ready. */
PANDO_MUST_CHECK enum pando_status fabric_shm_start(struct fabric *fabric);

/* The path for a name: NAME itself if it contains a slash, otherwise a file pando-NAME on hugetlbfs
 * if one is mounted with room for `bytes`, or in /dev/shm. An existing file wins. INVALID: not a
 * name. */
PANDO_MUST_CHECK enum pando_status fabric_shm_path(const char *name, uint64_t bytes, char *path,
                                                   size_t path_bytes);

/* A path for a window that goes with the process: in /dev/shm, under a name nobody has. What processes
 * that were killed have left there is removed. IO: there is no such place. */
PANDO_MUST_CHECK enum pando_status fabric_shm_path_temporary(char *path, size_t path_bytes);

/* True when the window existed before and its contents were kept. */
bool fabric_shm_reused(const struct fabric *fabric);
bool fabric_shm_huge(const struct fabric *fabric);

/* Any thread, after it was started. */
void fabric_shm_served(const struct fabric *fabric, struct fabric_served *out);

#endif
