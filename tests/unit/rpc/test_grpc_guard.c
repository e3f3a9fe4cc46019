/* The budgets for a peer's frames: floods exceed them, and normal use does not. */
#include "rpc/grpc/grpc_guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static const struct grpc_server_limits limits = {
    .max_control_per_s = 100, .max_resets_per_s = 10, .max_header_bytes = 1000};

static nghttp2_frame_hd frame(int type, size_t len, int flags) {
    return (nghttp2_frame_hd){
        .type = (uint8_t)type, .length = len, .flags = (uint8_t)flags, .stream_id = 1};
}

/* How many frames of a kind are let through at one moment. */
static int n_allowed(nghttp2_frame_hd hd, enum grpc_refusal *ret_refusal) {
    struct grpc_guard guard;
    grpc_guard_init(&guard, &limits, 5000);
    for (int n = 0; n < 100000; n++)
        if ((*ret_refusal = grpc_guard_frame(&guard, &hd, 5000)) != REFUSED_NOTHING)
            return n;
    return 100000;
}

static void floods_run_dry(void **state) {
    static const struct {
        const char *name;
        int type, flags;
        size_t len;
        int n_allowed;
        enum grpc_refusal refusal;
    } rows[] = {
        {"PING", NGHTTP2_PING, 0, 8, 1000, REFUSED_CONTROL},
        {"PING answers that nobody asked for", NGHTTP2_PING, NGHTTP2_FLAG_ACK, 8, 1000,
         REFUSED_CONTROL},
        {"SETTINGS", NGHTTP2_SETTINGS, 0, 0, 20, REFUSED_CONTROL},
        {"SETTINGS answers", NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, 1000, REFUSED_CONTROL},
        {"WINDOW_UPDATE", NGHTTP2_WINDOW_UPDATE, 0, 4, 1000, REFUSED_CONTROL},
        {"PRIORITY", NGHTTP2_PRIORITY, 0, 5, 1000, REFUSED_CONTROL},
        {"GOAWAY", NGHTTP2_GOAWAY, 0, 8, 1000, REFUSED_CONTROL},
        {"an unknown type", 0x77, 0, 0, 1000, REFUSED_CONTROL},
        {"empty DATA", NGHTTP2_DATA, 0, 0, 1000, REFUSED_CONTROL},
        {"DATA of a byte", NGHTTP2_DATA, 0, 1, 1000, REFUSED_CONTROL},
        {"DATA that ends a stream", NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 0, 100000,
         REFUSED_NOTHING},
        {"DATA", NGHTTP2_DATA, 0, 16384, 100000, REFUSED_NOTHING},
        {"empty HEADERS that open nothing", NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 0, 1000,
         REFUSED_CONTROL},
        {"empty CONTINUATION", NGHTTP2_CONTINUATION, 0, 0, 1000, REFUSED_CONTROL},
        {"CONTINUATION of 100 bytes", NGHTTP2_CONTINUATION, 0, 100, 40, REFUSED_HEADERS},
        {"RST_STREAM", NGHTTP2_RST_STREAM, 0, 4, 100, REFUSED_RESETS},
        {"a long GOAWAY", NGHTTP2_GOAWAY, 0, 1 << 20, 0, REFUSED_CONTROL},
        {"a long unknown frame", 0x77, 0, 1 << 20, 0, REFUSED_CONTROL},
        {"long HEADERS", NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 4001, 0, REFUSED_HEADERS},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        enum grpc_refusal refusal;
        int n = n_allowed(frame(rows[i].type, rows[i].len, rows[i].flags), &refusal);
        if (n != rows[i].n_allowed || refusal != rows[i].refusal)
            fail_msg("%s: %d frames, then refusal %d", rows[i].name, n, (int)refusal);
    }
}

static void time_gives_tokens_back(void **state) {
    struct grpc_guard guard;
    nghttp2_frame_hd ping = frame(NGHTTP2_PING, 8, 0);
    grpc_guard_init(&guard, &limits, 0);
    for (int64_t now_ms = 0; now_ms < 100000; now_ms += 10) /* at the rate, for ever */
        assert_int_equal(grpc_guard_frame(&guard, &ping, now_ms), REFUSED_NOTHING);
    int n = 0;
    while (grpc_guard_frame(&guard, &ping, 200000) == REFUSED_NOTHING)
        n++;
    /* no more than the burst, however long it was quiet */
    assert_int_equal(n, 1000);
    /* a clock that steps back gives nothing */
    assert_int_equal(grpc_guard_frame(&guard, &ping, 100000), REFUSED_CONTROL);
}

/* Each call: its HEADERS, a small prefix, window updates for stream and connection, as clients
 * send them. */
static void a_busy_client_never_runs_dry(void **state) {
    struct grpc_guard guard;
    grpc_guard_init(&guard, &limits, 0);
    for (int i = 0; i < 100000; i++) {
        static const struct {
            int type, flags;
            size_t len;
        } frames[] = {{NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 60},
                      {NGHTTP2_WINDOW_UPDATE, 0, 4},
                      {NGHTTP2_DATA, 0, 5},
                      {NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 100},
                      {NGHTTP2_WINDOW_UPDATE, 0, 4},
                      {NGHTTP2_WINDOW_UPDATE, 0, 4},
                      {NGHTTP2_PING, 0, 8}};
        for (size_t j = 0; j < ARRAY_LEN(frames); j++) {
            nghttp2_frame_hd hd = frame(frames[j].type, frames[j].len, frames[j].flags);
            assert_int_equal(grpc_guard_frame(&guard, &hd, 0), REFUSED_NOTHING);
            if (j == 0)
                grpc_guard_call_begins(&guard);
        }
    }
}

static void bytes_that_move_pay_for_their_window_updates(void **state) {
    struct grpc_guard guard;
    nghttp2_frame_hd update = frame(NGHTTP2_WINDOW_UPDATE, 4, 0);
    grpc_guard_init(&guard, &limits, 0);
    for (int i = 0; i < 100000; i++) {
        grpc_guard_moved(&guard, 2048);
        if (i % 2)
            assert_int_equal(grpc_guard_frame(&guard, &update, 0), REFUSED_NOTHING);
    }
}

static void a_header_block_may_not_grow_when_decoded(void **state) {
    struct grpc_guard guard;
    nghttp2_frame_hd headers = frame(NGHTTP2_HEADERS, 100, NGHTTP2_FLAG_END_HEADERS);
    grpc_guard_init(&guard, &limits, 0);
    for (int block = 0; block < 3; block++) { /* the same for each block */
        assert_int_equal(grpc_guard_frame(&guard, &headers, 0), REFUSED_NOTHING);
        for (int i = 0; i < 40; i++)
            assert_int_equal(grpc_guard_field(&guard, 68),
                             REFUSED_NOTHING); /* 100 with what HTTP/2 adds */
    }
    assert_int_equal(grpc_guard_field(&guard, 0), REFUSED_HEADERS);
}

static void a_client_trusts_its_server(void **state) {
    struct grpc_guard guard;
    nghttp2_frame_hd ping = frame(NGHTTP2_PING, 8, 0);
    grpc_guard_init(&guard, NULL, 0);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(grpc_guard_frame(&guard, &ping, 0), REFUSED_NOTHING);
    assert_int_equal(grpc_guard_field(&guard, 1 << 20), REFUSED_NOTHING);
    assert_int_equal(grpc_guard_reset_sent(&guard, 0), REFUSED_NOTHING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floods_run_dry),
        cmocka_unit_test(time_gives_tokens_back),
        cmocka_unit_test(a_busy_client_never_runs_dry),
        cmocka_unit_test(bytes_that_move_pay_for_their_window_updates),
        cmocka_unit_test(a_header_block_may_not_grow_when_decoded),
        cmocka_unit_test(a_client_trusts_its_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
