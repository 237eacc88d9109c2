/*
 * backup.h - the manifest of `pando backup`, and how its files are named: bytes in, bytes out.
 *
 * A backup is a directory with one file of `pando dump` for each table, and
 *
 *   manifest.json   what a finished one has: written last
 *   begun.json      the same without tables, of one that is not finished
 *
 *   {"format": "pando backup", "version": 1, "release": "0.1.0", "pool": "<16 hex digits>",
 *    "begun": <unix time>, "finished": <unix time, 0 in begun.json>,
 *    "tables": [{"name": "db0", "file": "db0.dump", "engine": "dex", "key_size": 0, "value_size": 0,
 *                "key_max": 96, "value_inline": 64, "node_bytes": 1024, "pairs": 1, "bytes": 2,
 *                "file_bytes": 190, "file_crc32c": 123}, ...],
 *    "crc32c": "<8 hex digits>"}
 *
 * on one line, in this order. The last member is the CRC32C of all bytes before the comma in front of it; through
 * the files' own it is one of the whole backup. Tables rise by the bytes of their names. A file's name is the table's
 * with all bytes but A-Z a-z 0-9 _ - and . within it as %XX, and ".dump"; "name" is for people: bytes that are not
 * UTF-8 are lost in it.
 */
#ifndef STORE_BACKUP_H
#define STORE_BACKUP_H

#include "store/dump.h"

enum {
    BACKUP_VERSION = 1,
    BACKUP_FILE_MAX = 3 * POOL_NAME_MAX + 8, /* bytes of a file's name with its NUL */
    BACKUP_TABLES_MAX = 65536,
    BACKUP_MANIFEST_MAX = 64 * 1024 * 1024, /* bytes */
};

#define BACKUP_MANIFEST "manifest.json"
#define BACKUP_BEGUN    "begun.json"
#define BACKUP_SUFFIX   ".dump"

struct backup_table {
    struct dump_table table;
    struct dump_sums sums;
    uint64_t file_bytes;
    uint32_t file_crc;
};

struct backup_manifest {
    uint64_t pool;
    uint64_t begun, finished; /* unix time in seconds */
    struct backup_table *tables;
    unsigned count;
    uint32_t crc; /* of the manifest: with the files' own, of the whole */
};

/* The name of a table's file. */
void backup_file_of(const char *table, char out[BACKUP_FILE_MAX]);

/* The table whose file this is; false: no table's. */
PANDO_MUST_CHECK bool backup_table_of(const char *file, char out[POOL_NAME_MAX]);

/* The text, to be freed, and its check in manifest->crc; NULL: no memory. The tables rise. */
char *backup_manifest_build(struct backup_manifest *manifest, size_t *size);

/* CORRUPT: it is damaged or no manifest. VERSION. NO_MEMORY. `error` says what. */
PANDO_MUST_CHECK enum pando_status backup_manifest_read(const char *text, size_t size,
                                                        struct backup_manifest *out, char *error,
                                                        size_t error_bytes);
void backup_manifest_free(struct backup_manifest *manifest);

/* What the file of a table must be; NULL: there is none of that name. */
const struct backup_table *backup_find(const struct backup_manifest *manifest, const char *table);

#endif
