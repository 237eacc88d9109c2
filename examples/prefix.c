/*
 * A secondary index by prefix: books by their id in one table, and "author NUL id" in another, so that
 * all books of an author lie side by side.
 */
#include <pando/pando.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pando_pool *pool;

static void check(enum pando_status status)
{
    if (status == PANDO_OK)
        return;
    fprintf(stderr, "prefix: %s\n", pando_error_text(pool));
    exit(1);
}

/* "author NUL id"; its size. */
static size_t index_key(char *key, size_t bytes, const char *author, const char *id)
{
    return (size_t)snprintf(key, bytes, "%s%c%s", author, '\0', id);
}

static void add(struct pando_table *books, struct pando_table *by_author, const char *id,
                const char *author, const char *title)
{
    char key[128];
    /* The index last: what it names is there. */
    check(pando_put(books, id, strlen(id), title, strlen(title)));
    check(pando_put(by_author, key, index_key(key, sizeof(key), author, id), "", 0));
}

static void show(struct pando_table *books, struct pando_table *by_author, const char *author)
{
    char prefix[128], title[128];
    size_t prefix_size = index_key(prefix, sizeof(prefix), author, ""), size;
    struct pando_iterator_options options = {.size = sizeof(options),
                                             .prefix = {prefix, prefix_size}};
    struct pando_iterator *iterator;

    printf("%s:\n", author);
    check(pando_iterator_open(by_author, &options, &iterator));
    enum pando_status status = pando_iterator_first(iterator);
    for (; status == PANDO_OK; status = pando_iterator_next(iterator)) {
        struct pando_slice key = pando_iterator_key(iterator);
        const char *id = (const char *)key.data + prefix_size;
        check(pando_get(books, id, key.size - prefix_size, title, sizeof(title), &size));
        printf("  %.*s\n", (int)size, title);
    }
    if (status != PANDO_NOT_FOUND)
        check(status);
    pando_iterator_close(iterator);
}

int main(void)
{
    struct pando_options options = {.size = sizeof(options), .uri = "embedded:256M"};
    struct pando_table *books, *by_author;
    char error[256], prefix[128];
    uint64_t deleted;

    if (pando_open(&options, &pool, error, sizeof(error)) != PANDO_OK) {
        fprintf(stderr, "prefix: %s\n", error);
        return 1;
    }
    check(pando_table_create(pool, "books", NULL));
    check(pando_table_create(pool, "by author", NULL));
    check(pando_table_open(pool, "books", &books));
    check(pando_table_open(pool, "by author", &by_author));

    add(books, by_author, "1", "Lem", "Solaris");
    add(books, by_author, "2", "Lessing", "Nathan the Wise");
    add(books, by_author, "3", "Lem", "The Cyberiad");
    add(books, by_author, "4", "Le Guin", "The Dispossessed");
    show(books, by_author, "Lem");
    show(books, by_author, "Le Guin");

    /* Forget where an author's books are: all that begins so. */
    check(pando_delete_prefix(by_author, prefix, index_key(prefix, sizeof(prefix), "Lem", ""),
                              &deleted));
    printf("%llu index entries deleted\n", (unsigned long long)deleted);
    show(books, by_author, "Lem");

    check(pando_table_close(books));
    check(pando_table_close(by_author));
    check(pando_close(pool));
    return 0;
}
