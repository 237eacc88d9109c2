/*
 * secret.h - the shared secrets of a pool, and proofs of knowing one.
 */
#ifndef FABRIC_STREAM_SECRET_H
#define FABRIC_STREAM_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "pando/pando.h"

enum { SECRET_BYTES_MIN = 16, SECRET_BYTES_MAX = 4096, SECRET_PROOF_BYTES = 32 };

struct secret {
    size_t size;
    uint8_t bytes[SECRET_BYTES_MAX];
};

/* Reads it from a file that nobody but its owner may read; white space at the end does not count.
 * Errors as one line for a person, without the contents. */
PANDO_MUST_CHECK enum pando_status secret_load(struct secret *secret, const char *path, char *error,
                                               size_t error_bytes);
void secret_forget(struct secret *secret);

/* What a pool's secret file has: a secret in each line. The first is for showing, all are accepted, so
 * that a secret can be changed while old and new ones are in use. */
enum { SECRETS_MAX = 8, SECRETS_FILE_BYTES_MAX = 8192 };

struct secrets {
    unsigned count; /* at least 1 */
    struct secret all[];
};

/* As secret_load; empty lines do not count. *out is the caller's, to be freed with secrets_free. */
PANDO_MUST_CHECK enum pando_status secrets_load(const char *path, struct secrets **out, char *error,
                                                size_t error_bytes);
void secrets_free(struct secrets *secrets);

/* HMAC-SHA256 over the parts, each preceded by its length. */
PANDO_MUST_CHECK enum pando_status secret_proof(const struct secret *secret,
                                                const struct slice *parts, size_t count,
                                                uint8_t out[SECRET_PROOF_BYTES]);

/* In constant time. */
int secret_proof_equal(const uint8_t a[SECRET_PROOF_BYTES], const uint8_t b[SECRET_PROOF_BYTES]);

/* Bytes nobody can guess. */
PANDO_MUST_CHECK enum pando_status secret_nonce(uint8_t *out, size_t size);

#endif
