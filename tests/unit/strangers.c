/*
 * Strangers at a port: one address has a quarter of the places and its oldest gives way, then the oldest
 * of all does; who has left or was evicted is not among them.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/stream/strangers.h"
#include "fabric/stream/stream.h"
#include "lib/check.h"
#include "rt/rt.h"

enum { PLACES = 16, SHARE = 4, ADDRESSES = 10, EACH = 6 };

static int listener;
static struct sockaddr_in listening;

struct visitor {
    struct stranger stranger;
    int here, there; /* the two ends of a connection */
};

static struct visitor visitors[ADDRESSES][EACH];

static void visitor_arrives(struct strangers *strangers, unsigned address, unsigned number)
{
    struct visitor *visitor = &visitors[address][number];
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK + address)};
    *visitor = (struct visitor){.there = socket(AF_INET, SOCK_STREAM, 0)};
    CHECK(bind(visitor->there, (struct sockaddr *)&from, sizeof(from)) == 0);
    CHECK(connect(visitor->there, (struct sockaddr *)&listening, sizeof(listening)) == 0);
    visitor->here = accept(listener, NULL, NULL);
    CHECK(visitor->here >= 0);
    strangers_enter(strangers, &visitor->stranger, visitor->here);
}

/* What somebody who serves it would read. */
static bool was_evicted(const struct visitor *visitor)
{
    char byte;
    return recv(visitor->here, &byte, 1, MSG_DONTWAIT) == 0;
}

static void visitor_goes(struct strangers *strangers, struct visitor *visitor)
{
    bool there = visitor->stranger.origin != NULL;
    CHECK(was_evicted(visitor) == !there);
    CHECK(strangers_leave(strangers, &visitor->stranger) == there);
    CHECK(!strangers_leave(strangers, &visitor->stranger));
    close(visitor->here);
    close(visitor->there);
}

static void one_address(struct strangers *strangers)
{
    for (unsigned i = 0; i < EACH; i++)
        visitor_arrives(strangers, 0, i);
    for (unsigned i = 0; i < EACH; i++)
        CHECK(was_evicted(&visitors[0][i]) == (i < EACH - SHARE));
    CHECK_EQ_U64(strangers_evicted(strangers), EACH - SHARE);
    /* Another one's visitor costs it nothing. */
    visitor_arrives(strangers, 1, 0);
    CHECK_EQ_U64(strangers_evicted(strangers), EACH - SHARE);
    CHECK(!was_evicted(&visitors[1][0]));
    visitor_goes(strangers, &visitors[1][0]);
    for (unsigned i = 0; i < EACH; i++)
        visitor_goes(strangers, &visitors[0][i]);
    CHECK(!strangers_evict(strangers));
}

static void all_places(struct strangers *strangers)
{
    uint64_t before = strangers_evicted(strangers);
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned address = 0; address < ADDRESSES; address++)
            visitor_arrives(strangers, address, i);
    }
    CHECK_EQ_U64(strangers_evicted(strangers) - before, 2 * ADDRESSES - PLACES);
    for (unsigned address = 0; address < ADDRESSES; address++) {
        CHECK(was_evicted(&visitors[address][0]) == (address < 2 * ADDRESSES - PLACES));
        CHECK(!was_evicted(&visitors[address][1]));
    }
    /* Descriptors are short: the oldest that is left. */
    CHECK(strangers_evict(strangers));
    CHECK(was_evicted(&visitors[2 * ADDRESSES - PLACES][0]));
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned address = 0; address < ADDRESSES; address++)
            visitor_goes(strangers, &visitors[address][i]);
    }
    CHECK(!strangers_evict(strangers));
}

static void test(void *arg)
{
    struct strangers *strangers = strangers_create("test", PLACES);
    (void)arg;
    CHECK(strangers != NULL);
    for (int round = 0; round < 3; round++) {
        uint64_t before = strangers_evicted(strangers);
        if (round == 0)
            one_address(strangers);
        all_places(strangers);
        CHECK(strangers_evicted(strangers) > before);
    }
    strangers_destroy(strangers);
}

/* One place is the least, and it is always the newest one's. */
static void one_place(void *arg)
{
    struct strangers *strangers = strangers_create("test", 1);
    (void)arg;
    CHECK(strangers != NULL);
    for (unsigned i = 0; i < EACH; i++)
        visitor_arrives(strangers, i % 2, i);
    for (unsigned i = 0; i < EACH; i++) {
        CHECK(was_evicted(&visitors[i % 2][i]) == (i < EACH - 1));
        visitor_goes(strangers, &visitors[i % 2][i]);
    }
    strangers_destroy(strangers);
}

static void run(void (*what)(void *))
{
    struct rt_loop *loop = rt_loop_create();
    CHECK(loop != NULL);
    CHECK_OK(rt_loop_call(loop, what, NULL));
    rt_loop_destroy(loop);
}

int main(void)
{
    socklen_t size = sizeof(listening);
    log_set_level(LOG_LEVEL_ERROR);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    listening =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    CHECK(bind(listener, (struct sockaddr *)&listening, size) == 0 && listen(listener, 64) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&listening, &size) == 0);
    run(test);
    run(one_place);
    close(listener);
    return 0;
}
