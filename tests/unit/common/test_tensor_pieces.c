/* Strings decoded, encoded and released in pieces: the same results as at once, in calls that do no
 * more than they may. */
#include "common/tensor/tensor_pieces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/tensor/tensor_proto.h"
#include "tests/unit/common/fixture.h"

/* Decodes with `units` a call; *ret_calls counts the calls. */
static struct status *decode(struct span proto, int64_t units, struct tensor *ret,
                             int64_t *ret_calls) {
    struct tensor_decoder decoder;
    struct status *st = NULL;
    int64_t n_calls = 0;
    *ret = TENSOR_INIT;
    tensor_decoder_init(&decoder, proto, allocator_host());
    while (!st && ret->storage == TENSOR_NONE) {
        int64_t left = units;
        st = tensor_decoder_run(&decoder, &left, ret);
        assert_true(++n_calls < 10 * 1000 * 1000);
    }
    tensor_decoder_fini(&decoder);
    if (ret_calls)
        *ret_calls = n_calls;
    return st;
}

static void assert_same_in_pieces(struct span proto) {
    static const int64_t units[] = {1, 2, 7, INT64_MAX};
    struct tensor whole = TENSOR_INIT;
    struct status *st = tensor_from_proto(proto, NULL, allocator_host(), &whole);
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        struct tensor pieced;
        struct status *other = decode(proto, units[i], &pieced, NULL);
        assert_int_equal(status_code(other), status_code(st));
        if (st)
            assert_string_equal(status_message(other), status_message(st));
        else
            assert_true(pieced.dtype == DT_RESOURCE || pieced.dtype == DT_VARIANT ||
                        tensor_equal(&pieced, &whole));
        status_unref(other);
        tensor_clear(&pieced);
    }
    status_unref(st);
    tensor_clear(&whole);
}

static void tensorflows_protos_decode_the_same(void **state) {
    struct str file = STR_INIT;
    fixture_read("tensor_protos.bin", &file);
    int n_cases = 0;
    for (struct span in = {file.data, file.len}; in.len > 0; n_cases++) {
        fixture_bytes(&in); /* its name */
        fixture_number(&in);
        for (uint32_t rank = fixture_number(&in); rank > 0; rank--)
            fixture_number(&in);
        struct span proto = fixture_bytes(&in);
        fixture_bytes(&in);
        assert_same_in_pieces(proto);
        for (size_t len = 0; len < MIN(proto.len, (size_t)64); len++) /* and what is cut short */
            assert_same_in_pieces((struct span){proto.data, len});
    }
    assert_true(n_cases > 200);
    str_fini(&file);
}

static struct tensor strings(int64_t n, size_t len) {
    struct tensor t = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){1, &n}, &t));
    for (int64_t i = 0; i < n; i++) {
        struct bytes *bytes = bytes_new_uninit(len + (size_t)(i % 3));
        if (!bytes)
            continue; /* an empty string */
        memset(bytes->data, 'a' + (int)(i % 26), bytes->len);
        tensor_set_object(&t, i, &bytes->object);
    }
    return t;
}

/* As a client lists them: field 8, one for each. */
static void list_strings(const struct tensor *t, struct str *out) {
    proto_add_int(out, 1, DT_STRING);
    proto_add_shape(out, 2, tensor_shape(t));
    for (int64_t i = 0; i < t->n_elements; i++)
        proto_add_bytes(out, 8, tensor_string(t, i).data, tensor_string(t, i).len);
}

static void a_call_does_no_more_than_it_may(void **state) {
    static const struct {
        int64_t n;
        size_t len;
    } cases[] = {{10000, 5}, {3, 5 << 20}, {100, 10000}};
    enum { UNITS = 100 };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tensor t = strings(cases[i].n, cases[i].len), again;
        struct str list = STR_INIT, content = STR_INIT;
        int64_t least = (cases[i].n + cases[i].n * (int64_t)cases[i].len / TENSOR_UNIT_BYTES) /
                        (UNITS + (4 << 20) / TENSOR_UNIT_BYTES),
                n_calls;
        list_strings(&t, &list);
        tensor_to_proto(&t, &content);
        struct span protos[2] = {{list.data, list.len}, {content.data, content.len}};
        for (int k = 0; k < 2; k++) {
            assert_null(decode(protos[k], UNITS, &again, &n_calls));
            assert_true(tensor_equal(&t, &again));
            assert_true(n_calls >= MAX(least, (int64_t)3));
            tensor_clear(&again);
        }
        str_fini(&list);
        str_fini(&content);
        tensor_clear(&t);
    }
}

static void a_short_list_repeats_its_last_value(void **state) {
    struct tensor two = strings(2, 3), t;
    struct str proto = STR_INIT;
    int64_t n = 1000;
    proto_add_int(&proto, 1, DT_STRING);
    proto_add_shape(&proto, 2, (struct shape){1, &n});
    for (int64_t i = 0; i < 2; i++)
        proto_add_bytes(&proto, 8, tensor_string(&two, i).data, tensor_string(&two, i).len);
    assert_null(decode((struct span){proto.data, proto.len}, 10, &t, NULL));
    assert_int_equal(t.n_elements, n);
    for (int64_t i = 1; i < n; i++)
        assert_true(span_equal(tensor_string(&t, i), tensor_string(&two, 1)));
    tensor_clear(&t);
    tensor_clear(&two);
    str_fini(&proto);
}

/* A proto of one packed list. */
static void list_numbers(enum dtype dtype, int64_t size, uint32_t field, struct span packed,
                         struct str *out) {
    proto_add_int(out, 1, dtype);
    proto_add_shape(out, 2, (struct shape){1, &size});
    proto_add_bytes(out, field, packed.data, packed.len);
}

static void numbers_take_as_many_calls_as_they_are_long(void **state) {
    enum { N = 1 << 20, UNITS = 100 };
    char *bytes = xcalloc(N, 4);
    for (int i = 0; i < N; i++)
        bytes[i] = (char)(i % 100);
    static const struct {
        enum dtype dtype;
        uint32_t field;
        int64_t size, least_calls;
        size_t packed_bytes;
    } cases[] = {
        {DT_INT32, 7, N, 100, N},        /* varints */
        {DT_FLOAT, 5, N, 10, 4 * N},     /* are copied */
        {DT_FLOAT, 5, 2 * N, 20, 4 * N}, /* half of them repeated */
        {DT_INT32, 7, N / 2, 50, N},     /* more than the tensor holds */
        {DT_BOOL, 11, N, 100, N},
        {DT_COMPLEX64, 9, N, 10, 4 * 7}, /* half a number at the end */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str proto = STR_INIT;
        struct tensor value;
        int64_t n_calls;
        list_numbers(cases[i].dtype, cases[i].size, cases[i].field,
                     (struct span){bytes, cases[i].packed_bytes}, &proto);
        assert_same_in_pieces((struct span){proto.data, proto.len});
        assert_null(decode((struct span){proto.data, proto.len}, UNITS, &value, &n_calls));
        assert_true(n_calls >= cases[i].least_calls);
        tensor_clear(&value);
        str_fini(&proto);
    }
    free(bytes);
}

static void encoding_in_pieces_gives_the_same_bytes(void **state) {
    static const struct {
        int64_t n;
        size_t len;
    } cases[] = {{0, 0}, {1, 0}, {5000, 7}, {2, 3 << 20}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tensor t = strings(cases[i].n, cases[i].len);
        struct str whole = STR_INIT;
        struct tensor_encoder encoder;
        int64_t units, n_calls = 0;
        tensor_to_proto(&t, &whole);
        tensor_encoder_init(&encoder, &t);
        do {
            units = 100;
            n_calls++;
        } while (!tensor_encoder_run(&encoder, &units));
        assert_true(span_equal((struct span){whole.data, whole.len},
                               (struct span){encoder.out.data, encoder.out.len}));
        assert_true(n_calls >= cases[i].n / 100);
        tensor_encoder_fini(&encoder);
        str_fini(&whole);
        tensor_clear(&t);
    }
}

static void what_nobody_else_holds_is_released_in_pieces(void **state) {
    struct tensor t = strings(1000, 10), other;
    int n_calls = 0;
    int64_t units;
    tensor_copy(&other, &t);
    units = 10;
    assert_true(tensor_release(&t, &units)); /* it is shared: nothing is to be done */
    assert_true(span_equal(tensor_string(&other, 999), tensor_string(&other, 999)));
    do {
        units = 10;
        n_calls++;
    } while (!tensor_release(&other, &units));
    assert_int_equal(n_calls, 100);
    assert_int_equal(other.storage, TENSOR_NONE);
}

static void much_text_is_many_strings_or_long_ones(void **state) {
    struct tensor few = strings(10, 10), many = strings(5000, 1), large = strings(1, 1 << 20),
                  floats = TENSOR_INIT;
    int64_t n = 1 << 20;
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &floats));
    assert_false(tensor_has_much_text(&few));
    assert_true(tensor_has_much_text(&many));
    assert_true(tensor_has_much_text(&large));
    assert_false(tensor_has_much_text(&floats));
    tensor_clear(&few);
    tensor_clear(&many);
    tensor_clear(&large);
    tensor_clear(&floats);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensorflows_protos_decode_the_same),
        cmocka_unit_test(a_call_does_no_more_than_it_may),
        cmocka_unit_test(a_short_list_repeats_its_last_value),
        cmocka_unit_test(numbers_take_as_many_calls_as_they_are_long),
        cmocka_unit_test(encoding_in_pieces_gives_the_same_bytes),
        cmocka_unit_test(what_nobody_else_holds_is_released_in_pieces),
        cmocka_unit_test(much_text_is_many_strings_or_long_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
