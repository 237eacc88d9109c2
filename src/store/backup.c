#include "store/backup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/json.h"
#include "base/json_read.h"

#define FORMAT_NAME "pando backup"
#define CHECK_KEY   ",\"crc32c\":\""

enum {
    CHECK_BYTES = sizeof(CHECK_KEY) - 1 + 8 + 2, /* and a quote and a brace */
    KEY_BYTES = 32,
    TEXT_BYTES = 64,
    TABLES_FIRST = 64,
};

/* ---- names ----------------------------------------------------------------------------------- */

static bool plain(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || (c == '.' && !first);
}

void backup_file_of(const char *table, char out[BACKUP_FILE_MAX])
{
    size_t used = 0;
    for (size_t i = 0; table[i] != '\0' && i < POOL_NAME_MAX - 1; i++) {
        if (plain(table[i], i == 0))
            out[used++] = table[i];
        else
            used += (size_t)snprintf(out + used, 4, "%%%02X", (uint8_t)table[i]);
    }
    snprintf(out + used, BACKUP_FILE_MAX - used, BACKUP_SUFFIX);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool backup_table_of(const char *file, char out[POOL_NAME_MAX])
{
    char name[POOL_NAME_MAX] = "", again[BACKUP_FILE_MAX];
    size_t size = strlen(file), suffix = strlen(BACKUP_SUFFIX), used = 0;
    if (size <= suffix || size >= BACKUP_FILE_MAX ||
        strcmp(file + size - suffix, BACKUP_SUFFIX) != 0)
        return false;
    for (size_t i = 0; i < size - suffix; i++) {
        char c = file[i];
        if (c == '%') {
            int high = hex_digit(file[i + 1]), low = high < 0 ? -1 : hex_digit(file[i + 2]);
            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (used == POOL_NAME_MAX - 1 || c == '\0')
            return false;
        name[used++] = c;
    }
    backup_file_of(name, again); /* there is one way to write it */
    if (name[0] == '#' || strcmp(again, file) != 0)
        return false;
    memcpy(out, name, sizeof(name));
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_number(struct json *json, const char *key, uint64_t value)
{
    json_key(json, key);
    json_u64(json, value);
}

static void put_text(struct json *json, const char *key, const char *text)
{
    json_key(json, key);
    json_string(json, text);
}

static void put_table(struct json *json, const struct backup_table *table)
{
    const struct store_shape *shape = &table->table.shape;
    char file[BACKUP_FILE_MAX];
    backup_file_of(table->table.name, file);
    json_begin_object(json);
    put_text(json, "name", table->table.name);
    put_text(json, "file", file);
    put_text(json, "engine", table->table.engine);
    put_number(json, "key_size", shape->key_size);
    put_number(json, "value_size", shape->value_size);
    put_number(json, "key_max", shape->key_max);
    put_number(json, "value_inline", shape->value_inline);
    put_number(json, "node_bytes", shape->node_bytes);
    put_number(json, "pairs", table->sums.pairs);
    put_number(json, "bytes", table->sums.bytes);
    put_number(json, "file_bytes", table->file_bytes);
    put_number(json, "file_crc32c", table->file_crc);
    json_end_object(json);
}

char *backup_manifest_build(struct backup_manifest *manifest, size_t *size)
{
    struct json json;
    char pool[24];
    size_t used;
    json_init(&json);
    json_begin_object(&json);
    put_text(&json, "format", FORMAT_NAME);
    put_number(&json, "version", BACKUP_VERSION);
    put_text(&json, "release", PANDO_RELEASE);
    snprintf(pool, sizeof(pool), "%016" PRIx64, manifest->pool);
    put_text(&json, "pool", pool);
    put_number(&json, "begun", manifest->begun);
    put_number(&json, "finished", manifest->finished);
    json_key(&json, "tables");
    json_begin_array(&json);
    for (unsigned i = 0; i < manifest->count; i++)
        put_table(&json, &manifest->tables[i]);
    json_end_array(&json);
    json_end_object(&json);
    const char *text = json_finish(&json, &used);
    char *out = text == NULL ? NULL : malloc(used + CHECK_BYTES + 2);
    if (out != NULL) {
        used--; /* the last brace comes later */
        memcpy(out, text, used);
        manifest->crc = crc32c(0, out, used);
        *size = used + (size_t)snprintf(out + used, CHECK_BYTES + 2, CHECK_KEY "%08" PRIx32 "\"}\n",
                                        manifest->crc);
    }
    json_fini(&json);
    return out;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_u32(struct json_reader *json, uint32_t *out)
{
    uint64_t value = 0;
    if (!json_read_u64(json, &value) || value > UINT32_MAX)
        return false;
    *out = (uint32_t)value;
    return true;
}

/* An engine's name: visible ASCII only, so that it is written as it was read. */
static bool read_engine(struct json_reader *json, struct backup_table *table)
{
    char engine[sizeof(table->table.engine)] = "";
    if (!json_read_string(json, engine, sizeof(engine)))
        return false;
    for (const char *c = engine; *c != '\0'; c++) {
        if (*c <= ' ' || *c > '~')
            return false;
    }
    memcpy(table->table.engine, engine, sizeof(engine));
    return true;
}

static bool read_table_member(struct json_reader *json, const char *key, struct backup_table *table)
{
    struct store_shape *shape = &table->table.shape;
    char file[BACKUP_FILE_MAX];
    if (strcmp(key, "file") == 0)
        return json_read_string(json, file, sizeof(file)) &&
               backup_table_of(file, table->table.name);
    if (strcmp(key, "engine") == 0)
        return read_engine(json, table);
    if (strcmp(key, "key_size") == 0)
        return read_u32(json, &shape->key_size);
    if (strcmp(key, "value_size") == 0)
        return read_u32(json, &shape->value_size);
    if (strcmp(key, "key_max") == 0)
        return read_u32(json, &shape->key_max);
    if (strcmp(key, "value_inline") == 0)
        return read_u32(json, &shape->value_inline);
    if (strcmp(key, "node_bytes") == 0)
        return read_u32(json, &shape->node_bytes);
    if (strcmp(key, "pairs") == 0)
        return json_read_u64(json, &table->sums.pairs);
    if (strcmp(key, "bytes") == 0)
        return json_read_u64(json, &table->sums.bytes);
    if (strcmp(key, "file_bytes") == 0)
        return json_read_u64(json, &table->file_bytes);
    if (strcmp(key, "file_crc32c") == 0)
        return read_u32(json, &table->file_crc);
    return json_read_skip(json);
}

static bool read_table(struct json_reader *json, struct backup_table *table)
{
    char key[KEY_BYTES];
    *table = (struct backup_table){0};
    if (!json_read_begin(json, '{'))
        return false;
    while (json_read_member(json, key, sizeof(key))) {
        if (!read_table_member(json, key, table))
            return false;
    }
    struct store_shape shape = table->table.shape;
    return !json->failed && table->table.name[0] != '\0' && table->table.engine[0] != '\0' &&
           shape.key_max <= STORE_KEY_MAX && store_shape_check(&shape) == PANDO_OK;
}

static bool grow(struct backup_manifest *manifest, unsigned *capacity)
{
    if (manifest->count < *capacity)
        return true;
    unsigned grown = *capacity == 0 ? TABLES_FIRST : *capacity * 2;
    struct backup_table *moved = realloc(manifest->tables, grown * sizeof(*moved));
    if (moved == NULL)
        return false;
    manifest->tables = moved;
    *capacity = grown;
    return true;
}

static enum pando_status read_tables(struct json_reader *json, struct backup_manifest *manifest)
{
    unsigned capacity = 0;
    if (manifest->tables != NULL || !json_read_begin(json, '['))
        return PANDO_CORRUPT;
    while (json_read_element(json)) {
        if (manifest->count == BACKUP_TABLES_MAX)
            return PANDO_CORRUPT;
        if (!grow(manifest, &capacity))
            return PANDO_NO_MEMORY;
        struct backup_table *table = &manifest->tables[manifest->count];
        if (!read_table(json, table))
            return PANDO_CORRUPT;
        if (manifest->count > 0 && strcmp(table[-1].table.name, table->table.name) >= 0)
            return PANDO_CORRUPT;
        manifest->count++;
    }
    return json->failed ? PANDO_CORRUPT : PANDO_OK;
}

/* What there is beside the tables. */
struct rest {
    char format[TEXT_BYTES];
    uint64_t version;
};

static enum pando_status read_member(struct json_reader *json, const char *key,
                                     struct backup_manifest *manifest, struct rest *rest)
{
    char text[TEXT_BYTES], *end;
    bool read = true;
    if (strcmp(key, "format") == 0) {
        read = json_read_string(json, rest->format, sizeof(rest->format));
    } else if (strcmp(key, "version") == 0) {
        read = json_read_u64(json, &rest->version);
        if (read && rest->version != BACKUP_VERSION)
            return PANDO_VERSION; /* before what it may have otherwise */
    } else if (strcmp(key, "pool") == 0) {
        read = json_read_string(json, text, sizeof(text)) && strlen(text) == 16;
        if (read)
            manifest->pool = strtoull(text, &end, 16);
        read = read && *end == '\0';
    } else if (strcmp(key, "begun") == 0) {
        read = json_read_u64(json, &manifest->begun);
    } else if (strcmp(key, "finished") == 0) {
        read = json_read_u64(json, &manifest->finished);
    } else if (strcmp(key, "tables") == 0) {
        return read_tables(json, manifest);
    } else {
        read = json_read_skip(json);
    }
    return read ? PANDO_OK : PANDO_CORRUPT;
}

/* The check at the end, over all before it. */
static bool check_ok(const char *text, size_t size, uint32_t *crc)
{
    char expected[CHECK_BYTES + 2];
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
        size--;
    if (size < CHECK_BYTES)
        return false;
    *crc = crc32c(0, text, size - CHECK_BYTES);
    snprintf(expected, sizeof(expected), CHECK_KEY "%08" PRIx32 "\"}", *crc);
    return memcmp(text + size - CHECK_BYTES, expected, CHECK_BYTES) == 0;
}

static enum pando_status read_all(struct json_reader *json, struct backup_manifest *manifest,
                                  struct rest *rest)
{
    char key[KEY_BYTES];
    enum pando_status status = PANDO_OK;
    if (!json_read_begin(json, '{'))
        return PANDO_CORRUPT;
    while (status == PANDO_OK && json_read_member(json, key, sizeof(key)))
        status = read_member(json, key, manifest, rest);
    if (status == PANDO_OK &&
        (!json_read_end(json) || strcmp(rest->format, FORMAT_NAME) != 0 || rest->version == 0))
        status = PANDO_CORRUPT;
    return status;
}

enum pando_status backup_manifest_read(const char *text, size_t size, struct backup_manifest *out,
                                       char *error, size_t error_bytes)
{
    struct backup_manifest manifest = {0};
    struct rest rest = {0};
    struct json_reader json;
    json_read_init(&json, text, size);
    enum pando_status status = read_all(&json, &manifest, &rest);
    if (status == PANDO_OK && !check_ok(text, size, &manifest.crc)) {
        status = PANDO_CORRUPT;
        snprintf(error, error_bytes, "it fails its check");
    } else if (status == PANDO_VERSION) {
        snprintf(error, error_bytes,
                 "it has version %" PRIu64
                 ", and this program reads %d; use the release that wrote it",
                 rest.version, BACKUP_VERSION);
    } else if (status == PANDO_NO_MEMORY) {
        snprintf(error, error_bytes, "out of memory");
    } else if (status != PANDO_OK) {
        snprintf(error, error_bytes, "it makes no sense at byte %zu", json_read_offset(&json));
    }
    if (status != PANDO_OK) {
        backup_manifest_free(&manifest);
        return status;
    }
    *out = manifest;
    return PANDO_OK;
}

void backup_manifest_free(struct backup_manifest *manifest)
{
    free(manifest->tables);
    *manifest = (struct backup_manifest){0};
}

const struct backup_table *backup_find(const struct backup_manifest *manifest, const char *table)
{
    unsigned low = 0, high = manifest->count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        int order = strcmp(manifest->tables[middle].table.name, table);
        if (order == 0)
            return &manifest->tables[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
