/* Checks .npy files: NumPy's own bytes, both orders, round trips, damage. */
#include "common/tensor/npy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* A file as NumPy writes it: version `major`, header text, elements. */
static struct str file_of(int major, const char *header, const void *elements, size_t len) {
    struct str out = STR_INIT;
    size_t n = strlen(header);
    const char lengths[4] = {(char)(n & 0xff), (char)(n >> 8), 0, 0};
    str_add_bytes(&out, "\x93NUMPY", 6);
    str_add_char(&out, (char)major);
    str_add_char(&out, 0);
    str_add_bytes(&out, lengths, major == 1 ? 2 : 4);
    str_add_bytes(&out, header, n);
    str_add_bytes(&out, elements, len);
    return out;
}

static void assert_parses(struct str file, const char *expected) {
    struct tensor t;
    struct str out = STR_INIT;
    struct status *st = npy_parse((struct span){file.data, file.len}, allocator_host(), &t);
    if (st)
        fail_msg("%s", status_message(st));
    tensor_print(&t, 100, &out);
    assert_string_equal(str_text(&out), expected);
    tensor_clear(&t);
    str_fini(&out);
    str_fini(&file);
}

static void both_orders_and_byte_orders_are_read(void **state) {
    const int16_t six[] = {1, 2, 3, 4, 5, 6};
    assert_parses(file_of(1, "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }       \n",
                          six, sizeof(six)),
                  "int16[2,3]{1, 2, 3, 4, 5, 6}");
    assert_parses(file_of(2, "{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }\n", six,
                          sizeof(six)),
                  "int16[2,3]{1, 3, 5, 2, 4, 6}");
    assert_parses(file_of(1, "{'descr': '<i2', 'fortran_order': True, 'shape': (1, 2, 3), }\n", six,
                          sizeof(six)),
                  "int16[1,2,3]{1, 3, 5, 2, 4, 6}");
    assert_parses(
        file_of(1, "{'shape': (2,), 'descr': '>i2', 'fortran_order': False}\n", "\0\1\1\0", 4),
        "int16[2]{1, 256}");
    assert_parses(file_of(1, "{'shape': (1,), 'descr': '>c8', 'fortran_order': False}\n",
                          "\x3f\x80\0\0\x40\0\0\0", 8),
                  "complex64[1]{(1,2)}");
    assert_parses(
        file_of(3, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }\n", "\0\1\7", 3),
        "bool[3]{false, true, true}");
    assert_parses(file_of(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (0, 3), }\n", "", 0),
                  "float[0,3]{}");
    assert_parses(file_of(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n",
                          "\0\0\0\0\0\0\xf8\x3f", 8),
                  "double[]{1.5}");
}

static void every_type_of_numpy_makes_the_round_trip(void **state) {
    const enum dtype types[] = {DT_BOOL,  DT_INT8,   DT_INT16,     DT_INT32,     DT_INT64,
                                DT_UINT8, DT_UINT16, DT_UINT32,    DT_UINT64,    DT_HALF,
                                DT_FLOAT, DT_DOUBLE, DT_COMPLEX64, DT_COMPLEX128};
    const int64_t dims[] = {3, 1, 5};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct tensor t, back;
        char path[] = "/tmp/test_npy_XXXXXX";
        int file = mkstemp(path);
        assert_true(file >= 0);
        close(file);
        assert_null(tensor_new(allocator_host(), types[i], (struct shape){3, dims}, &t));
        for (size_t k = 0; k < tensor_size_bytes(&t); k++)
            ((uint8_t *)tensor_data(&t))[k] = (uint8_t)(k % 2);
        assert_null(npy_write(path, &t));
        assert_null(npy_read(path, allocator_host(), &back));
        assert_true(tensor_equal(&t, &back));
        struct str head = STR_INIT;
        assert_null(npy_head(&t, &head));
        assert_int_equal(head.len % 64, 0);
        str_fini(&head);
        tensor_clear(&t);
        tensor_clear(&back);
        unlink(path);
    }
}

static void what_numpy_lacks_is_refused(void **state) {
    struct tensor t;
    struct str head = STR_INIT;
    tensor_init_scalar(&t, DT_BFLOAT16, "\0\0");
    struct status *st = npy_head(&t, &head);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    st = npy_write("/no/such/folder/a.npy",
                   &(struct tensor){.dtype = DT_FLOAT, .storage = TENSOR_INLINE});
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    status_unref(st);
    st = npy_read("/no/such/folder/a.npy", allocator_host(), &t);
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    status_unref(st);
}

static void assert_refused(struct span bytes) {
    struct tensor t;
    struct status *st = npy_parse(bytes, allocator_host(), &t);
    if (!st)
        fail_msg("'%.*s' was taken", (int)bytes.len, bytes.data);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
}

static void damaged_files_are_refused(void **state) {
    const char *const headers[] = {
        "",
        "{",
        "{}",
        "{'descr': '<f4'}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)",
        "{'descr': '<f4', 'fortran_order': 1, 'shape': (2,)}",
        "{'descr': '<U4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (100,)}",
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, "
         "9223372036854775807)}"),
        "{'descr': '<f4x', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
    };
    for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
        struct str file = file_of(1, headers[i], "0123456789abcdef", 16);
        assert_refused((struct span){file.data, file.len});
        str_fini(&file);
    }
    struct str file = file_of(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n",
                              "0123456789abcdef", 16);
    for (size_t len = 0; len < file.len; len++) {
        char *cut = xmalloc(len + 1);
        memcpy(cut, file.data, len);
        assert_refused((struct span){cut, len});
        free(cut);
    }
    file.data[6] = 9;
    assert_refused((struct span){file.data, file.len});
    str_fini(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_orders_and_byte_orders_are_read),
        cmocka_unit_test(every_type_of_numpy_makes_the_round_trip),
        cmocka_unit_test(what_numpy_lacks_is_refused),
        cmocka_unit_test(damaged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
