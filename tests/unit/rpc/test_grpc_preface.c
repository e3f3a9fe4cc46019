/* The header of the PROXY protocol before HTTP/2, in one piece and byte by byte. */
#include "rpc/grpc/grpc_preface.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const char task[] = "/job:worker/replica:0/task:3";
static const char http2[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/* What comes out when so many bytes come at a time; *ret_left: how many are left for HTTP/2. */
static enum grpc_preface_outcome feed(const struct str *bytes, size_t step,
                                      struct grpc_preface *preface, size_t *ret_left) {
    enum grpc_preface_outcome outcome = PREFACE_MORE;
    *ret_left = 0;
    memset(preface, 0, sizeof(*preface));
    for (size_t at = 0; at < bytes->len && outcome == PREFACE_MORE;) {
        const char *data = bytes->data + at;
        size_t len = MIN(step, bytes->len - at), n = len;
        outcome = grpc_preface_feed(preface, &data, &len);
        at += n - len;
        *ret_left = bytes->len - at;
    }
    return outcome;
}

static void test_what_was_written_is_read(void **state) {
    for (size_t step = 1; step < 200; step = step * 2 + 1) {
        struct str bytes = STR_INIT;
        struct grpc_preface preface;
        size_t left;
        grpc_preface_write(&bytes, -1, task);
        str_add(&bytes, http2);
        assert_int_equal(feed(&bytes, step, &preface, &left), PREFACE_OVER);
        assert_string_equal(preface.task, task);
        assert_int_equal(left, sizeof(http2) - 1);
        str_fini(&bytes);
    }
}

static void test_http2_alone_passes(void **state) {
    struct str bytes = STR_INIT;
    struct grpc_preface preface;
    size_t left;
    str_add(&bytes, http2);
    assert_int_equal(feed(&bytes, 5, &preface, &left), PREFACE_OVER);
    assert_int_equal(left, sizeof(http2) - 1);
    assert_string_equal(preface.task, "");
    str_fini(&bytes);
}

/* The bytes of a header with some changed. */
static enum grpc_preface_outcome feed_changed(size_t at, int value, size_t cut) {
    struct str bytes = STR_INIT;
    struct grpc_preface preface;
    size_t left;
    grpc_preface_write(&bytes, -1, task);
    bytes.data[at] = (char)value;
    bytes.len -= cut;
    enum grpc_preface_outcome outcome = feed(&bytes, 1000, &preface, &left);
    str_fini(&bytes);
    return outcome;
}

static void test_malformed_headers(void **state) {
    assert_int_equal(feed_changed(5, 'x', 0), PREFACE_BAD);    /* signature */
    assert_int_equal(feed_changed(12, 0x11, 0), PREFACE_BAD);  /* version 1 */
    assert_int_equal(feed_changed(12, 0x2f, 0), PREFACE_BAD);  /* no such command */
    assert_int_equal(feed_changed(13, 0x21, 0), PREFACE_BAD);  /* addresses that are not there */
    assert_int_equal(feed_changed(14, 0x7f, 0), PREFACE_BAD);  /* longer than any */
    assert_int_equal(feed_changed(17, 0x01, 0), PREFACE_BAD);  /* a field longer than the header */
    assert_int_equal(feed_changed(12, 0x20, 0), PREFACE_OVER); /* LOCAL: nothing is looked at */
    assert_int_equal(feed_changed(16, 0x04, 0), PREFACE_OVER); /* another field is passed over */
    assert_int_equal(feed_changed(12, 0x21, 1), PREFACE_MORE); /* not whole */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_was_written_is_read),
                                       cmocka_unit_test(test_http2_alone_passes),
                                       cmocka_unit_test(test_malformed_headers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
