/*
 * load_file.h - a file of `pando dump` that is read, checked and put into a table: for `pando load` and
 * `pando backup`. Used by one task.
 */
#ifndef CMD_LOAD_FILE_H
#define CMD_LOAD_FILE_H

#include "cmd/progress.h"
#include "cmd/with_store.h"
#include "store/dump.h"

struct load {
    const char *command; /* for what is said */
    const char *file;
    bool merge; /* into a table that is there */
    struct progress progress;
    struct dump_reader reader;
    enum pando_status read_status; /* of the reader: NOT_FOUND at the end */
    enum pando_status put_status;  /* of a long value */
    struct store_table *table;
    uint64_t file_bytes;
    uint32_t crc; /* CRC32C of what was read so far; of the whole file after load_check_co */

    /* The file, read ahead by a helper thread in large pieces: a disk may block. */
    int fd, read_error;
    uint8_t *ahead;
    size_t ahead_at, ahead_size;
};

/* False with an error said. fd is -1 before. load_close is due in either case. */
bool load_open(struct load *load);
void load_close(struct load *load);

/* Reads all of it from the beginning. NOT_FOUND is the good end; AGAIN: the command is to stop. */
PANDO_MUST_CHECK enum pando_status load_check_co(struct load *load);

/* Goes back to the beginning, and reads the header. */
PANDO_MUST_CHECK enum pando_status load_rewind_co(struct load *load);

/* After a rewind: makes a table as the file has it; puts all pairs into an empty one, or over those of one that
 * is there. AGAIN: the command is to stop. */
PANDO_MUST_CHECK enum pando_status load_create_co(struct load *load, struct store_thread *thread,
                                                  const char *name, char *error,
                                                  size_t error_bytes);
PANDO_MUST_CHECK enum pando_status load_bulk_co(struct load *load, struct store_table *table);
PANDO_MUST_CHECK enum pando_status load_merge_co(struct load *load, struct store_table *table);

/* Says what is wrong with the file, and returns the exit status. */
int load_explain_file(const struct load *load, enum pando_status status);

/* Says why the table could not be loaded. */
void load_explain_table(const struct load *load, const char *name, enum pando_status status);

#endif
