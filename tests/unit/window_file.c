/*
 * Which files may become windows, or be mapped as such: whatever else is at a path stays as it is,
 * byte for byte.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/attached_fmt.h"
#include "fabric/shm/shm.h"
#include "fabric/window/window.h"
#include "lib/check.h"

enum { NODE = 3, HOST_BYTES = 4 * 1024 * 1024, NOBODY = 65534, LARGE_BYTES = 64 * 1024 };

static char folder[64];

/* Good until the next but one. */
static const char *path_of(const char *name)
{
    static char paths[2][128];
    static unsigned next;
    char *path = paths[next++ % 2];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

/* Opens it as `pando memory --shm` does. */
static enum pando_status serve(const char *name, bool *reused)
{
    struct fabric_shm_options options = {
        .node = NODE, .path = path_of(name), .host_bytes = HOST_BYTES};
    char error[512] = "";
    struct fabric *fabric;
    enum pando_status status = fabric_shm_open(&options, &fabric, error, sizeof(error));
    if (status == PANDO_OK) {
        *reused = fabric_shm_reused(fabric);
        fabric_close(fabric);
        return status;
    }
    printf("  %s\n", error);
    CHECK(strstr(error, name) != NULL && strchr(error, '\n') == NULL);
    return status;
}

static enum pando_status attach(const char *name)
{
    struct window window;
    char error[512] = "";
    enum pando_status status =
        window_map_file(&window, path_of(name), WINDOW_ATTACH, 0, 0, 0, error, sizeof(error));
    if (status == PANDO_OK)
        window_unmap(&window);
    else
        CHECK(error[0] != '\0');
    return status;
}

/* ---- what must not change -------------------------------------------------------------------- */

struct picture {
    struct stat info;
    char *bytes; /* of a regular file */
    char link[128];
};

static void picture_take(struct picture *picture, const char *name)
{
    *picture = (struct picture){.bytes = NULL};
    CHECK(lstat(path_of(name), &picture->info) == 0);
    if (S_ISLNK(picture->info.st_mode))
        CHECK(readlink(path_of(name), picture->link, sizeof(picture->link) - 1) > 0);
    if (!S_ISREG(picture->info.st_mode))
        return;
    size_t size = (size_t)picture->info.st_size;
    int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);
    picture->bytes = malloc(size + 1);
    CHECK(fd >= 0 && picture->bytes != NULL);
    CHECK(read(fd, picture->bytes, size) == (ssize_t)size);
    close(fd);
}

static bool picture_same(const struct picture *a, const struct picture *b)
{
    const struct stat *x = &a->info, *y = &b->info;
    return x->st_dev == y->st_dev && x->st_ino == y->st_ino && x->st_mode == y->st_mode &&
           x->st_uid == y->st_uid && x->st_gid == y->st_gid && x->st_size == y->st_size &&
           x->st_rdev == y->st_rdev && x->st_nlink == y->st_nlink &&
           strcmp(a->link, b->link) == 0 && (a->bytes == NULL) == (b->bytes == NULL) &&
           (a->bytes == NULL || memcmp(a->bytes, b->bytes, (size_t)x->st_size) == 0);
}

static void expect_refused(const char *name, enum pando_status expected)
{
    struct picture before, after;
    bool reused;

    picture_take(&before, name);
    enum pando_status served = serve(name, &reused), attached = attach(name);
    picture_take(&after, name);
    if (!picture_same(&before, &after))
        CHECK_FAIL("%s was changed", name);
    CHECK_STATUS(served, expected);
    CHECK(attached != PANDO_OK);
    free(before.bytes);
    free(after.bytes);
    CHECK(unlink(path_of(name)) == 0 || (errno == EISDIR && rmdir(path_of(name)) == 0));
}

static void make_file(const char *name, const char *text, size_t size, mode_t mode)
{
    int fd = open(path_of(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && fchmod(fd, mode) == 0);
    CHECK(size == 0 || write(fd, text, size) == (ssize_t)size);
    close(fd);
}

static void make_window(const char *name, mode_t mode)
{
    bool reused;
    CHECK_OK(serve(name, &reused));
    CHECK(!reused && chmod(path_of(name), mode) == 0);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void test_foreign_contents(void)
{
    static const char passwd[] = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:\n";
    static char large[LARGE_BYTES];
    const uint64_t magic = WINDOW_MAGIC;

    make_file("passwd", passwd, sizeof(passwd) - 1, 0600);
    expect_refused("passwd", PANDO_INVALID);
    make_file("zeroes", large, sizeof(large), 0600);
    expect_refused("zeroes", PANDO_INVALID);
    memset(large, 'x', sizeof(large));
    make_file("large", large, sizeof(large), 0600);
    expect_refused("large", PANDO_INVALID);
    make_file("one-byte", "x", 1, 0600);
    expect_refused("one-byte", PANDO_INVALID);
    for (size_t size = 1; size < 8; size++) { /* a window in the making has none of these sizes */
        make_file("few-zeroes", "\0\0\0\0\0\0\0", size, 0600);
        expect_refused("few-zeroes", PANDO_INVALID);
    }
    make_file("magic-only", (const char *)&magic, sizeof(magic), 0600);
    expect_refused("magic-only", PANDO_INVALID);
}

static void test_kinds(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    CHECK(mkfifo(path_of("fifo"), 0600) == 0);
    expect_refused("fifo", PANDO_INVALID);
    CHECK(mkdir(path_of("folder"), 0700) == 0);
    expect_refused("folder", PANDO_INVALID);
    CHECK(strlen(path_of("socket")) < sizeof(address.sun_path));
    memcpy(address.sun_path, path_of("socket"), strlen(path_of("socket")));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    expect_refused("socket", PANDO_INVALID);
    close(fd);
}

/* What they lead to is also what it was. */
static void test_links(void)
{
    struct picture before[2], after[2];
    static const char *const names[] = {"target-empty", "target-window"};

    make_file("target-empty", "", 0, 0600);
    make_window("target-window", 0600);
    for (int i = 0; i < 2; i++) {
        picture_take(&before[i], names[i]);
        CHECK(symlink(names[i], path_of("link")) == 0);
        expect_refused("link", PANDO_INVALID);
        picture_take(&after[i], names[i]);
        CHECK(picture_same(&before[i], &after[i]));
        free(before[i].bytes);
        free(after[i].bytes);
        CHECK(unlink(path_of(names[i])) == 0);
    }
    CHECK(symlink("nowhere", path_of("link")) == 0);
    expect_refused("link", PANDO_INVALID);
    CHECK(access(path_of("nowhere"), F_OK) != 0);
}

/* A file of two names: somebody may know it by the other one. */
static void test_two_names(void)
{
    make_window("window", 0600);
    CHECK(link(path_of("window"), path_of("window-too")) == 0);
    expect_refused("window", PANDO_INVALID);
    CHECK(unlink(path_of("window-too")) == 0);
    make_file("empty", "", 0, 0600);
    CHECK(link(path_of("empty"), path_of("empty-too")) == 0);
    expect_refused("empty", PANDO_INVALID);
    CHECK(unlink(path_of("empty-too")) == 0);
}

static void test_modes(void)
{
    static const mode_t modes[] = {0644, 0660, 0666, 0640, 0601, 0700};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        make_window("open-window", modes[i]);
        expect_refused("open-window", PANDO_DENIED);
    }
}

/* As root only: false otherwise. */
static bool test_devices_and_owners(void)
{
    static const char passwd[] = "root:x:0:0\n";

    if (geteuid() != 0)
        return false;
    if (mknod(path_of("null"), S_IFCHR | 0600, makedev(1, 3)) != 0)
        return false; /* not even as root, as in a container */
    expect_refused("null", PANDO_INVALID);
    CHECK(mknod(path_of("zero"), S_IFCHR | 0600, makedev(1, 5)) == 0);
    expect_refused("zero", PANDO_INVALID);
    CHECK(mknod(path_of("loop"), S_IFBLK | 0600, makedev(7, 0)) == 0);
    expect_refused("loop", PANDO_INVALID);

    make_file("their-empty", "", 0, 0600);
    CHECK(chown(path_of("their-empty"), NOBODY, NOBODY) == 0);
    expect_refused("their-empty", PANDO_DENIED);
    make_file("their-text", passwd, sizeof(passwd) - 1, 0600);
    CHECK(chown(path_of("their-text"), NOBODY, NOBODY) == 0);
    expect_refused("their-text", PANDO_DENIED);
    make_window("their-window", 0600);
    CHECK(chown(path_of("their-window"), NOBODY, NOBODY) == 0);
    expect_refused("their-window", PANDO_DENIED);
    return true;
}

/* ---- what becomes one ------------------------------------------------------------------------ */

static void expect_window(const char *name, bool expect_reused)
{
    struct stat info;
    bool reused = !expect_reused;
    CHECK_OK(serve(name, &reused));
    CHECK(reused == expect_reused);
    CHECK(lstat(path_of(name), &info) == 0 && S_ISREG(info.st_mode));
    CHECK((info.st_mode & ALLPERMS) == 0600 && info.st_uid == geteuid());
    CHECK_OK(attach(name));
}

static void test_becomes_one(void)
{
    static const mode_t masks[] = {0, 022, 0277};
    const char making[] = "PANDOMAKand-what-comes-behind";
    struct stat before, after;

    for (size_t i = 0; i < sizeof(masks) / sizeof(masks[0]); i++) {
        mode_t mask = umask(masks[i]);
        expect_window("new", false);
        (void)umask(mask);
        expect_window("new", true);
        CHECK(unlink(path_of("new")) == 0);
    }
    make_file("empty", "", 0, 0600);
    expect_window("empty", false);
    make_file("half-made", making, sizeof(making), 0600);
    expect_window("half-made", false);
    make_file("just-begun", "\0\0\0\0\0\0\0", 8, 0600);
    expect_window("just-begun", false);

    /* Another process may have this one open: it gets a file that nobody will use. */
    make_file("touched", "", 0, 0644);
    int fd = open(path_of("touched"), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &before) == 0);
    expect_window("touched", false);
    CHECK(lstat(path_of("touched"), &after) == 0 && after.st_ino != before.st_ino);
    CHECK(fstat(fd, &before) == 0 && before.st_size == 0);
    close(fd);
    static const char *const names[] = {"empty", "half-made", "just-begun", "touched"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        CHECK(unlink(path_of(names[i])) == 0);
}

/* ---- beside it ------------------------------------------------------------------------------- */

/* A start on "window" is refused, and what is beside it and the window are what they were. */
static void expect_kept(const char *beside, bool there, enum pando_status expected)
{
    struct picture before[2], after[2];
    bool reused;

    picture_take(&before[0], beside);
    if (there)
        picture_take(&before[1], "window");
    enum pando_status status = serve("window", &reused);
    picture_take(&after[0], beside);
    if (!picture_same(&before[0], &after[0]))
        CHECK_FAIL("%s was changed", beside);
    CHECK_STATUS(status, expected);
    free(before[0].bytes);
    free(after[0].bytes);
    if (!there) {
        CHECK(access(path_of("window"), F_OK) != 0);
        return;
    }
    picture_take(&after[1], "window");
    CHECK(before[1].info.st_ino == after[1].info.st_ino &&
          before[1].info.st_size == after[1].info.st_size);
    free(before[1].bytes);
    free(after[1].bytes);
}

/* Without a window, with an empty file, and with a window at its place. */
static void expect_kept_beside(const char *beside, enum pando_status expected)
{
    expect_kept(beside, false, expected);
    make_file("window", "", 0, 0600);
    expect_kept(beside, true, expected);
    CHECK(unlink(path_of("window")) == 0 && rename(path_of(beside), path_of("aside")) == 0);
    make_window("window", 0600);
    CHECK(rename(path_of("aside"), path_of(beside)) == 0);
    expect_kept(beside, true, expected);
    CHECK(unlink(path_of("window")) == 0);
    CHECK(unlink(path_of(beside)) == 0 || rmdir(path_of(beside)) == 0);
}

/* As a window's owner leaves it that was killed. */
static void make_record(uint64_t magic, uint64_t window, size_t size)
{
    static struct shm_attached_file record;
    static char bytes[sizeof(record) + 8];
    record =
        (struct shm_attached_file){.magic = magic, .version = ATTACHED_VERSION, .window = window};
    memcpy(bytes, &record, sizeof(record));
    make_file("window.attached", bytes, size, 0600);
}

static void test_foreign_records(void)
{
    static const char text[] = "my notes\n";
    const size_t record_bytes = sizeof(struct shm_attached_file);

    make_file("window.attached", text, sizeof(text) - 1, 0600);
    expect_kept_beside("window.attached", PANDO_INVALID);
    make_record(ATTACHED_MAGIC, 7, record_bytes + 8);
    expect_kept_beside("window.attached", PANDO_INVALID);
    make_record(ATTACHED_MAGIC, 7, record_bytes - 8);
    expect_kept_beside("window.attached", PANDO_INVALID);
    make_record(ATTACHED_MAGIC + 1, 7, record_bytes);
    expect_kept_beside("window.attached", PANDO_INVALID);
    make_record(ATTACHED_MAGIC, 7, record_bytes);
    CHECK(chmod(path_of("window.attached"), 0640) == 0);
    expect_kept_beside("window.attached", PANDO_DENIED);
    CHECK(mkdir(path_of("window.attached"), 0700) == 0);
    expect_kept_beside("window.attached", PANDO_INVALID);
    make_file("notes", text, sizeof(text) - 1, 0600);
    CHECK(symlink("notes", path_of("window.attached")) == 0);
    expect_kept_beside("window.attached", PANDO_INVALID);
    CHECK(link(path_of("notes"), path_of("window.attached")) == 0);
    expect_kept_beside("window.attached", PANDO_INVALID);
    CHECK(unlink(path_of("notes")) == 0);
}

/* What pando itself leaves when it is killed keeps nobody from starting, and says nothing of another
 * window. */
static void test_own_records(void)
{
    bool reused;
    const size_t record_bytes = sizeof(struct shm_attached_file);

    make_record(ATTACHED_MAGIC, 7, record_bytes);
    CHECK_OK(serve("window", &reused));
    CHECK(access(path_of("window.attached"), F_OK) != 0);
    make_record(ATTACHED_MAGIC, 7, record_bytes);
    CHECK_OK(serve("window", &reused));
    CHECK(reused && access(path_of("window.attached"), F_OK) != 0);
    make_record(ATTACHED_MAKING, 0, sizeof(uint64_t));
    CHECK_OK(serve("window", &reused));
    CHECK(access(path_of("window.attached"), F_OK) != 0);
    make_file("window.attached", "", 0, 0600);
    CHECK_OK(serve("window", &reused));
    CHECK(access(path_of("window.attached"), F_OK) != 0 && unlink(path_of("window")) == 0);
}

static int socket_at(const char *name, int type, bool listens)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    CHECK(strlen(path_of(name)) < sizeof(address.sun_path));
    memcpy(address.sun_path, path_of(name), strlen(path_of(name)));
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(!listens || listen(fd, 8) == 0);
    return fd;
}

/* Another program's that lives, or whatever else is there. */
static void test_sockets(void)
{
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    bool reused;

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        int fd = socket_at("window.sock", types[i], types[i] != SOCK_DGRAM);
        expect_kept_beside("window.sock", PANDO_BUSY);
        close(fd);
    }
    make_file("window.sock", "text", 4, 0600);
    expect_kept_beside("window.sock", PANDO_INVALID);
    close(socket_at("target.sock", SOCK_SEQPACKET, false));
    CHECK(symlink("target.sock", path_of("window.sock")) == 0);
    expect_kept_beside("window.sock", PANDO_INVALID);
    CHECK(unlink(path_of("target.sock")) == 0);
    if (geteuid() == 0) {
        close(socket_at("window.sock", SOCK_SEQPACKET, true));
        CHECK(chown(path_of("window.sock"), NOBODY, NOBODY) == 0);
        expect_kept_beside("window.sock", PANDO_DENIED);
    }
    /* One that a server has left that was killed. */
    close(socket_at("window.sock", SOCK_SEQPACKET, true));
    CHECK_OK(serve("window", &reused));
    CHECK(access(path_of("window.sock"), F_OK) != 0 && unlink(path_of("window")) == 0);
}

/* Without room nothing is left that the next try would take for somebody's data. */
static void test_no_room(void)
{
    struct fabric_shm_options options = {
        .node = NODE, .path = path_of("no-room"), .host_bytes = HOST_BYTES};
    char error[512] = "";
    struct fabric *fabric;
    struct rlimit limit, small;

    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    small = (struct rlimit){.rlim_cur = HOST_BYTES / 2, .rlim_max = limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK(fabric_shm_open(&options, &fabric, error, sizeof(error)) != PANDO_OK);
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    expect_window("no-room", false);
    CHECK(unlink(path_of("no-room")) == 0);
}

int main(void)
{
    alarm(120);
    log_set_level(LOG_LEVEL_ERROR);
    snprintf(folder, sizeof(folder), "%s/pando-test-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
    test_foreign_contents();
    test_kinds();
    test_links();
    test_two_names();
    test_modes();
    bool all = test_devices_and_owners();
    test_becomes_one();
    test_no_room();
    test_foreign_records();
    test_own_records();
    test_sockets();
    if (rmdir(folder) != 0)
        CHECK_FAIL("%s is not empty", folder);
    if (!all) {
        printf("SKIP: devices and files of other users need root\n");
        return 77;
    }
    return 0;
}
