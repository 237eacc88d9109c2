/*
 * handles.c - the table's part and those of its threads; room for calls.
 */
#include <stdlib.h>

#include "owners/owners_int.h"

void owners_init(struct owners *owners)
{
    list_init(&owners->handles);
    rt_waitq_init(&owners->wake);
    rt_waitq_init(&owners->change);
    rt_waitq_init(&owners->drain);
}

void owners_fini(struct owners *owners)
{
    owners_survey_release(owners->survey);
    free(atomic_load(&owners->map));
}

void owners_attach(struct owners_handle *self, struct owners *owners, struct pool_session *session)
{
    self->owners = owners;
    self->session = session;
    rt_latch_lock(&owners->handles_latch);
    list_push_back(&owners->handles, &self->link);
    rt_latch_unlock(&owners->handles_latch);
}

static void scratch_free(struct owners_scratch *scratch)
{
    free(scratch->bytes);
    free(scratch->blob);
    free(scratch);
}

void owners_detach(struct owners_handle *self)
{
    struct owners *owners = self->owners;
    rt_latch_lock(&owners->handles_latch);
    list_remove(&self->link);
    owners->operations_before += atomic_load(&self->operations);
    rt_latch_unlock(&owners->handles_latch);
    while (self->free_scratch != NULL) {
        struct owners_scratch *scratch = self->free_scratch;
        self->free_scratch = scratch->next;
        scratch_free(scratch);
    }
}

struct owners_scratch *owners_scratch_take(struct owners_handle *self)
{
    struct owners_scratch *scratch = self->free_scratch;
    if (scratch != NULL) {
        self->free_scratch = scratch->next;
        return scratch;
    }
    scratch = calloc(1, sizeof(*scratch));
    if (scratch == NULL)
        return NULL;
    scratch->bytes = aligned_alloc(64, POOL_INTENT_BYTES);
    if (scratch->bytes != NULL)
        return scratch;
    scratch_free(scratch);
    return NULL;
}

void owners_scratch_give(struct owners_handle *self, struct owners_scratch *scratch)
{
    free(scratch->blob);
    scratch->blob = NULL;
    scratch->next = self->free_scratch;
    self->free_scratch = scratch;
}

uint64_t owners_operations(struct owners *owners)
{
    rt_latch_lock(&owners->handles_latch);
    uint64_t sum = owners->operations_before;
    list_for_each (link, &owners->handles)
        sum += atomic_load_explicit(&container_of(link, struct owners_handle, link)->operations,
                                    memory_order_relaxed);
    rt_latch_unlock(&owners->handles_latch);
    return sum;
}

enum pando_status owners_retry_co(struct owners *owners, struct pool_retry *retry)
{
    /* Who is leaving does not wait long for a pool that cannot be reached: others will take over. */
    retry->leaving = &owners->closing;
    return pool_retry_co(owners->pool, retry);
}
