/*
 * checker.c - `pando check` checked: it has nothing against an engine that is correct, whatever
 * befalls it, and finds every fault that the model engine can be given. Runs no engine but the
 * model, and makes its own clusters.
 */
#include "check/check.h"
#include "engine/suite.h"

enum { GOOD_SEEDS = 40, FAULTY_SEEDS = 40 };

#define HANG "break-hang"
#define LOCK "break-lock" /* healed: a member that leaves releases what it had forgotten */

static struct check_result result;

static const struct check_options usual = {.engine = &model_engine,
                                           .nodes = 4,
                                           .memory = 2,
                                           .threads = 2,
                                           .tasks = 2,
                                           .keys = 64,
                                           .ops = 600};

static void run_seed(struct check_options options, uint64_t seed)
{
    options.seed = seed;
    check_seed(&options, &result);
    model_engine_reset();
}

static void test_finds_nothing(struct suite *suite)
{
    static const struct {
        const char *name;
        unsigned faults;
    } kinds[] = {
        {"none", CHECK_FAULTS_NONE}, {"crash", CHECK_FAULTS_CRASH}, {"all", CHECK_FAULTS_ALL}};
    struct check_options options = usual;
    (void)suite;
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t operations = 0, kills = 0;
        options.faults = kinds[i].faults;
        for (uint64_t seed = 1; seed <= GOOD_SEEDS / SUITE_SLOWDOWN; seed++) {
            run_seed(options, seed);
            if (result.violated)
                CHECK_FAIL("faults %s, seed %" PRIu64 ": %s", kinds[i].name, seed, result.text);
            CHECK_EQ_U64(result.undecided, 0);
            operations += result.operations;
            kills += result.kills;
        }
        printf("  faults %s: %" PRIu64 " operations, %" PRIu64 " kills\n", kinds[i].name,
               operations, kills);
        CHECK(kinds[i].faults == CHECK_FAULTS_NONE || kills > 0);
    }
}

static void find(struct check_options options, const char *name)
{
    for (uint64_t seed = 1; seed <= FAULTY_SEEDS; seed++) {
        run_seed(options, seed);
        if (!result.violated)
            continue;
        printf("  %s: seed %" PRIu64 ": %.*s\n", name, seed, (int)strcspn(result.text, "\n"),
               result.text);
        return;
    }
    CHECK_FAIL("%s: nothing noticed in %d seeds", name, FAULTY_SEEDS);
}

static void test_finds_faults(struct suite *suite)
{
    struct check_options options = usual;
    (void)suite;
    for (int i = 0; model_engine_faults[i] != NULL; i++) {
        /* Without failures a leak has no excuse; everything else is found with and without them. */
        options.without = model_engine_faults[i];
        if (strcmp(options.without, HANG) == 0 || strcmp(options.without, LOCK) == 0)
            continue;
        options.faults = CHECK_FAULTS_NONE;
        find(options, model_engine_faults[i]);
        options.faults = CHECK_FAULTS_ALL;
        if (strcmp(model_engine_faults[i], "break-memory") != 0)
            find(options, model_engine_faults[i]);
    }
    options.without = NULL;
    options.faults = CHECK_FAULTS_CRASH;
    options.no_recovery = true;
    find(options, "recovery");
}

/* Tasks that did not end are dropped with their stacks, of which a sanitizer thinks the worst. */
static void test_finds_hang(struct suite *suite)
{
    struct check_options options = usual;
    (void)suite;
#ifdef __SANITIZE_ADDRESS__
    printf("  SKIP: drops tasks\n");
#else
    options.without = HANG;
    options.faults = CHECK_FAULTS_ALL;
    find(options, HANG);
#endif
    (void)options;
}

static void test_same_seed_same_run(struct suite *suite)
{
    struct check_options options = usual;
    (void)suite;
    options.faults = CHECK_FAULTS_ALL;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        run_seed(options, seed);
        uint64_t hash = result.trace_hash;
        run_seed(options, seed);
        CHECK_EQ_U64(result.trace_hash, hash);
        run_seed(options, seed + 100);
        CHECK(result.trace_hash != hash);
    }
}

const struct suite_case checker_cases[] = {
    {"check_finds_nothing", test_finds_nothing, true},
    {"check_finds_faults", test_finds_faults, true},
    {"check_finds_hang", test_finds_hang, true},
    {"check_same_seed_same_run", test_same_seed_same_run, true},
    {NULL, NULL, false},
};
