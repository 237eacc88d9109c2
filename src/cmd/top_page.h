/*
 * top_page.h - lines of a screen, each of a few parts in styles of their own.
 */
#ifndef CMD_TOP_PAGE_H
#define CMD_TOP_PAGE_H

#include "cmd/top_view.h"

/* Styles: SGR parameters of terminals; "" for none. */
#define STYLE_TITLE  "7"
#define STYLE_STRONG "1"
#define STYLE_BAD    "31"
#define STYLE_GOOD   "32"
#define STYLE_WARN   "33"
#define STYLE_DRAWN  "36"
#define STYLE_PLAIN  ""

/* The screen being filled. Past its last row nothing is written. */
struct page {
    struct top_view *view;
    FILE *out;
    unsigned lines;
    unsigned column; /* of the line that is being written */
};

void page_begin(struct page *page);
__attribute__((format(printf, 3, 4))) void page_part(struct page *page, const char *style,
                                                     const char *format, ...);
/* Text that fills `columns` places, whatever its bytes. */
void page_drawn(struct page *page, const char *style, const char *text, unsigned columns);
void page_end(struct page *page);

/* One line of one part. */
__attribute__((format(printf, 3, 4))) void page_line(struct page *page, const char *style,
                                                     const char *format, ...);

const char *seconds_text(double seconds, char out[16]);
const char *rate_text(double rate, char out[16]);

/* The parts that top_view.c does not have: top_parts.c. */
void page_history(struct page *page, const struct top_snapshot *now);
void page_tables(struct page *page);
void page_help(struct page *page);

#endif
