/*
 * Wrong passwords, in a time of the test's own: an address has a few at once and then one every
 * GUESSES_EACH_MS, however many connections it makes; others, and who repeats himself, cost it nothing.
 */
#include <stdio.h>

#include "lib/check.h"
#include "rt/rt.h"
#include "server/net/guesses.h"

enum { HERE = 1, ELSEWHERE = 2, SECONDS = 60, CONNECTIONS = 50 };

static const uint64_t BEGIN_NS = 1000 * RT_NS_PER_S;
static const uint64_t EACH_NS = GUESSES_EACH_MS * RT_NS_PER_MS;

static struct guess begin(struct guesses *guesses, uint64_t origin, const char *password,
                          uint64_t now_ns)
{
    struct guess guess;
    CHECK_OK(guesses_begin(guesses, origin, slice_of_text("default"), slice_of_text(password),
                           now_ns, &guess));
    CHECK(guess.due_ns >= now_ns);
    return guess;
}

/* How many guesses of so many connections are looked at in a minute; each goes on when it is answered. */
static unsigned minute(struct guesses *guesses, uint64_t origin, bool repeats)
{
    struct guess open[CONNECTIONS];
    uint64_t now_ns = BEGIN_NS;
    unsigned looked_at = 0, made = 0;
    char password[32];

    for (unsigned i = 0; i < CONNECTIONS; i++) {
        snprintf(password, sizeof(password), "guess %u", repeats ? 0 : made++);
        open[i] = begin(guesses, origin, password, now_ns);
    }
    while (now_ns < BEGIN_NS + SECONDS * RT_NS_PER_S) {
        unsigned next = 0;
        for (unsigned i = 1; i < CONNECTIONS; i++)
            next = open[i].due_ns < open[next].due_ns ? i : next;
        now_ns = open[next].due_ns > now_ns ? open[next].due_ns : now_ns;
        looked_at += !open[next].refused;
        guesses_end(guesses, &open[next], false, now_ns);
        snprintf(password, sizeof(password), "guess %u", repeats ? 0 : made++);
        open[next] = begin(guesses, origin, password, now_ns);
    }
    return looked_at;
}

static void guessing(void)
{
    struct guesses *guesses = guesses_create();
    CHECK(guesses != NULL);
    unsigned looked_at = minute(guesses, HERE, false);
    unsigned fair = SECONDS * 1000 / GUESSES_EACH_MS;
    if (looked_at < fair / 2 || looked_at > fair + 2 * GUESSES_AT_ONCE + CONNECTIONS)
        CHECK_FAIL("%u guesses in %d s", looked_at, SECONDS);

    /* Somebody else does not wait. */
    uint64_t now_ns = BEGIN_NS + SECONDS * RT_NS_PER_S;
    CHECK(begin(guesses, ELSEWHERE, "guess", now_ns).due_ns == now_ns);
    /* A right one of that address waits with the others, and after a while not any more. */
    struct guess late = begin(guesses, HERE, "right", now_ns);
    CHECK(late.due_ns > now_ns && late.due_ns <= now_ns + GUESSES_WAIT_MS * RT_NS_PER_MS);
    now_ns += 10 * RT_NS_PER_S;
    late = begin(guesses, HERE, "right", now_ns);
    CHECK(late.due_ns == now_ns && !late.refused);
    guesses_destroy(guesses);
}

static void repeating(void)
{
    struct guesses *guesses = guesses_create();
    CHECK(guesses != NULL);
    unsigned looked_at = minute(guesses, HERE, true);
    /* They are slowed down, too, but never turned away: the password may have become right. */
    unsigned fair = SECONDS * 1000 / GUESSES_WAIT_MS * CONNECTIONS;
    if (looked_at > fair + SECONDS * 1000 / GUESSES_EACH_MS + 2 * GUESSES_AT_ONCE + CONNECTIONS)
        CHECK_FAIL("%u of the same in %d s", looked_at, SECONDS);
    /* Who knows the right one is not held up by them. */
    uint64_t now_ns = BEGIN_NS + SECONDS * RT_NS_PER_S;
    CHECK(begin(guesses, HERE, "right", now_ns).due_ns == now_ns);
    guesses_destroy(guesses);
}

static void right_ones(void)
{
    struct guesses *guesses = guesses_create();
    CHECK(guesses != NULL);
    for (unsigned i = 0; i < 1000; i++) {
        struct guess guess = begin(guesses, HERE, "right", BEGIN_NS);
        CHECK(guess.due_ns == BEGIN_NS);
        guesses_end(guesses, &guess, true, BEGIN_NS);
        if (i % 100 != 0)
            continue;
        guess = begin(guesses, HERE, "wrong", BEGIN_NS); /* ten times, which is not many */
        guesses_end(guesses, &guess, false, BEGIN_NS);
    }
    guesses_destroy(guesses);
}

/* More addresses than the table has room for: it goes on, and those that owe most are kept. */
static void many_addresses(void)
{
    struct guesses *guesses = guesses_create();
    char password[32];
    CHECK(guesses != NULL);
    for (unsigned i = 0; i < 2 * GUESSES_AT_ONCE; i++) {
        snprintf(password, sizeof(password), "guess %u", i);
        struct guess guess = begin(guesses, HERE, password, BEGIN_NS);
        guesses_end(guesses, &guess, false, BEGIN_NS);
    }
    for (uint64_t origin = 100; origin < 100100; origin++) {
        struct guess guess = begin(guesses, origin, "guess", BEGIN_NS);
        CHECK(guess.due_ns == BEGIN_NS);
        guesses_end(guesses, &guess, false, BEGIN_NS);
    }
    CHECK(begin(guesses, HERE, "another", BEGIN_NS).due_ns > BEGIN_NS + EACH_NS);
    guesses_destroy(guesses);
}

int main(void)
{
    guessing();
    repeating();
    right_ones();
    many_addresses();
    return 0;
}
