/* The kernel rows of the device type "GPU": every fact names things that exist, every
 * implementation serves a fact, and the rows are what gpu_rows.h promises. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/cuda/rows/gpu_rows.h"
#include "kernels/device.h"

/* Of each implementation, op and arg: of elementwise ops, the stem of the kernels' names. */
// clang-format off
#define GPU_KERNEL(op, attr, types, flags, compute, init, fini, arg) {op, #init, arg},
static const struct {
    const char *op, *init, *stem;
} elementwise[] = {
#include "kernels/cuda/rows/elementwise.inc"
};
#undef GPU_KERNEL
#define GPU_KERNEL(op, ...) op,
static const char *const implemented[] = {
#include "kernels/cuda/rows/implementations.inc"
};
// clang-format on

static bool has_arg(const struct op_arg_signature *args, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(args[i].name, name) == 0)
            return true;
    return false;
}

static void facts_name_arguments_and_attrs_of_their_ops(void **state) {
    for (size_t i = 0; i < n_gpu_rows; i++) {
        const struct op_signature *op = op_signature_find(gpu_rows[i].op);
        if (!op) /* an op of TensorFlow's own runtime */
            continue;
        for (const char *const *arg = gpu_rows[i].host_args; arg && *arg; arg++)
            if (!has_arg(op->inputs, op->n_inputs, *arg) &&
                !has_arg(op->outputs, op->n_outputs, *arg))
                fail_msg("%s has no argument %s", op->name, *arg);
        for (int c = 0; c < KERNEL_MAX_CONSTRAINTS && gpu_rows[i].constraints[c].attr; c++) {
            bool is_attr = false;
            for (int a = 0; a < op->n_attrs; a++)
                is_attr |= strcmp(op->attrs[a].name, gpu_rows[i].constraints[c].attr) == 0;
            if (!is_attr)
                fail_msg("%s has no attr %s", op->name, gpu_rows[i].constraints[c].attr);
        }
    }
}

static void every_implementation_serves_a_fact(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(implemented); i++)
        if (!kernel_op_is_supported(implemented[i], "GPU"))
            fail_msg("%s has no row: TensorFlow has no such kernel, or none of these types",
                     implemented[i]);
}

/* The executor runs these itself, so no device has kernels for them. */
static bool is_executors(const char *op) {
    static const char *const ops[] = {"NoOp", "ControlTrigger", "Const", "LoopCond"};
    static const char *const families[] = {
        "Identity",      "Switch",       "Merge",           "Enter",    "Exit",
        "NextIteration", "StopGradient", "PreventGradient", "Snapshot", "_SwitchN"};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (strcmp(op, ops[i]) == 0)
            return true;
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (strstr(op, families[i]))
            return true;
    return false;
}

/* A row that the CPU computes needs a row of the CPU. */
static void rows_of_the_cpu_have_one(void **state) {
    const struct kernel_def *def;
    size_t n = 0;
    for (size_t i = 0; (def = kernel_at("GPU", i)); i++) {
        n++;
        if ((def->flags & KERNEL_OF_CPU) && !is_executors(def->op) &&
            !kernel_op_is_supported(def->op, "CPU"))
            fail_msg("%s has no kernel on a CPU", def->op);
    }
    assert_true(n > 100);
}

static bool are_outputs_on_host(const struct kernel_def *def, const struct op_signature *op) {
    for (int i = 0; op && i < op->n_outputs; i++)
        if (!kernel_names_host_arg(def->host_args, op->outputs[i].name))
            return false;
    return op && op->n_outputs > 0;
}

/* A kernel for GPUs makes what it makes in the device's memory: outputs that the fact says are in
 * host memory are the CPU's (ZerosLike of int32). */
static void values_on_the_host_are_made_by_the_cpu(void **state) {
    const struct kernel_def *def;
    int n = 0;
    for (size_t i = 0; (def = kernel_at("GPU", i)); i++) {
        if (!are_outputs_on_host(def, op_signature_find(def->op)))
            continue;
        n++;
        if (!(def->flags & KERNEL_OF_CPU) && !is_executors(def->op))
            fail_msg("%s makes its outputs on the device, and they belong on the host", def->op);
    }
    assert_true(n > 100);
}

static const struct kernel_def *find(struct graph *graph, const char *op, const char *attr,
                                     enum dtype dtype, struct node **ret) {
    assert_null(graph_add_node(graph, graph_unique_name(graph, "n"), op, "", ret));
    node_set_attr_type(graph, *ret, attr, dtype);
    return kernel_find(*ret, "GPU");
}

static void int32_stays_on_the_host(void **state) {
    struct graph graph;
    struct node *node;
    graph_init(&graph);
    const struct kernel_def *def = find(&graph, "AddV2", "T", DT_INT32, &node);
    assert_non_null(def);
    assert_true(def->flags & KERNEL_OF_CPU);
    assert_true(kernel_input_is_on_host(def, node, 0) && kernel_input_is_on_host(def, node, 1));
    assert_true(kernel_output_is_on_host(def, node, 0));
    def = find(&graph, "Reshape", "T", DT_FLOAT, &node);
    assert_non_null(def);
    assert_false(kernel_input_is_on_host(def, node, 0));
    assert_true(kernel_input_is_on_host(def, node, 1));
    assert_false(kernel_output_is_on_host(def, node, 0));
    def = find(&graph, "Switch", "T", DT_FLOAT, &node);
    assert_false(kernel_input_is_on_host(def, node, 0));
    assert_true(kernel_input_is_on_host(def, node, 1));
    def = find(&graph, "Switch", "T", DT_INT32, &node);
    assert_true(kernel_input_is_on_host(def, node, 0));
    assert_null(find(&graph, "StringLower", "encoding", DT_FLOAT, &node));
    graph_fini(&graph);
}

/* An argument that stands for several tensors counts as many. */
static void runs_of_tensors_are_counted(void **state) {
    struct graph graph;
    struct node *node;
    graph_init(&graph);
    assert_null(graph_add_node(&graph, "m", "Merge", "", &node));
    node_set_attr_type(&graph, node, "T", DT_FLOAT);
    node_set_attr_i(&graph, node, "N", 3);
    const struct kernel_def *def = kernel_find(node, "GPU");
    assert_non_null(def);
    for (int i = 0; i < 3; i++)
        assert_false(kernel_input_is_on_host(def, node, i));
    assert_false(kernel_output_is_on_host(def, node, 0));
    assert_true(kernel_output_is_on_host(def, node, 1));
    graph_fini(&graph);
}

static bool is_instruction(const char *name) {
#define FUSED_INSTRUCTION(name) #name,
    static const char *const names[] = {
#include "kernels/cuda/ops/fused_instructions.inc"
    };
#undef FUSED_INSTRUCTION
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static const char *const suffixes[DT_N_TYPES] = {
    [DT_HALF] = "f16", [DT_BFLOAT16] = "bf16", [DT_FLOAT] = "f32",  [DT_DOUBLE] = "f64",
    [DT_INT8] = "i8",  [DT_INT16] = "i16",     [DT_INT32] = "i32",  [DT_INT64] = "i64",
    [DT_UINT8] = "u8", [DT_UINT16] = "u16",    [DT_UINT32] = "u32", [DT_UINT64] = "u64",
    [DT_BOOL] = "bool"};

static void check_instruction(const char *op, const char *init, const char *stem,
                              enum dtype dtype) {
    char name[64];
    if (strcmp(init, "elementwise_init_by_size") == 0)
        snprintf(name, sizeof(name), "%s_b%zu", stem, dtype_size(dtype));
    else /* AddN is additions */
        snprintf(name, sizeof(name), "%s_%s", strcmp(stem, "add_n") == 0 ? "add" : stem,
                 suffixes[dtype]);
    if (!is_instruction(name))
        fail_msg("%s of %s may be fused, but no instruction is '%s'", op, dtype_name(dtype), name);
}

static void check_casts(const struct kernel_def *def) {
    char name[64];
    for (int from = 1; from < DT_N_TYPES; from++)
        for (int to = 1; to < DT_N_TYPES; to++) {
            bool is_taken = true;
            for (int c = 0; c < KERNEL_MAX_CONSTRAINTS && def->constraints[c].attr; c++)
                is_taken &=
                    dtype_in(strcmp(def->constraints[c].attr, "SrcT") == 0 ? (enum dtype)from
                                                                           : (enum dtype)to,
                             def->constraints[c].types);
            if (!is_taken)
                continue;
            snprintf(name, sizeof(name), "cast_%s_%s", suffixes[from], suffixes[to]);
            if (!is_instruction(name))
                fail_msg("no instruction is '%s'", name);
        }
}

/* The planner fuses by the rows, so each type of a row with the flag needs its instruction. */
static void what_may_be_fused_has_an_instruction(void **state) {
    const struct kernel_def *def;
    int n = 0;
    for (size_t i = 0; (def = kernel_at("GPU", i)); i++) {
        if (!(def->flags & KERNEL_ELEMENTWISE))
            continue;
        n++;
        if (strcmp(def->op, "Cast") == 0) {
            check_casts(def);
            continue;
        }
        for (size_t e = 0; e < ARRAY_LEN(elementwise); e++) {
            if (strcmp(elementwise[e].op, def->op) != 0)
                continue;
            dtype_set types = def->constraints[0].attr ? def->constraints[0].types
                                                       : DTYPE_BIT(DT_BOOL); /* LogicalAnd */
            assert_true((types & ~GPU_FUSED_TYPES) == 0);
            for (int dtype = 1; dtype < DT_N_TYPES; dtype++)
                if (dtype_in((enum dtype)dtype, types))
                    check_instruction(def->op, elementwise[e].init, elementwise[e].stem,
                                      (enum dtype)dtype);
        }
    }
    assert_true(n > 80);
    assert_true(kernel_op_is_supported(OP_FUSED, "GPU"));
}

/* Complex numbers are wider than a slot of the interpreter. */
static void other_types_are_not_fused(void **state) {
    struct graph graph;
    struct node *node;
    graph_init(&graph);
    assert_true(find(&graph, "AddV2", "T", DT_FLOAT, &node)->flags & KERNEL_ELEMENTWISE);
    assert_false(find(&graph, "AddV2", "T", DT_COMPLEX64, &node)->flags & KERNEL_ELEMENTWISE);
    assert_false(find(&graph, "AddV2", "T", DT_INT32, &node)->flags & KERNEL_ELEMENTWISE);
    assert_false(find(&graph, "Digamma", "T", DT_FLOAT, &node)->flags & KERNEL_ELEMENTWISE);
    assert_false(find(&graph, "Relu", "T", DT_QINT8, &node)->flags & KERNEL_ELEMENTWISE);
    graph_fini(&graph);
}

static int begin(void **state) {
    gpu_add_device_type(NULL, 0);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_name_arguments_and_attrs_of_their_ops),
        cmocka_unit_test(every_implementation_serves_a_fact),
        cmocka_unit_test(rows_of_the_cpu_have_one),
        cmocka_unit_test(values_on_the_host_are_made_by_the_cpu),
        cmocka_unit_test(int32_stays_on_the_host),
        cmocka_unit_test(runs_of_tensors_are_counted),
        cmocka_unit_test(what_may_be_fused_has_an_instruction),
        cmocka_unit_test(other_types_are_not_fused),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
