/* Compares the task sets of saves and steps, and admits waiting members in the order of their
 * arrival. */
#include "master/session/save_barrier.h"

static const struct state_row states[] = {
    [BARRIER_OUTSIDE] = {"OUTSIDE", STATE_SET(BARRIER_WAITING) | STATE_SET(BARRIER_INSIDE),
                         .is_first = true},
    [BARRIER_WAITING] = {"WAITING", STATE_SET(BARRIER_INSIDE) | STATE_SET(BARRIER_OUTSIDE)},
    [BARRIER_INSIDE] = {"INSIDE", STATE_SET(BARRIER_PASSED) | STATE_SET(BARRIER_OUTSIDE)},
    [BARRIER_PASSED] = {"PASSED", STATE_SET(BARRIER_OUTSIDE)},
};
const struct state_machine barrier_machine = {"step at the save barrier", states,
                                              ARRAY_LEN(states)};

static void move(struct barrier_member *member, enum barrier_state to) {
    state_machine_move(&barrier_machine, &member->state, to, member);
}

void save_barrier_init(struct save_barrier *barrier) {
    *barrier = (struct save_barrier){0};
    list_init(&barrier->running);
    list_init(&barrier->waiting);
}

static struct barrier_member *member_of(struct list *link) {
    return LIST_ENTRY(link, struct barrier_member, link);
}

static bool share_a_task(const struct barrier_member *a, const struct barrier_member *b) {
    for (int i = 0; i < a->n_tasks; i++)
        for (int k = 0; k < b->n_tasks; k++)
            if (a->tasks[i] == b->tasks[k])
                return true;
    return false;
}

/* A save that has taken its values conflicts with nobody. */
static bool conflict(const struct barrier_member *a, const struct barrier_member *b) {
    return (a->is_save || b->is_save) && a->state != BARRIER_PASSED && b->state != BARRIER_PASSED &&
           share_a_task(a, b);
}

/* A member conflicts with those that run, and with those that arrived before it and wait. */
static bool may_run(struct save_barrier *barrier, const struct barrier_member *member) {
    LIST_FOR_EACH (link, &barrier->running)
        if (conflict(member, member_of(link)))
            return false;
    LIST_FOR_EACH (link, &barrier->waiting) {
        if (member_of(link) == member)
            break;
        if (conflict(member, member_of(link)))
            return false;
    }
    return true;
}

static void start_running(struct save_barrier *barrier, struct barrier_member *member) {
    move(member, BARRIER_INSIDE);
    list_push_back(&barrier->running, &member->link);
}

static struct barrier_member *next_to_admit(struct save_barrier *barrier) {
    LIST_FOR_EACH (link, &barrier->waiting)
        if (may_run(barrier, member_of(link)))
            return member_of(link);
    return NULL;
}

/* An admitted member may pass or leave inside on_admitted. That nested call admits nobody; the loop
 * here continues. */
static void admit(struct save_barrier *barrier) {
    struct barrier_member *member;
    if (barrier->is_admitting || barrier->n_holds > 0)
        return;
    barrier->is_admitting = true;
    while (barrier->n_holds == 0 && (member = next_to_admit(barrier))) {
        list_remove(&member->link);
        start_running(barrier, member);
        member->on_admitted(member);
    }
    barrier->is_admitting = false;
}

bool save_barrier_enter(struct save_barrier *barrier, struct barrier_member *member,
                        int64_t now_ns) {
    CHECK(member->state == BARRIER_OUTSIDE);
    member->since_ns = now_ns;
    barrier->n_saves += member->is_save;
    if (barrier->n_saves == 0 || may_run(barrier, member)) {
        start_running(barrier, member);
        return true;
    }
    move(member, BARRIER_WAITING);
    list_push_back(&barrier->waiting, &member->link);
    return false;
}

void save_barrier_pass(struct save_barrier *barrier, struct barrier_member *member) {
    if (member->state != BARRIER_INSIDE || !member->is_save)
        return;
    move(member, BARRIER_PASSED);
    admit(barrier);
}

void save_barrier_leave(struct save_barrier *barrier, struct barrier_member *member) {
    if (member->state == BARRIER_OUTSIDE)
        return;
    list_remove(&member->link);
    move(member, BARRIER_OUTSIDE);
    if (barrier->n_saves == 0)
        return;
    barrier->n_saves -= member->is_save;
    admit(barrier);
}

void save_barrier_hold(struct save_barrier *barrier) { barrier->n_holds++; }

void save_barrier_release(struct save_barrier *barrier) {
    CHECK(barrier->n_holds > 0);
    if (--barrier->n_holds == 0)
        admit(barrier);
}

struct barrier_member *save_barrier_overdue(struct save_barrier *barrier, int64_t now_ns,
                                            int64_t wait_ns) {
    struct list *lists[] = {&barrier->running, &barrier->waiting};
    for (size_t i = 0; i < ARRAY_LEN(lists) && barrier->n_saves > 0; i++)
        LIST_FOR_EACH (link, lists[i]) {
            struct barrier_member *member = member_of(link);
            if (member->is_save && member->state != BARRIER_PASSED &&
                now_ns - member->since_ns >= wait_ns)
                return member;
        }
    return NULL;
}
