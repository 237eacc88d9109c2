/*
 * history.h - what clients of an ordered map did and saw, and whether a correct map could have
 * answered so: every key by itself linearizable, and scans complete, in order and without ghosts.
 *
 * Values are numbers that no two writes share; 0 is "absent". Keys are numbers too, in the order of
 * the real keys. Times are any numbers that order the calls and returns of the whole system: an
 * operation that returned at a time below another's call came before it.
 *
 * An operation whose outcome nobody was told (its client died, or got a status that does not say)
 * may have taken effect at any time after its call, or never.
 *
 * Scans are judged key by key: a returned pair is a get that saw it, a key that was passed over is
 * a get that saw nothing, both between the scan's call and the moment the scan had got that far.
 * That is the contract of engine.h, read so that a key that is overwritten during the scan is still
 * there.
 */
#ifndef CHECK_HISTORY_H
#define CHECK_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pando/pando.h"

struct history;

enum history_kind {
    HISTORY_GET,    /* saw `seen` */
    HISTORY_PUT,    /* stored `value`, whatever there was */
    HISTORY_INSERT, /* stored `value` if absent */
    HISTORY_UPDATE, /* stored `value` if present */
    HISTORY_DELETE, /* removed if present */
    HISTORY_MODIFY, /* saw `seen` and left `value`: 0 removed it, `seen` kept it */
};

enum history_outcome {
    HISTORY_DONE,
    HISTORY_REFUSED, /* insert: it is there; update, delete: it is not */
    HISTORY_UNKNOWN,
};

struct history_op {
    enum history_kind kind;
    enum history_outcome outcome;
    uint32_t key;
    uint32_t client; /* for people, as are the ns */
    uint64_t seen, value;
    uint64_t call, done;
    uint64_t call_ns, done_ns;
    bool scan; /* part of one: set here */
};

/* Keys are 0 .. keys-1. NULL when memory is gone. */
struct history *history_create(uint32_t keys);
void history_destroy(struct history *history);

/* Operations in any order. NO_MEMORY: it was not added, and no verdict is to be trusted. Reads of
 * unknown outcome say nothing and are not kept. */
PANDO_MUST_CHECK enum pando_status history_add(struct history *history,
                                               const struct history_op *op);

/* Operations added so far, those of scans among them. */
size_t history_size(const struct history *history);

/* ---- scans ----------------------------------------------------------------------------------- */

struct history_pair {
    uint32_t key;
    uint64_t value;
    uint64_t time, time_ns; /* when it was delivered */
};

struct history_scan {
    uint32_t first, end; /* the bounds: first <= key < end */
    bool reverse;
    uint64_t limit; /* 0: none */
    bool complete;  /* it came to the end of its range or limit; else it got to its last pair */
    uint32_t client;
    uint64_t call, done;
    uint64_t call_ns, done_ns;
    const struct history_pair *pairs;
    size_t count;
};

/* INVALID: out of order, a key twice, out of bounds or beyond the limit; `text` says which. The
 * rest is judged with everything else. */
PANDO_MUST_CHECK enum pando_status history_add_scan(struct history *history,
                                                    const struct history_scan *scan, char *text,
                                                    size_t text_bytes);

/* ---- judging --------------------------------------------------------------------------------- */

enum history_verdict {
    HISTORY_GOOD,
    HISTORY_BAD,
    HISTORY_UNDECIDED, /* the search for an order was given up: neither is known */
};

/* Key by key, until one is bad. Of a bad one `text` says which and shows the operations that
 * matter, as lines; of undecided ones it says how many there are. Searches at most `effort` states
 * for each key; 0 for a million. */
enum history_verdict history_check(const struct history *history, uint64_t effort, char *text,
                                   size_t text_bytes);

/* One key. */
enum history_verdict history_check_key(const struct history *history, uint32_t key,
                                       uint64_t effort);

#endif
