#include "store/uri.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "fabric/sim/nic.h"

struct parser {
    const char *text; /* the whole URI */
    struct uri *uri;
    char *error;
    size_t error_bytes;
};

struct kind {
    const char *name;
    const char *example;
    enum pando_status (*parse)(struct parser *parser, const char *rest);
};

__attribute__((format(printf, 2, 3))) static enum pando_status fail(struct parser *parser,
                                                                    const char *format, ...)
{
    va_list arguments;
    int used = snprintf(parser->error, parser->error_bytes, "pool '%.*s%s': ", URI_SHOWN_MAX,
                        parser->text, strlen(parser->text) > URI_SHOWN_MAX ? "..." : "");
    if (used < 0 || (size_t)used >= parser->error_bytes)
        return PANDO_INVALID;
    va_start(arguments, format);
    vsnprintf(parser->error + used, parser->error_bytes - (size_t)used, format, arguments);
    va_end(arguments);
    return PANDO_INVALID;
}

/* The text up to the next comma, which it steps over; false at the end. */
static bool next_item(const char **rest, const char **item, size_t *size)
{
    if (*rest == NULL)
        return false;
    *item = *rest;
    *size = strcspn(*rest, ",");
    *rest = (*item)[*size] == ',' ? *item + *size + 1 : NULL;
    return true;
}

/* ---- embedded, shm, tcp, verbs --------------------------------------------------------------- */

static enum pando_status parse_embedded(struct parser *parser, const char *rest)
{
    if (parse_size(rest, &parser->uri->size_bytes) != PANDO_OK)
        return fail(parser, "'%.*s' is not a size; use for example embedded:1G", URI_SHOWN_MAX,
                    rest);
    parser->uri->memory = 1;
    return PANDO_OK;
}

static enum pando_status parse_places(struct parser *parser, const char *rest, const char *example)
{
    struct uri *uri = parser->uri;
    const char *item;
    size_t size;

    while (next_item(&rest, &item, &size)) {
        if (size == 0)
            return fail(parser, "memory node %u has no name; use for example %s", uri->memory,
                        example);
        if (size >= FABRIC_LOCATION_MAX)
            return fail(parser, "the name of memory node %u is longer than %d characters",
                        uri->memory, FABRIC_LOCATION_MAX - 1);
        if (uri->memory == URI_MEMORY_MAX)
            return fail(parser, "more than %d memory nodes; name fewer", URI_MEMORY_MAX);
        char *place = uri->places[uri->memory++];
        memcpy(place, item, size);
        place[size] = '\0';
    }
    return PANDO_OK;
}

static enum pando_status parse_shm(struct parser *parser, const char *rest)
{
    return parse_places(parser, rest, "shm:demo");
}

static enum pando_status parse_ports(struct parser *parser, const char *rest, const char *example)
{
    struct host_port parts;

    enum pando_status status = parse_places(parser, rest, example);
    for (unsigned i = 0; status == PANDO_OK && i < parser->uri->memory; i++) {
        const char *place = parser->uri->places[i];
        enum pando_status parsed = parse_host_port(place, &parts);
        if (parsed != PANDO_OK)
            status = fail(parser, "'%s' %s; use for example %s", place,
                          parse_host_port_fault(parsed), example);
        else if (parts.port == 0)
            status = fail(parser, "'%s' has port 0; use the port the memory node printed", place);
    }
    return status;
}

static enum pando_status parse_tcp(struct parser *parser, const char *rest)
{
    return parse_ports(parser, rest, "tcp:127.0.0.1:7000");
}

static enum pando_status parse_verbs(struct parser *parser, const char *rest)
{
    return parse_ports(parser, rest, "verbs:10.0.0.1:7000");
}

/* ---- sim ------------------------------------------------------------------------------------- */

enum option_type { OPTION_NIC, OPTION_COUNT, OPTION_U64, OPTION_SIZE, OPTION_CHANCE, OPTION_BOOL };

struct option {
    const char *name;
    const char *example;
    enum option_type type;
    size_t offset; /* in struct uri */
    uint64_t max;  /* of a count */
};

static const struct option sim_options[] = {
    {"nic", "cx5", OPTION_NIC, offsetof(struct uri, sim.nic), 0},
    {"compute", "8", OPTION_COUNT, offsetof(struct uri, compute), URI_COMPUTE_MAX},
    {"memory", "8", OPTION_COUNT, offsetof(struct uri, memory), URI_MEMORY_MAX},
    {"memory-threads", "2", OPTION_COUNT, offsetof(struct uri, sim.memory_threads),
     URI_SIM_THREADS_MAX},
    {"size", "64M", OPTION_SIZE, offsetof(struct uri, size_bytes), 0},
    {"seed", "1", OPTION_U64, offsetof(struct uri, sim.seed), 0},
    {"onchip", "1", OPTION_BOOL, offsetof(struct uri, sim.onchip), 0},
    {"embedded", "1", OPTION_BOOL, offsetof(struct uri, sim.embedded), 0},
    {"shuffle", "1", OPTION_BOOL, offsetof(struct uri, sim.shuffle), 0},
    {"tear", "0.1", OPTION_CHANCE, offsetof(struct uri, sim.tear), 0},
    {"spread", "0.1", OPTION_CHANCE, offsetof(struct uri, sim.spread), 0},
    {"delay", "0.1", OPTION_CHANCE, offsetof(struct uri, sim.delay), 0},
    {"late-cpu", "0.1", OPTION_CHANCE, offsetof(struct uri, sim.late_cpu), 0},
    {"race", "0.1", OPTION_CHANCE, offsetof(struct uri, sim.race), 0},
};

enum { SIM_OPTIONS = sizeof(sim_options) / sizeof(sim_options[0]), VALUE_MAX = 32 };

/* Digits and one point: strtod takes much that is not meant. */
static bool parse_chance(const char *text, double *out)
{
    if (*text == '\0' || strspn(text, "0123456789.") != strlen(text))
        return false;
    char *end;
    *out = strtod(text, &end);
    return *end == '\0' && *out >= 0 && *out <= 1;
}

static bool set_option(const struct option *option, struct uri *uri, const char *value)
{
    void *member = (char *)uri + option->offset;
    uint64_t number;

    switch (option->type) {
    case OPTION_NIC:
        if (sim_nic_model(value) == NULL || strlen(value) >= sizeof(uri->sim.nic))
            return false;
        memcpy(member, value, strlen(value) + 1);
        return true;
    case OPTION_COUNT:
        if (parse_u64(value, &number) != PANDO_OK || number == 0 || number > option->max)
            return false;
        *(unsigned *)member = (unsigned)number;
        return true;
    case OPTION_U64:
        return parse_u64(value, member) == PANDO_OK;
    case OPTION_SIZE:
        return parse_size(value, member) == PANDO_OK;
    case OPTION_CHANCE:
        return parse_chance(value, member);
    case OPTION_BOOL:
        if (parse_u64(value, &number) != PANDO_OK || number > 1)
            return false;
        *(bool *)member = number == 1;
        return true;
    }
    return false;
}

static enum pando_status fail_value(struct parser *parser, const struct option *option,
                                    const char *value)
{
    switch (option->type) {
    case OPTION_NIC:
        return fail(parser, "nic=%s: no such model; use cx5, cx5-dex or cx6", value);
    case OPTION_COUNT:
        return fail(parser, "%s=%s: not a number from 1 to %llu; use for example %s=%s",
                    option->name, value, (unsigned long long)option->max, option->name,
                    option->example);
    case OPTION_CHANCE:
        return fail(parser, "%s=%s: not a chance from 0 to 1; use for example %s=%s", option->name,
                    value, option->name, option->example);
    case OPTION_BOOL:
        return fail(parser, "%s=%s: neither 0 nor 1", option->name, value);
    default:
        return fail(parser, "%s=%s: not a %s; use for example %s=%s", option->name, value,
                    option->type == OPTION_SIZE ? "size" : "number", option->name, option->example);
    }
}

static enum pando_status parse_option(struct parser *parser, const char *item, size_t size)
{
    size_t name_size = strcspn(item, "=,");
    char value[VALUE_MAX + 1];

    if (name_size == size)
        return fail(parser, "'%.*s' is not option=value; use for example sim:compute=8,seed=1",
                    (int)(size < URI_SHOWN_MAX ? size : URI_SHOWN_MAX), item);
    size_t value_size = size - name_size - 1;
    for (size_t i = 0; i < SIM_OPTIONS; i++) {
        const struct option *option = &sim_options[i];
        if (strlen(option->name) != name_size || memcmp(option->name, item, name_size) != 0)
            continue;
        snprintf(value, sizeof(value), "%.*s",
                 (int)(value_size < VALUE_MAX ? value_size : VALUE_MAX), item + name_size + 1);
        if (value_size > VALUE_MAX || !set_option(option, parser->uri, value))
            return fail_value(parser, option, value);
        return PANDO_OK;
    }
    return fail(parser,
                "'%.*s': no such option; there are nic, compute, memory, memory-threads, size, "
                "seed, onchip, embedded, shuffle, tear, spread, delay, late-cpu, race",
                (int)(name_size < VALUE_MAX ? name_size : VALUE_MAX), item);
}

static enum pando_status parse_sim(struct parser *parser, const char *rest)
{
    struct uri *uri = parser->uri;
    enum pando_status status = PANDO_OK;
    const char *item;
    size_t size;

    uri->memory = 1;
    uri->size_bytes = 64 << 20;
    uri->sim = (struct uri_sim){.nic = "cx5", .seed = 1, .memory_threads = 2, .onchip = true};
    if (*rest == '\0')
        return PANDO_OK;
    while (status == PANDO_OK && next_item(&rest, &item, &size))
        status = parse_option(parser, item, size);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct kind kinds[] = {
    [URI_EMBEDDED] = {"embedded", "embedded:1G", parse_embedded},
    [URI_SHM] = {"shm", "shm:demo", parse_shm},
    [URI_TCP] = {"tcp", "tcp:127.0.0.1:7000", parse_tcp},
    [URI_VERBS] = {"verbs", "verbs:10.0.0.1:7000", parse_verbs},
    [URI_SIM] = {"sim", "sim:nic=cx5,compute=8,memory=8,seed=1", parse_sim},
};

const char *uri_kind_name(enum uri_kind kind)
{
    return kinds[kind].name;
}

enum pando_status uri_parse(const char *text, struct uri *out, char *error, size_t error_bytes)
{
    struct uri uri = {.compute = 1};
    struct parser parser = {.text = text, .uri = &uri, .error = error, .error_bytes = error_bytes};
    size_t size = strcspn(text, ":");

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strlen(kinds[i].name) != size || memcmp(kinds[i].name, text, size) != 0)
            continue;
        if (text[size] == '\0')
            return fail(&parser, "nothing follows '%s'; use for example %s", kinds[i].name,
                        kinds[i].example);
        uri.kind = (enum uri_kind)i;
        enum pando_status status = kinds[i].parse(&parser, text + size + 1);
        if (status == PANDO_OK)
            *out = uri;
        return status;
    }
    return fail(&parser, "not a pool's name; use for example %s, %s, %s, %s or %s",
                kinds[0].example, kinds[1].example, kinds[2].example, kinds[3].example,
                kinds[4].example);
}
