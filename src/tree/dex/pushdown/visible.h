/*
 * visible.h - which of the pages that this process wrote a memory node's CPU is known to see.
 *
 * A WRITE that has completed is in the memory node's memory for every READ, but not yet for its CPU: that
 * sees it after an atomic of its own, or after a call behind it on the same connection
 * (rule cpu-visibility). Such an atomic (a barrier) makes a call take twice as long, and one makes
 * all earlier WRITEs visible. So barriers are numbered when they begin; a page is stamped with the
 * number of the last that had begun when its WRITE had completed; and it is visible once one with a
 * higher number has ended.
 *
 * Stamps are found by a hash of the address: pages that share one are held to be as young as the youngest.
 * Any thread. A page's stamp is set before anybody else can come to the page.
 */
#ifndef TREE_DEX_PUSHDOWN_VISIBLE_H
#define TREE_DEX_PUSHDOWN_VISIBLE_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "fabric/fabric.h"

enum { VISIBLE_BANKS = 64, VISIBLE_STAMPS = 1 << 14 };

struct visible {
    struct visible_bank {
        /* Numbers of barriers; 0: none yet. A line for each bank: every barrier writes there. */
        alignas(64) _Atomic uint64_t begun;
        _Atomic uint64_t ended;
        _Atomic uint64_t floor; /* the stamp that every page has at least */
        _Atomic uint64_t due_ns;
    } banks[VISIBLE_BANKS];
    _Atomic uint64_t stamps[VISIBLE_STAMPS];
};

/* A WRITE of the page has completed. */
void visible_wrote(struct visible *visible, fabric_address page);

/* Others may have written pages: none is known to be visible. */
void visible_forget(struct visible *visible);

/* Whether a call may do without a barrier. */
bool visible_is(const struct visible *visible, fabric_address page);

/* The number of a barrier that is sent after this; and that it has ended. */
uint64_t visible_begin(struct visible *visible, uint16_t bank);
void visible_ended(struct visible *visible, uint16_t bank, uint64_t number);

/* Whether it is time for a barrier; says so to one of those who ask. */
bool visible_due(struct visible *visible, uint16_t bank, uint64_t now_ns);

#endif
