/*
 * tls_reload.c - certificates that are read again while the process runs.
 *
 * The context that users have stays the same for as long as they have it; it refers to the one that new
 * streams are made from. OpenSSL counts who uses that, so streams that are open keep the one they began with.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "fabric/stream/tls_int.h"

struct tls_files {
    pthread_mutex_t lock;
    SSL_CTX *current; /* NULL: the context itself */
    enum tls_side side;
    char *cert, *key, *ca; /* NULL: not given */
};

static void files_free(struct tls_files *files)
{
    if (files == NULL)
        return;
    SSL_CTX_free(files->current);
    free(files->cert);
    free(files->key);
    free(files->ca);
    pthread_mutex_destroy(&files->lock);
    free(files);
}

static bool copy_name(const char *name, char **out)
{
    *out = name == NULL ? NULL : strdup(name);
    return name == NULL || *out != NULL;
}

bool tls_files_remember(SSL_CTX *context, enum tls_side side, const char *cert, const char *key,
                        const char *ca)
{
    struct tls_files *files = calloc(1, sizeof(*files));
    if (files == NULL)
        return false;
    pthread_mutex_init(&files->lock, NULL);
    files->side = side;
    if (!copy_name(cert, &files->cert) || !copy_name(key, &files->key) ||
        !copy_name(ca, &files->ca)) {
        files_free(files);
        return false;
    }
    SSL_CTX_set_app_data(context, files);
    return true;
}

void tls_files_forget(SSL_CTX *context)
{
    files_free(SSL_CTX_get_app_data(context));
    SSL_CTX_set_app_data(context, NULL);
}

SSL_CTX *tls_context_current(SSL_CTX *context)
{
    struct tls_files *files = SSL_CTX_get_app_data(context);
    SSL_CTX *current = context;
    if (files == NULL)
        return SSL_CTX_up_ref(context) == 1 ? context : NULL;
    pthread_mutex_lock(&files->lock);
    if (files->current != NULL)
        current = files->current;
    bool counted = SSL_CTX_up_ref(current) == 1;
    pthread_mutex_unlock(&files->lock);
    return counted ? current : NULL;
}

enum pando_status tls_context_reload(SSL_CTX *context, char *error, size_t error_bytes)
{
    struct tls_files *files = context == NULL ? NULL : SSL_CTX_get_app_data(context);
    if (files == NULL || (files->cert == NULL && files->ca == NULL))
        return PANDO_OK;
    SSL_CTX *fresh =
        tls_context_make(files->side, files->cert, files->key, files->ca, error, error_bytes);
    ERR_clear_error(); /* this thread has streams, whose errors OpenSSL looks for in the same queue */
    if (fresh == NULL)
        return PANDO_INVALID;
    pthread_mutex_lock(&files->lock);
    SSL_CTX *former = files->current;
    files->current = fresh;
    pthread_mutex_unlock(&files->lock);
    SSL_CTX_free(former);
    return PANDO_OK;
}
