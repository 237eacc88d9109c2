/*
 * Calls to a memory node, as any client that knows the secret may send them: arbitrary methods and
 * bodies, in the name of a few members and of nobody, between them what clients do to their own blocks
 * one-sided, restarts of the node, and time. Afterwards the node's books must be right: no block is in
 * its hands twice, and each that it has is its own according to the window.
 *
 * The input is a sequence of steps: a byte that says which, then what it takes. See `steps`.
 */
#include "fuzz/memory_node.h"
#include "tree/dex/page/page.h"
#include "tree/dex/pushdown/pushdown_fmt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS_MAX = 24, GRANTED_MAX = 256, PAGE = 1024, LEAF_PAIRS = 9, MEMBERS = 4 };

struct held {
    struct pool_block block;
    uint32_t bytes;
    struct fabric_identity member;
};

static struct run {
    struct input input;
    struct held held[GRANTED_MAX];
    unsigned held_count;
    bool honest; /* nobody has written what is not its own */
} run;

static struct fabric_identity member_of(uint8_t choice)
{
    uint16_t member = choice % MEMBERS;
    return (struct fabric_identity){.member = member, .incarnation = member == 0 ? 0 : choice / 64};
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* In memory of exactly its size; the reply too. */
static enum pando_status call(struct fabric_identity from, uint16_t method, const void *body,
                              size_t body_bytes, uint8_t **reply, uint32_t *reply_bytes)
{
    uint8_t *copy = malloc(body_bytes > 0 ? body_bytes : 1);
    *reply = aligned_alloc(64, FABRIC_CALL_BYTES_MAX);
    pando_assert(copy != NULL && *reply != NULL);
    if (body_bytes > 0)
        memcpy(copy, body, body_bytes);
    struct fabric_request request = {
        .from = from, .method = method, .body = slice_of(copy, body_bytes), .reply = *reply};
    enum pando_status status = memnode_serve(node.memnode, &request);
    pando_assert(request.reply_size <= FABRIC_CALL_BYTES_MAX && status < PANDO_STATUS_COUNT);
    *reply_bytes = request.reply_size;
    free(copy);
    return status;
}

static void hold(struct fabric_identity member, uint64_t address, uint64_t version, uint32_t bytes)
{
    if (run.held_count < GRANTED_MAX)
        run.held[run.held_count++] =
            (struct held){.block = {address, version}, .bytes = bytes, .member = member};
}

static void remember(struct fabric_identity member, uint32_t block_bytes, const uint8_t *reply,
                     uint32_t size)
{
    struct pool_grant_reply head;
    pando_assert(size >= sizeof(head));
    memcpy(&head, reply, sizeof(head));
    pando_assert(size == sizeof(head) + head.blocks * sizeof(struct pool_block));
    for (uint32_t i = 0; i < head.blocks; i++) {
        struct pool_block block;
        memcpy(&block, reply + sizeof(head) + i * sizeof(block), sizeof(block));
        hold(member, block.address, block.version, block_bytes);
    }
}

static void any_call(struct fabric_identity from)
{
    uint8_t body[512], *reply;
    uint32_t size;
    uint16_t method = input_byte(&run.input) % (POOL_METHODS + 1);
    size_t bytes = input_word(&run.input, 2) % sizeof(body);
    input_copy(&run.input, body, bytes);
    (void)call(from, method, body, bytes, &reply, &size);
    free(reply);
}

static void show_pass(struct fabric_identity from, uint8_t seal[FABRIC_SEAL_BYTES])
{
    struct fabric_ticket pass;
    pando_assert(fabric_seal_make(node.fabric, FABRIC_SEAL_MEMBER, from, &pass) == PANDO_OK);
    memcpy(seal, pass.seal, FABRIC_SEAL_BYTES);
}

static void grant(struct fabric_identity from)
{
    static const uint32_t sizes[] = {65536,   131072,  1 << 18, 1 << 20,
                                     3 << 20, 2 << 20, 65600,   POOL_BLOCK_MAX};
    struct pool_grant_request request = {.block_bytes = sizes[input_byte(&run.input) % 8],
                                         .blocks_max = input_byte(&run.input),
                                         .kind = input_byte(&run.input) % 5,
                                         .modest = input_byte(&run.input) % 2};
    uint8_t *reply;
    uint32_t size;
    show_pass(from, request.pass);
    if (call(from, POOL_GRANT, &request, sizeof(request), &reply, &size) == PANDO_OK)
        remember(from, request.block_bytes, reply, size);
    free(reply);
}

/* Some of what was granted, by whoever says so, some of it twice. */
static void give_back(struct fabric_identity from)
{
    struct {
        struct pool_return_request head;
        struct pool_block blocks[8];
    } request = {
        .head = {.blocks = input_byte(&run.input) % 9, .hold = input_byte(&run.input) % 2}};
    uint8_t *reply;
    uint32_t size;
    for (uint32_t i = 0; i < request.head.blocks && run.held_count > 0; i++) {
        const struct held *held = &run.held[input_byte(&run.input) % run.held_count];
        request.blocks[i] = held->block;
        request.blocks[i].version += input_byte(&run.input);
    }
    show_pass(from, request.head.pass);
    (void)call(from, POOL_RETURN, &request,
               sizeof(request.head) + request.head.blocks * sizeof(struct pool_block), &reply,
               &size);
    free(reply);
}

/* By its pass; of a table that it drops, according to the directory, or does not. */
static void sweep(struct fabric_identity from)
{
    struct fabric_identity dead = member_of(input_byte(&run.input));
    uint8_t choice = input_byte(&run.input);
    struct pool_sweep_request request = {.member = dead.member, .incarnation = dead.incarnation};
    uint64_t entry[3] = {pool_dropping_pack(from), 0, choice % 3};
    uint8_t *reply;
    uint32_t size;
    if (dead.member == 0) {
        request.table = input_byte(&run.input) % 3;
        request.slot = choice / 3 % 4;
    }
    _Static_assert(offsetof(struct pool_entry, table) == 16, "entry");
    pando_assert(fabric_self_write(node.fabric, node.memnode->super.directory, entry,
                                   sizeof(entry)) == PANDO_OK);
    show_pass(from, request.pass);
    enum pando_status status = call(from, POOL_SWEEP, &request, sizeof(request), &reply, &size);
    bool drops = request.slot == 0 && request.table != 0 && request.table == entry[2];
    if (dead.member == 0)
        pando_assert(status == (from.member != 0 && drops ? PANDO_OK : PANDO_DENIED));
    free(reply);
}

/* ---- work ------------------------------------------------------------------------------------ */

static struct page_layout work_layout(void)
{
    return (struct page_layout){.pool = node.memnode->super.pool_id,
                                .table = 1,
                                .page_bytes = PAGE,
                                .key_size = 8,
                                .value_size = 8,
                                .key_max = 8,
                                .value_max = 8};
}

static uint64_t page_place(unsigned i)
{
    return node.memnode->super.heap_offset + (FUZZ_CHUNKS - 1) * (uint64_t)POOL_CHUNK_BYTES +
           i * PAGE;
}

/* A root over two leaves in the last chunk, damaged where the input says, and made whole again or not. */
static void put_tree(void)
{
    struct page_layout layout = work_layout();
    uint8_t page[PAGE];
    for (unsigned i = 0; i < 3; i++) {
        fabric_address address = fabric_address_make(0, page_place(i));
        struct page_header header = {.address = address, .level = i == 0, .no_high = i != 1};
        uint64_t middle = __builtin_bswap64(100);
        if (i == 1)
            header.high = slice_of(&middle, 8);
        if (i == 2)
            header.low = slice_of(&middle, 8);
        page_init(&layout, &header, page);
        for (unsigned j = 0; j < (i == 0 ? 2 : LEAF_PAIRS); j++) {
            uint64_t key = __builtin_bswap64(i == 2 ? 100 + j : i == 0 ? j * 100 : j);
            uint64_t value = i == 0 ? fabric_address_make(0, page_place(1 + j)) : j;
            struct page_pair pair = {.key = slice_of(&key, i == 0 && j == 0 ? 0 : 8),
                                     .value = slice_of(&value, 8)};
            if (i == 0 && j == 0)
                pair.key = slice_of(&key, 8);
            (void)page_push(&layout, page, &pair);
        }
        uint8_t damages = input_byte(&run.input);
        for (unsigned j = 0; j < damages / 64; j++) {
            uint64_t at = input_word(&run.input, 2) % PAGE;
            page[at] = input_byte(&run.input);
        }
        if (damages & 1)
            page_word_set(page, POOL_BLOCK_ADDRESS, address);
        if ((damages & 2) == 0)
            page_seal(&layout, page);
        pando_assert(fabric_self_write(node.fabric, page_place(i), page, PAGE) == PANDO_OK);
    }
    run.honest = false;
}

static void work(struct fabric_identity from)
{
    uint8_t body[sizeof(struct dex_pushdown_request) + 64], *reply;
    uint32_t size;
    uint8_t operation = input_byte(&run.input), damages = input_byte(&run.input);
    bool value = operation % DEX_PUSHDOWN_KINDS != DEX_PUSHDOWN_GET &&
                 operation % DEX_PUSHDOWN_KINDS != DEX_PUSHDOWN_DELETE;
    uint8_t start = input_byte(&run.input);
    struct dex_pushdown_request head = {.engine = DEX_PUSHDOWN,
                                        .operation = operation % DEX_PUSHDOWN_KINDS,
                                        .table = 1,
                                        .level = start % 3 == 0,
                                        .page = fabric_address_make(0, page_place(start % 3)),
                                        .epoch = 1,
                                        .lsn = input_byte(&run.input),
                                        .slot = operation & 0x80 ? page_place(512) : 0,
                                        .page_bytes = PAGE,
                                        .key_size = 8,
                                        .value_size = 8,
                                        .key_max = 8,
                                        .value_max = 8,
                                        .key_bytes = 8,
                                        .value_bytes = value ? 8 : 0};
    size_t bytes = sizeof(head) + head.key_bytes + head.value_bytes;
    uint64_t key = __builtin_bswap64(input_byte(&run.input) % 128u);
    memset(body, 0, sizeof(body));
    memcpy(body, &head, sizeof(head));
    memcpy(body + sizeof(head), &key, 8);
    for (unsigned i = 0; i < damages % 4; i++) {
        uint8_t at = input_byte(&run.input) % sizeof(body);
        body[at] = input_byte(&run.input);
    }
    if (damages & 0x80)
        bytes = input_byte(&run.input) % (sizeof(body) + 1);
    (void)call(from, operation & 0x40 ? POOL_PUSHDOWN_SEEN : POOL_PUSHDOWN, body, bytes, &reply,
               &size);
    free(reply);
    if (head.slot != 0)
        run.honest = false;
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* What a client does to a block that it holds: makes it part of a table, or free again. */
static void use_block(bool live)
{
    if (run.held_count == 0)
        return;
    const struct held *held = &run.held[input_byte(&run.input) % run.held_count];
    uint64_t at = fabric_address_offset(held->block.address) + POOL_BLOCK_TENURE, word;
    pando_assert(fabric_self_read(node.fabric, at, &word, 8) == PANDO_OK);
    struct pool_tenure now = pool_tenure_unpack(word);
    bool own = now.holder.member == held->member.member && now.state != POOL_BLOCK_RAW;
    if (!own)
        return;
    struct pool_tenure tenure = {
        .state = live ? POOL_BLOCK_LIVE : POOL_BLOCK_FREE, .table = live, .holder = held->member};
    word = pool_tenure_pack(tenure);
    pando_assert(fabric_self_write(node.fabric, at, &word, 8) == PANDO_OK);
}

/* What nobody may do, but anybody with the secret can. */
static void scribble(void)
{
    static const uint64_t parts[] = {0, POOL_CHUNK_TABLE};
    uint8_t choice = input_byte(&run.input);
    uint64_t at =
        choice & 1 ? node.memnode->super.heap_offset : node.memnode->first + parts[choice / 2 % 2];
    at += input_word(&run.input, 3) % (256 * 1024) / 8 * 8;
    uint64_t word = input_word(&run.input, 8);
    pando_assert(fabric_self_write(node.fabric, at, &word, 8) == PANDO_OK);
    run.honest = false;
}

static void check_books(void)
{
    struct pool_node_stats stats;
    uint64_t chunks_free = 0;
    memnode_stats(node.memnode, &stats); /* releases chunks that need not be held any more */
    for (uint64_t i = 0; i < node.memnode->super.chunks; i++) {
        const struct chunk *chunk = &node.memnode->chunks[i];
        chunks_free += chunk->entry.kind == POOL_CHUNK_FREE;
        pando_assert(chunk->free_count <= chunk->blocks && chunk->held <= chunk->blocks);
        if (!run.honest || chunk->free_count == 0)
            continue;
        bool *seen = calloc(chunk->blocks, sizeof(bool));
        pando_assert(seen != NULL);
        for (uint32_t j = 0; j < chunk->free_count; j++) {
            uint32_t block = chunk->free_blocks[j];
            pando_assert(block < chunk->blocks && !seen[block]);
            seen[block] = true;
            uint64_t word, at = node.memnode->super.heap_offset + i * POOL_CHUNK_BYTES +
                                (uint64_t)block * chunk->entry.block_bytes + POOL_BLOCK_TENURE;
            pando_assert(fabric_self_read(node.fabric, at, &word, 8) == PANDO_OK);
            struct pool_tenure tenure = pool_tenure_unpack(word);
            pando_assert(tenure.state == POOL_BLOCK_FREE && tenure.holder.member == 0);
        }
        free(seen);
    }
    pando_assert(stats.chunks_free == chunks_free && stats.chunks_reserved <= chunks_free);
}

static bool restart(void)
{
    node_close();
    enum pando_status status = node_open();
    if (status == PANDO_OK)
        return true;
    /* Only a window that somebody damaged is refused. */
    pando_assert(!run.honest &&
                 (status == PANDO_CORRUPT || status == PANDO_VERSION || status == PANDO_INVALID));
    return false;
}

static void fence(struct fabric_identity member)
{
    if (member.member != 0)
        window_fence((struct window *)node.fabric->window, member);
}

static void steps(void *arg)
{
    (void)arg;
    bool open = true;
    for (unsigned i = 0; i < STEPS_MAX && run.input.size > 0 && open; i++) {
        uint8_t choice = input_byte(&run.input);
        struct fabric_identity from = member_of(input_byte(&run.input));
        switch (choice % 16) {
        case 0:
            any_call(from);
            break;
        case 1:
            sweep(from);
            break;
        case 2:
        case 3:
        case 4:
            grant(from);
            break;
        case 5:
        case 6:
            give_back(from);
            break;
        case 7:
            put_tree();
            break;
        case 8:
        case 9:
        case 10:
            work(from);
            break;
        case 11:
        case 12:
            use_block(choice & 0x80);
            break;
        case 13:
            scribble();
            break;
        case 14:
            open = restart();
            break;
        default:
            if (choice & 0x80)
                fence(from);
            else
                rt_sleep_co(RT_NS_PER_S);
            break;
        }
    }
    if (open)
        check_books();
    if (open && restart())
        check_books();
    if (node.memnode != NULL)
        node_close();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (node.net == NULL)
        node_build();
    node_forget();
    run = (struct run){.input = {data, size}, .honest = true};
    pando_assert(node_open() == PANDO_OK);
    node_run_on(node.fabric, steps);
    return 0;
}
