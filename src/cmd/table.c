/*
 * table.c - the tables of a pool: what there is, making one, removing one, sharing its keys out, checking
 * them.
 */
#include "cmd/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cmd/with_store.h"
#include "store/engines.h"

enum { ERROR_BYTES = 512, DAMAGE_BYTES = 8192, OWNERS_MAX = 64 };

/* ---- list ------------------------------------------------------------------------------------ */

struct list_settings {
    struct cmd_pool pool;
    const char *json;
    bool names;
};

static const struct config_option list_options[] = {
    CMD_POOL_OPTIONS(struct list_settings),
    {.name = "json",
     .metavar = "FILE",
     .help = "Write the list as JSON to FILE, or to stdout if it is '-'.",
     CONFIG_TEXT_INTO(struct list_settings, json)},
    {.name = "names",
     .help = "Print their names alone, one a line; without those that have control characters.",
     CONFIG_BOOL_INTO(struct list_settings, names)},
};

static const struct config_command list_command = {
    .name = "table list",
    .summary =
        "Lists the tables of a pool: their names, engines, the largest key and inline value of "
        "each, and, if its keys have owners, who owns how many ranges of them.",
    .example = "pando table list --pool shm:demo",
    .options = list_options,
    .option_count = sizeof(list_options) / sizeof(list_options[0]),
};

/* What is told of each table. */
struct listed {
    struct engine_owner owners[OWNERS_MAX];
    unsigned owner_count; /* of those in the array */
    unsigned more;        /* and others */
};

/* Owners come and go, and a table may be dropped meanwhile: nothing is then said of it. */
static void look_at_co(struct store_thread *thread, const char *name, struct listed *listed)
{
    unsigned count = 0;
    *listed = (struct listed){0};
    if (store_table_owners_co(thread, name, listed->owners, OWNERS_MAX, &count) != PANDO_OK)
        return;
    listed->owner_count = count < OWNERS_MAX ? count : OWNERS_MAX;
    listed->more = count - listed->owner_count;
}

/* What a member is called, as far as it is known; "" for one that is gone. */
static const char *name_of(const struct pool_member *members, unsigned count,
                           struct fabric_identity member)
{
    for (unsigned i = 0; i < count; i++) {
        if (members[i].member == member.member && members[i].beat.incarnation == member.incarnation)
            return members[i].record.name;
    }
    return "";
}

static void print_owners(const struct listed *listed, const struct pool_member *members,
                         unsigned count)
{
    if (listed->owner_count == 0)
        printf("-");
    for (unsigned i = 0; i < listed->owner_count; i++) {
        const struct engine_owner *owner = &listed->owners[i];
        printf("%s", i == 0 ? "" : ", ");
        if (owner->member.member == 0)
            printf("nobody");
        else
            printf("member %u %s", owner->member.member, name_of(members, count, owner->member));
        printf(": %" PRIu32 " range%s", owner->ranges, owner->ranges == 1 ? "" : "s");
    }
    if (listed->more > 0)
        printf(" and %u others", listed->more);
    printf("\n");
}

static void json_owners(struct json *json, const struct listed *listed)
{
    json_key(json, "owners");
    json_begin_array(json);
    for (unsigned i = 0; i < listed->owner_count; i++) {
        json_begin_object(json);
        json_key(json, "member");
        json_u64(json, listed->owners[i].member.member);
        json_key(json, "incarnation");
        json_u64(json, listed->owners[i].member.incarnation);
        json_key(json, "ranges");
        json_u64(json, listed->owners[i].ranges);
        json_end_object(json);
    }
    json_end_array(json);
}

uint64_t *table_bytes_co(struct store_thread *thread, const struct store_table_info *tables,
                         unsigned count)
{
    uint64_t *bytes = calloc(count + 1, sizeof(*bytes));
    uint64_t *by_number = calloc(POOL_TABLE_NUMBER_MAX + 1, sizeof(*by_number));
    struct pool_usage usage;
    for (uint16_t node = 0; by_number != NULL && node < store_memory_nodes(thread); node++) {
        if (store_usage_co(thread, node, &usage) != PANDO_OK)
            continue;
        for (uint32_t i = 0; i < usage.head.tables; i++)
            by_number[usage.tables[i].table] += usage.tables[i].bytes;
        pool_usage_free(&usage);
    }
    for (unsigned i = 0; i < count && bytes != NULL && by_number != NULL; i++)
        bytes[i] = tables[i].number <= POOL_TABLE_NUMBER_MAX ? by_number[tables[i].number] : 0;
    if (by_number == NULL) {
        free(bytes);
        bytes = NULL;
    }
    free(by_number);
    return bytes;
}

static bool list_json_co(const struct list_settings *settings, struct store_thread *thread,
                         const struct store_table_info *tables, unsigned count,
                         const uint64_t *bytes)
{
    struct listed listed;
    struct json json;
    json_init(&json);
    json_begin_array(&json);
    for (unsigned i = 0; i < count; i++) {
        json_begin_object(&json);
        json_key(&json, "name");
        json_string(&json, tables[i].name);
        json_key(&json, "engine");
        json_string(&json, tables[i].engine);
        json_key(&json, "key_max");
        json_u64(&json, tables[i].key_max);
        json_key(&json, "value_inline");
        json_u64(&json, tables[i].value_inline);
        json_key(&json, "bytes");
        json_u64(&json, bytes[i]);
        look_at_co(thread, tables[i].name, &listed);
        json_owners(&json, &listed);
        json_end_object(&json);
    }
    json_end_array(&json);
    bool written = cmd_write_json("table list", &json, settings->json);
    json_fini(&json);
    return written;
}

/* All tables; the caller frees them. NULL with an error said. */
static struct store_table_info *tables_co(const char *command, struct store_thread *thread,
                                          unsigned *count)
{
    struct store_table_info *tables = NULL;
    enum pando_status status = store_table_list_co(thread, &tables, count);
    if (status == PANDO_OK)
        return tables;
    cmd_error(command, "cannot read the list of tables: %s", pando_status_text(status));
    return NULL;
}

static bool list_text_co(struct store_thread *thread, const struct store_table_info *tables,
                         unsigned count, const uint64_t *bytes)
{
    char size[FORMAT_SIZE_MAX], name[CMD_NAME_BYTES];
    struct pool_member *members = calloc(POOL_MEMBERS, sizeof(*members));
    unsigned member_count = 0;
    enum pando_status status = members == NULL
                                   ? PANDO_NO_MEMORY
                                   : store_members_co(thread, members, POOL_MEMBERS, &member_count);

    if (status != PANDO_OK)
        cmd_error("table list", "cannot read the list of members: %s", pando_status_text(status));
    else
        printf("%-32s %-10s %10s %10s %14s  %s\n", "NAME", "ENGINE", "MEMORY", "KEYS TO",
               "INLINE TO", "OWNED BY");
    for (unsigned i = 0; i < count && status == PANDO_OK; i++) {
        struct listed listed;
        look_at_co(thread, tables[i].name, &listed);
        printf("%-32s %-10s %10s %8" PRIu32 " B %12" PRIu32 " B  ",
               cmd_printable(tables[i].name, name, sizeof(name)), tables[i].engine,
               format_size(size, sizeof(size), bytes[i]), tables[i].key_max,
               tables[i].value_inline);
        print_owners(&listed, members, member_count);
    }
    free(members);
    return status == PANDO_OK;
}

/* For programs that offer them to be typed: a name that cannot be, as it is, would be another one. */
static void print_names(const struct store_table_info *tables, unsigned count)
{
    char name[CMD_NAME_BYTES];
    for (unsigned i = 0; i < count; i++) {
        if (strcmp(cmd_printable(tables[i].name, name, sizeof(name)), tables[i].name) == 0)
            printf("%s\n", name);
    }
}

static int list_co(void *context, struct store_thread *thread)
{
    const struct list_settings *settings = context;
    unsigned count;
    struct store_table_info *tables = tables_co("table list", thread, &count);
    if (tables == NULL)
        return EXIT_FAILED;
    if (settings->names) {
        print_names(tables, count);
        free(tables);
        return EXIT_OK;
    }
    uint64_t *bytes = table_bytes_co(thread, tables, count);
    bool told = bytes != NULL &&
                (settings->json != NULL ? list_json_co(settings, thread, tables, count, bytes)
                                        : list_text_co(thread, tables, count, bytes));
    if (bytes == NULL)
        cmd_error("table list", "out of memory");
    int result = told ? EXIT_OK : EXIT_FAILED;
    free(bytes);
    free(tables);
    return result;
}

int cmd_table_list(int argc, char **argv)
{
    struct list_settings settings = {0};
    struct config config;
    int result;
    if (cmd_load(&config, &list_command, argc, argv, &settings, &result))
        result = cmd_with_store("table list", &settings.pool, list_co, &settings);
    config_fini(&config);
    return result;
}

/* ---- create ---------------------------------------------------------------------------------- */

struct create_settings {
    struct cmd_pool pool;
    const char *engine;
    uint64_t key_size, value_size, key_max, value_inline, node_bytes;
    const char *name; /* a positional */
};

static const struct config_option create_options[] = {
    CMD_POOL_OPTIONS(struct create_settings),
    {.name = "engine",
     .metavar = "ENGINE",
     .help = "What keeps the table: " STORE_ENGINE_NAMES(
         " or ") ". If not given: "
                 "sherman in an embedded pool, dex in others.",
     CONFIG_TEXT_INTO(struct create_settings, engine)},
    {.name = "key-max",
     .metavar = "SIZE",
     .help = "Largest key; at most 1024.",
     .default_text = "64",
     CONFIG_SIZE_INTO(struct create_settings, key_max)},
    {.name = "value-inline",
     .metavar = "SIZE",
     .help = "Values up to this size lie beside their keys; longer ones, up to 16M, elsewhere.",
     .default_text = "64",
     CONFIG_SIZE_INTO(struct create_settings, value_inline)},
    {.name = "key-size",
     .metavar = "SIZE",
     .help = "All keys have this size, which makes small ones faster; 0: any up to --key-max.",
     .default_text = "0",
     CONFIG_SIZE_INTO(struct create_settings, key_size)},
    {.name = "value-size",
     .metavar = "SIZE",
     .help = "All values have this size, inline; 0: any.",
     .default_text = "0",
     CONFIG_SIZE_INTO(struct create_settings, value_size)},
    {.name = "node-bytes",
     .metavar = "SIZE",
     .help = "Size of the nodes of the tree; 0: chosen for keys and values.",
     .default_text = "0",
     CONFIG_SIZE_INTO(struct create_settings, node_bytes)},
};

static const struct config_command create_command = {
    .name = "table create",
    .summary = "Creates an empty table. Its sizes are fixed from then on.",
    .positionals = "NAME",
    .example = "pando table create users --pool shm:demo --key-max 32 --value-inline 100",
    .options = create_options,
    .option_count = sizeof(create_options) / sizeof(create_options[0]),
    .positionals_min = 1,
    .positionals_max = 1,
};

static uint32_t clamp(uint64_t size)
{
    return size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
}

static int create_co(void *context, struct store_thread *thread)
{
    const struct create_settings *settings = context;
    char error[ERROR_BYTES] = "";
    struct store_shape shape = {
        .key_size = clamp(settings->key_size),
        .value_size = clamp(settings->value_size),
        .key_max = settings->key_size != 0 ? 0 : clamp(settings->key_max),
        .value_inline = settings->value_size != 0 ? 0 : clamp(settings->value_inline),
        .node_bytes = clamp(settings->node_bytes),
    };
    enum pando_status status = store_table_create_co(thread, settings->name, settings->engine,
                                                     &shape, error, sizeof(error));
    if (status == PANDO_OK) {
        printf("created %s\n", settings->name);
        return EXIT_OK;
    }
    const char *advice = "";
    if (status == PANDO_EXISTS)
        advice = "; choose another name, or drop it first";
    else if (status == PANDO_TOO_LARGE || status == PANDO_INVALID)
        advice = "; keys may have 1024 bytes, names 63, and nodes have room for a few pairs: use "
                 "smaller sizes";
    cmd_error("table create", "%s%s", error, advice);
    return EXIT_FAILED;
}

int cmd_table_create(int argc, char **argv)
{
    struct create_settings settings = {0};
    struct config config;
    int result;
    if (cmd_load(&config, &create_command, argc, argv, &settings, &result)) {
        settings.name = config.positionals[0];
        result = cmd_with_store("table create", &settings.pool, create_co, &settings);
    }
    config_fini(&config);
    return result;
}

/* ---- drop ------------------------------------------------------------------------------------ */

struct drop_settings {
    struct cmd_pool pool;
    const char *name;
};

static const struct config_option drop_options[] = {
    CMD_POOL_OPTIONS(struct drop_settings),
};

static const struct config_command drop_command = {
    .name = "table drop",
    .summary = "Removes a table and all that is in it. There is no way back.",
    .positionals = "TABLE",
    .example = "pando table drop users --pool shm:demo",
    .options = drop_options,
    .option_count = sizeof(drop_options) / sizeof(drop_options[0]),
    .positionals_min = 1,
    .positionals_max = 1,
};

static int drop_co(void *context, struct store_thread *thread)
{
    const struct drop_settings *settings = context;
    enum pando_status status = store_table_drop_co(thread, settings->name);
    if (status == PANDO_OK) {
        printf("dropped %s\n", settings->name);
        return EXIT_OK;
    }
    if (status == PANDO_NOT_FOUND)
        cmd_error("table drop", "there is no table '%.64s'; `pando table list` shows them",
                  settings->name);
    else
        cmd_error("table drop", "cannot drop the table '%.64s': %s", settings->name,
                  pando_status_text(status));
    return EXIT_FAILED;
}

int cmd_table_drop(int argc, char **argv)
{
    struct drop_settings settings = {0};
    struct config config;
    int result;
    if (cmd_load(&config, &drop_command, argc, argv, &settings, &result)) {
        settings.name = config.positionals[0];
        result = cmd_with_store("table drop", &settings.pool, drop_co, &settings);
    }
    config_fini(&config);
    return result;
}

/* ---- spread ---------------------------------------------------------------------------------- */

struct spread_settings {
    struct cmd_pool pool;
    const char *name;
};

static const struct config_option spread_options[] = {
    CMD_POOL_OPTIONS(struct spread_settings),
};

static const struct config_command spread_command = {
    .name = "table spread",
    .summary =
        "Shares the keys of a table out to the servers (and other processes) that have it open, "
        "about evenly, while they go on. A process works on its own keys in its own memory and "
        "asks the others for theirs. Tables of the engine dex only: of others every process works "
        "on every key.",
    .positionals = "TABLE",
    .example = "pando table spread users --pool shm:demo",
    .options = spread_options,
    .option_count = sizeof(spread_options) / sizeof(spread_options[0]),
    .positionals_min = 1,
    .positionals_max = 1,
};

/* Nobody answered. That is fine if nobody owns keys; otherwise it is said why that may be. */
static int nobody_answered_co(struct store_thread *thread, const char *name)
{
    struct engine_owner owners[OWNERS_MAX];
    unsigned count = 0, deaf = 0;
    if (store_table_owners_co(thread, name, owners, OWNERS_MAX, &count) == PANDO_OK) {
        for (unsigned i = 0; i < count && i < OWNERS_MAX; i++)
            deaf += owners[i].member.member != 0;
    }
    if (deaf == 0) {
        printf("%s: nothing to do: its engine does not share keys out, or nobody has it open\n",
               name);
        return EXIT_OK;
    }
    cmd_error("table spread",
              "cannot spread the table '%.64s': %u process%s its keys and cannot be called from "
              "here; look for --peer-listen none there, a --tls-cert that this command lacks, or a "
              "firewall",
              name, deaf, deaf == 1 ? " owns" : "es own");
    return EXIT_FAILED;
}

static int spread_co(void *context, struct store_thread *thread)
{
    const struct spread_settings *settings = context;
    char error[ERROR_BYTES] = "";
    struct store_table *table;
    unsigned processes = 0;
    enum pando_status status =
        store_table_open_co(thread, settings->name, &table, error, sizeof(error));
    if (status != PANDO_OK) {
        cmd_error("table spread", "%s%s", error,
                  status == PANDO_NOT_FOUND ? "; `pando table list` shows what there is" : "");
        return EXIT_FAILED;
    }
    status = store_spread_co(table, &processes);
    store_table_close(table);
    if (status != PANDO_OK) {
        cmd_error("table spread",
                  "cannot spread the table '%.64s': %s; what was not moved stays "
                  "where it was, try again",
                  settings->name, pando_status_text(status));
        return EXIT_FAILED;
    }
    if (processes == 0)
        return nobody_answered_co(thread, settings->name);
    printf("%s: spread over %u process%s\n", settings->name, processes, processes == 1 ? "" : "es");
    return EXIT_OK;
}

int cmd_table_spread(int argc, char **argv)
{
    struct spread_settings settings = {0};
    struct config config;
    int result;
    if (cmd_load(&config, &spread_command, argc, argv, &settings, &result)) {
        settings.name = config.positionals[0];
        result = cmd_with_store("table spread", &settings.pool, spread_co, &settings);
    }
    config_fini(&config);
    return result;
}

/* ---- verify ---------------------------------------------------------------------------------- */

struct verify_settings {
    struct cmd_pool pool;
    const char *name; /* NULL: all */
};

static const struct config_option verify_options[] = {
    CMD_POOL_OPTIONS(struct verify_settings),
};

static const struct config_command verify_command = {
    .name = "table verify",
    .summary =
        "Walks a table, or every table, and checks each node and each value. Others may go on "
        "using it: what looks wrong is looked at again for a few seconds, and is reported only "
        "if it stays so. If every table is whole, locks no longer count those who died holding "
        "them. Exits with 1 if there is damage.",
    .positionals = "[TABLE]",
    .example = "pando table verify users --pool shm:demo",
    .options = verify_options,
    .option_count = sizeof(verify_options) / sizeof(verify_options[0]),
    .positionals_max = 1,
};

static void print_damage(const char *shown, char *damage)
{
    char *next = damage;
    while (next != NULL) {
        const char *line = strsep(&next, "\n");
        printf("%s: damaged: %s\n", shown, line);
    }
}

/* *whole: nothing was damaged, and nothing was in doubt. */
static int verify_one_co(struct store_thread *thread, const char *name, bool *whole)
{
    *whole = false;
    char error[ERROR_BYTES] = "", size[FORMAT_SIZE_MAX], shown[CMD_NAME_BYTES];
    struct store_table *table;
    struct engine_census census = {0};
    cmd_printable(name, shown, sizeof(shown));
    enum pando_status status = store_table_open_co(thread, name, &table, error, sizeof(error));
    if (status != PANDO_OK) {
        cmd_error("table verify", "%s%s", error,
                  status == PANDO_NOT_FOUND ? "; `pando table list` shows what there is" : "");
        return EXIT_FAILED;
    }
    char *damage = calloc(1, DAMAGE_BYTES);
    status =
        damage == NULL ? PANDO_NO_MEMORY : store_verify_co(table, &census, damage, DAMAGE_BYTES);
    if (status == PANDO_OK || status == PANDO_CORRUPT) {
        if (damage[0] != '\0')
            print_damage(shown, damage);
        printf("%s: %s: %" PRIu64 " pairs in %" PRIu64 " leaves, %" PRIu64
               " nodes, %s; damaged places %" PRIu64 ", unsettled %" PRIu64 "\n",
               shown, status == PANDO_OK ? "sound" : "DAMAGED", census.pairs, census.leaves,
               census.nodes, format_size(size, sizeof(size), census.bytes), census.damaged,
               census.unsettled);
    } else {
        cmd_error("table verify", "cannot verify the table '%.64s': %s", name,
                  pando_status_text(status));
    }
    free(damage);
    store_table_close(table);
    *whole = status == PANDO_OK && census.unsettled == 0;
    return status == PANDO_OK ? EXIT_OK : EXIT_FAILED;
}

static int verify_tables_co(struct store_thread *thread, bool *all_whole)
{
    unsigned count;
    int result = EXIT_OK;
    struct store_table_info *tables = tables_co("table verify", thread, &count);
    *all_whole = tables != NULL;
    if (tables == NULL)
        return EXIT_FAILED;
    for (unsigned i = 0; i < count; i++) {
        bool whole;
        if (verify_one_co(thread, tables[i].name, &whole) != EXIT_OK)
            result = EXIT_FAILED;
        *all_whole = *all_whole && whole;
    }
    free(tables);
    return result;
}

/* All tables share the lock words, which count the deaths that may have left a torn cell (rule
 * lock-word). If every table is whole there is none: the counts that were there before go. */
static int verify_all_co(struct store_thread *thread)
{
    struct pool_marks *marks = NULL;
    bool all_whole;
    enum pando_status status = pool_marks_take_co(store_session(thread), &marks);
    int result = verify_tables_co(thread, &all_whole);
    if (status == PANDO_OK && all_whole)
        status = pool_marks_clear_co(store_session(thread), marks);
    if (status != PANDO_OK)
        log_warn("locks go on counting former deaths; verify again", log_status("status", status));
    pool_marks_free(marks);
    return result;
}

static int verify_co(void *context, struct store_thread *thread)
{
    const struct verify_settings *settings = context;
    bool whole;
    return settings->name != NULL ? verify_one_co(thread, settings->name, &whole)
                                  : verify_all_co(thread);
}

int cmd_table_verify(int argc, char **argv)
{
    struct verify_settings settings = {0};
    struct config config;
    int result;
    if (cmd_load(&config, &verify_command, argc, argv, &settings, &result)) {
        settings.name = config.positional_count > 0 ? config.positionals[0] : NULL;
        result = cmd_with_store("table verify", &settings.pool, verify_co, &settings);
    }
    config_fini(&config);
    return result;
}
