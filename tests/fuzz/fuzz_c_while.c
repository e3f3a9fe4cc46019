/* Fuzzes the client's while loops: conditions and bodies of any operations, outputs of any of them,
 * loops within loops. A loop is added whole, or nothing is; what was added can be written, imported
 * and differentiated.
 *
 *   input   bytes that choose: see take_operation and make_loop */
#include "client/c_api.h"

#include <stdlib.h>

#include "tests/fuzz/input_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_OPERATIONS = 12, MAX_VALUES = 4, MAX_DEPTH = 3 };

static TF_Status *status;

static int count_operations(TF_Graph *graph) {
    size_t pos = 0;
    int n = 0;
    while (TF_GraphNextOperation(graph, &pos))
        n++;
    return n;
}

/* An output of the graph; now and then none, or one that is not there. */
static TF_Output take_output(TF_Graph *graph) {
    unsigned choice = take_byte();
    int n = count_operations(graph);
    TF_Output found = {NULL, choice > 250 ? (int)choice - 252 : 0};
    size_t pos = 0;
    for (int skip = n > 0 ? 1 + (int)choice % n : 0; skip > 0; skip--)
        found.oper = TF_GraphNextOperation(graph, &pos);
    return choice == 255 ? (TF_Output){NULL, 0} : found;
}

static void add_constant(TF_Graph *graph, const char *name, TF_DataType dtype) {
    TF_Tensor *value = TF_AllocateTensor(dtype, NULL, 0, TF_DataTypeSize(dtype));
    memset(TF_TensorData(value), 0, TF_TensorByteSize(value));
    TF_OperationDescription *desc = TF_NewOperation(graph, "Const", name);
    TF_SetAttrTensor(desc, "value", value, status);
    TF_SetAttrType(desc, "dtype", dtype);
    TF_FinishOperation(desc, status);
    TF_DeleteTensor(value);
}

static void take_operation(TF_Graph *graph) {
    static const char *const ops[] = {"Identity",       "AddV2", "Mul",       "Less",
                                      "LogicalNot",     "Tanh",  "ZerosLike", "Cast",
                                      "ReadVariableOp", "NoOp"};
    static const int n_inputs[] = {1, 2, 2, 2, 1, 1, 1, 1, 1, 0};
    char name[] = {'n', (char)('a' + count_operations(graph) % 26),
                   (char)('a' + count_operations(graph) / 26 % 26), '\0'};
    unsigned choice = take_byte();
    size_t i = choice % (ARRAY_LEN(ops) + 2);
    if (i >= ARRAY_LEN(ops)) {
        add_constant(graph, name, i == ARRAY_LEN(ops) ? TF_FLOAT : TF_BOOL);
        return;
    }
    TF_OperationDescription *desc = TF_NewOperation(graph, ops[i], name);
    for (int k = 0; k < n_inputs[i]; k++)
        TF_AddInput(desc, take_output(graph));
    if (choice & 128)
        TF_AddControlInput(desc, take_output(graph).oper);
    if (i == 7)
        TF_SetAttrType(desc, "DstT", take_byte() % 2 ? TF_FLOAT : TF_BOOL);
    if (i == 8)
        TF_SetAttrType(desc, "dtype", TF_FLOAT);
    TF_FinishOperation(desc, status);
}

static void make_loop(TF_Graph *graph, int depth);

static void fill(TF_Graph *graph, int depth) {
    for (unsigned n = take_byte() % MAX_OPERATIONS; n > 0; n--)
        take_operation(graph);
    if (depth < MAX_DEPTH && take_byte() % 4 == 1)
        make_loop(graph, depth + 1);
}

static void make_loop(TF_Graph *graph, int depth) {
    static const char *const names[] = {"while", "na", "", "while_1/x", "bad name"};
    TF_Output inputs[MAX_VALUES], outputs[MAX_VALUES];
    int n = (int)(take_byte() % (MAX_VALUES + 1));
    for (int i = 0; i < n; i++)
        inputs[i] = take_output(graph);
    TF_WhileParams params = TF_NewWhile(graph, inputs, n, status);
    if (TF_GetCode(status) != TF_OK)
        return;
    fill(params.cond_graph, depth);
    fill(params.body_graph, depth);
    params.name = take_byte() % 8 == 7 ? NULL : names[take_byte() % ARRAY_LEN(names)];
    params.cond_output = take_output(params.cond_graph);
    for (int i = 0; i < n; i++)
        params.body_outputs[i] =
            take_output(take_byte() == 9 ? params.cond_graph : params.body_graph);
    if (take_byte() == 7) {
        TF_AbortWhile(&params);
        return;
    }
    int before = count_operations(graph);
    TF_FinishWhile(&params, status, outputs);
    bool is_made = TF_GetCode(status) == TF_OK;
    if ((count_operations(graph) > before) != (is_made && n > 0))
        abort();
    for (int i = 0; is_made && i < n; i++)
        if (!outputs[i].oper)
            abort();
}

static void read_again(TF_Graph *graph) {
    TF_Buffer *buffer = TF_NewBuffer();
    TF_Graph *again = TF_NewGraph();
    TF_GraphToGraphDef(graph, buffer, status);
    TF_GraphImportGraphDef(again, buffer, NULL, status);
    if (TF_GetCode(status) != TF_OK)
        abort();
    TF_DeleteGraph(again);
    TF_DeleteBuffer(buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    in = (struct span){(const char *)data, size};
    status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    add_constant(graph, "x", TF_FLOAT);
    add_constant(graph, "b", TF_BOOL);
    for (int i = 0; in.len > 0 && i < 3; i++)
        fill(graph, 0), make_loop(graph, 0);
    read_again(graph);
    TF_Output y = take_output(graph), x = take_output(graph), dx;
    TF_AddGradients(graph, &y, 1, &x, 1, NULL, status, &dx);
    read_again(graph);
    TF_DeleteGraph(graph);
    TF_DeleteStatus(status);
    return 0;
}
