/*
 * dump.h - `pando dump` and `pando load`: a table to a file and back.
 */
#ifndef CMD_DUMP_H
#define CMD_DUMP_H

#include "store/dump.h"
#include "store/store.h"

int cmd_dump(int argc, char **argv);
int cmd_load_file(int argc, char **argv);

/* A table that is to be written to a file, and what came of it. */
struct dump_job {
    const char *table, *file;
    const char *engine; /* the table's, if it is known; NULL: it is looked up */
    const char *part;   /* not NULL: it is written here until it is whole, behind what is there */
    const char *what;   /* the work is called so where its progress is shown */

    struct dump_table about;
    struct dump_sums sums;
    uint64_t file_bytes, ns;
    uint32_t file_crc; /* CRC32C of the whole file */
    int error;         /* after IO: errno */
    char text[512];    /* if the table cannot be opened: why */
};

/* The file appears under its name when it is complete and on the disk. AGAIN: the command is to stop. IO: it
 * cannot be written. Other failures are the table's; NOT_FOUND, it is not there, or was dropped. */
PANDO_MUST_CHECK enum pando_status dump_job_co(struct dump_job *job, struct store_thread *thread);

/* Says why it failed, and returns the exit status. */
int dump_job_explain(const struct dump_job *job, const char *caller, enum pando_status status);

#endif
