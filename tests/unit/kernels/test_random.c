/* The random family where TensorFlow cannot be asked: the published test vectors, streams that
 * threads share, seeds from the machine. That the numbers are TensorFlow's is checked in
 * tests/differential/cases_random.py. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/support/philox.h"
#include "kernels/cpu/random/random_internal.h"
#include "tests/unit/kernels/kernel_test.h"

/* ---- the generator ---- */

/* The known answers that come with the paper's own code. */
static void test_philox_gives_the_papers_answers(void **state) {
    static const struct {
        uint64_t key, lo, hi;
        uint32_t wanted[4];
    } vectors[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822,
         0x85a308d3243f6a88,
         0x0370734413198a2e,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        uint32_t words[4];
        philox_block(vectors[i].key, vectors[i].lo, vectors[i].hi, words);
        assert_memory_equal(words, vectors[i].wanted, sizeof(words));
    }
}

static void test_runs_of_blocks_equal_single_ones(void **state) {
    static const uint64_t starts[] = {0, 77, UINT64_MAX - 100, UINT64_MAX, (1ull << 32) - 5};
    static uint32_t run[4 * 300];
    for (size_t s = 0; s < ARRAY_LEN(starts); s++) {
        for (int64_t n = 0; n < 300; n += n < 40 ? 1 : 37) {
            struct philox g = {0x123456789abcdef0, starts[s], 42};
            philox_fill(g, n, run);
            for (int64_t i = 0; i < n; i++) {
                uint32_t words[4];
                philox_next(&g, words);
                assert_memory_equal(words, run + 4 * i, sizeof(words));
            }
        }
    }
}

/* ---- executions ---- */

struct single {
    struct graph graph;
    struct kernel_instance instance;
};

static void single_init(struct single *s, const char *text) {
    graph_init(&s->graph);
    struct status *st = graph_parse(text, &s->graph);
    if (st)
        fail_msg("%s", status_message(st));
    assert_null(kernel_instance_init(&s->instance, s->graph.nodes[s->graph.n_nodes - 1], "CPU",
                                     TEST_DEVICE, allocator_host(), NULL));
}
static void single_fini(struct single *s) {
    kernel_instance_fini(&s->instance);
    graph_fini(&s->graph);
}

/* One execution for n numbers. */
static void run(struct single *s, int32_t n, struct pool *pool, struct tensor *ret) {
    struct tensor input = TENSOR_INIT, output = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_INT32, (struct shape){1, (int64_t[]){1}}, &input));
    *(int32_t *)tensor_data(&input) = n;
    struct kernel_ctx ctx = {
        .inputs = &input, .outputs = &output, .instance = &s->instance, .pool = pool};
    assert_int_equal(s->instance.compute(&ctx), KERNEL_DONE);
    assert_null(ctx.status);
    tensor_clear(&input);
    tensor_move(ret, &output);
}

static void test_numbers_do_not_depend_on_the_pool(void **state) {
    static const char *const ops[] = {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"};
    static const char *const types[] = {"half", "bfloat16", "float", "double"};
    struct pool *pool = pool_new(3);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        for (size_t k = 0; k < ARRAY_LEN(types); k++) {
            char text[200];
            snprintf(
                text, sizeof(text),
                "a = Placeholder() {dtype=int32}\nr = %s(a) {T=int32, dtype=%s, seed=1, seed2=2}",
                ops[i], types[k]);
            struct single alone, shared;
            struct tensor a = TENSOR_INIT, b = TENSOR_INIT;
            single_init(&alone, text);
            single_init(&shared, text);
            run(&alone, 200003, NULL, &a);
            run(&shared, 200003, pool, &b);
            assert_true(tensor_equal(&a, &b));
            tensor_clear(&a);
            tensor_clear(&b);
            single_fini(&alone);
            single_fini(&shared);
        }
    }
    pool_free(pool);
}

enum { N_THREADS = 4, N_RUNS = 200 };

struct runner {
    struct single *s;
    uint64_t first_words[N_RUNS];
};

static void *run_many(void *arg) {
    struct runner *runner = arg;
    for (int i = 0; i < N_RUNS; i++) {
        struct tensor t = TENSOR_INIT;
        run(runner->s, 8, NULL, &t);
        memcpy(&runner->first_words[i], tensor_cdata(&t), sizeof(uint64_t));
        tensor_clear(&t);
    }
    return NULL;
}

static int compare_words(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void test_executions_at_once_take_different_parts(void **state) {
    struct single s;
    static struct runner runners[N_THREADS];
    static uint64_t all[N_THREADS * N_RUNS], wanted[N_THREADS * N_RUNS];
    const char *text =
        "a = Placeholder() {dtype=int32}\nr = RandomUniform(a) {T=int32, dtype=double, seed=3}";
    pthread_t threads[N_THREADS];
    single_init(&s, text);
    for (int i = 0; i < N_THREADS; i++) {
        runners[i].s = &s;
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, &runners[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        memcpy(all + i * N_RUNS, runners[i].first_words, sizeof(runners[i].first_words));
    }
    single_fini(&s);
    /* Together they hold what one thread gets, in some order. */
    single_init(&s, text);
    for (int i = 0; i < N_THREADS; i++) {
        runners[0].s = &s;
        run_many(&runners[0]);
        memcpy(wanted + i * N_RUNS, runners[0].first_words, sizeof(runners[0].first_words));
    }
    single_fini(&s);
    qsort(all, ARRAY_LEN(all), sizeof(all[0]), compare_words);
    qsort(wanted, ARRAY_LEN(wanted), sizeof(wanted[0]), compare_words);
    assert_memory_equal(all, wanted, sizeof(all));
}

static void test_without_seeds_nodes_differ(void **state) {
    struct single first, second;
    struct tensor a = TENSOR_INIT, b = TENSOR_INIT;
    const char *text =
        "a = Placeholder() {dtype=int32}\nr = RandomUniform(a) {T=int32, dtype=double}";
    single_init(&first, text);
    single_init(&second, text);
    run(&first, 8, NULL, &a);
    run(&second, 8, NULL, &b);
    assert_false(tensor_equal(&a, &b));
    tensor_clear(&a);
    tensor_clear(&b);
    single_fini(&first);
    single_fini(&second);
}

/* ---- errors, and parameters that have no distribution ---- */

static void test_wrong_inputs_are_named(void **state) {
    kernel_test_fails("s = Const() {dtype=int32, value=int32[1]{-1}}\ni = Identity(s) {T=int32}\nr "
                      "= RandomUniform(i) {T=int32, dtype=float}",
                      "r", STATUS_INVALID_ARGUMENT, "Dimension -1 must be >= 0");
    kernel_test_fails("s = Const() {dtype=int32, value=int32[1]{3}}\nk = Const() {dtype=uint64, "
                      "value=uint64[1]{5}}\n"
                      "a = Const() {dtype=int32, value=int32[]{1}}\nr = "
                      "StatelessRandomUniformV2(s, k, k, a) {Tshape=int32, dtype=float}",
                      "r", STATUS_INVALID_ARGUMENT,
                      "counter must be a vector with length at least 2");
    /* the signature of NonDeterministicInts takes a shape of any dtype */
    kernel_test_fails("s = Const() {dtype=bool, value=bool[3]{true, true, true}}\nr = "
                      "NonDeterministicInts(s) {shape_dtype=bool, dtype=int64}",
                      "r", STATUS_INVALID_ARGUMENT,
                      "shape must be a vector of {int32,int64}, got shape [3] of bool");
    kernel_test_fails("s = Const() {dtype=int64, value=int64[1,2]{2, 2}}\nr = "
                      "NonDeterministicInts(s) {shape_dtype=int64, dtype=int64}",
                      "r", STATUS_INVALID_ARGUMENT, "hape");
}

/* TensorFlow never returns from these. */
static void test_impossible_rates_end(void **state) {
    kernel_test_run("s = Const() {dtype=int32, value=int32[1]{1}}\nl = Const() {dtype=float, "
                    "value=float[3]{nan, inf, -1}}\n"
                    "r = RandomPoissonV2(s, l) {S=int32, R=float, dtype=float, seed=1}",
                    "r", "float[1,3]{nan, nan, nan}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_gives_the_papers_answers),
        cmocka_unit_test(test_runs_of_blocks_equal_single_ones),
        cmocka_unit_test(test_numbers_do_not_depend_on_the_pool),
        cmocka_unit_test(test_executions_at_once_take_different_parts),
        cmocka_unit_test(test_without_seeds_nodes_differ),
        cmocka_unit_test(test_wrong_inputs_are_named),
        cmocka_unit_test(test_impossible_rates_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
