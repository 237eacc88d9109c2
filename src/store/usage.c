#include "store/usage.h"

#include "blob/blob.h"
#include "store/engines.h"
#include "store/store.h"

enum store_use store_use_of(const struct pool_usage_table *blocks)
{
    if (blocks->kind == BLOB_KIND)
        return STORE_USE_VALUES;
    const struct engine_block_kind *kind = store_block_kind((uint8_t)blocks->kind);
    if (kind != NULL && kind->log)
        return STORE_USE_LOGS;
    return blocks->inner != 0 ? STORE_USE_STRUCTURE : STORE_USE_PAIRS;
}

const char *store_use_name(enum store_use use)
{
    static const char *const names[STORE_USES] = {[STORE_USE_PAIRS] = "pairs",
                                                  [STORE_USE_VALUES] = "values",
                                                  [STORE_USE_STRUCTURE] = "structure",
                                                  [STORE_USE_LOGS] = "logs"};
    return names[use];
}

/* ---- what a pair takes ----------------------------------------------------------------------- */

enum {
    PAIR_BYTES = 16,     /* of a pair in its leaf, beside key and value */
    REFERENCE_BYTES = 8, /* instead of a value that does not lie in the leaf */
};

uint64_t store_pair_bytes(const struct store_shape *shape, uint64_t key_bytes, uint64_t value_bytes)
{
    bool inside = value_bytes <= shape->value_inline;
    return key_bytes + PAIR_BYTES +
           (inside ? value_bytes : REFERENCE_BYTES + blob_pool_bytes(value_bytes));
}
