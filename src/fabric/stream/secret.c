#include "fabric/stream/secret.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "fabric/stream/private_file.h"
#include "rt/undumped.h"

static enum pando_status fail(char *error, size_t error_bytes, enum pando_status status,
                              const char *path, const char *what)
{
    snprintf(error, error_bytes, "secret file %s: %s", path, what);
    return status;
}

/* White space at the end does not count. */
static size_t trimmed(const char *bytes, size_t size)
{
    while (size > 0 && strchr(" \t\r\n", bytes[size - 1]) != NULL)
        size--;
    return size;
}

static enum pando_status read_checked(int fd, const char *path, char *bytes, size_t capacity,
                                      size_t *size, char *error, size_t error_bytes)
{
    struct stat info;
    char text[64];
    if (fstat(fd, &info) != 0)
        return fail(error, error_bytes, PANDO_IO, path, strerror(errno));
    snprintf(text, sizeof(text), "longer than %zu bytes", capacity);
    if (info.st_size > (off_t)capacity)
        return fail(error, error_bytes, PANDO_TOO_LARGE, path, text);
    ssize_t got = read(fd, bytes, capacity);
    if (got < 0)
        return fail(error, error_bytes, PANDO_IO, path, strerror(errno));
    *size = trimmed(bytes, (size_t)got);
    return PANDO_OK;
}

/* The bytes of a file that nobody but its owner may read. */
static enum pando_status read_private(const char *path, char *bytes, size_t capacity, size_t *size,
                                      char *error, size_t error_bytes)
{
    int fd;
    enum pando_status status = private_file_open("secret file", path, &fd, error, error_bytes);
    if (status != PANDO_OK)
        return status;
    status = read_checked(fd, path, bytes, capacity, size, error, error_bytes);
    close(fd);
    return status;
}

static enum pando_status check_length(size_t size, const char *path, char *error,
                                      size_t error_bytes)
{
    if (size >= SECRET_BYTES_MIN && size <= SECRET_BYTES_MAX)
        return PANDO_OK;
    return fail(error, error_bytes, PANDO_INVALID, path,
                size < SECRET_BYTES_MIN
                    ? "shorter than 16 bytes; make one with: head -c 32 /dev/urandom | base64"
                    : "a secret of more than 4096 bytes; use a shorter one");
}

enum pando_status secret_load(struct secret *secret, const char *path, char *error,
                              size_t error_bytes)
{
    memset(secret, 0, sizeof(*secret));
    rt_undumped(secret, sizeof(*secret));
    enum pando_status status = read_private(path, (char *)secret->bytes, sizeof(secret->bytes),
                                            &secret->size, error, error_bytes);
    if (status == PANDO_OK)
        status = check_length(secret->size, path, error, error_bytes);
    if (status != PANDO_OK)
        secret_forget(secret);
    return status;
}

/* ---- several of them ------------------------------------------------------------------------- */

enum { SECRETS_BYTES = sizeof(struct secrets) + SECRETS_MAX * sizeof(struct secret) };

/* The next line that is not empty, without the white space at its end; false: there is none. */
static bool next_line(const char **at, const char *end, struct slice *line)
{
    while (*at < end) {
        const char *stop = memchr(*at, '\n', (size_t)(end - *at));
        const char *begin = *at;
        if (stop == NULL)
            stop = end;
        *at = stop < end ? stop + 1 : end;
        *line = slice_of(begin, trimmed(begin, (size_t)(stop - begin)));
        if (line->size > 0)
            return true;
    }
    return false;
}

static enum pando_status take_lines(struct secrets *secrets, const char *bytes, size_t size,
                                    const char *path, char *error, size_t error_bytes)
{
    const char *at = bytes;
    struct slice line;

    while (next_line(&at, bytes + size, &line)) {
        if (secrets->count == SECRETS_MAX)
            return fail(error, error_bytes, PANDO_TOO_LARGE, path,
                        "more than 8 lines; each is a secret of its own");
        enum pando_status status = check_length(line.size, path, error, error_bytes);
        if (status != PANDO_OK)
            return status;
        struct secret *secret = &secrets->all[secrets->count++];
        memcpy(secret->bytes, line.data, line.size);
        secret->size = line.size;
    }
    return secrets->count > 0 ? PANDO_OK : check_length(0, path, error, error_bytes);
}

enum pando_status secrets_load(const char *path, struct secrets **out, char *error,
                               size_t error_bytes)
{
    size_t size = 0;
    char *bytes = rt_undumped_alloc(SECRETS_FILE_BYTES_MAX);
    struct secrets *secrets = rt_undumped_alloc(SECRETS_BYTES);
    enum pando_status status = bytes == NULL || secrets == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    if (status != PANDO_OK)
        (void)fail(error, error_bytes, status, path, "out of memory");
    else
        status = read_private(path, bytes, SECRETS_FILE_BYTES_MAX, &size, error, error_bytes);
    if (secrets != NULL)
        memset(secrets, 0, SECRETS_BYTES);
    if (status == PANDO_OK)
        status = take_lines(secrets, bytes, size, path, error, error_bytes);
    if (bytes != NULL)
        OPENSSL_cleanse(bytes, SECRETS_FILE_BYTES_MAX);
    rt_undumped_free(bytes);
    if (status != PANDO_OK)
        secrets_free(secrets);
    else
        *out = secrets;
    return status;
}

void secrets_free(struct secrets *secrets)
{
    if (secrets == NULL)
        return;
    OPENSSL_cleanse(secrets, SECRETS_BYTES);
    rt_undumped_free(secrets);
}

/* ---- proofs ---------------------------------------------------------------------------------- */

void secret_forget(struct secret *secret)
{
    OPENSSL_cleanse(secret, sizeof(*secret));
}

enum pando_status secret_proof(const struct secret *secret, const struct slice *parts, size_t count,
                               uint8_t out[SECRET_PROOF_BYTES])
{
    enum pando_status status = PANDO_NO_MEMORY;
    size_t written = 0;
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = mac == NULL ? NULL : EVP_MAC_CTX_new(mac);
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, "SHA256", 0),
        OSSL_PARAM_construct_end(),
    };

    if (context == NULL || EVP_MAC_init(context, secret->bytes, secret->size, parameters) != 1)
        goto out;
    for (size_t i = 0; i < count; i++) {
        uint64_t size = parts[i].size;
        if (EVP_MAC_update(context, (const uint8_t *)&size, sizeof(size)) != 1 ||
            (size > 0 && EVP_MAC_update(context, parts[i].data, parts[i].size) != 1))
            goto out;
    }
    if (EVP_MAC_final(context, out, &written, SECRET_PROOF_BYTES) == 1 &&
        written == SECRET_PROOF_BYTES)
        status = PANDO_OK;
out:
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(mac);
    return status;
}

int secret_proof_equal(const uint8_t a[SECRET_PROOF_BYTES], const uint8_t b[SECRET_PROOF_BYTES])
{
    return CRYPTO_memcmp(a, b, SECRET_PROOF_BYTES) == 0;
}

enum pando_status secret_nonce(uint8_t *out, size_t size)
{
    return RAND_bytes(out, (int)size) == 1 ? PANDO_OK : PANDO_IO;
}
