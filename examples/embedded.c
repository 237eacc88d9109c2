/*
 * A store inside one process: put, get, count, and walk in order.
 *
 *   cc embedded.c $(pkg-config --cflags --libs pando) && ./a.out
 */
#include <pando/pando.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(struct pando_pool *pool, enum pando_status status)
{
    if (status == PANDO_OK)
        return;
    fprintf(stderr, "embedded: %s\n", pando_error_text(pool));
    exit(1);
}

int main(void)
{
    struct pando_options options = {.size = sizeof(options), .uri = "embedded:256M"};
    struct pando_pool *pool;
    struct pando_table *planets;
    char error[256];

    if (pando_open(&options, &pool, error, sizeof(error)) != PANDO_OK) {
        fprintf(stderr, "embedded: %s\n", error);
        return 1;
    }
    check(pool, pando_table_create(pool, "planets", NULL));
    check(pool, pando_table_open(pool, "planets", &planets));

    const char *names[] = {"mercury", "venus", "earth", "mars", "jupiter", "saturn"};
    for (int i = 0; i < 6; i++) {
        char place[32];
        snprintf(place, sizeof(place), "number %d", i + 1);
        check(pool, pando_put(planets, names[i], strlen(names[i]), place, strlen(place)));
    }

    char value[64];
    size_t size;
    check(pool, pando_get(planets, "earth", 5, value, sizeof(value), &size));
    printf("earth is %.*s\n", (int)size, value);

    int64_t visits;
    check(pool, pando_add(planets, "visits", 6, 1, &visits));
    printf("visit %lld\n", (long long)visits);
    check(pool, pando_delete(planets, "visits", 6));

    /* All planets from "m" on, in order. */
    struct pando_iterator_options from_m = {.size = sizeof(from_m), .lower = {"m", 1}};
    struct pando_iterator *iterator;
    check(pool, pando_iterator_open(planets, &from_m, &iterator));
    enum pando_status status = pando_iterator_first(iterator);
    for (; status == PANDO_OK; status = pando_iterator_next(iterator)) {
        struct pando_slice name = pando_iterator_key(iterator);
        printf("%.*s\n", (int)name.size, (const char *)name.data);
    }
    if (status != PANDO_NOT_FOUND)
        check(pool, status);
    pando_iterator_close(iterator);

    check(pool, pando_table_close(planets));
    check(pool, pando_close(pool));
    return 0;
}
