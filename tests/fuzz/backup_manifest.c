/*
 * Arbitrary bytes where `pando backup` expects its manifest. Memory errors are the sanitizers' to find; what is
 * accepted is written again and must come back the same.
 *
 * A fuzzer does not guess checksums: with the first byte odd the one at the end is set right before the text is read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "store/backup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TAIL = 21 /* ,"crc32c":"xxxxxxxx"} */ };

static void mend_check(char *text, size_t size)
{
    char tail[TAIL + 1];
    while (size > 0 && text[size - 1] == '\n')
        size--;
    if (size < TAIL || memcmp(text + size - TAIL, ",\"crc32c\":\"", 11) != 0)
        return;
    snprintf(tail, sizeof(tail), ",\"crc32c\":\"%08x\"}", crc32c(0, text, size - TAIL));
    memcpy(text + size - TAIL, tail, TAIL);
}

static void check_table(const struct backup_table *table)
{
    char file[BACKUP_FILE_MAX], name[POOL_NAME_MAX];
    backup_file_of(table->table.name, file);
    pando_assert(strchr(file, '/') == NULL && file[0] != '.');
    pando_assert(backup_table_of(file, name) && strcmp(name, table->table.name) == 0);
    pando_assert(memchr(table->table.engine, '\0', sizeof(table->table.engine)) != NULL);
}

static void check_again(struct backup_manifest *manifest)
{
    struct backup_manifest again;
    char error[128];
    size_t size;
    char *text = backup_manifest_build(manifest, &size);
    pando_assert(text != NULL);
    pando_assert(backup_manifest_read(text, size, &again, error, sizeof(error)) == PANDO_OK);
    pando_assert(again.count == manifest->count && again.begun == manifest->begun &&
                 again.finished == manifest->finished && again.pool == manifest->pool &&
                 again.crc == manifest->crc);
    for (unsigned i = 0; i < again.count; i++)
        pando_assert(memcmp(&again.tables[i], &manifest->tables[i], sizeof(again.tables[i])) == 0);
    backup_manifest_free(&again);
    free(text);
}

static void read_all(const char *text, size_t size)
{
    struct backup_manifest manifest;
    char error[128] = "";
    enum pando_status status = backup_manifest_read(text, size, &manifest, error, sizeof(error));
    pando_assert((status == PANDO_OK) == (error[0] == '\0'));
    if (status != PANDO_OK)
        return;
    for (unsigned i = 0; i < manifest.count; i++) {
        check_table(&manifest.tables[i]);
        pando_assert(backup_find(&manifest, manifest.tables[i].table.name) == &manifest.tables[i]);
    }
    check_again(&manifest);
    backup_manifest_free(&manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char file[BACKUP_FILE_MAX], name[POOL_NAME_MAX];
    if (size == 0)
        return 0;
    char *text = malloc(size > 1 ? size - 1 : 1); /* of its exact size */
    pando_assert(text != NULL);
    memcpy(text, data + 1, size - 1);
    if (data[0] % 2 == 1)
        mend_check(text, size - 1);
    read_all(text, size - 1);
    size_t used = size - 1 < sizeof(file) ? size - 1 : sizeof(file) - 1; /* and as a file's name */
    memcpy(file, text, used);
    file[used] = '\0';
    if (backup_table_of(file, name))
        pando_assert(strchr(file, '/') == NULL && name[0] != '\0' && name[0] != '#');
    free(text);
    return 0;
}
