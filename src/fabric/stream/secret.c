#include "fabric/stream/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

static enum pando_status fail(char *error, size_t error_bytes, enum pando_status status,
                              const char *path, const char *what)
{
    snprintf(error, error_bytes, "secret file %s: %s", path, what);
    return status;
}

static enum pando_status read_secret(struct secret *secret, int fd, const char *path, char *error,
                                     size_t error_bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return fail(error, error_bytes, PANDO_INVALID, path, "not a regular file");
    if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return fail(error, error_bytes, PANDO_DENIED, path,
                    "others may read it; run: chmod 600 on it, and change the secret");
    if (info.st_size > SECRET_BYTES_MAX)
        return fail(error, error_bytes, PANDO_TOO_LARGE, path, "longer than 4096 bytes");
    ssize_t got = read(fd, secret->bytes, sizeof(secret->bytes));
    if (got < 0)
        return fail(error, error_bytes, PANDO_IO, path, strerror(errno));
    secret->size = (size_t)got;
    while (secret->size > 0 && strchr(" \t\r\n", secret->bytes[secret->size - 1]) != NULL)
        secret->size--;
    if (secret->size < SECRET_BYTES_MIN)
        return fail(error, error_bytes, PANDO_INVALID, path,
                    "shorter than 16 bytes; make one with: head -c 32 /dev/urandom | base64");
    return PANDO_OK;
}

enum pando_status secret_load(struct secret *secret, const char *path, char *error,
                              size_t error_bytes)
{
    memset(secret, 0, sizeof(*secret));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail(error, error_bytes, errno == EACCES ? PANDO_DENIED : PANDO_NOT_FOUND, path,
                    strerror(errno));
    enum pando_status status = read_secret(secret, fd, path, error, error_bytes);
    close(fd);
    if (status != PANDO_OK)
        secret_forget(secret);
    return status;
}

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
