/* Serves tensorflow.ProfilerService, which TensorBoard and TensorFlow's clients dial to capture a
 * profile: Profile, Terminate, Monitor. The master captures the steps of all its tasks. Field
 * numbers are those of TensorFlow's profiler_service.proto. Nothing is written to files here; the
 * client gets the XSpace and saves it. */
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/tensor/tensor_proto.h"
#include "master/request/request.h"
#include "master/service/service_internal.h"
#include "master/step/profiler.h"

enum {
    REQUEST_DURATION_MS = 1,
    REQUEST_MAX_EVENTS = 2,
    REQUEST_SESSION_ID = 6,
    REQUEST_HOST = 7,
    REQUEST_EMIT_XSPACE = 9
};
enum { RESPONSE_TOOL_DATA = 6, RESPONSE_EMPTY_TRACE = 7, RESPONSE_XSPACE = 8 };
enum { TOOL_NAME = 1, TOOL_DATA = 2, TERMINATE_SESSION_ID = 1 };
enum {
    MONITOR_DURATION_MS = 1,
    MONITOR_TIMESTAMP = 3,
    MONITOR_DATA = 1,
    MONITOR_RESULT = 10,
    RESULT_STEP_AVG = 4,
    RESULT_STEP_MIN = 5,
    RESULT_STEP_MAX = 6
};

struct profile_call {
    struct grpc_call *call;
    struct profile_capture *capture;
    bool emits_xspace, has_timestamp;
};

/* The capture ends without a result. */
static void on_cancelled(struct grpc_call *call, void *user) {
    struct profile_call *profile = user;
    profile_drop(profile->capture);
    grpc_call_fail(call, status_new(STATUS_CANCELLED, "The client cancelled the profile"));
    free(profile);
}

static void reply(struct profile_call *profile, const struct str *message) {
    grpc_call_set_user(profile->call, NULL, NULL);
    service_reply(profile->call, message);
    free(profile);
}

static void on_profiled(void *arg, const struct profile_summary *summary, const struct str *xspace,
                        int64_t n_events) {
    struct profile_call *profile = arg;
    struct str message = STR_INIT;
    if (n_events == 0) {
        proto_add_int(&message, RESPONSE_EMPTY_TRACE, 1);
    } else if (profile->emits_xspace) {
        proto_add_bytes(&message, RESPONSE_XSPACE, xspace->data, xspace->len);
    } else {
        size_t size = xspace->len + 16, begin = proto_begin(&message, RESPONSE_TOOL_DATA, size);
        proto_add_bytes(&message, TOOL_NAME, "xplane.pb", 9);
        proto_add_bytes(&message, TOOL_DATA, xspace->data, xspace->len);
        proto_end(&message, begin, size);
    }
    reply(profile, &message);
    str_fini(&message);
}

static void start(struct service *service, struct grpc_call *call, int64_t duration_ms,
                  int64_t max_events, bool traces, struct span session_id, struct span host,
                  profile_done_fn *on_done, const struct profile_call *options) {
    if (service->is_draining) {
        grpc_call_fail(call, status_unavailable("This master is shutting down"));
        return;
    }
    struct profile_call *profile = xcalloc(1, sizeof *profile);
    *profile = *options;
    profile->call = call;
    struct status *st = profile_start(&service->profiler, duration_ms, max_events, traces,
                                      session_id, host, on_done, profile, &profile->capture);
    if (st) {
        free(profile);
        grpc_call_fail(call, st);
        return;
    }
    grpc_call_set_user(call, profile, on_cancelled);
}

void service_profile(void *arg, struct grpc_call *call) {
    struct span body = grpc_call_message(call)->body, session_id = {"", 0}, host = {"", 0};
    struct profile_call options = {.call = call};
    struct proto_field field;
    char name[256] = "";
    int64_t duration_ms = 0, max_events = 0;
    int more;
    while ((more = proto_next(&body, &field)) > 0) {
        if (proto_field_is(&field, REQUEST_DURATION_MS, 0))
            duration_ms = (int64_t)field.value;
        else if (proto_field_is(&field, REQUEST_MAX_EVENTS, 0))
            max_events = (int64_t)field.value;
        else if (proto_field_is(&field, REQUEST_SESSION_ID, 2))
            session_id = field.bytes;
        else if (proto_field_is(&field, REQUEST_HOST, 2))
            host = field.bytes;
        else if (proto_field_is(&field, REQUEST_EMIT_XSPACE, 0))
            options.emits_xspace = field.value != 0;
    }
    if (more < 0) {
        grpc_call_fail(call, status_invalid("Malformed ProfileRequest"));
        return;
    }
    if (host.len == 0 && gethostname(name, sizeof name - 1) == 0)
        host = span_of(name);
    start(arg, call, duration_ms, max_events, true, session_id, host, on_profiled, &options);
}

void service_profile_terminate(void *arg, struct grpc_call *call) {
    struct service *service = arg;
    struct span session_id;
    struct status *st =
        request_find_bytes(grpc_call_message(call)->body, TERMINATE_SESSION_ID, &session_id);
    if (!st)
        st = profiler_end(&service->profiler, session_id);
    if (st)
        grpc_call_fail(call, st);
    else
        service_reply(call, NULL);
}

static void add_double(struct str *out, uint32_t number, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    proto_add_fixed64(out, number, bits);
}

static void on_monitored(void *arg, const struct profile_summary *summary, const struct str *xspace,
                         int64_t n_events) {
    struct profile_call *profile = arg;
    struct str message = STR_INIT, text = STR_INIT, result = STR_INIT;
    double n = (double)MAX(summary->n_steps, (int64_t)1), average = (double)summary->total_us / n;
    if (profile->has_timestamp)
        str_addf(&text, "Timestamp: %lld\n", (long long)(clock_wall_us() / 1000000));
    str_addf(&text, "Steps: %lld (%.1f a second)\nStep time: average %.3f ms, min %.3f, max %.3f\n",
             (long long)summary->n_steps,
             (double)summary->n_steps * 1e6 / (double)MAX(summary->elapsed_us, (int64_t)1),
             average / 1e3, (double)summary->min_us / 1e3, (double)summary->max_us / 1e3);
    add_double(&result, RESULT_STEP_AVG, average / 1e3);
    add_double(&result, RESULT_STEP_MIN, (double)summary->min_us / 1e3);
    add_double(&result, RESULT_STEP_MAX, (double)summary->max_us / 1e3);
    proto_add_bytes(&message, MONITOR_DATA, text.data, text.len);
    proto_add_bytes(&message, MONITOR_RESULT, result.data, result.len);
    reply(profile, &message);
    str_fini(&message);
    str_fini(&text);
    str_fini(&result);
}

void service_profile_monitor(void *arg, struct grpc_call *call) {
    struct span body = grpc_call_message(call)->body, none = {"", 0};
    struct profile_call options = {.call = call};
    struct proto_field field;
    int64_t duration_ms = 0;
    int more;
    while ((more = proto_next(&body, &field)) > 0) {
        if (proto_field_is(&field, MONITOR_DURATION_MS, 0))
            duration_ms = (int64_t)field.value;
        else if (proto_field_is(&field, MONITOR_TIMESTAMP, 0))
            options.has_timestamp = field.value != 0;
    }
    if (more < 0) {
        grpc_call_fail(call, status_invalid("Malformed MonitorRequest"));
        return;
    }
    start(arg, call, duration_ms, 0, false, none, none, on_monitored, &options);
}
