/*
 * guesses.h - wrong passwords per address, so that nobody can try many: an address has some at once,
 * and then one every GUESSES_EACH_MS.
 *
 * Passwords that were wrong a moment ago have an account of their own: a client that is set up wrongly
 * and comes back with the same one again and again waits, too, but learns nothing, and so it keeps
 * nobody else of its address waiting.
 *
 * A table of fixed size: when it is full, the address that owes least is forgotten. Any thread.
 */
#ifndef SERVER_NET_GUESSES_H
#define SERVER_NET_GUESSES_H

#include "base/slice.h"
#include "pando/pando.h"

enum {
    GUESSES_AT_ONCE = 20,
    GUESSES_EACH_MS = 100,
    GUESSES_WAIT_MS = 2000, /* nobody waits longer; what comes beyond is not looked at */
};

struct guesses;

/* One try, from the question whether it may be looked at to what came of it. */
struct guess {
    uint64_t origin; /* socket_origin */
    uint64_t mark;   /* of user and password */
    uint64_t due_ns; /* when it may be looked at */
    bool refused;    /* not at all: too many wait; say so when it is due */
    bool charged;    /* against what the address has */
};

/* NULL: no memory. */
struct guesses *guesses_create(void);
void guesses_destroy(struct guesses *guesses);

/* Due at once for an address that has failed seldom. */
PANDO_MUST_CHECK enum pando_status guesses_begin(struct guesses *guesses, uint64_t origin,
                                                 struct slice user, struct slice password,
                                                 uint64_t now_ns, struct guess *out);
void guesses_end(struct guesses *guesses, const struct guess *guess, bool right, uint64_t now_ns);

#endif
