/*
 * undumped.c - memory that core dumps leave out.
 *
 * The allocator cuts chunks into blocks of a power of two, and keeps freed ones in a list for each
 * size. A block's first 16 bytes say how large it is.
 */
#include "rt/undumped.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "rt/rt_int.h"

/* The leak checker does not look for pointers in memory that is mapped by hand, unless told to. */
#ifdef RT_ASAN
#include <sanitizer/lsan_interface.h>
#endif

enum {
    CLASS_FIRST = 5, /* of 32 bytes */
    CLASS_LAST = 16, /* of 64 KiB */
    CHUNK_BYTES = 1 << 20,
};

/* Its bytes are those of the whole block. */
struct head {
    uint64_t bytes;
    struct head *next; /* of the free ones */
};
_Static_assert(sizeof(struct head) == 16, "blocks are aligned to 16");

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* over all of the following */
static struct head *unused[CLASS_LAST + 1];
static uint8_t *chunk; /* what is left of the newest */
static size_t chunk_left;

void rt_undumped(const void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)memory & ~(page - 1);
    uintptr_t end = ((uintptr_t)memory + bytes + page - 1) & ~(page - 1);

    if (bytes > 0)
        (void)madvise((void *)begin, end - begin, MADV_DONTDUMP);
}

static void *map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    rt_undumped(memory, bytes);
#ifdef RT_ASAN
    __lsan_register_root_region(memory, bytes);
#endif
    return memory;
}

static void unmap(struct head *head)
{
#ifdef RT_ASAN
    __lsan_unregister_root_region(head, head->bytes);
#endif
    (void)munmap(head, head->bytes);
}

static struct head *alloc_large(size_t bytes)
{
    bytes = (bytes + 4095) & ~(size_t)4095;
    struct head *head = map(bytes);
    if (head != NULL)
        head->bytes = bytes;
    return head;
}

/* The rest of the old chunk is smaller than a block of this class: it is given to smaller ones. */
static bool chunk_new(void)
{
    for (int class = CLASS_LAST; class >= CLASS_FIRST; class --) {
        size_t bytes = (size_t)1 << class;
        if (chunk_left < bytes)
            continue;
        struct head *head = (struct head *)chunk;
        *head = (struct head){.bytes = bytes, .next = unused[class]};
        unused[class] = head;
        chunk += bytes;
        chunk_left -= bytes;
    }
    chunk = map(CHUNK_BYTES);
    chunk_left = chunk == NULL ? 0 : CHUNK_BYTES;
    return chunk != NULL;
}

static struct head *alloc_small(int class)
{
    size_t bytes = (size_t)1 << class;
    struct head *head = unused[class];

    if (head != NULL) {
        unused[class] = head->next;
        return head;
    }
    if (chunk_left < bytes && !chunk_new())
        return NULL;
    head = (struct head *)chunk;
    head->bytes = bytes;
    chunk += bytes;
    chunk_left -= bytes;
    return head;
}

static int class_of(size_t bytes)
{
    int class = CLASS_FIRST;
    while ((size_t)1 << class < bytes)
        class ++;
    return class;
}

void *rt_undumped_alloc(size_t bytes)
{
    struct head *head;

    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes += sizeof(*head);
    if (bytes > (size_t)1 << CLASS_LAST) {
        head = alloc_large(bytes);
    } else {
        pthread_mutex_lock(&mutex);
        head = alloc_small(class_of(bytes));
        pthread_mutex_unlock(&mutex);
    }
    return head == NULL ? NULL : head + 1;
}

void rt_undumped_free(void *block)
{
    if (block == NULL)
        return;
    struct head *head = (struct head *)block - 1;
    if (head->bytes > (size_t)1 << CLASS_LAST) {
        unmap(head);
        return;
    }
    int class = class_of(head->bytes);
    pando_assert((size_t)1 << class == head->bytes && class <= CLASS_LAST);
    pthread_mutex_lock(&mutex);
    head->next = unused[class];
    unused[class] = head;
    pthread_mutex_unlock(&mutex);
}

void *rt_undumped_realloc(void *block, size_t bytes)
{
    if (block == NULL)
        return rt_undumped_alloc(bytes);
    size_t room = ((struct head *)block - 1)->bytes - sizeof(struct head);
    if (bytes <= room && bytes > room / 4)
        return block;
    void *larger = rt_undumped_alloc(bytes);
    if (larger == NULL)
        return bytes <= room ? block : NULL;
    memcpy(larger, block, bytes < room ? bytes : room);
    rt_undumped_free(block);
    return larger;
}
