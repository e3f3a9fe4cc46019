/* Steps that a step wakes: a kernel puts into a queue what another step waits for.
 *
 * They do not run inside the waker, which would pay for their nodes and hold up its own. They
 * begin on the waker's thread when its step pauses, ends or moves; or on the pool, when before
 * that the waker comes to something that takes long or its turn is checked. So a pipeline of
 * short steps costs no wake-up, one of long steps runs side by side, and wake-ups do not nest. */
#include "common/base/clock.h"
#include "worker/executor/executor_internal.h"

/* So long woken steps run where their waker ran; the rest of them goes to the pool, behind
 * others that wait there. */
enum { WOKEN_ON_LOOP_NS = 200000, WOKEN_ON_POOL_NS = 2000000 };

static _Thread_local struct {
    /* steps on this thread's stack; more than one: a function's in its caller's */
    unsigned n_running;
    struct list woken; /* struct step.woken_link */
} here;

static bool has_woken(void) { return here.woken.next && !list_is_empty(&here.woken); }

static struct step *next_woken(void) {
    return LIST_ENTRY(list_pop_front(&here.woken), struct step, woken_link);
}

static struct async_op *take_mail_of(struct step *step) {
    struct async_op *mail = step->mail;
    step->mail = NULL;
    return mail;
}

static COLD void hand_over(void) {
    while (has_woken()) {
        struct step *step = next_woken();
        if (!step->run->pool) {
            list_push_front(&here.woken, &step->woken_link);
            return;
        }
        pool_submit(step->run->pool, &step->task);
    }
}

void steps_woken_go_first(void) {
    if (unlikely(has_woken()))
        hand_over();
}

void thread_begins(void) { here.n_running++; }

static COLD void run_woken(void) {
    int64_t until_ns = clock_now_ns() + (pool_is_current() ? WOKEN_ON_POOL_NS : WOKEN_ON_LOOP_NS);
    while (has_woken()) {
        struct step *step = next_woken();
        step->is_on_pool = pool_is_current();
        step_own(step, take_mail_of(step));
        if (has_woken() && clock_now_ns() > until_ns)
            hand_over(); /* without a pool they go on here */
    }
}

void thread_ends(void) {
    if (here.n_running == 1 && unlikely(has_woken()))
        run_woken();
    here.n_running--;
}

void step_drive(struct step *step, struct async_op *mail) {
    thread_begins();
    step_own(step, mail);
    thread_ends();
}

void step_drive_on_pool(struct pool_task *task) {
    struct step *step = CONTAINER_OF(task, struct step, task);
    step->is_on_pool = true;
    step_drive(step, take_mail_of(step));
}

void step_wake(struct step *step, struct async_op *mail) {
    if (here.n_running == 0) {
        step->is_on_pool = pool_is_current();
        step_drive(step, mail);
        return;
    }
    if (!here.woken.next)
        list_init(&here.woken);
    step->mail = mail;
    list_push_back(&here.woken, &step->woken_link);
}
