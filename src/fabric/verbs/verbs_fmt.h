/*
 * verbs_fmt.h - what the two ends of a queue pair tell each other: in the handshake over the socket,
 * and in packets (SENDs) of the queue pair itself. Little endian.
 *
 * Bytes of PROOF (40) and the first ones of WELCOME: one end of a queue pair.
 *      0 16  GID of the port
 *     16  4  number of the queue pair
 *     20  4  first packet sequence number it sends
 *     24  2  LID of the port; 0 on Ethernet
 *     26  1  path MTU, as enum ibv_mtu
 *     27  1  link: 1 InfiniBand, 2 Ethernet
 *     28  2  packets it has receives for
 *     30  2  bytes of a packet
 *     32  1  READs and atomics it can serve at a time
 *     33  7  zero
 * WELCOME goes on (32 more): where the window is.
 *     40  8  address of offset 0 of the host part (its first 32 KiB cannot be reached)
 *     48  8  address of the first byte of the device part
 *     56  4  rkey of the host part
 *     60  4  rkey of the device part
 *     64  1  1: the device part is in the card's own memory
 *     65  7  zero
 *
 * A packet: a header, and bytes of the stream of frames (CALL, FENCE, REPLY) in which a frame may
 * begin and end anywhere.
 *      0  2  bytes of the stream that follow
 *      2  2  credits: packets with bytes in them that the sender has taken and has receives for again
 *      4  4  zero
 */
#ifndef FABRIC_VERBS_VERBS_FMT_H
#define FABRIC_VERBS_VERBS_FMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VERBS_MAGIC 0x0042565244444e50u /* "PNDDRVB" */

enum {
    /* 5 had no passes in RETURN and SWEEP and no expected window in PROOF, 4 no figure of what waits
     * in USAGE, 3 fences without tickets */
    VERBS_VERSION = 6,
    VERBS_END_BYTES = 40,
    VERBS_WINDOW_BYTES = 32,

    VERBS_PACKET_BYTES = 4096,
    VERBS_PACKET_HEADER = 8,
    VERBS_PACKET_ROOM = VERBS_PACKET_BYTES - VERBS_PACKET_HEADER,
};

enum verbs_link { VERBS_LINK_INFINIBAND = 1, VERBS_LINK_ETHERNET = 2 };

struct verbs_end {
    uint8_t gid[16];
    uint32_t number;
    uint32_t first_psn; /* 24 bits */
    uint16_t lid;
    uint8_t mtu;
    uint8_t link;
    uint16_t credits;
    uint16_t packet_bytes;
    uint8_t atomics;
};

struct verbs_remote_window {
    uint64_t host_address, device_address;
    uint32_t host_key, device_key;
    bool on_chip;
};

void verbs_put_end(uint8_t *to, const struct verbs_end *end);
/* False: nothing a queue pair could be connected to. */
bool verbs_get_end(const uint8_t *from, struct verbs_end *out);

void verbs_put_window(uint8_t *to, const struct verbs_remote_window *window);
void verbs_get_window(const uint8_t *from, struct verbs_remote_window *out);

#endif
