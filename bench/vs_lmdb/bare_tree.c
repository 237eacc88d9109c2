#include "bare_tree.h"

#include <stdlib.h>
#include <sys/mman.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "cmd/cmd.h"

enum { LEVELS_MAX = 16, LINE_BYTES = 64, LINE_WORDS = LINE_BYTES / 8 };

static const size_t HUGE_BYTES = (size_t)2 << 20;

/* Looks up WORK_IN_FLIGHT keys. */
typedef void (*group_fn)(const struct bare_tree *tree, const uint64_t *keys, uint64_t *values);

struct bare_tree {
    uint64_t *words; /* all nodes; a node's number times its words is where it begins */
    size_t mapped_bytes, node_bytes;
    unsigned inner_levels;
    uint64_t root;
    bool late_values, wide;
    group_fn group;
};

/* ---- searching a node ------------------------------------------------------------------------ */

/* How many of the words are below the key; words is a whole number of lines. */
typedef unsigned (*rank_fn)(const uint64_t *words, size_t count, uint64_t key);

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Halving without a branch: what the processor cannot foresee costs more than the steps. */
ALWAYS_INLINE unsigned rank_plain(const uint64_t *words, size_t count, uint64_t key)
{
    const uint64_t *base = words;
    while (count > 1) {
        size_t half = count / 2;
        base += base[half - 1] < key ? half : 0;
        count -= half;
    }
    return (unsigned)(base - words) + (*base < key);
}

#ifdef __x86_64__
#define WIDE __attribute__((target("avx512f,popcnt")))

WIDE ALWAYS_INLINE unsigned rank_wide(const uint64_t *words, size_t count, uint64_t key)
{
    __m512i wanted = _mm512_set1_epi64((long long)key);
    unsigned rank = 0;
#pragma GCC unroll 16
    for (size_t i = 0; i < count; i += LINE_WORDS) {
        __mmask8 below = _mm512_cmplt_epu64_mask(_mm512_loadu_si512(words + i), wanted);
        rank += (unsigned)__builtin_popcount(below);
    }
    return rank;
}
#endif

/* ---- a group of lookups ---------------------------------------------------------------------- */

ALWAYS_INLINE void prefetch(const uint64_t *node, size_t bytes)
{
#pragma GCC unroll 16
    for (size_t i = 0; i < bytes; i += LINE_BYTES)
        __builtin_prefetch((const char *)node + i);
}

/* Sizes and functions are constants wherever this is used. */
ALWAYS_INLINE void lookup_group(const struct bare_tree *tree, const uint64_t *keys,
                                uint64_t *values, size_t bytes, bool late_values, rank_fn rank)
{
    const size_t node_words = bytes / 8, pairs = bytes / 16;
    const uint64_t *node[WORK_IN_FLIGHT];
    unsigned slot[WORK_IN_FLIGHT];

    for (int i = 0; i < WORK_IN_FLIGHT; i++)
        node[i] = tree->words + tree->root * node_words;
    for (unsigned level = tree->inner_levels; level > 0; level--) {
        size_t ahead = level == 1 && late_values ? bytes / 2 : bytes;
        for (int i = 0; i < WORK_IN_FLIGHT; i++) {
            uint64_t child = node[i][0] + rank(node[i], node_words, keys[i]) - 1;
            node[i] = tree->words + child * node_words;
            prefetch(node[i], ahead);
        }
    }
    for (int i = 0; i < WORK_IN_FLIGHT; i++) {
        slot[i] = rank(node[i], pairs, keys[i]);
        if (late_values)
            __builtin_prefetch(node[i] + pairs + slot[i]);
        else
            values[i] = node[i][pairs + slot[i]];
    }
    for (int i = 0; late_values && i < WORK_IN_FLIGHT; i++)
        values[i] = node[i][pairs + slot[i]];
}

/* One function for each size, so that the compiler knows how many words and lines there are. */
#define GROUP_FUNCTION(name, target, rank, bytes, late_values)                                     \
    target static void name(const struct bare_tree *tree, const uint64_t *keys, uint64_t *values)  \
    {                                                                                              \
        lookup_group(tree, keys, values, bytes, late_values, rank);                                \
    }
#define GROUP_FUNCTIONS(kind, target, rank)                                                        \
    GROUP_FUNCTION(kind##_128, target, rank, 128, false)                                           \
    GROUP_FUNCTION(kind##_256, target, rank, 256, false)                                           \
    GROUP_FUNCTION(kind##_384, target, rank, 384, false)                                           \
    GROUP_FUNCTION(kind##_512, target, rank, 512, false)                                           \
    GROUP_FUNCTION(kind##_1024, target, rank, 1024, false)                                         \
    GROUP_FUNCTION(kind##_late_128, target, rank, 128, true)                                       \
    GROUP_FUNCTION(kind##_late_256, target, rank, 256, true)                                       \
    GROUP_FUNCTION(kind##_late_384, target, rank, 384, true)                                       \
    GROUP_FUNCTION(kind##_late_512, target, rank, 512, true)                                       \
    GROUP_FUNCTION(kind##_late_1024, target, rank, 1024, true)

GROUP_FUNCTIONS(plain, , rank_plain)
#ifdef __x86_64__
GROUP_FUNCTIONS(wide, WIDE, rank_wide)
#define WIDE_OR_NONE(name) wide_##name
#else
#define WIDE_OR_NONE(name) NULL
#endif

static const struct kind {
    size_t node_bytes;
    bool late_values; /* a leaf's values are fetched when it is known which one */
    group_fn plain, wide;
} kinds[] = {
    {128, false, plain_128, WIDE_OR_NONE(128)},
    {256, false, plain_256, WIDE_OR_NONE(256)},
    {384, false, plain_384, WIDE_OR_NONE(384)},
    {512, false, plain_512, WIDE_OR_NONE(512)},
    {1024, false, plain_1024, WIDE_OR_NONE(1024)},
    {128, true, plain_late_128, WIDE_OR_NONE(late_128)},
    {256, true, plain_late_256, WIDE_OR_NONE(late_256)},
    {384, true, plain_late_384, WIDE_OR_NONE(late_384)},
    {512, true, plain_late_512, WIDE_OR_NONE(late_512)},
    {1024, true, plain_late_1024, WIDE_OR_NONE(late_1024)},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static bool processor_wide(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("popcnt");
#else
    return false;
#endif
}

/* ---- building -------------------------------------------------------------------------------- */

static uint64_t ceiling(uint64_t count, uint64_t by)
{
    return (count + by - 1) / by;
}

/* Nodes of every level, leaves first; the number of levels. */
static unsigned count_levels(uint64_t records, size_t node_bytes, uint64_t counts[LEVELS_MAX])
{
    unsigned levels = 1;
    counts[0] = ceiling(records, node_bytes / 16);
    while (counts[levels - 1] > 1) {
        counts[levels] = ceiling(counts[levels - 1], node_bytes / 8);
        levels++;
    }
    return levels;
}

static void fill_leaf(uint64_t *node, size_t pairs, uint64_t first, uint64_t records)
{
    for (size_t i = 0; i < pairs; i++) {
        bool used = first + i < records;
        node[i] = used ? work_key(first + i) : UINT64_MAX;
        node[pairs + i] = used ? work_value(first + i) : 0;
    }
}

/* below: the records that lie in a child. */
static void fill_inner(uint64_t *node, size_t fanout, uint64_t first_child, uint64_t first_record,
                       uint64_t below, uint64_t records)
{
    node[0] = first_child;
    for (size_t i = 1; i < fanout; i++) {
        uint64_t record = first_record + i * below;
        node[i] = record < records ? work_key(record) - 1 : UINT64_MAX;
    }
}

/* Level by level, leaves first. */
static void fill(struct bare_tree *tree, uint64_t records, const uint64_t *counts, unsigned levels)
{
    const size_t words = tree->node_bytes / 8, pairs = tree->node_bytes / 16;
    uint64_t number = 0, below_first = 0, below = pairs;

    for (; number < counts[0]; number++)
        fill_leaf(tree->words + number * words, pairs, number * pairs, records);
    for (unsigned level = 1; level < levels; level++) {
        uint64_t level_first = number;
        for (uint64_t i = 0; i < counts[level]; i++, number++)
            fill_inner(tree->words + number * words, words, below_first + i * words,
                       i * words * below, below, records);
        below_first = level_first;
        below *= words;
    }
    tree->root = number - 1;
    tree->inner_levels = levels - 1;
}

static uint64_t *map_huge(size_t bytes)
{
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    return (uint64_t *)base;
}

static struct bare_tree *create(uint64_t records, const struct kind *kind)
{
    struct bare_tree *tree = calloc(1, sizeof(*tree));
    uint64_t counts[LEVELS_MAX], nodes = 0;

    if (tree == NULL)
        return NULL;
    tree->node_bytes = kind->node_bytes;
    tree->late_values = kind->late_values;
    tree->wide = processor_wide();
    tree->group = tree->wide ? kind->wide : kind->plain;
    unsigned levels = count_levels(records, kind->node_bytes, counts);
    for (unsigned i = 0; i < levels; i++)
        nodes += counts[i];
    tree->mapped_bytes = ceiling(nodes * kind->node_bytes, HUGE_BYTES) * HUGE_BYTES;
    tree->words = map_huge(tree->mapped_bytes);
    if (tree->words == NULL) {
        free(tree);
        return NULL;
    }
    fill(tree, records, counts, levels);
    return tree;
}

void bare_tree_destroy(struct bare_tree *tree)
{
    if (tree == NULL)
        return;
    munmap(tree->words, tree->mapped_bytes);
    free(tree);
}

bool bare_tree_has(size_t node_bytes)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (kinds[i].node_bytes == node_bytes)
            return true;
    }
    return false;
}

size_t bare_tree_node_bytes(const struct bare_tree *tree)
{
    return tree->node_bytes;
}

bool bare_tree_late_values(const struct bare_tree *tree)
{
    return tree->late_values;
}

bool bare_tree_wide(const struct bare_tree *tree)
{
    return tree->wide;
}

/* ---- measuring ------------------------------------------------------------------------------- */

void bare_tree_run(const struct bare_tree *tree, const struct work_round *round,
                   struct work_result *result)
{
    uint64_t values[WORK_IN_FLIGHT], sum = 0, begin_ns = rt_machine_ns();
    for (size_t i = 0; i < round->count; i += WORK_IN_FLIGHT) {
        tree->group(tree, round->keys + i, values);
        for (int j = 0; j < WORK_IN_FLIGHT; j++)
            sum += values[j];
    }
    *result =
        (struct work_result){.ns = rt_machine_ns() - begin_ns, .pairs = round->count, .sum = sum};
}

/* The best of a few tries, in lookups per second. */
static double try_out(const struct bare_tree *tree, const struct work_round *round)
{
    enum { TRIES = 5 };
    uint64_t best_ns = UINT64_MAX;
    struct work_result result;
    for (int i = 0; i < TRIES; i++) {
        bare_tree_run(tree, round, &result);
        if (result.ns < best_ns)
            best_ns = result.ns;
    }
    return (double)round->count * 1e9 / (double)best_ns;
}

struct bare_tree *bare_tree_create(uint64_t records, size_t node_bytes,
                                   void (*shown)(const struct bare_tree *tree, double rate))
{
    enum { TRIAL_KEYS = 1 << 18 };
    struct bare_tree *best = NULL, *tree;
    uint64_t *keys = malloc(TRIAL_KEYS * sizeof(*keys));
    struct work_round round;
    struct prng prng;
    double best_rate = 0;

    if (keys == NULL)
        return NULL;
    prng_seed(&prng, records);
    work_round_draw(&round, WORK_BATCH, &prng, records, keys, TRIAL_KEYS);
    for (size_t i = 0; i < KINDS; i++) {
        if (node_bytes != 0 && node_bytes != kinds[i].node_bytes)
            continue;
        tree = create(records, &kinds[i]);
        if (tree == NULL)
            break;
        double rate = try_out(tree, &round);
        shown(tree, rate);
        struct bare_tree *worse = rate > best_rate ? best : tree;
        if (worse == best) {
            best = tree;
            best_rate = rate;
        }
        bare_tree_destroy(worse);
    }
    free(keys);
    return best;
}
