/*
 * top_parts.c - the last minutes, the tables and the help of `pando top`.
 */
#include "base/parse.h"
#include "cmd/top_page.h"

enum { LABEL = 21, MOST = 24, BAR_BYTES = 3, BARS_LEAST = 8, WIDE = 110 };

static double bytes_of_nodes(const struct top_snapshot *now)
{
    double sum = 0;
    for (unsigned i = 0; i < now->node_count; i++)
        sum += now->nodes[i].bytes;
    return sum;
}

/* A line of bars as wide as the screen allows. `all` is what a full bar is; 0: the largest. */
static void put_series(struct page *page, enum top_series series, const char *label, double all,
                       const char *(*text)(double value, char out[16]))
{
    const struct top_view *view = page->view;
    char bars[TOP_HISTORY_MAX * BAR_BYTES + 1], most_text[16];
    if (view->columns < LABEL + MOST + BARS_LEAST)
        return;
    unsigned width = view->columns - LABEL - MOST;
    width = width < TOP_HISTORY_MAX ? width : TOP_HISTORY_MAX;
    double most = top_history_most(&view->history, series);
    unsigned shown = top_history_bars(&view->history, series, width, all > 0 ? all : most,
                                      view->blocks, bars, sizeof(bars));
    page_begin(page);
    page_part(page, STYLE_PLAIN, "%-*s", LABEL, label);
    page_drawn(page, STYLE_DRAWN, bars, shown);
    page_part(page, STYLE_PLAIN, "  at most %s", text(most, most_text));
    page_end(page);
}

static const char *bytes_text(double bytes, char out[16])
{
    char size[FORMAT_SIZE_MAX];
    snprintf(out, 16, "%s", format_size(size, sizeof(size), (uint64_t)(bytes > 0 ? bytes : 0)));
    return out;
}

void page_history(struct page *page, const struct top_snapshot *now)
{
    if (now->servers > 0) {
        put_series(page, TOP_RATE, "history     ops", 0, rate_text);
        put_series(page, TOP_P99, "            p99", 0, seconds_text);
    }
    if (now->node_count > 0)
        put_series(page, TOP_USED, now->servers > 0 ? "            memory" : "history     memory",
                   bytes_of_nodes(now), bytes_text);
}

static int name_width(const struct top_view *view)
{
    return view->columns >= WIDE ? 48 : 20;
}

static void put_table(struct page *page, const struct top_table *table)
{
    const struct top_view *view = page->view;
    char bytes[FORMAT_SIZE_MAX], change[FORMAT_SIZE_MAX], owners[48] = "-";
    double growth = view->tables_before == NULL
                        ? 0
                        : top_table_growth(view->tables_before, view->tables, table);
    double size = growth < 0 ? -growth : growth;

    if (table->owners > 0)
        snprintf(owners, sizeof(owners), "%u, the busiest %u %%", table->owners,
                 table->most_percent);
    page_begin(page);
    page_part(page, STYLE_PLAIN, "  %-*.*s %-8.8s %10s ", name_width(view), name_width(view),
              table->name, table->engine, format_size(bytes, sizeof(bytes), table->bytes));
    page_part(page,
              growth > 0   ? STYLE_WARN
              : growth < 0 ? STYLE_GOOD
                           : STYLE_PLAIN,
              "%c%9s/s",
              growth < 0 ? '-'
              : size > 0 ? '+'
                         : ' ',
              format_size(change, sizeof(change), (uint64_t)size));
    page_part(page, STYLE_PLAIN, "  %s", owners);
    page_end(page);
}

void page_tables(struct page *page)
{
    const struct top_tables *tables = page->view->tables;
    if (tables == NULL) {
        page_line(page, STYLE_PLAIN,
                  "tables      not known: start it with --pool URI (servers do not tell of them)");
        return;
    }
    page_line(page, STYLE_STRONG, "tables      %u", tables->count);
    page_line(page, STYLE_STRONG, "  %-*s %-8s %10s %12s  %s", name_width(page->view), "NAME",
              "ENGINE", "MEMORY", "CHANGE", "OWNERS OF ITS KEYS");
    for (unsigned i = 0; i < tables->count; i++) {
        if (page->lines + 1 >= page->view->rows && i + 1 < tables->count) {
            page_line(page, STYLE_PLAIN, "  and %u more", tables->count - i);
            return;
        }
        put_table(page, &tables->tables[i]);
    }
}

void page_help(struct page *page)
{
    static const char *const lines[] = {
        "keys        h or ?  this page and back",
        "            t       tables of the pool and back (with --pool)",
        "            q       end",
        "",
        "operations  commands answered; errors: what was refused or went wrong",
        "latency     in the server, without the network to its clients",
        "history     the last 180 looks, the newest at the right",
        "fabric      what a command costs on remote memory",
        "index       what servers keep of the tables' trees; forwarded: keys of others",
        "node        a memory node: yellow from 75 %, red from 90 %",
        "members     processes in the pool; a heartbeat that stands still is a dead one",
    };
    for (unsigned i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        page_line(page, STYLE_PLAIN, "%s", lines[i]);
}
