/*
 * conformance_engine - one suite for the contract of engine.h, for every engine on every fabric.
 *
 *   conformance_engine --list                            pairs of engine and fabric, one a line
 *   conformance_engine --cases                           the cases
 *   conformance_engine ENGINE FABRIC [OPTION...] [CASE...]   all cases, or those named
 *     --seeds N   how many seeds each case is run with (sim)
 *     --seed N    with that one only
 *     --here      without a process for each case: for debuggers
 *
 * Each case runs in a process of its own. Exits with 0, 1, or 77 if there is no such engine here.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/memory_process.h"
#include "engine/suite.h"
#if __has_include("store/engines.h")
#include "store/engines.h"
#endif

enum { CASE_SECONDS = 240, SEEDS = 2, EXIT_SKIPPED = 77, EXIT_USAGE = 2 };

#ifdef __SANITIZE_THREAD__
const char *__tsan_default_options(void);

/* It would wait a second for other threads at the end of each of our many processes. */
const char *__tsan_default_options(void)
{
    return "atexit_sleep_ms=0";
}
#endif

/* The techniques are those that the suite switches off, one by one and all together. */
static const struct {
    const char *name;
    const char *techniques;
} known_engines[] = {
    {"model", "delay"},
    {"sherman", "combine,onchip,hierarchical,queue,handover,twolevel,cache,lockread,backoff,reuse,"
                "adopt,merge"},
    {"dex",
     "partition,cache,cooling-map,path-aware,admission,records,offload,prefetch,log,merge,balance"},
};
enum { ENGINES = sizeof(known_engines) / sizeof(known_engines[0]) };

static const char *const known_fabrics[] = {"sim", "shm", "tcp", "verbs"};
enum { FABRICS = sizeof(known_fabrics) / sizeof(known_fabrics[0]) };

static const struct suite_case *const all_cases[] = {
    basic_cases, random_cases, concurrent_cases, memory_cases, full_cases, checker_cases,
};
enum { GROUPS = sizeof(all_cases) / sizeof(all_cases[0]) };

static const struct engine_ops *engine_named(const char *name)
{
    if (strcmp(name, "model") == 0)
        return &model_engine;
#if __has_include("store/engines.h")
    return store_engine(name);
#else
    return NULL;
#endif
}

static bool known_fabric(const char *name)
{
    for (unsigned i = 0; i < FABRICS; i++) {
        if (strcmp(known_fabrics[i], name) == 0)
            return true;
    }
    return false;
}

struct plan {
    const struct engine_ops *ops;
    const char *fabric, *techniques;
    uint64_t first_seed, seeds;
    bool here;
    char **names;
    int name_count;
};

/* ---- one case -------------------------------------------------------------------------------- */

static void run_here(const struct plan *plan, const struct suite_case *test)
{
    uint64_t seeds = strcmp(plan->fabric, "sim") == 0 && !test->model_only ? plan->seeds : 1;
    for (uint64_t i = 0; i < seeds; i++) {
        struct suite suite = {.ops = plan->ops,
                              .fabric = plan->fabric,
                              .techniques = plan->techniques,
                              .seed = plan->first_seed + i};
        if (test->model_only) {
            test->run(&suite);
            continue;
        }
        suite_open(&suite);
        test->run(&suite);
        suite_close(&suite);
    }
}

/* How it ended, as waitpid says it. */
static int run_apart(const struct plan *plan, const struct suite_case *test)
{
    int how = 0;
    if (plan->here) {
        run_here(plan, test);
        return 0;
    }
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(CASE_SECONDS);
        run_here(plan, test);
        exit(0);
    }
    while (waitpid(child, &how, 0) < 0)
        CHECK(errno == EINTR);
    return how;
}

static bool run_case(const struct plan *plan, const struct suite_case *test)
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int how = run_apart(plan, test);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds =
        (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    bool passed = WIFEXITED(how) && WEXITSTATUS(how) == 0;
    if (passed)
        printf("ok %s (%.2f)\n", test->name, seconds);
    else if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM)
        printf("FAILED %s: no end in %d s\n", test->name, CASE_SECONDS);
    else if (WIFSIGNALED(how))
        printf("FAILED %s: %s\n", test->name, strsignal(WTERMSIG(how)));
    else
        printf("FAILED %s: exit status %d\n", test->name, WEXITSTATUS(how));
    fflush(stdout);
    return passed;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool wanted(const struct plan *plan, const struct suite_case *test)
{
    if (test->model_only && (plan->ops != &model_engine || strcmp(plan->fabric, "sim") != 0))
        return false;
    for (int i = 0; i < plan->name_count; i++) {
        if (strcmp(plan->names[i], test->name) == 0)
            return true;
    }
    return plan->name_count == 0;
}

static int run_cases(const struct plan *plan)
{
    unsigned passed = 0, failed = 0;
    for (unsigned group = 0; group < GROUPS; group++) {
        for (const struct suite_case *test = all_cases[group]; test->name != NULL; test++) {
            if (!wanted(plan, test))
                continue;
            if (run_case(plan, test))
                passed++;
            else
                failed++;
        }
    }
    printf("%s on %s: %u passed, %u failed\n", plan->ops->name, plan->fabric, passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}

/* Whether this machine can do RDMA. */
static bool have_device(void)
{
    bool found = false;
    DIR *folder = opendir("/sys/class/infiniband");
    if (folder == NULL)
        return false;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        found |= entry->d_name[0] != '.';
    closedir(folder);
    return found;
}

static int list_pairs(void)
{
    for (unsigned i = 0; i < ENGINES; i++) {
        if (engine_named(known_engines[i].name) == NULL)
            continue;
        for (unsigned fabric = 0; fabric < FABRICS; fabric++) {
            if (strcmp(known_fabrics[fabric], "verbs") != 0 || have_device())
                printf("%s %s\n", known_engines[i].name, known_fabrics[fabric]);
        }
    }
    return 0;
}

static int list_cases(void)
{
    for (unsigned group = 0; group < GROUPS; group++) {
        for (const struct suite_case *test = all_cases[group]; test->name != NULL; test++)
            printf("%s%s\n", test->name, test->model_only ? " (model on sim only)" : "");
    }
    return 0;
}

static bool case_exists(const char *name)
{
    for (unsigned group = 0; group < GROUPS; group++) {
        for (const struct suite_case *test = all_cases[group]; test->name != NULL; test++) {
            if (strcmp(test->name, name) == 0)
                return true;
        }
    }
    return false;
}

/* False with something said. */
static bool parse(struct plan *plan, int argc, char **argv)
{
    int i = 3;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--here") == 0) {
            plan->here = true;
        } else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc) {
            plan->seeds = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            plan->first_seed = strtoull(argv[++i], NULL, 10);
            plan->seeds = 1;
        } else {
            fprintf(stderr, "conformance_engine: %s: no such option\n", argv[i]);
            return false;
        }
    }
    plan->names = argv + i;
    plan->name_count = argc - i;
    for (; i < argc; i++) {
        if (!case_exists(argv[i])) {
            fprintf(stderr, "conformance_engine: %s: no such case; --cases lists them\n", argv[i]);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    struct plan plan = {.first_seed = 1, .seeds = SEEDS};
    signal(SIGPIPE, SIG_IGN);
    log_set_level(LOG_LEVEL_ERROR);
    if (argc >= 2 && strcmp(argv[1], "--memory") == 0)
        return memory_process_main(argc - 2, argv + 2);
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return list_pairs();
    if (argc == 2 && strcmp(argv[1], "--cases") == 0)
        return list_cases();
    if (argc < 3 || !known_fabric(argv[2])) {
        fprintf(stderr,
                "usage: conformance_engine ENGINE sim|shm|tcp|verbs [--seeds N] [CASE...]\n");
        return EXIT_USAGE;
    }
    plan.ops = engine_named(argv[1]);
    plan.fabric = argv[2];
    plan.techniques = "";
    for (unsigned i = 0; i < ENGINES; i++) {
        if (strcmp(known_engines[i].name, argv[1]) == 0)
            plan.techniques = known_engines[i].techniques;
    }
    if (plan.ops == NULL) {
        printf("SKIP: there is no engine %s\n", argv[1]);
        return EXIT_SKIPPED;
    }
    if (!parse(&plan, argc, argv))
        return EXIT_USAGE;
    return run_cases(&plan);
}
