/* Fused programs with reductions: softmax, layer norm, losses and others, on rows of every length
 * and number, give the bits of their nodes one by one, on any number of threads; the shapes that
 * are meant to run in passes over rows do; and mistakes name the node that made them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/denormals.h"
#include "common/graph/fused.h"
#include "common/graph/graph_text.h"
#include "kernels/cost.h"
#include "kernels/cpu/fused/fused_rows.h"
#include "tests/unit/kernels/kernel_test.h"

enum { MAX_NODES = 24 };

static uint32_t seed = 5;
static uint32_t draw(uint32_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* x…: rows × columns; r…: 1 × columns; v…: rows × 1; s…: a scalar; a…: axes [1]; all: [0, 1].
 * "T" stands for the type. */
static const struct program {
    const char *name, *text, *results;
} programs[] = {
    {"softmax",
     "m = Max(x0, a0) {T=T, keep_dims=true}\nd = Sub(x0, m) {T=T}\ne = Exp(d) {T=T}\n"
     "s = Sum(e, a0) {T=T, keep_dims=true}\ny = RealDiv(e, s) {T=T}\n",
     "y"},
    {"layer norm",
     "m = Mean(x0, a0) {T=T, keep_dims=true}\nc = Sub(x0, m) {T=T}\nq = Square(c) {T=T}\n"
     "v = Mean(q, a0) {T=T, keep_dims=true}\nw = AddV2(v, s0) {T=T}\nr = Rsqrt(w) {T=T}\n"
     "n = Mul(c, r) {T=T}\ng = Mul(n, r0) {T=T}\ny = AddV2(g, r1) {T=T}\n",
     "m y"},
    {"mean square",
     "d = Sub(x0, x1) {T=T}\nq = Square(d) {T=T}\nl = Mean(q, all) {T=T}\nh = Mul(l, s0) {T=T}\n",
     "h"},
    {"cross entropy",
     "m = Max(x0, a0) {T=T, keep_dims=true}\nd = Sub(x0, m) {T=T}\ne = Exp(d) {T=T}\n"
     "s = Sum(e, a0) {T=T, keep_dims=true}\nl = Log(s) {T=T}\nz = Sub(d, l) {T=T}\n"
     "p = Mul(z, x1) {T=T}\nr = Sum(p, a0) {T=T}\nn = Neg(r) {T=T}\nt = Mean(n, zero) {T=T}\n",
     "z t"},
    {"two reductions of one value",
     "q = Square(x0) {T=T}\na = Sum(q, a0) {T=T, keep_dims=true}\n"
     "b = Max(q, a0) {T=T, keep_dims=true}\nc = Min(x0, a0) {T=T, keep_dims=true}\n"
     "d = Sub(a, b) {T=T}\ne = Mul(d, v0) {T=T}\nf = AddV2(q, e) {T=T}\ng = Mul(f, c) {T=T}\n",
     "a g"},
    {"a reduction of a reduction",
     "q = Mul(x0, x1) {T=T}\na = Sum(q, a0) {T=T}\nb = Neg(a) {T=T}\nc = Max(b, zero) {T=T}\n"
     "y = Sub(x0, c) {T=T}\n",
     "b y"},
    {"over the first dimension",
     "q = Mul(x0, x1) {T=T}\na = Sum(q, zero) {T=T, keep_dims=true}\nb = Neg(a) {T=T}\n"
     "c = Sub(q, b) {T=T}\nd = Mean(c, a0) {T=T, keep_dims=true}\ny = Sub(c, d) {T=T}\n",
     "b y"},
    {"of an input, and of what is broadcast",
     "a = Sum(x0, a0) {T=T, keep_dims=true}\nb = AddV2(r0, v0) {T=T}\n"
     "c = Max(b, a0) {T=T, keep_dims=true}\nd = Sub(a, c) {T=T}\ny = Mul(x0, d) {T=T}\n",
     "d y"},
};

struct run {
    struct graph graph;
    struct node *nodes[MAX_NODES], *inputs[MAX_NODES];
    struct tensor values[MAX_NODES], found[MAX_NODES]; /* by node; by input */
    int n_nodes, n_inputs;
    int64_t rows, columns;
    enum dtype dtype;
};

/* A scalar is an epsilon: NaNs of other signs would differ. */
static void fill(struct tensor *t) {
    for (int64_t i = 0; i < t->n_elements; i++) {
        double value = t->rank == 0 ? 0.5 : (double)draw(4001) / 1000 - 1.5;
        switch ((enum dtype)t->dtype) {
        case DT_FLOAT:
            ((float *)tensor_data(t))[i] = (float)value;
            break;
        case DT_DOUBLE:
            ((double *)tensor_data(t))[i] = value;
            break;
        default: /* half and bfloat16: between 0.5 and 2, of both signs */
            ((uint16_t *)tensor_data(t))[i] =
                (uint16_t)((t->dtype == DT_HALF ? 0x3800 : 0x3f00) |
                           (t->rank == 0 ? 0 : draw(0x100) | draw(2) << 15));
        }
    }
}

static void add_input(struct run *run, const char *name) {
    bool is_axes = strcmp(name, "all") == 0 || strcmp(name, "zero") == 0 || name[0] == 'a';
    int64_t dims[2] = {name[0] == 'r' ? 1 : run->rows, name[0] == 'v' ? 1 : run->columns},
            n_axes = strcmp(name, "all") == 0 ? 2 : 1;
    struct shape shape = name[0] == 's' ? SHAPE_SCALAR : (struct shape){2, dims};
    struct node *node;
    struct tensor *t = &run->found[run->n_inputs];
    assert_null(graph_add_node(&run->graph, name, "Placeholder", "", &node));
    node_set_attr_type(&run->graph, node, "dtype", is_axes ? DT_INT32 : run->dtype);
    assert_null(node_finish(&run->graph, node));
    *t = TENSOR_INIT;
    if (is_axes) {
        assert_null(tensor_new(allocator_host(), DT_INT32, (struct shape){1, &n_axes}, t));
        for (int64_t i = 0; i < n_axes; i++)
            ((int32_t *)tensor_data(t))[i] = n_axes == 2 ? (int32_t)i : name[0] == 'z' ? 0 : 1;
    } else {
        assert_null(tensor_new(allocator_host(), run->dtype, shape, t));
        fill(t);
    }
    run->inputs[run->n_inputs++] = node;
}

static void run_make(struct run *run, const struct program *program, int64_t rows, int64_t columns,
                     enum dtype dtype) {
    static const char *const inputs[] = {"x0", "x1", "r0", "r1", "v0", "s0", "a0", "all", "zero"};
    struct str text = STR_INIT;
    *run = (struct run){.rows = rows, .columns = columns, .dtype = dtype};
    graph_init(&run->graph);
    for (size_t i = 0; i < ARRAY_LEN(inputs); i++)
        add_input(run, inputs[i]);
    for (const char *from = program->text; *from; from++) {
        if (strncmp(from, "T=T", 3) == 0) {
            str_addf(&text, "T=%s", dtype_name(dtype));
            from += 2;
        } else {
            str_add_bytes(&text, from, 1);
        }
    }
    assert_null(graph_parse(str_text(&text), &run->graph));
    str_fini(&text);
    for (int i = run->n_inputs; i < run->graph.n_nodes; i++) {
        run->values[run->n_nodes] = TENSOR_INIT;
        run->nodes[run->n_nodes++] = run->graph.nodes[i];
    }
}

static void run_clear(struct run *run) {
    for (int i = 0; i < run->n_inputs; i++)
        tensor_clear(&run->found[i]);
    for (int i = 0; i < run->n_nodes; i++)
        tensor_clear(&run->values[i]);
    graph_fini(&run->graph);
}

static const struct tensor *value_of(const struct run *run, const struct node *node) {
    for (int i = 0; i < run->n_inputs; i++)
        if (run->inputs[i] == node)
            return &run->found[i];
    for (int i = 0; i < run->n_nodes; i++)
        if (run->nodes[i] == node)
            return &run->values[i];
    fail_msg("a value of no node");
    return NULL;
}

static void compute_one_by_one(struct run *run, struct pool *pool) {
    for (int k = 0; k < run->n_nodes; k++) {
        struct tensor operands[4];
        for (int i = 0; i < run->nodes[k]->n_data; i++)
            operands[i] = *value_of(run, run->nodes[k]->inputs[i].src);
        assert_null(kernel_eval(run->nodes[k], allocator_host(), pool, NULL, NULL, operands,
                                &run->values[k]));
    }
}

static bool is_result(const struct program *program, const char *name) {
    const char *at = strstr(program->results, name);
    size_t length = strlen(name);
    for (; at; at = strstr(at + 1, name))
        if ((at == program->results || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    return false;
}

static void same_bits(const struct run *run, const struct program *program, int k,
                      const struct tensor *found) {
    assert_true(shape_equal(tensor_shape(found), tensor_shape(&run->values[k])));
    if (memcmp(tensor_cdata(found), tensor_cdata(&run->values[k]), tensor_size_bytes(found)) == 0)
        return;
    struct str text = STR_INIT;
    tensor_print(found, 20, &text);
    str_add(&text, "\n");
    tensor_print(&run->values[k], 20, &text);
    fprintf(stderr, "%s\n", str_text(&text));
    str_fini(&text);
    fail_msg("%s of %s [%lld,%lld]: '%s' differs", program->name, dtype_name(run->dtype),
             (long long)run->rows, (long long)run->columns, run->nodes[k]->name);
}

/* A node is run three times, because the first run makes what the others take. */
static void check_fused(struct run *run, const struct program *program, struct pool *pool,
                        const struct node *fused) {
    struct kernel_instance instance;
    assert_null(kernel_instance_init(
        &instance, fused, "CPU", "/job:w/replica:0/task:0/device:CPU:0", allocator_host(), NULL));
    for (int round = 0; round < 3; round++) {
        struct tensor inputs[MAX_NODES], outputs[MAX_NODES];
        for (int i = 0; i < fused->n_data; i++) {
            const struct tensor *from = value_of(run, fused->inputs[i].src);
            inputs[i] = outputs[i] = TENSOR_INIT;
            if (round == 1)
                assert_null(tensor_clone(allocator_host(), from, &inputs[i]));
            else
                tensor_copy(&inputs[i], from);
        }
        for (int i = 0; i < MAX_NODES; i++)
            outputs[i] = TENSOR_INIT;
        struct kernel_ctx ctx = {
            .inputs = inputs, .outputs = outputs, .instance = &instance, .pool = pool};
        assert_int_equal(instance.compute(&ctx), KERNEL_DONE);
        assert_null(ctx.status);
        for (int k = 0, o = 0; k < run->n_nodes; k++)
            if (is_result(program, run->nodes[k]->name))
                same_bits(run, program, k, &outputs[o++]);
        for (int i = 0; i < fused->n_data; i++)
            tensor_clear(&inputs[i]);
        for (int i = 0; i < MAX_NODES; i++)
            tensor_clear(&outputs[i]);
    }
    kernel_instance_fini(&instance);
}

static void check(const struct program *program, int64_t rows, int64_t columns, enum dtype dtype,
                  struct pool *pool) {
    struct run run;
    bool results[MAX_NODES];
    run_make(&run, program, rows, columns, dtype);
    compute_one_by_one(&run, pool);
    for (int k = 0; k < run.n_nodes; k++)
        results[k] = is_result(program, run.nodes[k]->name);
    struct node *fused = run.nodes[run.n_nodes - 1], *members[MAX_NODES];
    const char *names[MAX_NODES];
    for (int k = 0; k < run.n_nodes; k++) {
        members[k] = run.nodes[k];
        names[k] = run.nodes[k]->name;
    }
    assert_null(fused_node_make(&run.graph, members, run.n_nodes, results));
    for (int k = 0; k < run.n_nodes; k++)
        assert_string_equal(names[k], run.nodes[k]->name);
    check_fused(&run, program, NULL, fused);
    check_fused(&run, program, pool, fused);
    run_clear(&run);
}

static const enum dtype dtypes[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_BFLOAT16};

static void test_rows_of_every_length_have_the_bits_of_their_nodes(void **state) {
    static const int64_t sizes[][2] = {
        {1, 1},    {1, 7},     {5, 1},     {3, 2},     {64, 64},  {100, 31},  {100, 32}, {33, 63},
        {17, 127}, {40, 1000}, {9, 1025},  {3, 2047},  {3, 2048}, {3, 2049},  {5, 4096}, {7, 5001},
        {2, 9000}, {1, 30000}, {12, 6151}, {1000, 16}, {4000, 3}, {300, 300}, {2, 40000}};
    struct pool *pool = pool_new(3);
    for (size_t p = 0; p < ARRAY_LEN(programs); p++)
        for (size_t s = 0; s < ARRAY_LEN(sizes); s++)
            check(&programs[p], sizes[s][0], sizes[s][1], dtypes[(p + s) % ARRAY_LEN(dtypes)],
                  pool);
    for (size_t p = 0; p < ARRAY_LEN(programs); p++)
        for (size_t d = 0; d < ARRAY_LEN(dtypes); d++)
            check(&programs[p], 1 + draw(40), 1 + draw(3000), dtypes[d], pool);
    pool_free(pool);
}

/* The kernel of the reduction cuts such rows into chunks. */
static void test_chunks_of_rows_have_the_bits_of_their_nodes(void **state) {
    struct pool *pool = pool_new(3);
    for (size_t p = 0; p < ARRAY_LEN(programs); p++) {
        check(&programs[p], 1, 300001, dtypes[p % ARRAY_LEN(dtypes)], pool);
        check(&programs[p], 3, 270000, DT_FLOAT, pool);
    }
    pool_free(pool);
}

/* ---- the plans ---- */

static struct rows_plan *plan_of(const struct program *program, int64_t rows, int64_t columns,
                                 struct pool *pool) {
    struct run run;
    bool results[MAX_NODES];
    struct kernel_instance instance;
    struct tensor inputs[MAX_NODES];
    run_make(&run, program, rows, columns, DT_FLOAT);
    for (int k = 0; k < run.n_nodes; k++)
        results[k] = is_result(program, run.nodes[k]->name);
    struct node *fused = run.nodes[run.n_nodes - 1];
    assert_null(fused_node_make(&run.graph, run.nodes, run.n_nodes, results));
    assert_null(kernel_instance_init(
        &instance, fused, "CPU", "/job:w/replica:0/task:0/device:CPU:0", allocator_host(), NULL));
    for (int i = 0; i < fused->n_data; i++)
        inputs[i] = *value_of(&run, fused->inputs[i].src);
    struct kernel_ctx ctx = {.inputs = inputs, .instance = &instance, .pool = pool};
    struct rows_plan *plan = rows_plan_new(&ctx);
    kernel_instance_fini(&instance);
    run_clear(&run);
    return plan;
}

static void check_plan(const char *name, int64_t rows, int64_t columns, struct pool *pool,
                       int n_passes, int n_kernels, int n_phases) {
    const struct program *program = programs;
    while (strcmp(program->name, name) != 0)
        program++;
    struct rows_plan *plan = plan_of(program, rows, columns, pool);
    int kernels = 0, phases = 0;
    assert_non_null(plan->passes);
    for (int i = 0; i < plan->n_passes; i++) {
        kernels += plan->passes[i].kernel >= 0;
        phases = MAX(phases, plan->passes[i].n_phases);
    }
    if (plan->n_passes != n_passes || kernels != n_kernels || phases != n_phases)
        fail_msg("%s [%lld,%lld]: %d passes, %d of kernels, %d phases", name, (long long)rows,
                 (long long)columns, plan->n_passes, kernels, phases);
    rows_plan_free(plan);
}

static void test_softmax_and_layer_norm_are_one_pass(void **state) {
    check_plan("softmax", 32, 128, NULL, 1, 0, 3);
    check_plan("softmax", 32, 5000, NULL, 1, 0, 3);
    check_plan("layer norm", 4096, 1024, NULL, 1, 0, 3);
    check_plan("mean square", 64, 64, NULL, 1, 0, 1);
    check_plan("cross entropy", 64, 10, NULL, 1 + 1, 1, 3);
}

static void test_chunks_and_other_dimensions_are_passes_of_their_own(void **state) {
    check_plan("mean square", 1000, 1000, NULL, 2, 0, 1);
    check_plan("softmax", 1, 300000, NULL, 3, 1, 1);
    check_plan("over the first dimension", 64, 64, NULL, 4, 1, 2);
}

/* One row is no work for two threads, so the elements are computed apart from the reduction. */
static void test_few_long_rows_leave_threads_their_work(void **state) {
    struct pool *pool = pool_new(2);
    check_plan("softmax", 1, 100000, pool, 4, 2, 1);
    check_plan("softmax", 1, 100000, NULL, 1, 0, 3);
    check_plan("softmax", 2, 100000, pool, 1, 0, 3);
    pool_free(pool);
}

/* The axes are no shape that the others are broadcast to. */
static void test_the_cost_is_that_of_the_elements(void **state) {
    struct run run;
    bool results[MAX_NODES] = {false};
    struct kernel_instance instance;
    struct tensor inputs[MAX_NODES];
    struct shape shapes[MAX_NODES];
    run_make(&run, &programs[2], 100, 1000, DT_FLOAT);
    results[run.n_nodes - 1] = true;
    struct node *fused = run.nodes[run.n_nodes - 1];
    assert_null(fused_node_make(&run.graph, run.nodes, run.n_nodes, results));
    assert_null(kernel_instance_init(
        &instance, fused, "CPU", "/job:w/replica:0/task:0/device:CPU:0", allocator_host(), NULL));
    for (int i = 0; i < fused->n_data; i++) {
        inputs[i] = *value_of(&run, fused->inputs[i].src);
        shapes[i] = tensor_shape(&inputs[i]);
    }
    struct kernel_ctx ctx = {.inputs = inputs, .instance = &instance};
    double ns = cost_ns_of_execution(&ctx),
           of_shapes = cost_of_shapes("CPU", fused, shapes, (struct shape[]){SHAPE_SCALAR}).ns;
    assert_true(ns > 5e4 && ns < 1e6);
    assert_true(of_shapes > 5e4 && of_shapes < 1e6);
    kernel_instance_fini(&instance);
    run_clear(&run);
}

/* ---- mistakes ---- */

#define QUOTIENT(divisor, axis)                                                          \
    "x = Const() {dtype=int32, value=int32[1,2]{6, 8}}\n"                                \
    "y = Const() {dtype=int32, value=int32[1,2]{2, " divisor "}}\n"                      \
    "a = Const() {dtype=int32, value=int32[1]{" axis "}}\n"                              \
    "c = _MrFused(x, y, a) {Tin=[int32, int32, int32], Tout=[int32], "                   \
    "program=[&FloorDiv{T=int32}, &Sum{T=int32, Tidx=int32, keep_dims=false}, "          \
    "&Neg{T=int32}], names=[\"quotient\", \"total\", \"c\"], operands=[0, 1, 3, 2, 4], " \
    "results=[2]}\n"

static void test_an_error_names_the_node_that_made_it(void **state) {
    kernel_test_run(QUOTIENT("4", "1"), "c", "int32[1]{-5}");
    kernel_test_fails(QUOTIENT("0", "1"), "c", STATUS_INVALID_ARGUMENT,
                      "Integer division by zero\n\t [[{{node quotient}}]]");
    kernel_test_fails(QUOTIENT("4", "2"), "c", STATUS_INVALID_ARGUMENT,
                      "Invalid reduction dimension (2 for input with 2 dimension(s)\n"
                      "\t [[{{node total}}]]");
}

static void test_axes_must_come_from_outside(void **state) {
    kernel_test_fails("x = Const() {dtype=int32, value=int32[2]{6, 8}}\n"
                      "c = _MrFused(x) {Tin=[int32], Tout=[int32], program=[&Neg{T=int32}, "
                      "&Sum{T=int32, Tidx=int32, keep_dims=false}], names=[\"n\", \"c\"], "
                      "operands=[0, 0, 1], results=[1]}\n",
                      "c", STATUS_INVALID_ARGUMENT, "cannot be part of a fused program");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_every_length_have_the_bits_of_their_nodes),
        cmocka_unit_test(test_chunks_of_rows_have_the_bits_of_their_nodes),
        cmocka_unit_test(test_softmax_and_layer_norm_are_one_pass),
        cmocka_unit_test(test_chunks_and_other_dimensions_are_passes_of_their_own),
        cmocka_unit_test(test_few_long_rows_leave_threads_their_work),
        cmocka_unit_test(test_the_cost_is_that_of_the_elements),
        cmocka_unit_test(test_an_error_names_the_node_that_made_it),
        cmocka_unit_test(test_axes_must_come_from_outside),
    };
    denormals_flush_to_zero(); /* as the pool's threads and those that run steps */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
