/*
 * device.h - the RDMA device: which one, which port, which GID, what it can do, and memory known to
 * it.
 */
#ifndef FABRIC_VERBS_DEVICE_H
#define FABRIC_VERBS_DEVICE_H

#include <infiniband/verbs.h>
#include <stdatomic.h>

#include "fabric/verbs/verbs_fmt.h"
#include "fabric/window/window.h"

enum {
    DEVICE_NAME_MAX = 64,
    DEVICE_TEXT_MAX = 192,
    DEVICE_ATOMICS_MAX = 16, /* READs and atomics in flight on a queue pair; more gain nothing */
    DEVICE_INLINE = 64,      /* asked for; a cell header, a lock word, a small value */
    DEVICE_GIDS_MAX = 256,
};

/* What --verbs says. */
struct device_choice {
    char name[DEVICE_NAME_MAX]; /* "": any */
    uint8_t port;               /* 0: any that is active */
    int gid;                    /* -1: the best */
};

/* "NAME", "NAME/PORT", either with ",gid=INDEX"; NULL and "" choose nothing. INVALID with one line. */
PANDO_MUST_CHECK enum pando_status device_choice_parse(const char *text, struct device_choice *out,
                                                       char *error, size_t error_bytes);

/* Of a RoCE port's GIDs the index in `entries` of the best: RoCEv2 with an IPv4 address, then RoCEv2
 * with a global IPv6 one, then any RoCEv2, then RoCEv1. -1: none. */
int device_best_gid(const struct ibv_gid_entry *entries, size_t count);

struct device {
    struct ibv_context *context;
    struct ibv_pd *domain;
    char name[DEVICE_NAME_MAX];
    char text[DEVICE_TEXT_MAX]; /* for people */
    uint8_t port;
    enum verbs_link link;
    enum ibv_mtu mtu;
    uint16_t lid;
    union ibv_gid gid;
    uint8_t gid_index;
    uint8_t atomics_out, atomics_in; /* it can have in flight, and serve, on a queue pair */
    uint64_t chip_bytes;             /* memory of its own that can be had */
    bool ordered;     /* it never begins a READ while an atomic before it is running */
    atomic_bool gone; /* removed, or fatally wrong */
    _Atomic uint64_t pairs_made;
};

/* Errors as one line for a person: UNSUPPORTED (no device here, no atomics), NOT_FOUND (none of that
 * name), IO (not active, no GID, cannot be opened). */
PANDO_MUST_CHECK enum pando_status device_open(struct device *device,
                                               const struct device_choice *choice, char *error,
                                               size_t error_bytes);
void device_close(struct device *device);

/* Registers memory; NULL with one line for a person, which knows about locked memory limits. */
struct ibv_mr *device_register(struct device *device, void *base, size_t bytes, int access,
                               const char *what, char *error, size_t error_bytes);

/* Pages for buffers, known to the device, not inherited by forked children. */
struct device_memory {
    uint8_t *base;
    size_t bytes;
    struct ibv_mr *region;
};
PANDO_MUST_CHECK enum pando_status device_memory_open(struct device *device,
                                                      struct device_memory *memory, size_t bytes);
void device_memory_close(struct device_memory *memory);

/* ---- the window ------------------------------------------------------------------------------ */

/* A window that others reach: the host part without the fabric's own first bytes, and the device
 * part, in the card's memory where it has enough. */
struct device_window {
    const struct window *window;
    struct device *device;
    struct ibv_mr *host, *chip;
    struct ibv_dm *chip_memory; /* NULL: the device part is in host memory */
};

PANDO_MUST_CHECK enum pando_status device_window_open(struct device_window *shared,
                                                      struct device *device,
                                                      const struct window *window, char *error,
                                                      size_t error_bytes);
void device_window_close(struct device_window *shared);
void device_window_tell(const struct device_window *shared, struct verbs_remote_window *out);

/* Copies by the processor, also of the card's memory. RANGE. */
PANDO_MUST_CHECK enum pando_status device_window_read(const struct device_window *shared,
                                                      uint64_t offset, void *to, size_t size);
PANDO_MUST_CHECK enum pando_status device_window_write(const struct device_window *shared,
                                                       uint64_t offset, const void *from,
                                                       size_t size);

#endif
