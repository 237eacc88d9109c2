/*
 * load.c - `pando load`: a file of `pando dump` into a table.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "cmd/dump.h"
#include "cmd/load_file.h"

enum { ERROR_BYTES = 512 };

struct settings {
    struct cmd_pool pool;
    const char *table;
    bool merge;
};

static const struct config_option options[] = {
    {.name = "table",
     .metavar = "TABLE",
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

struct command_load {
    struct load load;
    const char *table; /* NULL: as the file has it */
};

static int load_table_co(struct load *load, struct store_thread *thread, const char *name)
{
    char error[ERROR_BYTES] = "", size[FORMAT_SIZE_MAX];
    struct store_table *table;
    bool merge = load->merge;
    enum pando_status status =
        merge ? PANDO_OK : load_create_co(load, thread, name, error, sizeof(error));
    if (status == PANDO_OK)
        status = store_table_open_co(thread, name, &table, error, sizeof(error));
    if (status != PANDO_OK) {
        cmd_error("load", "%s%s", error,
                  status == PANDO_EXISTS ? "; add --merge, or give another --table" : "");
        return EXIT_FAILED;
    }
    progress_begin(&load->progress, "load");
    status = merge ? load_merge_co(load, table) : load_bulk_co(load, table);
    uint64_t ns = progress_end_ns(&load->progress);
    store_table_close(table);
    if (status == PANDO_OK) {
        printf("%s: %" PRIu64 " pairs from %s, %s, in %.1f s\n", name, load->reader.sums.pairs,
               load->file, format_size(size, sizeof(size), load->reader.sums.bytes),
               (double)ns / 1e9);
        return EXIT_OK;
    }
    if (status == PANDO_AGAIN)
        cmd_error("load", "stopped%s",
                  merge ? "; what was put so far stays, and loading again goes over it" : "");
    else
        load_explain_table(load, name, status);
    if (!merge && store_table_drop_co(thread, name) != PANDO_OK)
        cmd_error("load", "the table '%.64s' is left behind; drop it", name);
    return status == PANDO_AGAIN ? EXIT_STOPPED : EXIT_FAILED;
}

static int load_co(void *context, struct store_thread *thread)
{
    struct command_load *command_load = context;
    struct load *load = &command_load->load;
    progress_begin(&load->progress, "check");
    enum pando_status status = load_check_co(load);
    (void)progress_end_ns(&load->progress);
    if (status != PANDO_NOT_FOUND)
        return load_explain_file(load, status);
    status = load_rewind_co(load);
    if (status != PANDO_OK)
        return load_explain_file(load, status);
    const char *name = command_load->table;
    return load_table_co(load, thread, name != NULL ? name : load->reader.table.name);
}

int cmd_load_file(int argc, char **argv)
{
    struct settings settings = {0};
    struct config config;
    struct command_load *load = calloc(1, sizeof(*load));
    int result = EXIT_FAILED;
    if (load == NULL) {
        cmd_error("load", "out of memory");
        return EXIT_FAILED;
    }
    load->load.fd = -1;
    if (cmd_load(&config, &command, argc, argv, &settings, &result)) {
        load->load.command = "load";
        load->load.file = config.positionals[0];
        load->load.merge = settings.merge;
        load->table = settings.table;
        cmd_catch_signals();
        result = EXIT_FAILED;
        if (load_open(&load->load))
            result = cmd_with_store("load", &settings.pool, load_co, load);
    }
    load_close(&load->load);
    config_fini(&config);
    free(load);
    return result;
}
