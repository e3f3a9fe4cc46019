/* Programs of a GatherV2 and a reduction: whatever the shapes, the types and the axes, they give
 * the bits of both nodes one by one, on any number of threads, and mistakes name the node that made
 * them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/fused.h"
#include "common/graph/graph_text.h"
#include "kernels/cpu/math/math_picked.h"
#include "tests/unit/kernels/kernel_test.h"

static uint32_t seed = 3;
static int64_t draw(int64_t below) {
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)((seed >> 8) % (uint32_t)below);
}

static const enum dtype dtypes[] = {DT_FLOAT, DT_DOUBLE, DT_HALF, DT_INT32, DT_INT8};
static const char *const reductions[] = {"Sum", "Mean", "Max", "Min", "Prod"};

struct program {
    enum dtype dtype, index_dtype;
    const char *reduction;
    bool keep_dims;
    struct tensor in[4]; /* params, indices, axis, axes */
};

static void fill(struct tensor *t, enum dtype dtype, int rank, const int64_t *dims) {
    assert_null(tensor_new(allocator_host(), dtype, (struct shape){rank, dims}, t));
    for (int64_t i = 0; i < t->n_elements; i++) {
        double value = (double)(draw(2001) - 1000) / 64;
        switch (dtype) {
        case DT_FLOAT:
            ((float *)tensor_data(t))[i] = (float)value / 3;
            break;
        case DT_DOUBLE:
            ((double *)tensor_data(t))[i] = value / 3;
            break;
        case DT_HALF: /* numbers of any size, no infinities */
            ((uint16_t *)tensor_data(t))[i] = (uint16_t)(draw(0x4c00) | draw(2) << 15);
            break;
        case DT_INT32:
            ((int32_t *)tensor_data(t))[i] = (int32_t)draw(1 << 20) - (1 << 19);
            break;
        default:
            ((int8_t *)tensor_data(t))[i] = (int8_t)draw(256);
        }
    }
}

static void fill_ints(struct tensor *t, enum dtype dtype, int rank, const int64_t *dims,
                      int64_t below) {
    assert_null(tensor_new(allocator_host(), dtype, (struct shape){rank, dims}, t));
    for (int64_t i = 0; i < t->n_elements; i++) {
        if (dtype == DT_INT32)
            ((int32_t *)tensor_data(t))[i] = (int32_t)draw(below);
        else
            ((int64_t *)tensor_data(t))[i] = draw(below);
    }
}

/* `outer` and `picked` dimensions of indices, the last of up to `longest`, and rows of `inner`
 * elements. The axes are those of the picked dimensions, or any. */
static void program_make(struct program *p, int outer, int picked, int64_t longest, int64_t inner,
                         bool any_axes) {
    int rank = outer + picked;
    int64_t n_rows = 1 + draw(30), dims[6] = {0}, axes = 0, wide[2] = {n_rows, inner};
    p->dtype = dtypes[draw(ARRAY_LEN(dtypes))];
    p->index_dtype = draw(2) ? DT_INT32 : DT_INT64;
    p->reduction = reductions[draw(ARRAY_LEN(reductions))];
    p->keep_dims = draw(2);
    for (int i = 0; i < rank; i++)
        dims[i] = 1 + draw(i == rank - 1 ? longest : MIN(longest, 4));
    fill(&p->in[0], p->dtype, 2, wide);
    fill_ints(&p->in[1], p->index_dtype, rank, dims, n_rows);
    fill_ints(&p->in[2], DT_INT32, 0, NULL, 1);
    int32_t list[8];
    for (int i = 0; i < rank + 1; i++)
        if (any_axes ? draw(2) : i >= outer && i < rank)
            list[axes++] = (int32_t)(draw(2) ? i : i - rank - 1);
    fill_ints(&p->in[3], DT_INT32, 1, &axes, 1);
    memcpy(tensor_data(&p->in[3]), list, (size_t)axes * sizeof(*list));
}

static void program_clear(struct program *p) {
    for (int i = 0; i < 4; i++)
        tensor_clear(&p->in[i]);
}

/* Runs the last node of the text. Returns the status of a kernel that fails. */
static struct status *run_node(const char *text, const struct tensor *inputs, struct pool *pool,
                               struct tensor *ret) {
    struct graph graph;
    struct kernel_instance instance;
    struct tensor in[4], out[1] = {TENSOR_INIT};
    graph_init(&graph);
    struct status *st = graph_parse(text, &graph);
    if (st)
        fail_msg("%s\n%s", status_message(st), text);
    st = kernel_instance_init(&instance, graph.nodes[graph.n_nodes - 1], "CPU", TEST_DEVICE,
                              allocator_host(), NULL);
    if (st)
        fail_msg("%s\n%s", status_message(st), text);
    for (int i = 0; i < instance.n_inputs; i++)
        tensor_copy(&in[i], &inputs[i]);
    struct kernel_ctx ctx = {.inputs = in, .outputs = out, .instance = &instance, .pool = pool};
    assert_int_equal(instance.compute(&ctx), KERNEL_DONE);
    tensor_move(ret, &out[0]);
    for (int i = 0; i < instance.n_inputs; i++)
        tensor_clear(&in[i]);
    kernel_instance_fini(&instance);
    graph_fini(&graph);
    return ctx.status;
}

#define TEXT_SIZE 1500
static void text_of(const struct program *p, bool is_fused, bool is_gather, char *ret) {
    const char *type = dtype_name(p->dtype), *index = dtype_name(p->index_dtype),
               *keeps = p->keep_dims ? "true" : "false";
    if (!is_fused && !is_gather) {
        snprintf(ret, TEXT_SIZE,
                 "g = Placeholder() {dtype=%s}\na = Placeholder() {dtype=int32}\n"
                 "r = %s(g, a) {T=%s, Tidx=int32, keep_dims=%s}\n",
                 type, p->reduction, type, keeps);
        return;
    }
    int n = snprintf(ret, TEXT_SIZE,
                     "p = Placeholder() {dtype=%s}\ni = Placeholder() {dtype=%s}\n"
                     "x = Placeholder() {dtype=int32}\na = Placeholder() {dtype=int32}\n",
                     type, index);
    if (is_gather)
        snprintf(ret + n, (size_t)(TEXT_SIZE - n),
                 "g = GatherV2(p, i, x) {Tparams=%s, Tindices=%s, Taxis=int32}\n", type, index);
    else
        snprintf(ret + n, (size_t)(TEXT_SIZE - n),
                 "r = _MrFused(p, i, x, a) {Tin=[%s, %s, int32, int32], Tout=[%s], "
                 "names=[\"g\", \"s\"], operands=[0, 1, 2, 4, 3], "
                 "program=[&GatherV2{Tparams=%s, Tindices=%s, Taxis=int32, batch_dims=0}, "
                 "&%s{T=%s, Tidx=int32, keep_dims=%s}], results=[1]}\n",
                 type, index, type, type, index, p->reduction, type, keeps);
}

static void check(const struct program *p, struct pool *pool) {
    char text[TEXT_SIZE];
    struct tensor both[2] = {TENSOR_INIT, TENSOR_INIT}, wanted = TENSOR_INIT, found = TENSOR_INIT;
    text_of(p, false, true, text);
    assert_null(run_node(text, p->in, NULL, &both[0]));
    tensor_copy(&both[1], &p->in[3]);
    text_of(p, false, false, text);
    assert_null(run_node(text, both, NULL, &wanted));
    text_of(p, true, false, text);
    assert_null(run_node(text, p->in, pool, &found));
    if (!tensor_equal(&wanted, &found))
        fail_msg("the bits differ: %s of %s, %lld rows", p->reduction, dtype_name(p->dtype),
                 (long long)p->in[1].n_elements);
    tensor_clear(&both[0]);
    tensor_clear(&both[1]);
    tensor_clear(&wanted);
    tensor_clear(&found);
}

static void test_bits_are_those_of_both_nodes(void **state) {
    struct pool *pool = pool_new(3);
    for (int i = 0; i < 600; i++) {
        struct program p = {.in = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT, TENSOR_INIT}};
        int64_t inner = draw(4) == 0 ? 1 + draw(30) : 16 + draw(1100);
        program_make(&p, (int)draw(3), (int)draw(3), 1 + draw(12), inner, draw(4) == 0);
        check(&p, draw(2) ? pool : NULL);
        program_clear(&p);
    }
    pool_free(pool);
}

/* Few outputs of many rows, which the reduction computes chunk by chunk. */
static void test_long_reductions_have_the_same_bits(void **state) {
    struct pool *pool = pool_new(3);
    for (int i = 0; i < 10; i++) {
        struct program p = {.in = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT, TENSOR_INIT}};
        program_make(&p, i % 2, 1, 9000, 64 + draw(500), false);
        check(&p, pool);
        program_clear(&p);
    }
    pool_free(pool);
}

/* Is the way for picked rows taken where it is meant to be, and only there? */
static void test_only_reductions_of_suitable_rows_pick(void **state) {
    struct math_picked job = {.n_outer = 64, .n_reduced = 20, .inner = 64};
    assert_true(math_picked_suits(&job));
    job.inner = 15; /* several rows would be folded */
    assert_false(math_picked_suits(&job));
    job.inner = 64, job.n_reduced = 1; /* a reduction of one is the value itself */
    assert_false(math_picked_suits(&job));
    job.n_outer = 1, job.n_reduced = 100000; /* chunks */
    assert_false(math_picked_suits(&job));
}

static void test_mistakes_name_the_node_that_made_them(void **state) {
    static const struct {
        int64_t index;
        int32_t axis, axes;
        const char *words, *node;
    } mistakes[] = {
        {7, 0, 0, "indices[2] = 7 is not in [0, 3)", "{{node g}}"},
        {-1, 0, 0, "indices[2] = -1 is not in [0, 3)", "{{node g}}"},
        {0, 5, 0, "Expected axis in the range", "{{node g}}"},
        {0, 0, 4, "Invalid reduction dimension", "{{node s}}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(mistakes); i++) {
        struct program p = {.dtype = DT_FLOAT, .index_dtype = DT_INT64, .reduction = "Sum"};
        struct tensor found = TENSOR_INIT;
        char text[TEXT_SIZE];
        int64_t four = 4, one = 1;
        for (int k = 0; k < 4; k++)
            p.in[k] = TENSOR_INIT;
        fill(&p.in[0], DT_FLOAT, 2, (int64_t[]){3, 32});
        fill_ints(&p.in[1], DT_INT64, 1, &four, 1);
        fill_ints(&p.in[2], DT_INT32, 0, NULL, 1);
        fill_ints(&p.in[3], DT_INT32, 1, &one, 1);
        ((int64_t *)tensor_data(&p.in[1]))[2] = mistakes[i].index;
        *(int32_t *)tensor_data(&p.in[2]) = mistakes[i].axis;
        *(int32_t *)tensor_data(&p.in[3]) = mistakes[i].axes;
        text_of(&p, true, false, text);
        struct status *st = run_node(text, p.in, NULL, &found);
        assert_non_null(st);
        if (!strstr(status_message(st), mistakes[i].words) ||
            !strstr(status_message(st), mistakes[i].node))
            fail_msg("%s", status_message(st));
        status_unref(st);
        program_clear(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_of_both_nodes),
        cmocka_unit_test(test_long_reductions_have_the_same_bits),
        cmocka_unit_test(test_only_reductions_of_suitable_rows_pick),
        cmocka_unit_test(test_mistakes_name_the_node_that_made_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
