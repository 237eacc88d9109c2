/*
 * chip.c - a library to be preloaded (LD_PRELOAD) that makes a device seem to have memory of its own:
 * Soft-RoCE has none, and what is written for cards that have must have run once.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CHIP_BYTES = 1024 * 1024 };

struct chip {
    struct ibv_dm base;
    char *memory;
    size_t bytes;
};

static int (*own_query)(struct ibv_context *, const struct ibv_query_device_ex_input *,
                        struct ibv_device_attr_ex *, size_t);

static int query(struct ibv_context *context, const struct ibv_query_device_ex_input *input,
                 struct ibv_device_attr_ex *attributes, size_t size)
{
    int result = own_query(context, input, attributes, size);
    attributes->max_dm_size = CHIP_BYTES;
    return result;
}

static int copy_to(struct ibv_dm *dm, uint64_t offset, const void *from, size_t size)
{
    memcpy(((struct chip *)dm)->memory + offset, from, size);
    return offset % 4 != 0 || size % 4 != 0; /* cards want words */
}

static int copy_from(void *to, struct ibv_dm *dm, uint64_t offset, size_t size)
{
    memcpy(to, ((struct chip *)dm)->memory + offset, size);
    return offset % 4 != 0 || size % 4 != 0;
}

static struct ibv_dm *alloc_dm(struct ibv_context *context, struct ibv_alloc_dm_attr *attributes)
{
    struct chip *chip = calloc(1, sizeof(*chip));
    if (chip == NULL || attributes->length > CHIP_BYTES)
        return NULL;
    chip->base.context = context;
    chip->base.memcpy_to_dm = copy_to;
    chip->base.memcpy_from_dm = copy_from;
    chip->bytes = attributes->length;
    chip->memory =
        mmap(NULL, chip->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(chip->memory, 0xa5, chip->bytes); /* nobody promises zeroes */
    return &chip->base;
}

static int free_dm(struct ibv_dm *dm)
{
    struct chip *chip = (struct chip *)dm;
    munmap(chip->memory, chip->bytes);
    free(chip);
    return 0;
}

static struct ibv_mr *reg_dm_mr(struct ibv_pd *domain, struct ibv_dm *dm, uint64_t offset,
                                size_t length, unsigned access)
{
    if ((access & IBV_ACCESS_ZERO_BASED) == 0)
        return NULL;
    return ibv_reg_mr_iova(domain, ((struct chip *)dm)->memory + offset, length, 0,
                           (int)(access & ~(unsigned)IBV_ACCESS_ZERO_BASED));
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct ibv_context *(*own)(struct ibv_device *);
    *(void **)&own = dlsym(RTLD_NEXT, "ibv_open_device");
    struct ibv_context *context = own(device);
    struct verbs_context *verbs = context == NULL ? NULL : verbs_get_ctx(context);
    if (verbs == NULL)
        return context;
    own_query = verbs->query_device_ex;
    verbs->query_device_ex = query;
    verbs->alloc_dm = alloc_dm;
    verbs->free_dm = free_dm;
    verbs->reg_dm_mr = reg_dm_mr;
    return context;
}
