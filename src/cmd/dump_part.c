#include "cmd/dump_part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "cmd/with_store.h"

enum { READ_BYTES = 1024 * 1024 };

/* The file, read by a helper thread; the check is of what was handed out. */
struct source {
    int fd;
    uint32_t crc;
    size_t at, size;
    uint8_t *bytes;
};

static void read_more(void *arg)
{
    struct source *source = arg;
    ssize_t got;
    do {
        got = read(source->fd, source->bytes, READ_BYTES);
    } while (got < 0 && errno == EINTR);
    source->at = 0;
    source->size = got > 0 ? (size_t)got : 0; /* what cannot be read counts as not there */
}

static size_t take_co(void *context, uint8_t *to, size_t size)
{
    struct source *source = context;
    size_t done = 0;
    while (done < size) {
        if (source->at == source->size) {
            if (rt_blocking_co(read_more, source) != PANDO_OK)
                read_more(source);
            if (source->size == 0)
                break;
        }
        size_t piece = source->size - source->at;
        piece = piece < size - done ? piece : size - done;
        memcpy(to + done, source->bytes + source->at, piece);
        source->at += piece;
        done += piece;
    }
    source->crc = crc32c(source->crc, to, done);
    return done;
}

static bool same_table(const struct dump_table *a, const struct dump_table *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->engine, b->engine) == 0 &&
           a->shape.key_size == b->shape.key_size && a->shape.value_size == b->shape.value_size &&
           a->shape.key_max == b->shape.key_max && a->shape.value_inline == b->shape.value_inline &&
           a->shape.node_bytes == b->shape.node_bytes;
}

/* Until here all is whole. */
static void remember(const struct dump_reader *reader, const struct source *source,
                     struct dump_part *out)
{
    out->offset = reader->offset;
    out->crc = source->crc;
    out->sums = reader->sums;
    out->any = reader->any;
    out->last_size = reader->last_key_size;
    memcpy(out->last, reader->last_key, reader->last_key_size);
}

static enum pando_status skip_parts_co(struct dump_reader *reader)
{
    struct slice part;
    enum pando_status status = PANDO_OK;
    while (status == PANDO_OK && !cmd_stopping())
        status = dump_read_part_co(reader, &part);
    return status == PANDO_NOT_FOUND ? PANDO_OK : status == PANDO_OK ? PANDO_AGAIN : status;
}

static void scan_co(struct source *source, const struct dump_table *table, struct dump_part *out)
{
    struct dump_reader reader;
    struct slice key, value;
    enum pando_status status = dump_read_open_co(&reader, take_co, source);
    if (status == PANDO_OK && reader.version == DUMP_VERSION && same_table(&reader.table, table))
        remember(&reader, source, out);
    else
        status = PANDO_INVALID;
    while (status == PANDO_OK && !cmd_stopping()) {
        status = dump_read_co(&reader, &key, &value);
        if (status == PANDO_OK && value.data == NULL && value.size > 0)
            status = skip_parts_co(&reader);
        if (status == PANDO_OK && !dump_read_ready(&reader))
            remember(&reader, source, out);
    }
    if (status == PANDO_NOT_FOUND) /* complete, but for its name: it is made anew */
        *out = (struct dump_part){0};
    dump_read_close(&reader);
}

void dump_part_scan_co(int fd, const struct dump_table *table, struct dump_part *out)
{
    struct stat info;
    struct source source = {.fd = fd};
    *out = (struct dump_part){0};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < DUMP_HEADER_BYTES)
        return;
    source.bytes = malloc(READ_BYTES);
    if (source.bytes != NULL)
        scan_co(&source, table, out);
    free(source.bytes);
}
