/*
 * guesses.c - per address, when what it owes is paid: each wrong guess moves that on by
 * GUESSES_EACH_MS, and a guess is due when no more is owed than GUESSES_AT_ONCE of them.
 */
#include "server/net/guesses.h"

#include <stdlib.h>
#include <string.h>

#include "base/prng.h"
#include "fabric/stream/secret.h"
#include "rt/rt.h"

enum { SETS = 1024, WAYS = 4, MARKS = 4 };

static const uint64_t EACH_NS = GUESSES_EACH_MS * RT_NS_PER_MS;
static const uint64_t CREDIT_NS = GUESSES_AT_ONCE * GUESSES_EACH_MS * RT_NS_PER_MS;
static const uint64_t WAIT_NS = GUESSES_WAIT_MS * RT_NS_PER_MS;

enum account { NEW, REPEATED, ACCOUNTS };

struct guesser {
    uint64_t origin;
    uint64_t paid_ns[ACCOUNTS]; /* both passed: nobody is here */
    uint64_t marks[MARKS];      /* of what was wrong, oldest first */
};

struct guesses {
    struct rt_latch latch;
    uint64_t key;         /* nobody outside knows which addresses share a set */
    struct secret secret; /* of the marks, which are not worth stealing */
    struct guesser sets[SETS][WAYS];
};

struct guesses *guesses_create(void)
{
    struct guesses *guesses = calloc(1, sizeof(*guesses));
    if (guesses == NULL)
        return NULL;
    guesses->key = rt_entropy();
    guesses->secret.size = SECRET_PROOF_BYTES;
    if (secret_nonce(guesses->secret.bytes, guesses->secret.size) == PANDO_OK)
        return guesses;
    free(guesses);
    return NULL;
}

void guesses_destroy(struct guesses *guesses)
{
    free(guesses);
}

/* ---- with the latch held --------------------------------------------------------------------- */

static struct guesser *set_of(struct guesses *guesses, uint64_t origin)
{
    return guesses->sets[hash_u64(origin ^ guesses->key) % SETS];
}

static uint64_t last_ns(const struct guesser *guesser)
{
    return guesser->paid_ns[NEW] > guesser->paid_ns[REPEATED] ? guesser->paid_ns[NEW]
                                                              : guesser->paid_ns[REPEATED];
}

/* NULL: it has not failed lately. */
static struct guesser *find(struct guesses *guesses, uint64_t origin, uint64_t now_ns)
{
    struct guesser *set = set_of(guesses, origin);
    for (int i = 0; i < WAYS; i++) {
        if (set[i].origin == origin && last_ns(&set[i]) > now_ns)
            return &set[i];
    }
    return NULL;
}

static struct guesser *make(struct guesses *guesses, uint64_t origin)
{
    struct guesser *set = set_of(guesses, origin), *least = &set[0];
    for (int i = 1; i < WAYS; i++)
        least = last_ns(&set[i]) < last_ns(least) ? &set[i] : least;
    *least = (struct guesser){.origin = origin};
    return least;
}

static uint64_t owed_ns(const struct guesser *guesser, enum account account, uint64_t now_ns)
{
    uint64_t paid_ns = guesser->paid_ns[account];
    return paid_ns > now_ns ? paid_ns - now_ns : 0;
}

static void charge(struct guesser *guesser, enum account account, uint64_t now_ns)
{
    guesser->paid_ns[account] = now_ns + owed_ns(guesser, account, now_ns) + EACH_NS;
}

static bool tried(const struct guesser *guesser, uint64_t mark)
{
    for (int i = 0; i < MARKS; i++) {
        if (guesser->marks[i] == mark)
            return true;
    }
    return false;
}

static void remember(struct guesser *guesser, uint64_t mark)
{
    memmove(guesser->marks, guesser->marks + 1, sizeof(guesser->marks[0]) * (MARKS - 1));
    guesser->marks[MARKS - 1] = mark;
}

/* ---- for others ------------------------------------------------------------------------------ */

static void admit(struct guesses *guesses, struct guess *guess, uint64_t now_ns)
{
    struct guesser *guesser = find(guesses, guess->origin, now_ns);
    guess->due_ns = now_ns;
    if (guesser == NULL)
        return;
    enum account account = tried(guesser, guess->mark) ? REPEATED : NEW;
    uint64_t owed = owed_ns(guesser, account, now_ns);
    uint64_t wait_ns = owed > CREDIT_NS ? owed - CREDIT_NS : 0;
    guess->due_ns = now_ns + (wait_ns > WAIT_NS ? WAIT_NS : wait_ns);
    if (wait_ns > WAIT_NS) {
        guess->refused = account == NEW;
        return;
    }
    charge(guesser, account, now_ns);
    guess->charged = account == NEW;
}

enum pando_status guesses_begin(struct guesses *guesses, uint64_t origin, struct slice user,
                                struct slice password, uint64_t now_ns, struct guess *out)
{
    const struct slice parts[] = {user, password};
    uint8_t proof[SECRET_PROOF_BYTES];
    *out = (struct guess){.origin = origin};
    enum pando_status status = secret_proof(&guesses->secret, parts, 2, proof);
    if (status != PANDO_OK)
        return status;
    memcpy(&out->mark, proof, sizeof(out->mark));
    rt_latch_lock(&guesses->latch);
    admit(guesses, out, now_ns);
    rt_latch_unlock(&guesses->latch);
    return PANDO_OK;
}

void guesses_end(struct guesses *guesses, const struct guess *guess, bool right, uint64_t now_ns)
{
    if (guess->refused)
        return;
    rt_latch_lock(&guesses->latch);
    struct guesser *guesser = find(guesses, guess->origin, now_ns);
    if (right && guesser != NULL && guess->charged) {
        guesser->paid_ns[NEW] -= EACH_NS;
    } else if (!right) {
        if (guesser == NULL)
            guesser = make(guesses, guess->origin);
        if (!tried(guesser, guess->mark)) {
            if (!guess->charged)
                charge(guesser, NEW, now_ns);
            remember(guesser, guess->mark);
        }
    }
    rt_latch_unlock(&guesses->latch);
}
