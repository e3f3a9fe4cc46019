#include "master/session/cuts.h"

void cuts_init(struct cuts *cuts) {
    *cuts = (struct cuts){0};
    list_init(&cuts->running);
    list_init(&cuts->waiting);
}

static struct cut_member *member_of(struct list *link) {
    return LIST_ENTRY(link, struct cut_member, link);
}

static bool share_a_task(const struct cut_member *a, const struct cut_member *b) {
    for (int i = 0; i < a->n_tasks; i++)
        for (int k = 0; k < b->n_tasks; k++)
            if (a->tasks[i] == b->tasks[k])
                return true;
    return false;
}

/* A save that has its values is in nobody's way. */
static bool is_in_the_way(const struct cut_member *a, const struct cut_member *b) {
    return (a->is_save || b->is_save) && a->state != CUT_PAST && b->state != CUT_PAST &&
           share_a_task(a, b);
}

/* Who waits ahead of it is in its way as who runs is. */
static bool may_run(struct cuts *cuts, const struct cut_member *member) {
    LIST_FOR_EACH (link, &cuts->running)
        if (is_in_the_way(member, member_of(link)))
            return false;
    LIST_FOR_EACH (link, &cuts->waiting) {
        if (member_of(link) == member)
            break;
        if (is_in_the_way(member, member_of(link)))
            return false;
    }
    return true;
}

static void let_in(struct cuts *cuts, struct cut_member *member) {
    member->state = CUT_IN;
    list_push_back(&cuts->running, &member->link);
}

static struct cut_member *next_to_let_in(struct cuts *cuts) {
    LIST_FOR_EACH (link, &cuts->waiting)
        if (may_run(cuts, member_of(link)))
            return member_of(link);
    return NULL;
}

/* Who is let in may take or leave at once: then the outer call goes on. */
static void admit(struct cuts *cuts) {
    struct cut_member *member;
    if (cuts->is_admitting || cuts->n_holds > 0)
        return;
    cuts->is_admitting = true;
    while (cuts->n_holds == 0 && (member = next_to_let_in(cuts))) {
        list_remove(&member->link);
        let_in(cuts, member);
        member->on_let_in(member);
    }
    cuts->is_admitting = false;
}

bool cuts_ask(struct cuts *cuts, struct cut_member *member, int64_t now_ns) {
    CHECK(member->state == CUT_OUT);
    member->since_ns = now_ns;
    cuts->n_saves += member->is_save;
    if (cuts->n_saves == 0 || may_run(cuts, member)) {
        let_in(cuts, member);
        return true;
    }
    member->state = CUT_WAITING;
    list_push_back(&cuts->waiting, &member->link);
    return false;
}

void cuts_taken(struct cuts *cuts, struct cut_member *member) {
    if (member->state != CUT_IN || !member->is_save)
        return;
    member->state = CUT_PAST;
    admit(cuts);
}

void cuts_leave(struct cuts *cuts, struct cut_member *member) {
    if (member->state == CUT_OUT)
        return;
    list_remove(&member->link);
    member->state = CUT_OUT;
    if (cuts->n_saves == 0)
        return;
    cuts->n_saves -= member->is_save;
    admit(cuts);
}

void cuts_hold(struct cuts *cuts) { cuts->n_holds++; }

void cuts_go_on(struct cuts *cuts) {
    CHECK(cuts->n_holds > 0);
    if (--cuts->n_holds == 0)
        admit(cuts);
}

struct cut_member *cuts_overdue(struct cuts *cuts, int64_t now_ns, int64_t wait_ns) {
    struct list *lists[] = {&cuts->running, &cuts->waiting};
    for (size_t i = 0; i < ARRAY_LEN(lists) && cuts->n_saves > 0; i++)
        LIST_FOR_EACH (link, lists[i]) {
            struct cut_member *member = member_of(link);
            if (member->is_save && member->state != CUT_PAST &&
                now_ns - member->since_ns >= wait_ns)
                return member;
        }
    return NULL;
}
