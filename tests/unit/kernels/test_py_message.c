/* Requests of clients that serve Python functions: sound ones are read, hostile ones refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/str.h"
#include "kernels/host/calls/py_message.h"

/* A blob as a tensor whose memory ends where the blob does, so that reading past it is seen. */
static void blob_of(const struct str *bytes, struct tensor *ret) {
    *ret = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_UINT8,
                           (struct shape){1, &(int64_t){(int64_t)bytes->len}}, ret));
    if (bytes->len)
        memcpy(tensor_data(ret), bytes->data, bytes->len);
}

static void add_head(struct str *out, uint32_t kind, uint32_t message_len, uint32_t n_values) {
    uint64_t ids[2] = {77, 5};
    uint32_t head[4] = {kind, 3, message_len, n_values};
    str_add_bytes(out, ids, sizeof(ids));
    str_add_bytes(out, head, sizeof(head));
}

static void pad_to(struct str *out, size_t align) {
    while (out->len % align)
        str_add_char(out, '\0');
}

static void add_value(struct str *out, uint32_t dtype, int64_t n, const void *elements,
                      uint64_t size) {
    uint32_t head[2] = {dtype, 1};
    pad_to(out, 8);
    str_add_bytes(out, head, sizeof(head));
    str_add_bytes(out, &size, sizeof(size));
    str_add_bytes(out, &n, sizeof(n));
    pad_to(out, 64);
    str_add_bytes(out, elements, size);
}

/* 100 floats, then the strings "ab" and "". */
static void add_sound_request(struct str *out) {
    float floats[100];
    uint64_t lengths[2] = {2, 0};
    char strings[18];
    for (int i = 0; i < 100; i++)
        floats[i] = (float)i;
    memcpy(strings, lengths, sizeof(lengths));
    memcpy(strings + sizeof(lengths), "ab", 2);
    add_head(out, PY_SERVE, 0, 2);
    add_value(out, DT_FLOAT, 100, floats, sizeof(floats));
    add_value(out, DT_STRING, 2, strings, sizeof(strings));
}

static struct status *read_all(const struct tensor *blob, struct tensor values[2]) {
    struct py_request request;
    TRY(py_request_read(blob, &request));
    if (request.n_values > 2)
        return status_invalid("more values than the test gives");
    return py_values_read(blob, &request, NULL, allocator_host(), values);
}

static void sound_values_are_read(void **state) {
    struct str bytes = STR_INIT;
    struct tensor blob, values[2] = {TENSOR_INIT, TENSOR_INIT};
    add_sound_request(&bytes);
    blob_of(&bytes, &blob);
    assert_null(read_all(&blob, values));
    assert_int_equal(values[0].dtype, DT_FLOAT);
    assert_true(((const float *)tensor_cdata(&values[0]))[99] == 99);
    assert_ptr_equal(values[0].buffer, blob.buffer); /* a view, not a copy */
    assert_true(span_is(tensor_string(&values[1], 0), "ab"));
    assert_int_equal(tensor_string(&values[1], 1).len, 0);
    tensor_clear(&values[0]);
    tensor_clear(&values[1]);
    tensor_clear(&blob);
    str_fini(&bytes);
}

static void every_cut_is_refused(void **state) {
    struct str bytes = STR_INIT;
    add_sound_request(&bytes);
    for (size_t len = bytes.len - 1; len > 0; len--) {
        struct tensor blob, values[2] = {TENSOR_INIT, TENSOR_INIT};
        struct str cut = STR_INIT;
        str_add_bytes(&cut, bytes.data, len);
        blob_of(&cut, &blob);
        struct status *st = read_all(&blob, values);
        assert_non_null(st);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        assert_int_equal(values[0].storage, TENSOR_NONE);
        assert_int_equal(values[1].storage, TENSOR_NONE);
        status_unref(st);
        tensor_clear(&blob);
        str_fini(&cut);
    }
    str_fini(&bytes);
}

static void claims_beyond_the_bytes_are_refused(void **state) {
    static const struct {
        uint32_t dtype;
        int64_t n;
        uint64_t size;
    } claims[] = {{DT_FLOAT, INT64_MAX, 4},
                  {DT_FLOAT, -1, 4},
                  {DT_STRING, 1 << 20, 8},
                  {DT_FLOAT, 2, 4},
                  {DT_RESOURCE, 1, 8},
                  {DT_VARIANT, 1, 8},
                  {0, 1, 4},
                  {200, 1, 4}};
    for (size_t i = 0; i < ARRAY_LEN(claims); i++) {
        struct str bytes = STR_INIT;
        struct tensor blob, values[2] = {TENSOR_INIT, TENSOR_INIT};
        add_head(&bytes, PY_SERVE, 0, 1);
        add_value(&bytes, claims[i].dtype, claims[i].n, "\0\0\0\0\0\0\0", claims[i].size);
        blob_of(&bytes, &blob);
        struct status *st = read_all(&blob, values);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        status_unref(st);
        tensor_clear(&blob);
        str_fini(&bytes);
    }
}

static void bools_are_made_bools(void **state) {
    struct str bytes = STR_INIT;
    struct tensor blob, values[2] = {TENSOR_INIT, TENSOR_INIT};
    char odd[40];
    memset(odd, 0x80, sizeof(odd));
    add_head(&bytes, PY_SERVE, 0, 1);
    add_value(&bytes, DT_BOOL, 40, odd, sizeof(odd));
    blob_of(&bytes, &blob);
    assert_null(read_all(&blob, values));
    for (int i = 0; i < 40; i++)
        assert_int_equal(((const uint8_t *)tensor_cdata(&values[0]))[i], 1);
    tensor_clear(&values[0]);
    tensor_clear(&blob);
    str_fini(&bytes);
}

static void a_call_names_what_python_cannot_have(void **state) {
    struct tensor handle = TENSOR_INIT, blob = TENSOR_INIT;
    tensor_init_scalar_object(&handle, DT_RESOURCE, NULL);
    struct py_call call = {.id = 1, .token = span_of("pyfunc_0"), .values = &handle, .n_values = 1};
    struct status *st = py_call_write(&call, allocator_host(), &blob);
    assert_int_equal(status_code(st), STATUS_UNIMPLEMENTED);
    assert_non_null(strstr(status_message(st), "resource"));
    status_unref(st);
    tensor_clear(&handle);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_values_are_read),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(claims_beyond_the_bytes_are_refused),
        cmocka_unit_test(bools_are_made_bools),
        cmocka_unit_test(a_call_names_what_python_cannot_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
