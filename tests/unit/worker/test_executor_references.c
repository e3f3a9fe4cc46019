/* References in the executor: a value of a reference variable is read as late as TensorFlow reads
 * it, so an update shows in what uses the variable after it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/worker/odd_kernels.h"
#include "tests/unit/worker/text_loop.h"
#include <stdio.h>

#include "tests/unit/worker/text_run.h"

/* In addition to the CPU's kernels: kernels that wait or fail. */
// clang-format off
static const struct kernel_def test_rows[] = {
    {.op = "Neg", .compute = neg_later, .flags = KERNEL_ASYNC},
};
// clang-format on
static const struct kernel_list test_list = {test_rows, ARRAY_LEN(test_rows)};
static const struct cost_list no_costs = {NULL, 0};

#define REF_VARIABLE(name) \
    name " = VariableV2() {dtype=float, shape=[], shared_name=\"" name "\"}\n"

/* As clients write it: v/read has no control input, and who uses it after an update means the
 * new value. */
static void an_update_shows_in_what_uses_a_reference_after_it(void **state) {
    expect_result(REF_VARIABLE("late") "one = Const() {dtype=float, value=float[]{1}}\n"
                                       "init = Assign(late, one) {T=float}\n"
                                       "read = Identity(late, ^init) {T=float}\n"
                                       "before = AddV2(read, one) {T=float}\n"
                                       "update = AssignAdd(late, one, ^before) {T=float}\n"
                                       "after = Mul(read, one, ^update) {T=float}\n"
                                       "copy = Identity(read, ^update) {T=float}\n"
                                       "both = Mul(after, copy) {T=float}\n"
                                       "sum = AddV2(both, before) {T=float}\n"
                                       "out = _MrFetch(sum) {T=float, index=0}\n",
                  "float[]{6}");
    expect_failure(
        REF_VARIABLE("unset") "read = Identity(unset) {T=float}\nuse = Neg(read) {T=float}\n",
        STATUS_FAILED_PRECONDITION, "[[{{node read}}]]");
}

#define WATCHES(op) "v = VariableV2() {dtype=float, shape=[2,3], shared_name=\"watched_" op "\"}\n"

/* A debugger may watch a variable in the step that initializes it. */
static void debug_ops_take_a_variable_without_a_value(void **state) {
    expect_result(WATCHES("identity") "seen = DebugIdentity(v) {T=float, tensor_name=\"v:0\"}\n"
                                      "out = _MrFetch(seen) {T=float, index=0}\n",
                  "float[0]{}");
    expect_result(WATCHES("count") "seen = DebugNanCount(v) {T=float, tensor_name=\"v:0\"}\n"
                                   "out = _MrFetch(seen) {T=int64, index=0}\n",
                  "int64[1]{0}");
    expect_result(
        WATCHES("summary") "seen = DebugNumericSummary(v) {T=float, tensor_name=\"v:0\"}\n"
                           "out = _MrFetch(seen) {T=double, index=0}\n",
        "double[16]{0, 0, 0, 0, 0, 0, 0, 0, inf, -inf, nan, nan, 1, 2, 2, 3}");
}

/* Each op makes an output that shares the variable's buffer in TensorFlow, so what reads the output
 * after the update sees the update. */
static void an_update_shows_behind_every_op_that_forwards_a_reference(void **state) {
    static const char *const ops[] = {
        "Identity(read) {T=float}",
        "IdentityN(read) {T=[float]}",
        "StopGradient(read) {T=float}",
        "PreventGradient(read) {T=float}",
        "GuaranteeConst(read) {T=float}",
        "PlaceholderWithDefault(read) {dtype=float, shape=[]}",
        "EnsureShape(read) {T=float, shape=[]}",
        "CheckNumerics(read) {T=float, message=\"m\"}",
        "Reshape(read, none) {T=float, Tshape=int32}",
        "Squeeze(read) {T=float}",
        "Identity(late) {T=float}",
        "Reshape(late, none) {T=float, Tshape=int32}",
    };
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        struct str text = STR_INIT;
        str_addf(&text,
                 REF_VARIABLE("late") "one = Const() {dtype=float, value=float[]{1}}\n"
                                      "none = Const() {dtype=int32, value=int32[0]{}}\n"
                                      "init = Assign(late, one) {T=float}\n"
                                      "read = Identity(late, ^init) {T=float}\n"
                                      "first = %.*s, ^init) %s\n"
                                      "again = Identity(first) {T=float}\n"
                                      "before = AddV2(again, one) {T=float}\n"
                                      "update = AssignAdd(late, one, ^before) {T=float}\n"
                                      "after = AddV2(again, one, ^update) {T=float}\n"
                                      "out = _MrFetch(after) {T=float, index=0}\n",
                 (int)(strchr(ops[i], ')') - ops[i]), ops[i], strchr(ops[i], ')') + 2);
        expect_result(str_text(&text), "float[]{3}");
        str_fini(&text);
    }
}

/* The view keeps its shape, the variable its own. */
static void a_reshaped_reference_is_read_late_under_its_shape(void **state) {
    expect_result("v = VariableV2() {dtype=float, shape=[2,3], shared_name=\"shaped\"}\n"
                  "x = Const() {dtype=float, value=float[2,3]{1, 2, 3, 4, 5, 6}}\n"
                  "flat = Const() {dtype=int32, value=int32[1]{-1}}\n"
                  "last = Const() {dtype=int32, value=int32[]{1}}\n"
                  "init = Assign(v, x) {T=float}\n"
                  "read = Identity(v, ^init) {T=float}\n"
                  "r = Reshape(read, flat) {T=float, Tshape=int32}\n"
                  "e = ExpandDims(r, last) {T=float, Tdim=int32}\n"
                  "s = Squeeze(e) {T=float, squeeze_dims=[1]}\n"
                  "update = AssignAdd(v, x, ^s) {T=float}\n"
                  "copy = Mul(s, s, ^update) {T=float}\n"
                  "out = _MrFetch(copy) {T=float, index=0}\n",
                  "float[6]{4, 16, 36, 64, 100, 144}");
    expect_failure("v = VariableV2() {dtype=float, shape=[], shared_name=\"nan\"}\n"
                   "x = Const() {dtype=float, value=float[]{nan}}\n"
                   "init = Assign(v, x) {T=float}\n"
                   "check = CheckNumerics(v, ^init) {T=float, message=\"here\"}\n"
                   "out = _MrFetch(check) {T=float, index=0}\n",
                   STATUS_INVALID_ARGUMENT, "here : Tensor had NaN");
}

/* w = identity(v.read()) outside; v.assign_add(1) in five iterations; then w + 0. */
static void an_update_in_a_loop_shows_in_what_was_read_outside(void **state) {
    expect_result(
        REF_VARIABLE("looped") INT("z", "0") INT(
            "n", "5") "zero = Const() {dtype=float, value=float[]{0}}\n"
                      "init = Assign(looped, zero) {T=float}\n"
                      "read = Identity(looped, ^init) {T=float}\n"
                      "w0 = Identity(read) {T=float}\n"
                      "start = Identity(z, ^w0) {T=int32}\n"
                      "v_in = RefEnter(looped) {T=float, frame_name=\"w\", is_constant=true}\n"
                      "f_1 = Const() {dtype=float, value=float[]{1}}\n"
                      "step_in = Enter(f_1) {T=float, frame_name=\"w\", is_constant=true}\n" LOOP(
                          "w", "start", "n", "1",
                          "add = AssignAdd(v_in, step_in, ^w_b) {T=float}\n"
                          "w_1 = Const(^add) {dtype=int32, value=int32[]{1}}\n"
                          "w_a = AddV2(w_b, w_1) {T=int32}\n"
                          "w_n = NextIteration(w_a) {T=int32}\n") "sum = AddV2(w0, zero, ^w_x) "
                                                                  "{T=float}\n"
                                                                  "out = _MrFetch(sum) {T=float, "
                                                                  "index=0}\n",
        "float[]{5}");
}

/* sess.run([train_op, global_step]): the fetch runs first, and shows the update all the same. */
static void a_fetched_reference_shows_the_updates_of_its_step(void **state) {
    static const char *const fetched[] = {"global", "read", "again", "reshaped"};
    for (size_t i = 0; i < ARRAY_LEN(fetched); i++) {
        struct str text = STR_INIT;
        str_addf(&text,
                 REF_VARIABLE("global") "one = Const() {dtype=float, value=float[]{1}}\n"
                                        "none = Const() {dtype=int32, value=int32[0]{}}\n"
                                        "init = Assign(global, one) {T=float}\n"
                                        "read = Identity(global, ^init) {T=float}\n"
                                        "again = Identity(read) {T=float}\n"
                                        "reshaped = Reshape(read, none) {T=float, Tshape=int32}\n"
                                        "out = _MrFetch(%s, ^init) {T=float, index=0}\n"
                                        "wait = Neg(one, ^out) {T=float}\n"
                                        "train = AssignAdd(global, one, ^wait) {T=float}\n",
                 fetched[i]);
        expect_result(str_text(&text), "float[]{2}");
        str_fini(&text);
    }
}

/* A branch hands the variable on as it is; only the predicate is read. */
static void a_switch_by_a_variable_hands_its_data_on_unread(void **state) {
    expect_result(
        REF_VARIABLE("data") "way = VariableV2() {dtype=bool, shape=[], shared_name=\"way\"}\n"
                             "one = Const() {dtype=float, value=float[]{1}}\n"
                             "two = Const() {dtype=float, value=float[]{2}}\n"
                             "yes = Const() {dtype=bool, value=bool[]{true}}\n"
                             "init = Assign(data, one) {T=float}\n"
                             "init_way = Assign(way, yes) {T=bool}\n"
                             "read = Identity(data, ^init) {T=float}\n"
                             "read_way = Identity(way, ^init_way) {T=bool}\n"
                             "s = Switch(read, read_way) {T=float}\n"
                             "t = Identity(s:1, ^update) {T=float}\n"
                             "update = Assign(data, two, ^init, ^after) {T=float}\n"
                             "after = Identity(read_way) {T=bool}\n"
                             "out = _MrFetch(t) {T=float, index=0}\n",
        "float[]{2}");
}

static void a_handle_is_looked_up_as_what_it_names(void **state) {
    expect_failure(
        "v = VarHandleOp() {dtype=float, shape=[], shared_name=\"v\"}\nn = LookupTableSizeV2(v)\n",
        STATUS_INVALID_ARGUMENT,
        "using the wrong type. The handle points to a resource (name 'v') of type 'Var'");
}

static int setup(void **state) {
    text_runs_begin(&test_list, &no_costs);
    return 0;
}

/* A read that waits for nothing comes before an update that waits for another read, whichever of
 * the reads is named first. */
static void a_read_that_waits_for_nothing_is_early(void **state) {
    static const char *const reads[] = {"first", "last"};
    static const char variable[] = "v = VarHandleOp() {dtype=float, shape=[], shared_name=\"v\"}\n"
                                   "one = Const() {dtype=float, value=float[]{1}}\n";
    for (size_t i = 0; i < ARRAY_LEN(reads); i++) {
        struct str text = STR_INIT;
        struct fixture init, f;
        str_addf(&text, "%sinit = AssignVariableOp(v, one) {dtype=float}\n", variable);
        open_fixture(&init, str_text(&text));
        str_clear(&text);
        str_addf(&text,
                 "%sfirst = ReadVariableOp(v) {dtype=float}\n"
                 "used = ReadVariableOp(v) {dtype=float}\n"
                 "last = ReadVariableOp(v) {dtype=float}\n"
                 "sum = AddV2(used, one) {T=float}\n"
                 "update = AssignVariableOp(v, sum) {dtype=float}\n"
                 "out = _MrFetch(%s) {T=float, index=0}\n",
                 variable, reads[i]);
        open_fixture(&f, str_text(&text));
        start(&init);
        await(&init);
        for (int run = 1; run <= 3; run++) {
            char value[32];
            snprintf(value, sizeof(value), "float[]{%d}", run);
            start(&f);
            await(&f);
            expect_fetch(&f, 0, value);
            tensor_clear(&f.fetches[0]);
        }
        close_fixture(&init);
        close_fixture(&f);
        str_fini(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_shows_in_what_uses_a_reference_after_it),
        cmocka_unit_test(debug_ops_take_a_variable_without_a_value),
        cmocka_unit_test(an_update_shows_behind_every_op_that_forwards_a_reference),
        cmocka_unit_test(a_reshaped_reference_is_read_late_under_its_shape),
        cmocka_unit_test(an_update_in_a_loop_shows_in_what_was_read_outside),
        cmocka_unit_test(a_fetched_reference_shows_the_updates_of_its_step),
        cmocka_unit_test(a_read_that_waits_for_nothing_is_early),
        cmocka_unit_test(a_switch_by_a_variable_hands_its_data_on_unread),
        cmocka_unit_test(a_handle_is_looked_up_as_what_it_names),
    };
    return cmocka_run_group_tests(tests, setup, text_runs_end);
}
