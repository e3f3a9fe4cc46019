/* Fuzzes the client's graphs: imports a message, adds operations with any attrs and inputs, adds
 * gradients and makes a function. What was accepted can be written, imported and read again. */
#include "client/c_api.h"

#include <stdlib.h>

#include "common/signatures/op_signature.h"
#include "tests/fuzz/input_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_OPERATIONS = 40, MAX_ATTR_CALLS = 6 };

static TF_Status *status;

static TF_Output any_output(TF_Graph *graph) {
    size_t pos = 0;
    TF_Output found = {NULL, 0};
    for (unsigned skip = take_byte() % 64; skip > 0; skip--) {
        TF_Operation *oper = TF_GraphNextOperation(graph, &pos);
        if (!oper)
            break;
        found.oper = oper;
    }
    found.index = (int)take_byte() % 4;
    return found;
}

static void import(TF_Graph *graph, struct span message) {
    TF_ImportGraphDefOptions *options = TF_NewImportGraphDefOptions();
    TF_Buffer *buffer = TF_NewBufferFromString(message.data ? message.data : "", message.len);
    unsigned choice = take_byte();
    TF_ImportGraphDefOptionsSetPrefix(options, choice & 1 ? "p" : "");
    TF_ImportGraphDefOptionsSetUniquifyNames(options, choice & 2);
    TF_ImportGraphDefOptionsSetUniquifyPrefix(options, choice & 4);
    TF_ImportGraphDefOptionsAddReturnOutput(options, "x", (int)(choice >> 6) - 1);
    TF_GraphImportGraphDef(graph, buffer, NULL, status);
    TF_Output mapped = any_output(graph);
    TF_ImportGraphDefOptionsAddInputMapping(options, "x", 0, mapped);
    if (choice & 8)
        TF_ImportGraphDefOptionsAddControlDependency(options, mapped.oper);
    TF_DeleteImportGraphDefResults(
        TF_GraphImportGraphDefWithResults(graph, buffer, options, status));
    TF_DeleteBuffer(buffer);
    TF_DeleteImportGraphDefOptions(options);
}

static void set_attr(TF_OperationDescription *desc, const struct op_signature *op) {
    char other[] = "_attr";
    const char *name = op->n_attrs > 0 ? op->attrs[take_byte() % op->n_attrs].name : other;
    unsigned kind = take_byte() % 10;
    struct span chunk = take_chunk();
    int64_t dims[4] = {(int64_t)chunk.len, -1, 3, -5};
    TF_DataType types[3] = {(TF_DataType)(chunk.len % 200), TF_FLOAT, TF_INT32};
    const void *texts[1] = {chunk.data};
    if (kind == 0)
        TF_SetAttrValueProto(desc, name, chunk.data, chunk.len, status);
    else if (kind == 1)
        TF_SetAttrString(desc, name, chunk.data, chunk.len);
    else if (kind == 2)
        TF_SetAttrInt(desc, name, (int64_t)chunk.len - 2);
    else if (kind == 3)
        TF_SetAttrType(desc, name, types[0]);
    else if (kind == 4)
        TF_SetAttrTypeList(desc, name, types, (int)(chunk.len % 5) - 1);
    else if (kind == 5)
        TF_SetAttrShape(desc, name, dims, (int)(chunk.len % 6) - 1);
    else if (kind == 6)
        TF_SetAttrTensorShapeProto(desc, name, chunk.data, chunk.len, status);
    else if (kind == 7)
        TF_SetAttrStringList(desc, chunk.len % 2 ? "_class" : name, texts, &chunk.len, 1);
    else if (kind == 8)
        TF_SetAttrFuncName(desc, name, chunk.data, chunk.len);
    else
        TF_SetAttrBool(desc, name, chunk.len % 2);
}

static void add_operation(TF_Graph *graph, int number) {
    size_t index = (size_t)take_byte() << 8;
    const struct op_signature *op = op_signature_at((index | take_byte()) % op_signature_count());
    char name[] = {'n', (char)('a' + number % 26), (char)('a' + number / 26), '\0'};
    TF_OperationDescription *desc = TF_NewOperation(graph, op->name, name);
    for (int i = 0; i < op->n_inputs; i++) {
        TF_Output inputs[3] = {any_output(graph), any_output(graph), any_output(graph)};
        if (op->inputs[i].number_attr || op->inputs[i].type_list_attr)
            TF_AddInputList(desc, inputs, (int)(take_byte() % 4));
        else
            TF_AddInput(desc, inputs[0]);
    }
    for (unsigned n = take_byte() % MAX_ATTR_CALLS; n > 0; n--)
        set_attr(desc, op);
    TF_FinishOperation(desc, status);
    TF_FinishOperation(desc, status);
    if (TF_GetCode(status) != TF_FAILED_PRECONDITION)
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

static void make_function(TF_Graph *graph, TF_Output input, TF_Output output) {
    TF_Function *func = TF_GraphToFunction(graph, "made", 0, -1, NULL, 1, &input, 1, &output, NULL,
                                           NULL, NULL, status);
    if (func)
        TF_GraphCopyFunction(graph, func, NULL, status);
    TF_DeleteFunction(func);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    in = (struct span){(const char *)data, size};
    status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    import(graph, take_chunk());
    for (int i = 0; in.len > 0 && i < MAX_OPERATIONS; i++)
        add_operation(graph, i);
    read_again(graph);
    TF_Output y = any_output(graph), x = any_output(graph), dx;
    TF_AddGradients(graph, &y, 1, &x, 1, NULL, status, &dx);
    make_function(graph, x, y);
    read_again(graph);
    TF_DeleteGraph(graph);
    TF_DeleteStatus(status);
    return 0;
}
