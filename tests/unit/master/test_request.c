/* RunStepRequest by hand: what a client sends, every truncation of it, and where its large
 * content starts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/tensor/tensor_proto.h"
#include "master/request/request.h"

static void add_message(struct str *out, uint32_t number, const struct str *message) {
    proto_add_bytes(out, number, message->data, message->len);
}

/* A feed "x:0" of `content_len` bytes, fetch "y:0", target "t", options {trace 3, timeout 1500},
 * request id -1. */
static void make_request(struct str *out, size_t content_len) {
    struct str tensor = STR_INIT, named = STR_INIT, options = STR_INIT;
    char *content = calloc(1, content_len + 1);
    proto_add_int(&tensor, 1, DT_UINT8);
    proto_add_bytes(&tensor, 2, "", 0);
    proto_add_bytes(&tensor, 4, content, content_len);
    proto_add_bytes(&named, 1, "x:0", 3);
    add_message(&named, 2, &tensor);
    proto_add_int(&options, 1, 3);
    proto_add_int(&options, 2, 1500);
    proto_add_bytes(out, 1, "handle", 6);
    add_message(out, 2, &named);
    proto_add_bytes(out, 3, "y:0", 3);
    proto_add_bytes(out, 4, "t", 1);
    add_message(out, 5, &options);
    proto_add_int(out, 7, 1);
    proto_add_int(out, 8, (uint64_t)-1);
    str_fini(&tensor);
    str_fini(&named);
    str_fini(&options);
    free(content);
}

static void every_field_is_read(void **state) {
    struct str bytes = STR_INIT;
    struct arena arena;
    struct run_step_request request;
    arena_init(&arena);
    make_request(&bytes, 10);
    assert_null(run_step_request_parse((struct span){bytes.data, bytes.len}, &arena, &request));
    assert_true(span_is(request.session_handle, "handle"));
    assert_int_equal(request.n_feeds, 1);
    assert_true(span_is(request.feed_names[0], "x:0"));
    assert_int_equal(request.n_fetches, 1);
    assert_true(span_is(request.fetches[0], "y:0"));
    assert_int_equal(request.n_targets, 1);
    assert_true(span_is(request.targets[0], "t"));
    assert_int_equal(request.trace_level, 3);
    assert_int_equal(request.timeout_ms, 1500);
    assert_true(request.store_errors_in_response_body);
    assert_true(request.request_id == UINT64_MAX);
    str_fini(&bytes);
    arena_fini(&arena);
}

/* Steps that a debugger watches are compiled for themselves, whatever their number is. */
static void watches_are_part_of_the_key(void **state) {
    struct str keys[3] = {STR_INIT, STR_INIT, STR_INIT};
    for (int i = 0; i < 3; i++) {
        struct str bytes = STR_INIT, options = STR_INIT, debug = STR_INIT, watch = STR_INIT;
        struct arena arena;
        struct run_step_request request;
        arena_init(&arena);
        proto_add_bytes(&watch, 1, "hidden/Relu", 11);
        proto_add_int(&debug, 10, (uint64_t)i); /* global_step */
        if (i > 0)
            add_message(&debug, 4, &watch);
        add_message(&options, 6, &debug);
        proto_add_bytes(&bytes, 1, "handle", 6);
        add_message(&bytes, 5, &options);
        assert_null(run_step_request_parse((struct span){bytes.data, bytes.len}, &arena, &request));
        assert_int_equal(request.n_watches, i > 0);
        struct span key = run_step_request_key(&request, &arena);
        str_add_bytes(&keys[i], key.data, key.len);
        str_fini(&bytes);
        str_fini(&options);
        str_fini(&debug);
        str_fini(&watch);
        arena_fini(&arena);
    }
    assert_true(keys[0].len < keys[1].len);
    assert_int_equal(keys[1].len, keys[2].len);
    assert_memory_equal(keys[1].data, keys[2].data, keys[1].len);
    for (int i = 0; i < 3; i++)
        str_fini(&keys[i]);
}

/* The loop reads all fields at once, so their number is bounded. */
static void too_many_names_are_refused(void **state) {
    for (int more = 0; more < 2; more++) {
        struct str bytes = STR_INIT;
        struct arena arena;
        struct run_step_request request;
        arena_init(&arena);
        for (int i = 0; i < REQUEST_MAX_FIELDS + more; i++)
            proto_add_bytes(&bytes, 2 + (uint32_t)i % 3, "", 0);
        struct span body = {bytes.data, bytes.len};
        struct status *sts[] = {run_step_request_parse(body, &arena, &request),
                                partial_run_setup_parse(body, &arena, &request),
                                callable_options_parse(body, &arena, &request)};
        for (size_t i = 0; i < ARRAY_LEN(sts); i++) {
            assert_int_equal(status_code(sts[i]), more ? STATUS_RESOURCE_EXHAUSTED : STATUS_OK);
            status_unref(sts[i]);
        }
        str_fini(&bytes);
        arena_fini(&arena);
    }
}

static void the_key_tells_feeds_from_fetches(void **state) {
    struct arena arena;
    struct span names[2] = {span_of("a:0"), span_of("b:0")};
    struct run_step_request one = {
        .feed_names = names, .n_feeds = 1, .fetches = names + 1, .n_fetches = 1};
    struct run_step_request two = {.fetches = names, .n_fetches = 2};
    arena_init(&arena);
    assert_false(
        span_equal(run_step_request_key(&one, &arena), run_step_request_key(&two, &arena)));
    assert_true(span_equal(run_step_request_key(&two, &arena), run_step_request_key(&two, &arena)));
    arena_fini(&arena);
}

static void every_truncation_is_refused_or_harmless(void **state) {
    struct str bytes = STR_INIT;
    make_request(&bytes, 100);
    for (size_t len = 0; len < bytes.len; len++) {
        struct arena arena;
        struct run_step_request request;
        char *copy = malloc(len + 1); /* the sanitizer sees a read beyond it */
        memcpy(copy, bytes.data, len);
        arena_init(&arena);
        status_unref(run_step_request_parse((struct span){copy, len}, &arena, &request));
        (void)run_step_request_align((struct span){copy, len}, bytes.len);
        arena_fini(&arena);
        free(copy);
    }
    str_fini(&bytes);
}

/* Names are a stranger's: a request whose names hold what could separate names is not another
 * one that was compiled before. */
static void no_byte_in_a_name_makes_two_keys_alike(void **state) {
    struct span two[] = {{"a:0", 3}, {"b:0", 3}}, one[] = {{"a:0\nb:0", 7}},
                longer[] = {{"a:0\n|b:0\n", 10}};
    struct run_step_request requests[] = {
        {.feed_names = two, .n_feeds = 2},
        {.feed_names = one, .n_feeds = 1},
        {.fetches = two, .n_fetches = 2},
        {.fetches = one, .n_fetches = 1},
        {.feed_names = two, .n_feeds = 1, .fetches = two + 1, .n_fetches = 1},
        {.feed_names = longer, .n_feeds = 1},
    };
    struct arena arena;
    arena_init(&arena);
    for (size_t i = 0; i < ARRAY_LEN(requests); i++)
        for (size_t k = 0; k < i; k++) {
            struct span a = run_step_request_key(&requests[i], &arena),
                        b = run_step_request_key(&requests[k], &arena);
            assert_false(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
        }
    arena_fini(&arena);
}

static void the_large_content_is_found_in_the_head(void **state) {
    struct str bytes = STR_INIT;
    make_request(&bytes, 100000);
    size_t offset = run_step_request_align((struct span){bytes.data, 4096}, bytes.len);
    assert_true(offset > 0);
    struct arena arena;
    struct run_step_request request;
    arena_init(&arena);
    assert_null(run_step_request_parse((struct span){bytes.data, bytes.len}, &arena, &request));
    struct proto_field field;
    struct span proto = request.feed_protos[0];
    while (proto_next(&proto, &field) > 0)
        if (field.number == 4)
            assert_ptr_equal(field.bytes.data, bytes.data + offset);
    str_clear(&bytes);
    make_request(&bytes, 10);
    assert_int_equal(run_step_request_align((struct span){bytes.data, bytes.len}, bytes.len), 0);
    str_fini(&bytes);
    arena_fini(&arena);
}

static void a_setup_is_names_only(void **state) {
    struct str bytes = STR_INIT;
    struct arena arena;
    struct run_step_request request;
    arena_init(&arena);
    proto_add_bytes(&bytes, 1, "handle", 6);
    proto_add_bytes(&bytes, 2, "a:0", 3);
    proto_add_bytes(&bytes, 2, "b:0", 3);
    proto_add_bytes(&bytes, 3, "c:0", 3);
    proto_add_bytes(&bytes, 4, "t", 1);
    proto_add_int(&bytes, 5, 77);
    assert_null(partial_run_setup_parse((struct span){bytes.data, bytes.len}, &arena, &request));
    assert_true(request.is_partial);
    assert_true(span_is(request.session_handle, "handle"));
    assert_int_equal(request.n_feeds, 2);
    assert_true(span_is(request.feed_names[1], "b:0"));
    assert_int_equal(request.n_fetches, 1);
    assert_int_equal(request.n_targets, 1);
    assert_true(request.request_id == 77);
    struct span partial_key = run_step_request_key(&request, &arena);
    request.is_partial = false;
    assert_false(span_equal(partial_key, run_step_request_key(&request, &arena)));
    str_fini(&bytes);
    arena_fini(&arena);
}

static void a_callable_is_fed_by_position(void **state) {
    struct str options = STR_INIT, connection = STR_INIT, call = STR_INIT;
    struct arena arena;
    struct run_step_request callable, request;
    arena_init(&arena);
    proto_add_bytes(&options, 1, "a:0", 3);
    proto_add_bytes(&options, 1, "b:0", 3);
    proto_add_bytes(&options, 2, "c:0", 3);
    proto_add_bytes(&connection, 1, "x:0", 3);
    proto_add_bytes(&connection, 2, "y:0", 3);
    add_message(&options, 5, &connection);
    assert_null(
        callable_options_parse((struct span){options.data, options.len}, &arena, &callable));
    assert_int_equal(callable.n_feeds, 2);
    assert_int_equal(callable.n_connections, 1);
    assert_true(span_is(callable.connect_from[0], "x:0"));
    assert_true(span_is(callable.connect_to[0], "y:0"));
    proto_add_bytes(&call, 3, "first", 5);
    struct status *st =
        run_callable_parse((struct span){call.data, call.len}, &callable, &arena, &request);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT); /* one feed is missing */
    status_unref(st);
    proto_add_bytes(&call, 3, "second", 6);
    proto_add_int(&call, 4, 5);
    assert_null(
        run_callable_parse((struct span){call.data, call.len}, &callable, &arena, &request));
    assert_true(span_is(request.feed_protos[1], "second"));
    assert_true(request.request_id == 5);
    str_fini(&options);
    str_fini(&connection);
    str_fini(&call);
    arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_setup_is_names_only),
        cmocka_unit_test(a_callable_is_fed_by_position),
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(watches_are_part_of_the_key),
        cmocka_unit_test(too_many_names_are_refused),
        cmocka_unit_test(the_key_tells_feeds_from_fetches),
        cmocka_unit_test(no_byte_in_a_name_makes_two_keys_alike),
        cmocka_unit_test(every_truncation_is_refused_or_harmless),
        cmocka_unit_test(the_large_content_is_found_in_the_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
