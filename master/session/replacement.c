/* Compiles, races and exchanges executables whose placement is on trial (replacement.h). */
#include "master/session/replacement.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "master/compile/cost/cost_rows.h"
#include "master/compile/place/placement.h"
#include "master/session/placement_trial.h"
#include "master/session/session.h"

struct replacement {
    struct placement_trial trial;
    struct executable *present;  /* the owner */
    struct executable *other;    /* while it compiles and races: one reference; else NULL */
    struct executable_wait wait; /* for `other` */
    struct str why;              /* of replacement_why */
};

#define RESULT_METRIC(result)                                               \
    {                                                                       \
        .kind = METRIC_COUNTER, .name = "millrace_replacements_total",      \
        .labels = "result=\"" result "\"",                                  \
        .help = "Signatures that were placed again, by the simple rule or " \
                "because measured costs contradict their placement: taken " \
                "(its steps were shorter), dropped (they were not), alike " \
                "(no node moved), failed (to compile, or in its steps)"     \
    }
static struct metric n_taken = RESULT_METRIC("taken"), n_dropped = RESULT_METRIC("dropped"),
                     n_alike = RESULT_METRIC("alike"), n_failed = RESULT_METRIC("failed");

void replacement_metrics_register(void) {
    metrics_register(&n_taken);
    metrics_register(&n_dropped);
    metrics_register(&n_alike);
    metrics_register(&n_failed);
}

/* ---- life ---- */

void replacement_begin(struct executable *executable) {
    const struct session *session = executable->session;
    if (!session->env->options.replaces || session->options.placement != PLACEMENT_COST ||
        !session->options.costs || executable->compiled->n_placed == 0 ||
        executable->signature.is_partial)
        return;
    struct replacement *replacement = xcalloc(1, sizeof(*replacement));
    trial_init(&replacement->trial, executable->compiled->has_rival);
    replacement->present = executable;
    list_init(&replacement->wait.link);
    executable->replacement = replacement;
}

/* Gives the other executable up. Its running steps keep it. */
static void drop_other(struct replacement *replacement) {
    struct executable *other = replacement->other;
    if (!other)
        return;
    list_remove(&replacement->wait.link);
    replacement->other = NULL;
    other->races_in = NULL;
    executable_unref(other);
}

void replacement_end(struct executable *executable) {
    struct replacement *replacement = executable->replacement;
    if (!replacement)
        return;
    executable->replacement = NULL;
    drop_other(replacement);
    str_fini(&replacement->why);
    free(replacement);
}

/* ---- saying why ---- */

/* The first fetch or target, for messages. */
static const char *first_name(const struct signature *signature) {
    return signature->n_fetches > 0   ? signature->fetches[0]
           : signature->n_targets > 0 ? signature->targets[0]
                                      : "";
}

static void tell(struct replacement *replacement, struct metric *counter) {
    const struct executable *present = replacement->present;
    metric_add(counter, 1);
    log_event_at(EVENT_PLACEMENT_COST, LOG_INFO, "session %s, signature of '%s': %s",
                 present->session->handle, first_name(&present->signature),
                 str_text(&replacement->why));
}

/* How the other executable is placed. */
static const char *other_way(const struct replacement *replacement) {
    return replacement->other->is_by_simple_rule ? "the simple rule" : "measured costs";
}

static void say_result_of_rival(struct replacement *replacement, bool is_taken) {
    const double *median_ns = replacement->trial.median_ns;
    double simple_ms = median_ns[TRIAL_OTHER] / 1e6, cost_ms = median_ns[TRIAL_PRESENT] / 1e6;
    if (is_taken)
        str_addf(&replacement->why,
                 "placed by the simple rule: the median of %d steps is %.3f ms, as placed by cost "
                 "%.3f ms",
                 TRIAL_STEPS, simple_ms, cost_ms);
    else
        str_addf(&replacement->why,
                 "placed by cost: the median of %d steps is %.3f ms, by the simple rule %.3f ms",
                 TRIAL_STEPS, cost_ms, simple_ms);
}

static void say_result(struct replacement *replacement, bool is_taken) {
    const double *median_ns = replacement->trial.median_ns;
    str_clear(&replacement->why);
    if (replacement->other->is_by_simple_rule) {
        say_result_of_rival(replacement, is_taken);
        return;
    }
    if (is_taken)
        str_addf(&replacement->why,
                 "placed again by measured costs: the median of %d steps is %.3f ms, as placed "
                 "before %.3f ms",
                 TRIAL_STEPS, median_ns[TRIAL_OTHER] / 1e6, median_ns[TRIAL_PRESENT] / 1e6);
    else
        str_addf(&replacement->why,
                 "placed back as before: the median of %d steps is %.3f ms, with the placement by "
                 "measured costs %.3f ms",
                 TRIAL_STEPS, median_ns[TRIAL_PRESENT] / 1e6, median_ns[TRIAL_OTHER] / 1e6);
}

const char *replacement_why(const struct executable *executable) {
    const struct replacement *replacement = executable->replacement;
    if (!replacement)
        return NULL;
    if (replacement->trial.state == TRIAL_RACING)
        return replacement->other->is_by_simple_rule
                   ? "steps alternate between this placement and that of the simple rule"
                   : "steps alternate between this placement and one by measured costs";
    return replacement->why.len > 0 ? str_text(&replacement->why) : NULL;
}

/* ---- the other executable ---- */

/* The executable is judged by the costs of another one from now on. */
static void copy_expected_costs(struct executable *executable, const struct executable *from) {
    const struct compiled *compiled = from->compiled;
    if (!compiled || compiled->n_costs != executable->compiled->n_costs)
        return;
    double *expected_ns = arena_array(&executable->arena, double, compiled->n_costs + 1);
    for (int i = 0; i < compiled->n_costs; i++)
        expected_ns[i] = from->expected_ns ? from->expected_ns[i] : compiled->costs[i].expected_ns;
    executable->expected_ns = expected_ns;
}

/* The race, or the compilation, by measured costs has changed nothing: the same costs must not lead
 * to another compilation. No costs led to one by the simple rule. */
static void keep_expected_costs(struct replacement *replacement) {
    if (!replacement->other->is_by_simple_rule)
        copy_expected_costs(replacement->present, replacement->other);
}

/* The other executable failed, or its nodes are where they were. */
static void end_without_race(struct replacement *replacement, bool is_alike) {
    struct executable *other = replacement->other;
    keep_expected_costs(replacement);
    str_clear(&replacement->why);
    if (is_alike)
        str_addf(&replacement->why, "%s lead%s to the same placement", other_way(replacement),
                 other->is_by_simple_rule ? "s" : "");
    else
        str_addf(&replacement->why, "placing it again by %s failed: %s", other_way(replacement),
                 status_message(other->status));
    trial_compiled(&replacement->trial, is_alike ? TRIAL_PLACED_ALIKE : TRIAL_COMPILE_FAILED);
    tell(replacement, is_alike ? &n_alike : &n_failed);
    drop_other(replacement);
}

static void on_settled(struct executable_wait *wait) {
    struct replacement *replacement = CONTAINER_OF(wait, struct replacement, wait);
    struct executable *other = replacement->other;
    if (!executable_await(other, wait)) /* a task has restarted meanwhile */
        return;
    bool is_alike =
        other->compiled && placements_are_equal(replacement->present->compiled, other->compiled);
    if (other->state == EXECUTABLE_FAILED || is_alike)
        end_without_race(replacement, is_alike);
    else
        trial_compiled(&replacement->trial, TRIAL_PLACED_OTHERWISE);
}

/* The other executable has failed in a race, so the present one has won. */
static void end_race(struct replacement *replacement, const struct status *why) {
    str_clear(&replacement->why);
    str_addf(&replacement->why, "placed back as before: with the placement by %s, steps fail: %s",
             other_way(replacement), status_message(why));
    trial_abandon(&replacement->trial);
    tell(replacement, &n_failed);
    drop_other(replacement);
}

static void start_compiling(struct replacement *replacement, bool is_by_simple_rule) {
    replacement->other = executable_compile_again(replacement->present, is_by_simple_rule);
    replacement->other->races_in = replacement;
    replacement->wait.settled = on_settled;
    if (executable_await(replacement->other, &replacement->wait))
        CHECK(!"a new executable is being compiled");
}

/* The other executable takes the place of the present one, and the trial goes with it. */
static void take_other(struct replacement *replacement) {
    struct executable *present = replacement->present, *other = replacement->other;
    if (!executable_take_place(other, present)) { /* the cache has dropped the present one */
        drop_other(replacement);
        return;
    }
    if (other->is_by_simple_rule) /* costs that contradict them are still a reason to place again */
        copy_expected_costs(other, present);
    present->replacement = NULL;
    replacement->present = other;
    replacement->other = NULL;
    other->races_in = NULL;
    other->replacement = replacement;
    executable_unref(present);
    executable_unref(other);
}

/* ---- events ---- */

struct executable *replacement_choose(struct executable *executable) {
    struct replacement *replacement = executable->replacement;
    if (!replacement || trial_next_arm(&replacement->trial) == TRIAL_PRESENT)
        return executable;
    if (replacement->other->state == EXECUTABLE_FAILED) { /* it was to be registered again */
        end_race(replacement, replacement->other->status);
        return executable;
    }
    return replacement->other->state == EXECUTABLE_READY ? replacement->other : executable;
}

void replacement_costs_measured(struct executable *executable, double contradiction) {
    struct replacement *replacement = executable->replacement;
    if (!replacement || executable->session->is_closed)
        return;
    enum trial_action action = trial_costs_measured(&replacement->trial, contradiction);
    if (action != TRIAL_NOTHING)
        start_compiling(replacement, action == TRIAL_COMPILE_SIMPLE);
}

void replacement_step_ended(struct executable *executable, double ns) {
    struct replacement *replacement =
        executable->replacement ? executable->replacement : executable->races_in;
    if (!replacement)
        return;
    enum trial_arm arm = executable == replacement->other ? TRIAL_OTHER : TRIAL_PRESENT;
    enum trial_action action = trial_step_ended(&replacement->trial, arm, ns);
    if (action == TRIAL_NOTHING)
        return;
    say_result(replacement, action == TRIAL_TAKE);
    tell(replacement, action == TRIAL_TAKE ? &n_taken : &n_dropped);
    if (action == TRIAL_TAKE) {
        take_other(replacement);
    } else {
        keep_expected_costs(replacement);
        drop_other(replacement);
    }
}

/* The end of the input, or a client that cancels, says nothing of the placement. */
static bool may_follow_from_placement(const struct status *why) {
    return status_code(why) != STATUS_OUT_OF_RANGE && status_code(why) != STATUS_CANCELLED;
}

void replacement_step_failed(struct executable *executable, const struct status *why) {
    struct replacement *replacement = executable->races_in;
    if (replacement && replacement->trial.state == TRIAL_RACING && may_follow_from_placement(why))
        end_race(replacement, why);
}
