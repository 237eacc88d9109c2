/*
 * load.c - `pando load`: a file of `pando dump` into a table.
 *
 * The file is read twice: once to see that all of it is sound, before anything is changed, and once
 * to load it. Into a new table it goes by bulk load, into an existing one by many puts at a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/dump.h"
#include "cmd/progress.h"
#include "cmd/with_store.h"
#include "store/dump.h"

enum { ERROR_BYTES = 512, BATCH = 4096, WIDTH = 64, FILL_PERCENT = 90, READ_BYTES = 1024 * 1024 };

struct settings {
    struct cmd_pool pool;
    const char *table;
    bool merge;
    const char *file; /* a positional */
};

static const struct config_option options[] = {
    {.name = "table",
     .metavar = "NAME",
     .help = "The table; the name that the dumped one had, if not given.",
     CONFIG_TEXT_INTO(struct settings, table)},
    {.name = "merge",
     .help =
         "Put the pairs into a table that is there, over those with the same keys. Without it a "
         "new table is created.",
     CONFIG_BOOL_INTO(struct settings, merge)},
    CMD_POOL_OPTIONS(struct settings),
};

static const struct config_command command = {
    .name = "load",
    .summary =
        "Loads a file of `pando dump` into a new table, or into one that is there with --merge. "
        "A file that is damaged or cut off is noticed before anything is changed.",
    .positionals = "FILE",
    .example = "pando load users.dump --table users-again --pool shm:demo",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .positionals_min = 1,
    .positionals_max = 1,
};

struct load {
    const struct settings *settings;
    struct progress progress;
    struct dump_reader reader;
    enum pando_status read_status; /* of the reader: NOT_FOUND at the end */
    uint64_t file_bytes;

    /* The file, read ahead by a helper thread in large pieces: a disk may block. */
    int fd, read_error;
    uint8_t *ahead;
    size_t ahead_at, ahead_size;
};

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
}

static size_t source_co(void *context, uint8_t *to, size_t size)
{
    struct load *load = context;
    size_t done = 0;
    while (done < size) {
        if (load->ahead_at == load->ahead_size) {
            if (rt_offload_co(read_ahead, load) != PANDO_OK)
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

static enum pando_status rewind_co(struct load *load)
{
    load->ahead_at = load->ahead_size = 0;
    if (lseek(load->fd, 0, SEEK_SET) != 0) {
        load->read_error = errno;
        return PANDO_IO;
    }
    return dump_read_open_co(&load->reader, source_co, load);
}

/* The next pair; false at the end, whichever: load->read_status says. */
static bool next_pair_co(struct load *load, struct slice *key, struct slice *value)
{
    if (!dump_read_ready(&load->reader)) {
        double fraction =
            load->file_bytes == 0 ? -1 : (double)load->reader.offset / (double)load->file_bytes;
        progress_show(&load->progress, fraction, load->reader.sums.pairs, load->reader.sums.bytes);
        if (cmd_stopping()) {
            load->read_status = PANDO_AGAIN;
            return false;
        }
    }
    load->read_status = dump_read_co(&load->reader, key, value);
    return load->read_status == PANDO_OK;
}

/* Reads all of it. NOT_FOUND is the good end. */
static enum pando_status check_co(struct load *load)
{
    struct slice key, value;
    enum pando_status status = rewind_co(load);
    if (status != PANDO_OK)
        return status;
    while (next_pair_co(load, &key, &value))
        continue;
    return load->read_status;
}

static bool open_file(struct load *load)
{
    struct stat info;
    load->fd = open(load->settings->file, O_RDONLY | O_CLOEXEC);
    if (load->fd < 0 || fstat(load->fd, &info) != 0) {
        cmd_error("load", "cannot read %s: %s", load->settings->file, strerror(errno));
        return false;
    }
    if (!S_ISREG(info.st_mode)) {
        cmd_error("load", "%s is not a file; give one that pando dump wrote", load->settings->file);
        return false;
    }
    load->file_bytes = (uint64_t)info.st_size;
    load->ahead = malloc(READ_BYTES);
    if (load->ahead == NULL)
        cmd_error("load", "out of memory");
    return load->ahead != NULL;
}

static int explain_file(const struct load *load, enum pando_status status)
{
    const char *file = load->settings->file;
    if (status == PANDO_AGAIN) {
        cmd_error("load", "stopped");
        return EXIT_STOPPED;
    }
    if (load->read_error != 0)
        cmd_error("load", "cannot read %s: %s", file, strerror(load->read_error));
    else
        cmd_error("load", "%s is damaged: %s; nothing was changed", file, load->reader.error);
    return EXIT_FAILED;
}

/* ---- into a new table ------------------------------------------------------------------------ */

static bool feed(void *context, struct slice *key, struct slice *value)
{
    return next_pair_co(context, key, value);
}

static enum pando_status bulk_co(struct load *load, struct store_table *table)
{
    enum pando_status status = store_bulk_load_co(table, feed, load, FILL_PERCENT);
    if (status != PANDO_OK)
        return status;
    return load->read_status == PANDO_NOT_FOUND ? PANDO_OK : load->read_status;
}

static enum pando_status create_co(struct load *load, struct store_thread *thread, const char *name,
                                   char *error, size_t error_bytes)
{
    const struct dump_table *table = &load->reader.table;
    return store_table_create_co(thread, name, table->engine, &table->shape, error, error_bytes);
}

/* ---- into one that is there ------------------------------------------------------------------ */

/* Puts what is in memory, at most BATCH pairs. The slices of a block live until the next is read. */
static enum pando_status merge_batch_co(struct load *load, struct store_table *table,
                                        struct engine_batch_op *ops)
{
    size_t count = 0;
    struct slice key, value;
    do {
        if (!next_pair_co(load, &key, &value))
            break;
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

static enum pando_status merge_co(struct load *load, struct store_table *table)
{
    struct engine_batch_op *ops = calloc(BATCH, sizeof(*ops));
    enum pando_status status = ops == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    while (status == PANDO_OK)
        status = merge_batch_co(load, table, ops);
    free(ops);
    /* NOT_FOUND from a put means that the table is gone; from the reader, that all is done. */
    return status == PANDO_NOT_FOUND && load->read_status == PANDO_NOT_FOUND ? PANDO_OK : status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void explain_table(const struct load *load, const char *name, enum pando_status status)
{
    const char *advice = "";
    if (status == PANDO_FULL)
        advice = "; the pool has no memory left: add a memory node, or drop tables";
    else if (status == PANDO_TOO_LARGE || status == PANDO_INVALID)
        advice = "; its keys or values have other sizes than the file's";
    cmd_error("load", "cannot load %s into the table '%.64s': %s%s", load->settings->file, name,
              pando_status_text(status), advice);
}

static int load_table_co(struct load *load, struct store_thread *thread, const char *name)
{
    char error[ERROR_BYTES] = "", size[FORMAT_SIZE_MAX];
    struct store_table *table;
    bool merge = load->settings->merge;
    enum pando_status status =
        merge ? PANDO_OK : create_co(load, thread, name, error, sizeof(error));
    if (status == PANDO_OK)
        status = store_table_open_co(thread, name, &table, error, sizeof(error));
    if (status != PANDO_OK) {
        cmd_error("load", "%s%s", error,
                  status == PANDO_EXISTS ? "; add --merge, or give another --table" : "");
        return EXIT_FAILED;
    }
    progress_begin(&load->progress, "load");
    status = merge ? merge_co(load, table) : bulk_co(load, table);
    uint64_t ns = progress_end_ns(&load->progress);
    store_table_close(table);
    if (status == PANDO_OK) {
        printf("%s: %" PRIu64 " pairs from %s, %s, in %.1f s\n", name, load->reader.sums.pairs,
               load->settings->file, format_size(size, sizeof(size), load->reader.sums.bytes),
               (double)ns / 1e9);
        return EXIT_OK;
    }
    if (status == PANDO_AGAIN)
        cmd_error("load", "stopped%s",
                  merge ? "; what was put so far stays, and loading again goes over it" : "");
    else
        explain_table(load, name, status);
    if (!merge && store_table_drop_co(thread, name) != PANDO_OK)
        cmd_error("load", "the table '%.64s' is left behind; drop it", name);
    return status == PANDO_AGAIN ? EXIT_STOPPED : EXIT_FAILED;
}

static int load_co(void *context, struct store_thread *thread)
{
    struct load *load = context;
    progress_begin(&load->progress, "check");
    enum pando_status status = check_co(load);
    (void)progress_end_ns(&load->progress);
    if (status != PANDO_NOT_FOUND)
        return explain_file(load, status);
    dump_read_close(&load->reader);
    status = rewind_co(load);
    if (status != PANDO_OK)
        return explain_file(load, status);
    const char *name = load->settings->table;
    return load_table_co(load, thread, name != NULL ? name : load->reader.table.name);
}

int cmd_load_file(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    struct load *load = calloc(1, sizeof(*load));
    int result = EXIT_FAILED;
    if (load == NULL) {
        cmd_error("load", "out of memory");
        return EXIT_FAILED;
    }
    load->fd = -1;
    if (cmd_load(&config, &command, argc, argv, &settings, &result)) {
        settings.file = config.positionals[0];
        load->settings = &settings;
        cmd_catch_signals();
        result = EXIT_FAILED;
        if (open_file(load))
            result = cmd_with_store("load", &settings.pool, load_co, load);
    }
    dump_read_close(&load->reader);
    if (load->fd >= 0)
        close(load->fd);
    free(load->ahead);
    config_fini(&config);
    free(load);
    return result;
}
