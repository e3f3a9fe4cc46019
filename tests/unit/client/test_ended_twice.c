/* What a program ends twice, or uses after its owner ended: where the client can know, a status
 * says so; elsewhere AddressSanitizer sees it in a child process, since all is really freed. */
#include "client/c_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>

#include "client/training.h"
#include "tests/unit/client/child_report.h"
#include "tests/unit/client/fake_master.h"

static volatile size_t sink; /* what is read must not be optimised away */

static TF_Output placeholder(TF_Graph *graph, TF_Status *status) {
    TF_OperationDescription *desc = TF_NewOperation(graph, "Placeholder", "x");
    TF_SetAttrType(desc, "dtype", TF_FLOAT);
    return (TF_Output){TF_FinishOperation(desc, status), 0};
}

static TF_Session *new_session(TF_Graph *graph, const char *target, TF_Status *status) {
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, target);
    TF_Session *session = TF_NewSession(graph, options, status);
    TF_DeleteSessionOptions(options);
    return session;
}

/* Nobody listens there; a session connects with its first call. */
#define NOWHERE "grpc://127.0.0.1:1"

/* ---- freed twice ---- */

static void free_a_graph(TF_Status *status) {
    (void)status;
    TF_Graph *graph = TF_NewGraph();
    TF_DeleteGraph(graph);
    TF_DeleteGraph(graph);
}

static void free_a_session(TF_Status *status) {
    TF_Session *session = new_session(TF_NewGraph(), NOWHERE, status);
    TF_DeleteSession(session, status);
    TF_DeleteSession(session, status);
}

static void close_a_freed_session(TF_Status *status) {
    TF_Session *session = new_session(TF_NewGraph(), NOWHERE, status);
    TF_DeleteSession(session, status);
    TF_CloseSession(session, status);
}

static void free_a_deprecated_session(TF_Status *status) {
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, NOWHERE);
    TF_DeprecatedSession *session = TF_NewDeprecatedSession(options, status);
    TF_DeleteDeprecatedSession(session, status);
    TF_DeleteDeprecatedSession(session, status);
}

static void free_session_options(TF_Status *status) {
    (void)status;
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_DeleteSessionOptions(options);
    TF_DeleteSessionOptions(options);
}

static void free_a_tensor(TF_Status *status) {
    (void)status;
    TF_Tensor *tensor = TF_AllocateTensor(TF_FLOAT, NULL, 0, sizeof(float));
    TF_DeleteTensor(tensor);
    TF_DeleteTensor(tensor);
}

static void free_a_buffer(TF_Status *status) {
    (void)status;
    TF_Buffer *buffer = TF_NewBufferFromString("abc", 3);
    TF_DeleteBuffer(buffer);
    TF_DeleteBuffer(buffer);
}

static void free_a_status(TF_Status *status) {
    TF_DeleteStatus(status);
    TF_DeleteStatus(status);
}

static void free_a_function(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    TF_Output x = placeholder(graph, status);
    TF_Function *function =
        TF_GraphToFunction(graph, "f", 0, -1, NULL, 1, &x, 1, &x, NULL, NULL, NULL, status);
    TF_DeleteFunction(function);
    TF_DeleteFunction(function);
}

static void free_import_options(TF_Status *status) {
    (void)status;
    TF_ImportGraphDefOptions *options = TF_NewImportGraphDefOptions();
    TF_DeleteImportGraphDefOptions(options);
    TF_DeleteImportGraphDefOptions(options);
}

static void free_import_results(TF_Status *status) {
    TF_Buffer *empty = TF_NewBuffer();
    TF_ImportGraphDefOptions *options = TF_NewImportGraphDefOptions();
    TF_ImportGraphDefResults *results =
        TF_GraphImportGraphDefWithResults(TF_NewGraph(), empty, options, status);
    TF_DeleteImportGraphDefResults(results);
    TF_DeleteImportGraphDefResults(results);
}

static void free_a_builder(TF_Status *status) {
    (void)status;
    MR_Builder *builder = MR_NewBuilder(TF_NewGraph());
    MR_DeleteBuilder(builder);
    MR_DeleteBuilder(builder);
}

static void free_a_coordinator(TF_Status *status) {
    (void)status;
    MR_Coordinator *coordinator = MR_NewCoordinator();
    MR_DeleteCoordinator(coordinator);
    MR_DeleteCoordinator(coordinator);
}

static MR_Run *start_a_run(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    const TF_Operation *target = TF_FinishOperation(TF_NewOperation(graph, "NoOp", "n"), status);
    TF_Session *session = new_session(graph, fake_master_start()->target, status);
    MR_Run *run =
        MR_SessionRunAsync(session, NULL, NULL, NULL, 0, NULL, 0, &target, 1, NULL, NULL, status);
    CHECK(run);
    MR_WaitRun(run);
    return run;
}

static void free_a_run(TF_Status *status) {
    MR_Run *run = start_a_run(status);
    MR_DeleteRun(run);
    MR_DeleteRun(run);
}

static TF_DeviceList *list_devices(TF_Status *status) {
    TF_Session *session = new_session(TF_NewGraph(), fake_master_start()->target, status);
    TF_DeviceList *devices = TF_SessionListDevices(session, status);
    CHECK(devices);
    return devices;
}

static void free_a_device_list(TF_Status *status) {
    TF_DeviceList *devices = list_devices(status);
    TF_DeleteDeviceList(devices);
    TF_DeleteDeviceList(devices);
}

/* ---- loops: the finish frees what TF_NewWhile made, also after an error ---- */

static TF_WhileParams new_loop(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    TF_Output x = placeholder(graph, status);
    return TF_NewWhile(graph, &x, 1, status);
}

static void finish_a_loop_twice(TF_Status *status) {
    TF_WhileParams params = new_loop(status);
    TF_Output output;
    params.name = "loop";
    TF_FinishWhile(&params, status, &output);
    TF_FinishWhile(&params, status, &output);
}

static void abort_a_finished_loop(TF_Status *status) {
    TF_WhileParams params = new_loop(status);
    TF_Output output;
    TF_FinishWhile(&params, status, &output);
    TF_AbortWhile(&params);
}

static void finish_an_aborted_loop(TF_Status *status) {
    TF_WhileParams params = new_loop(status);
    TF_Output output;
    params.name = "loop";
    params.cond_output = params.cond_inputs[0];
    params.body_outputs[0] = params.body_inputs[0];
    TF_AbortWhile(&params);
    TF_FinishWhile(&params, status, &output);
}

/* ---- what belongs to something that was freed ---- */

static void read_a_message(TF_Status *status) {
    TF_SetStatus(status, TF_ABORTED, "why");
    const char *message = TF_Message(status);
    TF_DeleteStatus(status);
    sink = strlen(message);
}

static void read_a_name(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    const char *name = TF_OperationName(placeholder(graph, status).oper);
    TF_DeleteGraph(graph);
    sink = strlen(name);
}

static void read_a_function_name(TF_Status *status) {
    TF_Function *function = TF_FunctionImportFunctionDef("\x0a\x03\x0a\x01g", 5, status);
    const char *name = TF_FunctionName(function);
    TF_DeleteFunction(function);
    sink = strlen(name);
}

static void read_a_device_name(TF_Status *status) {
    TF_DeviceList *devices = list_devices(status);
    const char *name = TF_DeviceListName(devices, 0, status);
    CHECK(name);
    TF_DeleteDeviceList(devices);
    sink = strlen(name);
}

static void read_a_run(TF_Status *status) {
    MR_Run *run = start_a_run(status);
    MR_DeleteRun(run);
    sink = MR_RunHasEnded(run);
}

static void read_a_coordinator(TF_Status *status) {
    (void)status;
    MR_Coordinator *coordinator = MR_NewCoordinator();
    MR_DeleteCoordinator(coordinator);
    sink = MR_ShouldStop(coordinator);
}

static void read_elements(int64_t n) {
    TF_Tensor *tensor = TF_AllocateTensor(TF_FLOAT, &n, 1, (size_t)n * sizeof(float));
    volatile float *elements = TF_TensorData(tensor);
    elements[n - 1] = 1;
    TF_DeleteTensor(tensor);
    sink = (size_t)elements[n - 1];
}

static void read_a_megabyte(TF_Status *status) {
    (void)status;
    read_elements(1 << 18);
}

static void read_a_hundred_megabytes(TF_Status *status) {
    (void)status;
    read_elements(25 << 20);
}

/* A model, whose builder is deleted. */
struct model {
    MR_Variable *variable;
    MR_Optimizer *optimizer;
    MR_Saver *saver;
    MR_SummaryWriter *writer;
    MR_Lbfgs *lbfgs;
    MR_SyncReplicas *sync;
    MR_Builder *other; /* of the same graph */
    TF_Session *session;
};

static struct model end_model(TF_Status *status) {
    struct model m;
    TF_Graph *graph = TF_NewGraph();
    MR_Builder *b = MR_NewBuilder(graph);
    MR_Variable *step = MR_NewGlobalStep(b);
    m.variable = MR_NewVariable(b, "v", TF_FLOAT, MR_DIMS(2), MR_Zeros());
    m.optimizer = MR_NewGradientDescent(b, MR_Scalar(b, TF_FLOAT, 0.1));
    m.saver = MR_NewSaver(b, NULL, -1, 1);
    m.writer = MR_NewSummaryWriter(b, "/nowhere", MR_Read(b, step));
    TF_Output loss =
        MR_Op(b, "Sum", NULL,
              MR_INPUTS(MR_Unary(b, "Square", MR_Read(b, m.variable)), MR_Scalar(b, TF_INT32, 0)));
    m.lbfgs = MR_NewLbfgs(b, loss, NULL, -1, 3);
    m.sync = MR_NewSyncReplicas(b, m.optimizer, step, 1, 1);
    if (TF_GetCode(MR_BuilderStatus(b)) != TF_OK)
        fprintf(stderr, "%s\n", TF_Message(MR_BuilderStatus(b)));
    CHECK(TF_GetCode(MR_BuilderStatus(b)) == TF_OK);
    m.session = new_session(graph, NOWHERE, status);
    MR_DeleteBuilder(b);
    m.other = MR_NewBuilder(graph);
    return m;
}

static void use_a_variable(TF_Status *status) {
    sink = (size_t)MR_VariableType(end_model(status).variable);
}

static void use_an_optimizer(TF_Status *status) {
    struct model m = end_model(status);
    sink = (size_t)MR_Slot(m.optimizer, m.variable, 0);
}

static void use_a_saver(TF_Status *status) {
    struct model m = end_model(status);
    MR_Restore(m.saver, m.session, "/nowhere", status);
}

static void use_a_summary_writer(TF_Status *status) {
    sink = (size_t)MR_SummaryOpen(end_model(status).writer);
}

static void use_lbfgs(TF_Status *status) {
    struct model m = end_model(status);
    MR_LbfgsStep(m.lbfgs, m.session, NULL, NULL, 0, status);
}

static void use_sync_replicas(TF_Status *status) {
    struct model m = end_model(status);
    MR_SyncUpdate(m.other, m.sync);
}

static void test_addresssanitizer_sees_each_use(void **state) {
    (void)state;
    if (!HAS_ASAN)
        skip();
#define USE(name) \
    { name, #name }
    static const struct {
        void (*use)(TF_Status *status);
        const char *name;
    } uses[] = {
        USE(free_a_graph),
        USE(free_a_session),
        USE(close_a_freed_session),
        USE(free_a_tensor),
        USE(free_session_options),
        USE(free_a_deprecated_session),
        USE(free_a_buffer),
        USE(free_a_status),
        USE(free_a_function),
        USE(free_import_options),
        USE(free_import_results),
        USE(free_a_builder),
        USE(free_a_coordinator),
        USE(free_a_run),
        USE(free_a_device_list),
        USE(finish_a_loop_twice),
        USE(abort_a_finished_loop),
        USE(finish_an_aborted_loop),
        USE(read_a_message),
        USE(read_a_name),
        USE(read_a_function_name),
        USE(read_a_device_name),
        USE(read_a_run),
        USE(read_a_coordinator),
        USE(read_a_megabyte),
        USE(read_a_hundred_megabytes),
        USE(use_a_variable),
        USE(use_an_optimizer),
        USE(use_a_saver),
        USE(use_a_summary_writer),
        USE(use_lbfgs),
        USE(use_sync_replicas),
    };
#undef USE
    for (size_t i = 0; i < ARRAY_LEN(uses); i++)
        expect_report(uses[i].use, uses[i].name);
}

/* ---- what the client can know ---- */

static void test_a_session_may_be_closed_twice(void **state) {
    (void)state;
    TF_Status *status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    struct fake_master *master = fake_master_start();
    const TF_Operation *target = TF_FinishOperation(TF_NewOperation(graph, "NoOp", "n"), status);
    TF_Session *session = new_session(graph, master->target, status);
    TF_SessionRun(session, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL, status);
    assert_int_equal(TF_GetCode(status), TF_OK);
    for (int i = 0; i < 2; i++) {
        TF_CloseSession(session, status);
        assert_int_equal(TF_GetCode(status), TF_OK);
    }
    TF_SessionRun(session, NULL, NULL, NULL, 0, NULL, NULL, 0, &target, 1, NULL, status);
    assert_int_equal(TF_GetCode(status), TF_FAILED_PRECONDITION);
    assert_non_null(strstr(TF_Message(status), "is closed"));
    assert_null(
        MR_SessionRunAsync(session, NULL, NULL, NULL, 0, NULL, 0, &target, 1, NULL, NULL, status));
    assert_int_equal(TF_GetCode(status), TF_FAILED_PRECONDITION);
    TF_DeleteSession(session, status);
    assert_int_equal(TF_GetCode(status), TF_OK);
    assert_int_equal(master->n_closed, 1);
    TF_DeleteGraph(graph);
    fake_master_stop(master);
    TF_DeleteStatus(status);
}

static void test_a_result_is_given_once(void **state) {
    (void)state;
    TF_Status *status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    struct fake_master *master = fake_master_start();
    const TF_Operation *target = TF_FinishOperation(TF_NewOperation(graph, "NoOp", "n"), status);
    TF_Session *session = new_session(graph, master->target, status);
    MR_Run *run =
        MR_SessionRunAsync(session, NULL, NULL, NULL, 0, NULL, 0, &target, 1, NULL, NULL, status);
    MR_RunResult(run, NULL, NULL, status);
    assert_int_equal(TF_GetCode(status), TF_OK);
    MR_RunResult(run, NULL, NULL, status);
    assert_int_equal(TF_GetCode(status), TF_FAILED_PRECONDITION);
    assert_non_null(strstr(TF_Message(status), "MR_RunResult"));
    MR_DeleteRun(run);
    TF_DeleteSession(session, status);
    TF_DeleteGraph(graph);
    fake_master_stop(master);
    TF_DeleteStatus(status);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresssanitizer_sees_each_use),
        cmocka_unit_test(test_a_session_may_be_closed_twice),
        cmocka_unit_test(test_a_result_is_given_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
