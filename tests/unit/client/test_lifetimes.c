/* What was freed is really freed: each use of a handle after its end is seen by AddressSanitizer,
 * in a child process that it ends. Graphs and sessions outlive each other as c_session.h says.
 * Without AddressSanitizer the first test is skipped. */
#include "client/c_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/unit/client/child_report.h"

static volatile size_t sink; /* what is read must not be optimised away */

static TF_Operation *placeholder(TF_Graph *graph, const char *name, TF_Status *status) {
    TF_OperationDescription *desc = TF_NewOperation(graph, "Placeholder", name);
    TF_SetAttrType(desc, "dtype", TF_FLOAT);
    return TF_FinishOperation(desc, status);
}

/* ---- each kind of handle, used after it was freed ---- */

static void use_a_graph(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    placeholder(graph, "x", status);
    TF_DeleteGraph(graph);
    sink = (size_t)TF_GraphOperationByName(graph, "x");
}

static void use_an_operation(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    TF_Operation *x = placeholder(graph, "x", status);
    TF_DeleteGraph(graph);
    sink = strlen(TF_OperationName(x));
}

static void use_a_description(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    TF_OperationDescription *desc = TF_NewOperation(graph, "NoOp", "n");
    TF_DeleteGraph(graph);
    TF_FinishOperation(desc, status);
}

static void use_a_tensor(TF_Status *status) {
    (void)status;
    TF_Tensor *t = TF_AllocateTensor(TF_FLOAT, NULL, 0, sizeof(float));
    TF_DeleteTensor(t);
    sink = TF_TensorByteSize(t);
}

static void use_the_elements_of_a_tensor(TF_Status *status) {
    (void)status;
    int64_t n = 1000;
    TF_Tensor *t = TF_AllocateTensor(TF_FLOAT, &n, 1, 4000);
    const volatile float *elements = TF_TensorData(t);
    TF_DeleteTensor(t);
    sink = (size_t)elements[7];
}

static void use_a_status(TF_Status *status) {
    (void)status;
    TF_Status *own = TF_NewStatus();
    TF_DeleteStatus(own);
    sink = TF_GetCode(own);
}

static void use_a_buffer(TF_Status *status) {
    (void)status;
    TF_Buffer *buffer = TF_NewBufferFromString("abc", 3);
    TF_DeleteBuffer(buffer);
    sink = TF_GetBuffer(buffer).length;
}

static void use_session_options(TF_Status *status) {
    (void)status;
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_DeleteSessionOptions(options);
    TF_SetTarget(options, "grpc://127.0.0.1:1");
}

static void use_a_session(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, "grpc://127.0.0.1:1");
    TF_Session *session = TF_NewSession(graph, options, status);
    TF_DeleteSession(session, status);
    TF_SessionRun(session, NULL, NULL, NULL, 0, NULL, NULL, 0, NULL, 0, NULL, status);
}

static void use_import_options(TF_Status *status) {
    (void)status;
    TF_ImportGraphDefOptions *options = TF_NewImportGraphDefOptions();
    TF_DeleteImportGraphDefOptions(options);
    TF_ImportGraphDefOptionsSetPrefix(options, "p");
}

static void use_import_results(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    TF_ImportGraphDefOptions *options = TF_NewImportGraphDefOptions();
    TF_Buffer *empty = TF_NewBuffer();
    TF_ImportGraphDefResults *results =
        TF_GraphImportGraphDefWithResults(graph, empty, options, status);
    TF_DeleteImportGraphDefResults(results);
    int n;
    TF_Output *outputs;
    TF_ImportGraphDefResultsReturnOutputs(results, &n, &outputs);
    sink = (size_t)n;
}

static void use_a_function(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    TF_Output x = {placeholder(graph, "x", status), 0};
    TF_Function *function =
        TF_GraphToFunction(graph, "f", 0, -1, NULL, 1, &x, 1, &x, NULL, NULL, NULL, status);
    TF_DeleteFunction(function);
    sink = strlen(TF_FunctionName(function));
}

static void use_a_loop(TF_Status *status) {
    TF_Graph *graph = TF_NewGraph();
    TF_Output x = {placeholder(graph, "x", status), 0};
    TF_WhileParams params = TF_NewWhile(graph, &x, 1, status);
    TF_AbortWhile(&params);
    sink = (size_t)params.body_inputs[0].index;
}

static void test_every_use_after_the_end_is_reported(void **state) {
    (void)state;
    if (!HAS_ASAN)
        skip();
#define USE(name) \
    { use_##name, #name }
    static const struct {
        void (*use)(TF_Status *status);
        const char *name;
    } uses[] = {USE(a_graph),        USE(an_operation), USE(a_description),
                USE(a_tensor),       USE(a_status),     USE(the_elements_of_a_tensor),
                USE(a_buffer),       USE(a_session),    USE(session_options),
                USE(import_options), USE(a_function),   USE(import_results),
                USE(a_loop)};
#undef USE
    for (size_t i = 0; i < ARRAY_LEN(uses); i++)
        expect_report(uses[i].use, uses[i].name);
}

/* ---- what may outlive what ---- */

static void test_a_graph_outlives_its_delete_while_a_session_has_it(void **state) {
    (void)state;
    TF_Status *status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    TF_Operation *x = placeholder(graph, "x", status);
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_SetTarget(options, "grpc://127.0.0.1:1");
    TF_Session *session = TF_NewSession(graph, options, status);
    assert_int_equal(TF_GetCode(status), TF_OK);
    TF_DeleteSessionOptions(options);
    TF_DeleteGraph(graph);
    assert_string_equal(TF_OperationName(x), "x");
    TF_DeleteSession(session, status);
    TF_DeleteStatus(status);
}

static void test_texts_of_a_status_outlive_the_graph(void **state) {
    (void)state;
    TF_Status *status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    placeholder(graph, "x", status);
    assert_null(placeholder(graph, "x", status));
    TF_DeleteGraph(graph);
    assert_non_null(strstr(TF_Message(status), "x"));
    TF_DeleteStatus(status);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_use_after_the_end_is_reported),
        cmocka_unit_test(test_a_graph_outlives_its_delete_while_a_session_has_it),
        cmocka_unit_test(test_texts_of_a_status_outlive_the_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
