/*
 * path.c - where a named window lies: on hugetlbfs if one has room, else in /dev/shm.
 */
#include <mntent.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "fabric/shm/shm.h"

enum { NAME_MAX_BYTES = 64, MOUNT_LINE_MAX = 4096 };

static const uint64_t HUGE_BYTES = 2 * 1024 * 1024; /* what window_map_file rounds to */

static bool is_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";
    size_t length = strlen(name);
    return length > 0 && length <= NAME_MAX_BYTES && strspn(name, allowed) == length;
}

static enum pando_status path_set(char *path, size_t path_bytes, const char *folder,
                                  const char *name)
{
    int length = snprintf(path, path_bytes, "%s/pando-%s", folder, name);
    return length > 0 && (size_t)length < path_bytes ? PANDO_OK : PANDO_TOO_LARGE;
}

/* Pages that nobody has reserved. */
static uint64_t huge_free_bytes(void)
{
    static const char folder[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
    static const char *const files[] = {"free_hugepages", "resv_hugepages"};
    unsigned long long pages[2] = {0, 0};

    for (int i = 0; i < 2; i++) {
        char name[128];
        snprintf(name, sizeof(name), "%s%s", folder, files[i]);
        FILE *file = fopen(name, "re");
        if (file == NULL)
            return 0;
        int fields = fscanf(file, "%llu", &pages[i]);
        fclose(file);
        if (fields != 1)
            return 0;
    }
    return pages[0] > pages[1] ? (pages[0] - pages[1]) * HUGE_BYTES : 0;
}

static bool mount_has_room(const char *folder, uint64_t bytes)
{
    struct statfs volume;
    if (bytes == 0 || statfs(folder, &volume) != 0 || access(folder, W_OK) != 0)
        return false;
    if ((uint64_t)volume.f_bsize != HUGE_BYTES)
        return false;
    uint64_t wanted = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    /* A mount without a limit of its own says 0 blocks. */
    if (volume.f_blocks != 0 && (uint64_t)volume.f_bavail * HUGE_BYTES < wanted)
        return false;
    return huge_free_bytes() >= wanted;
}

/* Goes through the hugetlbfs mounts until one suits; an existing file suits best. */
static bool find_huge(const char *name, uint64_t bytes, bool existing, char *path,
                      size_t path_bytes)
{
    char line[MOUNT_LINE_MAX];
    struct mntent entry;
    bool found = false;
    FILE *mounts = setmntent("/proc/mounts", "re");

    if (mounts == NULL)
        return false;
    while (!found && getmntent_r(mounts, &entry, line, sizeof(line)) != NULL) {
        if (strcmp(entry.mnt_type, "hugetlbfs") != 0 ||
            path_set(path, path_bytes, entry.mnt_dir, name) != PANDO_OK)
            continue;
        found = existing ? access(path, F_OK) == 0 : mount_has_room(entry.mnt_dir, bytes);
    }
    endmntent(mounts);
    return found;
}

enum pando_status fabric_shm_path(const char *name, uint64_t bytes, char *path, size_t path_bytes)
{
    if (strchr(name, '/') != NULL) {
        size_t length = strlen(name);
        if (name[length - 1] == '/')
            return PANDO_INVALID;
        if (length >= path_bytes)
            return PANDO_TOO_LARGE;
        memcpy(path, name, length + 1);
        return PANDO_OK;
    }
    if (!is_name(name))
        return PANDO_INVALID;
    if (find_huge(name, bytes, true, path, path_bytes))
        return PANDO_OK;
    enum pando_status status = path_set(path, path_bytes, "/dev/shm", name);
    if (status != PANDO_OK || access(path, F_OK) == 0)
        return status;
    if (find_huge(name, bytes, false, path, path_bytes))
        return PANDO_OK;
    return path_set(path, path_bytes, "/dev/shm", name);
}
