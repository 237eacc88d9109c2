#include "cmd/top_page.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { LINE_BYTES = 512 };

static bool full(const struct page *page)
{
    return page->lines >= page->view->rows;
}

void page_begin(struct page *page)
{
    page->column = 0;
    if (!full(page) && page->lines > 0)
        fputc('\n', page->out);
}

void page_drawn(struct page *page, const char *style, const char *text, unsigned columns)
{
    if (full(page) || page->column + columns > page->view->columns || columns == 0)
        return;
    if (page->view->color && style[0] != '\0')
        fprintf(page->out, "\033[%sm%s\033[0m", style, text);
    else
        fputs(text, page->out);
    page->column += columns;
}

static void part(struct page *page, const char *style, const char *format, va_list arguments)
{
    char text[LINE_BYTES];
    vsnprintf(text, sizeof(text), format, arguments);
    for (char *p = text; *p != '\0'; p++) { /* names come from others */
        if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
            *p = '?';
    }
    size_t room = page->view->columns - page->column, size = strlen(text);
    if (size > room)
        text[size = room] = '\0';
    page_drawn(page, style, text, (unsigned)size);
}

void page_part(struct page *page, const char *style, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    part(page, style, format, arguments);
    va_end(arguments);
}

void page_end(struct page *page)
{
    if (full(page))
        return;
    if (page->view->terminal)
        fputs("\033[K", page->out);
    page->lines++;
}

void page_line(struct page *page, const char *style, const char *format, ...)
{
    va_list arguments;
    page_begin(page);
    va_start(arguments, format);
    part(page, style, format, arguments);
    va_end(arguments);
    page_end(page);
}

const char *seconds_text(double seconds, char out[16])
{
    if (seconds <= 0)
        snprintf(out, 16, "-");
    else if (seconds < 1e-3)
        snprintf(out, 16, "%.1f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(out, 16, "%.1f ms", seconds * 1e3);
    else if (seconds < 600)
        snprintf(out, 16, "%.1f s", seconds);
    else
        snprintf(out, 16, "%.0f h %02.0f m", floor(seconds / 3600), fmod(seconds / 60, 60));
    return out;
}

const char *rate_text(double rate, char out[16])
{
    if (rate >= 1e6)
        snprintf(out, 16, "%.2f M/s", rate / 1e6);
    else if (rate >= 1e4)
        snprintf(out, 16, "%.1f k/s", rate / 1e3);
    else
        snprintf(out, 16, "%.0f/s", rate);
    return out;
}
