#include "cmd/status_pool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "store/usage.h"

static const char *const state_names[] = {"free", "joining", "alive", "being recovered"};

/* ---- looking --------------------------------------------------------------------------------- */

static void look_at_windows(struct pool_view *view, const struct pool *pool)
{
    uint16_t node;
    for (unsigned i = 0; i < view->nodes; i++)
        view->windows[i] = pool_window(pool, (uint16_t)i);
    for (unsigned i = 0; i < view->table_count; i++)
        view->lost[i] = pool_table_lost(pool, &view->tables[i], &node) ? node : -1;
}

static enum pando_status look_co(struct pool_view *view, struct pool_session *session)
{
    enum pando_status status =
        pool_members_co(session, view->members, POOL_MEMBERS, &view->member_count);
    if (status == PANDO_OK)
        status = pool_table_list_co(session, view->tables, &view->table_count);
    for (unsigned node = 0; node < view->nodes && status == PANDO_OK; node++)
        status = pool_node_stats_co(session, (uint16_t)node, &view->stats[node]);
    for (unsigned node = 0; node < view->nodes && status == PANDO_OK; node++)
        status = pool_usage_co(session, (uint16_t)node, &view->usage[node]);
    if (status == PANDO_OK)
        look_at_windows(view, pool_session_pool(session));
    return status;
}

void pool_view_co(struct pool_view *view, struct fabric *fabric, unsigned nodes)
{
    struct pool_options options = {.memory_nodes = (uint16_t)nodes, .name = "pando status"};
    struct pool *pool;
    struct pool_session *session;

    *view = (struct pool_view){.status = PANDO_NO_MEMORY, .nodes = nodes};
    snprintf(view->error, sizeof(view->error), "out of memory");
    view->stats = calloc(nodes, sizeof(*view->stats));
    view->windows = calloc(nodes, sizeof(*view->windows));
    view->usage = calloc(nodes, sizeof(*view->usage));
    view->lost = calloc(POOL_TABLES, sizeof(*view->lost));
    view->members = calloc(POOL_MEMBERS, sizeof(*view->members));
    view->tables = calloc(POOL_TABLES, sizeof(*view->tables));
    if (view->stats == NULL || view->members == NULL || view->tables == NULL ||
        view->windows == NULL || view->usage == NULL || view->lost == NULL)
        return;
    view->status = pool_join_co(fabric, &options, &pool, view->error, sizeof(view->error));
    if (view->status != PANDO_OK)
        return;
    view->id = pool_id(pool);
    view->self = pool_identity(pool);
    view->status = pool_session_open_co(pool, &session);
    if (view->status == PANDO_OK) {
        view->status = look_co(view, session);
        pool_session_close_co(session);
    }
    if (view->status != PANDO_OK)
        snprintf(view->error, sizeof(view->error), "cannot look into the pool: %s",
                 pando_status_text(view->status));
    pool_leave_co(pool);
}

void pool_view_free(struct pool_view *view)
{
    for (unsigned i = 0; i < view->nodes && view->usage != NULL; i++)
        pool_usage_free(&view->usage[i]);
    free(view->stats);
    free(view->usage);
    free(view->windows);
    free(view->lost);
    free(view->members);
    free(view->tables);
}

/* ---- saying it ------------------------------------------------------------------------------- */

static const char *state_name(enum pool_member_state state)
{
    return (unsigned)state < 4 ? state_names[state] : "damaged";
}

static void print_node(const struct pool_node_stats *stats, const struct pool_window *window,
                       unsigned node, FILE *out)
{
    char used[FORMAT_SIZE_MAX], all[FORMAT_SIZE_MAX], spare[FORMAT_SIZE_MAX];
    char reserve[FORMAT_SIZE_MAX];
    fprintf(
        out,
        "memory %-3u %s of %s given out, %s of that free again, %s in reserve; %" PRIu64
        " grants, %" PRIu64 " returns, %" PRIu64 " sweeps, %" PRIu64 " refused, started %" PRIu64
        " times; window %016" PRIx64 "%s\n",
        node,
        format_size(used, sizeof(used), (stats->chunks - stats->chunks_free) * POOL_CHUNK_BYTES),
        format_size(all, sizeof(all), stats->chunks * POOL_CHUNK_BYTES),
        format_size(spare, sizeof(spare), stats->blocks_free_bytes),
        format_size(reserve, sizeof(reserve), stats->chunks_reserved * POOL_CHUNK_BYTES),
        stats->grants, stats->returns, stats->sweeps, stats->refusals, stats->starts, window->id,
        window->since != 0 ? ", which replaced a lost one" : "");
    if (stats->chunks_damaged > 0)
        fprintf(out,
                "memory %-3u DAMAGED: %" PRIu64 " chunks are not used any more; pando table verify "
                "says what is damaged there\n",
                node, stats->chunks_damaged);
}

/* Bytes of all tables of a node, by use. */
static void uses_of(const struct pool_usage *usage, uint64_t bytes[STORE_USES])
{
    memset(bytes, 0, STORE_USES * sizeof(bytes[0]));
    for (uint32_t i = 0; i < usage->head.tables; i++)
        bytes[store_use_of(usage->tables[i].kind)] += usage->tables[i].bytes;
}

static void print_usage(const struct pool_usage *usage, unsigned node, FILE *out)
{
    char text[FORMAT_SIZE_MAX], size[FORMAT_SIZE_MAX];
    uint64_t bytes[STORE_USES];
    const char *separator = "";

    uses_of(usage, bytes);
    fprintf(out, "memory %-3u used:", node);
    for (unsigned i = 0; i < STORE_USES; i++)
        fprintf(out, " %s %s,", store_use_name((enum store_use)i),
                format_size(text, sizeof(text), bytes[i]));
    fprintf(out, " slots for intents %s", format_size(text, sizeof(text), usage->head.slots_bytes));
    fprintf(out, "; in members' hands %s",
            format_size(text, sizeof(text), usage->head.hands_bytes));
    fprintf(out, "; held for a grace period %s\n",
            format_size(text, sizeof(text), usage->head.held_bytes));
    fprintf(out, "memory %-3u free in chunks, by size of block:", node);
    for (uint32_t i = 0; i < usage->head.classes; i++) {
        const struct pool_usage_class *class = &usage->classes[i];
        if (class->free_bytes == 0)
            continue;
        fprintf(out, "%s %s: %s", separator, format_size(size, sizeof(size), class->block_bytes),
                format_size(text, sizeof(text), class->free_bytes));
        separator = ",";
    }
    fprintf(out, "%s\n", separator[0] == '\0' ? " none" : "");
}

static uint64_t table_bytes(const struct pool_view *view, uint64_t number)
{
    uint64_t bytes = 0;
    for (unsigned node = 0; node < view->nodes; node++) {
        const struct pool_usage *usage = &view->usage[node];
        for (uint32_t i = 0; i < usage->head.tables; i++)
            bytes += usage->tables[i].table == number ? usage->tables[i].bytes : 0;
    }
    return bytes;
}

void pool_view_print(const struct pool_view *view, FILE *out)
{
    char bytes[FORMAT_SIZE_MAX];
    fprintf(out, "id       %016" PRIx64 "\n", view->id);
    for (unsigned i = 0; i < view->nodes; i++) {
        print_node(&view->stats[i], &view->windows[i], i, out);
        print_usage(&view->usage[i], i, out);
    }
    for (unsigned i = 0; i < view->member_count; i++) {
        const struct pool_member *member = &view->members[i];
        fprintf(out, "member %-3u %s, incarnation %u%s%s%s\n", member->member,
                state_name(member->beat.state), member->beat.incarnation,
                member->record.name[0] == '\0' ? "" : ", ", member->record.name,
                member->member == view->self.member ? " (this command)" : "");
    }
    for (unsigned i = 0; i < view->table_count; i++) {
        const struct pool_entry *table = &view->tables[i];
        fprintf(out, "table    %s: engine %s, keys to %u B, values inline to %u B, %s", table->name,
                table->engine, table->key_max, table->value_inline,
                format_size(bytes, sizeof(bytes), table_bytes(view, table->table)));
        if (view->lost[i] >= 0)
            fprintf(out, "; damaged: memory on node %d is lost, drop it", view->lost[i]);
        fputc('\n', out);
    }
    if (view->table_count == 0)
        fprintf(out, "table    none\n");
}

static void field_u64(struct json *json, const char *key, uint64_t value)
{
    json_key(json, key);
    json_u64(json, value);
}

static void field_text(struct json *json, const char *key, const char *value)
{
    json_key(json, key);
    json_string(json, value);
}

static void json_usage(struct json *json, const struct pool_usage *usage)
{
    uint64_t bytes[STORE_USES];
    uses_of(usage, bytes);
    json_key(json, "used_bytes");
    json_begin_object(json);
    for (unsigned i = 0; i < STORE_USES; i++)
        field_u64(json, store_use_name((enum store_use)i), bytes[i]);
    field_u64(json, "slots", usage->head.slots_bytes);
    json_end_object(json);
    field_u64(json, "members_bytes", usage->head.hands_bytes);
    field_u64(json, "held_bytes", usage->head.held_bytes);
    json_key(json, "classes");
    json_begin_array(json);
    for (uint32_t i = 0; i < usage->head.classes; i++) {
        json_begin_object(json);
        field_u64(json, "block_bytes", usage->classes[i].block_bytes);
        field_u64(json, "vital", usage->classes[i].kind == POOL_CHUNK_VITAL);
        field_u64(json, "chunks", usage->classes[i].chunks);
        field_u64(json, "free_bytes", usage->classes[i].free_bytes);
        json_end_object(json);
    }
    json_end_array(json);
}

void pool_view_json(const struct pool_view *view, struct json *json)
{
    json_key(json, "memory");
    json_begin_array(json);
    for (unsigned i = 0; i < view->nodes; i++) {
        const struct pool_node_stats *stats = &view->stats[i];
        json_begin_object(json);
        field_u64(json, "chunks", stats->chunks);
        field_u64(json, "chunks_free", stats->chunks_free);
        field_u64(json, "chunks_reserved", stats->chunks_reserved);
        field_u64(json, "free_block_bytes", stats->blocks_free_bytes);
        field_u64(json, "grants", stats->grants);
        field_u64(json, "returns", stats->returns);
        field_u64(json, "sweeps", stats->sweeps);
        field_u64(json, "refusals", stats->refusals);
        field_u64(json, "starts", stats->starts);
        field_u64(json, "chunks_damaged", stats->chunks_damaged);
        field_u64(json, "intents_damaged", stats->intents_damaged);
        json_usage(json, &view->usage[i]);
        char id[17];
        snprintf(id, sizeof(id), "%016" PRIx64, view->windows[i].id);
        field_text(json, "window", id);
        field_u64(json, "replaced", view->windows[i].since != 0);
        json_end_object(json);
    }
    json_end_array(json);
    json_key(json, "members");
    json_begin_array(json);
    for (unsigned i = 0; i < view->member_count; i++) {
        json_begin_object(json);
        field_u64(json, "member", view->members[i].member);
        field_u64(json, "incarnation", view->members[i].beat.incarnation);
        field_text(json, "state", state_name(view->members[i].beat.state));
        field_text(json, "name", view->members[i].record.name);
        json_end_object(json);
    }
    json_end_array(json);
    json_key(json, "tables");
    json_begin_array(json);
    for (unsigned i = 0; i < view->table_count; i++) {
        json_begin_object(json);
        field_text(json, "name", view->tables[i].name);
        field_text(json, "engine", view->tables[i].engine);
        field_u64(json, "key_max", view->tables[i].key_max);
        field_u64(json, "value_inline", view->tables[i].value_inline);
        field_u64(json, "bytes", table_bytes(view, view->tables[i].table));
        field_u64(json, "damaged", view->lost[i] >= 0);
        json_end_object(json);
    }
    json_end_array(json);
}
