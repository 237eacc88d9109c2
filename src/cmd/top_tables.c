#include "cmd/top_tables.h"

#include <stdio.h>
#include <stdlib.h>

#include "cmd/table.h"

enum { OWNERS_MAX = 64 };

static int by_bytes(const void *a, const void *b)
{
    const struct top_table *left = a, *right = b;
    if (left->bytes != right->bytes)
        return left->bytes < right->bytes ? 1 : -1;
    return (left->number > right->number) - (left->number < right->number);
}

/* Owners come and go, and the table may be dropped meanwhile: nothing is then said of them. */
static void look_at_owners_co(struct store_thread *thread, struct top_table *table)
{
    struct engine_owner owners[OWNERS_MAX];
    uint64_t ranges = 0, most = 0;
    unsigned count = 0;
    if (store_table_owners_co(thread, table->name, owners, OWNERS_MAX, &count) != PANDO_OK)
        return;
    for (unsigned i = 0; i < count && i < OWNERS_MAX; i++) {
        ranges += owners[i].ranges;
        if (owners[i].member.member == 0) /* nobody's yet */
            continue;
        table->owners++;
        most = owners[i].ranges > most ? owners[i].ranges : most;
    }
    table->owners += count > OWNERS_MAX ? count - OWNERS_MAX : 0;
    table->most_percent = ranges == 0 ? 0 : (unsigned)(100 * most / ranges);
}

enum pando_status top_tables_look_co(struct store_thread *thread, unsigned owned,
                                     struct top_tables *out)
{
    struct store_table_info *infos = NULL;
    unsigned count = 0;

    *out = (struct top_tables){.at_ns = rt_now_ns()};
    enum pando_status status = store_table_list_co(thread, &infos, &count);
    if (status != PANDO_OK)
        return status;
    uint64_t *bytes = table_bytes_co(thread, infos, count);
    out->tables = calloc(count + 1, sizeof(*out->tables));
    if (bytes == NULL || out->tables == NULL) {
        free(out->tables);
        out->tables = NULL;
        status = PANDO_NO_MEMORY;
        goto out;
    }
    out->count = count;
    for (unsigned i = 0; i < count; i++) {
        struct top_table *table = &out->tables[i];
        *table = (struct top_table){.number = infos[i].number, .bytes = bytes[i]};
        snprintf(table->name, sizeof(table->name), "%s", infos[i].name);
        snprintf(table->engine, sizeof(table->engine), "%s", infos[i].engine);
    }
    qsort(out->tables, count, sizeof(*out->tables), by_bytes);
    for (unsigned i = 0; i < count && i < owned; i++)
        look_at_owners_co(thread, &out->tables[i]);
out:
    free(bytes);
    free(infos);
    return status;
}

double top_table_growth(const struct top_tables *before, const struct top_tables *now,
                        const struct top_table *table)
{
    double seconds = (double)(now->at_ns - before->at_ns) / RT_NS_PER_S;
    for (unsigned i = 0; i < before->count; i++) {
        if (before->tables[i].number == table->number)
            return seconds > 0 ? ((double)table->bytes - (double)before->tables[i].bytes) / seconds
                               : 0;
    }
    return 0;
}
