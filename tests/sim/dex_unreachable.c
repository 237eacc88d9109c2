/*
 * The link between two members that both live is cut for good, as by a firewall. Each of them goes
 * on with all keys: an owner that is not reached for a lease is asked through the pool to give them
 * away, also if others are reached all the time. Nothing that was acknowledged is lost, no operation
 * takes longer than a few leases, and the log says once what happens.
 */
#include <unistd.h>

#include "owners/call_fmt.h"
#include "sim/dex_world.h"
#include "sim/numbered.h"
#include "tree/dex/dex_int.h"

enum { KEYS = 400, STEP = 20, TURNS = 6, CUT_BEFORE_TURN = 2, LONGEST_LEASES = 5, THIRD = 2 };

static struct world {
    struct dex_world place;
    struct fabric *third;
    unsigned turn; /* whose: the one's with that number, modulo 2 */
    bool ready[3], over;
    unsigned done, unknown;
    uint64_t forwarded, answered, longest_ns;
    uint64_t heir;
    uint64_t value[KEYS];
} world;

struct user {
    struct dex_member member;
    struct engine *engine;
    unsigned number;
};

static void took(uint64_t begin_ns)
{
    uint64_t took_ns = rt_now_ns() - begin_ns;
    world.longest_ns = took_ns > world.longest_ns ? took_ns : world.longest_ns;
    CHECK(took_ns < LONGEST_LEASES * LEASE_NS);
}

/* A change whose call was under way when the link was cut may have been made. */
static void put_co(struct user *self, uint64_t number, uint64_t value)
{
    uint64_t key, begin_ns = rt_now_ns();
    enum pando_status status;
    do {
        status = engine_put_co(self->engine, number_key(number, &key),
                               slice_of(&value, sizeof(value)), ENGINE_UPSERT);
        world.unknown += status == PANDO_UNKNOWN;
    } while (status == PANDO_UNKNOWN && world.unknown <= 2);
    CHECK_OK(status);
    took(begin_ns);
    world.value[number] = value;
}

static void check_co(struct user *self, uint64_t number)
{
    uint64_t key, value = 0, begin_ns = rt_now_ns();
    size_t size;
    CHECK_OK(engine_get_co(self->engine, number_key(number, &key), &value, sizeof(value), &size));
    CHECK_EQ_U64(value, world.value[number]);
    took(begin_ns);
}

static void wait_co(const bool *flag)
{
    while (!*flag)
        rt_sleep_co(LEASE_NS / 4);
}

/* The first makes the table and puts all keys, the others open it when it is there. */
static void begin_co(struct user *self, struct fabric *fabric, unsigned number)
{
    *self = (struct user){.number = number};
    if (number > 0)
        wait_co(&world.ready[0]);
    dex_join_co(fabric, &self->member);
    if (number == 0)
        CHECK_OK(engine_create_co(&dex_engine, self->member.session, "t", &number_shape));
    dex_attach_co(&self->member, &self->engine);
    for (uint64_t key = 0; key < KEYS && number == 0; key++)
        put_co(self, key, key);
}

/* ---- two that take turns --------------------------------------------------------------------- */

static void turn_co(struct user *self)
{
    for (uint64_t number = world.turn; number < KEYS; number += STEP) {
        check_co(self, number);
        put_co(self, number, number * 1000 + world.turn);
        check_co(self, KEYS - 1 - number);
    }
    engine_maintain_co(self->member.table, self->member.session);
}

static void cut(const struct fabric *a, const struct fabric *b)
{
    fabric_sim_cut(world.place.net, fabric_self(a), fabric_self(b));
}

static void turns_task(void *arg)
{
    struct user self;
    begin_co(&self, arg, arg == world.place.members[1]);
    world.ready[self.number] = true;
    wait_co(&world.ready[1]);
    while (world.turn < TURNS) {
        if (world.turn % 2 != self.number) {
            rt_sleep_co(LEASE_NS / 4);
            continue;
        }
        turn_co(&self);
        if (world.turn + 1 == CUT_BEFORE_TURN) {
            world.forwarded = atomic_load(&dex_of(self.engine)->table->owners.forwarded);
            cut(world.place.members[0], world.place.members[1]);
        }
        world.turn++;
    }
    for (uint64_t number = 0; number < KEYS && self.number == 0; number++)
        check_co(&self, number);
    world.done++;
    while (world.done < 2)
        rt_sleep_co(LEASE_NS / 4);
    dex_end_co(&self.member, self.engine);
}

static void run_turns(void)
{
    dex_world_build(&world.place, 5, 33);
    dex_world_run(&world.place, turns_task, turns_task);
    CHECK(world.done == 2 && world.turn == TURNS);
    CHECK(world.forwarded > 0); /* before the cut it was asked for keys */
}

/* ---- one that is reached and one that is not ------------------------------------------------- */

/* The first half of the keys stays the first one's, the other is given to the second. */
static void reached_task(void *arg)
{
    struct user self;
    uint64_t middle;
    begin_co(&self, arg, 0);
    world.ready[0] = true;
    wait_co(&world.ready[1]);
    const struct owners_range upper = {.low = number_key(KEYS / 2, &middle), .no_high = true};
    CHECK_OK(step_status(owners_give_co(&dex_of(self.engine)->owners, &upper, world.heir)));
    cut(world.place.members[1], world.third);
    world.ready[THIRD] = true;
    wait_co(&world.over);
    dex_end_co(&self.member, self.engine);
}

static void unreached_task(void *arg)
{
    struct user self;
    begin_co(&self, arg, 1);
    check_co(&self, KEYS - 1); /* knows the map */
    world.heir = owners_self(&dex_of(self.engine)->table->owners);
    world.ready[1] = true;
    wait_co(&world.over);
    dex_end_co(&self.member, self.engine);
}

/* Is answered all the time. */
static void busy_task(void *arg)
{
    while (!world.over) {
        check_co(arg, 0);
        world.answered++;
        rt_sleep_co(LEASE_NS / 20);
    }
}

static void third_task(void *arg)
{
    struct user self;
    begin_co(&self, arg, THIRD);
    wait_co(&world.ready[THIRD]);
    check_co(&self, 0);
    CHECK_OK(rt_spawn(rt_loop_self(), busy_task, &self));
    check_co(&self, KEYS - 1);
    put_co(&self, KEYS - 2, 1);
    check_co(&self, KEYS - 2);
    world.over = true;
    rt_sleep_co(LEASE_NS);
    CHECK(world.answered > 0);
    world.done++;
    dex_end_co(&self.member, self.engine);
}

static void run_third(void)
{
    world = (struct world){0};
    dex_world_build(&world.place, 6, 33);
    pool_world_add_client(world.place.net, 2, 1 << 20, 1, &world.third);
    CHECK_OK(rt_spawn(fabric_sim_loop(world.third, 0), third_task, world.third));
    dex_world_run(&world.place, reached_task, unreached_task);
    CHECK(world.done == 1);
}

/* ---- to and fro ------------------------------------------------------------------------------ */

enum { FRO_LEASES = 60, FRO_MIN = 20 };

/* Works on all keys all the time, as the other one does, which cannot be reached. */
static void hammer_co(struct user *self)
{
    uint64_t number = 0, end_ns = rt_now_ns() + FRO_LEASES * LEASE_NS;
    while (rt_now_ns() < end_ns) {
        uint64_t key, value = number, begin_ns = rt_now_ns();
        enum pando_status status = engine_put_co(self->engine, number_key(number, &key),
                                                 slice_of(&value, sizeof(value)), ENGINE_UPSERT);
        if (status != PANDO_UNKNOWN)
            CHECK_OK(status); /* the other may have done it */
        took(begin_ns);
        number = (number + 1) % KEYS;
    }
}

static void fro_task(void *arg)
{
    struct user self;
    begin_co(&self, arg, arg == world.place.members[1]);
    const struct owners *owners = &dex_of(self.engine)->table->owners;
    check_co(&self, KEYS - 1);
    world.ready[self.number] = true;
    wait_co(&world.ready[1 - self.number]);
    if (self.number == 0)
        cut(world.place.members[0], world.place.members[1]);
    uint64_t begun = atomic_load(&owners->given);
    hammer_co(&self);
    uint64_t given = atomic_load(&owners->given) - begun;
    printf("%u: gave all keys away %" PRIu64 " times in %d leases\n", self.number, given,
           FRO_LEASES);
    CHECK(given >= FRO_MIN && given <= FRO_LEASES + 1);
    world.done++;
    while (world.done < 2)
        rt_sleep_co(LEASE_NS / 4);
    dex_end_co(&self.member, self.engine);
}

/* Everything goes to and fro, but not more than once in a lease. */
static void run_to_and_fro(void)
{
    world = (struct world){0};
    dex_world_build(&world.place, 8, 33);
    dex_world_run(&world.place, fro_task, fro_task);
    CHECK(world.done == 2);
}

/* ---- what the log says ----------------------------------------------------------------------- */

static char log_path[] = "/tmp/pando-unreachable-XXXXXX";

static unsigned said(void)
{
    char line[LOG_LINE_MAX + 1];
    unsigned count = 0;
    FILE *log = fopen(log_path, "r");
    CHECK(log != NULL);
    while (fgets(line, sizeof(line), log) != NULL) {
        if (strstr(line, "cannot call a member") == NULL)
            continue;
        CHECK(strstr(line, " table=") != NULL && strstr(line, " member=") != NULL);
        CHECK(strstr(line, " at=sim:32768\n") != NULL); /* of the first one */
        count++;
    }
    fclose(log);
    return count;
}

static void give_all_co(struct user *self, uint64_t to)
{
    const struct owners_range all = {.no_high = true};
    CHECK_OK(step_status(owners_give_co(&dex_of(self->engine)->owners, &all, to)));
}

/* Until it answers: it is not tried to connect to it all the time. */
static void reach_co(struct user *self, uint64_t owner)
{
    uint16_t table = dex_of(self->engine)->owners.owners->id;
    while (pool_call_co(self->member.session, map_identity(owner), table, OWNERS_CALL_PING,
                        slice_of(NULL, 0), NULL, 0, NULL) != PANDO_OK)
        rt_sleep_co(LEASE_NS / 4);
}

/* It is said when the owner's heartbeat has been seen to move. */
static void await_said_co(unsigned times)
{
    for (unsigned i = 0; said() < times && i < 4; i++)
        rt_sleep_co(LEASE_NS / 2);
    CHECK_EQ_U64(said(), times);
}

/* The owner, which is cut off twice, and is called in between. */
static void owner_task(void *arg)
{
    struct user self;
    begin_co(&self, arg, 0);
    world.heir = owners_self(&dex_of(self.engine)->table->owners);
    world.ready[0] = true;
    wait_co(&world.over);
    dex_end_co(&self.member, self.engine);
}

/* Says once that the owner cannot be called, until it has answered again. */
static void caller_task(void *arg)
{
    struct user self;
    begin_co(&self, arg, 1);
    struct owners *owners = &dex_of(self.engine)->table->owners;
    for (unsigned times = 1; times <= 2; times++) {
        CHECK(!owners_owns(&dex_of(self.engine)->owners, slice_of(NULL, 0)));
        cut(world.place.members[0], world.place.members[1]);
        for (uint64_t number = 0; number < KEYS; number += STEP)
            check_co(&self, number);
        await_said_co(times);
        fabric_sim_heal(world.place.net, fabric_self(world.place.members[0]),
                        fabric_self(world.place.members[1]));
        reach_co(&self, world.heir);
        give_all_co(&self, world.heir);
        uint64_t forwarded = atomic_load(&owners->forwarded);
        check_co(&self, 0);
        CHECK(atomic_load(&owners->forwarded) > forwarded);
    }
    CHECK_EQ_U64(said(), 2);
    world.over = true;
    dex_end_co(&self.member, self.engine);
}

static void run_said(void)
{
    char error[256];
    int file = mkstemp(log_path);
    CHECK(file >= 0);
    close(file);
    world = (struct world){0};
    dex_world_build(&world.place, 7, 33);
    log_set_level(LOG_LEVEL_WARN);
    CHECK_OK(log_open_file(log_path, error, sizeof(error)));
    dex_world_run(&world.place, owner_task, caller_task);
    unlink(log_path);
}

int main(void)
{
    run_turns();
    run_third();
    run_to_and_fro();
    run_said();
    printf("slowest operation %.1f leases\n", (double)world.longest_ns / (double)LEASE_NS);
    return 0;
}
