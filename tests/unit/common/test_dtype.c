/* Element types: the table, names both ways, sets; and the 16-bit and 8-bit floats. */
#include "common/tensor/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/tensor/float16.h"

static void names_read_back(void **state) {
    for (int i = DT_FLOAT; i < DT_N_TYPES; i++) {
        enum dtype type = (enum dtype)i;
        assert_true(dtype_is_known(i));
        assert_int_equal(dtype_parse(span_of(dtype_name(type))), type);
        assert_int_equal(dtype_parse(span_of(dtype_name(dtype_ref(type)))), dtype_ref(type));
        assert_int_not_equal(dtype_size(type), 0);
        assert_int_equal(dtype_size(type), dtype_size(dtype_ref(type)));
        assert_true(dtype_in(type, DTYPES_ALL));
    }
    assert_string_equal(dtype_name(dtype_ref(DT_FLOAT)), "float_ref");
    assert_int_equal(dtype_parse(span_of("flot")), DT_INVALID);
    assert_int_equal(dtype_parse(span_of("")), DT_INVALID);
}

static void unknown_numbers_are_harmless(void **state) {
    const int numbers[] = {-1, 0, DT_N_TYPES, 99, 100, 134, 200, 255, INT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        assert_string_equal(dtype_name((enum dtype)numbers[i]), "invalid");
        assert_int_equal(dtype_size((enum dtype)numbers[i]), 0);
    }
}

static void sets_print_in_order_and_stay_inside_the_buffer(void **state) {
    char text[64];
    dtype_set_print(DTYPE_BIT(DT_DOUBLE) | DTYPE_BIT(DT_FLOAT), text, sizeof(text));
    assert_string_equal(text, "{float, double}");
    dtype_set_print(0, text, sizeof(text));
    assert_string_equal(text, "{}");
    for (size_t len = 1; len < sizeof(text); len++) {
        memset(text, 'x', sizeof(text));
        dtype_set_print(DTYPES_ALL, text, len);
        assert_true(strlen(text) < len);
    }
}

static void every_half_survives_float(void **state) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        float f = half_to_float((uint16_t)bits);
        if (isnan(f))
            assert_int_equal(half_from_float(f) & 0x7c00, 0x7c00);
        else
            assert_int_equal(half_from_float(f), bits);
        float b = bfloat16_to_float((uint16_t)bits);
        if (isnan(b))
            assert_true(isnan(bfloat16_to_float(bfloat16_from_float(b))));
        else
            assert_int_equal(bfloat16_from_float(b), bits);
    }
}

/* Between two neighbours: below the middle down, above it up, in the middle to the even one. */
static void halves_round_to_nearest_even(void **state) {
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        float low = half_to_float((uint16_t)bits), high = half_to_float((uint16_t)(bits + 1)),
              middle = low + (high - low) / 2;
        uint32_t even = bits & 1 ? bits + 1 : bits;
        assert_int_equal(half_from_float(middle), even);
        assert_int_equal(half_from_float(nextafterf(middle, 0)), bits);
        assert_int_equal(half_from_float(nextafterf(middle, INFINITY)), bits + 1);
        assert_int_equal(half_from_float(-middle), even | 0x8000);
    }
    assert_int_equal(half_from_float(65519.99f), 0x7bff);
    assert_int_equal(half_from_float(65520.0f), 0x7c00);
    assert_int_equal(half_from_float(1e30f), 0x7c00);
    assert_int_equal(half_from_float(-INFINITY), 0xfc00);
    assert_int_equal(half_from_float(1e-30f), 0);
}

static void bfloats_round_to_nearest_even(void **state) {
    for (uint32_t bits = 0; bits < 0x7f7f; bits++) {
        float middle = float_from_bits(bits << 16 | 0x8000);
        assert_int_equal(bfloat16_from_float(middle), bits & 1 ? bits + 1 : bits);
        assert_int_equal(bfloat16_from_float(float_from_bits(bits << 16 | 0x7fff)), bits);
        assert_int_equal(bfloat16_from_float(float_from_bits(bits << 16 | 0x8001)), bits + 1);
    }
    assert_int_equal(bfloat16_from_float(3.4e38f), 0x7f80);
}

static void small_floats_have_their_known_values(void **state) {
    assert_true(small_float_to_float(SMALL_FLOAT_E4M3FN, 0x7e) == 448);
    assert_true(isnan(small_float_to_float(SMALL_FLOAT_E4M3FN, 0x7f)));
    assert_true(small_float_to_float(SMALL_FLOAT_E4M3FN, 0x01) == 1.0f / 512);
    assert_true(small_float_to_float(SMALL_FLOAT_E5M2, 0x7b) == 57344);
    assert_true(isinf(small_float_to_float(SMALL_FLOAT_E5M2, 0xfc)));
    assert_true(isnan(small_float_to_float(SMALL_FLOAT_E5M2, 0x7d)));
    assert_true(small_float_to_float(SMALL_FLOAT_E4M3FNUZ, 0x7f) == 240);
    assert_true(isnan(small_float_to_float(SMALL_FLOAT_E4M3FNUZ, 0x80)));
    assert_true(small_float_to_float(SMALL_FLOAT_E4M3B11FNUZ, 0x7f) == 30);
    assert_true(small_float_to_float(SMALL_FLOAT_E5M2FNUZ, 0x7f) == 57344);
    assert_true(small_float_to_float(SMALL_FLOAT_E2M1FN, 0x7) == 6 &&
                small_float_to_float(SMALL_FLOAT_E2M1FN, 0x9) == -0.5f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_read_back),
        cmocka_unit_test(unknown_numbers_are_harmless),
        cmocka_unit_test(sets_print_in_order_and_stay_inside_the_buffer),
        cmocka_unit_test(every_half_survives_float),
        cmocka_unit_test(halves_round_to_nearest_even),
        cmocka_unit_test(bfloats_round_to_nearest_even),
        cmocka_unit_test(small_floats_have_their_known_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
