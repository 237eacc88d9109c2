/*
 * backup.h - `pando backup create|verify|restore`: all tables of a pool to a directory and back. The formats are
 * in store/backup.h.
 */
#ifndef CMD_BACKUP_H
#define CMD_BACKUP_H

#include "cmd/load_file.h"
#include "store/backup.h"

int cmd_backup_create(int argc, char **argv);
int cmd_backup_verify(int argc, char **argv);
int cmd_backup_restore(int argc, char **argv);

/* The table in which a pool remembers how far a restore has come. It goes with the restore's end. */
#define BACKUP_JOURNAL "pando.restore"

enum { BACKUP_PATH_BYTES = 4096 };

/* ---- the directory (backup_dir.c) ------------------------------------------------------------ */

/* Functions that return false have said why. */
struct backup_dir {
    const char *command; /* for what is said */
    const char *path;
    int fd; /* -1: not open */
};

/* `make`: if it is not there. No other command works on it until it is closed; that ends with the process, too. */
bool backup_dir_open(struct backup_dir *dir, bool make);
void backup_dir_close(struct backup_dir *dir);

/* From now on only its owner may use it. */
bool backup_dir_private(const struct backup_dir *dir);

/* The path of a file in it. */
bool backup_dir_path(const struct backup_dir *dir, const char *file, char out[BACKUP_PATH_BYTES]);

/* Reads a manifest. NOT_FOUND: there is none of that name, and nothing was said. */
PANDO_MUST_CHECK enum pando_status backup_dir_read(const struct backup_dir *dir, const char *name,
                                                   struct backup_manifest *out);

/* Writes one: it is there whole and on the disk, or as it was before. */
bool backup_dir_write(const struct backup_dir *dir, const char *name,
                      struct backup_manifest *manifest);

/* Removes a file of ours. One that is not there is fine. */
bool backup_dir_remove(const struct backup_dir *dir, const char *name);

/* Calls fn with every name in it, until it returns false. */
enum backup_entry {
    BACKUP_ENTRY_MANIFEST,
    BACKUP_ENTRY_BEGUN,
    BACKUP_ENTRY_DUMP, /* of a table, whose name is given */
    BACKUP_ENTRY_PART, /* of one of these, cut off */
    BACKUP_ENTRY_OTHER,
};
typedef bool (*backup_entry_fn)(void *context, const char *name, enum backup_entry entry,
                                const char *table);
bool backup_dir_each(const struct backup_dir *dir, backup_entry_fn fn, void *context);

/* ---- a table's file (backup_file.c) ---------------------------------------------------------- */

/* Reads all of it and compares it with what it must be. On a task, which needs no pool. `what`: the work is
 * called so where its progress is shown. */
int backup_check_file_co(const struct backup_dir *dir, const struct backup_table *table,
                         const char *what);

/* What is in a file, if all of it is sound; nothing is said if it is not. */
PANDO_MUST_CHECK enum pando_status backup_read_file_co(const struct backup_dir *dir,
                                                       const char *table, const char *what,
                                                       struct backup_table *out);

/* Opens a table's file for loading; load_close is due in either case. */
bool backup_load_open(struct load *load, const struct backup_dir *dir, const char *table,
                      char path[BACKUP_PATH_BYTES]);

/* "db0 (3 of 17)". */
enum { BACKUP_WHAT_BYTES = CMD_NAME_BYTES + 32 };
const char *backup_what(char out[BACKUP_WHAT_BYTES], const char *table, unsigned number,
                        unsigned count);

/* When, for a person: "2026-11-19 06:00:00 UTC". */
enum { BACKUP_TIME_BYTES = 32 };
const char *backup_time(char out[BACKUP_TIME_BYTES], uint64_t seconds);

/* Pairs and bytes of all tables. */
struct dump_sums backup_sums(const struct backup_manifest *manifest);

#endif
