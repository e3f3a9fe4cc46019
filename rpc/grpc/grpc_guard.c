/* Counts the frames that complete no call, in buckets that fill over time. */
#include "rpc/grpc/grpc_guard.h"

enum {
    BURST_S = 10,
    /* How much longer a header block may be than a call's headers. The call must be refused before
     * the connection is ended. */
    BLOCK_FACTOR = 4,
    /* what HTTP/2 adds to each field when it computes the size of a header list */
    FIELD_OVERHEAD = 32,
    /* A shorter DATA frame that does not end its stream counts as useless. */
    SMALL_DATA_BYTES = 256,
    SETTINGS_COST = 50,     /* a new window size is applied to each open stream */
    CALL_CREDIT = 9,        /* its HEADERS, and what its client sends except DATA */
    BYTES_PER_TOKEN = 4096, /* bytes of messages that give one token back */
    /* of a frame that is neither DATA nor headers; the announced maximum is larger because of
     * DATA */
    MAX_CONTROL_BYTES = 16384,
};

static void bucket_fill(struct grpc_bucket *bucket, int64_t tokens_milli) {
    bucket->level_milli = MIN(bucket->level_milli + tokens_milli, bucket->per_s * BURST_S * 1000);
}

static bool bucket_take(struct grpc_bucket *bucket, int64_t n, int64_t now_ms) {
    int64_t passed_ms = MIN(MAX(now_ms - bucket->filled_ms, 0), (int64_t)BURST_S * 1000);
    bucket_fill(bucket, passed_ms * bucket->per_s);
    bucket->filled_ms = now_ms;
    if (bucket->level_milli < n * 1000)
        return false;
    bucket->level_milli -= n * 1000;
    return true;
}

static void bucket_init(struct grpc_bucket *bucket, int64_t per_s, int64_t now_ms) {
    *bucket = (struct grpc_bucket){
        .per_s = per_s, .level_milli = per_s * BURST_S * 1000, .filled_ms = now_ms};
}

void grpc_guard_init(struct grpc_guard *guard, const struct grpc_server_limits *limits,
                     int64_t now_ms) {
    *guard = (struct grpc_guard){.is_on = limits != NULL};
    if (!limits)
        return;
    guard->max_block_bytes = limits->max_header_bytes * BLOCK_FACTOR;
    bucket_init(&guard->frames, limits->max_control_per_s, now_ms);
    bucket_init(&guard->resets, limits->max_resets_per_s, now_ms);
}

static int64_t cost_of(const nghttp2_frame_hd *hd) {
    switch (hd->type) {
    case NGHTTP2_DATA:
        return hd->length < SMALL_DATA_BYTES && !(hd->flags & NGHTTP2_FLAG_END_STREAM);
    case NGHTTP2_SETTINGS:
        return hd->flags & NGHTTP2_FLAG_ACK ? 1 : SETTINGS_COST;
    default:
        return 1;
    }
}

enum grpc_refusal grpc_guard_frame(struct grpc_guard *guard, const nghttp2_frame_hd *hd,
                                   int64_t now_ms) {
    bool is_block = hd->type == NGHTTP2_HEADERS || hd->type == NGHTTP2_CONTINUATION;
    if (!guard->is_on)
        return REFUSED_NOTHING;
    if (hd->type != NGHTTP2_CONTINUATION)
        guard->block_bytes = guard->field_bytes = 0;
    if (is_block) {
        guard->block_bytes += (int64_t)hd->length;
        if (guard->block_bytes > guard->max_block_bytes)
            return REFUSED_HEADERS;
    } else if (hd->type != NGHTTP2_DATA && hd->length > MAX_CONTROL_BYTES) {
        return REFUSED_CONTROL;
    }
    int64_t cost = cost_of(hd);
    if (cost > 0 && !bucket_take(&guard->frames, cost, now_ms))
        return REFUSED_CONTROL;
    return hd->type == NGHTTP2_RST_STREAM && !bucket_take(&guard->resets, 1, now_ms)
               ? REFUSED_RESETS
               : REFUSED_NOTHING;
}

enum grpc_refusal grpc_guard_field(struct grpc_guard *guard, size_t len) {
    guard->field_bytes += (int64_t)len + FIELD_OVERHEAD;
    return guard->is_on && guard->field_bytes > guard->max_block_bytes ? REFUSED_HEADERS
                                                                       : REFUSED_NOTHING;
}

enum grpc_refusal grpc_guard_reset_sent(struct grpc_guard *guard, int64_t now_ms) {
    return guard->is_on && !bucket_take(&guard->resets, 1, now_ms) ? REFUSED_RESETS
                                                                   : REFUSED_NOTHING;
}

void grpc_guard_call_begins(struct grpc_guard *guard) {
    if (guard->is_on)
        bucket_fill(&guard->frames, CALL_CREDIT * 1000);
}

void grpc_guard_moved(struct grpc_guard *guard, size_t n_bytes) {
    if (!guard->is_on)
        return;
    guard->moved_bytes += n_bytes;
    bucket_fill(&guard->frames, (int64_t)(guard->moved_bytes / BYTES_PER_TOKEN) * 1000);
    guard->moved_bytes %= BYTES_PER_TOKEN;
}
