#include "cmd/top_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/parse.h"

enum {
    LINE_BYTES = 512,
    BAR = 30,
    COMMANDS_SHOWN = 4,
    FULL_PERCENT = 75,
    BUSY_PERCENT = 90,
    ROWS_WITH_HISTORY = 18
};

/* ---- the parts ------------------------------------------------------------------------------- */

struct change {
    const struct top_snapshot *before, *after;
    double seconds;
};

/* A counter that fell was started anew. */
static double per_second(const struct change *change, double before, double after)
{
    return after >= before && change->seconds > 0 ? (after - before) / change->seconds : 0;
}

static void put_operations(struct page *page, const struct change *change)
{
    const struct top_snapshot *before = change->before, *after = change->after;
    char rate[16], errors[16], uptime[16], p[4][16];
    static const double fractions[] = {0.5, 0.9, 0.99, 0.999};
    double failed = per_second(change, before->errors + top_command_errors(before),
                               after->errors + top_command_errors(after));

    page_begin(page);
    page_part(page, STYLE_STRONG, "operations  %s",
              rate_text(per_second(change, top_calls(before), top_calls(after)), rate));
    page_part(page, failed > 0 ? STYLE_BAD : STYLE_STRONG, "   errors %s",
              rate_text(failed, errors));
    page_part(page, STYLE_STRONG, "   clients %.0f   servers %u   up %s", after->clients,
              after->servers, seconds_text(after->uptime_s, uptime));
    page_end(page);
    for (int i = 0; i < 4; i++)
        seconds_text(top_quantile_s(before, after, fractions[i]), p[i]);
    page_line(page, STYLE_PLAIN, "latency     p50 %s   p90 %s   p99 %s   p99.9 %s", p[0], p[1],
              p[2], p[3]);
}

struct busy_command {
    const struct top_command *command;
    double calls, seconds;
};

static int by_calls(const void *a, const void *b)
{
    const struct busy_command *left = a, *right = b;
    return (left->calls < right->calls) - (left->calls > right->calls);
}

static void put_commands(struct page *page, const struct change *change)
{
    struct busy_command busy[TOP_COMMANDS_MAX];
    char line[LINE_BYTES] = "commands    ", rate[16], mean[16];
    unsigned count = 0;
    for (unsigned i = 0; i < change->after->command_count; i++) {
        const struct top_command *now = &change->after->commands[i];
        struct top_command then = {0};
        for (unsigned j = 0; j < change->before->command_count; j++) {
            if (strcmp(change->before->commands[j].name, now->name) == 0)
                then = change->before->commands[j];
        }
        if (now->calls > then.calls)
            busy[count++] =
                (struct busy_command){now, now->calls - then.calls, now->seconds - then.seconds};
    }
    qsort(busy, count, sizeof(busy[0]), by_calls);
    for (unsigned i = 0; i < count && i < COMMANDS_SHOWN; i++) {
        size_t used = strlen(line);
        snprintf(line + used, sizeof(line) - used, "%s%s %s (%s)", i > 0 ? "   " : "",
                 busy[i].command->name, rate_text(busy[i].calls / change->seconds, rate),
                 seconds_text(busy[i].seconds / busy[i].calls, mean));
    }
    page_line(page, STYLE_PLAIN, "%s%s", line, count == 0 ? "none now" : "");
}

static void put_fabric(struct page *page, const struct change *change)
{
    const struct top_snapshot *a = change->before, *b = change->after;
    char size[FORMAT_SIZE_MAX];
    double operations = top_calls(b) - top_calls(a);
    double hits = b->cache_hits - a->cache_hits, misses = b->cache_misses - a->cache_misses;
    double scale = operations > 0 ? 1 / operations : 0;

    page_line(page, STYLE_PLAIN,
              "fabric      per operation: %.2f round trips, %.2f READ, %.2f WRITE, %.2f atomics",
              (b->round_trips - a->round_trips) * scale, (b->reads - a->reads) * scale,
              (b->writes - a->writes) * scale, (b->atomics - a->atomics) * scale);
    page_line(page, STYLE_PLAIN, "            %.0f B in, %.0f B out, %.3f calls",
              (b->bytes_in - a->bytes_in) * scale, (b->bytes_out - a->bytes_out) * scale,
              (b->calls - a->calls) * scale);
    page_line(page, STYLE_PLAIN,
              "index       cache hits %.2f %%, %s; %.0f rereads/s, %.0f splits/s, %.0f merges/s",
              hits + misses > 0 ? 100 * hits / (hits + misses) : 0.0,
              format_size(size, sizeof(size), (uint64_t)b->cache_bytes),
              per_second(change, a->rereads, b->rereads), per_second(change, a->splits, b->splits),
              per_second(change, a->merges, b->merges));
    page_line(page, STYLE_PLAIN,
              "            %.0f forwarded/s, %.0f offloaded/s; keys moved %.0f times",
              per_second(change, a->forwarded, b->forwarded),
              per_second(change, a->offloaded, b->offloaded), b->moves);
}

static void put_nodes(struct page *page, const struct top_snapshot *now, unsigned most)
{
    char bar[BAR + 1], used[FORMAT_SIZE_MAX], all[FORMAT_SIZE_MAX];
    for (unsigned i = 0; i < now->node_count && i < most; i++) {
        const struct top_node *node = &now->nodes[i];
        double share = node->bytes > 0 ? node->used / node->bytes : 0;
        share = share < 0 ? 0 : share > 1 ? 1 : share;
        int full = (int)(share * BAR + 0.5);
        memset(bar, '#', (size_t)full);
        memset(bar + full, '.', (size_t)(BAR - full));
        bar[BAR] = '\0';
        page_begin(page);
        page_part(page, STYLE_PLAIN, "node %-3u    [", node->node);
        page_part(page,
                  share * 100 >= BUSY_PERCENT   ? STYLE_BAD
                  : share * 100 >= FULL_PERCENT ? STYLE_WARN
                                                : STYLE_GOOD,
                  "%s", bar);
        page_part(page, STYLE_PLAIN, "] %5.1f %%  %s of %s", share * 100,
                  format_size(used, sizeof(used), (uint64_t)fmax(node->used, 0)),
                  format_size(all, sizeof(all), (uint64_t)fmax(node->bytes, 0)));
        page_end(page);
    }
    if (now->node_count > most)
        page_line(page, STYLE_PLAIN, "            and %u more memory nodes",
                  now->node_count - most);
}

/* How long ago the member's heartbeat was seen to move. */
static double beat_age_s(struct top_view *view, const struct top_member *member, uint64_t now_ns)
{
    unsigned slot = member->member % POOL_MEMBERS;
    if (view->first_seen_ns[slot] == 0 || view->incarnation[slot] != member->incarnation) {
        view->first_seen_ns[slot] = now_ns;
        view->last_beat_ns[slot] = now_ns;
        view->incarnation[slot] = member->incarnation;
    } else if (view->last_beats[slot] != member->beats) {
        view->last_beat_ns[slot] = now_ns;
    }
    view->last_beats[slot] = member->beats;
    return (double)(now_ns - view->last_beat_ns[slot]) / 1e9;
}

void top_view_note(struct top_view *view, const struct top_snapshot *snapshot)
{
    for (unsigned i = 0; i < snapshot->member_count; i++)
        (void)beat_age_s(view, &snapshot->members[i], snapshot->at_ns);
}

static void put_members(struct page *page, const struct top_snapshot *now)
{
    struct top_view *view = page->view;
    if (!now->members_known)
        return;
    page_line(page, STYLE_STRONG, "members     %u", now->member_count);
    for (unsigned i = 0; i < now->member_count; i++) {
        const struct top_member *member = &now->members[i];
        double age_s = beat_age_s(view, member, now->at_ns);
        unsigned slot = member->member % POOL_MEMBERS;
        bool well = strcmp(member->state, "alive") == 0;
        if (page->lines + 1 == view->rows && i + 1 < now->member_count) {
            page_line(page, STYLE_PLAIN, "            and %u more", now->member_count - i);
            return;
        }
        page_line(page, well ? STYLE_PLAIN : STYLE_BAD,
                  "  %4u.%-5u %-15s heartbeat %4.1f s ago, seen for %5.0f s  %s", member->member,
                  member->incarnation, member->state, age_s,
                  (double)(now->at_ns - view->first_seen_ns[slot]) / 1e9, member->name);
    }
}

void top_view_remember(struct top_view *view, const struct top_snapshot *before,
                       const struct top_snapshot *after)
{
    struct change change = {
        .before = before, .after = after, .seconds = (double)(after->at_ns - before->at_ns) / 1e9};
    double value[TOP_SERIES] = {
        [TOP_RATE] = per_second(&change, top_calls(before), top_calls(after)),
        [TOP_P99] = top_quantile_s(before, after, 0.99),
    };
    for (unsigned i = 0; i < after->node_count; i++)
        value[TOP_USED] += after->nodes[i].used;
    top_history_add(&view->history, value);
}

/* Lines for memory nodes; what is above them, and a few members, have room besides. */
static unsigned nodes_most(const struct top_view *view)
{
    unsigned others = view->rows >= ROWS_WITH_HISTORY ? 16 : 13;
    return view->rows > others + 1 ? view->rows - others : 2;
}

void top_view_print(struct top_view *view, const struct top_snapshot *before,
                    const struct top_snapshot *after, FILE *out)
{
    struct page page = {.view = view, .out = out};
    struct change change = {
        .before = before, .after = after, .seconds = (double)(after->at_ns - before->at_ns) / 1e9};
    char clock[16] = "";
    time_t now = time(NULL);
    struct tm local;

    if (localtime_r(&now, &local) != NULL)
        (void)strftime(clock, sizeof(clock), "%H:%M:%S", &local);
    page_line(&page, STYLE_TITLE, "pando top   %s   %s%s", clock, view->title,
              view->terminal ? "   h: help" : "");
    if (view->problem[0] != '\0')
        page_line(&page, STYLE_BAD, "%s", view->problem);
    if (view->screen == TOP_HELP) {
        page_help(&page);
        return;
    }
    if (after->servers > 0)
        put_operations(&page, &change);
    if (view->terminal && view->rows >= ROWS_WITH_HISTORY)
        page_history(&page, after);
    if (view->screen == TOP_TABLES) {
        page_tables(&page);
        return;
    }
    if (after->servers > 0) {
        put_commands(&page, &change);
        put_fabric(&page, &change);
    }
    put_nodes(&page, after, nodes_most(view));
    put_members(&page, after);
}
