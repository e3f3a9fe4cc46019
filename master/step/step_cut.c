/* Saves that ask for a consistent cut, and the steps that wait for them: what master/cuts.h
 * decides, carried out. */
#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "master/step/step_internal.h"

static struct metric cut_wait = METRIC_HISTOGRAM_INIT(
    "millrace_cut_wait_us", "From a save's request for a consistent cut to its beginning");
static struct metric cut_hold = METRIC_HISTOGRAM_INIT(
    "millrace_cut_hold_us", "From a save's request for a consistent cut to when other steps go on");

static struct cuts *cuts_of(struct step *step) { return &step->session->env->cuts; }

void step_cut_metrics_register(void) {
    metrics_register(&cut_wait);
    metrics_register(&cut_hold);
}

static int64_t waited_us(const struct step *step) {
    return (clock_now_ns() - step->cut.since_ns) / 1000;
}

static void on_let_in(struct cut_member *member) {
    struct step *step = CONTAINER_OF(member, struct step, cut);
    if (member->is_save)
        metric_observe_us(&cut_wait, waited_us(step));
    /* A task may have been restarted meanwhile. Who waits for the executable already (another
     * call of a partial run) is called then. */
    if (list_is_empty(&step->wait.link))
        step_executable_settled(&step->wait);
}

bool step_may_run(struct step *step) {
    const struct executable *executable = step->executable;
    if (step->cut.state != CUT_OUT)
        return step->cut.state != CUT_WAITING;
    step->cut.is_save = executable->compiled->n_cut_saves > 0 && executable->n_cut_tasks > 0;
    step->cut.tasks = step->cut.is_save ? executable->cut_tasks : executable->tasks;
    step->cut.n_tasks = step->cut.is_save ? executable->n_cut_tasks : executable->n_tasks;
    step->cut.on_let_in = on_let_in;
    bool may_run = cuts_ask(cuts_of(step), &step->cut, clock_now_ns());
    if (may_run && step->cut.is_save)
        metric_observe_us(&cut_wait, 0);
    return may_run;
}

void step_cut_leave(struct step *step) { cuts_leave(cuts_of(step), &step->cut); }

static void end_hold(struct step *step) {
    metric_observe_us(&cut_hold, waited_us(step));
    cuts_taken(cuts_of(step), &step->cut);
}

/* The tasks, and the first of the steps that it waits for. */
static struct status *too_late(const struct step *save) {
    const struct master_env *env = save->session->env;
    struct str text = STR_INIT;
    for (int i = 0; i < save->cut.n_tasks; i++)
        str_addf(&text, "%s%s", i > 0 ? ", " : "",
                 task_name(tasks_at(env->tasks, save->cut.tasks[i])));
    struct status *st =
        save->cut.state == CUT_WAITING
            ? status_new(STATUS_DEADLINE_EXCEEDED,
                         "The save waited %.1f s for a consistent cut, and steps still run on %s: "
                         "steps that wait there in queues do not end "
                         "(see /stepz, and tf-master --cut-wait)",
                         (double)env->options.cut_wait_ms / 1000, str_text(&text))
            : status_new(STATUS_DEADLINE_EXCEEDED,
                         "The save did not get the values of %s within %.1f s of asking for a "
                         "consistent cut (see tf-master --cut-wait)",
                         str_text(&text), (double)env->options.cut_wait_ms / 1000);
    str_fini(&text);
    return st;
}

void step_save_taken(struct step *step) {
    int n = ++step->n_saves_taken;
    if (n <= step->executable->compiled->n_cut_saves && step->cut.state == CUT_PAST)
        step_cancel(
            step,
            too_late(
                step)); /* steps_expire_cuts took it for one that would not come: others have run since */
    else if (n == step->executable->compiled->n_cut_saves)
        end_hold(step);
}

/* Saves that lie in branches not taken never tell: the others have their values, so nobody need
 * wait any longer. */
static bool is_partly_taken(const struct step *save) {
    return save->cut.state == CUT_IN && save->n_saves_taken > 0;
}

void steps_expire_cuts(struct master_env *env) {
    struct cut_member *member;
    int64_t now_ns = clock_now_ns();
    while ((member = cuts_overdue(&env->cuts, now_ns, env->options.cut_wait_ms * 1000000))) {
        struct step *step = CONTAINER_OF(member, struct step, cut);
        if (is_partly_taken(step)) {
            end_hold(step);
            continue;
        }
        struct status *why = too_late(step);
        cuts_taken(&env->cuts, member); /* it has failed: nobody waits for it any more */
        step_cancel(step, why);
    }
}
