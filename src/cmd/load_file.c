/*
 * load_file.c - reading a file of `pando dump` and putting its pairs into a table.
 *
 * The file is read twice: once to see that all of it is sound, before anything is changed, and once
 * to load it. Into a new table it goes by bulk load, into an existing one by many puts at a time.
 */
#include "cmd/load_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

enum { BATCH = 4096, WIDTH = 64, FILL_PERCENT = 90, READ_BYTES = 1024 * 1024 };

/* ---- the file -------------------------------------------------------------------------------- */

static void read_ahead(void *arg)
{
    struct load *load = arg;
    ssize_t got;
    do {
        got = read(load->fd, load->ahead, READ_BYTES);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        load->read_error = errno;
    load->ahead_at = 0;
    load->ahead_size = got > 0 ? (size_t)got : 0;
    load->crc = crc32c(load->crc, load->ahead, load->ahead_size);
}

static size_t source_co(void *context, uint8_t *to, size_t size)
{
    struct load *load = context;
    size_t done = 0;
    while (done < size) {
        if (load->ahead_at == load->ahead_size) {
            if (rt_blocking_co(read_ahead, load) != PANDO_OK)
                read_ahead(load);
            if (load->ahead_size == 0)
                break;
        }
        size_t piece = load->ahead_size - load->ahead_at;
        piece = piece < size - done ? piece : size - done;
        memcpy(to + done, load->ahead + load->ahead_at, piece);
        load->ahead_at += piece;
        done += piece;
    }
    return done;
}

enum pando_status load_rewind_co(struct load *load)
{
    dump_read_close(&load->reader);
    load->ahead_at = load->ahead_size = 0;
    load->crc = 0;
    if (lseek(load->fd, 0, SEEK_SET) != 0) {
        load->read_error = errno;
        return PANDO_IO;
    }
    return dump_read_open_co(&load->reader, source_co, load);
}

static void show(struct load *load)
{
    double fraction =
        load->file_bytes == 0 ? -1 : (double)load->reader.offset / (double)load->file_bytes;
    progress_show(&load->progress, fraction, load->reader.sums.pairs, load->reader.sums.bytes);
}

/* The next pair; false at the end, whichever: load->read_status says. */
static bool next_pair_co(struct load *load, struct slice *key, struct slice *value)
{
    if (!dump_read_ready(&load->reader)) {
        show(load);
        if (cmd_stopping()) {
            load->read_status = PANDO_AGAIN;
            return false;
        }
    }
    load->read_status = dump_read_co(&load->reader, key, value);
    return load->read_status == PANDO_OK;
}

enum pando_status load_check_co(struct load *load)
{
    struct slice key, value;
    enum pando_status status = load_rewind_co(load);
    if (status != PANDO_OK)
        return status;
    while (next_pair_co(load, &key, &value))
        continue;
    return load->read_status;
}

bool load_open(struct load *load)
{
    struct stat info;
    load->fd =
        open(load->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is refused, not waited for */
    if (load->fd < 0 || fstat(load->fd, &info) != 0) {
        cmd_error(load->command, "cannot read %s: %s", load->file, strerror(errno));
        return false;
    }
    if (!S_ISREG(info.st_mode)) {
        cmd_error(load->command, "%s is not a file; give one that pando dump wrote", load->file);
        return false;
    }
    load->file_bytes = (uint64_t)info.st_size;
    load->ahead = malloc(READ_BYTES);
    if (load->ahead == NULL)
        cmd_error(load->command, "out of memory");
    return load->ahead != NULL;
}

int load_explain_file(const struct load *load, enum pando_status status)
{
    const char *file = load->file;
    if (status == PANDO_AGAIN) {
        cmd_error(load->command, "stopped");
        return EXIT_STOPPED;
    }
    if (load->read_error != 0)
        cmd_error(load->command, "cannot read %s: %s", file, strerror(load->read_error));
    else
        cmd_error(load->command, "%s is damaged: %s; nothing was changed", file,
                  load->reader.error);
    return EXIT_FAILED;
}

/* ---- into a new table ------------------------------------------------------------------------ */

/* Puts the parts of a long value into a stage, which is sealed then. */
static enum pando_status stage_co(struct load *load, struct slice key, uint64_t size,
                                  struct store_stage **out, uint64_t *reference)
{
    struct slice part;
    *out = NULL;
    enum pando_status status = store_stage_open_co(load->table, key, size, !load->merge, out);
    while (status == PANDO_OK) {
        load->read_status = dump_read_part_co(&load->reader, &part);
        if (load->read_status == PANDO_OK && cmd_stopping())
            load->read_status = PANDO_AGAIN;
        if (load->read_status != PANDO_OK)
            break;
        show(load);
        status = store_stage_add_co(*out, part);
    }
    if (status != PANDO_OK || load->read_status != PANDO_NOT_FOUND)
        return status != PANDO_OK ? status : load->read_status;
    load->read_status = PANDO_OK;
    return store_stage_seal_co(*out, slice_of(NULL, 0), reference);
}

static bool feed(void *context, struct slice *key, struct slice *value)
{
    struct load *load = context;
    struct store_stage *stage;
    uint64_t reference = 0;
    if (!next_pair_co(load, key, value))
        return false;
    if (value->data != NULL || value->size == 0)
        return true;
    load->put_status = stage_co(load, *key, value->size, &stage, &reference);
    if (load->put_status != PANDO_OK) {
        store_stage_close_co(stage);
        return false;
    }
    store_stage_hand_over_co(stage);
    *value = slice_of(NULL, reference);
    return true;
}

enum pando_status load_bulk_co(struct load *load, struct store_table *table)
{
    load->table = table;
    enum pando_status status = store_bulk_load_co(table, feed, load, FILL_PERCENT);
    if (status != PANDO_OK || load->put_status != PANDO_OK)
        return status != PANDO_OK ? status : load->put_status;
    return load->read_status == PANDO_NOT_FOUND ? PANDO_OK : load->read_status;
}

enum pando_status load_create_co(struct load *load, struct store_thread *thread, const char *name,
                                 char *error, size_t error_bytes)
{
    const struct dump_table *table = &load->reader.table;
    return store_table_create_co(thread, name, table->engine, &table->shape, error, error_bytes);
}

/* ---- into one that is there ------------------------------------------------------------------ */

static enum pando_status merge_long_co(struct load *load, struct slice key, uint64_t size)
{
    const struct store_swap swap = {.expect = STORE_EXPECT_NOTHING, .mode = STORE_UPSERT};
    struct store_stage *stage;
    uint64_t reference;
    enum pando_status status = stage_co(load, key, size, &stage, &reference);
    if (status == PANDO_OK)
        status = store_stage_swap_co(stage, &swap);
    store_stage_close_co(stage);
    return status;
}

/* Puts what is in memory, at most BATCH pairs. The slices of a block live until the next is read. */
static enum pando_status merge_batch_co(struct load *load, struct store_table *table,
                                        struct engine_batch_op *ops)
{
    size_t count = 0;
    struct slice key, value;
    do {
        if (!next_pair_co(load, &key, &value))
            break;
        if (value.data == NULL && value.size > 0) /* the first of its batch: a block of its own */
            return merge_long_co(load, key, value.size);
        ops[count++] =
            (struct engine_batch_op){.kind = ENGINE_BATCH_PUT, .key = key, .value = value};
    } while (count < BATCH && dump_read_ready(&load->reader));
    store_batch_co(table, ops, count, WIDTH);
    for (size_t i = 0; i < count; i++) {
        if (ops[i].status != PANDO_OK)
            return ops[i].status;
    }
    return load->read_status;
}

enum pando_status load_merge_co(struct load *load, struct store_table *table)
{
    load->table = table;
    struct engine_batch_op *ops = calloc(BATCH, sizeof(*ops));
    enum pando_status status = ops == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    while (status == PANDO_OK)
        status = merge_batch_co(load, table, ops);
    free(ops);
    /* NOT_FOUND from a put means that the table is gone; from the reader, that all is done. */
    return status == PANDO_NOT_FOUND && load->read_status == PANDO_NOT_FOUND ? PANDO_OK : status;
}

/* ---- the end --------------------------------------------------------------------------------- */

void load_explain_table(const struct load *load, const char *name, enum pando_status status)
{
    const char *advice = "";
    if (status == PANDO_FULL)
        advice = "; the pool has no memory left: drop tables, or load into a larger pool";
    else if (status == PANDO_TOO_LARGE || status == PANDO_INVALID)
        advice = "; its keys or values have other sizes than the file's";
    cmd_error(load->command, "cannot load %s into the table '%.64s': %s%s", load->file, name,
              pando_status_text(status), advice);
}

void load_close(struct load *load)
{
    dump_read_close(&load->reader);
    if (load->fd >= 0)
        close(load->fd);
    load->fd = -1;
    free(load->ahead);
    load->ahead = NULL;
}
