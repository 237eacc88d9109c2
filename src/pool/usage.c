/*
 * usage.c - what a memory node says its memory is used for.
 */
#include <stdlib.h>
#include <string.h>

#include "pool/pool_int.h"

enum { TRIES = 50 };

static bool sound(const struct pool_usage *usage, uint32_t size)
{
    const struct pool_usage_head *head = &usage->head;
    return size >= sizeof(*head) && head->classes <= POOL_USAGE_CLASSES &&
           head->tables <= POOL_USAGE_TABLES &&
           size == sizeof(*head) + head->classes * sizeof(struct pool_usage_class) +
                       head->tables * sizeof(struct pool_usage_table);
}

/* Asks for the tables from `from` on. */
static enum pando_status read_usage_page_co(struct pool_session *session, uint16_t node,
                                            uint32_t from, uint8_t *reply, struct pool_usage *page)
{
    struct pool_usage_request request = {.from = from};
    enum pando_status status = PANDO_AGAIN;
    uint32_t size = 0;
    for (int i = 0; i < TRIES && status == PANDO_AGAIN; i++) {
        if (i > 0) /* the node is counting; it does not say when it has */
            rt_sleep_co(20 * RT_NS_PER_MS);
        status = pool_reconnect_co(session, node);
        if (status == PANDO_OK)
            status = fabric_call_co(pool_endpoint(session, node), POOL_USAGE,
                                    slice_of(&request, sizeof(request)), reply,
                                    POOL_USAGE_BYTES_MAX, &size);
    }
    *page = (struct pool_usage){0};
    if (status == PANDO_OK && size >= sizeof(page->head))
        memcpy(&page->head, reply, sizeof(page->head));
    if (status == PANDO_OK && !sound(page, size))
        status = PANDO_CORRUPT;
    if (status != PANDO_OK)
        return status;
    page->classes = (const struct pool_usage_class *)(reply + sizeof(page->head));
    page->tables = (const struct pool_usage_table *)(page->classes + page->head.classes);
    return PANDO_OK;
}

/* Adds a page's tables to those that are there. */
static bool add_tables(struct pool_usage *out, const struct pool_usage *page)
{
    uint32_t count = out->head.tables + page->head.tables;
    struct pool_usage_table *grown = realloc(out->table_bytes, (count + 1ul) * sizeof(*grown));
    if (grown == NULL)
        return false;
    memcpy(grown + out->head.tables, page->tables, page->head.tables * sizeof(*grown));
    out->head.tables = count;
    out->tables = out->table_bytes = grown;
    return true;
}

enum pando_status pool_usage_co(struct pool_session *session, uint16_t node, struct pool_usage *out)
{
    struct pool_usage page;
    uint32_t from = 0;
    uint8_t *first = malloc(POOL_USAGE_BYTES_MAX), *reply = malloc(POOL_USAGE_BYTES_MAX);
    enum pando_status status = first == NULL || reply == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    *out = (struct pool_usage){0};
    if (status == PANDO_OK)
        status = read_usage_page_co(session, node, from, first, &page);
    if (status == PANDO_OK) {
        *out = page;
        out->head.tables = 0;
        out->tables = NULL;
    }
    /* Each page begins behind the last: there are no more of them than numbers, kinds and levels. */
    while (status == PANDO_OK) {
        if (!add_tables(out, &page)) {
            status = PANDO_NO_MEMORY;
            break;
        }
        if (page.head.tables < POOL_USAGE_TABLES)
            break;
        uint32_t last = pool_usage_order(&out->tables[out->head.tables - 1]);
        if (last < from) {
            status = PANDO_CORRUPT;
            break;
        }
        from = last + 1;
        status = read_usage_page_co(session, node, from, reply, &page);
    }
    free(reply);
    out->bytes = first;
    if (status != PANDO_OK)
        pool_usage_free(out);
    return status;
}

void pool_usage_free(struct pool_usage *usage)
{
    free(usage->bytes);
    free(usage->table_bytes);
    *usage = (struct pool_usage){0};
}
