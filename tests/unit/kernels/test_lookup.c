/* Tables: a long mix of changes against a plain array, many threads, and what happens to tables
 * without a name. Values and refusals by program are tests/differential/cases_lookup.py's
 * business. */
#include "tests/unit/kernels/kernel_test.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/host/resources/lookup_table.h"

enum { N_KEYS = 512 };

static struct lookup_table *table_new(enum dtype key, enum dtype value) {
    struct lookup_table_options options = {
        .key_dtype = key, .value_dtype = value, .value_shape = SHAPE_SCALAR};
    return lookup_table_new(&options);
}

static struct tensor key_of(enum dtype dtype, int i) {
    struct tensor t = TENSOR_INIT;
    if (dtype == DT_INT64) {
        tensor_init_scalar_i64(&t, (int64_t)i << 32); /* only the high half differs */
        return t;
    }
    char text[32];
    int len = i == 0 ? 0 : snprintf(text, sizeof(text), "key %d", i);
    struct bytes *bytes = bytes_new(text, (size_t)len);
    tensor_init_scalar_object(&t, DT_STRING, bytes ? &bytes->object : NULL);
    return t;
}

static int64_t find(struct lookup_table *table, const struct tensor *key) {
    struct tensor none = TENSOR_INIT, out = TENSOR_INIT;
    tensor_init_scalar_i64(&none, -1);
    tensor_init_scalar_i64(&out, 0);
    assert_null(lookup_table_find(table, key, &none, true, &out));
    return tensor_index_at(&out, 0);
}

static void churn(enum dtype key_dtype) {
    struct lookup_table *table = table_new(key_dtype, DT_INT64);
    int64_t expected[N_KEYS], n = 0;
    uint32_t random = 1;
    for (int i = 0; i < N_KEYS; i++)
        expected[i] = -1;
    for (int step = 0; step < 40000; step++) {
        random = random * 1664525 + 1013904223;
        int i = (int)(random >> 16) % N_KEYS;
        bool is_growing = step / 5000 % 2 == 0; /* turns between filling and emptying */
        struct tensor key = key_of(key_dtype, i), value = TENSOR_INIT;
        if ((random >> 8) % 4 < (is_growing ? 3 : 1)) {
            tensor_init_scalar_i64(&value, step);
            assert_null(lookup_table_insert(table, &key, &value, false));
            n += expected[i] < 0;
            expected[i] = step;
        } else {
            assert_null(lookup_table_remove(table, &key));
            n -= expected[i] >= 0;
            expected[i] = -1;
        }
        assert_int_equal(find(table, &key), expected[i]);
        tensor_clear(&key);
        assert_int_equal(lookup_table_size(table), n);
    }
    for (int i = 0; i < N_KEYS; i++) {
        struct tensor key = key_of(key_dtype, i);
        assert_int_equal(find(table, &key), expected[i]);
        tensor_clear(&key);
    }
    lookup_table_clear(table);
    assert_int_equal(lookup_table_size(table), 0);
    object_unref(&table->object);
}

static void test_numbers_come_and_go(void **state) { churn(DT_INT64); }
static void test_texts_come_and_go(void **state) { churn(DT_STRING); }

static void *writer(void *arg) {
    struct lookup_table *table = arg;
    for (int i = 0; i < 20000; i++) {
        struct tensor key = key_of(DT_STRING, i % 100), value = TENSOR_INIT;
        tensor_init_scalar_i64(&value, i % 100);
        assert_null(lookup_table_insert(table, &key, &value, false));
        if (i % 3 == 0)
            assert_null(lookup_table_remove(table, &key));
        tensor_clear(&key);
    }
    return NULL;
}

static void test_readers_beside_writers(void **state) {
    struct lookup_table *table = table_new(DT_STRING, DT_INT64);
    pthread_t threads[2];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, writer, table), 0);
    for (int i = 0; i < 20000; i++) {
        struct tensor key = key_of(DT_STRING, i % 100);
        int64_t value = find(table, &key);
        assert_true(value == -1 || value == i % 100);
        tensor_clear(&key);
    }
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    object_unref(&table->object);
}

// clang-format off
#define TABLE "t = HashTableV2() {key_dtype=string, value_dtype=int64%s}\n" \
              "k = Const() {dtype=string, value=string[2]{\"a\", \"b\"}}\n" \
              "v = Const() {dtype=int64, value=int64[2]{1, 2}}\n" \
              "none = Const() {dtype=int64, value=int64[]{-1}}\n" \
              "init = InitializeTableV2(t, k, v) {Tkey=string, Tval=int64}\n" \
              "size = LookupTableSizeV2(t)\n" \
              "find = LookupTableFindV2(t, k, none) {Tin=string, Tout=int64}\n"
// clang-format on

static void run_filled(const char *attrs) {
    char text[2048];
    static const struct kernel_test_step steps[] = {
        {.endpoint = "size", .expected = "int64[]{0}"},
        {.target = "init"},
        {.endpoint = "size", .expected = "int64[]{2}"},
        {.endpoint = "find", .expected = "int64[2]{1, 2}"},
    };
    snprintf(text, sizeof(text), TABLE, attrs);
    kernel_test_steps(text, steps, ARRAY_LEN(steps));
}

static void test_a_table_keeps_what_it_was_filled_with(void **state) {
    run_filled(""); /* of the node */
    run_filled(", use_node_name_sharing=true");
    run_filled(", shared_name=\"x\", container=\"c\"");
}

static void test_refusals(void **state) {
    char text[2048];
    snprintf(text, sizeof(text), TABLE, "");
    kernel_test_fails(text, "find", STATUS_FAILED_PRECONDITION, "Table not initialized.");
    snprintf(text, sizeof(text),
             TABLE "x = LookupTableExportV2(t, ^init) {Tkeys=int64, Tvalues=int64}\n", "");
    kernel_test_fails(text, "x", STATUS_INVALID_ARGUMENT, "Signature mismatch");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_come_and_go),
        cmocka_unit_test(test_texts_come_and_go),
        cmocka_unit_test(test_readers_beside_writers),
        cmocka_unit_test(test_a_table_keeps_what_it_was_filled_with),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
