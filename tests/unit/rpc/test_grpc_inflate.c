/* Compressed messages: right ones in slices of every size, and wrong ones cut, flipped, lying
 * about their size, growing without end. */
#include "rpc/grpc/grpc_inflate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>
#include <zlib.h>

static const int window_bits[GRPC_N_ENCODINGS] = {[GRPC_DEFLATE] = 15, [GRPC_GZIP] = 15 + 16};

static size_t align_at_49(struct span head, size_t body_len) { return body_len > 49 ? 49 : 0; }

/* A counted buffer of compressed bytes. */
static struct grpc_message compress_bytes(const char *bytes, size_t len,
                                          enum grpc_encoding encoding) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, window_bits[encoding], 8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    struct grpc_message message = {.buffer =
                                       buffer_alloc(allocator_host(), deflateBound(&z, len) + 64)};
    z.next_in = (Bytef *)bytes;
    z.avail_in = (uInt)len;
    z.next_out = (Bytef *)message.buffer->data;
    z.avail_out = (uInt)message.buffer->size_bytes;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    message.body = (struct span){message.buffer->data, z.total_out};
    deflateEnd(&z);
    return message;
}

static char *make_bytes(size_t len, bool is_random) {
    char *bytes = malloc(len + 1);
    uint64_t seed = 88172645463325252u;
    for (size_t i = 0; i < len; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        bytes[i] = is_random ? (char)seed : (char)('a' + seed % 3);
    }
    return bytes;
}

static struct grpc_server_limits limits_of(int64_t max_bytes, int64_t max_ratio) {
    return (struct grpc_server_limits){.max_inflate_bytes = max_bytes,
                                       .max_inflate_ratio = max_ratio};
}

struct result {
    struct status *why;
    enum grpc_refusal refusal;
    struct grpc_message message;
    size_t charged_bytes;
    int n_steps;
    int64_t worst_overrun; /* of a step's budget */
};

/* Steps of `slice` bytes until the end; takes the message. */
static struct result run(struct grpc_message compressed_take, enum grpc_encoding encoding,
                         struct grpc_quota *quota, const struct grpc_server_limits *limits,
                         int64_t slice) {
    struct result result = {0};
    bool is_done = false;
    struct grpc_inflater *inflater =
        grpc_inflater_new(compressed_take, encoding, align_at_49, quota, limits);
    while (!is_done && !result.why) {
        int64_t budget = slice;
        result.why = grpc_inflater_step(inflater, &budget, &is_done, &result.refusal);
        result.worst_overrun = MAX(result.worst_overrun, -budget);
        result.n_steps++;
    }
    if (!result.why)
        result.message = grpc_inflater_take(inflater, &result.charged_bytes);
    grpc_inflater_free(inflater);
    return result;
}

static void messages_come_out_as_they_went_in(void **state) {
    static const size_t lens[] = {0, 1, 49, 50, 4095, 4096, 4097, 65536, 1000000};
    static const int64_t slices[] = {1, 100, 70000, 1 << 30};
    struct grpc_server_limits limits = limits_of(1 << 20, 1100);
    for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
        for (int j = 0; j < 4 * (int)ARRAY_LEN(slices); j++) {
            char *bytes = make_bytes(lens[i], j & 1);
            enum grpc_encoding encoding = j & 2 ? GRPC_GZIP : GRPC_DEFLATE;
            struct grpc_quota quota = {.limit_bytes = 4 << 20};
            struct result result = run(compress_bytes(bytes, lens[i], encoding), encoding, &quota,
                                       &limits, slices[j / 4]);
            assert_null(result.why);
            assert_int_equal(result.message.body.len, lens[i]);
            assert_memory_equal(result.message.body.data, bytes, lens[i]);
            assert_int_equal(result.charged_bytes, lens[i]);
            assert_int_equal(quota.in_use_bytes, lens[i]);
            if (lens[i] > 49)
                assert_int_equal((uintptr_t)(result.message.body.data + 49) % BUFFER_ALIGN, 0);
            assert_true(result.worst_overrun <= 128 * 1024); /* one piece in, one out */
            buffer_unref(result.message.buffer);
            free(bytes);
        }
    }
}

static void check_refused(struct result result, enum status_code code, enum grpc_refusal refusal,
                          const struct grpc_quota *quota) {
    if (status_code(result.why) != code || result.refusal != refusal)
        fail_msg("code %d, refusal %d: %s", (int)status_code(result.why), (int)result.refusal,
                 result.why ? status_message(result.why) : "no error");
    assert_true(strlen(status_message(result.why)) > 20);
    assert_int_equal(quota->in_use_bytes, 0);
    status_unref(result.why);
}

static void a_cut_message_is_corrupt_wherever_it_is_cut(void **state) {
    struct grpc_server_limits limits = limits_of(1 << 20, 1100);
    struct grpc_quota quota = {.limit_bytes = 4 << 20};
    char *bytes = make_bytes(3000, false);
    for (int encoding = GRPC_DEFLATE; encoding <= GRPC_GZIP; encoding++) {
        struct grpc_message whole = compress_bytes(bytes, 3000, (enum grpc_encoding)encoding);
        for (size_t len = 0; len < whole.body.len; len++) {
            struct grpc_message cut = {.buffer = buffer_ref(whole.buffer),
                                       .body = {whole.body.data, len}};
            check_refused(run(cut, (enum grpc_encoding)encoding, &quota, &limits, 1000),
                          STATUS_INTERNAL, REFUSED_NOTHING, &quota);
        }
        whole.buffer->data[whole.body.len++] = 'x';
        check_refused(run(whole, (enum grpc_encoding)encoding, &quota, &limits, 1000),
                      STATUS_INTERNAL, REFUSED_NOTHING, &quota);
    }
    free(bytes);
}

/* Both formats end in a checksum: what a changed bit makes is never taken for the message.
 * (deflate's is weak enough to miss a changed reference between like bytes, so its message here
 * has none.) */
static void a_changed_byte_never_changes_a_message(void **state) {
    struct grpc_server_limits limits = limits_of(1 << 20, 1100);
    struct grpc_quota quota = {.limit_bytes = 4 << 20};
    for (int encoding = GRPC_DEFLATE; encoding <= GRPC_GZIP; encoding++) {
        char *bytes = make_bytes(500, encoding == GRPC_DEFLATE);
        struct grpc_message whole = compress_bytes(bytes, 500, (enum grpc_encoding)encoding);
        for (size_t i = 0; i < 8 * whole.body.len; i++) {
            whole.buffer->data[i / 8] ^= (char)(1 << i % 8);
            struct grpc_message flipped = {.buffer = buffer_ref(whole.buffer), .body = whole.body};
            struct result result =
                run(flipped, (enum grpc_encoding)encoding, &quota, &limits, 100000);
            if (!result.why) { /* a byte of gzip's header that means nothing */
                assert_int_equal(result.message.body.len, 500);
                assert_memory_equal(result.message.body.data, bytes, 500);
                quota.in_use_bytes -= (int64_t)result.charged_bytes;
                buffer_unref(result.message.buffer);
            }
            status_unref(result.why);
            assert_int_equal(quota.in_use_bytes, 0);
            whole.buffer->data[i / 8] ^= (char)(1 << i % 8);
        }
        buffer_unref(whole.buffer);
        free(bytes);
    }
}

static void a_bomb_is_refused_without_memory_for_it(void **state) {
    enum { BOMB_BYTES = 64 << 20 };
    char *zeros = calloc(1, BOMB_BYTES);
    for (int encoding = GRPC_DEFLATE; encoding <= GRPC_GZIP; encoding++) {
        for (int is_ratio = 0; is_ratio <= 1; is_ratio++) {
            struct grpc_server_limits limits =
                is_ratio ? limits_of(INT32_MAX, 50) : limits_of(1 << 20, 1100);
            struct grpc_quota quota = {.limit_bytes = 4 << 20};
            struct grpc_message bomb =
                compress_bytes(zeros, BOMB_BYTES, (enum grpc_encoding)encoding);
            int64_t peak_before = atomic_load(&allocator_host()->in_use_bytes);
            struct result result =
                run(bomb, (enum grpc_encoding)encoding, &quota, &limits, 1 << 20);
            assert_true(atomic_load(&allocator_host()->in_use_bytes) <= peak_before);
            /* it ends where the limit is, not where the bomb ends */
            assert_true(result.n_steps < 10);
            check_refused(result, STATUS_RESOURCE_EXHAUSTED, REFUSED_INFLATE, &quota);
        }
    }
    free(zeros);
}

static void bytes_in_flight_count_what_a_message_becomes(void **state) {
    struct grpc_server_limits limits = limits_of(INT32_MAX, 1100);
    char *zeros = calloc(1, 1 << 20);
    for (int encoding = GRPC_DEFLATE; encoding <= GRPC_GZIP; encoding++) {
        /* zlib's own state needs some of it, too */
        struct grpc_quota quota = {.limit_bytes = 1 << 20};
        struct grpc_message message = compress_bytes(zeros, 1 << 20, (enum grpc_encoding)encoding);
        check_refused(run(message, (enum grpc_encoding)encoding, &quota, &limits, 10000),
                      STATUS_RESOURCE_EXHAUSTED, REFUSED_INFLIGHT, &quota);
    }
    free(zeros);
}

/* gzip's size is believed only as far as the data go. */
static void a_lie_about_the_size_is_corrupt(void **state) {
    static const uint32_t lies[] = {0, 1, 299, 301, 4096, 300000, 2000000, 0x7fffffff, 0xffffffff};
    struct grpc_server_limits limits = limits_of(1 << 20, 1100);
    struct grpc_quota quota = {.limit_bytes = 4 << 20};
    char *bytes = make_bytes(300, true);
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        struct grpc_message message = compress_bytes(bytes, 300, GRPC_GZIP);
        for (int j = 0; j < 4; j++)
            message.buffer->data[message.body.len - 4 + (size_t)j] = (char)(lies[i] >> 8 * j);
        check_refused(run(message, GRPC_GZIP, &quota, &limits, 1000), STATUS_INTERNAL,
                      REFUSED_NOTHING, &quota);
    }
    free(bytes);
}

static void encodings_have_their_names(void **state) {
    assert_int_equal(grpc_encoding_find(span_of("identity")), GRPC_IDENTITY);
    assert_int_equal(grpc_encoding_find(span_of("deflate")), GRPC_DEFLATE);
    assert_int_equal(grpc_encoding_find(span_of("gzip")), GRPC_GZIP);
    assert_int_equal(grpc_encoding_find(span_of("snappy")), GRPC_N_ENCODINGS);
    assert_int_equal(grpc_encoding_find(span_of("")), GRPC_N_ENCODINGS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_out_as_they_went_in),
        cmocka_unit_test(a_cut_message_is_corrupt_wherever_it_is_cut),
        cmocka_unit_test(a_changed_byte_never_changes_a_message),
        cmocka_unit_test(a_bomb_is_refused_without_memory_for_it),
        cmocka_unit_test(bytes_in_flight_count_what_a_message_becomes),
        cmocka_unit_test(a_lie_about_the_size_is_corrupt),
        cmocka_unit_test(encodings_have_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
