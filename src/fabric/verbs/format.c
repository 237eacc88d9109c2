/*
 * format.c - verbs_fmt.h as code. The bytes come from a peer that knows the secret, and are checked
 * all the same.
 */
#include <string.h>

#include "fabric/session/wire.h"
#include "fabric/verbs/verbs_fmt.h"

enum { MTU_MIN = 1, MTU_MAX = 5, PSN_MAX = 0xffffff, NUMBER_MAX = 0xffffff };

void verbs_put_end(uint8_t *to, const struct verbs_end *end)
{
    memset(to, 0, VERBS_END_BYTES);
    memcpy(to, end->gid, sizeof(end->gid));
    wire_put_u32(to + 16, end->number);
    wire_put_u32(to + 20, end->first_psn);
    wire_put_u16(to + 24, end->lid);
    to[26] = end->mtu;
    to[27] = end->link;
    wire_put_u16(to + 28, end->credits);
    wire_put_u16(to + 30, end->packet_bytes);
    to[32] = end->atomics;
}

bool verbs_get_end(const uint8_t *from, struct verbs_end *out)
{
    struct verbs_end end = {
        .number = wire_get_u32(from + 16),
        .first_psn = wire_get_u32(from + 20),
        .lid = wire_get_u16(from + 24),
        .mtu = from[26],
        .link = from[27],
        .credits = wire_get_u16(from + 28),
        .packet_bytes = wire_get_u16(from + 30),
        .atomics = from[32],
    };
    memcpy(end.gid, from, sizeof(end.gid));
    if (end.number > NUMBER_MAX || end.first_psn > PSN_MAX || end.mtu < MTU_MIN ||
        end.mtu > MTU_MAX || end.credits == 0 || end.packet_bytes != VERBS_PACKET_BYTES ||
        (end.link != VERBS_LINK_INFINIBAND && end.link != VERBS_LINK_ETHERNET))
        return false;
    *out = end;
    return true;
}

void verbs_put_window(uint8_t *to, const struct verbs_remote_window *window)
{
    memset(to, 0, VERBS_WINDOW_BYTES);
    wire_put_u64(to, window->host_address);
    wire_put_u64(to + 8, window->device_address);
    wire_put_u32(to + 16, window->host_key);
    wire_put_u32(to + 20, window->device_key);
    to[24] = window->on_chip;
}

void verbs_get_window(const uint8_t *from, struct verbs_remote_window *out)
{
    *out = (struct verbs_remote_window){
        .host_address = wire_get_u64(from),
        .device_address = wire_get_u64(from + 8),
        .host_key = wire_get_u32(from + 16),
        .device_key = wire_get_u32(from + 20),
        .on_chip = from[24] != 0,
    };
}
