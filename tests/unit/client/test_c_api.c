/* The C client against a master on another thread. */
#include "client/c_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/client/fake_master.h"

struct fixture {
    struct fake_master *master;
    TF_DeprecatedSession *session;
    TF_Status *status;
};

static TF_DeprecatedSession *open_session(const char *target, int64_t timeout_ms,
                                          TF_Status *status) {
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, target);
    MR_SetTimeout(options, timeout_ms);
    TF_DeprecatedSession *session = TF_NewDeprecatedSession(options, status);
    TF_DeleteSessionOptions(options);
    return session;
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    f->master = fake_master_start();
    f->status = TF_NewStatus();
    f->session = open_session(f->master->target, 20000, f->status);
    *state = f;
    return f->session ? 0 : -1;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    TF_DeleteDeprecatedSession(f->session, f->status);
    fake_master_stop(f->master);
    TF_DeleteStatus(f->status);
    free(f);
    return 0;
}

static void expect_ok(const TF_Status *status) {
    if (TF_GetCode(status) != TF_OK)
        fail_msg("%d: %s", TF_GetCode(status), TF_Message(status));
}

static void expect_error(const TF_Status *status, TF_Code code, const char *part) {
    assert_int_equal(TF_GetCode(status), code);
    if (!strstr(TF_Message(status), part))
        fail_msg("\"%s\" is not in \"%s\"", part, TF_Message(status));
}

/* ---- values ---- */

static void a_status_holds_its_message(void **state) {
    TF_Status *status = TF_NewStatus();
    assert_int_equal(TF_GetCode(status), TF_OK);
    assert_string_equal(TF_Message(status), "");
    TF_SetStatus(status, TF_NOT_FOUND, "no such thing");
    expect_error(status, TF_NOT_FOUND, "no such thing");
    TF_SetStatus(status, TF_OK, "ignored");
    assert_int_equal(TF_GetCode(status), TF_OK);
    TF_DeleteStatus(status);
    TF_DeleteStatus(NULL);
}

static void count_call(void *data, size_t length, void *arg) { ++*(int *)arg; }

static void tensors_check_their_size(void **state) {
    int64_t dims[2] = {2, 3}, negative = -1;
    float values[6] = {1, 2, 3, 4, 5, 6};
    int n_freed = 0;
    TF_Tensor *tensor = TF_NewTensor(1, dims, 2, values, sizeof(values), count_call, &n_freed);
    assert_int_equal(n_freed, 1);
    assert_int_equal(TF_TensorType(tensor), 1);
    assert_int_equal(TF_NumDims(tensor), 2);
    assert_int_equal(TF_Dim(tensor, 1), 3);
    assert_int_equal(TF_TensorElementCount(tensor), 6);
    assert_int_equal(TF_TensorByteSize(tensor), sizeof(values));
    assert_memory_equal(TF_TensorData(tensor), values, sizeof(values));
    TF_DeleteTensor(tensor);
    assert_null(TF_NewTensor(1, dims, 2, values, 20, count_call, &n_freed));
    assert_int_equal(n_freed, 2);
    assert_null(TF_AllocateTensor(1, &negative, 1, 4));
    assert_null(TF_AllocateTensor(99, dims, 2, 24));
    assert_null(TF_AllocateTensor(7, dims, 2, 48)); /* strings are made otherwise */
    TF_DeleteTensor(NULL);
}

static void large_memory_is_adopted(void **state) {
    enum { N = 4096 };
    float *values = aligned_alloc(64, (N + 16) * sizeof(float));
    int64_t dims[1] = {N};
    int n_freed = 0;
    size_t length = N * sizeof(float);
    values[0] = 1;
    TF_Tensor *tensor = TF_NewTensor(TF_FLOAT, dims, 1, values, length, count_call, &n_freed);
    assert_int_equal(n_freed, 0);
    assert_ptr_equal(TF_TensorData(tensor), values);
    TF_DeleteTensor(tensor);
    assert_int_equal(n_freed, 1);
    /* not aligned, without a deallocator: copied */
    char *odd = (char *)values + 1;
    tensor = TF_NewTensor(TF_FLOAT, dims, 1, odd, length, count_call, &n_freed);
    assert_int_equal(n_freed, 2);
    assert_ptr_not_equal(TF_TensorData(tensor), odd);
    TF_DeleteTensor(tensor);
    tensor = TF_NewTensor(TF_FLOAT, dims, 1, values, length, NULL, NULL);
    assert_ptr_not_equal(TF_TensorData(tensor), values);
    TF_DeleteTensor(tensor);
    dims[0] = N - 1; /* more bytes than needed */
    tensor = TF_NewTensor(TF_FLOAT, dims, 1, values, length, count_call, &n_freed);
    assert_ptr_equal(TF_TensorData(tensor), values);
    assert_int_equal(TF_TensorByteSize(tensor), length - sizeof(float));
    TF_DeleteTensor(tensor);
    assert_int_equal(n_freed, 3);
    dims[0] = N;
    /* too short, negative */
    assert_null(TF_NewTensor(TF_FLOAT, dims, 1, values, length - 4, count_call, &n_freed));
    dims[0] = -1;
    assert_null(TF_NewTensor(TF_FLOAT, dims, 1, values, length, count_call, &n_freed));
    assert_int_equal(n_freed, 5);
    free(values);
}

static void strings_hold_any_bytes(void **state) {
    const char *const data[] = {"a\0b", "", "caf\xc3\xa9"};
    const size_t lengths[] = {3, 0, 5};
    int64_t dim = 3;
    size_t length;
    TF_Tensor *tensor = MR_NewStringTensor(&dim, 1, data, lengths);
    for (int i = 0; i < 3; i++) {
        const char *bytes = MR_StringAt(tensor, i, &length);
        assert_int_equal(length, lengths[i]);
        assert_true(length == 0 || memcmp(bytes, data[i], length) == 0);
    }
    TF_DeleteTensor(tensor);
}

/* ---- sessions ---- */

static void a_target_must_name_a_port(void **state) {
    struct fixture *f = *state;
    assert_null(open_session("grpc://nowhere", -1, f->status));
    expect_error(f->status, TF_INVALID_ARGUMENT, "nowhere");
    expect_error(f->status, TF_INVALID_ARGUMENT, "grpc://HOST:PORT");
}

static void a_bad_config_is_refused(void **state) {
    struct fixture *f = *state;
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetConfig(options, "\x0a\x7f", 2, f->status);
    expect_error(f->status, TF_INVALID_ARGUMENT, "ConfigProto");
    TF_SetConfig(options, "\x38\x01", 2, f->status); /* allow_soft_placement */
    expect_ok(f->status);
    TF_SetTarget(options, f->master->target);
    TF_DeprecatedSession *session = TF_NewDeprecatedSession(options, f->status);
    TF_ExtendGraph(session, "", 0, f->status);
    expect_ok(f->status);
    assert_string_equal(str_text(&f->master->config), "\x38\x01");
    TF_DeleteDeprecatedSession(session, f->status);
    TF_DeleteSessionOptions(options);
}

static void nothing_is_sent_before_the_first_call(void **state) {
    struct fixture *f = *state;
    TF_CloseDeprecatedSession(f->session, f->status);
    expect_ok(f->status);
    assert_int_equal(f->master->n_created + f->master->n_closed, 0);
}

static void the_first_graph_creates_and_later_ones_extend(void **state) {
    struct fixture *f = *state;
    TF_ExtendGraph(f->session, "\n\agraph 1", 9, f->status);
    expect_ok(f->status);
    assert_string_equal(str_text(&f->master->graph), "\n\agraph 1");
    TF_ExtendGraph(f->session, "no message", 10, f->status);
    expect_error(f->status, TF_INVALID_ARGUMENT, "TF_ExtendGraph");
    TF_ExtendGraph(f->session, "\n\agraph 2", 9, f->status);
    expect_ok(f->status);
    assert_int_equal(f->master->extended_version, 77);
    TF_ExtendGraph(f->session, "\n\agraph 3", 9, f->status);
    expect_ok(f->status);
    assert_int_equal(f->master->extended_version, 78);
    assert_string_equal(str_text(&f->master->graph), "\n\agraph 3");
    assert_int_equal(f->master->n_created, 1);
}

static void a_session_needs_a_handle(void **state) {
    struct fixture *f = *state;
    f->master->refuses_handles = true;
    TF_ExtendGraph(f->session, "", 0, f->status);
    expect_error(f->status, TF_INTERNAL, "without a handle");
}

static void run_target(struct fixture *f, const char *target) {
    TF_Run(f->session, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL, f->status);
}

static void a_closed_session_says_so(void **state) {
    struct fixture *f = *state;
    run_target(f, "n");
    expect_ok(f->status);
    TF_CloseDeprecatedSession(f->session, f->status);
    expect_ok(f->status);
    run_target(f, "n");
    expect_error(f->status, TF_FAILED_PRECONDITION, "closed");
    TF_ExtendGraph(f->session, "", 0, f->status);
    expect_error(f->status, TF_FAILED_PRECONDITION, "closed");
    TF_CloseDeprecatedSession(f->session, f->status);
    expect_ok(f->status);
    assert_int_equal(f->master->n_closed, 1);
    assert_int_equal(f->master->n_steps, 1);
}

static void a_dead_port_is_unavailable(void **state) {
    struct fixture *f = *state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    char target[64];
    /* bound, never listening: nobody else gets the port */
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, len), 0);
    getsockname(fd, (struct sockaddr *)&address, &len);
    snprintf(target, sizeof(target), "grpc://127.0.0.1:%d", ntohs(address.sin_port));
    TF_DeprecatedSession *session = open_session(target, -1, f->status);
    run_target(&(struct fixture){NULL, session, f->status}, "n");
    expect_error(f->status, TF_UNAVAILABLE, target + strlen("grpc://"));
    TF_DeleteDeprecatedSession(session, f->status);
    close(fd);
}

/* ---- steps ---- */

static TF_Tensor *echo(struct fixture *f, const char *feed, const char *fetch, TF_Tensor *value) {
    TF_Tensor *output = NULL;
    TF_Run(f->session, NULL, &feed, &value, 1, &fetch, &output, 1, NULL, 0, NULL, f->status);
    return output;
}

static void feeds_come_back_as_fetches(void **state) {
    struct fixture *f = *state;
    static const struct {
        TF_DataType dtype;
        size_t size;
    } rows[] = {{1, 4}, {2, 8}, {3, 4}, {4, 1}, {9, 8}, {10, 1}, {14, 2}, {18, 16}, {19, 2}};
    int64_t dims[2] = {3, 1};
    char bytes[48];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(i & 1);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        TF_Tensor *in = TF_NewTensor(rows[i].dtype, dims, 2, bytes, 3 * rows[i].size, NULL, NULL),
                  *out = echo(f, "x:0", "x:0", in);
        expect_ok(f->status);
        assert_int_equal(TF_TensorType(out), rows[i].dtype);
        assert_int_equal(TF_NumDims(out), 2);
        assert_int_equal(TF_Dim(out, 0), 3);
        assert_memory_equal(TF_TensorData(out), bytes, 3 * rows[i].size);
        TF_DeleteTensor(in);
        TF_DeleteTensor(out);
    }
    assert_int_equal(f->master->n_created, 1);
    assert_true(f->master->wants_errors_in_body);
    assert_int_not_equal(f->master->request_id, 0);
}

static void an_endpoint_without_an_index_is_the_first(void **state) {
    struct fixture *f = *state;
    float value = 3.5f;
    TF_Tensor *in = TF_NewTensor(1, NULL, 0, &value, 4, NULL, NULL), *out = echo(f, "x", "x", in);
    expect_ok(f->status);
    assert_memory_equal(TF_TensorData(out), &value, 4);
    TF_DeleteTensor(out);
    out = echo(f, "x", "x:0", in);
    expect_ok(f->status);
    TF_DeleteTensor(in);
    TF_DeleteTensor(out);
}

static void strings_travel(void **state) {
    struct fixture *f = *state;
    const char *const data[] = {"a\0b", "", "longer than sixteen bytes, so not inside anything"};
    const size_t lengths[] = {3, 0, strlen(data[2])};
    int64_t dim = 3;
    size_t length;
    TF_Tensor *in = MR_NewStringTensor(&dim, 1, data, lengths), *out = echo(f, "s:0", "s:0", in);
    expect_ok(f->status);
    assert_int_equal(TF_TensorType(out), 7);
    for (int i = 0; i < 3; i++) {
        const char *bytes = MR_StringAt(out, i, &length);
        assert_int_equal(length, lengths[i]);
        assert_true(length == 0 || memcmp(bytes, data[i], length) == 0);
    }
    TF_DeleteTensor(in);
    TF_DeleteTensor(out);
}

static void empty_tensors_travel(void **state) {
    struct fixture *f = *state;
    int64_t dims[2] = {0, 5};
    TF_Tensor *in = TF_AllocateTensor(1, dims, 2, 0), *out = echo(f, "e:0", "e:0", in);
    expect_ok(f->status);
    assert_int_equal(TF_TensorElementCount(out), 0);
    assert_int_equal(TF_Dim(out, 1), 5);
    TF_DeleteTensor(in);
    TF_DeleteTensor(out);
}

static void big_tensors_travel_aligned(void **state) {
    struct fixture *f = *state;
    int64_t dim = 6 << 20;
    TF_Tensor *in = TF_AllocateTensor(3, &dim, 1, (size_t)dim * 4);
    int32_t *values = TF_TensorData(in);
    for (int64_t i = 0; i < dim; i++)
        values[i] = (int32_t)(i * 7919);
    TF_Tensor *out = echo(f, "big:0", "big:0", in);
    expect_ok(f->status);
    assert_memory_equal(TF_TensorData(out), values, (size_t)dim * 4);
    assert_int_equal((uintptr_t)TF_TensorData(out) % 64, 0);
    TF_DeleteTensor(in);
    TF_DeleteTensor(out);
}

static void several_feeds_and_a_doubled_fetch(void **state) {
    struct fixture *f = *state;
    int32_t one = 1, two = 2;
    const char *names[] = {"a:0", "b:1"}, *fetches[] = {"b:1", "a:0", "b:1"},
               *targets[] = {"t", "u"};
    TF_Tensor *in[] = {TF_NewTensor(3, NULL, 0, &one, 4, NULL, NULL),
                       TF_NewTensor(3, NULL, 0, &two, 4, NULL, NULL)},
              *out[3];
    TF_Run(f->session, NULL, names, in, 2, fetches, out, 3, targets, 2, NULL, f->status);
    expect_ok(f->status);
    assert_string_equal(str_text(&f->master->targets), "t u");
    assert_int_equal(*(int32_t *)TF_TensorData(out[0]), 2);
    assert_int_equal(*(int32_t *)TF_TensorData(out[1]), 1);
    assert_int_equal(*(int32_t *)TF_TensorData(out[2]), 2);
    for (int i = 0; i < 3; i++)
        TF_DeleteTensor(out[i]);
    TF_DeleteTensor(in[0]);
    TF_DeleteTensor(in[1]);
}

static void options_go_out_and_metadata_comes_back(void **state) {
    struct fixture *f = *state;
    TF_Buffer *options = TF_NewBufferFromString("\x08\x03", 2), *metadata = TF_NewBuffer();
    const char *target = "n";
    TF_Run(f->session, options, NULL, NULL, 0, NULL, NULL, 0, &target, 1, metadata, f->status);
    expect_ok(f->status);
    assert_string_equal(str_text(&f->master->run_options), "\x08\x03");
    assert_int_equal(metadata->length, 8);
    assert_memory_equal(metadata->data, "metadata", 8);
    TF_Run(f->session, options, NULL, NULL, 0, NULL, NULL, 0, &target, 1, metadata, f->status);
    expect_error(f->status, TF_INVALID_ARGUMENT, "Passing non-empty run_metadata is invalid.");
    assert_memory_equal(metadata->data, "metadata", 8);
    TF_DeleteBuffer(options);
    TF_DeleteBuffer(metadata);
    TF_DeleteBuffer(NULL);
}

/* ---- what goes wrong ---- */

static void errors_come_in_the_body(void **state) {
    struct fixture *f = *state;
    run_target(f, "fail_in_body");
    expect_error(f->status, TF_FAILED_PRECONDITION, "not initialized");
}

static void errors_come_in_trailers(void **state) {
    struct fixture *f = *state;
    run_target(f, "fail_in_trailers");
    expect_error(f->status, TF_OUT_OF_RANGE, "100% out of range:\n\t [[{{node caf\xc3\xa9}}]]");
    run_target(f, "n"); /* the session lives on */
    expect_ok(f->status);
}

static void a_missing_fetch_is_an_error(void **state) {
    struct fixture *f = *state;
    const char *fetch = "x:0", *target = "leave_out";
    TF_Tensor *output = (TF_Tensor *)f; /* anything */
    TF_Run(f->session, NULL, NULL, NULL, 0, &fetch, &output, 1, &target, 1, NULL, f->status);
    expect_error(f->status, TF_INTERNAL, "x:0");
    assert_null(output);
}

static void broken_replies_are_errors(void **state) {
    struct fixture *f = *state;
    const char *fetch = "x:0", *target = "bad_tensor";
    TF_Tensor *output;
    run_target(f, "garbage");
    expect_error(f->status, TF_INTERNAL, "malformed");
    TF_Run(f->session, NULL, NULL, NULL, 0, &fetch, &output, 1, &target, 1, NULL, f->status);
    assert_int_equal(TF_GetCode(f->status), TF_INVALID_ARGUMENT);
    assert_null(output);
    target = "large_claim";
    TF_Run(f->session, NULL, NULL, NULL, 0, &fetch, &output, 1, &target, 1, NULL, f->status);
    expect_error(f->status, TF_RESOURCE_EXHAUSTED,
                 "x:0: TensorProto of 12 bytes for 1073741824 elements");
    assert_null(output);
}

static void a_timeout_ends_a_step(void **state) {
    struct fixture *f = *state;
    TF_DeprecatedSession *session = open_session(f->master->target, 100, f->status);
    run_target(&(struct fixture){f->master, session, f->status}, "hang");
    expect_error(f->status, TF_DEADLINE_EXCEEDED, "RunStep");
    /* the connection is in use again: the reset has come before the close */
    TF_DeleteDeprecatedSession(session, f->status);
    expect_ok(f->status);
    assert_int_equal(f->master->n_cancelled, 1);
    assert_in_range(f->master->timeout_ms, 1, 101);
}

/* ---- the rest ---- */

static void a_partial_run_that_fails_has_no_handle(void **state) {
    struct fixture *f = *state;
    const char *handle = "old", *target = "n";
    TF_PRunSetup(f->session, NULL, 0, NULL, 0, &target, 1, NULL, f->status);
    expect_error(f->status, TF_INVALID_ARGUMENT, "TF_PRunSetup: handle is NULL");
    TF_PRunSetup(f->session, NULL, 0, NULL, 0, &target, 1, &handle, f->status);
    expect_error(f->status, TF_UNIMPLEMENTED, ""); /* the fake has no partial runs */
    assert_null(handle);
    handle = "old";
    TF_SessionPRunSetup(NULL, NULL, 0, NULL, 0, NULL, 0, &handle, f->status);
    expect_error(f->status, TF_INVALID_ARGUMENT, "session is NULL");
    assert_null(handle);
}

static void reset_names_containers(void **state) {
    struct fixture *f = *state;
    const char *containers[] = {"a", "b"};
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, f->master->target);
    TF_Reset(options, containers, 2, f->status);
    expect_ok(f->status);
    assert_string_equal(str_text(&f->master->containers), "[a][b]");
    TF_Reset(options, NULL, 0, f->status);
    expect_ok(f->status);
    assert_string_equal(str_text(&f->master->containers), "");
    assert_int_equal(f->master->n_reset, 2);
    TF_DeleteSessionOptions(options);
}

static void devices_are_listed(void **state) {
    struct fixture *f = *state;
    TF_DeviceList *list = TF_DeprecatedSessionListDevices(f->session, f->status);
    expect_ok(f->status);
    assert_int_equal(TF_DeviceListCount(list), 2);
    assert_string_equal(TF_DeviceListName(list, 0, f->status),
                        "/job:worker/replica:0/task:0/device:CPU:0");
    assert_string_equal(TF_DeviceListType(list, 1, f->status), "GPU");
    assert_int_equal(TF_DeviceListMemoryBytes(list, 0, f->status), 1 << 28);
    assert_true(TF_DeviceListIncarnation(list, 0, f->status) == 0xfedcba9876543210);
    expect_ok(f->status);
    assert_string_equal(TF_DeviceListName(list, 2, f->status), "");
    expect_error(f->status, TF_INVALID_ARGUMENT, "device 2 of 2");
    TF_DeleteDeviceList(list);
    TF_DeleteDeviceList(NULL);
}

static void *run_many(void *arg) {
    struct fixture *f = arg;
    TF_Status *status = TF_NewStatus();
    const char *target = "n";
    for (int i = 0; i < 50; i++) {
        TF_Run(f->session, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL, status);
        CHECK(TF_GetCode(status) == TF_OK);
    }
    TF_DeleteStatus(status);
    return NULL;
}

static void threads_may_share_a_session(void **state) {
    struct fixture *f = *state;
    pthread_t threads[4];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_create(&threads[i], NULL, run_many, f);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(f->master->n_steps, 200);
    assert_int_equal(f->master->n_created, 1);
}

/* What threads do with the session of a graph, until one of them closes it. */
struct shared_session {
    TF_Graph *graph;
    TF_Session *session;
    _Atomic int n_threads, n_runs, n_refused;
};

static TF_Operation *add_placeholder(TF_Graph *graph, int thread, int i, TF_Status *status) {
    char name[32];
    snprintf(name, sizeof(name), "x_%d_%d", thread, i);
    TF_OperationDescription *desc = TF_NewOperation(graph, "Placeholder", name);
    TF_SetAttrType(desc, "dtype", TF_FLOAT);
    return TF_FinishOperation(desc, status);
}

/* Each run needs an operation that this thread has just added. The run that is the 60th of all
 * threads is followed by a close; later ones are refused. */
static void *run_and_extend(void *arg) {
    enum { CLOSE_AFTER = 60 };
    struct shared_session *shared = arg;
    TF_Status *status = TF_NewStatus();
    int thread = shared->n_threads++, n_refused = 0;
    for (int i = 0; n_refused < 3; i++) {
        TF_Output x = {add_placeholder(shared->graph, thread, i, status), 0};
        CHECK(x.oper);
        TF_Tensor *value = TF_AllocateTensor(TF_FLOAT, NULL, 0, sizeof(float)), *result = NULL;
        *(float *)TF_TensorData(value) = (float)i;
        TF_SessionRun(shared->session, NULL, &x, &value, 1, &x, &result, 1, NULL, 0, NULL, status);
        CHECK(TF_GetCode(status) == TF_OK || TF_GetCode(status) == TF_FAILED_PRECONDITION);
        CHECK((TF_GetCode(status) == TF_OK) == (result != NULL));
        if (result)
            CHECK(*(float *)TF_TensorData(result) == (float)i);
        n_refused += !result;
        TF_DeleteTensor(value);
        TF_DeleteTensor(result);
        if (result && ++shared->n_runs == CLOSE_AFTER) {
            TF_CloseSession(shared->session, status);
            CHECK(TF_GetCode(status) == TF_OK);
        }
    }
    shared->n_refused += n_refused;
    TF_DeleteStatus(status);
    return NULL;
}

static void a_session_closes_while_threads_run_and_extend(void **state) {
    struct fixture *f = *state;
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, f->master->target);
    struct shared_session shared = {.graph = TF_NewGraph()};
    shared.session = TF_NewSession(shared.graph, options, f->status);
    expect_ok(f->status);
    TF_DeleteSessionOptions(options);
    pthread_t threads[4];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_create(&threads[i], NULL, run_and_extend, &shared);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    assert_true(shared.n_runs >= 60); /* others ran on until the close */
    assert_int_equal(shared.n_refused, 12);
    assert_int_equal(f->master->n_closed, 1);
    TF_DeleteSession(shared.session, f->status);
    expect_ok(f->status);
    TF_DeleteGraph(shared.graph);
}

#define WITH_MASTER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_holds_its_message),
        cmocka_unit_test(tensors_check_their_size),
        cmocka_unit_test(large_memory_is_adopted),
        cmocka_unit_test(strings_hold_any_bytes),
        WITH_MASTER(a_target_must_name_a_port),
        WITH_MASTER(a_bad_config_is_refused),
        WITH_MASTER(nothing_is_sent_before_the_first_call),
        WITH_MASTER(the_first_graph_creates_and_later_ones_extend),
        WITH_MASTER(a_session_needs_a_handle),
        WITH_MASTER(a_closed_session_says_so),
        WITH_MASTER(a_dead_port_is_unavailable),
        WITH_MASTER(feeds_come_back_as_fetches),
        WITH_MASTER(an_endpoint_without_an_index_is_the_first),
        WITH_MASTER(strings_travel),
        WITH_MASTER(empty_tensors_travel),
        WITH_MASTER(big_tensors_travel_aligned),
        WITH_MASTER(several_feeds_and_a_doubled_fetch),
        WITH_MASTER(options_go_out_and_metadata_comes_back),
        WITH_MASTER(errors_come_in_the_body),
        WITH_MASTER(errors_come_in_trailers),
        WITH_MASTER(a_missing_fetch_is_an_error),
        WITH_MASTER(broken_replies_are_errors),
        WITH_MASTER(a_timeout_ends_a_step),
        WITH_MASTER(a_partial_run_that_fails_has_no_handle),
        WITH_MASTER(reset_names_containers),
        WITH_MASTER(devices_are_listed),
        WITH_MASTER(threads_may_share_a_session),
        WITH_MASTER(a_session_closes_while_threads_run_and_extend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
