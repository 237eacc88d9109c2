/*
 * engines.c - the table of engines: names, and how a memory node finds the engine of a request or a block.
 */
#include "store/engines.h"

#include <string.h>

#include "blob/blob_fmt.h"
#include "lib/check.h"
#include "store/usage.h"
#include "tree/dex/log/log_fmt.h"
#include "tree/dex/page/page_fmt.h"
#include "tree/dex/pushdown/pushdown_fmt.h"

enum { KINDS = UINT8_MAX + 1 };

#define COUNT(name)   +1
#define POINTER(name) store_engine(#name),
static const int ENGINES = STORE_ENGINES(COUNT, );

static void names(void)
{
    const struct engine_ops *const engines[] = {STORE_ENGINES(POINTER, )};
    const char *names = store_engine_names();
    for (int i = 0; i < ENGINES; i++) {
        CHECK(engines[i] != NULL);
        CHECK(strstr(names, engines[i]->name) != NULL);
    }
    CHECK(strcmp(names, STORE_ENGINE_NAMES(", ")) == 0);
    CHECK(store_engine("frob") == NULL && store_engine("") == NULL);
}

/* A request whose engine nobody is, or that says none, goes nowhere. */
static void requests(void)
{
    const struct engine_ops *const engines[] = {STORE_ENGINES(POINTER, )};
    const struct memnode_place place = {.bank = 0};
    for (uint32_t number = 0; number <= UINT16_MAX; number++) {
        uint16_t body = (uint16_t)number;
        struct fabric_request request = {.body = slice_of(&body, sizeof(body))};
        int owners = 0;
        for (int i = 0; i < ENGINES; i++) {
            const struct engine_pushdown *work = engines[i]->pushdown;
            owners += work != NULL && work->number == number;
        }
        CHECK(owners <= 1 && (number != 0 || owners == 0));
        CHECK(store_memory_pushdown(&place, &request) == PANDO_INVALID); /* too short for any */
    }
    uint8_t byte = DEX_PUSHDOWN;
    struct fabric_request cut = {.body = slice_of(&byte, sizeof(byte))};
    CHECK(store_memory_pushdown(&place, &cut) == PANDO_INVALID);
    cut.body = slice_of(&byte, 0);
    CHECK(store_memory_pushdown(&place, &cut) == PANDO_INVALID);
}

static enum store_use use_of(uint8_t kind, uint8_t inner)
{
    const struct pool_usage_table blocks = {.kind = kind, .inner = inner};
    return store_use_of(&blocks);
}

static void kinds(void)
{
    const struct engine_ops *const engines[] = {STORE_ENGINES(POINTER, )};
    for (int kind = 0; kind < KINDS; kind++) {
        int owners = 0;
        for (int i = 0; i < ENGINES; i++) {
            for (size_t k = 0; k < engines[i]->kind_count; k++)
                owners += engines[i]->kinds[k].kind == kind;
        }
        CHECK(owners <= 1 && (kind != BLOB_KIND || owners == 0));
        CHECK((store_block_kind((uint8_t)kind) != NULL) == (owners == 1));
    }
    CHECK(store_level_at(PAGE_KIND) == PAGE_SHAPE && store_level_at(DEX_LOG_CELL) == 0);
    CHECK(store_level_at(BLOB_KIND) == 0 && store_level_at(0) != 0);
    CHECK(use_of(PAGE_KIND, 0) == STORE_USE_PAIRS && use_of(PAGE_KIND, 1) == STORE_USE_STRUCTURE);
    CHECK(use_of(0, 0) == STORE_USE_PAIRS && use_of(0, 1) == STORE_USE_STRUCTURE);
    CHECK(use_of(DEX_LOG_CELL, 0) == STORE_USE_LOGS && use_of(BLOB_KIND, 0) == STORE_USE_VALUES);
}

int main(void)
{
    names();
    requests();
    kinds();
    return 0;
}
