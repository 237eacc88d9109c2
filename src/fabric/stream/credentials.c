#include "fabric/stream/credentials.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/ssl.h>

#include "fabric/stream/tls_int.h"
#include "rt/undumped.h"

struct credentials {
    pthread_mutex_t mutex; /* set */
    struct credential_set *set;
    bool listens, required, insecure;
    char *secret, *cert, *key, *ca; /* paths; NULL: not given */
};

/* ---- a set ----------------------------------------------------------------------------------- */

static void set_free(struct credential_set *set)
{
    SSL_CTX_free(set->server);
    SSL_CTX_free(set->to_memory);
    SSL_CTX_free(set->to_members);
    psks_forget(&set->keys);
    secrets_free(set->secrets);
    rt_undumped_free(set);
}

/* Gives the context the set's keys; NULL, with an error said, when that fails. */
static SSL_CTX *with_keys(SSL_CTX *context, enum tls_side side, const struct credential_set *set,
                          char *error, size_t error_bytes)
{
    if (context == NULL || psks_use(context, side, &set->keys) == PANDO_OK)
        return context;
    snprintf(error, error_bytes, "TLS: OpenSSL cannot use the secret as a key");
    SSL_CTX_free(context);
    return NULL;
}

static bool make_server(const struct credentials *own, struct credential_set *set, char *error,
                        size_t error_bytes)
{
    if (own->cert != NULL)
        set->server =
            tls_context_make(TLS_SERVER, own->cert, own->key, own->ca, error, error_bytes);
    else
        set->server = with_keys(tls_context_make_keyed(TLS_SERVER, error, error_bytes), TLS_SERVER,
                                set, error, error_bytes);
    return set->server != NULL;
}

static bool make_clients(const struct credentials *own, struct credential_set *set, char *error,
                         size_t error_bytes)
{
    if (own->ca == NULL && own->cert != NULL)
        return true; /* a server with a certificate that knows nobody to trust */
    if (own->ca == NULL) {
        set->to_memory = with_keys(tls_context_make_keyed(TLS_CLIENT, error, error_bytes),
                                   TLS_CLIENT, set, error, error_bytes);
        set->to_members = set->to_memory;
        return set->to_memory != NULL && SSL_CTX_up_ref(set->to_memory) == 1;
    }
    set->to_memory = tls_context_make(TLS_CLIENT, own->cert, own->key, own->ca, error, error_bytes);
    if (set->to_memory == NULL)
        return false;
    set->to_members =
        with_keys(tls_context_make(TLS_CLIENT, own->cert, own->key, own->ca, error, error_bytes),
                  TLS_CLIENT, set, error, error_bytes);
    return set->to_members != NULL;
}

static enum pando_status set_make(const struct credentials *own, struct credential_set **out,
                                  char *error, size_t error_bytes)
{
    struct credential_set *set = rt_undumped_alloc(sizeof(*set));
    if (set == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return PANDO_NO_MEMORY;
    }
    memset(set, 0, sizeof(*set));
    atomic_store(&set->holders, 1);
    enum pando_status status = secrets_load(own->secret, &set->secrets, error, error_bytes);
    if (status == PANDO_OK && (status = psks_make(set->secrets, &set->keys)) != PANDO_OK)
        snprintf(error, error_bytes, "TLS: OpenSSL cannot make a key of the secret");
    if (status == PANDO_OK && own->listens && !make_server(own, set, error, error_bytes))
        status = PANDO_INVALID;
    if (status == PANDO_OK && !make_clients(own, set, error, error_bytes))
        status = PANDO_INVALID;
    if (status != PANDO_OK)
        set_free(set);
    else
        *out = set;
    return status;
}

void credentials_release(struct credential_set *set)
{
    if (atomic_fetch_sub(&set->holders, 1) == 1)
        set_free(set);
}

struct credential_set *credentials_hold(struct credentials *credentials)
{
    pthread_mutex_lock(&credentials->mutex);
    struct credential_set *set = credentials->set;
    atomic_fetch_add(&set->holders, 1);
    pthread_mutex_unlock(&credentials->mutex);
    return set;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static const char *contradiction(const struct fabric_tls *tls, bool listens)
{
    if (tls->insecure && tls->required)
        return "--insecure-tcp and --require-tls contradict each other; give one of them";
    if (tls->insecure && (tls->ca_file != NULL || tls->cert_file != NULL))
        return "--insecure-tcp and certificates contradict each other; give one of them";
    if ((tls->cert_file == NULL) != (tls->key_file == NULL))
        return "--tls-cert and --tls-key belong together; give both";
    if (!listens && tls->cert_file != NULL && tls->ca_file == NULL)
        return "TLS needs --tls-ca to know which servers to trust";
    return NULL;
}

/* True when it is there now, or was not to be. */
static bool copy(const char *text, char **out)
{
    *out = text == NULL ? NULL : strdup(text);
    return text == NULL || *out != NULL;
}

enum pando_status credentials_open(const char *secret_file, const struct fabric_tls *tls,
                                   bool listens, struct credentials **out, char *error,
                                   size_t error_bytes)
{
    const char *wrong = contradiction(tls, listens);
    if (wrong != NULL) {
        snprintf(error, error_bytes, "%s", wrong);
        return PANDO_INVALID;
    }
    struct credentials *own = calloc(1, sizeof(*own));
    if (own == NULL)
        return PANDO_NO_MEMORY;
    own->listens = listens;
    own->required = tls->required;
    own->insecure = tls->insecure;
    pthread_mutex_init(&own->mutex, NULL);
    enum pando_status status = PANDO_OK;
    if (!copy(secret_file, &own->secret) || !copy(tls->cert_file, &own->cert) ||
        !copy(tls->key_file, &own->key) || !copy(tls->ca_file, &own->ca))
        status = PANDO_NO_MEMORY;
    if (status == PANDO_OK)
        status = set_make(own, &own->set, error, error_bytes);
    if (status != PANDO_OK)
        credentials_close(own);
    else
        *out = own;
    return status;
}

void credentials_close(struct credentials *credentials)
{
    if (credentials == NULL)
        return;
    if (credentials->set != NULL)
        credentials_release(credentials->set);
    pthread_mutex_destroy(&credentials->mutex);
    free(credentials->secret);
    free(credentials->cert);
    free(credentials->key);
    free(credentials->ca);
    free(credentials);
}

enum pando_status credentials_reload(struct credentials *credentials, char *text, size_t text_bytes)
{
    struct credential_set *set;
    enum pando_status status = set_make(credentials, &set, text, text_bytes);
    if (status != PANDO_OK)
        return status;
    snprintf(text, text_bytes, "%u secret%s%s%s", set->secrets->count,
             set->secrets->count == 1 ? "" : "s",
             set->secrets->count > 1 ? ", the first is shown to others" : "",
             credentials_certified(credentials) ? ", and certificates" : "");
    pthread_mutex_lock(&credentials->mutex);
    struct credential_set *former = credentials->set;
    credentials->set = set;
    pthread_mutex_unlock(&credentials->mutex);
    credentials_release(former);
    return PANDO_OK;
}

/* ---- who needs TLS --------------------------------------------------------------------------- */

bool credentials_certified(const struct credentials *credentials)
{
    return credentials->ca != NULL || credentials->cert != NULL;
}

bool credentials_insecure(const struct credentials *credentials)
{
    return credentials->insecure;
}

bool credentials_want_tls(const struct credentials *credentials, int fd)
{
    if (credentials_certified(credentials) || credentials->required)
        return true;
    return !credentials->insecure && !socket_is_loopback(fd);
}
