/* The table of limits: names, defaults, and counts of what was refused. */
#include "rpc/grpc/grpc_limits.h"

#include <inttypes.h>
#include <stdatomic.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/base/str.h"

/* A limit: its name in /metrics and on /statusz, the reason that a closed connection gets, and
 * where the limit and its present use are found. */
static const struct limit_row {
    const char *name, *text;
    size_t limit, use;
} rows[N_REFUSALS] = {
#define NO_USE SIZE_MAX
#define ROW(name_, text_, limit_, use_) \
    { name_, text_, offsetof(struct grpc_server_limits, limit_), use_ }
#define USE(field) offsetof(struct grpc_use, field)
    [REFUSED_CONNECTION] =
        ROW("connections", "too many connections", max_connections, USE(connections)),
    [REFUSED_CALL] = ROW("calls", "too many calls", max_calls, USE(calls)),
    [REFUSED_STREAM] = ROW("streams", "too many streams", max_streams, USE(streams)),
    [REFUSED_HEADERS] =
        ROW("header_bytes", "a header block beyond four times the limit of a call's headers",
            max_header_bytes, NO_USE),
    [REFUSED_RESETS] = ROW("resets", "too many streams were reset", max_resets_per_s, NO_USE),
    [REFUSED_CONTROL] =
        ROW("control_frames", "too many frames that complete no call", max_control_per_s, NO_USE),
    [REFUSED_MESSAGE] = ROW("message_bytes", "a message is too long", max_message_bytes, NO_USE),
    [REFUSED_INFLIGHT] =
        ROW("inflight_bytes", "too many bytes in flight", max_inflight_bytes, USE(inflight_bytes)),
    [REFUSED_INFLATE] =
        ROW("inflate_bytes", "a message inflates too far", max_inflate_bytes, NO_USE),
    [REFUSED_HANDSHAKE] =
        ROW("handshake_ms", "no HTTP/2 settings came in time", handshake_timeout_ms, NO_USE),
    [REFUSED_STALL] = ROW("stall_ms", "the peer neither sends nor reads what it has begun",
                          stall_timeout_ms, NO_USE),
};

#define REFUSAL(reason)                                                                           \
    {                                                                                             \
        .kind = METRIC_COUNTER, .name = "millrace_grpc_refused_total",                            \
        .labels = "limit=\"" reason "\"", .help = "gRPC connections and calls refused by a limit" \
    }
static struct metric refused[N_REFUSALS] = {
    [REFUSED_CONNECTION] = REFUSAL("connections"), [REFUSED_CALL] = REFUSAL("calls"),
    [REFUSED_STREAM] = REFUSAL("streams"),         [REFUSED_HEADERS] = REFUSAL("header_bytes"),
    [REFUSED_RESETS] = REFUSAL("resets"),          [REFUSED_CONTROL] = REFUSAL("control_frames"),
    [REFUSED_MESSAGE] = REFUSAL("message_bytes"),  [REFUSED_INFLIGHT] = REFUSAL("inflight_bytes"),
    [REFUSED_INFLATE] = REFUSAL("inflate_bytes"),  [REFUSED_HANDSHAKE] = REFUSAL("handshake_ms"),
    [REFUSED_STALL] = REFUSAL("stall_ms"),
};

void grpc_limits_register_metrics(void) {
    for (int i = REFUSED_NOTHING + 1; i < N_REFUSALS; i++)
        metrics_register(&refused[i]);
}

void grpc_refusal_count(enum grpc_refusal refusal) { metric_add(&refused[refusal], 1); }

void grpc_refusal_log(enum grpc_refusal refusal) {
    log_event(EVENT_CLIENT_CLOSED, "closed a client's connection: %s", rows[refusal].text);
}

const char *grpc_refusal_text(enum grpc_refusal refusal) { return rows[refusal].text; }

void grpc_server_limits_default(struct grpc_server_limits *limits) {
    *limits = (struct grpc_server_limits){
        .max_connections = 10000,
        .max_calls = 100000,
        .max_streams = 10000,
        .max_header_bytes = 16384,
        .max_resets_per_s = 1000,
        .max_control_per_s = 1000,
        .max_message_bytes = INT32_MAX,
        .max_inflight_bytes = (int64_t)16 << 30,
        .max_inflate_bytes = INT32_MAX,
        .max_inflate_ratio = 1100,
        .handshake_timeout_ms = 20000,
        .stall_timeout_ms = 60000,
    };
}

void grpc_limits_fill(struct grpc_server_limits *limits) {
    struct grpc_server_limits defaults;
    grpc_server_limits_default(&defaults);
#define FILL(field) limits->field = limits->field > 0 ? limits->field : defaults.field
    FILL(max_connections);
    FILL(max_calls);
    FILL(max_streams);
    FILL(max_header_bytes);
    FILL(max_resets_per_s);
    FILL(max_control_per_s);
    FILL(max_message_bytes);
    FILL(max_inflight_bytes);
    FILL(max_inflate_bytes);
    FILL(max_inflate_ratio);
    FILL(handshake_timeout_ms);
    FILL(stall_timeout_ms);
#undef FILL
    limits->max_streams = MIN(limits->max_streams, (int64_t)INT32_MAX);
    limits->max_header_bytes = MIN(limits->max_header_bytes, (int64_t)1 << 24);
    limits->max_resets_per_s = MIN(limits->max_resets_per_s, (int64_t)INT32_MAX);
    limits->max_control_per_s = MIN(limits->max_control_per_s, (int64_t)INT32_MAX);
    limits->max_message_bytes = MIN(limits->max_message_bytes, (int64_t)INT32_MAX);
    limits->max_inflate_bytes = MIN(limits->max_inflate_bytes, limits->max_message_bytes);
    limits->max_inflate_ratio = MIN(limits->max_inflate_ratio, (int64_t)INT32_MAX);
}

void grpc_limits_describe(const struct grpc_server_limits *limits, const struct grpc_use *use,
                          struct str *out) {
    str_add_char(out, '{');
    for (int i = REFUSED_NOTHING + 1; i < N_REFUSALS; i++) {
        int64_t limit = *(const int64_t *)((const char *)limits + rows[i].limit);
        str_addf(out, "%s\"%s\": {\"limit\": %" PRId64, i > REFUSED_NOTHING + 1 ? ", " : "",
                 rows[i].name, limit);
        if (i == REFUSED_INFLATE)
            str_addf(out, ", \"ratio\": %" PRId64, limits->max_inflate_ratio);
        if (rows[i].use != NO_USE)
            str_addf(out, ", \"in_use\": %" PRId64,
                     *(const int64_t *)((const char *)use + rows[i].use));
        str_addf(out, ", \"refused\": %" PRId64 "}", metric_get(&refused[i]));
    }
    str_add_char(out, '}');
}
