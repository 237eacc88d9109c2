#include "store/usage.h"

#include "tree/blob/blob_fmt.h"
#include "tree/dex/log_fmt.h"
#include "tree/dex/map_fmt.h"

enum store_use store_use_of(uint8_t kind)
{
    switch (kind) {
    case BLOB_KIND:
        return STORE_USE_VALUES;
    case MAP_KIND:
    case DEX_LOG_CELL:
        return STORE_USE_LOGS;
    default:
        return STORE_USE_NODES;
    }
}

const char *store_use_name(enum store_use use)
{
    static const char *const names[STORE_USES] = {
        [STORE_USE_VALUES] = "values", [STORE_USE_NODES] = "nodes", [STORE_USE_LOGS] = "logs"};
    return names[use];
}
