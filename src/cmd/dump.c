/*
 * dump.c - a table's pairs into a file, and `pando dump`.
 *
 * Pairs are gathered into a block by a scan that ends when the block is full; the block is written by
 * a helper thread, because a disk may block and this loop has heartbeats to send; and the next scan
 * goes on behind the last key.
 */
#include "cmd/dump.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "cmd/dump_part.h"
#include "cmd/progress.h"
#include "cmd/with_store.h"
#include "store/dump.h"

enum { PATH_BYTES = 4096 };

struct settings {
    struct cmd_pool pool;
    const char *table;
};

static const struct config_option options[] = {
    {.name = "table",
     .metavar = "TABLE",
     .help = "The table.",
     .required = true,
     CONFIG_TEXT_INTO(struct settings, table)},
    CMD_POOL_OPTIONS(struct settings),
};

static const struct config_command command = {
    .name = "dump",
    .summary =
        "Writes a table to a file, in the order of its keys. Others may go on using the table: "
        "the file has every pair that was there throughout, but it is not a picture of one "
        "moment. The file appears under its name when it is complete and on the disk, and only its "
        "owner may read it. It may replace a regular file, but nothing else.",
    .positionals = "FILE",
    .example = "pando dump users.dump --table users --pool shm:demo",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .positionals_min = 1,
    .positionals_max = 1,
};

/* ---- the file -------------------------------------------------------------------------------- */

struct output {
    uint64_t written;
    uint32_t crc; /* CRC32C of what was written */
    char temporary[PATH_BYTES];
    const char *path;
    int fd;
    int error; /* the first errno */
    const uint8_t *bytes;
    size_t size;
};

/* Nothing is there, or a regular file. To replace a link or a device would be to lose it, and the
 * dump would not be where that leads. Otherwise errno is EEXIST. */
static bool may_replace(const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT;
    if (S_ISREG(info.st_mode))
        return true;
    errno = EEXIST;
    return false;
}

static bool output_open(struct output *output, const char *path)
{
    output->path = path;
    output->fd = -1;
    if (!may_replace(path))
        return false;
    int size = snprintf(output->temporary, sizeof(output->temporary), "%s.part-XXXXXX", path);
    if (size < 0 || (size_t)size >= sizeof(output->temporary)) {
        errno = ENAMETOOLONG;
        return false;
    }
    output->fd = mkostemp(output->temporary, O_CLOEXEC);
    return output->fd >= 0;
}

/* Goes on with what an earlier dump of this table has left, or begins anew. */
static bool output_continue_co(struct output *output, const struct dump_job *job,
                               const struct dump_table *table, struct dump_part *part)
{
    output->path = job->file;
    *part = (struct dump_part){0};
    snprintf(output->temporary, sizeof(output->temporary), "%s", job->part);
    output->fd = open(job->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (output->fd < 0)
        return false;
    dump_part_scan_co(output->fd, table, part);
    output->written = part->offset;
    output->crc = part->crc;
    return ftruncate(output->fd, (off_t)part->offset) == 0 &&
           lseek(output->fd, (off_t)part->offset, SEEK_SET) >= 0;
}

static void write_all(void *arg)
{
    struct output *output = arg;
    output->crc = crc32c(output->crc, output->bytes, output->size);
    output->written += output->size;
    while (output->size > 0 && output->error == 0) {
        ssize_t done = write(output->fd, output->bytes, output->size);
        if (done > 0) {
            output->bytes += done;
            output->size -= (size_t)done;
        } else if (done == 0 || errno != EINTR) {
            output->error = done == 0 ? EIO : errno;
        }
    }
}

static bool output_write_co(struct output *output, const uint8_t *bytes, size_t size)
{
    output->bytes = bytes;
    output->size = size;
    if (rt_blocking_co(write_all, output) != PANDO_OK)
        write_all(output); /* no thread to be had: here, then */
    return output->error == 0;
}

static bool sync_folder(const char *path)
{
    char copy[PATH_BYTES];
    snprintf(copy, sizeof(copy), "%s", path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return synced;
}

/* On the disk first, under its name then. It keeps the mode 0600 with which it was made. */
static void finish(void *arg)
{
    struct output *output = arg;
    if (fsync(output->fd) != 0 || !may_replace(output->path) ||
        rename(output->temporary, output->path) != 0 || !sync_folder(output->path))
        output->error = errno;
}

static bool output_finish_co(struct output *output)
{
    if (rt_blocking_co(finish, output) != PANDO_OK)
        finish(output);
    if (output->error == 0)
        output->temporary[0] = '\0';
    return output->error == 0;
}

/* `keep`: what is not complete stays, for output_continue_co. */
static void output_close(struct output *output, bool keep)
{
    if (output->fd >= 0)
        close(output->fd);
    if (output->fd >= 0 && output->temporary[0] != '\0' && !keep)
        (void)unlink(output->temporary);
}

/* ---- how far it is --------------------------------------------------------------------------- */

/* Between the first and the last key, by the eight bytes behind what the two have in common: right
 * for numbers and for keys that are evenly spread, a guess otherwise. */
struct span {
    size_t common;
    double first, last;
    uint8_t low[STORE_KEY_MAX];
    size_t low_size;
    bool known;
};

static double number_at(struct slice key, size_t at)
{
    double number = 0;
    for (size_t i = at; i < at + 8; i++)
        number = number * 256 + (i < key.size ? key.data[i] : 0);
    return number;
}

static bool take_first(void *context, struct slice key, struct slice value)
{
    struct span *span = context;
    (void)value;
    if (key.size > 0)
        memcpy(span->low, key.data, key.size);
    span->low_size = key.size;
    return false;
}

static bool take_last(void *context, struct slice key, struct slice value)
{
    struct span *span = context;
    struct slice low = slice_of(span->low, span->low_size);
    (void)value;
    while (span->common < key.size && span->common < low.size &&
           key.data[span->common] == low.data[span->common])
        span->common++;
    span->first = number_at(low, span->common);
    span->last = number_at(key, span->common);
    span->known = span->last > span->first;
    return false;
}

static void span_find_co(struct span *span, struct store_table *table)
{
    struct store_range range = {.no_high = true, .limit = 1, .values = STORE_SCAN_KEYS};
    if (store_scan_co(table, &range, take_first, span) != PANDO_OK)
        return;
    range.reverse = true;
    (void)!store_scan_co(table, &range, take_last, span);
}

static double span_fraction(const struct span *span, struct slice key)
{
    if (!span->known)
        return -1;
    double fraction = (number_at(key, span->common) - span->first) / (span->last - span->first);
    return fraction < 0 ? 0 : fraction > 1 ? 1 : fraction;
}

/* ---- the table ------------------------------------------------------------------------------- */

struct dump {
    const struct dump_job *job;
    struct store_table *table;
    struct output output;
    struct dump_block block;
    struct dump_sums sums;
    struct progress progress;
    struct span span;
    uint8_t last[STORE_KEY_MAX]; /* the last key in the block or before it */
    size_t last_size;
    bool any, no_memory;
    bool at_long; /* the scan came to a long value of this key */
    uint8_t long_key[STORE_KEY_MAX];
    size_t long_key_size;
};

static bool take_pair(void *context, struct slice key, struct slice value)
{
    struct dump *dump = context;
    if (dump->any && slice_equal(key, slice_of(dump->last, dump->last_size)))
        return true;                                           /* where this scan began */
    if (value.data == NULL && value.size > DUMP_VALUE_SHORT) { /* the scan stops for it */
        if (key.size > 0)
            memcpy(dump->long_key, key.data, key.size);
        dump->long_key_size = key.size;
        dump->at_long = true;
        return false;
    }
    if (!dump_block_add(&dump->block, key, value)) {
        dump->no_memory = true;
        return false;
    }
    if (key.size > 0)
        memcpy(dump->last, key.data, key.size);
    dump->last_size = key.size;
    dump->any = true;
    return !dump_block_full(&dump->block);
}

/* Writes the pairs gathered so far. */
static bool write_block_co(struct dump *dump)
{
    if (dump->block.pairs == 0)
        return true;
    dump_block_finish(&dump->block, &dump->sums);
    bool written = output_write_co(&dump->output, dump->block.bytes, dump->block.size);
    dump_block_reset(&dump->block);
    return written;
}

/* One part of a long value after the other. Its blocks may come back to the pool while it is read, once it
 * has been replaced: STALE, and the file is left where the value began. */
static enum pando_status long_parts_co(struct dump *dump, struct slice key, uint64_t reference,
                                       uint64_t size)
{
    for (uint64_t at = 0; at < size; at += DUMP_PART) {
        struct store_part part = {.offset = at,
                                  .to = dump_part_room(&dump->block),
                                  .capacity = size - at < DUMP_PART ? size - at : DUMP_PART,
                                  .reference = reference};
        if (part.to == NULL)
            return PANDO_NO_MEMORY;
        enum pando_status status = store_part_co(dump->table, key, &part);
        if (status == PANDO_OK && part.got != part.capacity)
            status = PANDO_STALE;
        if (status != PANDO_OK)
            return status;
        if (cmd_stopping())
            return PANDO_AGAIN;
        dump_part_build(&dump->block, part.got);
        if (!output_write_co(&dump->output, dump->block.bytes, dump->block.size))
            return PANDO_IO;
        progress_show(&dump->progress, span_fraction(&dump->span, key), dump->sums.pairs,
                      dump->sums.bytes);
    }
    return PANDO_OK;
}

/* The value that the scan stopped at, as it is now: NOT_FOUND, it is gone; STALE, it was replaced. */
static enum pando_status dump_long_once_co(struct dump *dump, struct slice key)
{
    uint8_t none;
    struct store_part part = {.to = &none};
    enum pando_status status = store_part_co(dump->table, key, &part);
    if (status != PANDO_OK)
        return status;
    if (part.size <= DUMP_VALUE_SHORT) { /* it is short by now */
        uint8_t *bytes = malloc(part.size + 1);
        uint64_t size = part.size;
        part = (struct store_part){.to = bytes, .capacity = size};
        status = bytes == NULL ? PANDO_NO_MEMORY : store_part_co(dump->table, key, &part);
        if (status == PANDO_OK && part.size != size)
            status = PANDO_STALE;
        if (status == PANDO_OK && !dump_block_add(&dump->block, key, slice_of(bytes, size)))
            status = PANDO_NO_MEMORY;
        free(bytes);
        return status == PANDO_OK && !write_block_co(dump) ? PANDO_IO : status;
    }
    struct dump_sums before = dump->sums;
    uint64_t begin = dump->output.written;
    uint32_t crc = dump->output.crc;
    if (!dump_long_build(&dump->block, key, part.size, &dump->sums))
        return PANDO_NO_MEMORY;
    if (!output_write_co(&dump->output, dump->block.bytes, dump->block.size))
        return PANDO_IO;
    status = long_parts_co(dump, key, part.reference, part.size);
    dump_block_reset(&dump->block);
    if (status != PANDO_STALE)
        return status;
    dump->sums = before;
    if (ftruncate(dump->output.fd, (off_t)begin) != 0 ||
        lseek(dump->output.fd, (off_t)begin, SEEK_SET) < 0) {
        dump->output.error = errno;
        return PANDO_IO;
    }
    dump->output.written = begin;
    dump->output.crc = crc;
    return status;
}

static enum pando_status dump_long_co(struct dump *dump)
{
    enum { TRIES = 64 };
    struct slice key = slice_of(dump->long_key, dump->long_key_size);
    enum pando_status status = write_block_co(dump) ? PANDO_STALE : PANDO_IO;
    for (int i = 0; i < TRIES && status == PANDO_STALE; i++)
        status = dump_long_once_co(dump, key);
    if (status == PANDO_NOT_FOUND && !store_table_dropped(dump->table))
        status = PANDO_OK;
    if (key.size > 0)
        memcpy(dump->last, key.data, key.size);
    dump->last_size = key.size;
    dump->any = true;
    dump->at_long = false;
    return status == PANDO_STALE ? PANDO_TIMEOUT : status;
}

static enum pando_status dump_blocks_co(struct dump *dump)
{
    uint8_t low[STORE_KEY_MAX];
    for (bool more = true; more;) {
        memcpy(low, dump->last, dump->last_size);
        struct store_range range = {
            .low = slice_of(low, dump->last_size), .no_high = true, .values = STORE_SCAN_SHORT};
        enum pando_status status = store_scan_co(dump->table, &range, take_pair, dump);
        if (status != PANDO_OK)
            return status;
        if (dump->no_memory)
            return PANDO_NO_MEMORY;
        if (cmd_stopping())
            return PANDO_AGAIN;
        more = dump_block_full(&dump->block) || dump->at_long;
        status = dump->at_long ? dump_long_co(dump) : write_block_co(dump) ? PANDO_OK : PANDO_IO;
        if (status != PANDO_OK)
            return status;
        progress_show(&dump->progress,
                      span_fraction(&dump->span, slice_of(dump->last, dump->last_size)),
                      dump->sums.pairs, dump->sums.bytes);
    }
    return PANDO_OK;
}

static bool find_engine_co(struct store_thread *thread, struct dump_table *table)
{
    unsigned count = 0;
    struct store_table_info *tables = NULL;
    if (store_table_list_co(thread, &tables, &count) == PANDO_OK) {
        for (unsigned i = 0; i < count; i++) {
            if (strcmp(tables[i].name, table->name) == 0)
                memcpy(table->engine, tables[i].engine, sizeof(table->engine));
        }
    }
    free(tables);
    return table->engine[0] != '\0';
}

static enum pando_status dump_file_co(struct dump *dump, const struct dump_table *table)
{
    uint8_t header[DUMP_HEADER_BYTES], tail[DUMP_TAIL_BLOCK];
    span_find_co(&dump->span, dump->table);
    dump_header_build(table, header);
    if (dump->output.written == 0 && !output_write_co(&dump->output, header, sizeof(header)))
        return PANDO_IO;
    enum pando_status status = dump_blocks_co(dump);
    if (status != PANDO_OK)
        return status;
    dump_tail_build(&dump->sums, tail);
    if (!output_write_co(&dump->output, tail, sizeof(tail)) || !output_finish_co(&dump->output))
        return PANDO_IO;
    return PANDO_OK;
}

static bool begin_co(struct dump *dump, const struct dump_job *job)
{
    struct dump_part part = {0};
    if (job->part == NULL)
        return output_open(&dump->output, job->file);
    bool open = output_continue_co(&dump->output, job, &job->about, &part);
    dump->sums = part.sums;
    dump->any = part.any;
    dump->last_size = part.last_size;
    memcpy(dump->last, part.last, part.last_size);
    return open;
}

static enum pando_status dump_table_co(struct dump *dump, struct store_thread *thread,
                                       struct dump_job *job)
{
    struct dump_table *about = &job->about;
    *about = (struct dump_table){.shape = *store_table_shape(dump->table)};
    snprintf(about->name, sizeof(about->name), "%s", job->table);
    if (job->engine != NULL)
        snprintf(about->engine, sizeof(about->engine), "%s", job->engine);
    else if (!find_engine_co(thread, about))
        return PANDO_NOT_FOUND;
    progress_begin(&dump->progress, job->what);
    enum pando_status status = PANDO_IO;
    if (begin_co(dump, job))
        status = dump_file_co(dump, about);
    else
        dump->output.error = errno;
    job->ns = progress_end_ns(&dump->progress);
    output_close(&dump->output, job->part != NULL && status != PANDO_NOT_FOUND);
    job->sums = dump->sums;
    job->file_bytes = dump->output.written;
    job->file_crc = dump->output.crc;
    job->error = dump->output.error;
    return status;
}

enum pando_status dump_job_co(struct dump_job *job, struct store_thread *thread)
{
    struct dump *dump = calloc(1, sizeof(*dump));
    if (dump == NULL)
        return PANDO_NO_MEMORY;
    dump->job = job;
    dump->output.fd = -1;
    job->text[0] = '\0';
    enum pando_status status =
        store_table_open_co(thread, job->table, &dump->table, job->text, sizeof(job->text));
    if (status == PANDO_OK) {
        status = dump_table_co(dump, thread, job);
        store_table_close(dump->table);
    }
    dump_block_free(&dump->block);
    free(dump);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static const char *write_error(int error)
{
    if (error == EEXIST)
        return "it exists and is no regular file, and would be lost; give another name";
    return strerror(error);
}

int dump_job_explain(const struct dump_job *job, const char *caller, enum pando_status status)
{
    if (status == PANDO_AGAIN) {
        cmd_error(caller, "stopped; %s was not written", job->file);
        return EXIT_STOPPED;
    }
    if (status == PANDO_IO)
        cmd_error(caller, "cannot write %s: %s", job->file, write_error(job->error));
    else if (job->text[0] != '\0')
        cmd_error(caller, "%s%s", job->text,
                  status == PANDO_NOT_FOUND ? "; `pando table list` shows what there is" : "");
    else
        cmd_error(caller, "cannot read the table '%.64s': %s; %s was not written", job->table,
                  pando_status_text(status), job->file);
    return EXIT_FAILED;
}

static int dump_co(void *context, struct store_thread *thread)
{
    struct dump_job *job = context;
    char size[FORMAT_SIZE_MAX];
    enum pando_status status = dump_job_co(job, thread);
    if (status != PANDO_OK)
        return dump_job_explain(job, "dump", status);
    printf("%s: %" PRIu64 " pairs of %s, %s, in %.1f s\n", job->file, job->sums.pairs, job->table,
           format_size(size, sizeof(size), job->sums.bytes), (double)job->ns / 1e9);
    return EXIT_OK;
}

int cmd_dump(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    int result = EXIT_FAILED;
    if (cmd_load(&config, &command, argc, argv, &settings, &result)) {
        struct dump_job job = {
            .table = settings.table, .file = config.positionals[0], .what = "dump"};
        cmd_catch_signals();
        result = cmd_with_store("dump", &settings.pool, dump_co, &job);
    }
    config_fini(&config);
    return result;
}
