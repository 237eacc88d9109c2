/*
 * peers.c - where other nodes are, and this process's mappings of their windows.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/shm/shm_int.h"

struct peer {
    struct list link;
    uint16_t node;
    enum fabric_target target;
    char location[FABRIC_LOCATION_MAX];
    struct shm_mapping *mapping; /* NULL or the newest; an older one may live on in endpoints */
};

/* With the mutex held. */
static struct peer *peer_of(struct shm_fabric *fabric, uint16_t node)
{
    list_for_each (link, &fabric->peers) {
        struct peer *peer = container_of(link, struct peer, link);
        if (peer->node == node)
            return peer;
    }
    return NULL;
}

enum pando_status shm_peer_add(struct fabric *base, uint16_t node, enum fabric_target target,
                               const char *location)
{
    struct shm_fabric *fabric = shm_fabric_of(base);

    if (location[0] == '\0' || (unsigned)target >= FABRIC_TARGETS)
        return PANDO_INVALID;
    if (shm_is_self(fabric, node))
        return strcmp(location, base->location) == 0 ? PANDO_OK : PANDO_INVALID;
    pthread_mutex_lock(&fabric->mutex);
    struct peer *peer = peer_of(fabric, node);
    if (peer == NULL) {
        peer = calloc(1, sizeof(*peer));
        if (peer != NULL)
            list_push_back(&fabric->peers, &peer->link);
    }
    if (peer != NULL) {
        peer->node = node;
        peer->target = target;
        memcpy(peer->location, location, strlen(location) + 1);
    }
    pthread_mutex_unlock(&fabric->mutex);
    return peer != NULL ? PANDO_OK : PANDO_NO_MEMORY;
}

enum pando_status shm_peer_find(struct shm_fabric *fabric, uint16_t node, char *out)
{
    pthread_mutex_lock(&fabric->mutex);
    struct peer *peer = peer_of(fabric, node);
    if (peer != NULL)
        memcpy(out, peer->location, FABRIC_LOCATION_MAX);
    pthread_mutex_unlock(&fabric->mutex);
    return peer != NULL ? PANDO_OK : PANDO_NOT_FOUND;
}

bool shm_file_of(int fd, struct shm_file *out)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return false;
    /* Two containers may have a node each for one DAX device. */
    if (S_ISCHR(info.st_mode))
        *out = (struct shm_file){.device = info.st_rdev};
    else
        *out = (struct shm_file){.device = info.st_dev, .number = info.st_ino};
    return true;
}

/* With the mutex held. */
static enum pando_status map_peer(struct peer *peer, struct shm_file file, struct shm_mapping **out)
{
    char error[256];
    struct shm_mapping *mapping = calloc(1, sizeof(*mapping));

    if (mapping == NULL)
        return PANDO_NO_MEMORY;
    enum pando_status status = window_map_file(&mapping->window, peer->location, WINDOW_ATTACH,
                                               peer->node, 0, 0, error, sizeof(error));
    if (status != PANDO_OK) {
        log_warn("cannot map the window of a peer", log_u64("node", peer->node),
                 log_text("error", error));
        /* The server is there, so its file was to be found: gone in this moment, say. */
        status = status == PANDO_NOT_FOUND ? PANDO_BROKEN : status;
        goto err_free;
    }
    if (!shm_file_of(mapping->window.fd, &mapping->file) || !shm_file_same(mapping->file, file)) {
        log_warn("the window's file is not the one its server has; restart that memory node",
                 log_u64("node", peer->node), log_text("path", peer->location));
        status = PANDO_INVALID;
        goto err_unmap;
    }
    *out = mapping;
    return PANDO_OK;

err_unmap:
    window_unmap(&mapping->window);
err_free:
    free(mapping);
    return status;
}

enum pando_status shm_mapping_take(struct shm_fabric *fabric, uint16_t node, struct shm_file file,
                                   struct shm_mapping **out)
{
    enum pando_status status = PANDO_OK;

    pthread_mutex_lock(&fabric->mutex);
    struct peer *peer = peer_of(fabric, node);
    pando_assert(peer != NULL);
    if (peer->mapping == NULL || !shm_file_same(peer->mapping->file, file))
        status = map_peer(peer, file, &peer->mapping);
    if (status == PANDO_OK) {
        peer->mapping->references++;
        *out = peer->mapping;
    }
    pthread_mutex_unlock(&fabric->mutex);
    return status;
}

void shm_mapping_give(struct shm_fabric *fabric, struct shm_mapping *mapping)
{
    pthread_mutex_lock(&fabric->mutex);
    if (--mapping->references == 0) {
        list_for_each (link, &fabric->peers) {
            struct peer *peer = container_of(link, struct peer, link);
            if (peer->mapping == mapping)
                peer->mapping = NULL;
        }
        window_unmap(&mapping->window);
        free(mapping);
    }
    pthread_mutex_unlock(&fabric->mutex);
}

void shm_peers_free(struct shm_fabric *fabric)
{
    struct list *link;
    while ((link = list_pop_front(&fabric->peers)) != NULL) {
        struct peer *peer = container_of(link, struct peer, link);
        pando_assert(peer->mapping == NULL);
        free(peer);
    }
}
