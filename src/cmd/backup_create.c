/*
 * backup_create.c - `pando backup create`: one dump after the other, the manifest last.
 *
 * A directory that is being filled has begun.json. A dump appears under its name when it is whole, so what is
 * there after an interruption is kept, once it was read and found sound. Of one that is not whole all blocks are
 * kept that are, and it goes on behind their last key.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cmd/backup.h"
#include "cmd/dump.h"

#define COMMAND "backup create"

struct settings {
    struct cmd_pool pool;
};

static const struct config_option options[] = {
    CMD_POOL_OPTIONS(struct settings),
};

static const struct config_command command = {
    .name = COMMAND,
    .summary =
        "Writes all tables of a pool to a directory, which is made, or empty. Others may go on "
        "using the pool. This is no snapshot: a table's file has every pair that was there "
        "throughout, and of what is written meanwhile some and some not, and the tables are "
        "written one after the other. If it is interrupted, the same command goes on where it "
        "stopped.",
    .positionals = "DIR",
    .example = "pando backup create /backup/monday --pool tcp:10.0.0.1:7000 --secret-file "
               "pando.secret",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .positionals_min = 1,
    .positionals_max = 1,
};

struct create {
    struct backup_dir dir;
    struct backup_manifest
        manifest; /* that is being made: a table is in it when its file is there */
    struct store_table_info *tables; /* of the pool, by name */
    unsigned count, kept;
    bool begun; /* before, and not finished */
    bool failed;
};

/* ---- what is there --------------------------------------------------------------------------- */

struct survey {
    const struct create *create;
    bool begun, finished;
    char dump[256], other[256]; /* one of them */
};

static bool look_at(void *context, const char *name, enum backup_entry entry, const char *table)
{
    struct survey *survey = context;
    (void)table;
    survey->begun |= entry == BACKUP_ENTRY_BEGUN;
    survey->finished |= entry == BACKUP_ENTRY_MANIFEST;
    if (entry == BACKUP_ENTRY_DUMP || entry == BACKUP_ENTRY_PART) {
        if (strcmp(name, BACKUP_BEGUN ".part") != 0) /* all that there may be before it */
            snprintf(survey->dump, sizeof(survey->dump), "%s", name);
    } else if (entry == BACKUP_ENTRY_OTHER) {
        snprintf(survey->other, sizeof(survey->other), "%s", name);
    }
    return true;
}

static bool survey_dir(struct create *create)
{
    struct survey survey = {.create = create};
    const struct backup_dir *dir = &create->dir;
    if (!backup_dir_each(dir, look_at, &survey))
        return false;
    if (survey.other[0] == '\0' && !survey.begun)
        memcpy(survey.other, survey.dump, sizeof(survey.other));
    if (survey.finished)
        cmd_error(COMMAND, "%s has a finished backup; give another directory", dir->path);
    else if (survey.other[0] != '\0')
        cmd_error(COMMAND, "%s has '%s', which is not of a backup; give an empty directory",
                  dir->path, survey.other);
    create->begun = survey.begun;
    return !survey.finished && survey.other[0] == '\0';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct store_table_info *)a)->name,
                  ((const struct store_table_info *)b)->name);
}

static const struct store_table_info *find_table(const struct create *create, const char *name)
{
    struct store_table_info key = {0};
    snprintf(key.name, sizeof(key.name), "%s", name);
    return bsearch(&key, create->tables, create->count, sizeof(key), by_name);
}

static bool list_tables_co(struct create *create, struct store_thread *thread)
{
    enum pando_status status = store_table_list_co(thread, &create->tables, &create->count);
    create->manifest.tables =
        status == PANDO_OK ? calloc(create->count + 1, sizeof(*create->manifest.tables)) : NULL;
    if (create->manifest.tables == NULL) {
        cmd_error(COMMAND, "cannot read the list of tables: %s",
                  pando_status_text(status == PANDO_OK ? PANDO_NO_MEMORY : status));
        return false;
    }
    qsort(create->tables, create->count, sizeof(*create->tables), by_name);
    if (find_table(create, BACKUP_JOURNAL) == NULL)
        return true;
    cmd_error(
        COMMAND,
        "the pool has a restore that is not finished: run that pando backup restore again, or "
        "drop the table '" BACKUP_JOURNAL "'");
    return false;
}

/* Where a table's file is until it is whole. The number tells a table from a later one of that name. */
static void part_of(const struct store_table_info *info, char out[BACKUP_FILE_MAX + 16])
{
    char file[BACKUP_FILE_MAX];
    backup_file_of(info->name, file);
    snprintf(out, BACKUP_FILE_MAX + 16, "%s.part-%06u", file, (unsigned)(info->number % 1000000));
}

/* Files of tables that are no more, and parts that nobody goes on with. */
static bool clean(void *context, const char *name, enum backup_entry entry, const char *table)
{
    struct create *create = context;
    char part[BACKUP_FILE_MAX + 16] = "";
    const struct store_table_info *info = find_table(create, table);
    if (info != NULL)
        part_of(info, part);
    bool remove = (entry == BACKUP_ENTRY_PART && strcmp(name, part) != 0) ||
                  (entry == BACKUP_ENTRY_DUMP && info == NULL);
    create->failed |= remove && !backup_dir_remove(&create->dir, name);
    return !create->failed;
}

/* Marks the directory as ours, or finds that it is. */
static bool begin(struct create *create)
{
    struct backup_manifest before;
    struct backup_manifest mark = create->manifest;
    const struct backup_dir *dir = &create->dir;
    if (!survey_dir(create) || !backup_dir_private(dir))
        return false;
    mark.count = 0;
    if (!create->begun)
        return backup_dir_write(dir, BACKUP_BEGUN, &mark);
    if (backup_dir_read(dir, BACKUP_BEGUN, &before) != PANDO_OK)
        return false;
    bool same = before.pool == create->manifest.pool;
    create->manifest.begun = before.begun;
    backup_manifest_free(&before);
    if (!same) {
        cmd_error(COMMAND, "%s has an unfinished backup of another pool; give another directory",
                  dir->path);
        return false;
    }
    return backup_dir_each(dir, clean, create) && !create->failed;
}

/* ---- one table ------------------------------------------------------------------------------- */

/* Whether its file is there already, from before the interruption. */
static bool keep_co(struct create *create, const struct store_table_info *info, const char *what,
                    struct backup_table *out)
{
    char file[BACKUP_FILE_MAX], path[BACKUP_PATH_BYTES];
    backup_file_of(info->name, file);
    FILE *found =
        !create->begun || !backup_dir_path(&create->dir, file, path) ? NULL : fopen(path, "re");
    if (found == NULL)
        return false;
    fclose(found);
    bool kept = backup_read_file_co(&create->dir, info->name, what, out) == PANDO_OK &&
                strcmp(out->table.engine, info->engine) == 0 &&
                out->table.shape.key_max == info->key_max &&
                out->table.shape.value_inline == info->value_inline;
    if (!kept && !cmd_stopping())
        create->failed |= !backup_dir_remove(&create->dir, file);
    create->kept += kept;
    return kept;
}

static int table_co(struct create *create, struct store_thread *thread,
                    const struct store_table_info *info)
{
    char what[BACKUP_WHAT_BYTES], file[BACKUP_FILE_MAX], part_file[BACKUP_FILE_MAX + 16];
    char path[BACKUP_PATH_BYTES], part[BACKUP_PATH_BYTES], size[FORMAT_SIZE_MAX];
    char name[CMD_NAME_BYTES];
    cmd_printable(info->name, name, sizeof(name));
    struct backup_table *out = &create->manifest.tables[create->manifest.count];
    (void)backup_what(what, info->name, (unsigned)(info - create->tables) + 1, create->count);
    if (keep_co(create, info, what, out)) {
        create->manifest.count++;
        return EXIT_OK;
    }
    backup_file_of(info->name, file);
    part_of(info, part_file);
    if (create->failed || !backup_dir_path(&create->dir, file, path) ||
        !backup_dir_path(&create->dir, part_file, part))
        return EXIT_FAILED;
    struct dump_job job = {
        .table = info->name, .file = path, .part = part, .engine = info->engine, .what = what};
    enum pando_status status = cmd_stopping() ? PANDO_AGAIN : dump_job_co(&job, thread);
    if (status == PANDO_NOT_FOUND) {
        printf("%s: dropped meanwhile\n", name);
        return EXIT_OK;
    }
    if (status == PANDO_IO) {
        cmd_error(COMMAND, "cannot write %s: %s; mend that, and run the same command again", path,
                  strerror(job.error));
        return EXIT_FAILED;
    }
    if (status != PANDO_OK)
        return dump_job_explain(&job, COMMAND, status);
    *out = (struct backup_table){.table = job.about,
                                 .sums = job.sums,
                                 .file_bytes = job.file_bytes,
                                 .file_crc = job.file_crc};
    create->manifest.count++;
    printf("%s: %" PRIu64 " pairs, %s, in %.1f s\n", name, job.sums.pairs,
           format_size(size, sizeof(size), job.sums.bytes), (double)job.ns / 1e9);
    fflush(stdout);
    return EXIT_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int finish(struct create *create)
{
    char size[FORMAT_SIZE_MAX];
    struct backup_manifest *manifest = &create->manifest;
    struct dump_sums sums = backup_sums(manifest);
    manifest->finished = (uint64_t)time(NULL);
    if (!backup_dir_write(&create->dir, BACKUP_MANIFEST, manifest) ||
        !backup_dir_remove(&create->dir, BACKUP_BEGUN))
        return EXIT_FAILED;
    printf("%s: %u tables, %" PRIu64 " pairs, %s", create->dir.path, manifest->count, sums.pairs,
           format_size(size, sizeof(size), sums.bytes));
    if (create->kept > 0)
        printf("; %u were there from before", create->kept);
    printf("\nThis is no snapshot: what was written while it was made is in it or not.\n");
    return EXIT_OK;
}

static int create_co(void *context, struct store_thread *thread)
{
    struct create *create = context;
    int result = EXIT_OK;
    create->manifest.pool = pool_id(pool_session_pool(store_session(thread)));
    create->manifest.begun = (uint64_t)time(NULL);
    if (!list_tables_co(create, thread) || !begin(create))
        return EXIT_FAILED;
    for (unsigned i = 0; i < create->count && result == EXIT_OK; i++)
        result = table_co(create, thread, &create->tables[i]);
    if (result == EXIT_OK)
        return finish(create);
    printf("%s: %u of %u tables; the same command goes on there\n", create->dir.path,
           create->manifest.count, create->count);
    return result;
}

int cmd_backup_create(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    struct create create = {.dir = {.command = COMMAND, .fd = -1}};
    int result = EXIT_FAILED;
    if (cmd_load(&config, &command, argc, argv, &settings, &result)) {
        create.dir.path = config.positionals[0];
        (void)umask(0077); /* what it makes is its owner's */
        cmd_catch_signals();
        result = EXIT_FAILED;
        if (backup_dir_open(&create.dir, true))
            result = cmd_with_store(COMMAND, &settings.pool, create_co, &create);
    }
    backup_manifest_free(&create.manifest);
    free(create.tables);
    backup_dir_close(&create.dir);
    config_fini(&config);
    return result;
}
