/*
 * The judge of histories judged: by hand-made histories, good and bad, and by comparing its
 * verdicts on many small random ones with those of a search that tries every order.
 */
#include "check/history.h"

#include <stdbool.h>

#include "base/prng.h"
#include "lib/check.h"

enum { TEXT_BYTES = 4096, SMALL_MAX = 7 };

static char text[TEXT_BYTES];

static struct history_op op(enum history_kind kind, uint64_t call, uint64_t done, uint64_t seen,
                            uint64_t value)
{
    return (struct history_op){
        .kind = kind, .call = call, .done = done, .seen = seen, .value = value};
}

static struct history_op with(struct history_op it, enum history_outcome outcome)
{
    it.outcome = outcome;
    return it;
}

static enum history_verdict judge(const struct history_op *ops, size_t count)
{
    struct history *history = history_create(1);
    CHECK(history != NULL);
    for (size_t i = 0; i < count; i++)
        CHECK_OK(history_add(history, &ops[i]));
    enum history_verdict verdict = history_check(history, 0, text, sizeof(text));
    CHECK((verdict == HISTORY_GOOD) == (text[0] == '\0'));
    history_destroy(history);
    return verdict;
}

#define GOOD(...)                                                                                  \
    expect(HISTORY_GOOD, __LINE__, (struct history_op[]){__VA_ARGS__},                             \
           sizeof((struct history_op[]){__VA_ARGS__}) / sizeof(struct history_op))
#define BAD(...)                                                                                   \
    expect(HISTORY_BAD, __LINE__, (struct history_op[]){__VA_ARGS__},                              \
           sizeof((struct history_op[]){__VA_ARGS__}) / sizeof(struct history_op))

static void expect(enum history_verdict verdict, int line, const struct history_op *ops,
                   size_t count)
{
    enum history_verdict found = judge(ops, count);
    if (found != verdict)
        CHECK_FAIL("line %d: verdict %d, not %d: %s", line, found, verdict, text);
}

#define GET(call, done, seen)           op(HISTORY_GET, call, done, seen, 0)
#define PUT(call, done, value)          op(HISTORY_PUT, call, done, 0, value)
#define INSERT(call, done, value)       op(HISTORY_INSERT, call, done, 0, value)
#define UPDATE(call, done, value)       op(HISTORY_UPDATE, call, done, 0, value)
#define DELETE(call, done)              op(HISTORY_DELETE, call, done, 0, 0)
#define MODIFY(call, done, seen, value) op(HISTORY_MODIFY, call, done, seen, value)
#define REFUSED(op)                     with(op, HISTORY_REFUSED)
#define UNKNOWN(op)                     with(op, HISTORY_UNKNOWN)

static void test_one_after_the_other(void)
{
    GOOD(GET(1, 2, 0));
    GOOD(PUT(1, 2, 7), GET(3, 4, 7), DELETE(5, 6), GET(7, 8, 0));
    BAD(GET(1, 2, 7));
    BAD(PUT(1, 2, 7), GET(3, 4, 0));
    BAD(PUT(1, 2, 7), PUT(3, 4, 8), GET(5, 6, 7)); /* stale */
    BAD(GET(1, 2, 7), PUT(3, 4, 7));               /* from the future */
    BAD(PUT(1, 2, 7), DELETE(3, 4), GET(5, 6, 7));
}

static void test_at_the_same_time(void)
{
    GOOD(PUT(1, 10, 7), GET(2, 3, 0), GET(4, 5, 7));
    BAD(PUT(1, 10, 7), GET(2, 3, 7), GET(4, 5, 0)); /* seen, then not */
    GOOD(PUT(1, 10, 7), PUT(1, 10, 8), GET(11, 12, 7));
    GOOD(PUT(1, 10, 7), PUT(1, 10, 8), GET(11, 12, 8));
    BAD(PUT(1, 10, 7), PUT(1, 10, 8), GET(11, 12, 7), GET(13, 14, 8));
    BAD(PUT(1, 10, 7), PUT(1, 10, 8), GET(2, 3, 7), GET(4, 5, 8), GET(6, 7, 7));
    /* A return and a call at the same time leave either order open. */
    GOOD(PUT(1, 2, 7), GET(2, 3, 0));
}

static void test_conditions(void)
{
    GOOD(INSERT(1, 2, 7), REFUSED(INSERT(3, 4, 8)), GET(5, 6, 7));
    BAD(INSERT(1, 2, 7), INSERT(3, 4, 8));
    BAD(INSERT(1, 9, 7), INSERT(2, 8, 8)); /* both at once */
    GOOD(INSERT(1, 9, 7), REFUSED(INSERT(2, 8, 8)));
    BAD(REFUSED(INSERT(1, 2, 7)));
    GOOD(REFUSED(UPDATE(1, 2, 7)), PUT(3, 4, 8), UPDATE(5, 6, 9), GET(7, 8, 9));
    BAD(UPDATE(1, 2, 7));
    GOOD(REFUSED(DELETE(1, 2)), PUT(3, 4, 7), DELETE(5, 6), REFUSED(DELETE(7, 8)));
    BAD(PUT(1, 2, 7), DELETE(3, 9), DELETE(4, 8));
    BAD(PUT(1, 2, 7), REFUSED(DELETE(3, 4)));
}

static void test_modify(void)
{
    GOOD(MODIFY(1, 9, 0, 1), MODIFY(2, 8, 2, 3), MODIFY(3, 7, 1, 2), GET(10, 11, 3));
    BAD(MODIFY(1, 9, 0, 1), MODIFY(2, 8, 0, 2)); /* a lost update */
    BAD(PUT(1, 2, 5), MODIFY(3, 9, 5, 6), MODIFY(4, 8, 5, 7));
    GOOD(PUT(1, 2, 5), MODIFY(3, 4, 5, 0), GET(5, 6, 0));
    GOOD(PUT(1, 2, 5), MODIFY(3, 4, 5, 5), GET(5, 6, 5));
    BAD(PUT(1, 2, 5), PUT(3, 4, 6), MODIFY(5, 6, 5, 5));
}

static void test_unknown(void)
{
    GOOD(UNKNOWN(PUT(1, 2, 7)), GET(3, 4, 0), GET(5, 6, 7)); /* it came late */
    GOOD(UNKNOWN(PUT(1, 2, 7)), GET(3, 4, 0), GET(5, 6, 0)); /* never */
    BAD(UNKNOWN(PUT(1, 2, 7)), GET(3, 4, 7), GET(5, 6, 0));
    BAD(GET(1, 2, 7), UNKNOWN(PUT(3, 4, 7)));                             /* before its call */
    BAD(UNKNOWN(PUT(1, 2, 7)), GET(3, 4, 7), PUT(5, 6, 8), GET(7, 8, 7)); /* twice */
    /* Each delete needs something to delete: two unknown puts will do, one will not. */
    GOOD(UNKNOWN(PUT(1, 2, 7)), UNKNOWN(PUT(1, 2, 8)), DELETE(3, 4), DELETE(5, 6));
    BAD(UNKNOWN(PUT(1, 2, 7)), DELETE(3, 4), DELETE(5, 6));
    GOOD(PUT(1, 2, 7), UNKNOWN(DELETE(3, 4)), INSERT(5, 6, 8), GET(7, 8, 8));
    BAD(PUT(1, 2, 7), UNKNOWN(DELETE(3, 4)), INSERT(5, 6, 8), INSERT(7, 8, 9));
    GOOD(UNKNOWN(MODIFY(1, 2, 0, 7)), UNKNOWN(MODIFY(1, 2, 7, 8)), GET(3, 4, 8));
    BAD(UNKNOWN(MODIFY(1, 2, 0, 7)), UNKNOWN(MODIFY(1, 2, 6, 8)), GET(3, 4, 8));
    GOOD(UNKNOWN(GET(1, 2, 99)));
}

static void test_words(void)
{
    BAD(PUT(1, 2, 0x70008), PUT(3, 4, 0x80008), GET(5, 6, 0x70008));
    CHECK(strstr(text, "get saw 70008") != NULL && strstr(text, "put 80008") != NULL);
    CHECK(strstr(text, "key 0") != NULL);
}

/* ---- scans ----------------------------------------------------------------------------------- */

enum { KEYS = 8 };

/* Keys 0 to 7 with the values 100 to 107, all written before time 10. */
static struct history *eight_keys(void)
{
    struct history *history = history_create(KEYS);
    CHECK(history != NULL);
    for (uint32_t key = 0; key < KEYS; key++) {
        struct history_op put = PUT(1, 2, 100 + key);
        put.key = key;
        CHECK_OK(history_add(history, &put));
    }
    return history;
}

/* Keys as a text of digits; '!' after one makes its value wrong. */
static enum history_verdict scan(struct history *history, struct history_scan scan,
                                 const char *keys, enum pando_status expected)
{
    struct history_pair pairs[32];
    scan.pairs = pairs;
    scan.call = 20;
    scan.done = 90;
    for (; *keys != '\0'; keys++) {
        if (*keys == '!') {
            pairs[scan.count - 1].value += 1000;
            continue;
        }
        uint32_t key = (uint32_t)(*keys - '0');
        pairs[scan.count] =
            (struct history_pair){.key = key, .value = 100 + key, .time = 30 + scan.count};
        scan.count++;
    }
    CHECK_STATUS(history_add_scan(history, &scan, text, sizeof(text)), expected);
    enum history_verdict verdict = history_check(history, 0, text, sizeof(text));
    history_destroy(history);
    return verdict;
}

static void test_scans(void)
{
    struct history_scan all = {.end = KEYS, .complete = true};
    struct history_scan back = {.end = KEYS, .complete = true, .reverse = true};
    struct history_scan three = {.first = 2, .end = KEYS, .complete = true, .limit = 3};
    struct history_scan cut = {.first = 2, .end = KEYS};

    CHECK(scan(eight_keys(), all, "01234567", PANDO_OK) == HISTORY_GOOD);
    CHECK(scan(eight_keys(), back, "76543210", PANDO_OK) == HISTORY_GOOD);
    CHECK(scan(eight_keys(), all, "0124567", PANDO_OK) == HISTORY_BAD);
    CHECK(scan(eight_keys(), all, "0123456", PANDO_OK) == HISTORY_BAD);
    CHECK(scan(eight_keys(), all, "1234567", PANDO_OK) == HISTORY_BAD);
    CHECK(scan(eight_keys(), back, "7654321", PANDO_OK) == HISTORY_BAD);
    CHECK(scan(eight_keys(), back, "6543210", PANDO_OK) == HISTORY_BAD);
    CHECK(scan(eight_keys(), all, "0123!4567", PANDO_OK) == HISTORY_BAD);
    CHECK(scan(eight_keys(), three, "234", PANDO_OK) == HISTORY_GOOD);
    CHECK(scan(eight_keys(), three, "235", PANDO_OK) == HISTORY_BAD);
    CHECK(scan(eight_keys(), three, "23", PANDO_OK) == HISTORY_BAD);
    /* One that broke off is judged up to where it came. */
    CHECK(scan(eight_keys(), cut, "234", PANDO_OK) == HISTORY_GOOD);
    CHECK(scan(eight_keys(), cut, "", PANDO_OK) == HISTORY_GOOD);
    CHECK(scan(eight_keys(), cut, "24", PANDO_OK) == HISTORY_BAD);
    CHECK(scan(eight_keys(), all, "01223", PANDO_INVALID) == HISTORY_GOOD);
    CHECK(scan(eight_keys(), all, "01324", PANDO_INVALID) == HISTORY_GOOD);
    CHECK(scan(eight_keys(), back, "7656", PANDO_INVALID) == HISTORY_GOOD);
    CHECK(scan(eight_keys(), three, "123", PANDO_INVALID) == HISTORY_GOOD);
    CHECK(scan(eight_keys(), three, "2345", PANDO_INVALID) == HISTORY_GOOD);
}

/* Key 3 is changed while the scan runs. */
static enum history_verdict scan_during(struct history_op change, const char *keys)
{
    struct history *history = eight_keys();
    struct history_scan all = {.end = KEYS, .complete = true};
    change.key = 3;
    CHECK_OK(history_add(history, &change));
    return scan(history, all, keys, PANDO_OK);
}

static void test_scans_during_writes(void)
{
    CHECK(scan_during(DELETE(25, 28), "01234567") == HISTORY_GOOD);
    CHECK(scan_during(DELETE(25, 28), "0124567") == HISTORY_GOOD);
    CHECK(scan_during(DELETE(10, 11), "01234567") == HISTORY_BAD);
    CHECK(scan_during(DELETE(95, 99), "0124567") == HISTORY_BAD);
    /* Overwritten, it is still there. */
    CHECK(scan_during(PUT(25, 28, 999), "01234567") == HISTORY_GOOD);
    CHECK(scan_during(PUT(25, 28, 999), "0124567") == HISTORY_BAD);
    CHECK(scan_during(UNKNOWN(DELETE(5, 6)), "0124567") == HISTORY_GOOD);
}

/* ---- against a search that tries everything ---------------------------------------------------
 */

static bool allowed(const struct history_op *it, uint64_t *value)
{
    bool refused = it->outcome == HISTORY_REFUSED, present = *value != 0;
    switch (it->kind) {
    case HISTORY_GET:
        return *value == it->seen;
    case HISTORY_MODIFY:
        if (*value != it->seen)
            return false;
        *value = it->value;
        return true;
    case HISTORY_INSERT:
        if (present != refused)
            return false;
        break;
    case HISTORY_UPDATE:
    case HISTORY_DELETE:
        if (present == refused)
            return false;
        break;
    case HISTORY_PUT:
        break;
    }
    if (!refused)
        *value = it->kind == HISTORY_DELETE ? 0 : it->value;
    return true;
}

static bool any_order(const struct history_op *ops, size_t count, unsigned used, uint64_t value)
{
    bool over = true;
    for (size_t i = 0; i < count; i++)
        over &= (used >> i & 1) || ops[i].outcome == HISTORY_UNKNOWN;
    if (over)
        return true;
    for (size_t i = 0; i < count; i++) {
        uint64_t next = value;
        bool ready = !(used >> i & 1);
        for (size_t j = 0; j < count && ready; j++)
            ready =
                (used >> j & 1) || ops[j].outcome == HISTORY_UNKNOWN || ops[j].done >= ops[i].call;
        if (ready && allowed(&ops[i], &next) && any_order(ops, count, used | 1u << i, next))
            return true;
    }
    return false;
}

static struct history_op random_op(struct prng *prng, unsigned i)
{
    struct history_op it = {.kind = (enum history_kind)prng_below(prng, HISTORY_MODIFY + 1)};
    it.call = 1 + prng_below(prng, 20);
    it.done = it.call + prng_below(prng, 12);
    if (it.kind == HISTORY_GET || it.kind == HISTORY_MODIFY)
        it.seen = prng_below(prng, SMALL_MAX + 1);
    if (it.kind != HISTORY_GET && it.kind != HISTORY_DELETE)
        it.value = i + 1;
    if (it.kind == HISTORY_MODIFY && prng_below(prng, 4) == 0)
        it.value = prng_below(prng, 2) == 0 ? 0 : it.seen;
    bool conditional =
        it.kind == HISTORY_INSERT || it.kind == HISTORY_UPDATE || it.kind == HISTORY_DELETE;
    if (conditional && prng_below(prng, 3) == 0)
        it.outcome = HISTORY_REFUSED;
    if (prng_below(prng, 4) == 0)
        it.outcome = HISTORY_UNKNOWN;
    return it;
}

static void test_against_all_orders(void)
{
    struct prng prng;
    unsigned good = 0, bad = 0;
    prng_seed(&prng, 5);
    for (unsigned round = 0; round < 200000; round++) {
        struct history_op ops[SMALL_MAX];
        size_t count = 1 + prng_below(&prng, SMALL_MAX);
        for (unsigned i = 0; i < count; i++)
            ops[i] = random_op(&prng, i);
        bool possible = any_order(ops, count, 0, 0);
        good += possible;
        bad += !possible;
        if ((judge(ops, count) == HISTORY_GOOD) != possible)
            CHECK_FAIL("round %u: an order is %s: %s", round, possible ? "possible" : "impossible",
                       text);
    }
    CHECK(good > 20000 && bad > 20000);
    printf("small histories: %u good, %u bad\n", good, bad);
}

/* Many writers at once and many dead ones: it must not take for ever, nor give up. */
static void test_large(void)
{
    struct prng prng;
    uint64_t time = 1, value = 1;
    static struct history_op ops[600];
    size_t count = 0;
    prng_seed(&prng, 6);
    for (int dead = 0; dead < 12; dead++) {
        ops[count++] = UNKNOWN(PUT(time, time, 0));
        ops[count - 1].value = value++;
        ops[count++] = UNKNOWN(DELETE(time, time));
    }
    /* Rounds of eight overlapping puts, of which the last is read. */
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 8; i++)
            ops[count++] = PUT(time + prng_below(&prng, 5), time + 10, value++);
        ops[count++] = GET(time + 11, time + 12, value - 1 - prng_below(&prng, 8));
        time += 20;
    }
    CHECK(judge(ops, count) == HISTORY_GOOD);
    ops[count++] = GET(time, time + 1, 13); /* long gone */
    CHECK(judge(ops, count) == HISTORY_BAD);
}

static void test_gives_up(void)
{
    struct history *history = history_create(1);
    CHECK(history != NULL);
    for (uint64_t i = 0; i < 20; i++) {
        struct history_op put = PUT(1, 100, i + 1), get = GET(1, 100, i + 1);
        CHECK_OK(history_add(history, &put));
        CHECK_OK(history_add(history, &get));
    }
    struct history_op never = GET(1, 100, 999);
    CHECK_OK(history_add(history, &never));
    CHECK(history_check(history, 1000, text, sizeof(text)) == HISTORY_UNDECIDED);
    CHECK(strstr(text, "UNDECIDED") != NULL);
    history_destroy(history);
}

int main(void)
{
    test_one_after_the_other();
    test_at_the_same_time();
    test_conditions();
    test_modify();
    test_unknown();
    test_words();
    test_scans();
    test_scans_during_writes();
    test_against_all_orders();
    test_large();
    test_gives_up();
    return 0;
}
