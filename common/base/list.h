/* An intrusive, circular, doubly linked list. The head is a link as well.
 * Threads: one at a time. */
#ifndef MILLRACE_COMMON_BASE_LIST_H
#define MILLRACE_COMMON_BASE_LIST_H

#include "common/base/base.h"

struct list {
    struct list *prev, *next;
};

static inline void list_init(struct list *head) { head->prev = head->next = head; }
static inline bool list_is_empty(const struct list *head) { return head->next == head; }

static inline void list_insert_before(struct list *at, struct list *link) {
    link->prev = at->prev;
    link->next = at;
    at->prev->next = link;
    at->prev = link;
}
static inline void list_push_back(struct list *head, struct list *link) {
    list_insert_before(head, link);
}
static inline void list_push_front(struct list *head, struct list *link) {
    list_insert_before(head->next, link);
}

/* Afterwards the link is a list of its own, so that removing it twice is harmless. */
static inline void list_remove(struct list *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}
static inline struct list *list_pop_front(struct list *head) {
    struct list *link = head->next;
    if (link == head)
        return NULL;
    list_remove(link);
    return link;
}
/* Moves all links of `from` to the end of `to`. */
static inline void list_splice_back(struct list *to, struct list *from) {
    if (list_is_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#define LIST_ENTRY(link, type, member) CONTAINER_OF(link, type, member)
#define LIST_FOR_EACH(link, head) \
    for (struct list *link = (head)->next; link != (head); link = link->next)
#define LIST_FOR_EACH_SAFE(link, tmp, head)                                   \
    for (struct list *link = (head)->next, *tmp = link->next; link != (head); \
         link = tmp, tmp = link->next)

#endif
