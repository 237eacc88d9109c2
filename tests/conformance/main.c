/*
 * conformance_fabric - one suite for the contract of fabric.h, on every backend.
 *
 *   conformance_fabric --list                          the backends compiled in; where the target is
 *                                                      a compute node, with "-compute"
 *   conformance_fabric --cases                         the cases
 *   conformance_fabric BACKEND [OPTION...] [CASE...]   all cases, or those named
 *     --seeds N   how many seeds each case is run with (sim); seed 0 is without chaos
 *     --seed N    with that one only
 *     --here      without a process for each case: for debuggers
 *
 * Each case runs in a process of its own, so that one failing, crashing or hanging case does not
 * keep the others from being run.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "conformance/suite.h"

enum {
    CASE_SECONDS = 60,
    SEEDS = 100,
    EXIT_SKIPPED = 77,
    EXIT_USAGE = 2,
};

#ifdef __SANITIZE_THREAD__
const char *__tsan_default_options(void);

/* It would wait a second for other threads at the end of each of our many processes. */
const char *__tsan_default_options(void)
{
    return "atexit_sleep_ms=0";
}
#endif

static const struct suite_case *const all_cases[] = {
    lists_cases, order_cases, torn_cases,    atomics_cases,
    calls_cases, peers_cases, failure_cases, fencing_cases,
};
enum { GROUPS = sizeof(all_cases) / sizeof(all_cases[0]) };

static const char *const known_backends[] = {
    "sim", "shm", "tcp", "verbs", "sim-compute", "shm-compute", "tcp-compute", "verbs-compute",
};
enum { BACKENDS = sizeof(known_backends) / sizeof(known_backends[0]) };

static const struct env_ops *backend_at(unsigned i)
{
    const struct env_ops *const compiled[BACKENDS] = {
        &env_sim,         &env_shm,         &env_tcp,         &env_verbs,
        &env_sim_compute, &env_shm_compute, &env_tcp_compute, &env_verbs_compute};
    return compiled[i];
}

/* -1 for an unknown name. */
static int backend_index(const char *name)
{
    for (int i = 0; i < BACKENDS; i++) {
        if (strcmp(known_backends[i], name) == 0)
            return i;
    }
    return -1;
}

struct plan {
    const struct env_ops *ops;
    uint64_t first_seed;
    uint64_t seeds;
    bool here;
    char **names;
    int name_count;
    volatile uint64_t *seed_now; /* shared with the process that runs the case */
};

/* ---- one case -------------------------------------------------------------------------------- */

static bool applies(const struct suite_case *test, const struct env_ops *ops)
{
    if ((test->flags & (CASE_SIM | CASE_CHAOS)) != 0 && !ops->simulated)
        return false;
    if ((test->flags & CASE_REAL) != 0 && ops->simulated)
        return false;
    if ((test->flags & CASE_COMPUTE) != 0 && !ops->compute)
        return false;
    return (test->flags & CASE_SECRET) == 0 || ops->has_secret;
}

static void run_in_this_process(const struct plan *plan, const struct suite_case *test,
                                const char *folder)
{
    uint64_t seeds = plan->ops->simulated ? plan->seeds : 1;
    if (test->seeds_max != 0 && seeds > test->seeds_max)
        seeds = test->seeds_max;
    for (uint64_t i = 0; i < seeds; i++) {
        uint64_t seed = plan->first_seed + i;
        if (seed == 0 && (test->flags & CASE_CHAOS) != 0)
            continue;
        *plan->seed_now = seed;
        struct env_options options = {.folder = folder, .seed = seed, .chaos = seed != 0};
        suite_run_case(plan->ops, test, &options);
    }
}

/* In memory if possible; the folder's files are gone with it. */
static void make_folder(char *path, size_t bytes)
{
    snprintf(path, bytes, "/dev/shm/pando-conformance-XXXXXX");
    if (mkdtemp(path) != NULL)
        return;
    snprintf(path, bytes, "/tmp/pando-conformance-XXXXXX");
    CHECK(mkdtemp(path) != NULL);
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            CHECK(unlinkat(dirfd(folder), entry->d_name, 0) == 0);
    }
    closedir(folder);
    CHECK(rmdir(path) == 0);
}

static void report_failure(const struct plan *plan, const struct suite_case *test, int how)
{
    char why[64];
    if (!WIFSIGNALED(how))
        snprintf(why, sizeof(why), "exit status %d", WEXITSTATUS(how));
    else if (WTERMSIG(how) == SIGALRM)
        snprintf(why, sizeof(why), "no end in %d s", CASE_SECONDS);
    else
        snprintf(why, sizeof(why), "%s", strsignal(WTERMSIG(how)));
    printf("FAILED %s: %s", test->name, why);
    if (plan->ops->simulated)
        printf(", with seed %" PRIu64 "; again: conformance_fabric %s --seed %" PRIu64 " %s",
               *plan->seed_now, plan->ops->name, *plan->seed_now, test->name);
    printf("\n");
}

/* How it ended, as waitpid says it. */
static int run_in_process(const struct plan *plan, const struct suite_case *test,
                          const char *folder)
{
    int how = 0;
    if (plan->here) {
        run_in_this_process(plan, test, folder);
        return 0;
    }
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(CASE_SECONDS);
        run_in_this_process(plan, test, folder);
        exit(0);
    }
    while (waitpid(child, &how, 0) < 0)
        CHECK(errno == EINTR);
    return how;
}

static bool run_case(const struct plan *plan, const struct suite_case *test)
{
    struct timespec start, end;
    char folder[64];

    clock_gettime(CLOCK_MONOTONIC, &start);
    make_folder(folder, sizeof(folder));
    int how = run_in_process(plan, test, folder);
    remove_folder(folder);
    clock_gettime(CLOCK_MONOTONIC, &end);
    bool passed = WIFEXITED(how) && WEXITSTATUS(how) == 0;
    double seconds =
        (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    if (passed)
        printf("ok %s (%.2f)\n", test->name, seconds);
    else
        report_failure(plan, test, how);
    fflush(stdout);
    return passed;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct suite_case *find_case(const char *name)
{
    for (unsigned group = 0; group < GROUPS; group++) {
        for (const struct suite_case *test = all_cases[group]; test->name != NULL; test++) {
            if (strcmp(test->name, name) == 0)
                return test;
        }
    }
    return NULL;
}

static bool wanted(const struct plan *plan, const struct suite_case *test)
{
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
            if (!wanted(plan, test) || !applies(test, plan->ops))
                continue;
            if (run_case(plan, test))
                passed++;
            else
                failed++;
        }
    }
    if (passed + failed == 0)
        SKIP("no such case on this backend");
    printf("%s: %u passed, %u failed\n", plan->ops->name, passed, failed);
    return failed > 0 ? 1 : 0;
}

static int print_cases(void)
{
    for (unsigned group = 0; group < GROUPS; group++) {
        for (const struct suite_case *test = all_cases[group]; test->name != NULL; test++)
            printf("%s\n", test->name);
    }
    return 0;
}

/* Compiled in, and of use here. */
static bool available(const struct env_ops *ops)
{
    return ops != NULL && (ops->available == NULL || ops->available());
}

static int print_backends(void)
{
    for (unsigned i = 0; i < BACKENDS; i++) {
        if (available(backend_at(i)))
            printf("%s\n", known_backends[i]);
    }
    return 0;
}

static int usage(const char *wrong)
{
    fprintf(stderr,
            "conformance_fabric: %s\n"
            "usage: conformance_fabric --list | --cases | BACKEND [--seeds N] [--seed N] [--here] "
            "[CASE...]\n",
            wrong);
    return EXIT_USAGE;
}

static int parse_and_run(int argc, char **argv)
{
    struct plan plan = {.seeds = SEEDS / ENV_SLOWDOWN};
    int backend = backend_index(argv[0]);
    int at = 1;

    if (backend < 0)
        return usage("no such backend");
    plan.ops = backend_at((unsigned)backend);
    if (plan.ops == NULL)
        SKIP("this backend is not compiled in");
    if (!available(plan.ops))
        SKIP("this machine has no device for that backend");
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--here") == 0) {
            plan.here = true;
        } else if (strcmp(argv[at], "--seeds") == 0 && at + 1 < argc) {
            plan.seeds = strtoull(argv[++at], NULL, 10);
        } else if (strcmp(argv[at], "--seed") == 0 && at + 1 < argc) {
            plan.first_seed = strtoull(argv[++at], NULL, 10);
            plan.seeds = 1;
        } else {
            return usage("unknown option");
        }
    }
    plan.names = argv + at;
    plan.name_count = argc - at;
    for (int i = 0; i < plan.name_count; i++) {
        if (find_case(plan.names[i]) == NULL)
            return usage("no such case");
    }
    plan.seed_now =
        mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(plan.seed_now != MAP_FAILED);
    return run_cases(&plan);
}

int main(int argc, char **argv)
{
    log_set_level(LOG_LEVEL_ERROR); /* faults are what these tests are about */
    if (argc < 2)
        return usage("what is to be tested?");
    if (strcmp(argv[1], "--list") == 0)
        return print_backends();
    if (strcmp(argv[1], "--cases") == 0)
        return print_cases();
    if (strcmp(argv[1], "--process") == 0 && argc > 3) {
        int backend = backend_index(argv[2]);
        const struct env_ops *ops = backend < 0 ? NULL : backend_at((unsigned)backend);
        return ops == NULL ? EXIT_USAGE : ops->process(argc - 3, argv + 3, suite_handler);
    }
    return parse_and_run(argc - 1, argv + 1);
}
