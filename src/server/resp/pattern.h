/*
 * pattern.h - glob patterns as Redis has them: * ? [abc] [^a-z] and backslash.
 */
#ifndef SERVER_RESP_PATTERN_H
#define SERVER_RESP_PATTERN_H

#include "base/slice.h"

/* At most size of pattern times size of text steps. */
bool pattern_matches(struct slice pattern, struct slice text);

/* The text is in lower case, the pattern in any. */
bool pattern_matches_folded(struct slice pattern, struct slice text);

/* What every match begins with: the bytes before the first special one. */
struct slice pattern_prefix(struct slice pattern);

/* The lowest key above all that begin with the prefix, written over it; returns its size, 0: there is
 * none. */
size_t prefix_end(uint8_t *prefix, size_t size);

#endif
