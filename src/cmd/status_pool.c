#include "cmd/status_pool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "store/usage.h"

static const char *const state_names[] = {"free", "joining", "alive", "being recovered"};

/* ---- looking --------------------------------------------------------------------------------- */

static enum pando_status look_at_windows(struct pool_report *report, const struct pool *pool)
{
    uint16_t node;
    report->lost = calloc(report->table_count + 1ul, sizeof(*report->lost));
    if (report->lost == NULL)
        return PANDO_NO_MEMORY;
    for (unsigned i = 0; i < report->nodes; i++)
        report->windows[i] = pool_window(pool, (uint16_t)i);
    for (unsigned i = 0; i < report->table_count; i++)
        report->lost[i] = pool_table_lost(pool, &report->tables[i], &node) ? node : -1;
    return PANDO_OK;
}

static void count_tables(struct pool_report *report, const struct pool_usage *usage)
{
    for (uint32_t i = 0; i < usage->head.tables; i++)
        report->table_bytes[usage->tables[i].table] += usage->tables[i].bytes;
}

static enum pando_status read_pool_co(struct pool_report *report, struct pool_session *session)
{
    enum pando_status status =
        pool_members_co(session, report->members, POOL_MEMBERS, &report->member_count);
    if (status == PANDO_OK)
        status = pool_table_list_co(session, &report->tables, &report->table_count);
    for (unsigned node = 0; node < report->nodes && status == PANDO_OK; node++)
        status = pool_node_stats_co(session, (uint16_t)node, &report->stats[node]);
    for (unsigned node = 0; node < report->nodes && status == PANDO_OK; node++) {
        status = pool_usage_co(session, (uint16_t)node, &report->usage[node]);
        count_tables(report, &report->usage[node]);
    }
    if (status == PANDO_OK)
        status = look_at_windows(report, pool_session_pool(session));
    return status;
}

void pool_report_co(struct pool_report *report, struct fabric *fabric, unsigned nodes)
{
    struct pool_options options = {.memory_nodes = (uint16_t)nodes, .name = "pando status"};
    struct pool *pool;
    struct pool_session *session;

    *report = (struct pool_report){.status = PANDO_NO_MEMORY, .nodes = nodes};
    snprintf(report->error, sizeof(report->error), "out of memory");
    report->stats = calloc(nodes, sizeof(*report->stats));
    report->windows = calloc(nodes, sizeof(*report->windows));
    report->usage = calloc(nodes, sizeof(*report->usage));
    report->table_bytes = calloc(POOL_TABLE_NUMBER_MAX + 1, sizeof(*report->table_bytes));
    report->members = calloc(POOL_MEMBERS, sizeof(*report->members));
    if (report->stats == NULL || report->members == NULL || report->windows == NULL ||
        report->usage == NULL || report->table_bytes == NULL)
        return;
    report->status = pool_join_co(fabric, &options, &pool, report->error, sizeof(report->error));
    if (report->status != PANDO_OK)
        return;
    report->id = pool_id(pool);
    report->self = pool_identity(pool);
    report->status = pool_session_open_co(pool, &session);
    if (report->status == PANDO_OK) {
        report->status = read_pool_co(report, session);
        pool_session_close_co(session);
    }
    if (report->status != PANDO_OK)
        snprintf(report->error, sizeof(report->error), "cannot look into the pool: %s",
                 pando_status_text(report->status));
    pool_leave_co(pool);
}

void pool_report_free(struct pool_report *report)
{
    for (unsigned i = 0; i < report->nodes && report->usage != NULL; i++)
        pool_usage_free(&report->usage[i]);
    free(report->stats);
    free(report->usage);
    free(report->windows);
    free(report->lost);
    free(report->table_bytes);
    free(report->members);
    free(report->tables);
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
        bytes[store_use_of(&usage->tables[i])] += usage->tables[i].bytes;
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
    fprintf(out, "; waiting for a grace period there %s",
            format_size(text, sizeof(text), usage->head.waiting_bytes));
    fprintf(out, ", here %s\n", format_size(text, sizeof(text), usage->head.held_bytes));
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

static uint64_t table_bytes(const struct pool_report *report, uint64_t number)
{
    return number <= POOL_TABLE_NUMBER_MAX ? report->table_bytes[number] : 0;
}

void pool_report_print(const struct pool_report *report, FILE *out)
{
    char bytes[FORMAT_SIZE_MAX];
    fprintf(out, "id       %016" PRIx64 "\n", report->id);
    for (unsigned i = 0; i < report->nodes; i++) {
        print_node(&report->stats[i], &report->windows[i], i, out);
        print_usage(&report->usage[i], i, out);
    }
    for (unsigned i = 0; i < report->member_count; i++) {
        const struct pool_member *member = &report->members[i];
        fprintf(out, "member %-3u %s, incarnation %u%s%s%s\n", member->member,
                state_name(member->beat.state), member->beat.incarnation,
                member->record.name[0] == '\0' ? "" : ", ", member->record.name,
                member->member == report->self.member ? " (this command)" : "");
    }
    for (unsigned i = 0; i < report->table_count; i++) {
        const struct pool_entry *table = &report->tables[i];
        fprintf(out, "table    %s: engine %s, keys to %u B, values inline to %u B, %s", table->name,
                table->engine, table->key_max, table->value_inline,
                format_size(bytes, sizeof(bytes), table_bytes(report, table->table)));
        if (report->lost[i] >= 0)
            fprintf(out, "; damaged: memory on node %d is lost, drop it", report->lost[i]);
        fputc('\n', out);
    }
    if (report->table_count == 0)
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
    field_u64(json, "waiting_bytes", usage->head.waiting_bytes);
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

void pool_report_json(const struct pool_report *report, struct json *json)
{
    json_key(json, "memory");
    json_begin_array(json);
    for (unsigned i = 0; i < report->nodes; i++) {
        const struct pool_node_stats *stats = &report->stats[i];
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
        json_usage(json, &report->usage[i]);
        char id[17];
        snprintf(id, sizeof(id), "%016" PRIx64, report->windows[i].id);
        field_text(json, "window", id);
        field_u64(json, "replaced", report->windows[i].since != 0);
        json_end_object(json);
    }
    json_end_array(json);
    json_key(json, "members");
    json_begin_array(json);
    for (unsigned i = 0; i < report->member_count; i++) {
        json_begin_object(json);
        field_u64(json, "member", report->members[i].member);
        field_u64(json, "incarnation", report->members[i].beat.incarnation);
        field_text(json, "state", state_name(report->members[i].beat.state));
        field_text(json, "name", report->members[i].record.name);
        json_end_object(json);
    }
    json_end_array(json);
    json_key(json, "tables");
    json_begin_array(json);
    for (unsigned i = 0; i < report->table_count; i++) {
        json_begin_object(json);
        field_text(json, "name", report->tables[i].name);
        field_text(json, "engine", report->tables[i].engine);
        field_u64(json, "key_max", report->tables[i].key_max);
        field_u64(json, "value_inline", report->tables[i].value_inline);
        field_u64(json, "bytes", table_bytes(report, report->tables[i].table));
        field_u64(json, "damaged", report->lost[i] >= 0);
        json_end_object(json);
    }
    json_end_array(json);
}
