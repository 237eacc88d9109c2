/*
 * verify.c - checks a whole table while others use it.
 *
 * The walk goes by keys, not by addresses: the node of a range is asked for by the range's first
 * key, so that every part of the key space is looked at in the node that covers it then, whatever
 * splits, merges or moves meanwhile. A look starts at the address that the parent named; if
 * anything is odd there, it starts again from the root and checks every node on the way down.
 *
 * What looks wrong may be a change under way, or one whose writer died and that is about to be
 * recovered. It is believed to be damage when every look over PATIENCE_LEASES leases made the same
 * complaint about the same node with the same bytes: a writer that is alive has changed them by
 * then, one that is dead has been recovered. Where looks go on contradicting each other the place
 * is counted as unsettled.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "tree/blink/blink_int.h"

enum {
    PATIENCE_LEASES = 3,
    SETTLE_LEASES = 12,
    DAMAGES_MAX = 16, /* then it has seen enough */
    LEVELS_MAX = 32,
    TORN_LOOKS = 16,
    PAUSE_DOUBLINGS = 12,
};
static const uint64_t PAUSE_MIN_NS = 2 * RT_NS_PER_US;
const char blink_torn_leaf[] = "a cell of this leaf fails its check, or a key is there twice";

struct key {
    size_t size;
    uint8_t bytes[ENGINE_KEY_MAX];
};

static struct slice key_slice(const struct key *key)
{
    return slice_of(key->bytes, key->size);
}

static void key_set(struct key *key, struct slice slice)
{
    pando_assert(slice.size <= sizeof(key->bytes));
    if (slice.size > 0)
        memmove(key->bytes, slice.data, slice.size);
    key->size = slice.size;
}

/* What one look found wrong; nothing if `what` is NULL. */
struct complaint {
    fabric_address address;
    const char *what;
    uint32_t crc; /* of the node's bytes */
};

/* The node to the left on a level, for checking sibling pointers. */
struct neighbour {
    bool known;
    fabric_address sibling;
    struct key low, high;
};

struct walk {
    struct blink *self;
    struct engine_census *census;
    char *error;
    size_t error_bytes, error_used;
    struct complaint complaint; /* of the present look */
    struct key low, high;       /* what a descent expects of the next node */
    bool no_high;
    struct neighbour left[LEVELS_MAX];
};

/* A part of the key space, on one level. */
struct range {
    int level;           /* the root's if that is lower */
    fabric_address hint; /* where its first node should be; 0: not known */
    struct blink_span span;
};

static enum pando_status complain(struct walk *walk, fabric_address address, const uint8_t *bytes,
                                  const char *what)
{
    walk->complaint = (struct complaint){
        .address = address,
        .what = what,
        .crc = crc32c(0, bytes, walk->self->tree->layout.node_bytes),
    };
    return PANDO_OK;
}

/* ---- one look -------------------------------------------------------------------------------- */

/* Reads a node that begins at walk->low and ends at or before walk->high; the pointer as for
 * blink_read_linked_co. */
static enum pando_status read_co(struct walk *walk, fabric_address address, uint64_t pointer_ns,
                                 int level, uint8_t *bytes, struct node_header *header)
{
    enum pando_status status = blink_read_linked_co(walk->self, address, pointer_ns, bytes, header);
    if (status == PANDO_STALE)
        return complain(walk, address, bytes, "there is no valid node here, though one is linked");
    if (status != PANDO_OK)
        return status;
    if (header->dead)
        return complain(walk, address, bytes, "a dead node is linked");
    if ((level >= 0 && header->level != level) || header->level >= LEVELS_MAX)
        return complain(walk, address, bytes, "a node of another level is linked");
    if (!slice_equal(header->low, key_slice(&walk->low)))
        return complain(walk, address, bytes, "its low fence is not where its range begins");
    if (walk->no_high ? false
                      : header->no_high || slice_compare(header->high, key_slice(&walk->high)) > 0)
        return complain(walk, address, bytes, "its high fence is beyond where its range ends");
    if (header->no_high ? header->sibling != 0 : header->sibling == 0)
        return complain(walk, address, bytes, "its sibling pointer and its high fence disagree");
    if (header->level > 0 && !inner_sound(&walk->self->tree->layout, header, bytes))
        return complain(walk, address, bytes, "separators that do not rise, or no address");
    return PANDO_OK;
}

/* What the descent expects of child `index`. */
static void expect_child(struct walk *walk, const uint8_t *bytes, const struct node_header *header,
                         uint32_t index)
{
    const struct node_layout *layout = &walk->self->tree->layout;
    bool last = index == inner_count(layout, bytes);
    key_set(&walk->low, index == 0 ? header->low : inner_key_at(layout, bytes, index - 1));
    walk->no_high = last && header->no_high;
    if (!walk->no_high)
        key_set(&walk->high, last ? header->high : inner_key_at(layout, bytes, index));
}

/* From the root to the node that covers the key; of a tree that is lower by now, the root. */
static enum pando_status descend_co(struct walk *walk, int level, struct slice key, uint8_t *bytes,
                                    struct node_header *header)
{
    const struct node_layout *layout = &walk->self->tree->layout;
    fabric_address address;
    int expected = -1;
    enum pando_status status = blink_settled_root_co(walk->self, bytes, &address);
    uint64_t pointer_ns = rt_coarse_ns();

    key_set(&walk->low, slice_of(NULL, 0));
    walk->no_high = true;
    if (status == PANDO_CORRUPT) {
        const struct blink_tree *tree = walk->self->tree;
        walk->complaint = (struct complaint){.address = pool_root_address(tree->pool, tree->slot),
                                             .what = blink_bad_root};
        return PANDO_OK;
    }
    for (int moves = 0; status == PANDO_OK && moves < BLINK_WAY_MAX; moves++) {
        uint64_t read_ns = rt_coarse_ns();
        status = read_co(walk, address, pointer_ns, expected, bytes, header);
        if (status != PANDO_OK || walk->complaint.what != NULL)
            return status;
        pointer_ns = read_ns;
        expected = header->level;
        if (node_right_of(header, key)) { /* a split that its parent has not been told of */
            key_set(&walk->low, header->high);
            address = header->sibling;
            continue;
        }
        if (header->level <= level)
            return PANDO_OK;
        uint32_t index;
        address = inner_child(layout, bytes, key, &index);
        expect_child(walk, bytes, header, index);
        expected = header->level - 1;
    }
    if (status == PANDO_OK)
        status = complain(walk, address, bytes, "siblings without end");
    return status;
}

/* The node that the parent named, if it is just what the parent said; descends otherwise. */
static enum pando_status reach_co(struct walk *walk, const struct range *range, uint8_t *bytes,
                                  struct node_header *header)
{
    walk->complaint = (struct complaint){0};
    if (range->hint != 0) {
        key_set(&walk->low, range->span.low);
        key_set(&walk->high, range->span.high);
        walk->no_high = range->span.no_high;
        enum pando_status status = read_co(walk, range->hint, 0, range->level, bytes, header);
        if (status != PANDO_OK || walk->complaint.what == NULL)
            return status;
        walk->complaint = (struct complaint){0};
    }
    return descend_co(walk, range->level, range->span.low, bytes, header);
}

static enum pando_status check_leaf_co(struct walk *walk, const struct range *range,
                                       struct blink_scratch *scratch,
                                       const struct node_header *header,
                                       struct blink_content *content)
{
    const char *wrong = NULL;
    *content = (struct blink_content){0};
    enum pando_status status = walk->self->tree->leaves->check_co(walk->self, &range->span, scratch,
                                                                  header, content, &wrong);
    if (status == PANDO_OK && wrong != NULL)
        return complain(walk, header->address, scratch->node, wrong);
    return status;
}

/* A leaf is read again before anything is said of it: it is torn more often than not where many
 * write. */
static enum pando_status read_and_check_co(struct walk *walk, const struct range *range,
                                           struct blink_scratch *scratch,
                                           struct node_header *header,
                                           struct blink_content *content)
{
    enum pando_status status = PANDO_OK;
    for (int i = 0; i < TORN_LOOKS; i++) {
        status = reach_co(walk, range, scratch->node, header);
        if (status == PANDO_OK && walk->complaint.what == NULL && header->level == 0)
            status = check_leaf_co(walk, range, scratch, header, content);
        if (status != PANDO_OK || walk->complaint.what == NULL)
            return status;
    }
    return status;
}

/* ---- looks until something is certain -------------------------------------------------------- */

enum verdict { SOUND, DAMAGED, UNSETTLED };

struct suspect {
    struct complaint complaint;
    unsigned looks;
    uint64_t since_ns, end_ns;
};

/* After a look with a complaint. False: look again. */
static bool decide_co(struct walk *walk, struct suspect *suspect, enum verdict *verdict)
{
    uint64_t lease_ns = pool_lease_ns(walk->self->tree->pool);
    uint64_t now_ns = rt_now_ns();
    const struct complaint *now = &walk->complaint;
    bool same = suspect->complaint.what == now->what &&
                suspect->complaint.address == now->address && suspect->complaint.crc == now->crc;

    if (suspect->looks++ == 0)
        suspect->end_ns = now_ns + SETTLE_LEASES * lease_ns;
    if (!same) {
        suspect->complaint = *now;
        suspect->since_ns = now_ns;
    }
    *verdict =
        same && now_ns - suspect->since_ns >= PATIENCE_LEASES * lease_ns ? DAMAGED : UNSETTLED;
    if (*verdict == DAMAGED || now_ns >= suspect->end_ns)
        return true;
    /* Another process may be in the middle of it, or have died there. */
    rt_sleep_co(
        PAUSE_MIN_NS << (suspect->looks < PAUSE_DOUBLINGS ? suspect->looks : PAUSE_DOUBLINGS));
    return false;
}

static enum pando_status check_until_certain_co(struct walk *walk, const struct range *range,
                                                struct blink_scratch *scratch,
                                                struct node_header *header,
                                                struct blink_content *content,
                                                enum verdict *verdict)
{
    struct suspect suspect = {0};
    struct range again = *range;

    do {
        enum pando_status status = read_and_check_co(walk, &again, scratch, header, content);
        if (status != PANDO_OK)
            return status;
        again.hint = 0;
        *verdict = SOUND;
        if (walk->complaint.what == blink_torn_leaf) {
            /* Repairs what a dead writer left; else it is certain at once. */
            status = walk->self->tree->leaves->repair_co(walk->self, range->span.low);
            if (status == PANDO_CORRUPT) {
                *verdict = DAMAGED;
                return PANDO_OK;
            }
            if (status != PANDO_OK)
                return status;
        }
    } while (walk->complaint.what != NULL && !decide_co(walk, &suspect, verdict));
    return PANDO_OK;
}

/* ---- saying it ------------------------------------------------------------------------------- */

static void note(struct walk *walk, const struct range *range, enum verdict verdict)
{
    char low[BLINK_KEY_TEXT], high[BLINK_KEY_TEXT];
    const struct complaint *complaint = &walk->complaint;
    if (verdict == UNSETTLED) {
        walk->census->unsettled++;
        return;
    }
    walk->census->damaged++;
    blink_key_text(range->span.low, low);
    blink_key_text(range->span.high, high);
    if (walk->error_used >= walk->error_bytes)
        return;
    int size = snprintf(walk->error + walk->error_used, walk->error_bytes - walk->error_used,
                        "%smemory node %u, offset 0x%llx, keys from \"%s\" to %s%s%s: %s",
                        walk->error_used > 0 ? "\n" : "",
                        pool_node_of(walk->self->tree->pool, complaint->address),
                        (unsigned long long)fabric_address_offset(complaint->address), low,
                        range->span.no_high ? "the last" : "\"", high,
                        range->span.no_high ? "" : "\"", complaint->what);
    walk->error_used += (size_t)size;
}

/* ---- sibling pointers ------------------------------------------------------------------------ */

/* Whether the node that covers `low` points to the one that begins where it ends. */
static enum pando_status look_at_link_co(struct walk *walk, int level, struct slice low,
                                         struct blink_scratch *scratch)
{
    struct range range = {.level = level, .span.low = low};
    struct node_header header;
    struct key next;
    enum pando_status status = reach_co(walk, &range, scratch->node, &header);
    if (status != PANDO_OK || walk->complaint.what != NULL || header.no_high)
        return status;
    fabric_address node = header.address, sibling = header.sibling;
    memcpy(scratch->image, scratch->node, walk->self->tree->layout.node_bytes);
    key_set(&next, header.high);
    range.span.low = key_slice(&next);
    status = reach_co(walk, &range, scratch->node, &header);
    if (status == PANDO_OK && walk->complaint.what == NULL && header.address != sibling &&
        slice_equal(header.low, range.span.low))
        return complain(walk, node, scratch->image, "its sibling pointer leads astray");
    return status;
}

static enum pando_status check_link_co(struct walk *walk, const struct node_header *header)
{
    struct neighbour *left = &walk->left[header->level];
    enum verdict verdict = SOUND;
    struct suspect suspect = {0};
    enum pando_status status = PANDO_OK;

    if (left->known && left->sibling != header->address &&
        slice_equal(key_slice(&left->high), header->low)) {
        struct blink_scratch *scratch = blink_scratch_take(walk->self);
        if (scratch == NULL)
            return PANDO_NO_MEMORY;
        struct range range = {.level = header->level, .span.low = key_slice(&left->low)};
        do {
            status = look_at_link_co(walk, range.level, range.span.low, scratch);
        } while (status == PANDO_OK && walk->complaint.what != NULL &&
                 !decide_co(walk, &suspect, &verdict));
        if (status == PANDO_OK && walk->complaint.what != NULL)
            note(walk, &range, verdict);
        blink_scratch_give(walk->self, scratch);
    }
    left->known = !header->no_high;
    left->sibling = header->sibling;
    key_set(&left->low, header->low);
    if (left->known)
        key_set(&left->high, header->high);
    return status;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static enum pando_status walk_range_co(struct walk *walk, const struct range *range);

static enum pando_status walk_children_co(struct walk *walk, const struct range *range,
                                          struct blink_scratch *scratch,
                                          const struct node_header *header)
{
    const struct node_layout *layout = &walk->self->tree->layout;
    uint32_t count = inner_count(layout, scratch->node);
    enum pando_status status = PANDO_OK;

    for (uint32_t i = 0; i <= count && status == PANDO_OK; i++) {
        bool last = i == count;
        struct range child = {
            .level = header->level - 1,
            .hint = inner_child_at(layout, scratch->node, i),
            .span.low = i == 0 ? header->low : inner_key_at(layout, scratch->node, i - 1),
            .span.high = last ? header->high : inner_key_at(layout, scratch->node, i),
            .span.no_high = last && header->no_high,
        };
        /* Of a node that has grown over its neighbour, only what is in the range. */
        if (slice_compare(child.span.low, range->span.low) < 0) {
            child.span.low = range->span.low;
            child.hint = 0;
        }
        if (!range->span.no_high &&
            (child.span.no_high || slice_compare(child.span.high, range->span.high) > 0)) {
            child.span.high = range->span.high;
            child.span.no_high = false;
        }
        if (child.span.no_high || slice_compare(child.span.low, child.span.high) < 0)
            status = walk_range_co(walk, &child);
    }
    return status;
}

static enum pando_status walk_node_co(struct walk *walk, const struct range *range,
                                      struct blink_scratch *scratch,
                                      const struct node_header *header,
                                      const struct blink_content *content)
{
    enum pando_status status = check_link_co(walk, header);
    if (status != PANDO_OK)
        return status;
    walk->census->nodes++;
    walk->census->bytes += walk->self->tree->layout.node_bytes;
    if (header->level > 0)
        return walk_children_co(walk, range, scratch, header);
    walk->census->leaves++;
    walk->census->pairs += content->pairs;
    walk->census->bytes += content->bytes;
    return PANDO_OK;
}

/* Node after node until the range is covered. Behind damage it goes on with the next range. */
static enum pando_status walk_range_co(struct walk *walk, const struct range *range)
{
    struct blink_scratch *scratch = blink_scratch_take(walk->self);
    struct key *cursor = malloc(sizeof(*cursor));
    struct range rest = *range;
    enum pando_status status = cursor == NULL || scratch == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    while (status == PANDO_OK && walk->census->damaged < DAMAGES_MAX) {
        struct node_header header;
        struct blink_content content = {0};
        enum verdict verdict;
        status = check_until_certain_co(walk, &rest, scratch, &header, &content, &verdict);
        if (status != PANDO_OK)
            break;
        if (verdict != SOUND) {
            note(walk, &rest, verdict);
            walk->left[rest.level < LEVELS_MAX && rest.level >= 0 ? rest.level : 0].known = false;
            break;
        }
        status = walk_node_co(walk, &rest, scratch, &header, &content);
        if (header.no_high ||
            (!range->span.no_high && slice_compare(header.high, range->span.high) >= 0))
            break;
        key_set(cursor, header.high);
        rest.span.low = key_slice(cursor);
        rest.hint = header.sibling;
    }
    free(cursor);
    if (scratch != NULL)
        blink_scratch_give(walk->self, scratch);
    return status;
}

enum pando_status blink_verify_co(struct blink *self, struct engine_census *out, char *error,
                                  size_t error_bytes)
{
    struct walk *walk = calloc(1, sizeof(*walk));
    struct range all = {.level = LEVELS_MAX, .span.no_high = true};
    if (walk == NULL)
        return PANDO_NO_MEMORY;
    walk->self = self;
    walk->census = out;
    walk->error = error;
    walk->error_bytes = error_bytes;
    enum pando_status status = walk_range_co(walk, &all);
    free(walk);
    return status;
}
