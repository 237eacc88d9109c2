/*
 * backup_file.c - the files of a backup's tables, looked at one by one; and `pando backup verify`.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/backup.h"

const char *backup_what(char out[BACKUP_WHAT_BYTES], const char *table, unsigned number,
                        unsigned count)
{
    char name[CMD_NAME_BYTES];
    snprintf(out, BACKUP_WHAT_BYTES, "%s (%u of %u)", cmd_printable(table, name, sizeof(name)),
             number, count);
    return out;
}

const char *backup_time(char out[BACKUP_TIME_BYTES], uint64_t seconds)
{
    struct tm broken;
    time_t then = (time_t)seconds;
    if (seconds > UINT32_MAX || gmtime_r(&then, &broken) == NULL ||
        strftime(out, BACKUP_TIME_BYTES, "%Y-%m-%d %H:%M:%S UTC", &broken) == 0)
        snprintf(out, BACKUP_TIME_BYTES, "an unknown time");
    return out;
}

struct dump_sums backup_sums(const struct backup_manifest *manifest)
{
    struct dump_sums sums = {0};
    for (unsigned i = 0; i < manifest->count; i++) {
        sums.pairs += manifest->tables[i].sums.pairs;
        sums.bytes += manifest->tables[i].sums.bytes;
    }
    return sums;
}

/* ---- one file -------------------------------------------------------------------------------- */

bool backup_load_open(struct load *load, const struct backup_dir *dir, const char *table,
                      char path[BACKUP_PATH_BYTES])
{
    char file[BACKUP_FILE_MAX];
    *load = (struct load){.command = dir->command, .file = path, .fd = -1};
    backup_file_of(table, file);
    return backup_dir_path(dir, file, path) && load_open(load);
}

static enum pando_status check_co(struct load *load, const char *what)
{
    progress_begin(&load->progress, what);
    enum pando_status status = load_check_co(load);
    (void)progress_end_ns(&load->progress);
    return status;
}

/* What is in the file is not what the manifest says; NULL: it is. */
static const char *difference(const struct load *load, const struct backup_table *table)
{
    const struct dump_reader *reader = &load->reader;
    const struct store_shape *found = &reader->table.shape, *wanted = &table->table.shape;
    if (strcmp(reader->table.name, table->table.name) != 0)
        return "it is another table's";
    if (strcmp(reader->table.engine, table->table.engine) != 0 ||
        found->key_size != wanted->key_size || found->value_size != wanted->value_size ||
        found->key_max != wanted->key_max || found->value_inline != wanted->value_inline ||
        found->node_bytes != wanted->node_bytes)
        return "its table has another engine or other sizes than the manifest says";
    if (reader->sums.pairs != table->sums.pairs || reader->sums.bytes != table->sums.bytes)
        return "it has another number of pairs or bytes than the manifest says";
    if (load->file_bytes != table->file_bytes || load->crc != table->file_crc)
        return "it is another file than the manifest says: its checksum differs";
    return NULL;
}

int backup_check_file_co(const struct backup_dir *dir, const struct backup_table *table,
                         const char *what)
{
    char path[BACKUP_PATH_BYTES];
    struct load *load = calloc(1, sizeof(*load));
    int result = EXIT_FAILED;
    if (load == NULL) {
        cmd_error(dir->command, "out of memory");
        return EXIT_FAILED;
    }
    if (backup_load_open(load, dir, table->table.name, path)) {
        enum pando_status status = check_co(load, what);
        const char *differs = status == PANDO_NOT_FOUND ? difference(load, table) : NULL;
        if (status != PANDO_NOT_FOUND)
            result = load_explain_file(load, status);
        else if (differs != NULL)
            cmd_error(dir->command, "%s does not belong to this backup: %s", path, differs);
        else
            result = EXIT_OK;
    }
    load_close(load);
    free(load);
    return result;
}

enum pando_status backup_read_file_co(const struct backup_dir *dir, const char *table,
                                      const char *what, struct backup_table *out)
{
    char path[BACKUP_PATH_BYTES];
    struct load *load = calloc(1, sizeof(*load));
    if (load == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = PANDO_IO;
    if (backup_load_open(load, dir, table, path))
        status = check_co(load, what);
    if (status == PANDO_NOT_FOUND)
        status = strcmp(load->reader.table.name, table) == 0 ? PANDO_OK : PANDO_CORRUPT;
    if (status == PANDO_OK)
        *out = (struct backup_table){.table = load->reader.table,
                                     .sums = load->reader.sums,
                                     .file_bytes = load->file_bytes,
                                     .file_crc = load->crc};
    load_close(load);
    free(load);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct config_command command = {
    .name = "backup verify",
    .summary = "Reads all of a directory of `pando backup create` and compares every checksum. It "
               "needs no "
               "pool and changes nothing. Exit status 0: every table can be restored.",
    .positionals = "DIR",
    .example = "pando backup verify /backup/monday",
    .positionals_min = 1,
    .positionals_max = 1,
};

struct verify {
    struct backup_dir dir;
    struct backup_manifest manifest;
    unsigned bad;
    int result;
};

static bool look_at(void *context, const char *name, enum backup_entry entry, const char *table)
{
    struct verify *verify = context;
    bool known = entry == BACKUP_ENTRY_MANIFEST || entry == BACKUP_ENTRY_BEGUN ||
                 (entry == BACKUP_ENTRY_DUMP && backup_find(&verify->manifest, table) != NULL);
    if (!known) {
        cmd_error(verify->dir.command, "%s/%.255s is not of this backup; move it elsewhere",
                  verify->dir.path, name);
        verify->bad++;
    }
    return true;
}

static void verify_task(void *context)
{
    struct verify *verify = context;
    char what[BACKUP_WHAT_BYTES];
    int result = EXIT_OK;
    for (unsigned i = 0; i < verify->manifest.count && result != EXIT_STOPPED; i++) {
        const struct backup_table *table = &verify->manifest.tables[i];
        (void)backup_what(what, table->table.name, i + 1, verify->manifest.count);
        result = backup_check_file_co(&verify->dir, table, what);
        verify->bad += result == EXIT_FAILED;
    }
    verify->result = result == EXIT_STOPPED ? EXIT_STOPPED : EXIT_OK;
}

static int conclude(const struct verify *verify)
{
    char size[FORMAT_SIZE_MAX], when[BACKUP_TIME_BYTES];
    const struct backup_manifest *manifest = &verify->manifest;
    struct dump_sums sums = backup_sums(manifest);
    if (verify->result != EXIT_OK)
        return verify->result;
    if (verify->bad > 0) {
        cmd_error(
            verify->dir.command,
            "%s: %u files are damaged, missing or not of this backup; the other tables can be "
            "loaded one by one with pando load",
            verify->dir.path, verify->bad);
        return EXIT_FAILED;
    }
    printf("%s: %u tables, %" PRIu64 " pairs, %s, begun %s: all files are sound\n",
           verify->dir.path, manifest->count, sums.pairs,
           format_size(size, sizeof(size), sums.bytes), backup_time(when, manifest->begun));
    return EXIT_OK;
}

static int verify_dir(struct verify *verify)
{
    if (!backup_dir_open(&verify->dir, false))
        return EXIT_FAILED;
    enum pando_status status = backup_dir_read(&verify->dir, BACKUP_MANIFEST, &verify->manifest);
    if (status == PANDO_NOT_FOUND)
        cmd_error(verify->dir.command,
                  "%s has no " BACKUP_MANIFEST
                  ": it is no backup, or one that is not finished; run "
                  "pando backup create again",
                  verify->dir.path);
    if (status != PANDO_OK || !backup_dir_each(&verify->dir, look_at, verify))
        return EXIT_FAILED;
    struct rt_loop *loop = rt_loop_create();
    if (loop == NULL || rt_loop_call(loop, verify_task, verify) != PANDO_OK) {
        cmd_error(verify->dir.command, "out of memory or file descriptors");
        verify->result = EXIT_FAILED;
    }
    if (loop != NULL)
        rt_loop_destroy(loop);
    return conclude(verify);
}

int cmd_backup_verify(int argc, char **argv)
{
    struct verify verify = {.dir = {.command = "backup verify", .fd = -1}};
    struct config config;
    int result = EXIT_FAILED, none;
    if (cmd_load(&config, &command, argc, argv, &none, &result)) {
        verify.dir.path = config.positionals[0];
        cmd_catch_signals();
        result = verify_dir(&verify);
    }
    backup_manifest_free(&verify.manifest);
    backup_dir_close(&verify.dir);
    config_fini(&config);
    return result;
}
