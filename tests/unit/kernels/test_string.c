/* The string family where TensorFlow cannot be asked: published test vectors of the hashes, NULs
 * inside UTF-8, shared objects. What the ops compute is compared with TensorFlow in
 * tests/differential/cases_string.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/host/text/string_internal.h"
#include "kernels/host/text/utf8.h"
#include "kernels/support/hashes.h"
#include "tests/unit/kernels/kernel_test.h"

static void test_hashes_give_the_published_answers(void **state) {
    unsigned char bytes[15];
    uint64_t key0 = 0x0706050403020100, key1 = 0x0f0e0d0c0b0a0908;
    for (int i = 0; i < 15; i++)
        bytes[i] = (unsigned char)i;
    /* the paper's appendix A */
    assert_true(hash_sip24(bytes, 15, key0, key1) == 0xa129ca6149be45e5);
    assert_true(hash_sip24(bytes, 0, key0, key1) == 0x726fdb47dd0e0e31);
    assert_true(hash_fingerprint64("", 0) == 0x9ae16a3b2f90404f);
    assert_true(hash_murmur64("", 0, 0) == 0);
}

/* Any length, any alignment, exactly the bytes given (ASan is the judge of reads beyond). */
static void test_hashes_read_exactly_their_bytes(void **state) {
    for (size_t len = 0; len < 300; len++) {
        char *exact = malloc(len ? len : 1), *shifted = malloc(len + 3);
        for (size_t i = 0; i < len; i++)
            exact[i] = shifted[i + 3] = (char)(i * 7);
        assert_true(hash_fingerprint64(exact, len) == hash_fingerprint64(shifted + 3, len));
        assert_true(hash_murmur64(exact, len, 1) == hash_murmur64(shifted + 3, len, 1));
        assert_true(hash_sip24(exact, len, 1, 2) == hash_sip24(shifted + 3, len, 1, 2));
        free(exact);
        free(shifted);
    }
}

static void expect_case(const char *text, size_t len, const char *lower, const char *upper) {
    struct str out = STR_INIT;
    utf8_to_lower((struct span){text, len}, &out);
    assert_string_equal(str_text(&out), lower);
    str_clear(&out);
    utf8_to_upper((struct span){text, len}, &out);
    assert_string_equal(str_text(&out), upper);
    str_fini(&out);
}

static void test_case_mapping(void **state) {
    expect_case("Stra\xc3\x9f"
                "e",
                7,
                "stra\xc3\x9f"
                "e",
                "STRASSE");
    /* ΑΣ Σ */
    expect_case("\xce\x91\xce\xa3 \xce\xa3", 7, "\xce\xb1\xcf\x82 \xcf\x83",
                "\xce\x91\xce\xa3 \xce\xa3");
    expect_case("\xff\xc3", 2, "\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd\xef\xbf\xbd");
    expect_case("", 0, "", "");
    struct str out = STR_INIT;
    utf8_to_upper((struct span){"a\0b", 3}, &out);
    assert_int_equal(out.len, 3);
    assert_memory_equal(out.data, "A\0B", 3);
    str_fini(&out);
}

static void test_ops_in_a_line(void **state) {
    kernel_test_run("a = Const() {dtype=string, value=string[2]{\"a b  c\", \"\"}}\ns = Const() "
                    "{dtype=string, value=string[]{\"\"}}\n"
                    "r = StringSplitV2(a, s) {}",
                    "r:1", "string[3]{\"a\", \"b\", \"c\"}");
    kernel_test_run("a = Const() {dtype=float, value=float[3]{1, 2, 3}}\nr = StringFormat(a) "
                    "{T=[float], template=\"x=%s.\"}",
                    "r", "string[]{\"x=[1 2 3].\"}");
    kernel_test_run("a = Const() {dtype=int32, value=int32[2]{-5, 7}}\nr = AsString(a) {T=int32, "
                    "width=4, fill=\"0\"}",
                    "r", "string[2]{\"-005\", \"0007\"}");
}

static void test_wrong_attrs_fail_when_the_node_is_prepared(void **state) {
    kernel_test_fails(
        "a = Const() {dtype=int32, value=int32[]{1}}\nr = AsString(a) {T=int32, fill=\"xx\"}", "r",
        STATUS_INVALID_ARGUMENT, "Fill string must be one or fewer characters");
    kernel_test_fails("a = Const() {dtype=int32, value=int32[]{1}}\nr = StringFormat(a) "
                      "{T=[int32], template=\"%s %s\"}",
                      "r", STATUS_INVALID_ARGUMENT,
                      "num placeholders in template and num inputs must match: 2 vs. 1");
    kernel_test_fails("a = Const() {dtype=string, value=string[]{\"x\"}}\nr = "
                      "StringToHashBucketStrong(a) {num_buckets=9, key=[1]}",
                      "r", STATUS_INVALID_ARGUMENT, "Key must have 2 elements");
}

/* Runs the node `r` on a long text, in a step that has been cancelled. */
static void expect_stops(const char *graph_text) {
    struct test_host *host = test_host_new(0);
    struct test_graph graph;
    struct test_step step;
    struct test_call call;
    struct tensor value = TENSOR_INIT, inputs[2] = {TENSOR_INIT, TENSOR_INIT};
    const char *fetch = "r";
    const int64_t one = 1;
    char *text = malloc(1 << 20);
    memset(text, 'a', 1 << 20);
    test_graph_init(&graph, host);
    assert_null(graph_parse(graph_text, &graph.graph));
    assert_null(test_graph_prepare(&graph));
    assert_null(test_graph_run(&graph, NULL, 0, &fetch, 1, NULL, 0, &value));
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){1, &one}, &inputs[0]));
    assert_null(tensor_new(allocator_host(), DT_STRING, SHAPE_SCALAR, &inputs[1]));
    tensor_set_string(&inputs[0], 0, text, 1 << 20);
    tensor_set_string(&inputs[1], 0, "", 0);
    test_step_init(&step, host);
    test_step_cancel(&step, status_new(STATUS_CANCELLED, "enough"));
    test_call_start(&call, &step, &graph.instances[graph_find(&graph.graph, "r")->id], inputs);
    struct status *st = test_call_wait(&call, 10000);
    assert_int_equal(status_code(st), STATUS_CANCELLED);
    status_unref(st);
    test_call_fini(&call);
    test_step_fini(&step);
    tensor_clear(&value);
    tensor_clear(&inputs[0]);
    tensor_clear(&inputs[1]);
    test_graph_fini(&graph);
    test_host_free(host);
    free(text);
}

static void test_a_cancelled_step_ends_within_a_long_text(void **state) {
    expect_stops("a = Const() {dtype=string, value=string[1]{\"x\"}}\n"
                 "d = Const() {dtype=string, value=string[]{\"\"}}\n"
                 "r = StringSplit(a, d)");
    expect_stops("a = Const() {dtype=string, value=string[1]{\"x\"}}\n"
                 "r = UnicodeDecode(a) {input_encoding=\"UTF-8\"}");
    expect_stops("a = Const() {dtype=string, value=string[1]{\"x\"}}\n"
                 "r = UnicodeTranscode(a) {input_encoding=\"UTF-8\", "
                 "output_encoding=\"UTF-16-BE\"}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hashes_give_the_published_answers),
        cmocka_unit_test(test_hashes_read_exactly_their_bytes),
        cmocka_unit_test(test_case_mapping),
        cmocka_unit_test(test_ops_in_a_line),
        cmocka_unit_test(test_wrong_attrs_fail_when_the_node_is_prepared),
        cmocka_unit_test(test_a_cancelled_step_ends_within_a_long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
