#include "http/request.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

/* A line without its CRLF. */
struct line {
    const char *text;
    size_t size;
};

/* Takes a line off the front. False: there is no whole one. */
static bool take_line(const char **bytes, size_t *size, struct line *line)
{
    const char *end = memchr(*bytes, '\n', *size);
    if (end == NULL)
        return false;
    line->text = *bytes;
    line->size = (size_t)(end - *bytes);
    *size -= line->size + 1;
    *bytes = end + 1;
    return true;
}

/* Every line ends in CR LF and has no other control characters; then cuts the CR. */
static bool line_clean(struct line *line)
{
    if (line->size == 0 || line->text[line->size - 1] != '\r')
        return false;
    line->size--;
    for (size_t i = 0; i < line->size; i++) {
        unsigned char byte = (unsigned char)line->text[i];
        if ((byte < 0x20 && byte != '\t') || byte == 0x7f)
            return false;
    }
    return true;
}

static bool is_token(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static size_t token_size(const char *text, size_t size)
{
    size_t i = 0;
    while (i < size && is_token(text[i]))
        i++;
    return i;
}

static bool line_is(struct line line, const char *text)
{
    return line.size == strlen(text) && memcmp(line.text, text, line.size) == 0;
}

static int parse_target(struct line target, struct http_request *out)
{
    if (target.size == 0 || target.text[0] != '/')
        return 400;
    const char *query = memchr(target.text, '?', target.size);
    size_t path_size = query == NULL ? target.size : (size_t)(query - target.text);
    if (path_size >= sizeof(out->path))
        return 414;
    for (size_t i = 0; i < target.size; i++) {
        unsigned char byte = (unsigned char)target.text[i];
        if (byte <= 0x20 || byte >= 0x7f)
            return 400;
    }
    memcpy(out->path, target.text, path_size);
    out->path[path_size] = '\0';
    return HTTP_OK;
}

/* METHOD SP target SP HTTP/1.x */
static int parse_request_line(struct line line, struct http_request *out, bool *host_needed)
{
    size_t method = token_size(line.text, line.size);
    if (method == 0 || method == line.size || line.text[method] != ' ')
        return 400;
    const char *rest = line.text + method + 1;
    size_t rest_size = line.size - method - 1;
    const char *space = memchr(rest, ' ', rest_size);
    if (space == NULL)
        return 400;
    struct line target = {.text = rest, .size = (size_t)(space - rest)};
    struct line version = {.text = space + 1, .size = rest_size - target.size - 1};
    if (version.size != 8 || memcmp(version.text, "HTTP/", 5) != 0)
        return 400;
    if (!line_is(version, "HTTP/1.1") && !line_is(version, "HTTP/1.0"))
        return 505;
    *host_needed = version.text[7] == '1';
    int status = parse_target(target, out);
    if (status != HTTP_OK)
        return status;
    out->head = method == 4 && memcmp(line.text, "HEAD", 4) == 0;
    return out->head || (method == 3 && memcmp(line.text, "GET", 3) == 0) ? HTTP_OK : 405;
}

/* name: value. Notes what matters here: a host, and that a body is announced. */
static int parse_header(struct line line, bool *host, bool *body)
{
    size_t name = token_size(line.text, line.size);
    if (name == 0 || name == line.size || line.text[name] != ':')
        return 400;
    struct line value = {.text = line.text + name + 1, .size = line.size - name - 1};
    while (value.size > 0 && (value.text[0] == ' ' || value.text[0] == '\t')) {
        value.text++;
        value.size--;
    }
    if (name == 4 && strncasecmp(line.text, "Host", 4) == 0) {
        if (*host)
            return 400;
        *host = true;
    }
    if (name == 17 && strncasecmp(line.text, "Transfer-Encoding", 17) == 0)
        *body = true;
    if (name == 14 && strncasecmp(line.text, "Content-Length", 14) == 0)
        *body = *body || !line_is(value, "0");
    return HTTP_OK;
}

int http_request_parse(const char *bytes, size_t size, struct http_request *out)
{
    const char *rest = bytes;
    size_t left = size < HTTP_HEAD_MAX ? size : HTTP_HEAD_MAX;
    int incomplete = size < HTTP_HEAD_MAX ? HTTP_MORE : 431;
    bool host_needed = false, host = false, body = false;
    struct line line;

    if (!take_line(&rest, &left, &line))
        return incomplete;
    int status = line_clean(&line) ? parse_request_line(line, out, &host_needed) : 400;
    while (status == HTTP_OK || status == 405) {
        if (!take_line(&rest, &left, &line))
            return incomplete;
        if (!line_clean(&line))
            return 400;
        if (line.size == 0)
            break;
        int header = parse_header(line, &host, &body);
        if (header != HTTP_OK)
            return header;
    }
    if (status != HTTP_OK)
        return status;
    if (host_needed && !host)
        return 400;
    return body ? 413 : HTTP_OK;
}
