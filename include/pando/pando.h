/*
 * pando.h - Pando from C and C++: ordered tables of byte strings in a pool of memory nodes.
 *
 *   struct pando_options options = {.size = sizeof(options), .uri = "embedded:256M"};
 *   struct pando_pool *pool;
 *   struct pando_table *table;
 *   char error[256], value[64];
 *   size_t size;
 *
 *   if (pando_open(&options, &pool, error, sizeof(error)) != PANDO_OK) ...
 *   if (pando_table_create(pool, "users", NULL) != PANDO_OK) ...
 *   if (pando_table_open(pool, "users", &table) != PANDO_OK) ...
 *   if (pando_put(table, "ada", 3, "1815", 4) != PANDO_OK)
 *       fprintf(stderr, "%s\n", pando_error_text(pool));
 *   if (pando_get(table, "ada", 3, value, sizeof(value), &size) == PANDO_OK) ...
 *   pando_table_close(table);
 *   if (pando_close(pool) != PANDO_OK) ...
 *
 * Keys are 0 to 1,024 bytes of any kind, values 0 to 512 MiB. Keys are ordered by their bytes, as memcmp
 * does it, a shorter one before those it begins.
 *
 * What is promised. Every write of a key is atomic against every other write of that key, by whatever
 * process, and a get returns the value of a write that was the last at some moment between its call and its
 * return. What was acknowledged is not lost when clients die. Nothing spans keys: batches, iterators and
 * prefix deletes are many operations, not transactions or snapshots.
 *
 * Threads. Pools and tables may be used by all threads at once. Iterators, writers and queues are used by one
 * thread at a time. A call blocks its thread until it is done; each thread gets a connection of its own with its
 * first call (up to PANDO_THREADS_MAX per pool), and gives it up when it ends or the pool is closed. No function
 * but pando_error_text may be called from inside a callback of this library: PANDO_INVALID.
 *
 * Memory of the pool. What a process takes for its work is shared by its threads: of each memory node 128 KiB
 * for each change of the tree's structure that it makes at the same time, which is a 32nd of the node or 8 MiB at
 * the most; up to 1 MiB of free blocks of a size that it writes, which go back a quarter of a second after it has
 * stopped; and in the engine dex a log for each table, 64 KiB to 4 MiB.
 *
 * Waiting. Every call returns in bounded time, also when memory nodes are gone: mostly within seconds; half
 * a minute for one that has to join the pool again.
 *
 * fork. A child has nothing of its parent's pools: every function given one of their handles returns
 * PANDO_INVALID there, and the child opens the pool again. The parent is not disturbed.
 *
 * Statuses that every function with a pool may return are not repeated at each:
 *   PANDO_BROKEN, PANDO_TIMEOUT  the pool cannot be reached now, or somebody is in the way for too long.
 *                                Nothing was changed; try again later.
 *   PANDO_UNKNOWN                a write was cut off, and whether it was done cannot be found out: this
 *                                process stood still for so long that others took over from it, or a memory
 *                                node is gone. Read, and decide.
 *   PANDO_NO_MEMORY              of this process.
 *   PANDO_INVALID                NULL where something is needed, a handle of before a fork, a call from
 *                                inside a callback.
 *   PANDO_AGAIN                  PANDO_THREADS_MAX threads, queues and writers use the pool already.
 *   PANDO_CORRUPT                bytes in the pool that fail their check.
 * and of functions with a table:
 *   PANDO_NOT_FOUND              the table was dropped (pando_table_dropped tells that from a missing key).
 *   PANDO_TOO_LARGE              a key over the table's maximum, or a value over its limit.
 *   PANDO_INVALID                a key or value of another size in a table whose keys or values have one.
 *
 * After every failure pando_error_text says what happened, to what, and what to do, in one line for a person.
 *
 * Structs that are handed in begin with their size, so that later versions can add members at the end:
 * set it to sizeof the struct, and what is not used to zero.
 */
#ifndef PANDO_PANDO_H
#define PANDO_PANDO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every function that can fail returns one of these, and the compiler insists it is looked at. */
enum pando_status {
    PANDO_OK = 0,
    PANDO_NOT_FOUND,   /* no such key, table or member */
    PANDO_EXISTS,      /* it is there already */
    PANDO_AGAIN,       /* back-pressure: a bounded queue is full now, try later */
    PANDO_STALE,       /* what was read no longer holds */
    PANDO_INVALID,     /* an argument, option or file that makes no sense */
    PANDO_RANGE,       /* a number or an address out of its range */
    PANDO_TOO_LARGE,   /* over a stated limit */
    PANDO_FULL,        /* no memory left in the pool */
    PANDO_NO_MEMORY,   /* no memory left in this process */
    PANDO_BROKEN,      /* the connection failed */
    PANDO_TIMEOUT,     /* a deadline passed */
    PANDO_FENCED,      /* this member was declared dead and must rejoin (inside Pando only) */
    PANDO_UNKNOWN,     /* the outcome can no longer be found out */
    PANDO_DENIED,      /* wrong secret, wrong certificate or no permission */
    PANDO_CORRUPT,     /* remote or stored bytes fail their check */
    PANDO_VERSION,     /* a format or protocol version this program does not speak */
    PANDO_UNSUPPORTED, /* not possible on this machine or this fabric */
    PANDO_BUSY,        /* held by someone else: a port, a name, a lock */
    PANDO_IO,          /* the operating system reported an error */
    PANDO_STATUS_COUNT
};

/* A status function's result must be used. */
#define PANDO_MUST_CHECK __attribute__((warn_unused_result))

/* What the shared library exports. */
#define PANDO_API __attribute__((visibility("default")))

enum {
    PANDO_THREADS_MAX = 256,             /* threads, queues and writers that use a pool at a time */
    PANDO_TABLES_MAX = 16384,            /* table handles open on a pool at the same time */
    PANDO_KEY_MAX = 1024,                /* bytes */
    PANDO_VALUE_MAX = 512 * 1024 * 1024, /* bytes */
    PANDO_QUEUE_DEPTH_MAX = 1024,        /* operations in flight on a queue */
    PANDO_NAME_MAX = 64,                 /* of a table, its final NUL included */
};

struct pando_pool;
struct pando_table;
struct pando_writer;
struct pando_iterator;
struct pando_queue;

struct pando_slice {
    const void *data;
    size_t size;
};

/* A short, constant, lower-case text for a status; never NULL. Any thread. */
PANDO_API const char *pando_status_text(enum pando_status status);

/* The library's version, such as "0.1.0". Any thread. */
PANDO_API const char *pando_version(void);

/* ---- pools ----------------------------------------------------------------------------------- */

struct pando_options {
    size_t size;

    /* embedded:SIZE                     memory of this process, gone with it
     * shm:NAME[,NAME...]                memory nodes on this machine
     * tcp:HOST:PORT[,HOST:PORT...]      memory nodes elsewhere; all of the pool's, in order
     * verbs:HOST:PORT[,HOST:PORT...]    the same, reached by RDMA */
    const char *uri;
    const char *secret_file; /* tcp, verbs: a file with the secret of the memory nodes */
    int tls;                 /* tcp, verbs: not 0 for TLS on loopback, too; see insecure_tcp */
    const char *tls_ca;      /* PEM files: who is trusted, if the memory nodes have certificates, */
    const char *tls_cert;    /* and this client's own certificate */
    const char *tls_key;     /* and key, where the memory nodes ask for one */
    uint64_t cache_bytes;    /* for copies of nodes, of each table; 0: 256 MiB at the most */
    const char *name;        /* shown by `pando status`; NULL: "libpando" */
    const char *verbs;       /* verbs: the RDMA device; NULL: the first that is active */

    /* tcp, verbs: HOST:PORT where other members of the pool call this one; NULL: any port of the address from
     * which the first memory node is reached; "none". And what they are told, if it is another address. */
    const char *peer_listen;
    const char *peer_advertise;

    /* NULL or "pool": what was acknowledged is in the pool, and survives this process. "none": the engine dex
     * keeps changes in its cache until the cache needs the room, which is faster, and this process's death
     * loses those; it may lose a leaf with them. */
    const char *durability;

    /* tcp, verbs: off loopback everything on sockets goes through TLS 1.3, with the secret as its key, or with
     * certificates if tls_ca is set; the process then ignores SIGPIPE, unless it has a handler for it. Not 0:
     * plain TCP there, too. Whoever is on the path can then read and write all of the pool, and the memory
     * nodes have to be started with --insecure-tcp. (What verbs moves by RDMA is never encrypted.) */
    int insecure_tcp;

    /* Memory of this process that the other members of the pool reach directly, for engines that
     * keep something there; it is taken at once (verbs: pinned). 0: none but what being called
     * needs. INVALID with an embedded pool or peer_listen "none", or less than 128 KiB; NO_MEMORY
     * if there is not as much. */
    uint64_t window_bytes;
};

/* Joins a pool, and starts one thread that keeps this process its member and one that answers other
 * members. *out is the caller's, to be closed
 * with pando_close. Nothing of the options is kept. On failure *out is not set and `error` (may be NULL) has
 * one line that says why: INVALID options or URI; DENIED; BROKEN or TIMEOUT nobody answers; FULL the pool has
 * no room for another member; VERSION. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_open(const struct pando_options *options,
                                                        struct pando_pool **out, char *error,
                                                        size_t error_bytes);

/* Leaves the pool and frees it and all that threads keep for it; NULL is OK. BUSY: a table, iterator, queue
 * or writer is still open, or another thread is inside a call; then nothing is changed. Afterwards the handle
 * is gone: to use it again is an error like using freed memory. May be called by any thread. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_close(struct pando_pool *pool);

/* One line about the calling thread's last failure on this pool: what happened, to what, and what to do; "" if
 * there was none. A failure is a call that returned another status than OK, NOT_FOUND included; calls that
 * succeed leave the text as it is. Each thread has a text of its own for each pool. Three cases more:
 *  - A call whose pool, table, iterator or queue was NULL, or that was made from inside a callback, belongs to no
 *    pool. Until the thread's next failure, or until it opens a pool, its text is that of every pool, and of NULL.
 *  - What an operation of a queue has come to, its completion says. A pando_queue_poll that hands out
 *    completions with another status than OK sets the polling thread's text to that of the last of these in
 *    `out`: with a capacity of 1 every failure can be had. The queue's own thread leaves no text to anybody.
 *  - pando_open has no pool when it fails: its text is in `error`.
 * After a batch the text is about the first operation that failed. Belongs to the library, until the thread's
 * next call on the pool, or until the pool is closed. */
PANDO_API const char *pando_error_text(const struct pando_pool *pool);

/* ---- tables ---------------------------------------------------------------------------------- */

/* How a table is laid out, fixed when it is created. All zero, or NULL: any keys and values. */
struct pando_table_options {
    size_t size;
    const char *engine; /* NULL: sherman in an embedded pool, dex in others */
    uint32_t key_max;   /* the longest key; 0: PANDO_KEY_MAX, and less makes smaller nodes */
    uint32_t
        value_inline; /* longer values are stored outside of the nodes, for another round trip; 0: 64 */
    uint32_t key_size;   /* not 0: all keys have this size, which saves memory */
    uint32_t value_size; /* not 0: all values have */
};

/* A name has 1 to 63 bytes and does not begin with '#'. EXISTS; INVALID a bad name or engine, sizes that do
 * not go together; TOO_LARGE; FULL: no memory for it, or the pool has as many tables as it has room for, 16,384,
 * or fewer where memory node 0 has less than 512 MiB. UNKNOWN: it exists, and perhaps we were the ones who made it. BROKEN,
 * TIMEOUT: it may exist without being usable; drop it, and try again. */
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_table_create(struct pando_pool *pool, const char *name,
                   const struct pando_table_options *options);

/* *out is the caller's, to be closed with pando_table_close, and good on all threads. NOT_FOUND; FULL:
 * PANDO_TABLES_MAX handles. */
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_table_open(struct pando_pool *pool, const char *name, struct pando_table **out);

/* NULL is OK. No call on it is under way, and no iterator, writer or operation of a queue uses it: BUSY. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_table_close(struct pando_table *table);

/* Everybody's handles of it are useless from then on, in all processes, and its memory comes back. Others may
 * be using it meanwhile. A table of the same name may be created afterwards. NOT_FOUND. TIMEOUT: the name is
 * gone, and the memory comes back later, when somebody has ended who still uses it. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_table_drop(struct pando_pool *pool,
                                                              const char *name);

/* 1 when a call of this process has met NOT_FOUND because the table was dropped. Does not block. */
PANDO_API int pando_table_dropped(const struct pando_table *table);

struct pando_table_info {
    char name[PANDO_NAME_MAX];
    char engine[16];
    uint32_t key_max, value_inline;
};

/* The first `capacity` of the pool's tables, and how many there are. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_table_list(struct pando_pool *pool,
                                                              struct pando_table_info *out,
                                                              size_t capacity, size_t *count);

/* ---- one key --------------------------------------------------------------------------------- */

/* Keys and values handed in are read during the call only. */

/* Up to `capacity` bytes of the value go to `value` (NULL with 0), and its whole size to *size (may be
 * NULL). NOT_FOUND. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_get(struct pando_table *table, const void *key,
                                                       size_t key_size, void *value,
                                                       size_t capacity, size_t *size);

/* The same with memory for it: *value is to be freed with pando_free, and is never NULL on OK. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_get_copy(struct pando_table *table,
                                                            const void *key, size_t key_size,
                                                            void **value, size_t *size);
PANDO_API void pando_free(void *memory);

/* Up to `capacity` bytes of the value from `offset` on, which are all there are if the value ends before;
 * its whole size to *size (may be NULL). Of a long value no more is read than 256 KiB blocks that the part
 * touches. Two parts read one after the other may be of two values, if the key was written in between. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_get_part(struct pando_table *table,
                                                            const void *key, size_t key_size,
                                                            uint64_t offset, void *value,
                                                            size_t capacity, size_t *size);

/* FULL: the pool has no memory left; nothing was changed. A long value is written from the caller's memory:
 * the call needs little beside it. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_put(struct pando_table *table, const void *key,
                                                       size_t key_size, const void *value,
                                                       size_t value_size);

/* Only if the key is absent (EXISTS), or only if it is there (NOT_FOUND). */
enum pando_condition { PANDO_IF_ABSENT = 1, PANDO_IF_PRESENT = 2 };
PANDO_API PANDO_MUST_CHECK enum pando_status pando_put_if(struct pando_table *table,
                                                          enum pando_condition condition,
                                                          const void *key, size_t key_size,
                                                          const void *value, size_t value_size);

/* Only if the value is this one now: STALE otherwise, NOT_FOUND if there is none. */
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_compare_and_put(struct pando_table *table, const void *key, size_t key_size,
                      const void *expected, size_t expected_size, const void *value,
                      size_t value_size);

/* NOT_FOUND: it was not there. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_delete(struct pando_table *table,
                                                          const void *key, size_t key_size);

/* What a read-modify-write wants done. */
enum pando_change { PANDO_KEEP, PANDO_STORE, PANDO_REMOVE };

/* `old` is NULL when the key is absent, and lives until the callback returns. With PANDO_STORE, *value is the
 * new value; its bytes stay until the operation returns. It may be called several times for one operation,
 * and only the last call counts. Others wait for the key meanwhile: it does not block, and calls nothing of
 * this library. */
typedef enum pando_change (*pando_modify_fn)(void *context, const struct pando_slice *old,
                                             struct pando_slice *value);

/* Reads, decides and writes as one atomic step. OK also when it kept the value. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_modify(struct pando_table *table,
                                                          const void *key, size_t key_size,
                                                          pando_modify_fn callback, void *context);

/* Adds to a number, as one atomic step, and tells the sum (`sum` may be NULL). A number is 8 bytes, little
 * endian, signed; an absent key counts as 0. INVALID: the value is something else. RANGE: it would overflow;
 * nothing was changed. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_add(struct pando_table *table, const void *key,
                                                       size_t key_size, int64_t addend,
                                                       int64_t *sum);

/* ---- values in pieces ------------------------------------------------------------------------ */

/* A value that its writer does not have in memory whole (pando_get_part reads such):
 *
 *   pando_writer_open(table, "film", 4, 400000000, &writer)
 *   while (...) pando_writer_add(writer, piece, size)      in order, of any sizes
 *   pando_writer_commit(writer, 0)
 *   pando_writer_close(writer)
 *
 * The pieces go to the pool as they come; a writer holds up to 256 KiB of them, however long the value is. Nobody
 * sees any of it before the commit, which makes the whole of it the key's value in one atomic step, as pando_put
 * does; until then the key has its old value, and others may change it. Memory of the pool that was written and
 * not committed comes back when the writer is closed, or when its process ends or dies.
 *
 * A writer is used by one thread at a time, and not always by the same. It takes one of the pool's
 * PANDO_THREADS_MAX if the value has more than 256 KiB. Its table stays open as long as it. */

/* All of the value's bytes are announced. *out is the caller's, to be closed with pando_writer_close; nothing of
 * the key is kept. FULL: the pool could not hold it if it were empty, or has nothing left. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_writer_open(struct pando_table *table,
                                                               const void *key, size_t key_size,
                                                               uint64_t value_size,
                                                               struct pando_writer **out);

/* The next bytes, which are read during the call only. INVALID: NULL, or more than were announced; nothing was
 * taken. After any other failure the writer can only be closed, to write the value again: FULL: the pool has no
 * memory left; TIMEOUT also when this process has lost its membership since it opened the writer. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_writer_add(struct pando_writer *writer,
                                                              const void *bytes, size_t size);

/* Puts the value: if condition is 0 in any case, otherwise as pando_put_if does (EXISTS, NOT_FOUND). INVALID: bytes
 * are missing. After OK and UNKNOWN the writer can only be closed, and after the value's last bytes
 * could not be written (FULL among others): INVALID from then on. After another failure it may be
 * tried again, but for TIMEOUT that does not end: then the process has lost its membership, and
 * nothing was changed. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_writer_commit(struct pando_writer *writer,
                                                                 enum pando_condition condition);

/* Gives back what was not committed; NULL is OK. May be called by any thread. */
PANDO_API void pando_writer_close(struct pando_writer *writer);

/* ---- many keys ------------------------------------------------------------------------------- */

enum pando_operation_kind { PANDO_GET = 1, PANDO_PUT = 2, PANDO_DELETE = 3 };

struct pando_operation {
    enum pando_operation_kind kind;
    struct pando_slice key;
    struct pando_slice value; /* of a put */
    void *buffer;             /* of a get: up to `capacity` bytes of the value */
    size_t capacity;
    size_t value_size;        /* out, of a get: the whole value's */
    enum pando_status status; /* out */
};

/* Runs gets that overlap. Each has its own status. OK: all were OK or NOT_FOUND; otherwise the first other
 * status. INVALID, with nothing done: one is not a get. Key, buffer: as long as the call lasts. */
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_multi_get(struct pando_table *table, struct pando_operation *operations, size_t count);

/* Runs puts and deletes that overlap, in no order: a key is not to be twice in a batch. NOT atomic as a
 * whole: each has its own status, and others see them one by one. Returns as pando_multi_get does. */
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_write_batch(struct pando_table *table, struct pando_operation *operations, size_t count);

/* Deletes every key that begins so and was there throughout; tells how many (`deleted` may be NULL, and is
 * set on failure, too). An empty prefix: all keys. Not atomic: of keys that are put meanwhile some stay. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_delete_prefix(struct pando_table *table,
                                                                 const void *prefix,
                                                                 size_t prefix_size,
                                                                 uint64_t *deleted);

/* ---- iterators ------------------------------------------------------------------------------- */

struct pando_iterator_options {
    size_t size;
    struct pando_slice lower;  /* keys not below this one; data NULL: from the beginning */
    struct pando_slice upper;  /* keys below this one; data NULL: to the end */
    struct pando_slice prefix; /* keys that begin so */
    unsigned prefetch;         /* pairs read ahead, 1 to 4,096; 0: 64 */
};

/* An iterator stands on a pair, or nowhere: at first, after it ran off an end, and after a failure. It reads
 * some pairs ahead (prefetch, or 1 MiB of them). It is not a snapshot: it gives every pair within its
 * bounds that was there throughout, keys in order and each once in one direction, and what others write
 * meanwhile or not; a pair it stands on may have changed since it was read ahead. Values are in memory whole:
 * one of 512 MiB takes as much.
 *
 * options NULL: all of the table; nothing of them is kept. *out is the caller's. Used by one thread at a time.
 * The table stays open as long as the iterator. */
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_iterator_open(struct pando_table *table, const struct pando_iterator_options *options,
                    struct pando_iterator **out);
PANDO_API void pando_iterator_close(struct pando_iterator *iterator); /* NULL is OK */

/* Each of these moves and returns OK on a pair, NOT_FOUND if there is none there, or a failure. */

PANDO_API PANDO_MUST_CHECK enum pando_status pando_iterator_first(struct pando_iterator *iterator);
PANDO_API PANDO_MUST_CHECK enum pando_status pando_iterator_last(struct pando_iterator *iterator);

/* To the first key that is not below this one; to the last that is not above it. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_iterator_seek(struct pando_iterator *iterator,
                                                                 const void *key, size_t key_size);
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_iterator_seek_for_prev(struct pando_iterator *iterator, const void *key, size_t key_size);

/* INVALID: it stands nowhere. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_iterator_next(struct pando_iterator *iterator);
PANDO_API PANDO_MUST_CHECK enum pando_status pando_iterator_prev(struct pando_iterator *iterator);

/* 1 if it stands on a pair. Its key and value: until it is moved or closed; data NULL if it does not. None
 * of these blocks. */
PANDO_API int pando_iterator_valid(const struct pando_iterator *iterator);
PANDO_API struct pando_slice pando_iterator_key(const struct pando_iterator *iterator);
PANDO_API struct pando_slice pando_iterator_value(const struct pando_iterator *iterator);

/* ---- many operations in flight --------------------------------------------------------------- */

/* A queue runs operations on a thread of the library's while the caller does something else, or nothing;
 * they complete in any order. Used by one thread at a time. */

struct pando_completion {
    uint64_t tag; /* as submitted */
    enum pando_status status;
    size_t value_size; /* of a get: the whole value's */
};

/* Up to `depth` operations (1 to PANDO_QUEUE_DEPTH_MAX) that were submitted and not yet polled. It takes one
 * of the pool's PANDO_THREADS_MAX. *out is the caller's. */
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_queue_open(struct pando_pool *pool, unsigned depth, struct pando_queue **out);

/* Waits for the operations in flight; their completions are lost. NULL is OK. */
PANDO_API void pando_queue_close(struct pando_queue *queue);

/* Begin an operation; they do not block. Keys, values and buffers belong to the queue until the completion
 * has been polled. AGAIN: the queue is full; poll first. What the operation itself comes to is its
 * completion's status, as of pando_get, pando_put, pando_put_if, pando_delete. */
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_submit_get(struct pando_queue *queue, struct pando_table *table, const void *key,
                 size_t key_size, void *value, size_t capacity, uint64_t tag);
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_submit_put(struct pando_queue *queue, struct pando_table *table, const void *key,
                 size_t key_size, const void *value, size_t value_size, uint64_t tag);
PANDO_API PANDO_MUST_CHECK enum pando_status
pando_submit_put_if(struct pando_queue *queue, struct pando_table *table,
                    enum pando_condition condition, const void *key, size_t key_size,
                    const void *value, size_t value_size, uint64_t tag);
PANDO_API PANDO_MUST_CHECK enum pando_status pando_submit_delete(struct pando_queue *queue,
                                                                 struct pando_table *table,
                                                                 const void *key, size_t key_size,
                                                                 uint64_t tag);

/* Takes up to `capacity` completions and says how many. With none at hand it waits up to timeout_ms for the
 * first one: 0 does not wait, -1 waits for as long as it takes. OK with *count 0: none came, or none is in
 * flight. Of those that failed, pando_error_text tells about the last. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_queue_poll(struct pando_queue *queue,
                                                              struct pando_completion *out,
                                                              unsigned capacity, int timeout_ms,
                                                              unsigned *count);

/* Operations submitted and not yet polled. */
PANDO_API unsigned pando_queue_in_flight(const struct pando_queue *queue);

/* ---- counters -------------------------------------------------------------------------------- */

struct pando_counters {
    size_t size;
    uint64_t round_trips, reads, writes, atomics, calls, bytes_out, bytes_in, retries;
};

/* What this thread's calls on the pool have cost since its first one. All zero before. Set `size`. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_counters(struct pando_pool *pool,
                                                            struct pando_counters *out);

struct pando_table_counters {
    size_t size;
    uint64_t cache_hits, cache_misses, cache_bytes, cache_entries;
    uint64_t rereads, splits, merges, repairs, lock_waits, handovers;
    uint64_t damage; /* calls that met damaged memory: PANDO_CORRUPT */
};

/* What the process's calls on the table have met since it was opened here. Set `size`. */
PANDO_API PANDO_MUST_CHECK enum pando_status pando_table_counters(struct pando_table *table,
                                                                  struct pando_table_counters *out);

#ifdef __cplusplus
}
#endif

#endif
