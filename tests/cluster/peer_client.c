/*
 * A member for the tests of calls between members.
 *
 *   cluster_peer_client URI SECRET answer [LISTEN [ADVERTISE]]
 *       joins, prints "member M incarnation I at LOCATION", and answers until its input ends
 *   cluster_peer_client URI SECRET call MEMBER INCARNATION COUNT PAUSE_MS
 *       calls so often; prints "STATUS: N calls, the longest MS ms" for each run of equal statuses
 *   cluster_peer_client URI SECRET members
 *       prints "MEMBER INCARNATION STATE" of each
 *   cluster_peer_client LOCATION SECRET knock NODE
 *       connects there as a stranger; prints the status
 *
 * PEER_CLIENT_CA, PEER_CLIENT_CERT, PEER_CLIENT_KEY: files for TLS. PEER_CLIENT_REQUIRE_TLS: knocks with TLS
 * on loopback, too.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/tcp/tcp.h"
#include "pool/pool.h"
#include "store/env.h"

enum { TABLE = 3, METHOD_BACK = 1, METHOD_PLUS = 2 };

struct client {
    int argc;
    char **argv;
    unsigned memory_nodes;
    struct pool *pool;
    struct pool_session *session;
    int result;
};

static uint64_t number_of(const struct client *client, int index)
{
    return strtoull(client->argv[index], NULL, 10);
}

/* BACK is answered by calling the caller for PLUS. */
static enum pando_status answer(void *context, struct pool_session *session,
                                struct fabric_request *request)
{
    uint64_t word;
    (void)context;
    if (request->body.size != sizeof(word))
        return PANDO_INVALID;
    if (request->method == METHOD_BACK)
        return pool_call_co(session, request->from, TABLE, METHOD_PLUS, request->body,
                            request->reply, POOL_CALL_BYTES_MAX, &request->reply_size);
    memcpy(&word, request->body.data, sizeof(word));
    word++;
    memcpy(request->reply, &word, sizeof(word));
    request->reply_size = sizeof(word);
    return PANDO_OK;
}

static void read_to_end(void *arg)
{
    char byte;
    (void)arg;
    while (read(0, &byte, 1) > 0)
        ;
}

static void answer_co(struct client *client)
{
    struct fabric_identity identity = pool_identity(client->pool);
    printf("member %u incarnation %u at %s\n", identity.member, identity.incarnation,
           fabric_location(pool_fabric(client->pool)));
    if (rt_blocking_co(read_to_end, NULL) != PANDO_OK || pool_fenced(client->pool))
        client->result = 1;
}

static enum pando_status call_once_co(struct client *client, struct fabric_identity to,
                                      uint64_t word)
{
    uint64_t reply = 0;
    uint32_t size = 0;
    enum pando_status status =
        pool_call_co(client->session, to, TABLE, METHOD_BACK, slice_of(&word, sizeof(word)), &reply,
                     sizeof(reply), &size);
    if (status == PANDO_OK && (size != sizeof(reply) || reply != word + 1)) {
        fprintf(stderr, "peer_client: a wrong reply\n");
        client->result = 1;
    }
    return status;
}

static void call_co(struct client *client)
{
    struct fabric_identity to = {.member = (uint16_t)number_of(client, 4),
                                 .incarnation = (uint16_t)number_of(client, 5)};
    uint64_t count = number_of(client, 6), pause_ms = number_of(client, 7);
    uint64_t run = 0, longest_ns = 0;
    enum pando_status last = PANDO_OK;

    for (uint64_t i = 0; i < count; i++) {
        uint64_t begin_ns = rt_now_ns();
        enum pando_status status = call_once_co(client, to, i);
        uint64_t took_ns = rt_now_ns() - begin_ns;
        if (run > 0 && status != last) {
            printf("%s: %" PRIu64 " calls, the longest %" PRIu64 " ms\n", pando_status_text(last),
                   run, longest_ns / RT_NS_PER_MS);
            run = longest_ns = 0;
        }
        last = status;
        run++;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
        if (pause_ms > 0)
            rt_sleep_co(pause_ms * RT_NS_PER_MS);
    }
    printf("%s: %" PRIu64 " calls, the longest %" PRIu64 " ms\n", pando_status_text(last), run,
           longest_ns / RT_NS_PER_MS);
}

static void members_co(struct client *client)
{
    static struct pool_member members[POOL_MEMBERS];
    unsigned count = 0;
    if (pool_members_co(client->session, members, POOL_MEMBERS, &count) != PANDO_OK)
        client->result = 1;
    for (unsigned i = 0; i < count; i++)
        printf("%u %u %d\n", members[i].member, members[i].beat.incarnation,
               (int)members[i].beat.state);
}

static void session_co(struct client *client)
{
    const char *mode = client->argv[3];
    if (pool_answer(client->pool, TABLE, answer, NULL) != PANDO_OK)
        client->result = 1;
    else if (strcmp(mode, "answer") == 0)
        answer_co(client);
    else if (strcmp(mode, "members") == 0)
        members_co(client);
    else
        call_co(client);
    pool_answer_stop_co(client->pool, TABLE);
}

static void main_co(void *context, const struct env_place *place)
{
    struct client *client = context;
    struct pool_options options = {.memory_nodes = (uint16_t)client->memory_nodes,
                                   .name = "peer_client"};
    char error[256] = "cannot open a session";

    client->result = 1;
    if (pool_join_co(place->fabric, &options, &client->pool, error, sizeof(error)) != PANDO_OK) {
        fprintf(stderr, "peer_client: %s\n", error);
        return;
    }
    if (pool_session_open_co(client->pool, &client->session) == PANDO_OK) {
        client->result = 0;
        session_co(client);
        pool_session_close_co(client->session);
    }
    pool_leave_co(client->pool);
}

/* ---- a stranger ------------------------------------------------------------------------------ */

struct knock {
    struct fabric *fabric;
    uint16_t node;
};

static void knock_main(void *arg)
{
    struct knock *knock = arg;
    struct fabric_endpoint *endpoint;
    enum pando_status status = fabric_connect_co(knock->fabric, knock->node, &endpoint);
    printf("%s\n", pando_status_text(status));
    if (status == PANDO_OK)
        fabric_disconnect_co(endpoint);
}

static int knock(char **argv)
{
    struct fabric_socket_options options = {
        .node = FABRIC_NODE_UNKNOWN,
        .secret_file = argv[2],
        .tls = {.required = getenv("PEER_CLIENT_REQUIRE_TLS") != NULL},
    };
    struct knock knock = {.node = (uint16_t)strtoul(argv[4], NULL, 0)};
    struct rt_thread *thread;
    char error[256] = "";

    if (fabric_tcp_open(&options, &knock.fabric, error, sizeof(error)) != PANDO_OK ||
        fabric_add_peer(knock.fabric, knock.node, FABRIC_COMPUTE, argv[1]) != PANDO_OK ||
        rt_thread_start("knock", knock_main, &knock, &thread) != PANDO_OK) {
        fprintf(stderr, "peer_client: cannot knock %s\n", error);
        return 1;
    }
    rt_thread_join(thread);
    fabric_close(knock.fabric);
    return 0;
}

int main(int argc, char **argv)
{
    struct client client = {.argc = argc, .argv = argv};
    struct env *env;
    char error[256];

    if (argc < 4 || (strcmp(argv[3], "call") == 0 && argc != 8)) {
        fprintf(stderr, "see the head of peer_client.c\n");
        return 2;
    }
    log_set_level(LOG_LEVEL_INFO);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(argv[3], "knock") == 0)
        return knock(argv);
    bool answers = strcmp(argv[3], "answer") == 0;
    struct env_options options = {
        .uri = argv[1],
        .secret_file = argv[2],
        .tls_ca = getenv("PEER_CLIENT_CA"),
        .tls_cert = getenv("PEER_CLIENT_CERT"),
        .tls_key = getenv("PEER_CLIENT_KEY"),
        .peer_listen = answers && argc > 4 ? argv[4] : NULL,
        .peer_advertise = answers && argc > 5 ? argv[5] : NULL,
    };
    if (env_open(&options, &env, error, sizeof(error)) != PANDO_OK) {
        fprintf(stderr, "peer_client: %s\n", error);
        return 1;
    }
    client.memory_nodes = env_memory_nodes(env);
    if (env_run(env, 1, main_co, &client) != PANDO_OK)
        client.result = 1;
    env_close(env);
    return client.result;
}
