/* What the client's graphs do with bad input; tests/client compares good input with TensorFlow. */
#include "client/c_api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "common/tensor/tensor_proto.h"

struct fixture {
    TF_Graph *graph, *other;
    TF_Status *status;
    TF_Operation *x; /* a float placeholder */
};

static TF_Operation *placeholder(TF_Graph *graph, const char *name, TF_DataType dtype,
                                 TF_Status *status) {
    TF_OperationDescription *desc = TF_NewOperation(graph, "Placeholder", name);
    TF_SetAttrType(desc, "dtype", dtype);
    return TF_FinishOperation(desc, status);
}

static int setup(void **state) {
    static struct fixture f;
    f.graph = TF_NewGraph();
    f.other = TF_NewGraph();
    f.status = TF_NewStatus();
    f.x = placeholder(f.graph, "x", TF_FLOAT, f.status);
    *state = &f;
    return f.x ? 0 : -1;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    TF_DeleteGraph(f->graph);
    TF_DeleteGraph(f->other);
    TF_DeleteStatus(f->status);
    return 0;
}

static void expect_error(const struct fixture *f, TF_Code code, const char *part,
                         const char *other_part) {
    assert_int_equal(TF_GetCode(f->status), code);
    if (!strstr(TF_Message(f->status), part) || !strstr(TF_Message(f->status), other_part))
        fail_msg("\"%s\" and \"%s\" are not in \"%s\"", part, other_part, TF_Message(f->status));
}

static void test_null_names_are_reported_by_the_finish(void **state) {
    struct fixture *f = *state;
    assert_null(TF_FinishOperation(TF_NewOperation(f->graph, NULL, "n"), f->status));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_NewOperation", "op_type is NULL");
    assert_null(TF_FinishOperation(TF_NewOperation(f->graph, "NoOp", NULL), f->status));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_NewOperation", "oper_name is NULL");
    assert_null(TF_NewOperation(NULL, "NoOp", "n"));
    assert_null(TF_FinishOperation(NULL, f->status));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_FinishOperation", "desc is NULL");
}

static void test_an_operation_is_finished_once(void **state) {
    struct fixture *f = *state;
    TF_OperationDescription *desc = TF_NewOperation(f->graph, "NoOp", "n");
    assert_non_null(TF_FinishOperation(desc, f->status));
    assert_null(TF_FinishOperation(desc, f->status));
    expect_error(f, TF_FAILED_PRECONDITION, "TF_FinishOperation", "'n'");
    TF_SetAttrInt(desc, "_late", 1);
    TF_AddControlInput(desc, f->x);
    TF_SetAttrValueProto(desc, "_late", "\x18\x05", 2, f->status);
    expect_error(f, TF_FAILED_PRECONDITION, "TF_SetAttrValueProto", "'n'");
    assert_int_equal(TF_OperationNumControlInputs(TF_GraphOperationByName(f->graph, "n")), 0);
}

static void test_null_values_of_attrs_name_the_setter(void **state) {
    struct fixture *f = *state;
    TF_OperationDescription *desc = TF_NewOperation(f->graph, "NoOp", "a");
    TF_SetAttrIntList(desc, "_list", NULL, 3);
    assert_null(TF_FinishOperation(desc, f->status));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_SetAttrIntList", "'_list'");
    desc = TF_NewOperation(f->graph, "NoOp", "b");
    TF_SetAttrInt(desc, NULL, 3);
    assert_null(TF_FinishOperation(desc, f->status));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_SetAttrInt", "attr_name is NULL");
    desc = TF_NewOperation(f->graph, "NoOp", "c");
    TF_SetAttrTypeList(desc, "_list", NULL, -1);
    assert_null(TF_FinishOperation(desc, f->status));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_SetAttrTypeList", "-1 values");
    desc = TF_NewOperation(f->graph, "NoOp", "d");
    TF_SetAttrTensor(desc, "_t", NULL, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "TF_SetAttrTensor", "NULL");
    TF_SetAttrValueProto(desc, "_v", "\xff\xff", 2, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "TF_SetAttrValueProto", "'_v'");
    TF_SetAttrTensorShapeProto(desc, "_s", "\xff\xff", 2, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "Unparseable TensorShapeProto", "'_s'");
    assert_non_null(TF_FinishOperation(desc, f->status));
}

static void test_inputs_of_other_graphs_and_outputs_that_are_not_there(void **state) {
    struct fixture *f = *state;
    TF_Operation *stranger = placeholder(f->other, "stranger", TF_FLOAT, f->status);
    TF_OperationDescription *desc = TF_NewOperation(f->graph, "Relu", "a");
    TF_AddInput(desc, (TF_Output){stranger, 0});
    assert_null(TF_FinishOperation(desc, f->status));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_AddInput", "'stranger' is of another graph");
    desc = TF_NewOperation(f->graph, "Relu", "a");
    TF_AddInput(desc, (TF_Output){f->x, 1});
    assert_null(TF_FinishOperation(desc, f->status));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_AddInput", "'x' (op Placeholder) has no output 1");
    desc = TF_NewOperation(f->graph, "Relu", "a");
    TF_AddInput(desc, (TF_Output){NULL, 0});
    assert_null(TF_FinishOperation(desc, f->status));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_AddInput", "NULL");
    desc = TF_NewOperation(f->graph, "NoOp", "a");
    TF_ColocateWith(desc, NULL);
    TF_AddControlInput(desc, stranger);
    assert_null(TF_FinishOperation(desc, f->status));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_ColocateWith", "NULL");
}

static void test_readers_accept_null(void **state) {
    struct fixture *f = *state;
    int64_t number;
    TF_Output none = {NULL, 0};
    size_t pos = 0;
    assert_string_equal(TF_OperationName(NULL), "");
    assert_int_equal(TF_OperationNumInputs(NULL), 0);
    assert_int_equal(TF_OperationOutputType(none), 0);
    assert_null(TF_OperationInput((TF_Input){f->x, 0}).oper);
    assert_int_equal(TF_OperationOutputNumConsumers(none), 0);
    assert_null(TF_GraphOperationByName(f->graph, NULL));
    assert_null(TF_GraphNextOperation(NULL, &pos));
    TF_OperationGetAttrInt(NULL, "a", &number, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "TF_OperationGetAttrInt", "oper is NULL");
    TF_OperationGetAttrType(f->x, "dtype", NULL, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "TF_OperationGetAttrType", "NULL");
    TF_GraphToGraphDef(f->graph, NULL, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "TF_GraphToGraphDef", "output_graph_def is NULL");
    TF_GraphGetTensorNumDims(f->graph, none, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "TF_GraphGetTensorNumDims", "NULL");
    TF_Buffer *full = TF_NewBufferFromString("full", 4);
    TF_GraphToGraphDef(f->graph, full, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "TF_GraphToGraphDef", "non-empty");
    TF_DeleteBuffer(full);
}

static void test_a_list_that_does_not_fit_its_storage(void **state) {
    struct fixture *f = *state;
    const char *strings[] = {"one", "three"};
    size_t lengths[] = {3, 5}, ret_lengths[2];
    void *values[2];
    char storage[8];
    TF_OperationDescription *desc = TF_NewOperation(f->graph, "NoOp", "n");
    TF_SetAttrStringList(desc, "_s", (const void *const *)strings, lengths, 2);
    TF_Operation *oper = TF_FinishOperation(desc, f->status);
    TF_OperationGetAttrStringList(oper, "_s", values, ret_lengths, 2, storage, 7, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "TF_OperationGetAttrStringList", "storage");
    TF_OperationGetAttrStringList(oper, "_s", values, ret_lengths, 2, storage, 8, f->status);
    assert_int_equal(TF_GetCode(f->status), TF_OK);
    assert_memory_equal(values[1], "three", 5);
}

/* ---- functions ---- */

static TF_Function *make_function(const struct fixture *f, int n_inputs, int n_outputs,
                                  int n_controls, const char *control_name) {
    TF_Output x = {f->x, 0};
    const TF_Operation *control = f->x;
    return TF_GraphToFunctionWithControlOutputs(f->graph, "f", 0, -1, NULL, n_inputs, &x, n_outputs,
                                                &x, NULL, n_controls, &control, &control_name, NULL,
                                                NULL, f->status);
}

static void test_a_function_needs_names_and_counts(void **state) {
    struct fixture *f = *state;
    assert_null(make_function(f, 0, 0, 1, NULL));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_GraphToFunctionWithControlOutputs",
                 "a control output name is NULL");
    assert_null(make_function(f, -1, 0, 0, "c"));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_GraphToFunctionWithControlOutputs", "-1 inputs");
    assert_null(make_function(f, 0, -1, 0, "c"));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_GraphToFunctionWithControlOutputs", "-1 outputs");
    assert_null(make_function(f, 0, 0, -1, "c"));
    expect_error(f, TF_INVALID_ARGUMENT, "TF_GraphToFunctionWithControlOutputs", "-1 control");
    TF_Function *func = make_function(f, 0, 1, 1, "c");
    assert_string_equal(TF_FunctionName(func), "f");
    TF_DeleteFunction(func);
}

/* ---- imports ---- */

static void test_an_import_refuses_what_exceeds_the_limits(void **state) {
    enum { N = 1000 * 1000, NAME = 64 * 1024 + 1 };
    struct fixture *f = *state;
    char *nodes = calloc(N, 2), *name = malloc(NAME + 8);
    TF_Buffer message = {nodes, 2 * N, NULL};
    for (int i = 0; i < N; i++)
        nodes[2 * i] = 0x0a; /* an empty node; the graph has a node, too */
    TF_GraphImportGraphDef(f->graph, &message, NULL, f->status);
    expect_error(f, TF_RESOURCE_EXHAUSTED, "TF_GraphImportGraphDef", "more than 1000000 nodes");
    message.length = (size_t)1 << 31;
    TF_GraphImportGraphDef(f->graph, &message, NULL, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "Invalid GraphDef", "2147483648 bytes");
    memset(name, '/', NAME + 8);
    memcpy(name, "\x0a\x85\x80\x04\x0a\x81\x80\x04", 8); /* a node, its name */
    message = (TF_Buffer){name, NAME + 8, NULL};
    TF_GraphImportGraphDef(f->graph, &message, NULL, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "TF_GraphImportGraphDef", "65537 bytes");
    message = (TF_Buffer){NULL, 9, NULL};
    TF_GraphImportGraphDef(f->graph, &message, NULL, f->status);
    assert_int_equal(TF_GetCode(f->status), TF_OK);
    free(nodes);
    free(name);
}

/* A NodeDef: a NoOp behind another. */
static void add_node_behind(struct str *graph_def, const char *name, const char *before) {
    struct str node = STR_INIT, control = STR_INIT;
    str_addf(&control, "^%s", before);
    proto_add_bytes(&node, 1, name, strlen(name));
    proto_add_bytes(&node, 2, "NoOp", 4);
    proto_add_bytes(&node, 3, control.data, control.len);
    proto_add_bytes(graph_def, 1, node.data, node.len);
    str_fini(&node);
    str_fini(&control);
}

static void test_a_cycle_is_refused_and_adds_nothing(void **state) {
    struct fixture *f = *state;
    struct str message = STR_INIT;
    add_node_behind(&message, "a", "c");
    add_node_behind(&message, "b", "a");
    add_node_behind(&message, "c", "b");
    TF_Buffer buffer = {message.data, message.len, NULL};
    TF_GraphImportGraphDef(f->graph, &buffer, NULL, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "3 nodes in a cycle", "node 'a'");
    assert_null(TF_GraphOperationByName(f->graph, "a"));
    TF_ImportGraphDefOptions *options = TF_NewImportGraphDefOptions();
    TF_ImportGraphDefOptionsRemapControlDependency(options, "b", f->x);
    TF_GraphImportGraphDef(f->graph, &buffer, options, f->status);
    assert_int_equal(TF_GetCode(f->status), TF_OK); /* the graph's own "x" cuts the cycle */
    assert_non_null(TF_GraphOperationByName(f->graph, "c"));
    TF_DeleteImportGraphDefOptions(options);
    str_fini(&message);
}

static void test_a_node_behind_itself_is_a_cycle(void **state) {
    struct fixture *f = *state;
    struct str message = STR_INIT;
    add_node_behind(&message, "a", "a");
    TF_Buffer buffer = {message.data, message.len, NULL};
    TF_GraphImportGraphDef(f->graph, &buffer, NULL, f->status);
    expect_error(f, TF_INVALID_ARGUMENT, "1 nodes in a cycle", "node 'a'");
    str_fini(&message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_null_names_are_reported_by_the_finish, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_an_operation_is_finished_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_null_values_of_attrs_name_the_setter, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inputs_of_other_graphs_and_outputs_that_are_not_there,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_readers_accept_null, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_list_that_does_not_fit_its_storage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_function_needs_names_and_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_cycle_is_refused_and_adds_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_node_behind_itself_is_a_cycle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_import_refuses_what_exceeds_the_limits, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
