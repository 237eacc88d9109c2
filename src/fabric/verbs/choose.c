/*
 * choose.c - which device, port and GID are meant.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "fabric/verbs/device.h"

static enum pando_status fail(const char *text, char *error, size_t error_bytes)
{
    snprintf(error, error_bytes,
             "'%.64s' is no RDMA device; use NAME, NAME/PORT or NAME,gid=INDEX, for example "
             "mlx5_0/1,gid=3",
             text);
    return PANDO_INVALID;
}

enum pando_status device_choice_parse(const char *text, struct device_choice *out, char *error,
                                      size_t error_bytes)
{
    struct device_choice choice = {.gid = -1};
    char copy[DEVICE_NAME_MAX + 32];
    uint64_t number;

    if (text == NULL || *text == '\0') {
        *out = choice;
        return PANDO_OK;
    }
    if (strlen(text) >= sizeof(copy))
        return fail(text, error, error_bytes);
    memcpy(copy, text, strlen(text) + 1);
    char *gid = strchr(copy, ',');
    if (gid != NULL) {
        *gid++ = '\0';
        if (strncmp(gid, "gid=", 4) != 0 || parse_u64(gid + 4, &number) != PANDO_OK ||
            number >= DEVICE_GIDS_MAX)
            return fail(text, error, error_bytes);
        choice.gid = (int)number;
    }
    char *port = strchr(copy, '/');
    if (port != NULL) {
        *port++ = '\0';
        if (parse_u64(port, &number) != PANDO_OK || number == 0 || number > UINT8_MAX)
            return fail(text, error, error_bytes);
        choice.port = (uint8_t)number;
    }
    if (copy[0] == '\0' || strlen(copy) >= sizeof(choice.name))
        return fail(text, error, error_bytes);
    memcpy(choice.name, copy, strlen(copy) + 1);
    *out = choice;
    return PANDO_OK;
}

static bool is_ipv4(const union ibv_gid *gid)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

static bool is_link_local(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

static int gid_rank(const struct ibv_gid_entry *entry)
{
    if (entry->gid_type == IBV_GID_TYPE_ROCE_V1)
        return 1;
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
        return 0;
    return is_ipv4(&entry->gid) ? 4 : is_link_local(&entry->gid) ? 2 : 3;
}

int device_best_gid(const struct ibv_gid_entry *entries, size_t count)
{
    int best = -1;
    for (size_t i = 0; i < count; i++) {
        int rank = gid_rank(&entries[i]);
        if (rank > 0 && (best < 0 || rank > gid_rank(&entries[best])))
            best = (int)i;
    }
    return best;
}
