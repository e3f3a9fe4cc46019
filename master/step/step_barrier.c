/* Carries out what the save barrier decides: launches admitted steps, and ends saves that wait too
 * long. */
#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "master/step/step_internal.h"

static struct metric save_wait =
    METRIC_HISTOGRAM_INIT("millrace_save_wait_seconds",
                          "From a save's request for a consistent checkpoint to its beginning");
static struct metric save_hold = METRIC_HISTOGRAM_INIT(
    "millrace_save_hold_seconds",
    "From a save's request for a consistent checkpoint to when other steps go on");

static struct save_barrier *barrier_of(struct step *step) {
    return &step->session->env->save_barrier;
}

void step_barrier_metrics_register(void) {
    metrics_register(&save_wait);
    metrics_register(&save_hold);
}

static int64_t waited_us(const struct step *step) {
    return (clock_now_ns() - step->barrier.since_ns) / 1000;
}

static void on_admitted(struct barrier_member *member) {
    struct step *step = CONTAINER_OF(member, struct step, barrier);
    if (member->is_save)
        metric_observe_us(&save_wait, waited_us(step));
    /* A task may have restarted meanwhile. If the step waits for its executable already (for
     * another call of a partial run), it is called when that is READY. */
    if (list_is_empty(&step->wait.link))
        step_executable_settled(&step->wait);
}

bool step_enter_barrier(struct step *step) {
    const struct executable *executable = step->executable;
    if (step->barrier.state != BARRIER_OUTSIDE)
        return step->barrier.state != BARRIER_WAITING;
    step->barrier.is_save =
        executable->compiled->n_barrier_saves > 0 && executable->n_saved_tasks > 0;
    step->barrier.tasks = step->barrier.is_save ? executable->saved_tasks : executable->tasks;
    step->barrier.n_tasks = step->barrier.is_save ? executable->n_saved_tasks : executable->n_tasks;
    step->barrier.on_admitted = on_admitted;
    bool may_run = save_barrier_enter(barrier_of(step), &step->barrier, clock_now_ns());
    if (may_run && step->barrier.is_save)
        metric_observe_us(&save_wait, 0);
    return may_run;
}

void step_barrier_leave(struct step *step) { save_barrier_leave(barrier_of(step), &step->barrier); }

static void end_hold(struct step *step) {
    metric_observe_us(&save_hold, waited_us(step));
    save_barrier_pass(barrier_of(step), &step->barrier);
}

/* The status of a save that has waited too long: it names the tasks. */
static struct status *too_late(const struct step *save) {
    const struct master_env *env = save->session->env;
    struct str text = STR_INIT;
    for (int i = 0; i < save->barrier.n_tasks; i++)
        str_addf(&text, "%s%s", i > 0 ? ", " : "",
                 task_name(tasks_at(env->tasks, save->barrier.tasks[i])));
    struct status *st =
        save->barrier.state == BARRIER_WAITING
            ? status_new(
                  STATUS_DEADLINE_EXCEEDED,
                  "The save waited %.1f s for a consistent checkpoint, and steps still run on %s: "
                  "steps that wait there in queues do not end "
                  "(see /stepz, and tf-master --save-wait)",
                  (double)env->options.save_wait_ms / 1000, str_text(&text))
            : status_new(STATUS_DEADLINE_EXCEEDED,
                         "The save did not get the values of %s within %.1f s of asking for a "
                         "consistent checkpoint (see tf-master --save-wait)",
                         str_text(&text), (double)env->options.save_wait_ms / 1000);
    str_fini(&text);
    return st;
}

void step_save_taken(struct step *step) {
    int n = ++step->n_saves_taken;
    if (n <= step->executable->compiled->n_barrier_saves && step->barrier.state == BARRIER_PASSED)
        /* steps_expire_saves has passed the barrier for this save, so other steps may have run
         * since */
        step_cancel(step, too_late(step));
    else if (n == step->executable->compiled->n_barrier_saves)
        end_hold(step);
}

/* A save in a branch that is not taken never reports. If the step's other saves have their values,
 * no step needs to wait any longer. */
static bool is_partly_taken(const struct step *save) {
    return save->barrier.state == BARRIER_INSIDE && save->n_saves_taken > 0;
}

void steps_expire_saves(struct master_env *env) {
    struct barrier_member *member;
    int64_t now_ns = clock_now_ns();
    while ((member = save_barrier_overdue(&env->save_barrier, now_ns,
                                          env->options.save_wait_ms * 1000000))) {
        struct step *step = CONTAINER_OF(member, struct step, barrier);
        if (is_partly_taken(step)) {
            end_hold(step);
            continue;
        }
        struct status *why = too_late(step);
        /* the save has failed, so no step waits for it */
        save_barrier_pass(&env->save_barrier, member);
        step_cancel(step, why);
    }
}
