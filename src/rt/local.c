/*
 * local.c - a pointer per thread, given back when the thread ends; and noticing forks.
 *
 * A thread's pointers hang on its struct owned list, which only that thread walks. A cell whose rt_local
 * is gone stays in the list, without a value, until its thread ends or sets another one. All changes are
 * made under one mutex; a value is taken out of its cell under it by whoever is going to destroy it, so
 * that happens once.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/list.h"
#include "rt/rt.h"

struct rt_local {
    void (*destroy)(void *value);
    struct list cells;
    unsigned ending; /* values being destroyed by threads that end */
};

struct cell {
    struct cell *next; /* the thread's */
    struct list link;  /* the rt_local's */
    _Atomic(struct rt_local *) local;
    void *value;
};

struct owned {
    struct cell *first;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;
static atomic_uint forks;
static _Thread_local struct owned owned;
static _Thread_local const char *note;

/* The cell's value, if it is still there: it is the caller's to destroy. */
static void *cell_take(struct cell *cell)
{
    void *value = cell->value;
    cell->value = NULL;
    list_remove(&cell->link);
    atomic_store(&cell->local, NULL);
    return value;
}

static void thread_ends(void *arg)
{
    struct owned *mine = arg;
    pthread_mutex_lock(&mutex);
    while (mine->first != NULL) {
        struct cell *cell = mine->first;
        struct rt_local *local = atomic_load(&cell->local);
        mine->first = cell->next;
        void *value = cell_take(cell);
        free(cell);
        if (local == NULL || value == NULL)
            continue;
        local->ending++;
        pthread_mutex_unlock(&mutex);
        local->destroy(value);
        pthread_mutex_lock(&mutex);
        local->ending--;
        pthread_cond_broadcast(&ended);
    }
    pthread_mutex_unlock(&mutex);
}

static void forked(void)
{
    atomic_fetch_add(&forks, 1);
}

static void initialise(void)
{
    key_made = pthread_key_create(&key, thread_ends) == 0;
    pthread_atfork(NULL, NULL, forked);
}

struct rt_local *rt_local_create(void (*destroy)(void *value))
{
    pthread_once(&once, initialise);
    struct rt_local *local = key_made ? calloc(1, sizeof(*local)) : NULL;
    if (local == NULL)
        return NULL;
    local->destroy = destroy;
    list_init(&local->cells);
    return local;
}

void rt_local_destroy(struct rt_local *local)
{
    pthread_mutex_lock(&mutex);
    while (!list_empty(&local->cells)) {
        void *value = cell_take(container_of(local->cells.next, struct cell, link));
        pthread_mutex_unlock(&mutex);
        local->destroy(value);
        pthread_mutex_lock(&mutex);
    }
    while (local->ending > 0)
        pthread_cond_wait(&ended, &mutex);
    pthread_mutex_unlock(&mutex);
    free(local);
}

void *rt_local_get(const struct rt_local *local)
{
    for (struct cell *cell = owned.first; cell != NULL; cell = cell->next) {
        if (atomic_load_explicit(&cell->local, memory_order_relaxed) == local)
            return cell->value;
    }
    return NULL;
}

/* Cells of those that are gone. Under the mutex. */
static void sweep(void)
{
    for (struct cell **at = &owned.first; *at != NULL;) {
        struct cell *cell = *at;
        if (atomic_load(&cell->local) != NULL) {
            at = &cell->next;
            continue;
        }
        *at = cell->next;
        free(cell);
    }
}

enum pando_status rt_local_set(struct rt_local *local, void *value)
{
    struct cell *cell = calloc(1, sizeof(*cell));
    if (cell == NULL || pthread_setspecific(key, &owned) != 0) {
        free(cell);
        return PANDO_NO_MEMORY;
    }
    cell->value = value;
    pthread_mutex_lock(&mutex);
    sweep();
    atomic_store(&cell->local, local);
    list_push_back(&local->cells, &cell->link);
    cell->next = owned.first;
    owned.first = cell;
    pthread_mutex_unlock(&mutex);
    return PANDO_OK;
}

const char **rt_local_note(void)
{
    return &note;
}

unsigned rt_forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}
