/* Messages of a step (rpc/wire/step_messages.h): what one end writes the other reads, and cut or
 * foreign bytes are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/tensor/tensor_proto.h"
#include "proto/worker.pb-c.h"
#include "rpc/wire/step_messages.h"

static struct span text_of(const struct str *text) {
    return (struct span){str_text(text), text->len};
}

/* A feed of each kind: a plain value, an encoded value, a TensorProto in the meta and one in the
 * payload. */
struct feeds {
    struct tensor number, string;
    struct str proto;
    struct step_feed rows[4];
};

static void feeds_make(struct feeds *feeds) {
    *feeds = (struct feeds){.string = TENSOR_INIT};
    tensor_init_scalar_f32(&feeds->number, 2.5f);
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){0, NULL}, &feeds->string));
    tensor_set_string(&feeds->string, 0, "words", 5);
    tensor_to_proto(&feeds->string, &feeds->proto);
    feeds->rows[0] = (struct step_feed){.value = &feeds->number};
    feeds->rows[1] = (struct step_feed){.value = &feeds->string};
    feeds->rows[2] = (struct step_feed){.value = &feeds->string, .proto = text_of(&feeds->proto)};
    feeds->rows[3] = (struct step_feed){
        .value = &feeds->string, .proto = text_of(&feeds->proto), .proto_size_bytes = 1000};
}

static void feeds_free(struct feeds *feeds) {
    tensor_clear(&feeds->string);
    str_fini(&feeds->proto);
}

static void check_feed(struct span meta, int row) {
    struct tensor_meta feed;
    assert_null(tensor_meta_read(meta, &feed));
    assert_int_equal(feed.dtype, row == 0 ? DT_FLOAT : DT_STRING);
    assert_int_equal(feed.proto.len > 0, row == 1 || row == 2);
    assert_int_equal(feed.size_bytes, row == 0 ? 4 : row == 3 ? 1000 : 0);
    if (feed.proto.len == 0)
        return;
    struct tensor value = TENSOR_INIT;
    size_t offset = 0;
    assert_null(
        tensor_meta_take(&feed, &(struct wire_message){0}, &offset, allocator_host(), &value));
    assert_true(span_is(tensor_string(&value, 0), "words"));
    tensor_clear(&value);
}

static void a_run_graph_is_read_as_it_was_written(void **state) {
    struct run_graph_message written = {.graph = 7,
                                        .step_id = (uint64_t)3 << 60,
                                        .master_incarnation = 5,
                                        .oldest_live_step = 2,
                                        .collect_stats = true,
                                        .tells_saves = true,
                                        .clock_ahead_us = -3000000,
                                        .timeout_ms = 1500},
                             read;
    struct feeds feeds;
    struct str out = STR_INIT;
    struct span meta;
    feeds_make(&feeds);
    run_graph_write(&out, &written);
    for (int i = 0; i < 4; i++)
        run_graph_add_feed(&out, &feeds.rows[i]);
    assert_null(run_graph_read(text_of(&out), &read));
    assert_int_equal(read.graph, 7);
    assert_int_equal(read.step_id, written.step_id);
    assert_int_equal(read.master_incarnation, 5);
    assert_int_equal(read.oldest_live_step, 2);
    assert_int_equal(read.timeout_ms, 1500);
    assert_true(read.collect_stats && read.tells_saves && !read.is_partial);
    assert_int_equal(read.clock_ahead_us, -3000000);
    for (int i = 0; i < 4; i++) {
        assert_true(run_graph_next_feed(&read, &meta));
        check_feed(meta, i);
    }
    assert_false(run_graph_next_feed(&read, &meta));
    feeds_free(&feeds);
    str_fini(&out);
}

static void a_run_graph_is_the_proto_file_s(void **state) {
    struct str out = STR_INIT;
    struct tensor number;
    tensor_init_scalar_f32(&number, 1);
    run_graph_write(&out, &(struct run_graph_message){
                              .graph = 1, .step_id = 2, .timeout_ms = 3, .is_partial = true});
    run_graph_add_feed(&out, &(struct step_feed){.value = &number});
    Millrace__RunGraph *read =
        millrace__run_graph__unpack(NULL, out.len, (const uint8_t *)out.data);
    assert_non_null(read);
    assert_int_equal(read->graph, 1);
    assert_int_equal(read->step_id, 2);
    assert_int_equal(read->timeout_ms, 3);
    assert_true(read->is_partial && !read->collect_stats);
    assert_int_equal(read->n_feed, 1);
    assert_int_equal(read->feed[0]->dtype, DT_FLOAT);
    millrace__run_graph__free_unpacked(read, NULL);
    str_fini(&out);
}

static void feeds_of_a_partial_run_keep_their_positions(void **state) {
    struct feed_step_message read;
    struct feeds feeds;
    struct str out = STR_INIT;
    struct span meta;
    uint32_t position;
    feeds_make(&feeds);
    for (uint32_t i = 0; i < 4; i++)
        feed_step_add(&out, 3 - i, &feeds.rows[i]);
    feed_step_read(text_of(&out), &read);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(feed_step_next(&read, &position, &meta), 1);
        assert_int_equal(position, 3 - i);
        check_feed(meta, (int)i);
    }
    assert_int_equal(feed_step_next(&read, &position, &meta), 0);
    feeds_free(&feeds);
    str_fini(&out);
}

static void write_done(struct str *out, const struct tensor *fetches, int n) {
    struct status *why = status_new(STATUS_ABORTED, "too late");
    run_done_add_status(out, why, true);
    for (int i = 0; i < n; i++)
        run_done_add_fetch(out, &fetches[i], 0);
    run_done_add_trace(out, 123);
    status_unref(why);
}

static void a_run_done_is_read_as_it_was_written(void **state) {
    struct tensor fetches[2];
    struct str out = STR_INIT;
    struct run_done_message read;
    struct tensor_meta fetch;
    struct span meta;
    tensor_init_scalar_f32(&fetches[0], 1);
    tensor_init_dead(&fetches[1]);
    write_done(&out, fetches, 2);
    assert_null(run_done_read(text_of(&out), &read));
    assert_int_equal(read.code, STATUS_ABORTED);
    assert_true(read.is_derived);
    assert_true(span_is(read.message, "too late"));
    assert_int_equal(read.trace_size_bytes, 123);
    assert_int_equal(read.n_fetches, 2);
    for (int i = 0; i < 2; i++) {
        assert_true(run_done_next_fetch(&read, &meta));
        assert_null(tensor_meta_read(meta, &fetch));
        assert_int_equal(fetch.is_dead, i == 1);
    }
    assert_false(run_done_next_fetch(&read, &meta));
    str_fini(&out);
}

static void a_fetch_of_a_partial_run_is_read_as_it_was_written(void **state) {
    struct tensor value;
    struct str out = STR_INIT;
    struct step_fetched_message read;
    struct tensor_meta fetch;
    tensor_init_scalar_f32(&value, 1);
    step_fetched_write(&out, 9, &value, 0);
    assert_null(step_fetched_read(text_of(&out), &read));
    assert_int_equal(read.position, 9);
    assert_null(tensor_meta_read(read.fetch, &fetch));
    assert_int_equal(fetch.dtype, DT_FLOAT);
    str_fini(&out);
}

static void a_cancel_is_read_as_it_was_written(void **state) {
    struct status *why = status_new(STATUS_CANCELLED, "not wanted");
    struct str out = STR_INIT;
    struct cancel_step_message read;
    cancel_step_write(&out, 11, why);
    assert_null(cancel_step_read(text_of(&out), &read));
    assert_int_equal(read.step_id, 11);
    assert_int_equal(read.code, STATUS_CANCELLED);
    assert_true(span_is(read.message, "not wanted"));
    status_unref(why);
    str_fini(&out);
}

/* ---- bytes of strangers ---- */

static void expect_refused(struct status *st) {
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
}

static void cut_messages_are_refused(void **state) {
    struct tensor value;
    struct str out = STR_INIT;
    struct run_done_message done;
    struct step_fetched_message fetched;
    tensor_init_scalar_f32(&value, 1);
    write_done(&out, &value, 1);
    for (size_t len = 1; len < out.len; len++) {
        struct status *st = run_done_read((struct span){out.data, len}, &done);
        struct span meta;
        while (!st && run_done_next_fetch(&done, &meta))
            assert_true(meta.data + meta.len <= out.data + len);
        status_unref(st);
    }
    expect_refused(run_done_read((struct span){out.data, out.len - 1}, &done));
    expect_refused(step_fetched_read((struct span){NULL, 0}, &fetched));
    str_fini(&out);
}

static void a_value_that_is_not_plain_needs_its_proto(void **state) {
    struct buffer *payload = buffer_alloc(allocator_host(), 64);
    struct wire_message message = {.payload = payload, .payload_len = 64};
    struct tensor_meta meta = {.dtype = DT_STRING, .size_bytes = 10};
    struct span proto;
    size_t offset = 0;
    assert_null(tensor_meta_take_proto(&meta, &message, &offset, &proto));
    assert_ptr_equal(proto.data, payload->data);
    assert_int_equal(proto.len, 10);
    assert_int_equal(offset, 10);
    meta.size_bytes = 0;
    expect_refused(tensor_meta_take_proto(&meta, &message, &offset, &proto));
    meta.size_bytes = 65;
    expect_refused(tensor_meta_take_proto(&meta, &message, &offset, &proto));
    buffer_unref(payload);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_graph_is_read_as_it_was_written),
        cmocka_unit_test(a_run_graph_is_the_proto_file_s),
        cmocka_unit_test(feeds_of_a_partial_run_keep_their_positions),
        cmocka_unit_test(a_run_done_is_read_as_it_was_written),
        cmocka_unit_test(a_fetch_of_a_partial_run_is_read_as_it_was_written),
        cmocka_unit_test(a_cancel_is_read_as_it_was_written),
        cmocka_unit_test(cut_messages_are_refused),
        cmocka_unit_test(a_value_that_is_not_plain_needs_its_proto),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
