/*
 * backup_restore.c - `pando backup restore`: every table of a backup made anew and filled by bulk load.
 *
 * A table in the pool (BACKUP_JOURNAL) tells how far it has come. It has the backup's own number under the key "#",
 * which no table is called, and an entry for each table that was begun:
 *
 *   cut off                                what is found                        what the next does
 *   before the entry                       nothing                              begins
 *   after it, before the table is there    an entry without a number            begins
 *   after that                             the same, and an empty table         drops it, and begins
 *   after its number is in the entry       the table, perhaps not whole         drops it, and begins
 *   after the entry says done              a whole table                        leaves it alone
 *
 * A table without an entry, or with another number, is somebody's own.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/backup.h"

#define COMMAND "backup restore"

enum { ERROR_BYTES = 512, NAMES_SHOWN = 3, NAMES_BYTES = 256 };

static const struct slice ID_KEY = {.data = (const uint8_t *)"#", .size = 1};

enum existing { EXISTING_REFUSE, EXISTING_KEEP, EXISTING_REPLACE };

struct settings {
    struct cmd_pool pool;
    const char *existing;
};

static const struct config_option options[] = {
    {.name = "existing",
     .metavar = "HOW",
     .help =
         "What to do with tables of the same names that are in the pool: refuse does nothing at "
         "all if there is one, keep leaves them as they are and restores the others, replace "
         "drops them and restores them from the backup.",
     .default_text = "refuse",
     CONFIG_TEXT_INTO(struct settings, existing)},
    CMD_POOL_OPTIONS(struct settings),
};

static const struct config_command command = {
    .name = COMMAND,
    .summary =
        "Makes the tables of a directory of `pando backup create` anew in a pool, as they were: "
        "names, engines, sizes, pairs, and when they expire. All files are read and checked before "
        "anything is changed. If it is interrupted, the same command goes on with the tables that "
        "are missing. Begin servers afterwards: they make tables of their own.",
    .positionals = "DIR",
    .example = "pando backup restore /backup/monday --pool tcp:10.0.0.1:7000 --secret-file "
               "pando.secret",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .positionals_min = 1,
    .positionals_max = 1,
};

enum plan { PLAN_LOAD, PLAN_DROP_AND_LOAD, PLAN_DONE, PLAN_KEEP };

struct restore {
    struct backup_dir dir;
    struct backup_manifest manifest;
    enum existing existing;
    struct store_thread *thread;
    struct store_table *journal; /* NULL: there is none yet */
    enum plan *plans;            /* of the manifest's tables */
    struct store_table_info *tables;
    unsigned count;
};

/* ---- the journal ----------------------------------------------------------------------------- */

/* The value of a table's entry, little endian. */
struct entry {
    uint64_t done;   /* 1: the table is whole */
    uint64_t number; /* of the table in the pool; 0: it was not there yet */
};

static int explain(const char *what, const char *table, enum pando_status status)
{
    cmd_error(COMMAND, "cannot %s the table '%.64s': %s; run the same command again", what, table,
              pando_status_text(status));
    return EXIT_FAILED;
}

/* One backup is told from others by it. */
static uint64_t id_of(const struct backup_manifest *manifest)
{
    return manifest->begun << 32 | manifest->crc;
}

static enum pando_status journal_get_co(const struct restore *restore, struct slice key,
                                        void *value, size_t bytes)
{
    size_t size = 0;
    if (restore->journal == NULL)
        return PANDO_NOT_FOUND;
    enum pando_status status = store_get_co(restore->journal, key, value, bytes, &size);
    return status == PANDO_OK && size != bytes ? PANDO_CORRUPT : status;
}

static bool journal_put_co(const struct restore *restore, struct slice key, const void *value,
                           size_t bytes)
{
    enum pando_status status =
        store_put_co(restore->journal, key, slice_of(value, bytes), STORE_UPSERT);
    if (status != PANDO_OK)
        (void)explain("write to", BACKUP_JOURNAL, status);
    return status == PANDO_OK;
}

static bool journal_entry_co(const struct restore *restore, const char *table, bool done,
                             uint64_t number)
{
    struct entry entry = {.done = done, .number = number};
    return journal_put_co(restore, slice_of_text(table), &entry, sizeof(entry));
}

/* Opens it if it is there, and looks whether it is of this backup. */
static bool journal_find_co(struct restore *restore)
{
    char error[ERROR_BYTES] = "";
    uint64_t id = 0;
    enum pando_status status = store_table_open_co(restore->thread, BACKUP_JOURNAL,
                                                   &restore->journal, error, sizeof(error));
    if (status == PANDO_NOT_FOUND)
        return true;
    if (status != PANDO_OK) {
        cmd_error(COMMAND, "%s", error);
        return false;
    }
    status = journal_get_co(restore, ID_KEY, &id, sizeof(id));
    if (status == PANDO_NOT_FOUND || (status == PANDO_OK && id == id_of(&restore->manifest)))
        return true; /* without an id nothing was begun */
    if (status != PANDO_OK)
        (void)explain("read", BACKUP_JOURNAL, status);
    else
        cmd_error(
            COMMAND,
            "the restore of another backup was begun in this pool and not finished; finish it, "
            "or drop the table '" BACKUP_JOURNAL "' and the tables that it has made");
    return false;
}

static bool journal_begin_co(struct restore *restore)
{
    char error[ERROR_BYTES] = "";
    const struct store_shape shape = {.key_max = POOL_NAME_MAX, .value_inline = 64};
    uint64_t id = id_of(&restore->manifest);
    enum pando_status status = PANDO_OK;
    if (restore->journal == NULL) {
        status = store_table_create_co(restore->thread, BACKUP_JOURNAL, NULL, &shape, error,
                                       sizeof(error));
        if (status == PANDO_OK)
            status = store_table_open_co(restore->thread, BACKUP_JOURNAL, &restore->journal, error,
                                         sizeof(error));
    }
    if (status != PANDO_OK) {
        cmd_error(COMMAND, "%s", error);
        return false;
    }
    return journal_put_co(restore, ID_KEY, &id, sizeof(id));
}

/* ---- what is to be done ---------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct store_table_info *)a)->name,
                  ((const struct store_table_info *)b)->name);
}

static bool list_co(struct restore *restore)
{
    enum pando_status status =
        store_table_list_co(restore->thread, &restore->tables, &restore->count);
    if (status == PANDO_OK)
        qsort(restore->tables, restore->count, sizeof(*restore->tables), by_name);
    else
        cmd_error(COMMAND, "cannot read the list of tables: %s", pando_status_text(status));
    return status == PANDO_OK;
}

static const struct store_table_info *in_pool(const struct restore *restore, const char *name)
{
    struct store_table_info key = {0};
    snprintf(key.name, sizeof(key.name), "%s", name);
    return bsearch(&key, restore->tables, restore->count, sizeof(key), by_name);
}

static bool take_any(void *context, struct slice key, struct slice value)
{
    (void)key;
    (void)value;
    *(bool *)context = true;
    return false;
}

/* Whether a table has no pairs: it is lost then if it is dropped, and nothing else. */
static enum pando_status empty_co(const struct restore *restore, const char *name, bool *out)
{
    char error[ERROR_BYTES];
    struct store_table *table;
    bool any = false;
    enum pando_status status =
        store_table_open_co(restore->thread, name, &table, error, sizeof(error));
    if (status != PANDO_OK)
        return status;
    struct store_range range = {.no_high = true, .limit = 1, .values = STORE_SCAN_KEYS};
    status = store_scan_co(table, &range, take_any, &any);
    store_table_close(table);
    *out = !any;
    return status;
}

/* What is to be done with a table; *clash: it is somebody's own, and nobody said what to do. */
static enum pando_status plan_co(const struct restore *restore, const char *name, enum plan *plan,
                                 bool *clash)
{
    const struct store_table_info *info = in_pool(restore, name);
    struct entry entry = {0};
    bool empty = false;
    enum pando_status status = journal_get_co(restore, slice_of_text(name), &entry, sizeof(entry));
    bool begun = status == PANDO_OK;
    *clash = false;
    *plan = PLAN_LOAD;
    if (status != PANDO_OK && status != PANDO_NOT_FOUND)
        return status;
    if (info == NULL)
        return PANDO_OK;
    if (begun && entry.number == info->number) {
        *plan = entry.done != 0 ? PLAN_DONE : PLAN_DROP_AND_LOAD;
        return PANDO_OK;
    }
    if (begun && entry.number == 0 && entry.done == 0) {
        status = empty_co(restore, name, &empty);
        if (status != PANDO_OK || empty) {
            *plan = PLAN_DROP_AND_LOAD;
            return status;
        }
    }
    *plan = restore->existing == EXISTING_REPLACE ? PLAN_DROP_AND_LOAD : PLAN_KEEP;
    *clash = restore->existing == EXISTING_REFUSE;
    return PANDO_OK;
}

static bool plans_co(struct restore *restore)
{
    char names[NAMES_BYTES] = "";
    unsigned clashes = 0;
    for (unsigned i = 0; i < restore->manifest.count; i++) {
        const char *name = restore->manifest.tables[i].table.name;
        bool clash;
        enum pando_status status = plan_co(restore, name, &restore->plans[i], &clash);
        if (status != PANDO_OK) {
            (void)explain("look at", name, status);
            return false;
        }
        size_t used = strlen(names);
        if (clash && clashes++ < NAMES_SHOWN)
            snprintf(names + used, sizeof(names) - used, "%s'%.64s'", used == 0 ? "" : ", ", name);
    }
    if (clashes == 0)
        return true;
    cmd_error(COMMAND,
              "the pool has %s%s already (%u of the backup's tables); nothing was changed: add "
              "--existing keep to leave them, or --existing replace to drop them first",
              names, clashes > NAMES_SHOWN ? ", ..." : "", clashes);
    return false;
}

static bool to_load(enum plan plan)
{
    return plan == PLAN_LOAD || plan == PLAN_DROP_AND_LOAD;
}

static int check_files_co(struct restore *restore)
{
    char what[BACKUP_WHAT_BYTES], name[BACKUP_WHAT_BYTES + 8];
    int result = EXIT_OK;
    for (unsigned i = 0; i < restore->manifest.count && result == EXIT_OK; i++) {
        const struct backup_table *table = &restore->manifest.tables[i];
        if (!to_load(restore->plans[i]))
            continue;
        snprintf(name, sizeof(name), "check %s",
                 backup_what(what, table->table.name, i + 1, restore->manifest.count));
        result = backup_check_file_co(&restore->dir, table, name);
    }
    return result;
}

/* ---- one table ------------------------------------------------------------------------------- */

static int fill_co(struct restore *restore, struct load *load, const char *name, const char *what)
{
    char error[ERROR_BYTES] = "", size[FORMAT_SIZE_MAX], shown[CMD_NAME_BYTES];
    struct store_table *table;
    enum pando_status status = load_create_co(load, restore->thread, name, error, sizeof(error));
    if (status == PANDO_OK)
        status = store_table_open_co(restore->thread, name, &table, error, sizeof(error));
    if (status != PANDO_OK) {
        cmd_error(COMMAND, "%s", error);
        return EXIT_FAILED;
    }
    uint64_t number = store_table_number(table);
    if (!journal_entry_co(restore, name, false, number)) {
        store_table_close(table);
        return EXIT_FAILED;
    }
    progress_begin(&load->progress, what);
    status = load_bulk_co(load, table);
    uint64_t ns = progress_end_ns(&load->progress);
    store_table_close(table);
    if (status == PANDO_OK) {
        if (!journal_entry_co(restore, name, true, number))
            return EXIT_FAILED;
        printf("%s: %" PRIu64 " pairs, %s, in %.1f s\n", cmd_printable(name, shown, sizeof(shown)),
               load->reader.sums.pairs, format_size(size, sizeof(size), load->reader.sums.bytes),
               (double)ns / 1e9);
        fflush(stdout);
        return EXIT_OK;
    }
    if (status == PANDO_AGAIN)
        cmd_error(COMMAND, "stopped");
    else
        load_explain_table(load, name, status);
    if (store_table_drop_co(restore->thread, name) != PANDO_OK)
        cmd_error(COMMAND, "a part of the table '%.64s' is left; the next restore drops it", name);
    return status == PANDO_AGAIN ? EXIT_STOPPED : EXIT_FAILED;
}

/* Drops a table that is to be made anew. The name is free afterwards; others may use the rest for a while. */
static bool drop_co(struct restore *restore, const char *name)
{
    enum pando_status status = store_table_drop_co(restore->thread, name);
    return status == PANDO_OK || status == PANDO_NOT_FOUND || status == PANDO_TIMEOUT ||
           explain("drop", name, status) == EXIT_OK;
}

/* The file first: a table is dropped only when there is something to put in its place. */
static int table_file_co(struct restore *restore, struct load *load, const char *name,
                         enum plan plan, const char *what)
{
    char path[BACKUP_PATH_BYTES];
    if (!backup_load_open(load, &restore->dir, name, path))
        return EXIT_FAILED;
    enum pando_status status = load_rewind_co(load);
    if (status != PANDO_OK)
        return load_explain_file(load, status);
    if ((plan == PLAN_DROP_AND_LOAD && !drop_co(restore, name)) ||
        !journal_entry_co(restore, name, false, 0))
        return EXIT_FAILED;
    return fill_co(restore, load, name, what);
}

static int table_co(struct restore *restore, const struct backup_table *table, enum plan plan,
                    const char *what)
{
    struct load *load = calloc(1, sizeof(*load));
    if (load == NULL) {
        cmd_error(COMMAND, "out of memory");
        return EXIT_FAILED;
    }
    load->fd = -1;
    int result = table_file_co(restore, load, table->table.name, plan, what);
    load_close(load);
    free(load);
    return result;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int finish_co(struct restore *restore, unsigned loaded, unsigned done, unsigned kept)
{
    store_table_close(restore->journal);
    restore->journal = NULL;
    enum pando_status status = store_table_drop_co(restore->thread, BACKUP_JOURNAL);
    if (status != PANDO_OK && status != PANDO_TIMEOUT && status != PANDO_NOT_FOUND)
        return explain("drop", BACKUP_JOURNAL, status);
    printf("%s: restored %u tables", restore->dir.path, loaded + done);
    if (done > 0)
        printf(", %u of them before", done);
    if (kept > 0)
        printf("; %u that were in the pool were left as they are", kept);
    printf("\n");
    return EXIT_OK;
}

static int load_all_co(struct restore *restore)
{
    char what[BACKUP_WHAT_BYTES];
    unsigned loaded = 0, done = 0, kept = 0;
    if (!journal_begin_co(restore))
        return EXIT_FAILED;
    for (unsigned i = 0; i < restore->manifest.count; i++) {
        const struct backup_table *table = &restore->manifest.tables[i];
        done += restore->plans[i] == PLAN_DONE;
        kept += restore->plans[i] == PLAN_KEEP;
        if (!to_load(restore->plans[i]))
            continue;
        (void)backup_what(what, table->table.name, i + 1, restore->manifest.count);
        int result =
            cmd_stopping() ? EXIT_STOPPED : table_co(restore, table, restore->plans[i], what);
        if (result != EXIT_OK) {
            printf("%s: %u of %u tables are restored; the same command goes on there\n",
                   restore->dir.path, loaded + done, restore->manifest.count);
            return result;
        }
        loaded++;
    }
    return finish_co(restore, loaded, done, kept);
}

static int restore_co(void *context, struct store_thread *thread)
{
    struct restore *restore = context;
    restore->thread = thread;
    int result = EXIT_FAILED;
    if (list_co(restore) && journal_find_co(restore) && plans_co(restore))
        result = check_files_co(restore);
    if (result == EXIT_OK)
        result = load_all_co(restore);
    if (restore->journal != NULL)
        store_table_close(restore->journal);
    return result;
}

static bool parse_existing(const char *text, enum existing *out)
{
    static const char *const names[] = {"refuse", "keep", "replace"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum existing)i;
            return true;
        }
    }
    cmd_error(COMMAND, "--existing %.32s: say refuse, keep or replace", text);
    return false;
}

static int run(struct restore *restore, const struct settings *settings)
{
    if (!parse_existing(settings->existing, &restore->existing))
        return EXIT_USAGE;
    if (!backup_dir_open(&restore->dir, false))
        return EXIT_FAILED;
    enum pando_status status = backup_dir_read(&restore->dir, BACKUP_MANIFEST, &restore->manifest);
    if (status == PANDO_NOT_FOUND)
        cmd_error(COMMAND,
                  "%s has no " BACKUP_MANIFEST
                  ": it is no backup, or one that is not finished; run "
                  "pando backup create again",
                  restore->dir.path);
    if (status != PANDO_OK)
        return EXIT_FAILED;
    restore->plans = calloc(restore->manifest.count + 1, sizeof(*restore->plans));
    if (restore->plans == NULL) {
        cmd_error(COMMAND, "out of memory");
        return EXIT_FAILED;
    }
    return cmd_with_store(COMMAND, &settings->pool, restore_co, restore);
}

int cmd_backup_restore(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    struct restore restore = {.dir = {.command = COMMAND, .fd = -1}};
    int result = EXIT_FAILED;
    if (cmd_load(&config, &command, argc, argv, &settings, &result)) {
        restore.dir.path = config.positionals[0];
        cmd_catch_signals();
        result = run(&restore, &settings);
    }
    backup_manifest_free(&restore.manifest);
    free(restore.plans);
    free(restore.tables);
    backup_dir_close(&restore.dir);
    config_fini(&config);
    return result;
}
