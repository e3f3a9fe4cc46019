/* The state machine of a placement's trial (placement_trial.h). */
#include "master/session/placement_trial.h"

#include <stdlib.h>

static const struct state_row states[] = {
    [TRIAL_WATCHING] = {"WATCHING", STATE_SET(TRIAL_COMPILING), .is_first = true},
    [TRIAL_COMPILING] = {"COMPILING", STATE_SET(TRIAL_WATCHING) | STATE_SET(TRIAL_RACING) |
                                          STATE_SET(TRIAL_SETTLED)},
    [TRIAL_RACING] = {"RACING", STATE_SET(TRIAL_WATCHING) | STATE_SET(TRIAL_SETTLED)},
    [TRIAL_SETTLED] = {"SETTLED", 0},
};
const struct state_machine trial_machine = {"placement trial", states, ARRAY_LEN(states)};

void trial_init(struct placement_trial *trial, bool has_rival) {
    *trial = (struct placement_trial){.has_rival = has_rival, .last_arm = TRIAL_OTHER};
    state_machine_start(&trial_machine, &trial->state, TRIAL_WATCHING, trial);
}

/* The samples of the present placement count from here on. */
static void watch(struct placement_trial *trial) {
    bool is_last = trial->n_compiles >= TRIAL_MAX_COMPILES;
    trial->n_samples = 0;
    state_machine_move(&trial_machine, &trial->state, is_last ? TRIAL_SETTLED : TRIAL_WATCHING,
                       trial);
}

enum trial_action trial_costs_measured(struct placement_trial *trial, double contradiction) {
    bool is_by_simple_rule = trial->has_rival;
    if (trial->state != TRIAL_WATCHING || ++trial->n_samples < TRIAL_SAMPLES ||
        !(is_by_simple_rule || contradiction > TRIAL_MARGIN))
        return TRIAL_NOTHING;
    trial->has_rival = false;
    trial->n_compiles += !is_by_simple_rule;
    state_machine_move(&trial_machine, &trial->state, TRIAL_COMPILING, trial);
    return is_by_simple_rule ? TRIAL_COMPILE_SIMPLE : TRIAL_COMPILE;
}

void trial_compiled(struct placement_trial *trial, enum trial_compiled result) {
    if (result != TRIAL_PLACED_OTHERWISE) {
        watch(trial);
        return;
    }
    memset(trial->steps, 0, sizeof(trial->steps));
    state_machine_move(&trial_machine, &trial->state, TRIAL_RACING, trial);
}

enum trial_arm trial_next_arm(struct placement_trial *trial) {
    if (trial->state != TRIAL_RACING)
        return TRIAL_PRESENT;
    trial->last_arm = trial->last_arm == TRIAL_PRESENT ? TRIAL_OTHER : TRIAL_PRESENT;
    return trial->last_arm;
}

static int compare_times(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static double median(struct trial_steps *steps) {
    qsort(steps->ns, TRIAL_STEPS, sizeof(steps->ns[0]), compare_times);
    return steps->ns[TRIAL_STEPS / 2];
}

enum trial_action trial_step_ended(struct placement_trial *trial, enum trial_arm arm, double ns) {
    struct trial_steps *steps = &trial->steps[arm];
    if (trial->state != TRIAL_RACING)
        return TRIAL_NOTHING;
    if (steps->n_warm < TRIAL_WARM_STEPS)
        steps->n_warm++;
    else if (steps->n < TRIAL_STEPS)
        steps->ns[steps->n++] = ns;
    if (trial->steps[TRIAL_PRESENT].n < TRIAL_STEPS || trial->steps[TRIAL_OTHER].n < TRIAL_STEPS)
        return TRIAL_NOTHING;
    for (int i = TRIAL_PRESENT; i <= TRIAL_OTHER; i++)
        trial->median_ns[i] = median(&trial->steps[i]);
    watch(trial);
    return trial->median_ns[TRIAL_OTHER] < trial->median_ns[TRIAL_PRESENT] * (1 - TRIAL_MIN_GAIN)
               ? TRIAL_TAKE
               : TRIAL_DROP;
}

void trial_abandon(struct placement_trial *trial) {
    if (trial->state == TRIAL_RACING)
        watch(trial);
}
