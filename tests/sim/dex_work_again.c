/*
 * A memory node that goes down in the middle of a change it makes for an owner finishes it by its intent when it comes
 * up again. The owner then repeats its call, and is told that it was done: the intent must not outlast that, or it
 * would be carried out once more after later changes. An intent of another change in that slot stays.
 */
#include "pool/intent.h"
#include "pool/pool_int.h"
#include "sim/dex_world.h"
#include "tree/dex/dex_int.h"
#include "tree/dex/pushdown/pushdown_fmt.h"

enum { PAGE = 1024 };

static const struct engine_shape shape = {
    .key_size = 8, .value_size = 8, .key_max = 8, .value_inline = 8, .node_bytes = PAGE};

static const uint64_t EPOCH = 1000; /* higher than any of the table's */
static const uint64_t key = 7;

struct owner {
    struct dex_member member;
    struct dex *engine;
    fabric_address slot, leaf;
};

static unsigned done;

static struct fabric_endpoint *node_of(struct owner *self)
{
    return pool_endpoint(self->member.session, 0);
}

/* A put of the key by a call; whether it was done by an earlier one. */
static bool put_co(struct owner *self, uint64_t lsn)
{
    const struct page_layout *layout = &self->engine->table->layout;
    uint8_t page[PAGE], body[sizeof(struct dex_pushdown_request) + 16];
    struct dex_pushdown_reply reply;

    CHECK_OK(dex_read_co(self->engine, self->engine->table->root, page));
    struct dex_pushdown_request head = {.engine = DEX_PUSHDOWN,
                                        .operation = DEX_PUSHDOWN_PUT,
                                        .table = self->engine->table->id,
                                        .level = page_level(page),
                                        .page = self->engine->table->root,
                                        .epoch = EPOCH,
                                        .lsn = lsn,
                                        .slot = self->slot,
                                        .page_bytes = layout->page_bytes,
                                        .key_size = layout->key_size,
                                        .value_size = layout->value_size,
                                        .key_max = layout->key_max,
                                        .value_max = layout->value_max,
                                        .key_bytes = 8,
                                        .value_bytes = 8};
    memcpy(body, &head, sizeof(head));
    memcpy(body + sizeof(head), &key, 8);
    memcpy(body + sizeof(head) + 8, &lsn, 8);
    CHECK_OK(fabric_call_co(node_of(self), POOL_PUSHDOWN, slice_of(body, sizeof(body)), &reply,
                            sizeof(reply), NULL));
    self->leaf = reply.leaf;
    return reply.repeated == 1;
}

static uint64_t slot_word_co(struct owner *self)
{
    uint64_t word = 0;
    struct fabric_op read = fabric_read(fabric_address_offset(self->slot), &word, sizeof(word));
    CHECK_OK(fabric_submit_co(node_of(self), &read, 1));
    return word;
}

/* As it was before it was cleared: of the leaf as it is. */
static void leave_intent_co(struct owner *self)
{
    static _Alignas(64) uint8_t bytes[POOL_INTENT_BYTES];
    struct intent_lock nobody = {.word = pool_lock_word(pool_identity(self->member.pool), 1)};
    struct intent_builder builder;
    uint8_t page[PAGE];

    CHECK_OK(dex_read_co(self->engine, self->leaf, page));
    intent_begin(&builder, bytes, sizeof(bytes), nobody);
    intent_add_image(&builder, self->leaf, slice_of(page, sizeof(page)));
    size_t size = intent_finish(&builder, pool_id(self->member.pool), self->slot);
    CHECK(size > 0);
    struct fabric_op write = fabric_write(fabric_address_offset(self->slot), bytes, (uint32_t)size);
    CHECK_OK(fabric_submit_co(node_of(self), &write, 1));
    CHECK(slot_word_co(self) != 0);
}

static void owner_task(void *arg)
{
    struct owner self = {0};
    struct engine *engine;

    dex_join_co(arg, &self.member);
    CHECK_OK(engine_create_co(&dex_engine, self.member.session, "t", &shape));
    CHECK_OK(dex_open_co(&self.member, "t", NULL));
    CHECK_OK(engine_attach_co(self.member.table, self.member.session, &engine));
    self.engine = dex_of(engine);
    CHECK_OK(pool_intent_take_co(self.member.session, 0, &self.slot));

    CHECK(!put_co(&self, 1));
    CHECK_EQ_U64(slot_word_co(&self), 0);
    leave_intent_co(&self);
    CHECK(put_co(&self, 1));
    CHECK_EQ_U64(slot_word_co(&self), 0);

    CHECK(!put_co(&self, 2));
    leave_intent_co(&self);
    CHECK(put_co(&self, 1)); /* late: the slot is the second's */
    CHECK(slot_word_co(&self) != 0);
    CHECK(put_co(&self, 2));
    CHECK_EQ_U64(slot_word_co(&self), 0);

    pool_intent_give(self.member.session, self.slot);
    engine_detach_co(engine);
    engine_close_co(self.member.table, self.member.session);
    dex_leave_co(&self.member);
    done++;
}

int main(void)
{
    struct dex_world place;
    dex_world_build(&place, 41, 9);
    dex_world_run(&place, owner_task, NULL);
    CHECK_EQ_U64(done, 1);
    return 0;
}
