/*
 * resp.h - requests as clients send them: arrays of bulk strings ("multibulk"), or lines of words
 * ("inline"), as Redis accepts them. Bytes in, words out; no I/O. The bytes are hostile.
 *
 *   *2\r\n$3\r\nGET\r\n$3\r\nkey\r\n          GET key\r\n          SET key "two\x20words"\r\n
 *
 * Words are offsets into the caller's buffer, which may move and grow while a request is incomplete:
 * what was parsed is not parsed again. Several requests may be parsed before the first is forgotten.
 */
#ifndef SERVER_RESP_RESP_H
#define SERVER_RESP_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RESP_LINE_MAX = 64 * 1024, /* an inline request, or the line with a length */
    RESP_WORDS_MAX = 1024 * 1024,
    RESP_ERROR_MAX = 64,
    RESP_UNTRUSTED_WORDS_MAX = 10, /* before the password was given */
    RESP_UNTRUSTED_BULK_MAX = 16384,
};

struct resp_word {
    size_t offset, size;
};

struct resp_limits {
    size_t bulk_max;
    size_t long_min; /* words of so many bytes are LONG; 0: none is */
    bool untrusted;
};

struct resp_parser {
    struct resp_word *words; /* of all requests since the last reset */
    size_t word_count, word_capacity;
    size_t first; /* word of the request being parsed */
    size_t at;    /* offset of the first byte not yet parsed */
    int64_t words_left;
    bool in_request;
    bool in_bulk; /* the length of the next word is known */
    size_t bulk_size;
    bool at_long; /* the last call returned LONG */
    bool whole;   /* this word is wanted in the buffer, however long */
};

enum resp_result {
    RESP_REQUEST, /* words[first .. first + count) */
    RESP_MORE,    /* nothing complete */
    RESP_LONG,    /* the next word has bulk_size bytes and is not all there: it begins at `at` */
    RESP_WRONG,   /* the text says what; nothing that follows can be understood */
    RESP_NO_MEMORY,
};

struct resp_request {
    size_t first, count; /* count is never 0 */
};

void resp_init(struct resp_parser *parser);
void resp_fini(struct resp_parser *parser);

/* Parses one request of data[parser->at .. size). Inline words are unescaped in place. `error` has
 * RESP_ERROR_MAX bytes; it is what Redis says, without "-ERR ". */
enum resp_result resp_parse(struct resp_parser *parser, uint8_t *data, size_t size,
                            const struct resp_limits *limits, struct resp_request *out,
                            char *error);

/* What becomes of a LONG word. Passed: its caller has taken its bytes and the end of line behind them out of
 * the buffer; it is an empty word. Kept: the parser waits for all of it, as for a short one. */
bool resp_long_passed(struct resp_parser *parser);
void resp_long_kept(struct resp_parser *parser);

/* Words of the request that is not complete. */
static inline size_t resp_words_pending(const struct resp_parser *parser)
{
    return parser->word_count - parser->first;
}

/* Forgets the requests that were complete, and returns how many bytes at the front of the buffer
 * nobody needs any more: the caller takes them away before the next resp_parse. */
size_t resp_forget(struct resp_parser *parser);

/* Bytes that must be in the buffer before it is worth parsing again; 0: unknown. */
size_t resp_wanted(const struct resp_parser *parser);

#endif
