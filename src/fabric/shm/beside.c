/*
 * beside.c - the name of the socket beside a window, and whether it is free.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "fabric/shm/shm_int.h"

/* The kernel closes the files of a process that is killed one after the other: its lock of the window may
 * go a moment before its socket. */
enum { TRIES = 20 };
static const struct timespec PAUSE = {.tv_nsec = 10 * 1000 * 1000};

void shm_socket_address(const char *location, struct sockaddr_un *out)
{
    static const char suffix[] = ".sock";
    _Static_assert(sizeof(out->sun_path) >= FABRIC_LOCATION_MAX + sizeof(suffix), "room");
    size_t length = strlen(location);

    pando_assert(length < FABRIC_LOCATION_MAX);
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, location, length);
    memcpy(out->sun_path + length, suffix, sizeof(suffix));
}

/* Whether no process has it: a socket of another kind that one has answers EPROTOTYPE. */
static bool abandoned(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool refused = fd >= 0 &&
                   connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
                   errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return refused;
}

static bool abandoned_soon(const struct sockaddr_un *address)
{
    for (int i = 0; i < TRIES; i++) {
        if (abandoned(address))
            return true;
        (void)nanosleep(&PAUSE, NULL);
    }
    return false;
}

static enum pando_status refuse(const struct sockaddr_un *address, enum pando_status status,
                                const char *what, char *error, size_t error_bytes)
{
    snprintf(error, error_bytes, "%s: %s", address->sun_path, what);
    return status;
}

enum pando_status shm_socket_clear(const char *location, char *error, size_t error_bytes)
{
    struct sockaddr_un address;
    struct stat info;

    shm_socket_address(location, &address);
    if (lstat(address.sun_path, &info) != 0) {
        if (errno == ENOENT)
            return PANDO_OK;
        return refuse(&address, PANDO_IO, "the name of the window's socket cannot be looked at",
                      error, error_bytes);
    }
    if (!S_ISSOCK(info.st_mode))
        return refuse(
            &address, PANDO_INVALID,
            "it is no socket, and the window's has to be there; it is left as it is: move "
            "it away, or give the window another path",
            error, error_bytes);
    if (info.st_uid != geteuid())
        return refuse(&address, PANDO_DENIED,
                      "it is another user's socket, and the window's has to be there; run this as "
                      "that user, or give the window another path",
                      error, error_bytes);
    if (!abandoned_soon(&address))
        return refuse(&address, PANDO_BUSY,
                      "another program uses this socket, and the window's has to be there; stop "
                      "that program, or give the window another path",
                      error, error_bytes);
    if (unlink(address.sun_path) != 0 && errno != ENOENT)
        return refuse(&address, PANDO_IO, "a socket that nobody uses cannot be removed", error,
                      error_bytes);
    return PANDO_OK;
}
