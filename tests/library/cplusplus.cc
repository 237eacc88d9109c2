// The header in C++: it compiles without a warning, and its functions have C names.
#include <pando/pando.h>

#include <cstdio>
#include <string>

static int fail(const char *what)
{
    std::fprintf(stderr, "cplusplus.cc: %s\n", what);
    return 1;
}

static enum pando_change append(void *context, const struct pando_slice *old,
                                struct pando_slice *value)
{
    auto *text = static_cast<std::string *>(context);
    *text = (old == nullptr ? std::string()
                            : std::string(static_cast<const char *>(old->data), old->size)) +
            "+";
    value->data = text->data();
    value->size = text->size();
    return PANDO_STORE;
}

int main()
{
    struct pando_options options = {};
    options.size = sizeof(options);
    options.uri = "embedded:64M";
    struct pando_pool *pool = nullptr;
    struct pando_table *table = nullptr;
    char error[256];
    if (pando_open(&options, &pool, error, sizeof(error)) != PANDO_OK)
        return fail(error);
    if (pando_table_create(pool, "t", nullptr) != PANDO_OK ||
        pando_table_open(pool, "t", &table) != PANDO_OK)
        return fail(pando_error_text(pool));
    std::string key("a\0b", 3), text;
    for (int i = 0; i < 2; i++) {
        if (pando_modify(table, key.data(), key.size(), append, &text) != PANDO_OK)
            return fail(pando_error_text(pool));
    }
    char value[8];
    size_t size = 0;
    if (pando_get(table, key.data(), key.size(), value, sizeof(value), &size) != PANDO_OK ||
        std::string(value, size) != "++")
        return fail("the value is another");
    if (pando_table_close(table) != PANDO_OK || pando_close(pool) != PANDO_OK)
        return fail("close");
    return 0;
}
