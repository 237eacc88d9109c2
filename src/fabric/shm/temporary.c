/*
 * temporary.c - windows that go with their process, and what is left of them when it was killed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fabric/shm/fence_int.h"

enum {
    SWEEP_MAX = 4096, /* files that are looked at */
    STILLBORN_S = 60, /* an empty one that old is nobody's */
};

static const char FOLDER[] = "/dev/shm";
static const char PREFIX[] = "pando-peer-";

bool shm_path_leads_to(const char *path, int fd)
{
    struct stat by_name, by_fd;
    return stat(path, &by_name) == 0 && fstat(fd, &by_fd) == 0 && by_name.st_dev == by_fd.st_dev &&
           by_name.st_ino == by_fd.st_ino;
}

static bool begins_with(int fd, uint64_t wanted)
{
    uint64_t magic = 0;
    return pread(fd, &magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) && magic == wanted;
}

static bool is_window(int fd)
{
    return begins_with(fd, WINDOW_MAGIC);
}

static bool is_empty(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
           (info.st_size == 0 || begins_with(fd, WINDOW_MAKING));
}

/* A file that is no window yet is not locked even for a moment: its maker is about to. Unless it was
 * killed before that, long ago. */
static bool is_leftover(int fd)
{
    struct stat info;
    return is_window(fd) || (is_empty(fd) && fstat(fd, &info) == 0 &&
                             time(NULL) > info.st_mtim.tv_sec + STILLBORN_S);
}

static void remove_if(const char *path, bool (*unwanted)(int fd))
{
    char attached[SHM_ATTACHED_PATH_MAX], error[256];
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (unwanted(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0 && unwanted(fd) &&
        shm_path_leads_to(path, fd)) {
        shm_attached_path(path, fd, false, 0, attached);
        shm_attached_remove(attached);
        if (shm_socket_clear(path, error, sizeof(error)) == PANDO_OK)
            (void)unlink(path); /* else it is found again */
    }
    close(fd);
}

void shm_leftover_remove(const char *path)
{
    remove_if(path, is_leftover);
}

void shm_stillborn_remove(const char *path)
{
    remove_if(path, is_empty);
}

static void sweep(void)
{
    char path[FABRIC_LOCATION_MAX];
    const struct dirent *entry;
    DIR *folder = opendir(FOLDER);

    if (folder == NULL)
        return;
    for (int i = 0; i < SWEEP_MAX && (entry = readdir(folder)) != NULL; i++) {
        size_t length = strlen(entry->d_name);
        if (strncmp(entry->d_name, PREFIX, sizeof(PREFIX) - 1) != 0 ||
            length >= sizeof(path) - sizeof(FOLDER) || strchr(entry->d_name, '.') != NULL)
            continue;
        snprintf(path, sizeof(path), "%s/%.*s", FOLDER, (int)(sizeof(path) - sizeof(FOLDER) - 1),
                 entry->d_name);
        shm_leftover_remove(path);
    }
    closedir(folder);
}

enum pando_status fabric_shm_path_temporary(char *path, size_t path_bytes)
{
    if (access(FOLDER, W_OK) != 0)
        return PANDO_IO;
    sweep();
    int length = snprintf(path, path_bytes, "%s/%s%016llx", FOLDER, PREFIX,
                          (unsigned long long)rt_entropy());
    return length > 0 && (size_t)length < path_bytes ? PANDO_OK : PANDO_TOO_LARGE;
}
