/*
 * list.h - an intrusive doubly linked list with a sentinel head.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* Iterates over the links; `_safe` allows the current one to be removed. */
#define list_for_each(link, head)                                                                  \
    for (struct list *link = (head)->next; link != (head); link = link->next)
#define list_for_each_safe(link, head)                                                             \
    for (struct list *link = (head)->next, *link##_next = link->next; link != (head);              \
         link = link##_next, link##_next = link->next)

static inline void list_init(struct list *head)
{
    head->next = head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

/* Whether this link is in the list, and no other. */
static inline bool list_only(const struct list *head, const struct list *link)
{
    return head->next == link && link->next == head;
}

static inline void list_push_back(struct list *head, struct list *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void list_push_front(struct list *head, struct list *link)
{
    list_push_back(head->next, link);
}

/* Leaves the link pointing at itself, so that removing twice is harmless. */
static inline void list_remove(struct list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

/* The first link, removed, or NULL. */
static inline struct list *list_pop_front(struct list *head)
{
    struct list *link = head->next;
    if (link == head)
        return NULL;
    list_remove(link);
    return link;
}

#endif
