/*
 * search.h - finding an 8-byte key among fixed slots or separators. Several implementations of the
 * same thing; which is used was chosen before main by what this processor has.
 */
#ifndef TREE_BLINK_NODE_SEARCH_H
#define TREE_BLINK_NODE_SEARCH_H

#include <stddef.h>
#include <stdint.h>

enum { SEARCH_SLOTS_MAX = 64 };

/* Bit i is set if slot i of `count` slots (at most SEARCH_SLOTS_MAX) of slot_bytes each has that
 * key word behind its cell header. Reads all of the slots' cell headers and keys and nothing
 * outside the slots. */
uint64_t search_slots(const uint8_t *slots, uint32_t slot_bytes, uint32_t count, uint64_t key_word);

/* How many of the rising separators, 16 bytes apart, are not above the key (both as key_u64). */
uint32_t search_separators(const uint8_t *separators, uint32_t count, uint64_t key);

/* How many of the rising words are below this one. */
uint32_t search_below(const uint64_t *words, uint32_t count, uint64_t word);

/* The same of words in any order: all are looked at. */
uint32_t search_rank(const uint64_t *words, uint32_t count, uint64_t word);

/* All that this processor can run, so that tests reach them; the last one is what the functions
 * above use. */
struct search_implementation {
    const char *name;
    uint64_t (*slots)(const uint8_t *slots, uint32_t slot_bytes, uint32_t count, uint64_t key_word);
    uint32_t (*below)(const uint64_t *words, uint32_t count, uint64_t word); /* all are looked at */
};

const struct search_implementation *search_implementations(size_t *out_count);

#endif
