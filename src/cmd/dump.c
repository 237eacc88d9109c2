/*
 * dump.c - `pando dump`: a table's pairs into a file.
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

#include "cmd/progress.h"
#include "cmd/with_store.h"
#include "store/dump.h"

enum { ERROR_BYTES = 512, PATH_BYTES = 4096 };

struct settings {
    struct cmd_pool pool;
    const char *table;
    const char *file; /* a positional */
};

static const struct config_option options[] = {
    {.name = "table",
     .metavar = "NAME",
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
        "moment. The file appears under its name when it is complete and on the disk.",
    .positionals = "FILE",
    .example = "pando dump users.dump --table users --pool shm:demo",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .positionals_min = 1,
    .positionals_max = 1,
};

/* ---- the file -------------------------------------------------------------------------------- */

struct output {
    char temporary[PATH_BYTES];
    const char *path;
    int fd;
    int error; /* the first errno */
    const uint8_t *bytes;
    size_t size;
};

static bool output_open(struct output *output, const char *path)
{
    output->path = path;
    output->fd = -1;
    int size = snprintf(output->temporary, sizeof(output->temporary), "%s.part-XXXXXX", path);
    if (size < 0 || (size_t)size >= sizeof(output->temporary)) {
        errno = ENAMETOOLONG;
        return false;
    }
    output->fd = mkostemp(output->temporary, O_CLOEXEC);
    return output->fd >= 0;
}

static void write_all(void *arg)
{
    struct output *output = arg;
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
    if (rt_offload_co(write_all, output) != PANDO_OK)
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

/* On the disk first, under its name then. */
static void finish(void *arg)
{
    struct output *output = arg;
    mode_t mask = umask(0);
    (void)umask(mask);
    if (fchmod(output->fd, 0666 & ~mask) != 0 || fsync(output->fd) != 0 ||
        rename(output->temporary, output->path) != 0 || !sync_folder(output->path))
        output->error = errno;
}

static bool output_finish_co(struct output *output)
{
    if (rt_offload_co(finish, output) != PANDO_OK)
        finish(output);
    if (output->error == 0)
        output->temporary[0] = '\0';
    return output->error == 0;
}

static void output_close(struct output *output)
{
    if (output->fd >= 0)
        close(output->fd);
    if (output->fd >= 0 && output->temporary[0] != '\0')
        (void)unlink(output->temporary);
}

/* ---- how far it is --------------------------------------------------------------------------- */

/* Between the first and the last key, by the eight bytes behind what the two have in common: right
 * for numbers and for keys that are evenly spread, a guess otherwise. */
struct span {
    size_t common;
    double first, last;
    uint8_t low[ENGINE_KEY_MAX];
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
    struct engine_range range = {.no_high = true, .limit = 1};
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
    const struct settings *settings;
    struct store_table *table;
    struct output output;
    struct dump_block block;
    struct dump_sums sums;
    struct progress progress;
    struct span span;
    uint8_t last[ENGINE_KEY_MAX]; /* the last key in the block or before it */
    size_t last_size;
    bool any, no_memory;
};

static bool take_pair(void *context, struct slice key, struct slice value)
{
    struct dump *dump = context;
    if (dump->any && slice_equal(key, slice_of(dump->last, dump->last_size)))
        return true; /* where this scan began */
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

static enum pando_status dump_blocks_co(struct dump *dump)
{
    uint8_t low[ENGINE_KEY_MAX];
    for (bool more = true; more;) {
        memcpy(low, dump->last, dump->last_size);
        struct engine_range range = {.low = slice_of(low, dump->last_size), .no_high = true};
        enum pando_status status = store_scan_co(dump->table, &range, take_pair, dump);
        if (status != PANDO_OK)
            return status;
        if (dump->no_memory)
            return PANDO_NO_MEMORY;
        if (cmd_stopping())
            return PANDO_AGAIN;
        more = dump_block_full(&dump->block);
        if (dump->block.pairs == 0)
            break;
        dump_block_finish(&dump->block, &dump->sums);
        if (!output_write_co(&dump->output, dump->block.bytes, dump->block.size))
            return PANDO_IO;
        dump_block_reset(&dump->block);
        progress_show(&dump->progress,
                      span_fraction(&dump->span, slice_of(dump->last, dump->last_size)),
                      dump->sums.pairs, dump->sums.bytes);
    }
    return PANDO_OK;
}

static bool find_engine_co(struct store_thread *thread, struct dump_table *table)
{
    unsigned count = 0;
    struct store_table_info *tables = calloc(POOL_TABLES, sizeof(*tables));
    if (tables != NULL && store_table_list_co(thread, tables, POOL_TABLES, &count) == PANDO_OK) {
        for (unsigned i = 0; i < count; i++) {
            if (strcmp(tables[i].name, table->name) == 0)
                memcpy(table->engine, tables[i].engine, sizeof(table->engine));
        }
    }
    free(tables);
    return table->engine[0] != '\0';
}

static enum pando_status dump_file_co(struct dump *dump, struct store_thread *thread)
{
    struct dump_table table = {.shape = *store_table_shape(dump->table)};
    uint8_t header[DUMP_HEADER_BYTES], tail[DUMP_TAIL_BLOCK];
    snprintf(table.name, sizeof(table.name), "%s", dump->settings->table);
    if (!find_engine_co(thread, &table))
        return PANDO_NOT_FOUND;
    span_find_co(&dump->span, dump->table);
    dump_header_build(&table, header);
    if (!output_write_co(&dump->output, header, sizeof(header)))
        return PANDO_IO;
    enum pando_status status = dump_blocks_co(dump);
    if (status != PANDO_OK)
        return status;
    dump_tail_build(&dump->sums, tail);
    if (!output_write_co(&dump->output, tail, sizeof(tail)) || !output_finish_co(&dump->output))
        return PANDO_IO;
    return PANDO_OK;
}

static int conclude(const struct dump *dump, enum pando_status status, uint64_t ns)
{
    char size[FORMAT_SIZE_MAX];
    const char *file = dump->settings->file;
    if (status == PANDO_OK) {
        printf("%s: %" PRIu64 " pairs of %s, %s, in %.1f s\n", file, dump->sums.pairs,
               dump->settings->table, format_size(size, sizeof(size), dump->sums.bytes),
               (double)ns / 1e9);
        return EXIT_OK;
    }
    if (status == PANDO_AGAIN) {
        cmd_error("dump", "stopped; %s was not written", file);
        return EXIT_STOPPED;
    }
    if (status == PANDO_IO)
        cmd_error("dump", "cannot write %s: %s", file, strerror(dump->output.error));
    else
        cmd_error("dump", "cannot read the table '%.64s': %s; %s was not written",
                  dump->settings->table, pando_status_text(status), file);
    return EXIT_FAILED;
}

static int dump_co(void *context, struct store_thread *thread)
{
    struct dump *dump = context;
    char error[ERROR_BYTES] = "";
    enum pando_status status =
        store_table_open_co(thread, dump->settings->table, &dump->table, error, sizeof(error));
    if (status != PANDO_OK) {
        cmd_error("dump", "%s%s", error,
                  status == PANDO_NOT_FOUND ? "; `pando table list` shows what there is" : "");
        return EXIT_FAILED;
    }
    int result = EXIT_FAILED;
    if (output_open(&dump->output, dump->settings->file)) {
        progress_begin(&dump->progress, "dump");
        status = dump_file_co(dump, thread);
        result = conclude(dump, status, progress_end_ns(&dump->progress));
        output_close(&dump->output);
    } else {
        cmd_error("dump", "cannot write %s: %s", dump->settings->file, strerror(errno));
    }
    dump_block_free(&dump->block);
    store_table_close(dump->table);
    return result;
}

int cmd_dump(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    struct dump *dump = calloc(1, sizeof(*dump));
    int result = EXIT_FAILED;
    if (dump == NULL) {
        cmd_error("dump", "out of memory");
        return EXIT_FAILED;
    }
    if (cmd_load(&config, &command, argc, argv, &settings, &result)) {
        settings.file = config.positionals[0];
        dump->settings = &settings;
        cmd_catch_signals();
        result = cmd_with_store("dump", &settings.pool, dump_co, dump);
    }
    config_fini(&config);
    free(dump);
    return result;
}
