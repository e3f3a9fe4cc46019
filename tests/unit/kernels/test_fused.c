/* Fused programs: random programs over all ops that may be fused give the bits that their nodes
 * give one by one, whatever the shapes, the number of threads, and whose memory results take over,
 * with a product in front of them, with reductions among them, or without; mistakes have the words
 * and the name of the node that made them.
 *
 * A failure prints the program with its number; FUSED_PROGRAM=N runs that one alone, in all tests
 * of random programs. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/denormals.h"
#include "common/graph/fused.h"
#include "common/graph/graph_text.h"
#include "common/ops/infer.h"
#include "kernels/cpu/emit/emit_internal.h"
#include "kernels/cpu/fused/fused_internal.h"
#include "tests/unit/kernels/kernel_test.h"

/* ---- the table ---- */

static void test_exactly_the_rows_with_an_engine_are_elementwise(void **state) {
    const struct kernel_def *row;
    int n = 0;
    for (size_t i = 0; (row = kernel_at("CPU", i)); i++) {
        bool is_of_objects =
            row->constraints[0].attr && !(row->constraints[0].types & ~(dtype_set)DTYPES_OBJECT);
        bool has_engine = fused_engine_find(row->compute) && !is_of_objects;
        if (has_engine != ((row->flags & KERNEL_ELEMENTWISE) != 0))
            fail_msg("%s: the flag and the engines disagree", row->op);
        if (!(row->flags & KERNEL_ELEMENTWISE))
            continue;
        n++;
        for (int c = 0; c < KERNEL_MAX_CONSTRAINTS && row->constraints[c].attr; c++)
            assert_true((row->constraints[c].types & DTYPES_OBJECT) == 0);
    }
    print_message("%d rows are elementwise\n", n);
    assert_true(n > 140);
}

/* ---- random programs ---- */

enum { MAX_INPUTS = 60, MAX_STEPS = 12, MAX_RANK = 4 };
enum kind { PLAIN, WITH_PRODUCT, WITH_REDUCTIONS, CODED };

static uint64_t seed, program_number;
static uint32_t draw(uint32_t below) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 33) % below;
}

struct program {
    struct graph graph;
    struct node *values[MAX_INPUTS + MAX_STEPS];
    int n_values;
    struct node *inputs[MAX_INPUTS];
    struct tensor tensors[MAX_INPUTS];
    int n_inputs;
    struct node *steps[MAX_STEPS];
    struct tensor results[MAX_STEPS];
    int n_steps;
    int64_t dims[MAX_RANK];
    int rank;
    int variety; /* how often an input is stretched, of 10 */
};

static void choose_shape(struct program *p) {
    static const int64_t sizes[] = {1,    2,    3,    7,    100,  511,  512,  513,  1023,
                                    1024, 1025, 2047, 2048, 2049, 4097, 8192, 8193, 40000};
    p->rank = (int)draw(MAX_RANK + 1);
    p->variety = draw(3) ? (int)draw(5) : 0;
    int64_t n = 1;
    for (int i = 0; i < p->rank; i++) {
        p->dims[i] = sizes[draw(ARRAY_LEN(sizes))];
        if (n * p->dims[i] > 50000)
            p->dims[i] = 1 + draw(3);
        n *= p->dims[i];
    }
    if (p->rank > 0 && draw(40) == 0)
        p->dims[draw((uint32_t)p->rank)] = 0;
}

/* The program's shape, or one that is broadcast to it, and seldom one that does not fit. */
static struct shape input_shape(struct program *p, int64_t *dims) {
    int first = 0;
    memcpy(dims, p->dims, sizeof(p->dims));
    if (draw(10) < 2)
        return SHAPE_SCALAR;
    if ((int)draw(10) >= p->variety)
        return (struct shape){p->rank, dims};
    if (p->rank > 0 && draw(2))
        first = 1 + (int)draw((uint32_t)p->rank);
    for (int i = first; i < p->rank; i++)
        if (draw(3) == 0)
            dims[i] = 1;
    if (p->rank > first && draw(100) == 0)
        dims[p->rank - 1]++;
    return (struct shape){p->rank - first, dims + first};
}

static void fill(struct tensor *t) {
    int32_t small;
    char *to = tensor_data(t);
    enum dtype dtype = (enum dtype)t->dtype;
    size_t size = dtype_size(dtype), n = (size_t)t->n_elements;
    for (size_t i = 0; i < n; i++, to += size) {
        small = (int32_t)draw(9) - 2;
        double x = (double)draw(1000000) / 200000 - 2;
        if (dtype == DT_FLOAT || dtype == DT_COMPLEX64) {
            for (size_t part = 0; part < size / 4; part++)
                ((float *)(void *)to)[part] = draw(50) ? (float)x + (float)part : (float)small;
        } else if (dtype == DT_DOUBLE || dtype == DT_COMPLEX128) {
            for (size_t part = 0; part < size / 8; part++)
                ((double *)(void *)to)[part] = draw(50) ? x + (double)part : (double)small;
        } else if (dtype_is_narrow_float(dtype)) {
            uint32_t magnitude = (dtype == DT_HALF ? 0x3800 : 0x3f00) + draw(0x600);
            uint16_t bits = (uint16_t)(draw(2) << 15 | magnitude);
            memcpy(to, &bits, sizeof(bits));
        } else if (dtype == DT_BOOL) {
            *to = (char)draw(2);
        } else {
            int64_t wide = draw(20) ? MAX(small, 1) : small;
            memcpy(to, &wide, size);
        }
    }
}

static struct node *add_input_of(struct program *p, enum dtype dtype, struct shape shape) {
    char name[32];
    assert_true(p->n_inputs < MAX_INPUTS);
    snprintf(name, sizeof(name), "in%d", p->n_inputs);
    struct node *node;
    assert_null(graph_add_node(&p->graph, name, "Placeholder", "", &node));
    node_set_attr_type(&p->graph, node, "dtype", dtype);
    node_set_attr_shape(&p->graph, node, "shape", shape);
    assert_null(node_finish(&p->graph, node));
    struct tensor *t = &p->tensors[p->n_inputs];
    *t = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), dtype, shape, t));
    fill(t);
    p->inputs[p->n_inputs++] = p->values[p->n_values++] = node;
    return node;
}

static struct node *add_input(struct program *p, enum dtype dtype) {
    int64_t dims[MAX_RANK];
    return add_input_of(p, dtype, input_shape(p, dims));
}

/* A value of the dtype; the last step's where it fits, so that programs grow deep. */
static struct node *operand_of(struct program *p, enum dtype dtype) {
    struct node *fitting[MAX_INPUTS + MAX_STEPS];
    uint32_t n = 0;
    for (int i = 0; i < p->n_values; i++)
        if (p->values[i]->out_types[0] == dtype)
            fitting[n++] = p->values[i];
    if (n == 0 || draw(4) == 0)
        return add_input(p, dtype);
    return draw(2) ? fitting[n - 1] : fitting[draw(n)];
}

static enum dtype one_of(dtype_set types, enum dtype wanted) {
    enum dtype found[DT_N_TYPES];
    uint32_t n = 0;
    if (dtype_in(wanted, types) && draw(8))
        return wanted;
    for (int d = 1; d < DT_N_TYPES; d++)
        if (dtype_in((enum dtype)d, types))
            found[n++] = (enum dtype)d;
    return found[draw(n)];
}

static const struct kernel_def *random_row(void) {
    static const struct kernel_def *rows[1000];
    static uint32_t n;
    static bool is_listed;
    const struct kernel_def *row;
    for (size_t i = 0; !is_listed && (row = kernel_at("CPU", i)); i++)
        if (row->flags & KERNEL_ELEMENTWISE)
            rows[n++] = row;
    is_listed = true;
    return rows[draw(n)];
}

static void add_operands(struct program *p, struct node *node) {
    for (int a = 0; a < node->op->n_inputs; a++) {
        const struct op_arg_signature *arg = &node->op->inputs[a];
        enum dtype dtype = arg->type;
        int64_t n = 1;
        if (arg->type_attr)
            assert_null(node_get_type(node, arg->type_attr, &dtype));
        if (arg->number_attr)
            assert_null(node_get_i(node, arg->number_attr, &n));
        for (int64_t i = 0; i < n; i++)
            node_add_input(&p->graph, node, operand_of(p, dtype), 0);
    }
}

static struct node *begin_step(struct program *p, const char *op) {
    struct node *node;
    char name[32];
    snprintf(name, sizeof(name), "step%d", p->n_steps);
    assert_null(graph_add_node(&p->graph, name, op, "", &node));
    return node;
}

static void finish_step(struct program *p, struct node *node) {
    assert_null(node_finish(&p->graph, node));
    p->results[p->n_steps] = TENSOR_INIT;
    p->steps[p->n_steps++] = p->values[p->n_values++] = node;
}

static bool may_be_code(const char *op) {
    const char *found;
    dtype_set in, out;
    for (size_t i = 0; emit_row_at(i, &found, &in, &out); i++)
        if (strcmp(found, op) == 0)
            return true;
    return false;
}

static void add_step(struct program *p, enum dtype wanted, enum kind kind) {
    const struct kernel_def *row = random_row();
    while (kind == CODED && !may_be_code(row->op))
        row = random_row();
    struct node *node = begin_step(p, row->op);
    for (int c = 0; c < KERNEL_MAX_CONSTRAINTS && row->constraints[c].attr; c++)
        node_set_attr_type(&p->graph, node, row->constraints[c].attr,
                           one_of(row->constraints[c].types, wanted));
    if (op_signature_attr(node->op, "N"))
        node_set_attr_i(&p->graph, node, "N", 1 + draw(4));
    if (op_signature_attr(node->op, "shape"))
        node_set_attr_shape(&p->graph, node, "shape", SHAPE_UNKNOWN);
    add_operands(p, node);
    finish_step(p, node);
    assert_true(kernel_find(node, "CPU")->flags & KERNEL_ELEMENTWISE);
}

/* ---- reductions ---- */

/* Mostly over the last dimensions, and mostly these remain as 1, so that the result can be
 * broadcast. */
static void add_reduction(struct program *p, enum dtype wanted) {
    static const char *const ops[] = {"Sum", "Mean", "Max", "Min", "Prod", "EuclideanNorm"};
    const char *op = ops[draw(ARRAY_LEN(ops))];
    bool is_ordered = op[1] == 'a' || op[1] == 'i';
    enum dtype dtype = one_of(is_ordered ? DTYPES_REAL : DTYPES_NUMBER, wanted);
    int n_last = 1 + (int)draw((uint32_t)MAX(p->rank, 1));
    int64_t n_axes = n_last;
    struct node *from = operand_of(p, dtype), *node = begin_step(p, op);
    struct node *axes = add_input_of(p, draw(3) ? DT_INT32 : DT_INT64, (struct shape){1, &n_axes});
    struct tensor *t = &p->tensors[p->n_inputs - 1];
    for (int64_t i = 0; i < n_axes; i++) {
        int64_t axis = draw(20) ? -n_axes + i : (int64_t)draw(3);
        if (t->dtype == DT_INT32)
            ((int32_t *)tensor_data(t))[i] = (int32_t)axis;
        else
            ((int64_t *)tensor_data(t))[i] = axis;
    }
    p->n_values--; /* no other step takes the axes */
    node_set_attr_type(&p->graph, node, "T", dtype);
    node_set_attr_type(&p->graph, node, "Tidx", (enum dtype)t->dtype);
    node_set_attr_b(&p->graph, node, "keep_dims", draw(8) != 0);
    node_add_input(&p->graph, node, from, 0);
    node_add_input(&p->graph, node, axes, 0);
    finish_step(p, node);
}

/* ---- products ---- */

static int64_t size_of(const int64_t *sizes, uint32_t n) { return sizes[draw(n)]; }
#define SIZE_OF(...) \
    size_of((const int64_t[]){__VA_ARGS__}, ARRAY_LEN(((const int64_t[]){__VA_ARGS__})))

/* Sometimes a value that a product by AMX cannot have. */
static void add_factor(struct program *p, struct node *product, enum dtype dtype, int rank,
                       const int64_t *dims) {
    node_add_input(&p->graph, product, add_input_of(p, dtype, (struct shape){rank, dims}), 0);
    struct tensor *t = &p->tensors[p->n_inputs - 1];
    if (dtype == DT_FLOAT && t->n_elements > 0 && draw(8) == 0)
        ((float *)tensor_data(t))[draw((uint32_t)t->n_elements)] = draw(2) ? INFINITY : NAN;
    p->n_values--; /* no other step takes it: hardly a shape fits */
}

static void add_matrix_product(struct program *p, enum dtype dtype) {
    bool is_stack = draw(3) == 0, transposes = draw(3) == 0;
    int64_t m = SIZE_OF(1, 7, 64, 300, 1200), k = SIZE_OF(0, 1, 5, 64, 300),
            n = SIZE_OF(1, 10, 64, 300), batch = SIZE_OF(1, 2, 5);
    struct node *node = begin_step(p, is_stack ? "BatchMatMulV2" : "MatMul");
    node_set_attr_type(&p->graph, node, "T", dtype);
    node_set_attr_b(&p->graph, node, is_stack ? "adj_y" : "transpose_b", transposes);
    p->rank = is_stack ? 3 : 2;
    int skipped = is_stack ? 0 : 1;
    add_factor(p, node, dtype, p->rank, (int64_t[]){batch, m, k} + skipped);
    add_factor(p, node, dtype, p->rank,
               (int64_t[]){batch, transposes ? n : k, transposes ? k : n} + skipped);
    memcpy(p->dims, (int64_t[]){batch, m, n} + skipped, (size_t)p->rank * sizeof(*p->dims));
    finish_step(p, node);
}

static void add_convolution(struct program *p, enum dtype dtype) {
    int64_t batch = SIZE_OF(1, 3, 8), side = SIZE_OF(5, 9, 28), window = SIZE_OF(1, 3, 5),
            in = SIZE_OF(1, 3, 16, 32), out = SIZE_OF(1, 4, 16, 40), stride = SIZE_OF(1, 1, 2);
    bool is_valid = draw(2), is_grouped = in == 16 && out == 16 && draw(3) == 0;
    struct attr_value strides[4];
    for (int i = 0; i < 4; i++)
        strides[i] = (struct attr_value){.type = ATTR_INT, .i = i % 3 ? stride : 1};
    struct node *node = begin_step(p, "Conv2D");
    node_set_attr_type(&p->graph, node, "T", dtype);
    node_set_attr_s(&p->graph, node, "padding", is_valid ? "VALID" : "SAME");
    node_set_attr(&p->graph, node, "strides",
                  &(struct attr_value){.type = ATTR_LIST_INT, .list = {strides, 4}});
    add_factor(p, node, dtype, 4, (int64_t[]){batch, side, side, in});
    add_factor(p, node, dtype, 4, (int64_t[]){window, window, is_grouped ? in / 4 : in, out});
    int64_t places = is_valid ? (side - window) / stride + 1 : (side + stride - 1) / stride;
    p->rank = 4;
    memcpy(p->dims, (int64_t[]){batch, places, places, out}, 4 * sizeof(*p->dims));
    finish_step(p, node);
}

/* A product, mostly with a bias. */
static void add_product(struct program *p, enum dtype dtype) {
    (draw(2) ? add_matrix_product : add_convolution)(p, dtype);
    if (draw(3) == 0)
        return;
    struct node *node = begin_step(p, "BiasAdd");
    node_set_attr_type(&p->graph, node, "T", dtype);
    node_add_input(&p->graph, node, p->steps[0], 0);
    node_add_input(&p->graph, node,
                   add_input_of(p, dtype, (struct shape){1, &p->dims[p->rank - 1]}), 0);
    finish_step(p, node);
}

static const struct tensor *value_of(const struct program *p, const struct node *node) {
    for (int i = 0; i < p->n_inputs; i++)
        if (p->inputs[i] == node)
            return &p->tensors[i];
    for (int k = 0; k < p->n_steps; k++)
        if (p->steps[k] == node)
            return &p->results[k];
    fail_msg("a value of no node");
    return NULL;
}

/* NULL, or the first failure. */
static struct status *run_one_by_one(struct program *p) {
    for (int k = 0; k < p->n_steps; k++) {
        struct tensor operands[8];
        for (int i = 0; i < p->steps[k]->n_data; i++)
            operands[i] = *value_of(p, p->steps[k]->inputs[i].src);
        TRY(kernel_eval(p->steps[k], allocator_host(), NULL, NULL, NULL, operands, &p->results[k]));
    }
    return NULL;
}

/* With is_sole, nobody but the kernel holds the inputs. */
static struct status *run_fused(const struct program *p, const struct node *node, struct pool *pool,
                                bool is_sole, struct tensor *outputs) {
    struct kernel_instance instance;
    struct tensor inputs[MAX_INPUTS];
    TRY(kernel_instance_init(&instance, node, "CPU", "/job:w/replica:0/task:0/device:CPU:0",
                             allocator_host(), NULL));
    for (int i = 0; i < node->n_data; i++) {
        const struct tensor *from = value_of(p, node->inputs[i].src);
        inputs[i] = TENSOR_INIT;
        if (is_sole)
            assert_null(tensor_clone(allocator_host(), from, &inputs[i]));
        else
            tensor_copy(&inputs[i], from);
    }
    struct kernel_ctx ctx = {
        .inputs = inputs, .outputs = outputs, .instance = &instance, .pool = pool};
    assert_int_equal(instance.compute(&ctx), KERNEL_DONE);
    for (int i = 0; i < node->n_data; i++)
        tensor_clear(&inputs[i]);
    kernel_instance_fini(&instance);
    return ctx.status;
}

/* Bits are compared, except for those of NaN, whose sign depends on the order of operands. */
static bool is_nan_at(const struct tensor *t, size_t byte) {
    const char *data = tensor_cdata(t);
    enum dtype dtype = (enum dtype)t->dtype;
    if (dtype == DT_FLOAT || dtype == DT_COMPLEX64)
        return isnan(((const float *)(const void *)data)[byte / 4]);
    if (dtype == DT_DOUBLE || dtype == DT_COMPLEX128)
        return isnan(((const double *)(const void *)data)[byte / 8]);
    if (dtype == DT_HALF)
        return (((const uint16_t *)(const void *)data)[byte / 2] & 0x7fff) > 0x7c00;
    if (dtype == DT_BFLOAT16)
        return (((const uint16_t *)(const void *)data)[byte / 2] & 0x7fff) > 0x7f80;
    return false;
}

static bool same_bits(const struct tensor *a, const struct tensor *b) {
    if (a->dtype != b->dtype || !shape_equal(tensor_shape(a), tensor_shape(b)))
        return false;
    const char *x = tensor_cdata(a), *y = tensor_cdata(b);
    for (size_t i = 0; i < tensor_size_bytes(a); i++)
        if (x[i] != y[i] && !(is_nan_at(a, i) && is_nan_at(b, i)))
            return false;
    return true;
}

static void print_program(const struct program *p) {
    struct str text = STR_INIT;
    str_addf(&text, "program %llu\n", (unsigned long long)program_number);
    graph_print(&p->graph, &text);
    for (int i = 0; i < p->n_inputs; i++)
        str_addf(&text, "%s %s\n", p->inputs[i]->name, TENSOR_SHAPE_TEXT(&p->tensors[i]));
    fprintf(stderr, "%s", str_text(&text));
    str_fini(&text);
}

static void check_fused(struct program *p, const struct node *node, const bool *is_result,
                        struct pool *pool, bool is_sole, const struct status *expected) {
    struct tensor outputs[MAX_STEPS];
    for (int i = 0; i < MAX_STEPS; i++)
        outputs[i] = TENSOR_INIT;
    struct status *st = run_fused(p, node, pool, is_sole, outputs);
    if ((st != NULL) != (expected != NULL) ||
        (st && strcmp(status_message(st), status_message(expected)) != 0)) {
        print_program(p);
        fail_msg("fused: %s\none by one: %s", st ? status_message(st) : "OK",
                 expected ? status_message(expected) : "OK");
    }
    for (int k = 0, o = 0; k < p->n_steps && !st; k++) {
        if (!is_result[k])
            continue;
        if (!same_bits(&outputs[o], &p->results[k])) {
            print_program(p);
            struct str text = STR_INIT;
            tensor_print(&outputs[o], 20, &text);
            str_add(&text, "\n");
            tensor_print(&p->results[k], 20, &text);
            fprintf(stderr, "%s\n", str_text(&text));
            fail_msg("result %s differs", p->steps[k]->name);
        }
        o++;
    }
    status_unref(st);
    for (int i = 0; i < MAX_STEPS; i++)
        tensor_clear(&outputs[i]);
}

static void check_shapes(const struct program *p, const struct node *node, const bool *is_result) {
    struct graph_shapes shapes;
    struct infer_options options;
    infer_options_default(&options);
    graph_shapes_init(&shapes);
    assert_null(graph_infer_shapes(&p->graph, &shapes, &options));
    for (int k = 0, o = 0; k < p->n_steps; k++)
        if (is_result[k]) {
            struct shape inferred = graph_shapes_of(&shapes, node, o++);
            assert_true(shape_is_compatible(inferred, tensor_shape(&p->results[k])));
        }
    graph_shapes_fini(&shapes);
}

static bool is_read(const struct program *p, const struct node *value) {
    for (int k = 0; k < p->n_steps; k++)
        for (int i = 0; i < p->steps[k]->n_data; i++)
            if (p->steps[k]->inputs[i].src == value)
                return true;
    return false;
}

/* A product that is no result may also be put in front of the program of the others. */
static struct node *make_fused(struct program *p, const bool *is_result, bool has_product) {
    struct node *members[MAX_STEPS], *fused = p->steps[p->n_steps - 1];
    bool prepends = has_product && !is_result[0] && is_read(p, p->steps[0]) && draw(2);
    memcpy(members, p->steps, sizeof(members));
    assert_null(fused_node_make(&p->graph, members + prepends, p->n_steps - prepends,
                                is_result + prepends));
    if (prepends)
        assert_null(fused_node_prepend(&p->graph, fused, members[0]));
    assert_string_equal(fused->op_name, OP_FUSED);
    assert_int_equal(node_attr(fused, "program")->list.n_values, p->n_steps);
    return fused;
}

static bool run_program(uint64_t number, struct pool *pool, enum kind kind) {
    bool has_product = kind == WITH_PRODUCT;
    struct program p = {.n_values = 0};
    bool is_result[MAX_STEPS] = {false};
    seed = number * 0x9E3779B97F4A7C15u + 1;
    draw(2);
    graph_init(&p.graph);
    choose_shape(&p);
    enum dtype wanted =
        one_of(has_product ? DTYPES_REAL_FLOAT : DTYPES_NUMBER, draw(3) ? DT_FLOAT : DT_DOUBLE);
    int n_steps = 1 + (int)draw(MAX_STEPS);
    if (has_product)
        add_product(&p, wanted);
    n_steps = MAX(n_steps, p.n_steps);
    for (int k = 0; k < n_steps; k++) {
        if (k >= p.n_steps && kind == WITH_REDUCTIONS && draw(3) == 0)
            add_reduction(&p, wanted);
        else if (k >= p.n_steps)
            add_step(&p, wanted, kind);
        is_result[k] = k + 1 == n_steps || draw(4) == 0;
    }
    struct status *expected = run_one_by_one(&p);
    struct node *fused = make_fused(&p, is_result, has_product);
    for (int way = 0; way < 6; way++) {
        emit_set_on(way != 5);
        kernel_set_in_place(way != 2);
        fused_set_mixed(way < 3); /* else also small values of several shapes run by blocks */
        check_fused(&p, fused, is_result, pool, way != 0 && way != 3, expected);
    }
    kernel_set_in_place(true);
    fused_set_mixed(true);
    emit_set_on(true);
    if (getenv("FUSED_PROGRAM"))
        print_program(&p);
    if (!expected)
        check_shapes(&p, fused, is_result);
    for (int i = 0; i < p.n_inputs; i++)
        tensor_clear(&p.tensors[i]);
    for (int k = 0; k < n_steps; k++)
        tensor_clear(&p.results[k]);
    bool succeeded = !expected;
    status_unref(expected);
    graph_fini(&p.graph);
    return succeeded;
}

static void run_programs(enum kind kind) {
    struct pool *pool = pool_new(2);
    int64_t n_compiled = emit_n_compiled();
    const char *only = getenv("FUSED_PROGRAM");
    int n_good = 0, n = only ? 1 : 400;
    for (int i = 0; i < n; i++) {
        uint64_t number = only ? strtoull(only, NULL, 10) : (uint64_t)i;
        program_number = number;
        n_good += run_program(number, pool, kind);
    }
    n_compiled = emit_n_compiled() - n_compiled;
    print_message("%d programs of %d without an error, %d runs of them compiled\n", n_good, n,
                  (int)n_compiled);
    assert_true(only || !emit_is_on() || kind != CODED || n_compiled > n);
    assert_true(only || (n_good > n / 3 && n_good < n));
    pool_free(pool);
}

static void test_random_programs_give_the_bits_of_their_nodes(void **state) { run_programs(PLAIN); }

static void test_random_programs_of_code_give_the_bits_of_their_nodes(void **state) {
    run_programs(CODED);
}

static void test_random_programs_with_reductions_give_the_bits_of_their_nodes(void **state) {
    run_programs(WITH_REDUCTIONS);
}

static void test_random_programs_behind_products_give_the_bits_of_their_nodes(void **state) {
    run_programs(WITH_PRODUCT);
}

/* A sum of so many vectors is compiled in parts, the first of which is the longest that fits. The
 * lengths that are tried before it are more than the codes that a program keeps. */
static void test_a_run_of_too_many_vectors_is_compiled_in_parts(void **state) {
    enum { N_INPUTS = 40 };
    struct str text = STR_INIT;
    (void)state;
    str_addf(&text, "x0 = Const() {dtype=float, value=float[1]{1}}\n");
    for (int i = 1; i < N_INPUTS; i++)
        str_addf(&text, "x%d = Const() {dtype=float, value=float[4]{1, 2, 3, 4}}\n", i);
    str_addf(&text, "c = _MrFused(x0");
    for (int i = 1; i < N_INPUTS; i++)
        str_addf(&text, ", x%d", i);
    str_addf(&text, ") {Tin=[float");
    for (int i = 1; i < N_INPUTS; i++)
        str_addf(&text, ", float");
    str_addf(&text, "], Tout=[float], program=[&AddV2{T=float}");
    for (int k = 1; k < N_INPUTS - 1; k++)
        str_addf(&text, ", &AddV2{T=float}");
    str_addf(&text, "], names=[\"n0\"");
    for (int k = 1; k < N_INPUTS - 1; k++)
        str_addf(&text, ", \"n%d\"", k);
    str_addf(&text, "], operands=[0, 1");
    for (int k = 1; k < N_INPUTS - 1; k++)
        str_addf(&text, ", %d, %d", N_INPUTS + k - 1, k + 1);
    str_addf(&text, "], results=[%d]}\n", N_INPUTS - 2);
    int64_t n_compiled = emit_n_compiled();
    fused_set_mixed(false); /* by blocks */
    kernel_test_run(str_text(&text), "c", "float[4]{40, 79, 118, 157}");
    fused_set_mixed(true);
    /* Five parts in each run of the kernel: nine adds, of an operand that is one element; then
     * three times eight, since the sum so far takes a place; and the rest. */
    n_compiled = emit_n_compiled() - n_compiled;
    assert_true(n_compiled % 5 == 0 && (n_compiled > 0) == emit_is_on());
    str_fini(&text);
}

/* ---- mistakes ---- */

#define QUOTIENT(divisor)                                                                 \
    "x = Const() {dtype=int32, value=int32[2]{6, 8}}\n"                                   \
    "y = Const() {dtype=int32, value=int32[2]{2, " divisor "}}\n"                         \
    "c = _MrFused(x, y) {Tin=[int32, int32], Tout=[int32], program=[&FloorDiv{T=int32}, " \
    "&Neg{T=int32}], names=[\"quotient\", \"c\"], operands=[0, 1, 2], results=[1]}\n"

static void test_an_error_names_the_node_that_made_it(void **state) {
    kernel_test_run(QUOTIENT("4"), "c", "int32[2]{-3, -2}");
    kernel_test_fails(QUOTIENT("0"), "c", STATUS_INVALID_ARGUMENT,
                      "Integer division by zero\n\t [[{{node quotient}}]]");
}

#define PRODUCT(rows)                                                                     \
    "x = Const() {dtype=float, value=float[1,2]{3, 4}}\n"                                 \
    "y = Const() {dtype=float, value=float[" rows "]{1, 1}}\n"                            \
    "c = _MrFused(x, y) {Tin=[float, float], Tout=[float], program=[&MatMul{T=float, "    \
    "transpose_a=false, transpose_b=false}, &Neg{T=float}], names=[\"product\", \"c\"], " \
    "operands=[0, 1, 2], results=[1]}\n"

static void test_an_error_names_the_product_that_made_it(void **state) {
    kernel_test_run(PRODUCT("2,1"), "c", "float[1,1]{-7}");
    kernel_test_fails(PRODUCT("1,2"), "c", STATUS_INVALID_ARGUMENT,
                      "Matrix size-incompatible: In[0]: [1,2], In[1]: [1,2]\n"
                      "\t [[{{node product}}]]");
}

/* As a worker reads it: an empty list of numbers arrives as an empty list. */
static void test_an_instruction_takes_empty_lists(void **state) {
    kernel_test_run("x = Const() {dtype=float, value=float[1,1,1,1]{2}}\n"
                    "c = _MrFused(x) {Tin=[float], Tout=[float], program=[&Conv2D{T=float, "
                    "strides=[1, 1, 1, 1], padding=\"SAME\", explicit_paddings=[], "
                    "data_format=\"NHWC\", dilations=[1, 1, 1, 1], use_cudnn_on_gpu=true}, "
                    "&Neg{T=float}], names=[\"p\", \"c\"], operands=[0, 0, 1], results=[1]}\n",
                    "c", "float[1,1,1,1]{-4}");
}

static void test_only_the_first_instruction_may_be_a_product(void **state) {
    kernel_test_fails("x = Const() {dtype=float, value=float[1,1]{2}}\n"
                      "c = _MrFused(x) {Tin=[float], Tout=[float], program=[&Neg{T=float}, "
                      "&MatMul{T=float, transpose_a=false, transpose_b=false}], "
                      "names=[\"n\", \"c\"], operands=[0, 1, 1], results=[1]}\n",
                      "c", STATUS_INVALID_ARGUMENT, "cannot be part of a fused program");
}

static void test_only_elementwise_ops_are_taken(void **state) {
    kernel_test_fails("x = Const() {dtype=float, value=float[2]{6, 8}}\n"
                      "c = _MrFused(x) {Tin=[float], Tout=[float], program=[&Softmax{T=float}], "
                      "names=[\"s\"], operands=[0], results=[0]}\n",
                      "c", STATUS_INVALID_ARGUMENT, "cannot be part of a fused program");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exactly_the_rows_with_an_engine_are_elementwise),
        cmocka_unit_test(test_random_programs_give_the_bits_of_their_nodes),
        cmocka_unit_test(test_random_programs_of_code_give_the_bits_of_their_nodes),
        cmocka_unit_test(test_random_programs_with_reductions_give_the_bits_of_their_nodes),
        cmocka_unit_test(test_random_programs_behind_products_give_the_bits_of_their_nodes),
        cmocka_unit_test(test_a_run_of_too_many_vectors_is_compiled_in_parts),
        cmocka_unit_test(test_an_error_names_the_node_that_made_it),
        cmocka_unit_test(test_an_error_names_the_product_that_made_it),
        cmocka_unit_test(test_an_instruction_takes_empty_lists),
        cmocka_unit_test(test_only_the_first_instruction_may_be_a_product),
        cmocka_unit_test(test_only_elementwise_ops_are_taken),
    };
    denormals_flush_to_zero(); /* as the pool's threads and those that run steps */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
