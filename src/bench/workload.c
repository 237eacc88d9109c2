#include "bench/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[WORKLOAD_KINDS] = {
    [WORKLOAD_READ] = "read",     [WORKLOAD_UPDATE] = "update", [WORKLOAD_INSERT] = "insert",
    [WORKLOAD_UPSERT] = "upsert", [WORKLOAD_MODIFY] = "modify", [WORKLOAD_DELETE] = "delete",
    [WORKLOAD_SCAN] = "scan",     [WORKLOAD_LOCK] = "lock",
};

static const char usual_zipf[] = "zipf:0.99";

static const struct workload workloads[] = {
    {.name = "a",
     .about = "YCSB: 50 % read, 50 % update",
     .percent = {[WORKLOAD_READ] = 50, [WORKLOAD_UPDATE] = 50},
     .dist = usual_zipf},
    {.name = "b",
     .about = "YCSB: 95 % read, 5 % update",
     .percent = {[WORKLOAD_READ] = 95, [WORKLOAD_UPDATE] = 5},
     .dist = usual_zipf},
    {.name = "c", .about = "YCSB: read", .percent = {[WORKLOAD_READ] = 100}, .dist = usual_zipf},
    {.name = "d",
     .about = "YCSB: 95 % read of the newest, 5 % insert",
     .percent = {[WORKLOAD_READ] = 95, [WORKLOAD_INSERT] = 5},
     .dist = "latest"},
    {.name = "e",
     .about = "YCSB: 95 % scan, 5 % insert",
     .percent = {[WORKLOAD_SCAN] = 95, [WORKLOAD_INSERT] = 5},
     .dist = usual_zipf},
    {.name = "f",
     .about = "YCSB: 50 % read, 50 % read-modify-write",
     .percent = {[WORKLOAD_READ] = 50, [WORKLOAD_MODIFY] = 50},
     .dist = usual_zipf},
    {.name = "load",
     .about = "fills an empty table, in random order",
     .percent = {[WORKLOAD_INSERT] = 100},
     .dist = "uniform",
     .fill = true},
    {.name = "search", .about = "read", .percent = {[WORKLOAD_READ] = 100}, .dist = "uniform"},
    {.name = "insert",
     .about = "insert of new keys between the loaded ones",
     .percent = {[WORKLOAD_INSERT] = 100},
     .dist = "uniform"},
    {.name = "update", .about = "update", .percent = {[WORKLOAD_UPDATE] = 100}, .dist = "uniform"},
    {.name = "delete",
     .about = "deletes every record, in random order",
     .percent = {[WORKLOAD_DELETE] = 100},
     .dist = "uniform"},
    {.name = "scan", .about = "scan", .percent = {[WORKLOAD_SCAN] = 100}, .dist = "uniform"},
    {.name = "write-only",
     .about = "Sherman: insert, two thirds of them updates",
     .percent = {[WORKLOAD_UPSERT] = 100},
     .dist = usual_zipf,
     .sparse = true},
    {.name = "write-intensive",
     .about = "Sherman: 50 % read, 50 % insert",
     .percent = {[WORKLOAD_READ] = 50, [WORKLOAD_UPSERT] = 50},
     .dist = usual_zipf,
     .sparse = true},
    {.name = "read-intensive",
     .about = "Sherman: 95 % read, 5 % insert",
     .percent = {[WORKLOAD_READ] = 95, [WORKLOAD_UPSERT] = 5},
     .dist = usual_zipf,
     .sparse = true},
    {.name = "range-only",
     .about = "Sherman: scan",
     .percent = {[WORKLOAD_SCAN] = 100},
     .dist = usual_zipf,
     .sparse = true},
    {.name = "range-write",
     .about = "Sherman: half of the threads scan, half insert",
     .percent = {[WORKLOAD_SCAN] = 50, [WORKLOAD_UPSERT] = 50},
     .dist = usual_zipf,
     .sparse = true,
     .split = true},
    {.name = "dex-read-only",
     .about = "DEX: read",
     .percent = {[WORKLOAD_READ] = 100},
     .dist = usual_zipf},
    {.name = "dex-read-intensive",
     .about = "DEX: 95 % read, 5 % update",
     .percent = {[WORKLOAD_READ] = 95, [WORKLOAD_UPDATE] = 5},
     .dist = usual_zipf},
    {.name = "dex-write-intensive",
     .about = "DEX: 50 % read, 50 % update",
     .percent = {[WORKLOAD_READ] = 50, [WORKLOAD_UPDATE] = 50},
     .dist = usual_zipf},
    {.name = "insert-intensive",
     .about = "DEX: 50 % read, 50 % insert of new keys",
     .percent = {[WORKLOAD_READ] = 50, [WORKLOAD_INSERT] = 50},
     .dist = usual_zipf},
    {.name = "scan-intensive",
     .about = "DEX: 95 % scan, 5 % insert of new keys",
     .percent = {[WORKLOAD_SCAN] = 95, [WORKLOAD_INSERT] = 5},
     .dist = usual_zipf},
    {.name = "locks",
     .about = "no table: takes and releases 10,240 locks of memory node 0",
     .percent = {[WORKLOAD_LOCK] = 100},
     .dist = usual_zipf},
};

enum {
    WORKLOADS = sizeof(workloads) / sizeof(workloads[0]),
    DRAWS_MAX = 4096, /* for one operation: a client with a share of a thousandth finds one */
};

const char *workload_kind_name(enum workload_kind kind)
{
    return kind_names[kind];
}

bool workload_kind_writes(enum workload_kind kind)
{
    return kind != WORKLOAD_READ && kind != WORKLOAD_SCAN;
}

const struct workload *workload_at(size_t index)
{
    return index < WORKLOADS ? &workloads[index] : NULL;
}

const struct workload *workload_find(const char *name)
{
    for (size_t i = 0; i < WORKLOADS; i++) {
        if (strcmp(workloads[i].name, name) == 0)
            return &workloads[i];
    }
    return NULL;
}

bool workload_dist_parse(const char *text, struct workload_dist *out)
{
    static const char zipf[] = "zipf:";
    if (strcmp(text, "uniform") == 0) {
        *out = (struct workload_dist){.kind = WORKLOAD_UNIFORM};
        return true;
    }
    if (strcmp(text, "latest") == 0) {
        *out = (struct workload_dist){.kind = WORKLOAD_LATEST, .theta = 0.99};
        return true;
    }
    if (strncmp(text, zipf, strlen(zipf)) != 0)
        return false;
    const char *number = text + strlen(zipf);
    char *end;
    if (*number == '\0' || strspn(number, "0123456789.") != strlen(number))
        return false;
    double theta = strtod(number, &end);
    if (*end != '\0' || theta < 0 || theta > 5)
        return false;
    *out = (struct workload_dist){.kind = theta > 0 ? WORKLOAD_ZIPF : WORKLOAD_UNIFORM,
                                  .theta = theta};
    return true;
}

/* ---- distributions --------------------------------------------------------------------------- */

/* log(1 + x) / x and (exp(x) - 1) / x, also near 0. */
static double log1p_over(double x)
{
    return fabs(x) > 1e-8 ? log1p(x) / x : 1 - x * (0.5 - x / 3);
}

static double expm1_over(double x)
{
    return fabs(x) > 1e-8 ? expm1(x) / x : 1 + x * 0.5 * (1 + x / 3);
}

/* The integral of x^-theta, and its inverse. */
static double integral(double theta, double x)
{
    double l = log(x);
    return expm1_over((1 - theta) * l) * l;
}

static double integral_inverse(double theta, double y)
{
    double t = y * (1 - theta);
    return exp(log1p_over(t < -1 ? -1 : t) * y);
}

static double density(double theta, double x)
{
    return exp(-theta * log(x));
}

void zipf_init(struct zipf *zipf, double theta, uint64_t n)
{
    *zipf = (struct zipf){.theta = theta, .n = (double)n};
    zipf->h_first = integral(theta, 1.5) - 1;
    zipf->h_last = integral(theta, (double)n + 0.5);
    zipf->accept = 2 - integral_inverse(theta, integral(theta, 2.5) - density(theta, 2));
}

uint64_t zipf_next(const struct zipf *zipf, struct prng *prng)
{
    for (;;) {
        double u = zipf->h_last + prng_unit(prng) * (zipf->h_first - zipf->h_last);
        double x = integral_inverse(zipf->theta, u);
        double k = floor(x + 0.5);
        k = k < 1 ? 1 : k > zipf->n ? zipf->n : k;
        if (k - x <= zipf->accept || u >= integral(zipf->theta, k + 0.5) - density(zipf->theta, k))
            return (uint64_t)k - 1;
    }
}

void scramble_init(struct scramble *scramble, uint64_t n)
{
    *scramble = (struct scramble){.n = n, .half_bits = 1};
    while (scramble->half_bits < 32 && n > (uint64_t)1 << (2 * scramble->half_bits))
        scramble->half_bits++;
}

uint64_t scramble_of(const struct scramble *scramble, uint64_t index)
{
    enum { ROUNDS = 4 };
    unsigned bits = scramble->half_bits;
    uint64_t mask = ((uint64_t)1 << bits) - 1;
    do {
        uint64_t left = index >> bits, right = index & mask;
        for (uint64_t i = 1; i <= ROUNDS; i++) {
            uint64_t mixed = left ^ (hash_u64(right + i * 0x9e3779b97f4a7c15u) & mask);
            left = right;
            right = mixed;
        }
        index = left << bits | right;
    } while (index >= scramble->n);
    return index;
}

/* ---- keys ------------------------------------------------------------------------------------ */

void workload_space_init(struct workload_space *space, const struct workload *workload,
                         uint64_t records)
{
    *space = (struct workload_space){.records = records, .sparse = workload->sparse};
    space->positions = space->sparse ? (records * 3 + 1) / 2 : records;
    scramble_init(&space->scramble, space->positions);
}

uint64_t workload_loaded_position(const struct workload_space *space, uint64_t record)
{
    return space->sparse ? record / 2 * 3 + record % 2 : record;
}

void workload_key(uint64_t position, uint64_t serial, void *out, size_t size)
{
    uint64_t word = __builtin_bswap64((position + 1) << WORKLOAD_SERIAL_BITS | serial);
    memcpy(out, &word, sizeof(word));
    if (size > sizeof(word))
        memset((uint8_t *)out + sizeof(word), 0, size - sizeof(word));
}

/* ---- operations ------------------------------------------------------------------------------ */

void workload_client_init(struct workload_client *client, const struct workload *workload,
                          const struct workload_space *space, struct workload_dist dist,
                          uint64_t number, uint64_t clients, uint64_t seed)
{
    *client = (struct workload_client){
        .workload = workload, .space = space, .dist = dist, .number = number, .clients = clients};
    prng_seed(&client->prng, hash_u64(seed) ^ hash_u64(number + 1));
    if (dist.kind != WORKLOAD_UNIFORM)
        zipf_init(&client->zipf, dist.theta, space->positions);
}

static enum workload_kind pick_kind(struct workload_client *client)
{
    const struct workload *workload = client->workload;
    if (workload->split) {
        if (client->number % 2 == 1)
            return WORKLOAD_SCAN;
        return workload->percent[WORKLOAD_UPSERT] > 0 ? WORKLOAD_UPSERT : WORKLOAD_INSERT;
    }
    unsigned drawn = (unsigned)prng_below(&client->prng, 100);
    int kind = 0;
    while (drawn >= workload->percent[kind])
        drawn -= workload->percent[kind++];
    return (enum workload_kind)kind;
}

/* The n-th key that the client inserts. */
static void inserted_key(const struct workload_client *client, uint64_t n, struct workload_op *out)
{
    const struct workload_space *space = client->space;
    uint64_t sequence = client->number + client->clients * n;
    out->position = scramble_of(&space->scramble, sequence % space->positions);
    out->serial = 1 + sequence / space->positions;
}

/* One of its own, or a record, the newest most often. */
static void latest_key(struct workload_client *client, struct workload_op *out)
{
    uint64_t age = zipf_next(&client->zipf, &client->prng);
    if (age < client->inserted)
        inserted_key(client, client->inserted - 1 - age, out);
    else
        out->position = scramble_of(&client->space->scramble, age - client->inserted);
}

static uint64_t popular_position(struct workload_client *client)
{
    const struct workload_space *space = client->space;
    if (client->dist.kind == WORKLOAD_UNIFORM)
        return prng_below(&client->prng, space->positions);
    return scramble_of(&space->scramble, zipf_next(&client->zipf, &client->prng));
}

/* A key for an operation of this kind. False: nothing is left. */
static bool draw_key(struct workload_client *client, struct workload_op *out)
{
    const struct workload_space *space = client->space;
    uint64_t sequence;

    out->serial = 0;
    switch (out->kind) {
    case WORKLOAD_INSERT:
        sequence = client->number + client->clients * client->inserted;
        if (client->workload->fill) {
            if (sequence >= space->positions)
                return false;
            out->position = scramble_of(&space->scramble, sequence);
        } else {
            inserted_key(client, client->inserted, out);
            if (out->serial >> WORKLOAD_SERIAL_BITS != 0)
                return false;
        }
        client->inserted++;
        return true;
    case WORKLOAD_DELETE:
        sequence = client->number + client->clients * client->deleted++;
        if (sequence >= space->positions)
            return false;
        out->position = scramble_of(&space->scramble, sequence);
        return true;
    case WORKLOAD_UPSERT:
    case WORKLOAD_LOCK:
        out->position = popular_position(client);
        return true;
    default:
        if (client->dist.kind == WORKLOAD_LATEST)
            latest_key(client, out);
        else
            out->position = popular_position(client);
        /* What is not loaded lies behind something that is, mostly in the same leaf. */
        if (space->sparse && out->position % 3 == 2)
            out->position--;
        return true;
    }
}

bool workload_next(struct workload_client *client, struct workload_op *out)
{
    *out = (struct workload_op){.kind = pick_kind(client)};
    for (int draws = 0; draws < DRAWS_MAX; draws++) {
        if (!draw_key(client, out))
            return false;
        if (client->wants == NULL ||
            client->wants(client->wants_context, out->position, out->serial))
            return true;
    }
    out->none = true;
    return true;
}
