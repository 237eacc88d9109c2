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
#include "tree/sherman/sherman_int.h"

enum {
    PATIENCE_LEASES = 3,
    SETTLE_LEASES = 12,
    DAMAGES_MAX = 16, /* then it has seen enough */
    MOVES_MAX = 256,
    LEVELS_MAX = 32,
    TORN_LOOKS = 16,
    PAUSE_DOUBLINGS = 12,
};
static const uint64_t PAUSE_MIN_NS = 2 * RT_NS_PER_US;
static const char CELL_COMPLAINT[] = "a cell of this leaf fails its check, or a key is there twice";

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
    struct sherman *self;
    struct engine_census *census;
    char *error;
    size_t error_bytes, error_used;
    struct complaint complaint; /* of the present look */
    struct key low, high;       /* what a descent expects of the next node */
    bool no_high;
    struct blob_buffer value; /* room for blobs */
    struct neighbour left[LEVELS_MAX];
};

/* A part of the key space, on one level. */
struct range {
    int level;           /* the root's if that is lower */
    fabric_address hint; /* where its first node should be; 0: not known */
    struct slice low, high;
    bool no_high;
};

static enum pando_status complain(struct walk *walk, fabric_address address, const uint8_t *bytes,
                                  const char *what)
{
    walk->complaint = (struct complaint){
        .address = address,
        .what = what,
        .crc = crc32c(0, bytes, walk->self->table->layout.node_bytes),
    };
    return PANDO_OK;
}

/* ---- one look -------------------------------------------------------------------------------- */

/* Reads a node that begins at walk->low and ends at or before walk->high; the pointer as for
 * sherman_read_linked_co. */
static enum pando_status read_co(struct walk *walk, fabric_address address, uint64_t pointer_ns,
                                 int level, uint8_t *bytes, struct node_header *header)
{
    enum pando_status status =
        sherman_read_linked_co(walk->self, address, pointer_ns, bytes, header);
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
    if (header->level > 0 && !inner_sound(&walk->self->table->layout, header, bytes))
        return complain(walk, address, bytes, "separators that do not rise, or no address");
    return PANDO_OK;
}

/* What the descent expects of child `index`. */
static void expect_child(struct walk *walk, const uint8_t *bytes, const struct node_header *header,
                         uint32_t index)
{
    const struct node_layout *layout = &walk->self->table->layout;
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
    const struct node_layout *layout = &walk->self->table->layout;
    fabric_address address;
    int expected = -1;
    uint64_t pointer_ns = rt_coarse_ns();
    enum pando_status status = sherman_root_co(walk->self, true, &address);

    key_set(&walk->low, slice_of(NULL, 0));
    walk->no_high = true;
    for (int moves = 0; status == PANDO_OK && moves < MOVES_MAX; moves++) {
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
        key_set(&walk->low, range->low);
        key_set(&walk->high, range->high);
        walk->no_high = range->no_high;
        enum pando_status status = read_co(walk, range->hint, 0, range->level, bytes, header);
        if (status != PANDO_OK || walk->complaint.what == NULL)
            return status;
        walk->complaint = (struct complaint){0};
    }
    return descend_co(walk, range->level, range->low, bytes, header);
}

/* Reads the whole of a long value. STALE: it is not there, not what it was, or not of this key. */
static enum pando_status check_blob_co(struct walk *walk, const struct node_entry *entry,
                                       uint64_t *bytes)
{
    blob_ref blob;
    struct slice value;
    memcpy(&blob, entry->value.data, sizeof(blob));
    enum pando_status status = blob_fetch_co(walk->self->base.session, walk->self->table->id,
                                             entry->key, blob, &walk->value, &value);
    if (status == PANDO_OK)
        *bytes += blob_bytes(value.size);
    return status;
}

/* What a sound node adds to the census. */
struct content {
    uint64_t pairs, bytes;
};

static enum pando_status check_leaf_co(struct walk *walk, const struct range *range,
                                       struct scratch *scratch, const struct node_header *header,
                                       struct content *content)
{
    uint32_t count;
    *content = (struct content){0};
    if (!leaf_entries(&walk->self->table->layout, header, scratch->node, scratch->entries, &count))
        return complain(walk, header->address, scratch->node, CELL_COMPLAINT);
    for (uint32_t i = 0; i < count; i++) {
        const struct node_entry *entry = &scratch->entries[i];
        if (slice_compare(entry->key, range->low) < 0 ||
            (!range->no_high && slice_compare(entry->key, range->high) >= 0))
            continue; /* of a leaf that has grown since its parent was read: another range's */
        content->pairs++;
        if ((entry->flags & NODE_FLAG_BLOB) == 0)
            continue;
        enum pando_status status = check_blob_co(walk, entry, &content->bytes);
        if (status == PANDO_STALE)
            return complain(walk, header->address, scratch->node,
                            "a long value that a pair of this leaf refers to is damaged");
        if (status != PANDO_OK)
            return status;
    }
    return PANDO_OK;
}

/* A leaf is read again before anything is said of it: it is torn more often than not where many
 * write. */
static enum pando_status look_co(struct walk *walk, const struct range *range,
                                 struct scratch *scratch, struct node_header *header,
                                 struct content *content)
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

struct doubt {
    struct complaint complaint;
    unsigned looks;
    uint64_t since_ns, end_ns;
};

/* After a look with a complaint. False: look again. */
static bool decide_co(struct walk *walk, struct doubt *doubt, enum verdict *verdict)
{
    uint64_t lease_ns = pool_lease_ns(walk->self->table->pool);
    uint64_t now_ns = rt_now_ns();
    const struct complaint *now = &walk->complaint;
    bool same = doubt->complaint.what == now->what && doubt->complaint.address == now->address &&
                doubt->complaint.crc == now->crc;

    if (doubt->looks++ == 0)
        doubt->end_ns = now_ns + SETTLE_LEASES * lease_ns;
    if (!same) {
        doubt->complaint = *now;
        doubt->since_ns = now_ns;
    }
    *verdict = same && now_ns - doubt->since_ns >= PATIENCE_LEASES * lease_ns ? DAMAGED : UNSETTLED;
    if (*verdict == DAMAGED || now_ns >= doubt->end_ns)
        return true;
    rt_sleep_co(PAUSE_MIN_NS << (doubt->looks < PAUSE_DOUBLINGS ? doubt->looks : PAUSE_DOUBLINGS));
    return false;
}

static enum pando_status settle_co(struct walk *walk, const struct range *range,
                                   struct scratch *scratch, struct node_header *header,
                                   struct content *content, enum verdict *verdict)
{
    struct doubt doubt = {0};
    struct range again = *range;

    do {
        enum pando_status status = look_co(walk, &again, scratch, header, content);
        if (status != PANDO_OK)
            return status;
        again.hint = 0;
        *verdict = SOUND;
        if (walk->complaint.what == CELL_COMPLAINT) {
            /* Mends what a dead writer left; else it is certain at once. */
            status = sherman_mend_co(walk->self, range->low);
            if (status == PANDO_CORRUPT) {
                *verdict = DAMAGED;
                return PANDO_OK;
            }
            if (status != PANDO_OK)
                return status;
        }
    } while (walk->complaint.what != NULL && !decide_co(walk, &doubt, verdict));
    return PANDO_OK;
}

/* ---- saying it ------------------------------------------------------------------------------- */

static void note(struct walk *walk, const struct range *range, enum verdict verdict)
{
    char low[SHERMAN_KEY_TEXT], high[SHERMAN_KEY_TEXT];
    const struct complaint *complaint = &walk->complaint;
    if (verdict == UNSETTLED) {
        walk->census->unsettled++;
        return;
    }
    walk->census->damaged++;
    sherman_key_text(range->low, low);
    sherman_key_text(range->high, high);
    if (walk->error_used >= walk->error_bytes)
        return;
    int size = snprintf(walk->error + walk->error_used, walk->error_bytes - walk->error_used,
                        "%smemory node %u, offset 0x%llx, keys from \"%s\" to %s%s%s: %s",
                        walk->error_used > 0 ? "\n" : "", fabric_address_node(complaint->address),
                        (unsigned long long)fabric_address_offset(complaint->address), low,
                        range->no_high ? "the last" : "\"", high, range->no_high ? "" : "\"",
                        complaint->what);
    walk->error_used += (size_t)size;
}

/* ---- sibling pointers ------------------------------------------------------------------------ */

/* Whether the node that covers `low` points to the one that begins where it ends. */
static enum pando_status look_at_link_co(struct walk *walk, int level, struct slice low,
                                         struct scratch *scratch)
{
    struct range range = {.level = level, .low = low};
    struct node_header header;
    struct key next;
    enum pando_status status = reach_co(walk, &range, scratch->node, &header);
    if (status != PANDO_OK || walk->complaint.what != NULL || header.no_high)
        return status;
    fabric_address node = header.address, sibling = header.sibling;
    memcpy(scratch->image, scratch->node, walk->self->table->layout.node_bytes);
    key_set(&next, header.high);
    range.low = key_slice(&next);
    status = reach_co(walk, &range, scratch->node, &header);
    if (status == PANDO_OK && walk->complaint.what == NULL && header.address != sibling &&
        slice_equal(header.low, range.low))
        return complain(walk, node, scratch->image, "its sibling pointer leads astray");
    return status;
}

static enum pando_status check_link_co(struct walk *walk, const struct node_header *header)
{
    struct neighbour *left = &walk->left[header->level];
    enum verdict verdict = SOUND;
    struct doubt doubt = {0};
    enum pando_status status = PANDO_OK;

    if (left->known && left->sibling != header->address &&
        slice_equal(key_slice(&left->high), header->low)) {
        struct scratch *scratch = scratch_take(walk->self);
        if (scratch == NULL)
            return PANDO_NO_MEMORY;
        struct range range = {.level = header->level, .low = key_slice(&left->low)};
        do {
            status = look_at_link_co(walk, range.level, range.low, scratch);
        } while (status == PANDO_OK && walk->complaint.what != NULL &&
                 !decide_co(walk, &doubt, &verdict));
        if (status == PANDO_OK && walk->complaint.what != NULL)
            note(walk, &range, verdict);
        scratch_give(walk->self, scratch);
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
                                          struct scratch *scratch, const struct node_header *header)
{
    const struct node_layout *layout = &walk->self->table->layout;
    uint32_t count = inner_count(layout, scratch->node);
    enum pando_status status = PANDO_OK;

    for (uint32_t i = 0; i <= count && status == PANDO_OK; i++) {
        bool last = i == count;
        struct range child = {
            .level = header->level - 1,
            .hint = inner_child_at(layout, scratch->node, i),
            .low = i == 0 ? header->low : inner_key_at(layout, scratch->node, i - 1),
            .high = last ? header->high : inner_key_at(layout, scratch->node, i),
            .no_high = last && header->no_high,
        };
        /* Of a node that has grown over its neighbour, only what is in the range. */
        if (slice_compare(child.low, range->low) < 0) {
            child.low = range->low;
            child.hint = 0;
        }
        if (!range->no_high && (child.no_high || slice_compare(child.high, range->high) > 0)) {
            child.high = range->high;
            child.no_high = false;
        }
        if (child.no_high || slice_compare(child.low, child.high) < 0)
            status = walk_range_co(walk, &child);
    }
    return status;
}

static enum pando_status walk_node_co(struct walk *walk, const struct range *range,
                                      struct scratch *scratch, const struct node_header *header,
                                      const struct content *content)
{
    enum pando_status status = check_link_co(walk, header);
    if (status != PANDO_OK)
        return status;
    walk->census->nodes++;
    walk->census->bytes += walk->self->table->layout.node_bytes;
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
    struct scratch *scratch = scratch_take(walk->self);
    struct key *cursor = malloc(sizeof(*cursor));
    struct range rest = *range;
    enum pando_status status = cursor == NULL || scratch == NULL ? PANDO_NO_MEMORY : PANDO_OK;

    while (status == PANDO_OK && walk->census->damaged < DAMAGES_MAX) {
        struct node_header header;
        struct content content = {0};
        enum verdict verdict;
        status = settle_co(walk, &rest, scratch, &header, &content, &verdict);
        if (status != PANDO_OK)
            break;
        if (verdict != SOUND) {
            note(walk, &rest, verdict);
            walk->left[rest.level < LEVELS_MAX && rest.level >= 0 ? rest.level : 0].known = false;
            break;
        }
        status = walk_node_co(walk, &rest, scratch, &header, &content);
        if (header.no_high || (!range->no_high && slice_compare(header.high, range->high) >= 0))
            break;
        key_set(cursor, header.high);
        rest.low = key_slice(cursor);
        rest.hint = header.sibling;
    }
    free(cursor);
    if (scratch != NULL)
        scratch_give(walk->self, scratch);
    return status;
}

/* Lock words are shared by all tables, and it is Sherman's that mend by their marks: they are taken, to be
 * cleared when this table proves whole, only if it is the one Sherman table. */
static enum pando_status take_marks_co(struct sherman *self, struct pool_marks **marks)
{
    struct pool_entry *entries = malloc(POOL_TABLES * sizeof(*entries));
    bool others = false;
    enum pando_status status =
        entries == NULL ? PANDO_NO_MEMORY : pool_directory_co(self->base.session, entries);

    for (unsigned i = 0; i < POOL_TABLES && status == PANDO_OK; i++)
        others |= entries[i].state != POOL_ENTRY_FREE && i != self->table->slot &&
                  strcmp(entries[i].engine, sherman_engine.name) == 0;
    free(entries);
    *marks = NULL;
    return status == PANDO_OK && !others ? pool_marks_take_co(self->base.session, marks) : status;
}

enum pando_status sherman_verify_co(struct engine *engine, struct engine_census *out, char *error,
                                    size_t error_bytes)
{
    struct sherman *self = sherman_of(engine);
    struct walk *walk = calloc(1, sizeof(*walk));
    struct range all = {.level = LEVELS_MAX, .no_high = true};
    struct pool_marks *marks = NULL;
    *out = (struct engine_census){0};
    if (walk == NULL)
        return PANDO_NO_MEMORY;
    walk->self = self;
    walk->census = out;
    walk->error = error;
    walk->error_bytes = error_bytes;
    enum pando_status status = take_marks_co(self, &marks);
    if (status == PANDO_OK)
        status = walk_range_co(walk, &all);
    if (status == PANDO_OK && marks != NULL && out->damaged == 0 && out->unsettled == 0)
        status = pool_marks_clear_co(self->base.session, marks);
    pool_marks_free(marks);
    free(walk->value.bytes);
    free(walk);
    return status == PANDO_OK && out->damaged > 0 ? PANDO_CORRUPT : status;
}
