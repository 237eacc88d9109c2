/*
 * engine_switches.c - what `with` and `without` of a table's configuration may name, and what they set.
 */
#include <stddef.h>
#include <string.h>

#include "engine/engine.h"
#include "lib/check.h"

struct on {
    bool cache, log, eager, small;
};

static const struct engine_switch switches[] = {
    {.name = "cache", .offset = offsetof(struct on, cache)},
    {.name = "break-log", .offset = offsetof(struct on, log)},
    {.name = "eager", .offset = offsetof(struct on, eager), .usually_off = true},
    {.name = "small", .offset = offsetof(struct on, small), .usually_off = true},
};
enum { SWITCHES = sizeof(switches) / sizeof(switches[0]) };

static const struct engine_ops ops = {
    .name = "toy", .switches = switches, .switch_count = SWITCHES};

static struct on parse(const char *without, const char *with)
{
    struct on on = {.small = true};
    char error[256] = "";
    const struct engine_config config = {.without = without, .with = with};
    CHECK_OK(engine_switches_parse(&ops, &on, &config, error, sizeof(error)));
    CHECK(error[0] == '\0');
    return on;
}

static void refuse(const char *without, const char *with, const char *expected)
{
    struct on on = {.small = true};
    char error[256] = "";
    const struct engine_config config = {.without = without, .with = with};
    CHECK(engine_switches_parse(&ops, &on, &config, error, sizeof(error)) == PANDO_INVALID);
    if (strcmp(error, expected) != 0)
        printf("%s\n", error);
    CHECK(strcmp(error, expected) == 0);
    CHECK(on.small && !on.cache); /* nothing was set */
}

int main(void)
{
    struct on on = parse(NULL, NULL);
    CHECK(on.cache && on.log && !on.eager && !on.small);
    on = parse("", ",");
    CHECK(on.cache && on.log && !on.eager && !on.small);
    on = parse("cache,break-log", NULL);
    CHECK(!on.cache && !on.log && !on.eager && !on.small);
    on = parse("cache", "small");
    CHECK(!on.cache && on.log && !on.eager && on.small);
    on = parse(NULL, "small,,eager,small");
    CHECK(on.cache && on.eager && on.small);

    refuse("cache,+eager", NULL, "'+eager' switches something on; use --with eager");
    refuse("+frob", NULL, "'+frob' switches something on; use --with frob");
    refuse("eager", NULL, "'eager' is off anyway; --with switches it on");
    refuse(NULL, "cache", "'cache' is on anyway; --without switches it off");
    refuse("frob", NULL, "toy has no technique 'frob'; it has cache");
    refuse("cach", NULL, "toy has no technique 'cach'; it has cache");
    refuse(NULL, "small,frob", "toy has no technique 'frob' to switch on; it has eager, small");
    refuse(NULL, "+small", "toy has no technique '+small' to switch on; it has eager, small");

    char error[256] = "";
    CHECK(engine_switches_check("a toy", switches, 1, "small", true, error, sizeof(error)) ==
          PANDO_INVALID);
    CHECK(strcmp(error, "a toy has nothing to switch on") == 0);
    return 0;
}
