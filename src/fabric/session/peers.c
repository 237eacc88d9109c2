/*
 * peers.c - where nodes are.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/parse.h"
#include "fabric/session/connect.h"

struct peer {
    struct list link;
    uint16_t node;
    enum fabric_target target;
    char location[FABRIC_LOCATION_MAX];
    char trouble[CONNECTION_TROUBLE_BYTES];
};

void client_peers_init(struct client_peers *peers)
{
    pthread_mutex_init(&peers->mutex, NULL);
    list_init(&peers->peers);
}

void client_peers_fini(struct client_peers *peers)
{
    struct list *link;
    while ((link = list_pop_front(&peers->peers)) != NULL)
        free(container_of(link, struct peer, link));
    pthread_mutex_destroy(&peers->mutex);
}

/* With the mutex held. */
static struct peer *find(struct client_peers *peers, uint16_t node)
{
    list_for_each (link, &peers->peers) {
        struct peer *peer = container_of(link, struct peer, link);
        if (peer->node == node)
            return peer;
    }
    return NULL;
}

enum pando_status client_peers_add(struct client_peers *peers, uint16_t node,
                                   enum fabric_target target, const char *location)
{
    struct host_port parts;
    enum pando_status status = PANDO_OK;

    if (parse_host_port(location, &parts) != PANDO_OK)
        return PANDO_INVALID;
    pthread_mutex_lock(&peers->mutex);
    struct peer *peer = find(peers, node);
    if (peer == NULL && (peer = calloc(1, sizeof(*peer))) != NULL)
        list_push_back(&peers->peers, &peer->link);
    if (peer == NULL) {
        status = PANDO_NO_MEMORY;
    } else {
        peer->node = node;
        peer->target = target;
        snprintf(peer->location, sizeof(peer->location), "%s", location);
    }
    pthread_mutex_unlock(&peers->mutex);
    return status;
}

bool client_peers_find(struct client_peers *peers, uint16_t node, enum fabric_target *target,
                       char location[FABRIC_LOCATION_MAX])
{
    pthread_mutex_lock(&peers->mutex);
    const struct peer *peer = find(peers, node);
    if (peer != NULL) {
        *target = peer->target;
        memcpy(location, peer->location, FABRIC_LOCATION_MAX);
    }
    pthread_mutex_unlock(&peers->mutex);
    return peer != NULL;
}

void client_peers_note(struct client_peers *peers, uint16_t node, const char *trouble)
{
    pthread_mutex_lock(&peers->mutex);
    struct peer *peer = find(peers, node);
    if (peer != NULL)
        snprintf(peer->trouble, sizeof(peer->trouble), "%s", trouble);
    pthread_mutex_unlock(&peers->mutex);
}

void client_peers_trouble(struct client_peers *peers, uint16_t node, char *out, size_t size)
{
    pthread_mutex_lock(&peers->mutex);
    const struct peer *peer = find(peers, node);
    snprintf(out, size, "%s", peer == NULL ? "" : peer->trouble);
    pthread_mutex_unlock(&peers->mutex);
}
