/*
 * Arbitrary bytes where the server expects requests: once in one piece, once in pieces of which the
 * parser forgets what it has had. Both must give the same words. Memory errors are the sanitizers' to
 * find. What has been parsed is matched as patterns and numbers, too.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "server/resp/number.h"
#include "server/resp/pattern.h"
#include "server/resp/resp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BULK_MAX = 1 << 16 };

/* All words of all requests, with their sizes. */
struct words {
    uint8_t *bytes;
    size_t used, requests;
    enum resp_result end;
    char error[RESP_ERROR_MAX];
};

static void words_add(struct words *words, const void *bytes, size_t size)
{
    if (size > 0)
        memcpy(words->bytes + words->used, bytes, size);
    words->used += size;
}

static void take(struct words *words, const struct resp_parser *parser, const uint8_t *front,
                 size_t front_size, struct resp_request request)
{
    pando_assert(request.count > 0 && request.first + request.count <= parser->word_count);
    words->requests++;
    for (size_t i = 0; i < request.count; i++) {
        struct resp_word word = parser->words[request.first + i];
        pando_assert(word.offset <= front_size && word.size <= front_size - word.offset);
        words_add(words, &word.size, sizeof(word.size));
        words_add(words, front + word.offset, word.size);
    }
}

/* Pieces as the data itself says; `whole` takes it all at once. */
static void parse(const uint8_t *data, size_t size, bool whole, const struct resp_limits *limits,
                  struct words *words)
{
    struct resp_parser parser;
    uint8_t *buffer = malloc(size + 1);
    size_t used = 0, fed = 0;

    pando_assert(buffer != NULL);
    resp_init(&parser);
    words->end = RESP_MORE;
    while (fed < size && words->end == RESP_MORE) {
        size_t piece = whole ? size : (size_t)1 + data[fed] % 7;
        piece = piece < size - fed ? piece : size - fed;
        memcpy(buffer + used, data + fed, piece);
        used += piece;
        fed += piece;
        /* In memory of its own, so that reading past the end is noticed. */
        uint8_t *exact = malloc(used);
        pando_assert(exact != NULL);
        memcpy(exact, buffer, used);
        struct resp_request request;
        while ((words->end = resp_parse(&parser, exact, used, limits, &request, words->error)) ==
               RESP_REQUEST)
            take(words, &parser, exact, used, request);
        size_t gone = resp_forget(&parser);
        pando_assert(gone <= used);
        memcpy(buffer, exact + gone, used - gone);
        used -= gone;
        free(exact);
    }
    resp_fini(&parser);
    free(buffer);
}

/* The same requests when long words are passed over as they come: as many, of as many words. */
static void parse_passing(const uint8_t *data, size_t size, const struct resp_limits *limits,
                          const struct words *once)
{
    struct resp_limits passing = *limits;
    struct resp_parser parser;
    struct resp_request request;
    uint8_t *buffer = malloc(size + 1);
    size_t used = 0, fed = 0, requests = 0, left = 0;
    enum resp_result end = RESP_MORE;
    char error[RESP_ERROR_MAX];

    pando_assert(buffer != NULL);
    passing.long_min = 16;
    resp_init(&parser);
    while ((fed < size || (left == 0 && end == RESP_LONG)) && end != RESP_WRONG) {
        size_t piece = fed < size ? (size_t)1 + data[fed] % 7 : 0;
        piece = piece < size - fed ? piece : size - fed;
        memcpy(buffer + used, data + fed, piece);
        used += piece;
        fed += piece;
        if (left > 0) {
            size_t there = used - parser.at, taken = there < left ? there : left;
            memmove(buffer + parser.at, buffer + parser.at + taken, there - taken);
            used -= taken;
            left -= taken;
            if (left > 0)
                continue;
            pando_assert(resp_long_passed(&parser));
        }
        while ((end = resp_parse(&parser, buffer, used, &passing, &request, error)) ==
               RESP_REQUEST) {
            pando_assert(request.first + request.count <= parser.word_count);
            requests++;
        }
        size_t gone = resp_forget(&parser);
        memmove(buffer, buffer + gone, used - gone);
        used -= gone;
        if (end == RESP_LONG && parser.bulk_size % 2 == 0) {
            resp_long_kept(&parser);
            end = RESP_MORE;
        } else if (end == RESP_LONG) {
            left = parser.bulk_size + 2;
        }
    }
    pando_assert(requests == once->requests);
    pando_assert((end == RESP_WRONG) == (once->end == RESP_WRONG));
    resp_fini(&parser);
    free(buffer);
}

static void try_words(const struct words *words)
{
    struct slice all = slice_of(words->bytes, words->used < 64 ? words->used : 64);
    struct slice half = slice_of(words->bytes, all.size / 2);
    int64_t number;
    long double real;
    char text[NUMBER_TEXT_MAX], long_text[NUMBER_FLOAT_TEXT_MAX];

    (void)pattern_matches(half, all);
    pando_assert(pattern_prefix(all).size <= all.size);
    if (number_parse(half, &number)) {
        size_t size = number_format(text, number);
        pando_assert(size == half.size && memcmp(text, half.data, size) == 0);
    }
    if (number_parse_float(half, &real))
        pando_assert(number_format_float(long_text, real) < NUMBER_FLOAT_TEXT_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct resp_limits limits = {.bulk_max = BULK_MAX, .untrusted = size > 0 && data[0] == 'u'};
    /* A word takes at least one byte of input, and eight more here. */
    struct words once = {.bytes = malloc(size * 9 + 9)}, pieces = {.bytes = malloc(size * 9 + 9)};

    pando_assert(once.bytes != NULL && pieces.bytes != NULL);
    parse(data, size, true, &limits, &once);
    parse(data, size, false, &limits, &pieces);
    pando_assert(once.end == pieces.end && once.requests == pieces.requests);
    pando_assert(once.used == pieces.used && memcmp(once.bytes, pieces.bytes, once.used) == 0);
    if (once.end == RESP_WRONG)
        pando_assert(strcmp(once.error, pieces.error) == 0);
    parse_passing(data, size, &limits, &once);
    try_words(&once);
    free(once.bytes);
    free(pieces.bytes);
    return 0;
}
