/* The tables agree: a supported op (one with a CPU kernel, or one that the executor runs itself)
 * has a signature, an op row with a summary and a shape function, and a gradient row; every
 * row's type constraints name type attrs of the op and only types that the attr allows. All
 * failures are listed before the test fails. */
#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/gradients/gradient.h"
#include "common/graph/internal_ops.h"
#include "common/ops/op_def.h"
#include "kernels/kernel.h"

static int n_bad;

#define BAD(...)                           \
    do {                                   \
        fprintf(stderr, "  " __VA_ARGS__); \
        fprintf(stderr, "\n");             \
        n_bad++;                           \
    } while (0)

static void check_constraint(const struct kernel_def *row, const struct op_signature *op,
                             const char *attr_name, dtype_set types) {
    const struct op_attr_signature *attr = op_signature_attr(op, attr_name);
    if (!attr || attr_type_element(attr->type) != ATTR_TYPE) {
        BAD("%s: constraint on %s, which is no type attr of the op", row->op, attr_name);
        return;
    }
    if (types == 0)
        BAD("%s: constraint on %s allows no type", row->op, attr_name);
    dtype_set extra = attr->allowed_types ? types & ~attr->allowed_types : 0;
    char text[512];
    dtype_set_print(extra, text, sizeof(text));
    if (extra)
        BAD("%s: constraint on %s holds types that the op does not allow: %s", row->op, attr_name,
            text);
}

static void test_kernel_rows_fit_their_ops(void **state) {
    n_bad = 0;
    const struct kernel_def *row;
    for (size_t i = 0; (row = kernel_at("CPU", i)); i++) {
        const struct op_signature *op = op_signature_find(row->op);
        if (!op)
            op = internal_op_find(span_of(row->op));
        if (!op) {
            BAD("%s: a kernel for an op that has no signature", row->op);
            continue;
        }
        if (!row->compute)
            BAD("%s: a row without compute", row->op);
        for (int c = 0; c < KERNEL_MAX_CONSTRAINTS && row->constraints[c].attr; c++)
            check_constraint(row, op, row->constraints[c].attr, row->constraints[c].types);
    }
    assert_int_equal(n_bad, 0);
}

static void test_ops_with_kernels_have_all_rows(void **state) {
    n_bad = 0;
    const struct kernel_def *row;
    for (size_t i = 0; (row = kernel_at("CPU", i)); i++) {
        const struct op_def *def = op_def_find(row->op);
        if (!def || !def->shape)
            BAD("%s: has a kernel, but no op row with a shape function", row->op);
        if (!gradient_find(row->op))
            BAD("%s: has a kernel, but no gradient row (write NO_GRADIENT when it has none)",
                row->op);
    }
    assert_int_equal(n_bad, 0);
}

static bool runs_in_executor(const char *op) {
    static const char *const names[] = {
        "Switch",    "RefSwitch",      "_SwitchN", "Merge",         "RefMerge",         "Enter",
        "RefEnter",  "Exit",           "RefExit",  "NextIteration", "RefNextIteration", "LoopCond",
        "RefSelect", "ControlTrigger", "_MrFeed",  "_MrFetch",      "_MrSend",          "_MrRecv"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], op) == 0)
            return true;
    }
    return false;
}

/* What the master replaces before a worker sees it. */
static bool is_inlined(const char *op) {
    static const char *const names[] = {"If",
                                        "StatelessIf",
                                        "Case",
                                        "StatelessCase",
                                        "While",
                                        "StatelessWhile",
                                        "For",
                                        "PartitionedCall",
                                        "RemoteCall",
                                        "StatefulPartitionedCall",
                                        "SymbolicGradient",
                                        "DatasetToGraph",
                                        "DatasetToGraphV2"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(names[i], op) == 0)
            return true;
    }
    return false;
}

/* A row without a kernel would promise an op that no step can run. */
static void test_op_rows_are_supported(void **state) {
    n_bad = 0;
    size_t n = 0;
    for (size_t l = 0; l < n_op_def_lists; l++) {
        for (size_t r = 0; r < op_def_lists[l]->n_rows; r++, n++) {
            const struct op_def *def = &op_def_lists[l]->rows[r];
            if (!op_signature_find(def->name) && strncmp(def->name, "_Mr", 3) != 0)
                BAD("%s: an op row without a signature", def->name);
            if (!def->summary || !def->summary[0] || !def->shape)
                BAD("%s: an op row without a summary or a shape function", def->name);
            if (!kernel_op_is_supported(def->name, "CPU") && !runs_in_executor(def->name) &&
                !is_inlined(def->name))
                BAD("%s: an op row, but no kernel", def->name);
            if (op_def_find(def->name) != def)
                BAD("%s: two op rows", def->name);
            if (!gradient_find(def->name))
                BAD("%s: an op row, but no gradient row", def->name);
        }
    }
    print_message("%zu ops have rows\n", n);
    assert_int_equal(n_bad, 0);
}

static void test_gradient_rows_name_ops(void **state) {
    n_bad = 0;
    size_t n_refused = 0, n = 0;
    for (size_t l = 0; l < n_gradient_lists; l++) {
        for (size_t r = 0; r < gradient_lists[l]->n_rows; r++, n++) {
            const struct gradient_row *row = &gradient_lists[l]->rows[r];
            if (!op_def_find(row->op))
                BAD("%s: a gradient row for an op without an op row", row->op);
            if (gradient_find(row->op) != row)
                BAD("%s: two gradient rows", row->op);
            if ((row->kind == GRADIENT_FN) != (row->fn != NULL))
                BAD("%s: a gradient row whose kind and function disagree", row->op);
            if ((row->kind == GRADIENT_REFUSED) != (row->why && row->why[0]))
                BAD("%s: a gradient row whose kind and reason disagree", row->op);
            n_refused += row->kind == GRADIENT_REFUSED;
        }
    }
    print_message("%zu gradient rows, %zu of them REFUSED\n", n, n_refused);
    assert_int_equal(n_bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel_rows_fit_their_ops),
        cmocka_unit_test(test_ops_with_kernels_have_all_rows),
        cmocka_unit_test(test_op_rows_are_supported),
        cmocka_unit_test(test_gradient_rows_name_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
