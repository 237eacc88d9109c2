/*
 * Which device, port and GID are meant; and what the two ends of a queue pair tell each other.
 */
#include "fabric/verbs/device.h"
#include "lib/check.h"

static char error[256];

static void good(const char *text, const char *name, unsigned port, int gid)
{
    struct device_choice choice;
    CHECK_OK(device_choice_parse(text, &choice, error, sizeof(error)));
    CHECK_EQ_TEXT(choice.name, name);
    CHECK(choice.port == port && choice.gid == gid);
}

static void bad(const char *text)
{
    struct device_choice choice;
    error[0] = '\0';
    CHECK_STATUS(device_choice_parse(text, &choice, error, sizeof(error)), PANDO_INVALID);
    CHECK(strstr(error, "for example mlx5_0/1,gid=3") != NULL && strchr(error, '\n') == NULL);
}

static void test_names(void)
{
    char longest[200];
    good(NULL, "", 0, -1);
    good("", "", 0, -1);
    good("rxe0", "rxe0", 0, -1);
    good("mlx5_0/2", "mlx5_0", 2, -1);
    good("mlx5_0,gid=3", "mlx5_0", 0, 3);
    good("mlx5_0/1,gid=0", "mlx5_0", 1, 0);
    bad("/1");
    bad(",gid=1");
    bad("rxe0/");
    bad("rxe0/0");
    bad("rxe0/256");
    bad("rxe0/x");
    bad("rxe0,gid=");
    bad("rxe0,gid=-1");
    bad("rxe0,gid=256");
    bad("rxe0,id=1");
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    bad(longest);
    longest[DEVICE_NAME_MAX] = '\0';
    bad(longest);
}

static struct ibv_gid_entry entry(const char *kind, uint32_t type)
{
    struct ibv_gid_entry entry = {.gid_type = type};
    if (strcmp(kind, "ipv4") == 0)
        entry.gid.raw[10] = entry.gid.raw[11] = 0xff;
    else
        entry.gid.raw[0] = strcmp(kind, "local") == 0 ? 0xfe : 0x20;
    entry.gid.raw[1] = 0x80;
    if (strcmp(kind, "ipv4") == 0)
        entry.gid.raw[1] = 0;
    return entry;
}

static void test_gids(void)
{
    struct ibv_gid_entry entries[] = {
        entry("ipv4", IBV_GID_TYPE_ROCE_V1),   entry("local", IBV_GID_TYPE_ROCE_V2),
        entry("global", IBV_GID_TYPE_ROCE_V2), entry("ipv4", IBV_GID_TYPE_ROCE_V2),
        entry("ipv4", IBV_GID_TYPE_ROCE_V2),
    };
    for (int count = 1; count <= 4; count++)
        CHECK(device_best_gid(entries, (size_t)count) == count - 1);
    CHECK(device_best_gid(entries, 5) == 3); /* the first of equals */
    CHECK(device_best_gid(entries, 0) == -1);
    entries[0].gid_type = IBV_GID_TYPE_IB;
    CHECK(device_best_gid(entries, 1) == -1);
}

static void test_format(void)
{
    struct verbs_end end = {.gid = {1, 2, 3},
                            .number = 0xabcdef,
                            .first_psn = 0xffffff,
                            .lid = 17,
                            .mtu = IBV_MTU_4096,
                            .link = VERBS_LINK_ETHERNET,
                            .credits = 8,
                            .packet_bytes = VERBS_PACKET_BYTES,
                            .atomics = 16};
    struct verbs_remote_window window = {.host_address = UINT64_MAX - 5,
                                         .device_address = 6,
                                         .host_key = UINT32_MAX,
                                         .device_key = 4,
                                         .on_chip = true};
    uint8_t bytes[VERBS_END_BYTES + VERBS_WINDOW_BYTES];
    struct verbs_end end_out;
    struct verbs_remote_window window_out;

    verbs_put_end(bytes, &end);
    verbs_put_window(bytes + VERBS_END_BYTES, &window);
    CHECK(verbs_get_end(bytes, &end_out));
    verbs_get_window(bytes + VERBS_END_BYTES, &window_out);
    CHECK(memcmp(end_out.gid, end.gid, 16) == 0 && end_out.number == end.number &&
          end_out.first_psn == end.first_psn && end_out.lid == 17 && end_out.mtu == end.mtu &&
          end_out.link == end.link && end_out.credits == 8 && end_out.atomics == 16);
    CHECK(window_out.host_address == window.host_address && window_out.device_address == 6 &&
          window_out.host_key == UINT32_MAX && window_out.device_key == 4 && window_out.on_chip);

    /* What no queue pair can be connected to: each byte of what matters, made impossible. */
    static const struct {
        unsigned at;
        uint8_t byte;
    } wrong[] = {{19, 1}, {23, 1}, {26, 0}, {26, 6}, {27, 0}, {27, 3}, {28, 0}, {30, 1}};
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        verbs_put_end(bytes, &end);
        bytes[wrong[i].at] = wrong[i].byte;
        CHECK(!verbs_get_end(bytes, &end_out));
    }
}

int main(void)
{
    test_names();
    test_gids();
    test_format();
    return 0;
}
