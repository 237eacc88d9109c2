/*
 * A pool's secret is changed while it runs: servers and clients read their files again, each at its own
 * time, and everybody gets in at every step who has one of the secrets that are in use. Connections that
 * stand go on. Over plain TCP and over TLS.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/tcp/tcp_int.h"
#include "lib/check.h"

enum { NODE = 1, HOST_BYTES = 4 * 1024 * 1024, TEXT_BYTES = 256 };

static const char old_secret[] = "the old secret of this pool";
static const char new_secret[] = "a new secret, of today";

static char folder[] = "/tmp/pando-reload-XXXXXX";
static bool over_tls;

static const char *path_of(const char *name)
{
    static char path[64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

/* Replaces the file: its lines are `first`, and `second` unless that is NULL. */
static void put_file(const char *name, const char *first, const char *second)
{
    FILE *file = fopen(path_of(name), "we");
    CHECK(file != NULL);
    CHECK(fprintf(file, "%s\n\n%s%s", first, second == NULL ? "" : second,
                  second == NULL ? "" : " \t\r\n") > 0);
    CHECK(fclose(file) == 0);
    CHECK(chmod(path_of(name), 0600) == 0);
}

static struct fabric *open_fabric(const char *file, bool listens)
{
    struct fabric_socket_options options = {
        .node = listens ? NODE : NODE + 1,
        .target = listens ? FABRIC_MEMORY : FABRIC_COMPUTE,
        .listen = listens ? "127.0.0.1:0" : NULL,
        .host_bytes = listens ? HOST_BYTES : 0,
        .secret_file = path_of(file),
        .tls = {.required = over_tls},
    };
    struct fabric *fabric;
    char error[TEXT_BYTES];
    CHECK_OK(fabric_tcp_open(&options, &fabric, error, sizeof(error)));
    return fabric;
}

static void reload(struct fabric *fabric, const char *expected)
{
    char text[TEXT_BYTES];
    CHECK_OK(fabric_reload(fabric, text, sizeof(text)));
    CHECK_EQ_TEXT(text, expected);
}

struct world {
    struct fabric *server, *client,
        *late; /* the late one still has the old file when others have not */
};

static void expect_co(struct fabric *client, enum pando_status expected)
{
    struct fabric_endpoint *endpoint;
    char trouble[TEXT_BYTES];
    enum pando_status status = fabric_connect_co(client, NODE, &endpoint);
    CHECK_STATUS(status, expected);
    fabric_connect_error(client, NODE, trouble, sizeof(trouble));
    CHECK((strstr(trouble, "wrong secret") != NULL) == (expected == PANDO_DENIED));
    if (status == PANDO_OK)
        fabric_disconnect_co(endpoint);
}

static void works_co(struct fabric_endpoint *endpoint)
{
    uint64_t word;
    struct fabric_op read = fabric_read(1 << 20, &word, sizeof(word));
    CHECK_OK(fabric_submit_co(endpoint, &read, 1));
}

static void change_co(void *arg)
{
    struct world *world = arg;
    struct fabric_endpoint *standing;

    CHECK_OK(fabric_connect_co(world->client, NODE, &standing));
    expect_co(world->late, PANDO_OK);

    /* 1: the server accepts both. */
    put_file("server", old_secret, new_secret);
    reload(world->server, "2 secrets, the first is shown to others");
    expect_co(world->client, PANDO_OK);
    /* 2: a client shows the new one; the late one the old one still. */
    put_file("client", new_secret, NULL);
    reload(world->client, "1 secret");
    expect_co(world->client, PANDO_OK);
    expect_co(world->late, PANDO_OK);
    /* 3: the old one is of no use any more. */
    put_file("server", new_secret, NULL);
    reload(world->server, "1 secret");
    expect_co(world->client, PANDO_OK);
    expect_co(world->late, PANDO_DENIED);
    works_co(standing);
    fabric_disconnect_co(standing);
}

/* A file that cannot be used changes nothing, and says why. */
static void unusable_co(void *arg)
{
    struct world *world = arg;
    char text[TEXT_BYTES];

    put_file("server", new_secret, "short");
    CHECK_EQ_U64(fabric_reload(world->server, text, sizeof(text)), PANDO_INVALID);
    CHECK(strstr(text, "shorter than 16 bytes") != NULL);
    CHECK(chmod(path_of("server"), 0644) == 0);
    CHECK_EQ_U64(fabric_reload(world->server, text, sizeof(text)), PANDO_DENIED);
    CHECK(unlink(path_of("server")) == 0);
    CHECK_EQ_U64(fabric_reload(world->server, text, sizeof(text)), PANDO_NOT_FOUND);
    CHECK(strstr(text, strerror(ENOENT)) != NULL);
    expect_co(world->client, PANDO_OK);
}

static void run(void (*test)(void *), struct world *world)
{
    struct rt_loop *loop = rt_loop_create();
    CHECK(loop != NULL);
    CHECK_OK(rt_spawn(loop, test, world));
    rt_loop_run(loop);
    rt_loop_destroy(loop);
}

static void test(bool tls)
{
    over_tls = tls;
    put_file("server", old_secret, NULL);
    put_file("client", old_secret, NULL);
    put_file("late", old_secret, NULL);
    struct world world = {.server = open_fabric("server", true),
                          .client = open_fabric("client", false),
                          .late = open_fabric("late", false)};
    CHECK_OK(fabric_tcp_start(world.server));
    CHECK_OK(fabric_add_peer(world.client, NODE, FABRIC_MEMORY, fabric_location(world.server)));
    CHECK_OK(fabric_add_peer(world.late, NODE, FABRIC_MEMORY, fabric_location(world.server)));
    run(change_co, &world);
    run(unusable_co, &world);
    fabric_close(world.client);
    fabric_close(world.late);
    fabric_close(world.server);
}

static void test_too_many(void)
{
    struct secrets *secrets;
    char error[TEXT_BYTES];
    FILE *file = fopen(path_of("many"), "we");
    CHECK(file != NULL);
    for (int i = 0; i <= SECRETS_MAX; i++)
        CHECK(fprintf(file, "secret number %d of many\n", i) > 0);
    CHECK(fclose(file) == 0);
    CHECK(chmod(path_of("many"), 0600) == 0);
    CHECK_EQ_U64(secrets_load(path_of("many"), &secrets, error, sizeof(error)), PANDO_TOO_LARGE);
    CHECK(strstr(error, "more than 8 lines") != NULL);
    CHECK(unlink(path_of("many")) == 0);
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
    log_set_level(LOG_LEVEL_ERROR);
    test(false);
    test(true);
    test_too_many();
    CHECK(unlink(path_of("client")) == 0 && unlink(path_of("late")) == 0);
    CHECK(rmdir(folder) == 0);
    return 0;
}
