/*
 * window.c - the window as the device knows it; and, where the card has memory of its own, the lock
 * table in there.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "fabric/verbs/device.h"

enum {
    ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
             IBV_ACCESS_REMOTE_ATOMIC,
    CHIP_ALIGN_LOG = 6,
    CHIP_PIECE = 4096, /* copied at a time */
};

/* ---- the card's memory ----------------------------------------------------------------------- */

static bool chip_zero(struct ibv_dm *memory, uint64_t bytes)
{
    static const uint8_t zeroes[CHIP_PIECE];
    for (uint64_t done = 0; done < bytes; done += CHIP_PIECE) {
        uint64_t left = bytes - done;
        if (ibv_memcpy_to_dm(memory, done, zeroes, left < CHIP_PIECE ? left : CHIP_PIECE) != 0)
            return false;
    }
    return true;
}

/* False: host memory has to do. */
static bool chip_open(struct device_window *shared)
{
    struct device *device = shared->device;
    uint64_t bytes = shared->window->device_bytes;
    struct ibv_alloc_dm_attr attributes = {.length = bytes, .log_align_req = CHIP_ALIGN_LOG};

    if (bytes == 0 || device->chip_bytes < bytes)
        return false;
    shared->chip_memory = ibv_alloc_dm(device->context, &attributes);
    if (shared->chip_memory == NULL)
        goto err;
    if (!chip_zero(shared->chip_memory, bytes))
        goto err_free;
    shared->chip = ibv_reg_dm_mr(device->domain, shared->chip_memory, 0, bytes,
                                 ACCESS | IBV_ACCESS_ZERO_BASED);
    if (shared->chip != NULL)
        return true;
err_free:
    ibv_free_dm(shared->chip_memory);
    shared->chip_memory = NULL;
err:
    log_warn("the card has memory for the lock table, but does not give it; it is in host memory",
             log_text("device", device->name), log_errno("why", errno));
    return false;
}

/* Cards want their memory to be copied in words. */
static enum pando_status chip_copy(const struct device_window *shared, uint64_t offset, void *to,
                                   const void *from, size_t size)
{
    uint64_t word;
    for (size_t done = 0; done < size;) {
        uint64_t at = (offset + done) & ~(uint64_t)7;
        size_t skip = (size_t)(offset + done - at);
        size_t part = 8 - skip < size - done ? 8 - skip : size - done;
        if (ibv_memcpy_from_dm(&word, shared->chip_memory, at, 8) != 0)
            return PANDO_IO;
        if (to != NULL) {
            memcpy((uint8_t *)to + done, (const uint8_t *)&word + skip, part);
        } else {
            memcpy((uint8_t *)&word + skip, (const uint8_t *)from + done, part);
            if (ibv_memcpy_to_dm(shared->chip_memory, at, &word, 8) != 0)
                return PANDO_IO;
        }
        done += part;
    }
    return PANDO_OK;
}

static bool on_chip(const struct device_window *shared, uint64_t offset)
{
    return shared->chip_memory != NULL && offset >= FABRIC_DEVICE;
}

enum pando_status device_window_read(const struct device_window *shared, uint64_t offset, void *to,
                                     size_t size)
{
    if (!on_chip(shared, offset))
        return window_read(shared->window, offset, to, size);
    if (window_at(shared->window, offset, size) == NULL)
        return PANDO_RANGE;
    return chip_copy(shared, offset - FABRIC_DEVICE, to, NULL, size);
}

enum pando_status device_window_write(const struct device_window *shared, uint64_t offset,
                                      const void *from, size_t size)
{
    if (!on_chip(shared, offset))
        return window_write(shared->window, offset, from, size);
    if (window_at(shared->window, offset, size) == NULL)
        return PANDO_RANGE;
    return chip_copy(shared, offset - FABRIC_DEVICE, NULL, from, size);
}

/* ---- opening --------------------------------------------------------------------------------- */

enum pando_status device_window_open(struct device_window *shared, struct device *device,
                                     const struct window *window, char *error, size_t error_bytes)
{
    *shared = (struct device_window){.window = window, .device = device};
    shared->host =
        device_register(device, window->base + WINDOW_FIRST, window->host_bytes - WINDOW_FIRST,
                        ACCESS, "memory to offer", error, error_bytes);
    if (shared->host == NULL)
        return PANDO_NO_MEMORY;
    if (window->device_bytes == 0 || chip_open(shared))
        return PANDO_OK;
    shared->chip = device_register(device, window->base + window->host_bytes, window->device_bytes,
                                   ACCESS, "lock table", error, error_bytes);
    if (shared->chip != NULL)
        return PANDO_OK;
    device_window_close(shared);
    return PANDO_NO_MEMORY;
}

void device_window_close(struct device_window *shared)
{
    if (shared->chip != NULL)
        ibv_dereg_mr(shared->chip);
    if (shared->chip_memory != NULL)
        ibv_free_dm(shared->chip_memory);
    if (shared->host != NULL)
        ibv_dereg_mr(shared->host);
    *shared = (struct device_window){0};
}

void device_window_tell(const struct device_window *shared, struct verbs_remote_window *out)
{
    const struct window *window = shared->window;
    *out = (struct verbs_remote_window){
        .host_address = (uintptr_t)window->base,
        .host_key = shared->host->rkey,
        .on_chip = shared->chip_memory != NULL,
    };
    if (shared->chip == NULL)
        return;
    out->device_key = shared->chip->rkey;
    if (shared->chip_memory == NULL)
        out->device_address = (uintptr_t)(window->base + window->host_bytes);
}
