/*
 * The names of pools: what they mean, and that a wrong one is answered with one helpful line.
 */
#include "store/uri.h"

#include "lib/check.h"

static struct uri uri;
static char error[256];

static void good(const char *text, enum uri_kind kind)
{
    enum pando_status status = uri_parse(text, &uri, error, sizeof(error));
    if (status != PANDO_OK)
        CHECK_FAIL("%s: %s", text, error);
    CHECK(uri.kind == kind);
}

/* Refused with one line that names the pool and contains `hint`; the output stays as it was. */
static void bad(const char *text, const char *hint)
{
    struct uri before;
    memset(&uri, 0x5a, sizeof(uri));
    memcpy(&before, &uri, sizeof(uri));
    error[0] = '\0';
    CHECK_STATUS(uri_parse(text, &uri, error, sizeof(error)), PANDO_INVALID);
    CHECK(memcmp(&before, &uri, sizeof(uri)) == 0);
    if (strstr(error, hint) == NULL)
        CHECK_FAIL("error for '%s' lacks '%s': %s", text, hint, error);
    CHECK(strncmp(error, "pool '", 6) == 0);
    CHECK(strchr(error, '\n') == NULL);
}

static void test_embedded(void)
{
    good("embedded:64M", URI_EMBEDDED);
    CHECK_EQ_U64(uri.size_bytes, 64 << 20);
    CHECK_EQ_U64(uri.memory, 1);
    CHECK_EQ_U64(uri.compute, 1);
    bad("embedded:", "embedded:1G");
    bad("embedded", "embedded:1G");
    bad("embedded:lots", "'lots' is not a size");
    bad("embedded:-1", "not a size");
    bad("embedded:99999999T", "not a size");
}

static void test_shm(void)
{
    good("shm:demo", URI_SHM);
    CHECK_EQ_U64(uri.memory, 1);
    CHECK_EQ_TEXT(uri.places[0], "demo");
    good("shm:a,/mnt/huge/b", URI_SHM);
    CHECK_EQ_U64(uri.memory, 2);
    CHECK_EQ_TEXT(uri.places[1], "/mnt/huge/b");
    bad("shm:", "shm:demo");
    bad("shm:a,,b", "memory node 1 has no name");
    bad("shm:a,", "memory node 1 has no name");
}

static void test_tcp(void)
{
    good("tcp:127.0.0.1:7000,[::1]:7001,host:7002", URI_TCP);
    CHECK_EQ_U64(uri.memory, 3);
    CHECK_EQ_TEXT(uri.places[0], "127.0.0.1:7000");
    CHECK_EQ_TEXT(uri.places[1], "[::1]:7001");
    CHECK_EQ_TEXT(uri.places[2], "host:7002");
    bad("tcp:", "tcp:127.0.0.1:7000");
    bad("tcp:host", "'host' is not host:port");
    bad("tcp:host:7000,other", "'other' is not host:port");
    bad("tcp:host:70000", "'host:70000' has a port over 65535");
    bad("tcp:host:0", "port 0");
}

static void test_verbs(void)
{
    good("verbs:10.0.0.1:7000,host:7002", URI_VERBS);
    CHECK_EQ_U64(uri.memory, 2);
    CHECK_EQ_TEXT(uri.places[1], "host:7002");
    CHECK_EQ_TEXT(uri_kind_name(uri.kind), "verbs");
    bad("verbs:", "verbs:10.0.0.1:7000");
    bad("verbs:rxe0", "'rxe0' is not host:port");
    bad("verbs:host:0", "port 0");
}

static void test_sim(void)
{
    good("sim:", URI_SIM);
    CHECK_EQ_TEXT(uri.sim.nic, "cx5");
    CHECK_EQ_U64(uri.memory, 1);
    CHECK_EQ_U64(uri.compute, 1);
    CHECK_EQ_U64(uri.size_bytes, 64 << 20);
    CHECK_EQ_U64(uri.sim.seed, 1);
    good("sim:nic=cx5-dex", URI_SIM);
    CHECK_EQ_TEXT(uri.sim.nic, "cx5-dex");
    good("sim:nic=cx6,compute=8,memory=4,seed=18446744073709551615,size=1G,memory-threads=3,"
         "tear=0.25,spread=1,delay=0,late-cpu=.5,race=0.125,shuffle=1",
         URI_SIM);
    CHECK_EQ_TEXT(uri.sim.nic, "cx6");
    CHECK_EQ_U64(uri.compute, 8);
    CHECK_EQ_U64(uri.memory, 4);
    CHECK_EQ_U64(uri.sim.seed, UINT64_MAX);
    CHECK_EQ_U64(uri.size_bytes, 1 << 30);
    CHECK_EQ_U64(uri.sim.memory_threads, 3);
    CHECK(uri.sim.tear == 0.25 && uri.sim.spread == 1 && uri.sim.delay == 0);
    CHECK(uri.sim.late_cpu == 0.5 && uri.sim.race == 0.125 && uri.sim.shuffle);
    bad("sim", "nothing follows");
    bad("sim:nic=cx9", "use cx5, cx5-dex or cx6");
    bad("sim:compute", "not option=value");
    bad("sim:compute=0", "from 1 to 256");
    bad("sim:memory=65", "from 1 to 64");
    bad("sim:computer=8", "no such option");
    bad("sim:seed=-1", "not a number");
    bad("sim:size=big", "not a size");
    bad("sim:tear=1.5", "chance from 0 to 1");
    bad("sim:tear=nan", "chance from 0 to 1");
    bad("sim:tear=", "chance from 0 to 1");
    bad("sim:tear=1e-1", "chance from 0 to 1");
    bad("sim:shuffle=yes", "neither 0 nor 1");
    bad("sim:seed=1,", "not option=value");
}

static void test_limits(void)
{
    char text[8192] = "shm:n0";
    for (int i = 1; i < URI_MEMORY_MAX; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ",n%d", i);
    good(text, URI_SHM);
    CHECK_EQ_U64(uri.memory, URI_MEMORY_MAX);
    strcat(text, ",more");
    bad(text, "more than 64 memory nodes");

    strcpy(text, "shm:");
    memset(text + 4, 'a', FABRIC_LOCATION_MAX);
    text[4 + FABRIC_LOCATION_MAX] = '\0';
    bad(text, "longer than");
    memset(text + 4, 'a', sizeof(text) - 5);
    text[sizeof(text) - 1] = '\0';
    bad(text, "longer than");
    CHECK(strlen(error) < sizeof(error) - 1);

    /* A small buffer is filled, never overrun. */
    char small[16];
    memset(small, 'x', sizeof(small));
    CHECK_STATUS(uri_parse("tcp:host", &uri, small, 8), PANDO_INVALID);
    CHECK(small[7] == '\0' && small[8] == 'x');
}

int main(void)
{
    test_embedded();
    test_shm();
    test_tcp();
    test_verbs();
    test_sim();
    test_limits();
    bad("", "not a pool's name");
    bad("127.0.0.1:7000", "tcp:127.0.0.1:7000");
    bad("rdma:host:1", "not a pool's name");
    bad("Embedded:1G", "not a pool's name");
    return 0;
}
