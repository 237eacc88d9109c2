#include <stdlib.h>

#include "server/net/client.h"

enum {
    LINGERING_MAX = 64, /* of a thread */
    BUFFER_BYTES = 64 * 1024,
    TURN_READS = 16,                   /* until others have their turn */
    TRUSTED_BYTES_MAX = 1024 << 20,    /* as much as two values of the largest size */
    UNTRUSTED_BYTES_MAX = 1024 * 1024, /* before the password was given */
};

static const uint64_t QUIET_NS = 2 * RT_NS_PER_S; /* without a byte */
static const uint64_t WHOLE_NS = 5 * RT_NS_PER_S; /* and the time that what came takes at */
static const uint64_t BYTES_PER_S = 20 << 20;     /* this rate */

static void wait_co(struct client *client, uint64_t until_ns)
{
    client->waiter = rt_task_self();
    rt_fd_change(client->thread->loop, &client->io, RT_READABLE);
    (void)rt_park_co(until_ns);
    client->waiter = NULL;
}

static void discard_co(struct client *client, uint8_t *buffer)
{
    uint64_t most = client->user == USER_NONE ? UNTRUSTED_BYTES_MAX : TRUSTED_BYTES_MAX;
    uint64_t begin_ns = rt_now_ns(), last_ns = begin_ns, taken = 0;
    for (unsigned reads = 1; client->watched && taken < most; reads++) {
        uint64_t now_ns = rt_now_ns();
        ssize_t got = stream_read(&client->stream, buffer, BUFFER_BYTES);
        uint64_t limit_ns = WHOLE_NS + taken * RT_NS_PER_S / BYTES_PER_S;
        if (got < 0 || now_ns - begin_ns > limit_ns || server_stopping(client->thread->server))
            return;
        if (got > 0) {
            taken += (uint64_t)got;
            last_ns = now_ns;
            if (reads % TURN_READS == 0)
                rt_yield_co();
            continue;
        }
        if (now_ns - last_ns > QUIET_NS)
            return;
        uint64_t quiet_ns = last_ns + QUIET_NS + 1, end_ns = begin_ns + limit_ns + 1;
        wait_co(client, quiet_ns < end_ns ? quiet_ns : end_ns);
    }
}

void client_linger_co(struct client *client)
{
    struct server_thread *thread = client->thread;
    uint8_t *buffer;
    if (!client->watched || thread->lingering >= LINGERING_MAX)
        return;
    if (client->input != NULL) { /* it may be large */
        input_give(thread, client->input);
        client->input = NULL;
    }
    buffer = malloc(BUFFER_BYTES);
    if (buffer == NULL)
        return;
    if (!client->tls)
        socket_end_writing(client->stream.fd);
    thread->lingering++;
    discard_co(client, buffer);
    thread->lingering--;
    free(buffer);
}
