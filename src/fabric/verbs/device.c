/*
 * device.c - opening the device and finding out what it can do.
 */
#include "fabric/verbs/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"

enum {
    SOFT_ROCE_VENDOR = 0xffffff,
    QUEUE_MIN = 2 * FABRIC_LIST_OPS_MAX + 16, /* two longest lists and some packets */
};

static const size_t HUGE_BYTES = 2 * 1024 * 1024;

struct report {
    char *error;
    size_t bytes;
};

__attribute__((format(printf, 3, 4))) static enum pando_status
fail(struct report report, enum pando_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(report.error, report.bytes, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- the device ------------------------------------------------------------------------------ */

/* The active port asked for, or any. */
static bool find_port(struct ibv_context *context, const struct device_choice *choice,
                      uint8_t *port, struct ibv_port_attr *attributes)
{
    struct ibv_device_attr device;
    if (ibv_query_device(context, &device) != 0)
        return false;
    for (unsigned i = 1; i <= device.phys_port_cnt && i <= UINT8_MAX; i++) {
        if ((choice->port == 0 || choice->port == i) &&
            ibv_query_port(context, (uint8_t)i, attributes) == 0 &&
            attributes->state == IBV_PORT_ACTIVE) {
            *port = (uint8_t)i;
            return true;
        }
    }
    return false;
}

/* Opens the first that fits; why not in the report. */
static enum pando_status find_device(struct device *device, const struct device_choice *choice,
                                     struct ibv_port_attr *port, struct report report)
{
    int count = 0;
    bool named = choice->name[0] != '\0', seen = false;
    struct ibv_device **devices = ibv_get_device_list(&count);

    for (int i = 0; devices != NULL && i < count && device->context == NULL; i++) {
        const char *name = ibv_get_device_name(devices[i]);
        if (named && strcmp(name, choice->name) != 0)
            continue;
        seen = true;
        struct ibv_context *context = ibv_open_device(devices[i]);
        if (context == NULL)
            continue;
        if (find_port(context, choice, &device->port, port)) {
            device->context = context;
            snprintf(device->name, sizeof(device->name), "%s", name);
        } else {
            ibv_close_device(context);
        }
    }
    if (devices != NULL)
        ibv_free_device_list(devices);
    if (device->context != NULL)
        return PANDO_OK;
    if (count == 0)
        return fail(report, PANDO_UNSUPPORTED,
                    "this machine has no RDMA device; use tcp: instead, or for tests add one in "
                    "software: rdma link add rxe0 type rxe netdev INTERFACE");
    if (named && !seen)
        return fail(report, PANDO_NOT_FOUND,
                    "no RDMA device '%s'; `ls /sys/class/infiniband` lists those there are",
                    choice->name);
    return fail(report, PANDO_IO,
                "RDMA device %s: no active port; connect it, set its network interface up, or name "
                "another",
                named ? choice->name : "(any)");
}

/* ---- the port -------------------------------------------------------------------------------- */

static enum pando_status find_gid(struct device *device, const struct device_choice *choice,
                                  struct report report)
{
    struct ibv_gid_entry entries[DEVICE_GIDS_MAX];
    size_t kept = 0;
    ssize_t count = ibv_query_gid_table(device->context, entries, DEVICE_GIDS_MAX, 0);
    for (ssize_t i = 0; i < count; i++) {
        if (entries[i].port_num == device->port &&
            (choice->gid < 0 || entries[i].gid_index == (uint32_t)choice->gid))
            entries[kept++] = entries[i];
    }
    if (choice->gid >= 0 && kept == 0)
        return fail(report, PANDO_NOT_FOUND, "%s: port %u has no GID %d", device->name,
                    device->port, choice->gid);
    if (device->link == VERBS_LINK_INFINIBAND && choice->gid < 0) {
        if (kept > 0)
            device->gid = entries[0].gid; /* of the port itself */
        return PANDO_OK;
    }
    int best = device_best_gid(entries, kept);
    if (best < 0)
        return fail(report, PANDO_IO,
                    "%s: port %u has no GID to speak RoCE with; give its network interface an IP "
                    "address",
                    device->name, device->port);
    device->gid = entries[best].gid;
    device->gid_index = (uint8_t)entries[best].gid_index;
    if (entries[best].gid_type == IBV_GID_TYPE_ROCE_V1)
        log_warn("no GID for RoCEv2: this device is not routed", log_text("device", device->name));
    return PANDO_OK;
}

static enum pando_status open_port(struct device *device, const struct device_choice *choice,
                                   const struct ibv_port_attr *port, struct report report)
{
    device->mtu = port->active_mtu;
    device->lid = port->lid;
    device->link =
        port->link_layer == IBV_LINK_LAYER_ETHERNET ? VERBS_LINK_ETHERNET : VERBS_LINK_INFINIBAND;
    return find_gid(device, choice, report);
}

static uint8_t at_most(int value, int most)
{
    return (uint8_t)(value < most ? value : most);
}

static enum pando_status open_limits(struct device *device, struct report report)
{
    struct ibv_device_attr_ex attributes = {0};
    if (ibv_query_device_ex(device->context, NULL, &attributes) != 0)
        return fail(report, PANDO_IO, "%s: cannot be asked what it can do", device->name);
    const struct ibv_device_attr *basic = &attributes.orig_attr;
    if (basic->atomic_cap == IBV_ATOMIC_NONE || basic->max_qp_rd_atom < 1)
        return fail(report, PANDO_UNSUPPORTED, "%s has no atomic operations; use another device",
                    device->name);
    if (basic->max_qp_wr < QUEUE_MIN || basic->max_cqe < 2 * QUEUE_MIN)
        return fail(report, PANDO_UNSUPPORTED,
                    "%s has queues of %d requests, fewer than the %d needed; use another device",
                    device->name, basic->max_qp_wr, (int)QUEUE_MIN);
    device->atomics_out = at_most(basic->max_qp_init_rd_atom, DEVICE_ATOMICS_MAX);
    device->atomics_in = at_most(basic->max_qp_rd_atom, DEVICE_ATOMICS_MAX);
    device->chip_bytes = attributes.max_dm_size;
    /* Soft-RoCE's responder finishes one request before it looks at the next: read in its source.
     * Nobody promises as much of any card. */
    device->ordered = basic->vendor_id == SOFT_ROCE_VENDOR;
    if (device->ordered && sysconf(_SC_NPROCESSORS_ONLN) > 1)
        log_warn("Soft-RoCE on several processors may lose a WRITE to a word that an atomic is at: "
                 "for tests only",
                 log_text("device", device->name));
    return PANDO_OK;
}

static void describe(struct device *device)
{
    char gid[INET6_ADDRSTRLEN] = "";
    inet_ntop(AF_INET6, device->gid.raw, gid, sizeof(gid));
    const char *address = strncmp(gid, "::ffff:", 7) == 0 ? gid + 7 : gid;
    snprintf(device->text, sizeof(device->text), "%s port %u, %s, GID %u %s, MTU %d", device->name,
             device->port, device->link == VERBS_LINK_ETHERNET ? "RoCE" : "InfiniBand",
             device->gid_index, address, 128 << device->mtu);
}

enum pando_status device_open(struct device *device, const struct device_choice *choice,
                              char *error, size_t error_bytes)
{
    struct report report = {error, error_bytes};
    struct ibv_port_attr port = {0};

    *device = (struct device){0};
    enum pando_status status = find_device(device, choice, &port, report);
    if (status == PANDO_OK)
        status = open_port(device, choice, &port, report);
    if (status == PANDO_OK)
        status = open_limits(device, report);
    if (status == PANDO_OK) {
        int flags = fcntl(device->context->async_fd, F_GETFL);
        device->domain = ibv_alloc_pd(device->context);
        if (device->domain == NULL ||
            fcntl(device->context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
            status =
                fail(report, PANDO_IO, "%s: cannot be used: %s", device->name, strerror(errno));
    }
    if (status != PANDO_OK) {
        device_close(device);
        return status;
    }
    describe(device);
    return PANDO_OK;
}

void device_close(struct device *device)
{
    if (device->domain != NULL)
        ibv_dealloc_pd(device->domain);
    if (device->context != NULL)
        ibv_close_device(device->context);
    device->domain = NULL;
    device->context = NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct ibv_mr *device_register(struct device *device, void *base, size_t bytes, int access,
                               const char *what, char *error, size_t error_bytes)
{
    struct report report = {error, error_bytes};
    struct rlimit limit = {0};
    char size[FORMAT_SIZE_MAX], allowed[FORMAT_SIZE_MAX];

    struct ibv_mr *region = ibv_reg_mr(device->domain, base, bytes, access);
    if (region != NULL)
        return region;
    int code = errno;
    format_size(size, sizeof(size), bytes);
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if ((code == ENOMEM || code == EAGAIN || code == EPERM) && limit.rlim_cur < bytes)
        (void)fail(report, PANDO_NO_MEMORY,
                   "cannot pin %s of %s: this process may lock %s; run `ulimit -l unlimited` "
                   "first, or set LimitMEMLOCK=infinity in its unit",
                   size, what, format_size(allowed, sizeof(allowed), limit.rlim_cur));
    else if (code == EFAULT || code == EOPNOTSUPP)
        (void)fail(report, PANDO_IO,
                   "cannot pin %s of %s: its file system does not allow it; keep it in /dev/shm or "
                   "on hugetlbfs",
                   size, what);
    else
        (void)fail(report, PANDO_IO, "%s cannot use %s of %s: %s", device->name, size, what,
                   strerror(code));
    return NULL;
}

enum pando_status device_memory_open(struct device *device, struct device_memory *memory,
                                     size_t bytes)
{
    char error[256];
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *base = MAP_FAILED;

    *memory = (struct device_memory){.bytes = bytes};
    if (bytes % HUGE_BYTES == 0)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0);
    if (base == MAP_FAILED)
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (base == MAP_FAILED)
        return PANDO_NO_MEMORY;
    (void)madvise(base, bytes, MADV_DONTFORK);
    memory->region = device_register(device, base, bytes, IBV_ACCESS_LOCAL_WRITE, "buffers", error,
                                     sizeof(error));
    if (memory->region == NULL) {
        log_error("no memory for RDMA", log_text("why", error));
        munmap(base, bytes);
        return PANDO_NO_MEMORY;
    }
    memory->base = base;
    return PANDO_OK;
}

void device_memory_close(struct device_memory *memory)
{
    if (memory->base == NULL)
        return;
    ibv_dereg_mr(memory->region);
    munmap(memory->base, memory->bytes);
    *memory = (struct device_memory){0};
}
