/*
 * join.c - a server's way into the pool, which may come up after it.
 */
#include "server/server_int.h"

enum { PAUSE_MS = 100, PAUSE_MOST_MS = 2000 };

/* Nobody answers: that may pass. A wrong secret, another pool or another version do not. */
static bool may_pass(enum pando_status status)
{
    return status == PANDO_BROKEN || status == PANDO_TIMEOUT || status == PANDO_NOT_FOUND;
}

/* False: it is to stop. */
static bool pause_co(const struct server *server, uint64_t until_ns)
{
    while (!server_stopping(server) && rt_now_ns() < until_ns)
        (void)rt_park_co(until_ns);
    return !server_stopping(server);
}

void server_join_co(struct server *server, const struct env_place *place)
{
    struct store_options options = {.env = place->env,
                                    .fabric = place->fabric,
                                    .name = "pando serve",
                                    .cache_bytes = server->options.cache_bytes,
                                    .not_durable = server->options.not_durable};
    char error[SERVER_ERROR_BYTES] = "";
    uint64_t begin_ns = rt_now_ns(), pause_ns = PAUSE_MS * RT_NS_PER_MS;
    bool told = false;

    for (;;) {
        enum pando_status status = store_open_co(&options, &server->store, error, sizeof(error));
        if (status == PANDO_OK)
            return;
        server->store = NULL;
        uint64_t now_ns = rt_now_ns();
        if (!may_pass(status) || now_ns - begin_ns >= server->options.pool_wait_ns) {
            server_fail(server, status, error);
            return;
        }
        if (!told && server->waiting != NULL)
            server->waiting(server->waiting_context,
                            error[0] != '\0' ? error : pando_status_text(status));
        told = true;
        if (!pause_co(server, now_ns + pause_ns))
            return;
        pause_ns = pause_ns * 2 < PAUSE_MOST_MS * RT_NS_PER_MS ? pause_ns * 2
                                                               : PAUSE_MOST_MS * RT_NS_PER_MS;
    }
}
