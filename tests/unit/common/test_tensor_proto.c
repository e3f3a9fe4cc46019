/* TensorProto in and out: what TensorFlow makes (tests/data/tensor_protos.bin), views, malformed
 * messages, our own encoding. */
#include "common/tensor/tensor_proto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/common/fixture.h"

static void assert_elements(const char *name, const struct tensor *t, struct span raw) {
    if (t->dtype == DT_STRING) {
        for (int64_t i = 0; i < t->n_elements; i++)
            if (!span_equal(tensor_string(t, i), fixture_bytes(&raw)))
                fail_msg("%s: string %d differs", name, (int)i);
        return;
    }
    if (tensor_size_bytes(t) != raw.len || memcmp(tensor_cdata(t), raw.data, raw.len) != 0)
        fail_msg("%s: elements differ", name);
}

static void tensorflows_protos_decode(void **state) {
    struct str file = STR_INIT;
    fixture_read("tensor_protos.bin", &file);
    int n_cases = 0;
    for (struct span in = {file.data, file.len}; in.len > 0; n_cases++) {
        struct span text = fixture_bytes(&in);
        char *name = xstrndup(text.data, text.len);
        uint32_t dtype = fixture_number(&in), rank = fixture_number(&in);
        int64_t dims[8];
        for (uint32_t i = 0; i < rank; i++)
            dims[i] = fixture_number(&in);
        struct span proto = fixture_bytes(&in), raw = fixture_bytes(&in);
        struct tensor t, again;
        struct status *st = tensor_from_proto(proto, NULL, allocator_host(), &t);
        if (st)
            fail_msg("%s: %s", name, status_message(st));
        assert_int_equal(t.dtype, dtype);
        assert_true(shape_equal(tensor_shape(&t), (struct shape){(int)rank, dims}));
        assert_elements(name, &t, raw);
        /* and back through our own encoding */
        struct str out = STR_INIT;
        tensor_to_proto(&t, &out);
        assert_int_equal(out.len, tensor_proto_size(&t));
        assert_null(
            tensor_from_proto((struct span){out.data, out.len}, NULL, allocator_host(), &again));
        assert_true(tensor_equal(&t, &again));
        tensor_clear(&t);
        tensor_clear(&again);
        str_fini(&out);
        free(name);
    }
    assert_true(n_cases > 200);
    str_fini(&file);
}

static struct tensor floats(int64_t n) {
    struct tensor t;
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &t));
    for (int64_t i = 0; i < n; i++)
        ((float *)tensor_data(&t))[i] = (float)i;
    return t;
}

static void head_and_elements_make_the_whole(void **state) {
    struct tensor t = floats(100);
    struct str head = STR_INIT, whole = STR_INIT;
    tensor_proto_head(&t, &head);
    str_add_bytes(&head, tensor_cdata(&t), tensor_size_bytes(&t));
    tensor_to_proto(&t, &whole);
    assert_true(
        span_equal((struct span){head.data, head.len}, (struct span){whole.data, whole.len}));
    str_fini(&head);
    str_fini(&whole);
    tensor_clear(&t);
}

static void large_aligned_content_is_shared(void **state) {
    struct tensor t = floats(10000), view;
    struct str proto = STR_INIT;
    tensor_proto_head(&t, &proto);
    size_t head = proto.len;
    struct buffer *message = buffer_alloc(allocator_host(), head + 3 + 40000);
    for (size_t shift = 0; shift < 4; shift++) {
        char *at = message->data + shift;
        memcpy(at, proto.data, head);
        memcpy(at + head, tensor_cdata(&t), 40000);
        if (shift == 3)
            break;
        assert_null(
            tensor_from_proto((struct span){at, head + 40000}, message, allocator_host(), &view));
        assert_true(tensor_equal(&t, &view));
        bool is_aligned = (uintptr_t)(at + head) % 4 == 0;
        assert_int_equal(view.buffer == message, is_aligned);
        assert_int_equal(buffer_is_sole(message), !is_aligned);
        tensor_clear(&view);
        assert_true(buffer_is_sole(message));
    }
    buffer_unref(message);
    tensor_clear(&t);
    str_fini(&proto);
}

static void bools_are_cleaned(void **state) {
    const char proto[] = "\x08\x0a\x12\x04\x12\x02\x08\x03\x22\x03\x00\x02\xff";
    struct tensor t;
    assert_null(
        tensor_from_proto((struct span){proto, sizeof(proto) - 1}, NULL, allocator_host(), &t));
    assert_memory_equal(tensor_cdata(&t), "\0\1\1", 3);
    tensor_clear(&t);
}

static void a_splat_of_zeros_may_be_large(void **state) {
    /* dtype float, shape [2^28], float_val 0: 1 GiB that nobody touches */
    const char proto[] = "\x08\x01\x12\x08\x12\x06\x08\x80\x80\x80\x80\x01\x2a\x04\0\0\0\0";
    struct tensor t;
    struct status *st =
        tensor_from_proto((struct span){proto, sizeof(proto) - 1}, NULL, allocator_host(), &t);
    if (status_code(st) == STATUS_RESOURCE_EXHAUSTED) {
        status_unref(st);
        skip(); /* a very small machine */
    }
    assert_null(st);
    assert_int_equal(tensor_n_elements(&t), 1 << 28);
    tensor_clear(&t);
    allocator_host_trim();
}

static void a_few_bytes_do_not_claim_much_memory(void **state) {
    struct str small = STR_INIT, large = STR_INIT;
    int64_t dims[] = {1 << 20};
    char *content = calloc(1, 4 << 20);
    proto_add_int(&small, 1, DT_FLOAT);
    proto_add_shape(&small, 2, (struct shape){1, dims});
    assert_null(tensor_proto_check_claim((struct span){small.data, small.len}, 4 << 20));
    struct status *st = tensor_proto_check_claim((struct span){small.data, small.len}, 1 << 20);
    assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
    status_unref(st);
    str_add_bytes(&large, small.data, small.len);
    proto_add_bytes(&large, 4, content, 4 << 20);
    assert_null(tensor_proto_check_claim((struct span){large.data, large.len}, 0));
    /* malformed: tensor_from_proto says so */
    assert_null(tensor_proto_check_claim((struct span){"\xff", 1}, 0));
    str_fini(&small);
    str_fini(&large);
    free(content);
}

static void malformed_protos_are_refused(void **state) {
#define PROTO(text) \
    { text, sizeof(text) - 1 }
    const struct span protos[] = {
        PROTO(""),         /* no type */
        PROTO("\x08\x00"), /* type 0 */
        /* a reference type */
        PROTO("\x08\x65"), PROTO("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), /* type -1 */
        PROTO("\x08"),                                                            /* cut */
        /* cut in the shape */
        PROTO("\x08\x01\x12\x05\x12"),
        /* unknown rank */
        PROTO("\x08\x01\x12\x02\x18\x01"),
        PROTO("\x08\x01\x12\x0d\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), /* size -1 */
        PROTO("\x08\x01\x22\x03"
              "abc"), /* 3 bytes for a float */
        PROTO("\x08\x01\x22\x08"
              "abcdefgh"), /* two floats for a scalar */
        PROTO("\x08\x01\x2a\x03"
              "abc"),                      /* packed floats cut */
        PROTO("\x08\x03\x3a\x02\xff\xff"), /* a packed varint cut */
        PROTO("\x08\x07\x22\x03\x01"
              "ab"), /* strings: one byte too many */
        PROTO("\x08\x07\x22\x02\x05"
              "a"),                                            /* strings: too short */
        PROTO("\x08\x07\x12\x04\x12\x02\x08\x09\x22\x01\x00"), /* strings: too few lengths */
        PROTO("\x08\x14\x72\x02\x0a\x05"),                     /* a handle cut */
        PROTO("\x08\x01\x0b\x0c"),                             /* a group */
        PROTO("\x08\x01\x00\x00"),                             /* field 0 */
    };
    for (size_t i = 0; i < ARRAY_LEN(protos); i++) {
        struct tensor t;
        /* exactly as long, so that reading past the end is seen */
        char *copy = xmalloc(protos[i].len + 1);
        memcpy(copy, protos[i].data, protos[i].len);
        struct status *st =
            tensor_from_proto((struct span){copy, protos[i].len}, NULL, allocator_host(), &t);
        if (status_code(st) != STATUS_INVALID_ARGUMENT)
            fail_msg("case %zu: %s %s", i, status_code_name(status_code(st)), status_message(st));
        status_unref(st);
        free(copy);
    }
    /* float[2^40, 2^40] and float[2^50] */
    const struct span large[] = {
        PROTO("\x08\x01\x12\x10\x12\x07\x08\x80\x80\x80\x80\x80\x20\x12\x07\x08\x80\x80\x80\x80\x80"
              "\x20"),
        PROTO("\x08\x01\x12\x0b\x12\x09\x08\x80\x80\x80\x80\x80\x80\x80\x02"),
    };
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        struct tensor t;
        struct status *st = tensor_from_proto(large[i], NULL, allocator_host(), &t);
        assert_non_null(st);
        status_unref(st);
    }
}

static void handles_and_variants_travel(void **state) {
    struct tensor t, back;
    int64_t n = 3;
    assert_null(tensor_new(allocator_host(), DT_RESOURCE, (struct shape){1, &n}, &t));
    tensor_set_object(
        &t, 0,
        &resource_handle_new("/device:CPU:0", "c", "v", "variable", DT_DOUBLE, NULL)->object);
    tensor_set_object(&t, 2, &resource_handle_new("", "", "w", "", DT_INVALID, NULL)->object);
    struct str out = STR_INIT;
    tensor_to_proto(&t, &out);
    assert_int_equal(out.len, tensor_proto_size(&t));
    assert_null(tensor_from_proto((struct span){out.data, out.len}, NULL, allocator_host(), &back));
    struct resource_handle *const *handles = tensor_cdata(&back);
    assert_string_equal(handles[0]->device, "/device:CPU:0");
    assert_string_equal(handles[0]->container, "c");
    assert_int_equal(handles[0]->dtype, DT_DOUBLE);
    assert_int_equal(handles[0]->hash,
                     ((struct resource_handle *const *)tensor_cdata(&t))[0]->hash);
    assert_string_equal(handles[2]->name, "w");
    tensor_clear(&t);
    tensor_clear(&back);
    str_clear(&out);

    assert_null(tensor_new(allocator_host(), DT_VARIANT, (struct shape){1, &n}, &t));
    tensor_set_object(&t, 1, &variant_proto_new(span_of("\x0a\x04kind"))->object);
    tensor_to_proto(&t, &out);
    assert_int_equal(out.len, tensor_proto_size(&t));
    assert_null(tensor_from_proto((struct span){out.data, out.len}, NULL, allocator_host(), &back));
    struct bytes *const *variants = tensor_cdata(&back);
    assert_null(variants[0]);
    assert_true(span_is(bytes_span(variants[1]), "\x0a\x04kind"));
    tensor_clear(&t);
    tensor_clear(&back);
    str_fini(&out);
}

static void lengths_are_filled_in_place(void **state) {
    char text[400];
    memset(text, 'x', sizeof(text));
    const size_t lengths[] = {0, 1, 127, 128, 300, 400}, hints[] = {0, 100, 200, 100000};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        for (size_t k = 0; k < ARRAY_LEN(hints); k++) {
            struct str out = STR_INIT;
            size_t begin = proto_begin(&out, 3, hints[k]);
            str_add_bytes(&out, text, lengths[i]);
            proto_end(&out, begin, hints[k]);
            proto_add_int(&out, 4, 9);
            struct span in = {out.data, out.len};
            struct proto_field field;
            assert_int_equal(proto_next(&in, &field), 1);
            assert_true(field.number == 3 && field.bytes.len == lengths[i] &&
                        memcmp(field.bytes.data, text, lengths[i]) == 0);
            assert_int_equal(proto_next(&in, &field), 1);
            assert_true(field.number == 4 && field.value == 9);
            assert_int_equal(proto_next(&in, &field), 0);
            str_fini(&out);
        }
}

static void varints_read_back(void **state) {
    const uint64_t values[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        struct str out = STR_INIT;
        uint64_t back;
        proto_add_varint(&out, values[i]);
        assert_int_equal(out.len, proto_varint_size(values[i]));
        struct span in = {out.data, out.len}, cut = {out.data, out.len - 1};
        assert_false(proto_read_varint(&cut, &back));
        assert_true(proto_read_varint(&in, &back));
        assert_true(back == values[i] && in.len == 0);
        str_fini(&out);
    }
}

static void a_peek_reads_the_head_and_no_values(void **state) {
    enum { MAX_FIELDS = 5 };
    static const struct {
        struct span proto;
        enum tensor_proto_peek_result result;
        enum dtype dtype;
        int64_t n;
        size_t content_bytes;
    } cases[] = {
        {{"\x08\x07\x12\x08\x12\x02\x08\x02\x12\x02\x08\x03\x42\xff", 14}, PEEK_READ, DT_STRING, 6},
        {{"\x12\x00\x08\x01", 4}, PEEK_READ, DT_FLOAT, 1},
        {{"\x08\x04\x12\x00\x22\x01\x09", 7}, PEEK_READ, DT_UINT8, 1, 1},
        {{"\x08\x07", 2}, PEEK_READ, DT_STRING, 1},                         /* no shape: a scalar */
        {{"\x12\x00", 2}, PEEK_INVALID},                                    /* no dtype */
        {{"\x08\x7f\x12\x00", 4}, PEEK_INVALID},                            /* an unknown dtype */
        {{"\x42\x00\x42\x00\x08\x07\x12\x00", 8}, PEEK_READ, DT_STRING, 1}, /* values first */
        {{"\x22\x01\x09\x12\x00\x08\x04", 7}, PEEK_READ, DT_UINT8, 1, 1},
        {{"\x42\x00\x42\x00\x42\x00\x42\x00\x08\x07\x12\x00", 12}, PEEK_ENDLESS},
        {{"\x08", 1}, PEEK_INVALID},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tensor_proto_peek peek;
        assert_int_equal(tensor_proto_peek(cases[i].proto, MAX_FIELDS, &peek), cases[i].result);
        if (cases[i].result == PEEK_READ) {
            assert_int_equal(peek.dtype, cases[i].dtype);
            assert_int_equal(peek.n_elements, cases[i].n);
            assert_int_equal(peek.content.len, cases[i].content_bytes);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensorflows_protos_decode),
        cmocka_unit_test(head_and_elements_make_the_whole),
        cmocka_unit_test(large_aligned_content_is_shared),
        cmocka_unit_test(bools_are_cleaned),
        cmocka_unit_test(a_splat_of_zeros_may_be_large),
        cmocka_unit_test(a_few_bytes_do_not_claim_much_memory),
        cmocka_unit_test(malformed_protos_are_refused),
        cmocka_unit_test(handles_and_variants_travel),
        cmocka_unit_test(lengths_are_filled_in_place),
        cmocka_unit_test(varints_read_back),
        cmocka_unit_test(a_peek_reads_the_head_and_no_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
