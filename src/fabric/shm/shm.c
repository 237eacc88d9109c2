/*
 * shm.c - a process's part of the shm fabric: its window, from open to close.
 */
#include "fabric/shm/shm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "fabric/shm/fence_int.h"

enum { MAP_ATTEMPTS = 4 };

static enum pando_status refuse(char *error, size_t error_bytes, enum pando_status status,
                                const char *what)
{
    snprintf(error, error_bytes, "%s", what);
    return status;
}

static enum pando_status check_options(const struct fabric_shm_options *options, char *error,
                                       size_t error_bytes)
{
    uint64_t host = options->host_bytes;

    if ((unsigned)options->target >= FABRIC_TARGETS)
        return refuse(error, error_bytes, PANDO_INVALID, "no such kind of node");
    if (host == 0)
        return PANDO_OK;
    if (host <= WINDOW_FIRST || host >= FABRIC_DEVICE || host % 8 != 0)
        return refuse(error, error_bytes, PANDO_INVALID,
                      "a window's size must be more than 32 KiB and a multiple of 8");
    if (options->device_bytes > host)
        return refuse(error, error_bytes, PANDO_INVALID,
                      "the on-chip part may not be larger than the window itself");
    return PANDO_OK;
}

/* Others have other working directories, and this process may change its own. */
static enum pando_status location_set(char *location, const char *path, char *error,
                                      size_t error_bytes)
{
    char folder[FABRIC_LOCATION_MAX] = "";
    const char *slash = "";

    if (path[0] != '/') {
        if (getcwd(folder, sizeof(folder)) == NULL)
            return refuse(error, error_bytes, errno == ERANGE ? PANDO_TOO_LARGE : PANDO_IO,
                          "cannot name the working directory; give a shorter or absolute path");
        slash = "/";
    }
    size_t length = strlen(folder) + strlen(slash) + strlen(path);
    if (length >= FABRIC_LOCATION_MAX) {
        snprintf(error, error_bytes, "%s: path too long, at most %d characters", path,
                 FABRIC_LOCATION_MAX - 1);
        return PANDO_TOO_LARGE;
    }
    char *end = stpcpy(stpcpy(location, folder), slash);
    memcpy(end, path, strlen(path) + 1);
    return PANDO_OK;
}

/* ---- the window ------------------------------------------------------------------------------ */

/* Leaves nothing of a new window that cannot be served after all; `there`: an empty file was at its
 * path. */
static void give_back(struct shm_fabric *fabric, bool there)
{
    const char *path = fabric->base.location;
    struct stat info;
    if (fabric->window.reused || path[0] == '\0' || fabric->window.fd < 0 ||
        fstat(fabric->window.fd, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    if (there)
        (void)!ftruncate(fabric->window.fd, 0);
    else if (shm_path_leads_to(path, fabric->window.fd))
        (void)unlink(path);
}

static enum pando_status map_file(struct shm_fabric *fabric,
                                  const struct fabric_shm_options *options, char *error,
                                  size_t error_bytes)
{
    const char *path = fabric->base.location;
    enum window_open how = options->dax        ? WINDOW_CREATE_DAX
                           : options->reserved ? WINDOW_CREATE_RESERVED
                                               : WINDOW_CREATE;

    for (int i = 0; i < MAP_ATTEMPTS; i++) {
        if (options->temporary)
            shm_leftover_remove(path);
        enum pando_status status =
            window_map_served(&fabric->window, path, how, options->node, options->host_bytes,
                              options->device_bytes, error, error_bytes);
        if (status != PANDO_OK && options->temporary)
            shm_stillborn_remove(path);
        if (status != PANDO_OK)
            return status;
        if (shm_path_leads_to(path, fabric->window.fd))
            return PANDO_OK;
        /* Between open and lock its former owner removed it. */
        window_unmap(&fabric->window);
    }
    snprintf(error, error_bytes, "%s: removed by others again and again", path);
    return PANDO_BUSY;
}

static enum pando_status map_window(struct shm_fabric *fabric,
                                    const struct fabric_shm_options *options, char *error,
                                    size_t error_bytes)
{
    enum pando_status status;
    bool there = false;

    if (options->path == NULL) {
        status = window_map_memfd(&fabric->window, options->node, options->host_bytes,
                                  options->device_bytes);
        if (status != PANDO_OK)
            return refuse(error, error_bytes, status, "no memory for the window");
    } else {
        status = location_set(fabric->base.location, options->path, error, error_bytes);
        if (status != PANDO_OK)
            return status;
        there = access(fabric->base.location, F_OK) == 0;
        status = map_file(fabric, options, error, error_bytes);
        if (status != PANDO_OK)
            return status;
        status = shm_socket_clear(fabric->base.location, error, error_bytes);
        if (status != PANDO_OK)
            goto err_unmap;
    }
    if (fabric->window.fd >= 0 && !shm_file_of(fabric->window.fd, &fabric->file)) {
        status = refuse(error, error_bytes, PANDO_IO, "cannot stat the window's file");
        goto err_unmap;
    }
    fabric->opened_id = window_id(&fabric->window);
    status = shm_attachments_open(fabric, error, error_bytes);
    if (status != PANDO_OK)
        goto err_unmap;
    fabric->base.window = &fabric->window;
    fabric->base.window_bytes = options->host_bytes;
    fabric->base.device_bytes = options->device_bytes;
    return PANDO_OK;

err_unmap:
    give_back(fabric, there);
    window_unmap(&fabric->window);
    return status;
}

/* ---- open and close -------------------------------------------------------------------------- */

enum pando_status fabric_shm_open(const struct fabric_shm_options *options, struct fabric **out,
                                  char *error, size_t error_bytes)
{
    enum pando_status status = check_options(options, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    struct shm_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL)
        return refuse(error, error_bytes, PANDO_NO_MEMORY, "no memory");
    fabric_init(&fabric->base, &shm_fabric_ops, options->node, options->target);
    fabric->window.fd = -1;
    fabric->temporary = options->temporary;
    list_init(&fabric->peers);
    if (options->host_bytes > 0) {
        status = map_window(fabric, options, error, error_bytes);
        if (status != PANDO_OK) {
            free(fabric);
            return status;
        }
    }
    pthread_mutex_init(&fabric->mutex, NULL);
    *out = &fabric->base;
    return PANDO_OK;
}

enum pando_status fabric_shm_start(struct fabric *base)
{
    struct shm_fabric *fabric = shm_fabric_of(base);
    struct shm_server *server;

    pando_assert(atomic_load_explicit(&fabric->server, memory_order_relaxed) == NULL);
    if (base->location[0] == '\0') /* nobody can come */
        return PANDO_OK;
    enum pando_status status = shm_server_start(fabric, &server);
    if (status == PANDO_OK)
        atomic_store_explicit(&fabric->server, server, memory_order_release);
    return status;
}

/* While the window's lock is still held. */
static void remove_names(struct shm_fabric *fabric, bool served)
{
    char error[256];
    if (fabric->base.location[0] == '\0')
        return;
    if (served && shm_socket_clear(fabric->base.location, error, sizeof(error)) != PANDO_OK)
        log_warn("the window's socket stays", log_text("reason", error));
    if (fabric->temporary && shm_path_leads_to(fabric->base.location, fabric->window.fd))
        (void)unlink(fabric->base.location);
}

void shm_close(struct fabric *base)
{
    struct shm_fabric *fabric = shm_fabric_of(base);
    struct shm_server *server = atomic_load_explicit(&fabric->server, memory_order_acquire);

    if (server != NULL)
        shm_server_stop(server);
    remove_names(fabric, server != NULL);
    shm_peers_free(fabric);
    shm_attachments_close(fabric);
    window_unmap(&fabric->window);
    pthread_mutex_destroy(&fabric->mutex);
    free(base->kept);
    free(fabric);
}

bool fabric_shm_reused(const struct fabric *fabric)
{
    return container_of((struct fabric *)(uintptr_t)fabric, struct shm_fabric, base)->window.reused;
}

void fabric_shm_served(const struct fabric *fabric, struct fabric_served *out)
{
    struct shm_fabric *shm =
        container_of((struct fabric *)(uintptr_t)fabric, struct shm_fabric, base);
    struct shm_server *server = atomic_load_explicit(&shm->server, memory_order_acquire);
    *out =
        (struct fabric_served){.connections = server == NULL ? 0 : shm_server_connections(server)};
}

bool fabric_shm_huge(const struct fabric *fabric)
{
    return container_of((struct fabric *)(uintptr_t)fabric, struct shm_fabric, base)->window.huge;
}
