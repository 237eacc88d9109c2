/*
 * A client for cluster tests: writes keys and says of each when it was acknowledged, or checks that keys
 * are there.
 *
 *   cluster_kv_client URI SECRET write FIRST STEP COUNT   prints "KEY MILLISECONDS" per acknowledged put
 *   cluster_kv_client URI SECRET verify                   reads keys on stdin, exits 1 if one is missing
 *   cluster_kv_client URI SECRET create
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine.h"
#include "store/engines.h"
#include "store/env.h"

enum { TASKS = 8 };

struct client {
    const char *mode;
    uint64_t first, step, count;
    unsigned memory_nodes;
    struct engine *engine;
    uint64_t next;
    int running;
    int result;
};

static void fail(struct client *client, const char *what, enum pando_status status)
{
    fprintf(stderr, "kv_client: %s: %s\n", what, pando_status_text(status));
    client->result = 1;
}

static void key_of(uint64_t number, uint8_t key[8])
{
    uint64_t word = __builtin_bswap64(number);
    memcpy(key, &word, 8);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_task(void *arg)
{
    struct client *client = arg;
    while (client->next < client->count && client->result == 0) {
        uint64_t number = client->first + client->next++ * client->step;
        uint64_t value = ~number;
        uint8_t key[8];
        key_of(number, key);
        enum pando_status status =
            engine_put_co(client->engine, slice_of(key, 8), slice_of(&value, 8), ENGINE_UPSERT);
        if (status != PANDO_OK) {
            fail(client, "put", status);
            break;
        }
        printf("%" PRIu64 " %" PRIu64 "\n", number, rt_now_ns() / RT_NS_PER_MS);
    }
    client->running--;
}

static void write_co(struct client *client)
{
    for (int i = 0; i < TASKS; i++) {
        if (rt_spawn(rt_loop_self(), write_task, client) == PANDO_OK)
            client->running++;
    }
    while (client->running > 0)
        rt_sleep_co(RT_NS_PER_MS);
}

/* ---- checking -------------------------------------------------------------------------------- */

static void verify_co(struct client *client)
{
    uint64_t number, checked = 0;
    while (scanf("%" SCNu64 "%*[^\n]", &number) == 1) {
        uint8_t key[8];
        uint64_t value = 0;
        size_t size = 0;
        key_of(number, key);
        enum pando_status status =
            engine_get_co(client->engine, slice_of(key, 8), &value, sizeof(value), &size);
        if (status != PANDO_OK || size != 8 || value != ~number) {
            fprintf(stderr, "kv_client: key %" PRIu64 " is lost: %s\n", number,
                    pando_status_text(status));
            client->result = 1;
        }
        checked++;
    }
    printf("%" PRIu64 " keys checked\n", checked);
}

/* ---- joining --------------------------------------------------------------------------------- */

static void session_co(struct client *client, struct pool_session *session)
{
    const struct engine_ops *ops = store_engine("sherman");
    struct engine_config config = {0};
    struct engine_table *table;
    char error[256] = "";

    if (strcmp(client->mode, "create") == 0) {
        struct engine_shape shape = {
            .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8};
        enum pando_status status = engine_create_co(ops, session, "test", &shape);
        if (status != PANDO_OK)
            fail(client, "create", status);
        return;
    }
    enum pando_status status =
        engine_open_co(ops, session, "test", &config, &table, error, sizeof(error));
    if (status != PANDO_OK) {
        fail(client, error, status);
        return;
    }
    status = engine_attach_co(table, session, &client->engine);
    if (status != PANDO_OK) {
        fail(client, "attach", status);
    } else {
        if (strcmp(client->mode, "write") == 0)
            write_co(client);
        else
            verify_co(client);
        engine_detach_co(client->engine);
    }
    engine_close_co(table, session);
}

static void main_co(void *context, const struct env_place *place)
{
    struct client *client = context;
    struct pool_options options = {.memory_nodes = (uint16_t)client->memory_nodes,
                                   .name = "kv_client"};
    struct pool *pool;
    struct pool_session *session;
    char error[256];

    enum pando_status status = pool_join_co(place->fabric, &options, &pool, error, sizeof(error));
    if (status != PANDO_OK) {
        fail(client, error, status);
        return;
    }
    status = pool_session_open_co(pool, &session);
    if (status == PANDO_OK) {
        session_co(client, session);
        pool_session_close_co(session);
    } else {
        fail(client, "session", status);
    }
    pool_leave_co(pool);
}

int main(int argc, char **argv)
{
    struct client client = {0};
    struct env *env;
    char error[256];

    if (argc != 4 && argc != 7) {
        fprintf(stderr, "see the head of kv_client.c\n");
        return 2;
    }
    log_set_level(LOG_LEVEL_ERROR);
    setvbuf(stdout, NULL, _IOLBF, 0); /* what was acknowledged is known even after kill -9 */
    client.mode = argv[3];
    if (argc == 7) {
        client.first = strtoull(argv[4], NULL, 10);
        client.step = strtoull(argv[5], NULL, 10);
        client.count = strtoull(argv[6], NULL, 10);
    }
    struct env_options options = {.uri = argv[1], .secret_file = argv[2]};
    if (env_open(&options, &env, error, sizeof(error)) != PANDO_OK) {
        fprintf(stderr, "kv_client: %s\n", error);
        return 1;
    }
    client.memory_nodes = env_memory_nodes(env);
    enum pando_status status = env_run(env, 1, main_co, &client);
    if (status != PANDO_OK)
        fail(&client, "run", status);
    env_close(env);
    return client.result;
}
