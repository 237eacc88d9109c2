#include "fabric/stream/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "rt/undumped.h"

static enum pando_status check(const char *kind, const char *path, int fd, char *error,
                               size_t error_bytes)
{
    struct stat info;
    mode_t others = S_IRWXG | S_IRWXO;

    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        snprintf(error, error_bytes, "%s %s: not a regular file", kind, path);
        return PANDO_INVALID;
    }
    if (info.st_uid != 0 && info.st_uid != geteuid()) {
        snprintf(
            error, error_bytes,
            "%s %s: it belongs to user %u, not to user %u; run: chown on it, and make a new one",
            kind, path, (unsigned)info.st_uid, (unsigned)geteuid());
        return PANDO_DENIED;
    }
    if (info.st_uid == 0 && geteuid() != 0)
        others = S_IWGRP | S_IXGRP | S_IRWXO;
    if ((info.st_mode & others) != 0) {
        snprintf(error, error_bytes,
                 "%s %s: others may %s it; run: chmod 600 on it, and make a new one", kind, path,
                 (info.st_mode & (S_IRGRP | S_IROTH) & others) != 0 ? "read" : "change");
        return PANDO_DENIED;
    }
    return PANDO_OK;
}

enum pando_status private_file_open(const char *kind, const char *path, int *fd, char *error,
                                    size_t error_bytes)
{
    /* A fifo without a writer would keep the caller waiting. */
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened < 0) {
        int code = errno;
        snprintf(error, error_bytes, "%s %s: %s", kind, path, strerror(code));
        return code == EACCES ? PANDO_DENIED : PANDO_NOT_FOUND;
    }
    enum pando_status status = check(kind, path, opened, error, error_bytes);
    if (status != PANDO_OK)
        close(opened);
    else
        *fd = opened;
    return status;
}

static void *openssl_alloc(size_t bytes, const char *file, int line)
{
    (void)file;
    (void)line;
    return bytes == 0 ? NULL : rt_undumped_alloc(bytes);
}

static void *openssl_realloc(void *block, size_t bytes, const char *file, int line)
{
    if (bytes > 0)
        return block == NULL ? openssl_alloc(bytes, file, line) : rt_undumped_realloc(block, bytes);
    rt_undumped_free(block);
    return NULL;
}

static void openssl_free(void *block, const char *file, int line)
{
    (void)file;
    (void)line;
    rt_undumped_free(block);
}

void private_openssl_memory(void)
{
/* The sanitizers have an allocator of their own, which sees more. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    (void)CRYPTO_set_mem_functions(openssl_alloc, openssl_realloc, openssl_free);
#else
    (void)openssl_alloc, (void)openssl_realloc, (void)openssl_free;
#endif
}
