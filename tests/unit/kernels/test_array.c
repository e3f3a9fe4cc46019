/* The array family where TensorFlow cannot be asked: memory that is shared, moved or reused,
 * large copies split over a pool, objects' reference counts, limits. What the ops compute is
 * compared with TensorFlow in tests/differential/cases_array.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/support/strided.h"
#include "tests/unit/kernels/kernel_test.h"

/* ---- one kernel by itself ---- */

struct single {
    struct graph graph;
    struct kernel_instance instance;
    struct tensor inputs[4], outputs[4];
    struct kernel_ctx ctx;
};

/* The last node of the text, with TENSOR_NONE inputs for the test to fill. */
static void single_init(struct single *s, const char *text) {
    memset(s, 0, sizeof(*s));
    graph_init(&s->graph);
    struct status *st = graph_parse(text, &s->graph);
    if (st)
        fail_msg("%s", status_message(st));
    struct node *node = s->graph.nodes[s->graph.n_nodes - 1];
    assert_null(
        kernel_instance_init(&s->instance, node, "CPU", TEST_DEVICE, allocator_host(), NULL));
    s->ctx =
        (struct kernel_ctx){.inputs = s->inputs, .outputs = s->outputs, .instance = &s->instance};
}

static void single_run(struct single *s) {
    assert_int_equal(s->instance.compute(&s->ctx), KERNEL_DONE);
    if (s->ctx.status)
        fail_msg("%s", status_message(s->ctx.status));
}

static void single_fini(struct single *s) {
    for (int i = 0; i < 4; i++) {
        tensor_clear(&s->inputs[i]);
        tensor_clear(&s->outputs[i]);
    }
    status_unref(s->ctx.status);
    kernel_instance_fini(&s->instance);
    graph_fini(&s->graph);
}

static void floats(struct tensor *t, int rank, const int64_t *dims) {
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){rank, dims}, t));
    for (int64_t i = 0; i < t->n_elements; i++)
        ((float *)tensor_data(t))[i] = (float)i;
}

static void ints(struct tensor *t, int n, const int32_t *values) {
    int64_t dim = n;
    assert_null(tensor_new(allocator_host(), DT_INT32, (struct shape){1, &dim}, t));
    memcpy(tensor_data(t), values, (size_t)n * sizeof(*values));
}

#define INPUTS2 "a = Placeholder() {dtype=float}\nb = Placeholder() {dtype=int32}\n"

static void test_reshape_moves_its_input(void **state) {
    struct single s;
    single_init(&s, INPUTS2 "r = Reshape(a, b) {T=float, Tshape=int32}");
    floats(&s.inputs[0], 2, (int64_t[]){8, 6});
    ints(&s.inputs[1], 6, (int32_t[]){2, 2, 1, 2, 3, -1});
    const void *data = tensor_cdata(&s.inputs[0]);
    single_run(&s);
    assert_ptr_equal(tensor_cdata(&s.outputs[0]), data);
    assert_int_equal(s.outputs[0].rank, 6);
    assert_int_equal(tensor_dim(&s.outputs[0], 5), 2);
    assert_int_equal(s.inputs[0].storage, TENSOR_NONE);
    assert_true(tensor_is_sole(&s.outputs[0]));
    single_fini(&s);
}

static void test_split_of_rows_shares_and_of_columns_copies(void **state) {
    for (int axis = 0; axis < 2; axis++) {
        struct single s;
        single_init(&s, "d = Placeholder() {dtype=int32}\nv = Placeholder() {dtype=float}\nr = "
                        "Split(d, v) {T=float, num_split=2}");
        tensor_init_scalar_i32(&s.inputs[0], axis);
        floats(&s.inputs[1], 2, (int64_t[]){16, 16});
        const char *data = tensor_cdata(&s.inputs[1]);
        single_run(&s);
        bool is_view = (const char *)tensor_cdata(&s.outputs[1]) == data + 8 * 16 * sizeof(float);
        assert_int_equal(is_view, axis == 0);
        assert_true(((const float *)tensor_cdata(&s.outputs[1]))[0] == (axis ? 8.0f : 128.0f));
        single_fini(&s);
    }
}

#define UPDATE                                                                                   \
    "a = Placeholder() {dtype=float}\ni = Placeholder() {dtype=int32}\nr = TensorScatterAdd(a, " \
    "i, a) {T=float, Tindices=int32}"

static void test_scatter_writes_in_place_only_when_sole(void **state) {
    for (int shared = 0; shared < 2; shared++) {
        struct single s;
        struct tensor other = TENSOR_INIT;
        single_init(&s, UPDATE);
        floats(&s.inputs[0], 2, (int64_t[]){4, 16});
        floats(&s.inputs[2], 2, (int64_t[]){1, 16});
        assert_null(tensor_new(allocator_host(), DT_INT32, (struct shape){2, (int64_t[]){1, 1}},
                               &s.inputs[1]));
        *(int32_t *)tensor_data(&s.inputs[1]) = 3;
        if (shared)
            tensor_copy(&other, &s.inputs[0]);
        const void *data = tensor_cdata(&s.inputs[0]);
        single_run(&s);
        assert_int_equal(tensor_cdata(&s.outputs[0]) == data, !shared);
        assert_true(((const float *)tensor_cdata(&s.outputs[0]))[3 * 16 + 1] == 50.0f);
        if (shared)
            assert_true(((const float *)tensor_cdata(&other))[3 * 16 + 1] == 49.0f);
        tensor_clear(&other);
        single_fini(&s);
    }
}

static void test_small_slices_do_not_keep_the_whole(void **state) {
    struct single s;
    single_init(&s, "a = Placeholder() {dtype=float}\nb = Placeholder() {dtype=int32}\nr = "
                    "Slice(a, b, b) {T=float, Index=int32}");
    floats(&s.inputs[0], 2, (int64_t[]){1000, 8});
    ints(&s.inputs[1], 2, (int32_t[]){10, 0});
    ints(&s.inputs[2], 2, (int32_t[]){2, 8});
    single_run(&s);
    assert_true(tensor_is_sole(&s.inputs[0]));
    assert_true(*(const float *)tensor_cdata(&s.outputs[0]) == 80.0f);
    single_fini(&s);
}

/* Copies of strings share the objects and give back exactly what they took (ASan's leak check is
 * the judge of the rest). */
static void test_objects_are_shared_and_counted(void **state) {
    struct single s;
    single_init(&s, "a = Placeholder() {dtype=string}\nb = Placeholder() {dtype=int32}\nr = "
                    "Tile(a, b) {T=string, Tmultiples=int32}");
    assert_null(
        tensor_new(allocator_host(), DT_STRING, (struct shape){1, (int64_t[]){3}}, &s.inputs[0]));
    tensor_set_string(&s.inputs[0], 1, "word", 4);
    struct object *word = ((struct object *const *)tensor_cdata(&s.inputs[0]))[1];
    ints(&s.inputs[1], 1, (int32_t[]){5});
    single_run(&s);
    assert_int_equal(atomic_load(&word->n_refs), 6);
    assert_true(span_is(tensor_string(&s.outputs[0], 13), "word"));
    tensor_clear(&s.outputs[0]);
    assert_int_equal(atomic_load(&word->n_refs), 1);
    single_fini(&s);
}

/* ---- the strided engine ---- */

static void test_large_transposes_agree_on_a_pool(void **state) {
    struct pool *pool = pool_new(3);
    enum { A = 67, B = 129, C = 35 };
    float *from = malloc(sizeof(float) * A * B * C), *to = malloc(sizeof(float) * A * B * C);
    for (int i = 0; i < A * B * C; i++)
        from[i] = (float)i;
    for (int with_pool = 0; with_pool < 2; with_pool++) {
        struct strided s;
        strided_init(&s); /* to[c][a][b] = from[a][b][c] */
        strided_add(&s, C, 1, A * B);
        strided_add(&s, A, B * C, B);
        strided_add(&s, B, C, 1);
        memset(to, 0, sizeof(float) * A * B * C);
        strided_run(&s, DT_FLOAT, to, from, with_pool ? pool : NULL);
        for (int a = 0; a < A; a++)
            for (int b = 0; b < B; b++)
                for (int c = 0; c < C; c++)
                    assert_true(to[(c * A + a) * B + b] == from[(a * B + b) * C + c]);
    }
    free(from);
    free(to);
    pool_free(pool);
}

static void test_loops_that_continue_merge(void **state) {
    struct strided s;
    strided_init(&s);
    strided_add(&s, 4, 30, 30);
    strided_add(&s, 1, 7, 9);
    strided_add(&s, 5, 6, 6);
    strided_add(&s, 6, 1, 1);
    assert_int_equal(s.n_loops, 1);
    assert_int_equal(s.dims[0], 120);
    strided_add(&s, 2, 0, 1);
    assert_int_equal(s.n_loops, 2);
}

/* ---- ranks, values and failures through the whole way ---- */

static void test_ranks_beyond_tensorflows_eight(void **state) {
    kernel_test_run("a = Const() {dtype=int32, value=int32[2,1,1,1,1,1,1,1,1,2]{1, 2, 3, 4}}\n"
                    "p = Const() {dtype=int32, value=int32[10]{9, 1, 2, 3, 4, 5, 6, 7, 8, 0}}\n"
                    "r = Transpose(a, p) {T=int32, Tperm=int32}",
                    "r", "int32[2,1,1,1,1,1,1,1,1,2]{1, 3, 2, 4}");
}

static void test_placeholder_says_what_to_feed(void **state) {
    kernel_test_fails(
        "x = Placeholder() {dtype=float, shape=[?,3]}", "x", STATUS_INVALID_ARGUMENT,
        "You must feed a value for placeholder tensor 'x' with dtype float and shape [?,3]");
    kernel_test_fails("x = Placeholder() {dtype=float}", "x", STATUS_INVALID_ARGUMENT,
                      "You must feed a value for placeholder tensor 'x' with dtype float");
}

static void test_an_op_without_kernel_is_named(void **state) {
    kernel_test_fails("x = Const() {dtype=float, value=float[2]{1, 2}}\nr = MatrixBandPart(s, x, "
                      "x) {T=string, Tindex=int64}\n"
                      "s = Const() {dtype=string, value=string[1]{\"a\"}}",
                      "r", STATUS_INVALID_ARGUMENT, "r");
    kernel_test_fails(
        "x = Const() {dtype=int64, value=int64[]{1}}\ns = Const() {dtype=string, "
        "value=string[1]{\"a\"}}\n"
        "r = MatrixBandPart(s, x, x) {T=string, Tindex=int64}",
        "r", STATUS_INVALID_ARGUMENT,
        "No OpKernel was registered to support Op 'MatrixBandPart' used by {{node r}}");
    kernel_test_fails("r = GetDeadline()", "r", STATUS_UNIMPLEMENTED,
                      "No OpKernel was registered to support Op 'GetDeadline' used by {{node r}}");
}

static void test_huge_outputs_are_refused(void **state) {
    kernel_test_fails("d = Const() {dtype=int64, value=int64[3]{4611686018427387904, 4, 4}}\nv = "
                      "Const() {dtype=float, value=float[]{1}}\n"
                      "r = Fill(d, v) {T=float, index_type=int64}",
                      "r", STATUS_INVALID_ARGUMENT, "too many elements");
    kernel_test_fails("d = Const() {dtype=int64, value=int64[1]{1152921504606846976}}\nv = Const() "
                      "{dtype=bool, value=bool[]{true}}\n"
                      "r = Fill(d, v) {T=bool, index_type=int64}",
                      "r", STATUS_RESOURCE_EXHAUSTED,
                      "OOM when allocating tensor with shape[1152921504606846976]");
}

static void test_static_shapes(void **state) {
    const char *text =
        "x = Placeholder() {dtype=float, shape=[?,6]}\nu = Placeholder() {dtype=int32}\n"
        "s = Const() {dtype=int32, value=int32[3]{2, -1, 3}}\nz = Const() {dtype=int32, "
        "value=int32[]{0}}\n"
        "r = Reshape(x, s) {T=float, Tshape=int32}\nq = Reshape(x, u) {T=float, Tshape=int32}\n"
        "c = ConcatV2(x, x, z) {T=float, N=2, Tidx=int32}\nd = ConcatV2(x, x, u) {T=float, N=2, "
        "Tidx=int32}\n"
        "p = Pack(x, x) {T=float, N=2, axis=1}\ne = ExpandDims(x, u) {T=float, Tdim=int32}";
    kernel_test_shape(text, "r", "[2,?,3]");
    kernel_test_shape(text, "q", "<unknown>");
    kernel_test_shape(text, "c", "[?,6]");
    kernel_test_shape(text, "d", "[?,?]");
    kernel_test_shape(text, "p", "[?,2,6]");
    kernel_test_shape(text, "e", "[?,?,?]");
    kernel_test_shape("a = Const() {dtype=int32, value=int32[2]{1, 2}}\nb = Const() {dtype=int32, "
                      "value=int32[3]{1, 2, 3}}\n"
                      "r = Pack(a, b) {T=int32, N=2}",
                      "r", "!Dimension 0 in both shapes must be equal, but are 2 and 3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reshape_moves_its_input),
        cmocka_unit_test(test_split_of_rows_shares_and_of_columns_copies),
        cmocka_unit_test(test_scatter_writes_in_place_only_when_sole),
        cmocka_unit_test(test_small_slices_do_not_keep_the_whole),
        cmocka_unit_test(test_objects_are_shared_and_counted),
        cmocka_unit_test(test_large_transposes_agree_on_a_pool),
        cmocka_unit_test(test_loops_that_continue_merge),
        cmocka_unit_test(test_ranks_beyond_tensorflows_eight),
        cmocka_unit_test(test_placeholder_says_what_to_feed),
        cmocka_unit_test(test_an_op_without_kernel_is_named),
        cmocka_unit_test(test_huge_outputs_are_refused),
        cmocka_unit_test(test_static_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
