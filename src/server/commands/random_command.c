/*
 * random_command.c - RANDOMKEY: each key about as often as any other, however the keys are spread, by reading a
 * bounded number of them.
 *
 * A table of up to FEW_KEYS is read, and each of its keys is as likely. Of a larger one the census knows marks,
 * the same number of keys apart: a random one is chosen, and one of the keys from there to the next, all of
 * which are read. So a key is as likely as any other as long as the marks are where the keys are: those that
 * came between two marks since the last count share the chance of the keys that were there. A table that was
 * not counted yet, and a place that has grown out of all proportion, are sampled (sample.h).
 */
#include <stdlib.h>

#include "server/census.h"
#include "server/sample.h"

enum {
    FEW_KEYS = 1024,
    READ_APART = 4, /* a place that has grown is read up to so many times its size, and FEW_KEYS */
    TRIES = 8,      /* of a place that is empty, or whose key went */
};

static const uint64_t FIRST_PATIENCE_NS = 20 * RT_NS_PER_MS; /* for the first count */
static const uint64_t RECOUNT_NS = 10 * RT_NS_PER_S;         /* older numbers are renewed */

/* One of the keys that were read. */
struct pick {
    uint8_t key[KEYSPACE_KEY_MAX];
    size_t size;
    uint64_t read, limit; /* keys, expired ones as well */
    uint64_t seen;        /* that have not expired; 0: nothing was picked */
    bool all;             /* the range had no more */
    bool sampled;         /* it is any key of the table, as good as can be told */
};

static bool pick_pair(void *context, struct slice key, struct slice stored)
{
    struct pick *pick = context;
    struct value value;
    pick->read++;
    if (value_read(stored, &value) && value_expired(&value))
        return pick->read < pick->limit;
    if (rt_random() % ++pick->seen == 0) {
        if (key.size > 0)
            memcpy(pick->key, key.data, key.size);
        pick->size = key.size;
    }
    return pick->read < pick->limit;
}

static enum pando_status pick_co(struct store_table *table, struct store_range range,
                                 uint64_t limit, struct pick *pick)
{
    range.values = STORE_SCAN_GLANCE;
    range.limit = limit;
    pick->read = pick->seen = 0;
    pick->limit = limit;
    enum pando_status status = store_scan_co(table, &range, pick_pair, pick);
    pick->all = pick->read < limit;
    return status;
}

/* Any key of a range, which may have very many. *keys: about how many. */
static enum pando_status pick_sample_co(struct store_table *table, struct store_range range,
                                        struct pick *pick, uint64_t *keys)
{
    struct sample *sample = malloc(sizeof(*sample));
    enum pando_status status = sample == NULL ? PANDO_NO_MEMORY : sample_co(table, range, sample);
    if (status == PANDO_OK && sample->keys > 0) {
        memcpy(pick->key, sample->key, sample->size);
        pick->size = sample->size;
        pick->seen = 1;
        *keys = (uint64_t)sample->keys + 1;
    }
    free(sample);
    return status;
}

/* Anywhere among the keys of a large table. */
static enum pando_status pick_far_co(struct command_call *call, int which, struct pick *pick)
{
    struct census_place *place = malloc(sizeof(*place));
    struct store_table *table = call->thread->databases[call->client->database].tables[which];
    enum pando_status status = place == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    pick->seen = 0;
    for (int i = 0; i < TRIES && status == PANDO_OK && pick->seen == 0; i++) {
        if (!census_place_of(call->thread->server->census, call->client->database, which, place))
            break;
        struct store_range range = {.low = slice_of(place->low, place->low_size),
                                    .high = slice_of(place->high, place->high_size),
                                    .no_high = place->no_high};
        uint64_t keys;
        status = pick_co(table, range, (uint64_t)READ_APART * place->apart + FEW_KEYS, pick);
        if (status == PANDO_OK && !pick->all)
            status = pick_sample_co(table, range, pick, &keys);
    }
    free(place);
    return status;
}

/* Counts anew what was counted long ago. Who begins the first count waits for it; who finds it begun does
 * not. */
static void freshen_co(struct server *server, bool counted)
{
    struct census *census = server->census;
    rt_latch_lock(&census->latch);
    uint64_t counted_ns = census->counted_ns;
    rt_latch_unlock(&census->latch);
    if (!counted &&
        atomic_load(&census->asked[CENSUS_KEYS]) == atomic_load(&census->answered[CENSUS_KEYS]))
        census_ask_co(server, CENSUS_KEYS, FIRST_PATIENCE_NS);
    else if (counted && rt_now_ns() - counted_ns > RECOUNT_NS)
        census_ask_co(server, CENSUS_KEYS, 0);
}

/* How many keys a table has. Of one with few keys, or that was not counted since it had few, one is picked. */
static enum pando_status weigh_co(struct command_call *call, int which, struct pick *pick,
                                  uint64_t *weight)
{
    unsigned number = call->client->database;
    struct server *server = call->thread->server;
    struct store_table *table = call->thread->databases[number].tables[which];
    uint64_t counted = census_keys_of(server->census, number, which);

    pick->all = pick->sampled = false;
    pick->seen = 0;
    *weight = 0;
    if (table == NULL) /* of a database that is not there */
        return PANDO_OK;
    if (counted > FEW_KEYS) {
        freshen_co(server, true);
        *weight = counted;
        return PANDO_OK;
    }
    const struct store_range whole = {.no_high = true};
    enum pando_status status = pick_co(table, whole, FEW_KEYS, pick);
    *weight = pick->seen;
    if (status != PANDO_OK || pick->all)
        return status;
    freshen_co(server, false);
    counted = census_keys_of(server->census, number, which);
    if (counted > FEW_KEYS) {
        *weight = counted;
        return PANDO_OK;
    }
    pick->sampled = true;
    return pick_sample_co(table, whole, pick, weight);
}

/* Weighs the tables by how many keys they have, and picks from one of them. NULL: there are none. STALE: again. */
static enum pando_status random_co(struct command_call *call, struct pick picks[2],
                                   const struct pick **out)
{
    uint64_t weight[2] = {0};
    enum pando_status status = weigh_co(call, 0, &picks[0], &weight[0]);
    *out = NULL;
    if (status == PANDO_OK)
        status = weigh_co(call, 1, &picks[1], &weight[1]);
    if (status != PANDO_OK || weight[0] + weight[1] == 0)
        return status;
    int which = rt_random() % (weight[0] + weight[1]) >= weight[0];
    struct pick *pick = &picks[which];
    if (!pick->all && !pick->sampled) {
        struct pick *far = calloc(1, sizeof(*far));
        if (far == NULL)
            return PANDO_NO_MEMORY;
        status = pick_far_co(call, which, far);
        if (far->seen > 0)
            *pick = *far;
        free(far);
    }
    if (status == PANDO_OK && pick->seen == 0) { /* there are no keys any more where they were */
        census_forget(call->thread->server->census, call->client->database);
        return PANDO_STALE;
    }
    *out = pick;
    return status;
}

void command_randomkey_co(struct command_call *call)
{
    struct pick *picks = calloc(2, sizeof(*picks));
    const struct pick *pick = NULL;
    struct glance glance;
    enum pando_status status = picks == NULL ? PANDO_NO_MEMORY : PANDO_OK;
    bool there = false;

    for (int i = 0; i < TRIES && status == PANDO_OK && !there; i++) {
        status = random_co(call, picks, &pick);
        if (status == PANDO_OK && pick == NULL)
            break;
        if (status == PANDO_OK) {
            struct slice key = slice_of(pick->key, pick->size);
            there = keyspace_glance_co(keyspace_table(call, key), key, &glance, &status);
        }
        status = status == PANDO_NOT_FOUND || status == PANDO_STALE ? PANDO_OK : status;
    }
    if (status != PANDO_OK)
        reply_failure(call->reply, status);
    else if (there)
        reply_bulk(call->reply, slice_of(pick->key, pick->size));
    else
        reply_null(call->reply);
    free(picks);
}
