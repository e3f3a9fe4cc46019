/* When a signature is placed again, and which placement it keeps: injected costs and step times
 * (master/session/placement_trial.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "master/session/placement_trial.h"

static const double CONTRADICTION = 0.5, AGREEMENT = 0.1;

/* Samples until the trial wants a compilation. */
static void ask_for_compile(struct placement_trial *trial) {
    for (int i = 1; i < TRIAL_SAMPLES; i++)
        assert_int_equal(trial_costs_measured(trial, CONTRADICTION), TRIAL_NOTHING);
    assert_int_equal(trial_costs_measured(trial, CONTRADICTION), TRIAL_COMPILE);
    assert_int_equal(trial->state, TRIAL_COMPILING);
}

/* Runs a race of steps that take as long as `ns` says, by arm. */
static enum trial_action race(struct placement_trial *trial, const double ns[2]) {
    enum trial_action action = TRIAL_NOTHING;
    enum trial_arm last = TRIAL_PRESENT;
    int n_steps = 0;
    trial_compiled(trial, TRIAL_PLACED_OTHERWISE);
    assert_int_equal(trial->state, TRIAL_RACING);
    for (; action == TRIAL_NOTHING; n_steps++) {
        enum trial_arm arm = trial_next_arm(trial);
        assert_true(n_steps == 0 || arm != last); /* they alternate */
        last = arm;
        action = trial_step_ended(trial, arm, ns[arm]);
    }
    assert_int_equal(n_steps, 2 * (TRIAL_WARM_STEPS + TRIAL_STEPS));
    return action;
}

static void costs_that_agree_change_nothing(void **state) {
    struct placement_trial trial;
    trial_init(&trial, false);
    for (int i = 0; i < 100; i++)
        assert_int_equal(trial_costs_measured(&trial, AGREEMENT), TRIAL_NOTHING);
    assert_int_equal(trial.state, TRIAL_WATCHING);
    assert_int_equal(trial_next_arm(&trial), TRIAL_PRESENT);
    assert_int_equal(trial_step_ended(&trial, TRIAL_PRESENT, 1), TRIAL_NOTHING);
}

static void a_shorter_step_is_taken(void **state) {
    struct placement_trial trial;
    trial_init(&trial, false);
    ask_for_compile(&trial);
    assert_int_equal(trial_costs_measured(&trial, CONTRADICTION), TRIAL_NOTHING);
    assert_int_equal(race(&trial, (double[]){100, 80}), TRIAL_TAKE);
    assert_true(trial.median_ns[TRIAL_PRESENT] == 100 && trial.median_ns[TRIAL_OTHER] == 80);
    assert_int_equal(trial.state, TRIAL_WATCHING);
    assert_int_equal(trial_next_arm(&trial), TRIAL_PRESENT);
}

static void a_longer_or_an_equal_step_is_dropped(void **state) {
    const double others[] = {300, 100, 99};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct placement_trial trial;
        trial_init(&trial, false);
        ask_for_compile(&trial);
        assert_int_equal(race(&trial, (double[]){100, others[i]}), TRIAL_DROP);
    }
}

/* Other work on the host makes some steps long, and the first steps find cold caches. */
static void single_long_steps_do_not_decide(void **state) {
    struct placement_trial trial;
    enum trial_action action = TRIAL_NOTHING;
    int n_of_arm[2] = {0};
    trial_init(&trial, false);
    ask_for_compile(&trial);
    trial_compiled(&trial, TRIAL_PLACED_OTHERWISE);
    while (action == TRIAL_NOTHING) {
        enum trial_arm arm = trial_next_arm(&trial);
        int n = n_of_arm[arm]++;
        bool is_long = arm == TRIAL_OTHER && (n < TRIAL_WARM_STEPS || n % 3 == 0);
        action = trial_step_ended(&trial, arm, is_long ? 1e9 : arm == TRIAL_OTHER ? 50 : 100);
    }
    assert_int_equal(action, TRIAL_TAKE);
}

/* Steps overlap, so one placement's may end earlier than the other's. */
static void a_race_waits_for_both(void **state) {
    struct placement_trial trial;
    trial_init(&trial, false);
    ask_for_compile(&trial);
    trial_compiled(&trial, TRIAL_PLACED_OTHERWISE);
    for (int i = 0; i < 100; i++)
        assert_int_equal(trial_step_ended(&trial, TRIAL_PRESENT, 100), TRIAL_NOTHING);
    for (int i = 1; i < TRIAL_WARM_STEPS + TRIAL_STEPS; i++)
        assert_int_equal(trial_step_ended(&trial, TRIAL_OTHER, 10), TRIAL_NOTHING);
    assert_int_equal(trial_step_ended(&trial, TRIAL_OTHER, 10), TRIAL_TAKE);
    assert_int_equal(trial_step_ended(&trial, TRIAL_OTHER, 10), TRIAL_NOTHING);
}

static void a_race_without_a_rival_ends(void **state) {
    struct placement_trial trial;
    trial_init(&trial, false);
    trial_abandon(&trial);
    ask_for_compile(&trial);
    trial_compiled(&trial, TRIAL_PLACED_OTHERWISE);
    trial_abandon(&trial);
    assert_int_equal(trial.state, TRIAL_WATCHING);
    assert_int_equal(trial_next_arm(&trial), TRIAL_PRESENT);
}

static void only_a_few_compilations_are_asked_for(void **state) {
    const enum trial_compiled results[] = {TRIAL_PLACED_ALIKE, TRIAL_COMPILE_FAILED};
    for (size_t i = 0; i < ARRAY_LEN(results); i++) {
        struct placement_trial trial;
        trial_init(&trial, false);
        for (int n = 0; n < TRIAL_MAX_COMPILES; n++) {
            ask_for_compile(&trial);
            trial_compiled(&trial, results[i]);
        }
        assert_int_equal(trial.state, TRIAL_SETTLED);
        for (int n = 0; n < 100; n++)
            assert_int_equal(trial_costs_measured(&trial, CONTRADICTION), TRIAL_NOTHING);
    }
    struct placement_trial trial;
    trial_init(&trial, false);
    for (int n = 0; n < TRIAL_MAX_COMPILES; n++) {
        ask_for_compile(&trial);
        assert_int_equal(race(&trial, (double[]){100, 80}), TRIAL_TAKE);
    }
    assert_int_equal(trial.state, TRIAL_SETTLED);
}

/* The first race is against the simple rule, whatever the costs say, and does not count among the
 * compilations. */
static void a_rival_by_the_simple_rule_comes_first(void **state) {
    const double others[] = {80, 100};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct placement_trial trial;
        trial_init(&trial, true);
        for (int n = 1; n < TRIAL_SAMPLES; n++)
            assert_int_equal(trial_costs_measured(&trial, CONTRADICTION), TRIAL_NOTHING);
        assert_int_equal(trial_costs_measured(&trial, AGREEMENT), TRIAL_COMPILE_SIMPLE);
        assert_int_equal(race(&trial, (double[]){100, others[i]}),
                         others[i] < 100 ? TRIAL_TAKE : TRIAL_DROP);
        assert_int_equal(trial.state, TRIAL_WATCHING);
        for (int n = 0; n < 10; n++)
            assert_int_equal(trial_costs_measured(&trial, AGREEMENT), TRIAL_NOTHING);
        trial.n_samples = 0;
        for (int n = 0; n < TRIAL_MAX_COMPILES; n++) {
            ask_for_compile(&trial);
            trial_compiled(&trial, TRIAL_PLACED_ALIKE);
        }
        assert_int_equal(trial.state, TRIAL_SETTLED);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_that_agree_change_nothing),
        cmocka_unit_test(a_shorter_step_is_taken),
        cmocka_unit_test(a_longer_or_an_equal_step_is_dropped),
        cmocka_unit_test(single_long_steps_do_not_decide),
        cmocka_unit_test(a_race_waits_for_both),
        cmocka_unit_test(a_race_without_a_rival_ends),
        cmocka_unit_test(only_a_few_compilations_are_asked_for),
        cmocka_unit_test(a_rival_by_the_simple_rule_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
