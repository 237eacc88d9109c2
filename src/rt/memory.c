/*
 * memory.c - how much memory this process may still take: of the machine, and of the control groups
 * that it is in (a container, a systemd unit). Going over a group's limit does not fail; it kills.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rt/rt.h"

enum { TEXT_BYTES = 8192, PATH_BYTES = 512 };

/* The two kinds of control groups, by the names of their files. */
struct group_kind {
    const char *mount, *limit, *usage;
};
static const struct group_kind unified = {"/sys/fs/cgroup", "memory.max", "memory.current"};
static const struct group_kind legacy = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                         "memory.usage_in_bytes"};

static bool text_of(const char *path, char text[TEXT_BYTES])
{
    size_t used = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    for (ssize_t got = 1; got > 0 && used<TEXT_BYTES - 1; used += got> 0 ? (size_t)got : 0)
        got = read(fd, text + used, TEXT_BYTES - 1 - used);
    close(fd);
    text[used] = '\0';
    return used > 0;
}

/* The number behind `name` at the beginning of a line; 0 if there is none. */
static uint64_t number_of(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, name, length) == 0)
            return strtoull(line + length, NULL, 10);
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return 0;
}

/* What one group leaves; UINT64_MAX without a limit. Pages of files that nobody uses give way. */
static uint64_t room_of_group(const struct group_kind *kind, const char *group)
{
    char path[PATH_BYTES], text[TEXT_BYTES];
    snprintf(path, sizeof(path), "%s%s/%s", kind->mount, group, kind->limit);
    if (!text_of(path, text) || text[0] < '0' || text[0] > '9')
        return UINT64_MAX; /* there is no such file, or "max" */
    uint64_t limit = strtoull(text, NULL, 10);
    snprintf(path, sizeof(path), "%s%s/%s", kind->mount, group, kind->usage);
    uint64_t used = text_of(path, text) ? strtoull(text, NULL, 10) : 0;
    snprintf(path, sizeof(path), "%s%s/memory.stat", kind->mount, group);
    uint64_t files = text_of(path, text) ? number_of(text, "inactive_file ") : 0;
    used = files < used ? used - files : 0;
    return used < limit ? limit - used : 0;
}

/* Of a group and all that it is in. */
static uint64_t room_of_groups(const struct group_kind *kind, char *group)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        char *slash = strrchr(group, '/');
        uint64_t room = room_of_group(kind, group);
        least = room < least ? room : least;
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

uint64_t rt_memory_free(void)
{
    enum { KIB = 1024 };
    char text[TEXT_BYTES], *rest = text, *line;
    uint64_t least = UINT64_MAX;

    if (text_of("/proc/meminfo", text))
        least = number_of(text, "MemAvailable:") * KIB;
    if (least == 0)
        least = UINT64_MAX; /* a system that does not tell */
    if (!text_of("/proc/self/cgroup", text))
        return least;
    while ((line = strsep(&rest, "\n")) != NULL) {
        char *path = strstr(line, ":/");
        if (path == NULL)
            continue;
        bool is_unified = strncmp(line, "0::", 3) == 0;
        if (!is_unified && strstr(line, ":memory:") == NULL)
            continue;
        uint64_t room = room_of_groups(is_unified ? &unified : &legacy, path + 1);
        least = room < least ? room : least;
    }
    return least;
}
