/* A program for TensorFlow's C API, which test_same_program.py builds against both libraries. It
 * imports the GraphDef that its argument names, and prints what must not depend on the library. */
#include C_API /* <millrace/c_api.h> or <tensorflow/c/c_api.h> */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_THREADS = 8, N_STEPS = 100 };

static TF_Status *status;

static void print_code(const char *what) {
    printf("%s: %d\n", what, TF_GetCode(status));
    if (TF_GetCode(status))
        fprintf(stderr, "%s: %s\n", what, TF_Message(status));
}

/* Prints a float, or that there is none, and deletes it. */
static void print_value(const char *what, TF_Tensor *value) {
    print_code(what);
    if (value)
        printf("%s = %.4f\n", what, *(float *)TF_TensorData(value));
    TF_DeleteTensor(value);
}

static TF_Tensor *number(float value) {
    TF_Tensor *tensor = TF_AllocateTensor(TF_FLOAT, NULL, 0, sizeof value);
    *(float *)TF_TensorData(tensor) = value;
    return tensor;
}

static TF_Output placeholder(TF_Graph *graph, const char *name, TF_DataType dtype) {
    TF_OperationDescription *desc = TF_NewOperation(graph, "Placeholder", name);
    TF_SetAttrType(desc, "dtype", dtype);
    TF_Output out = {TF_FinishOperation(desc, status), 0};
    return out;
}

static TF_Output add_op(TF_Graph *graph, const char *op, const char *name, TF_Output a,
                        TF_Output b) {
    TF_OperationDescription *desc = TF_NewOperation(graph, op, name);
    TF_AddInput(desc, a);
    TF_AddInput(desc, b);
    TF_Output out = {TF_FinishOperation(desc, status), 0};
    return out;
}

static TF_Session *new_session(TF_Graph *graph) {
    TF_SessionOptions *options = TF_NewSessionOptions();
    TF_Session *session = TF_NewSession(graph, options, status);
    print_code("session");
    TF_DeleteSessionOptions(options);
    return session;
}

static TF_Buffer *read_file(const char *path) {
    static char bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file)
        fclose(file);
    return TF_NewBufferFromString(bytes, n);
}

/* The graph is deleted before its session. */
static void run_imported(const char *path) {
    TF_Graph *graph = TF_NewGraph();
    TF_Buffer *graph_def = read_file(path);
    TF_ImportGraphDefOptions *options = TF_NewImportGraphDefOptions();
    TF_ImportGraphDefOptionsSetPrefix(options, "model");
    TF_GraphImportGraphDef(graph, graph_def, options, status);
    print_code("import");
    TF_DeleteImportGraphDefOptions(options);
    TF_DeleteBuffer(graph_def);
    printf("functions: %d\n", TF_GraphNumFunctions(graph));
    TF_Output x = {TF_GraphOperationByName(graph, "model/x"), 0};
    TF_Output out = {TF_GraphOperationByName(graph, "model/out"), 0};
    TF_Session *session = new_session(graph);
    TF_DeleteGraph(graph);
    TF_Tensor *value = number(1.5f), *result = NULL;
    TF_SessionRun(session, NULL, &x, &value, 1, &out, &result, 1, NULL, 0, NULL, status);
    print_value("while, cond, function and gradient", result);
    TF_DeleteTensor(value);
    TF_CloseSession(session, status);
    print_code("close");
    TF_DeleteSession(session, status);
    print_code("delete");
}

struct runner {
    TF_Session *session;
    TF_Output x, y;
    int first, n_wrong;
};

static void *run_steps(void *arg) {
    struct runner *runner = arg;
    TF_Status *own = TF_NewStatus();
    for (int i = 0; i < N_STEPS; i++) {
        float x = (float)(runner->first + i);
        TF_Tensor *value = number(x), *result = NULL;
        TF_SessionRun(runner->session, NULL, &runner->x, &value, 1, &runner->y, &result, 1, NULL, 0,
                      NULL, own);
        runner->n_wrong += !result || *(float *)TF_TensorData(result) != x * x;
        TF_DeleteTensor(value);
        TF_DeleteTensor(result);
    }
    TF_DeleteStatus(own);
    return NULL;
}

static void run_threads(void) {
    TF_Graph *graph = TF_NewGraph();
    struct runner runners[N_THREADS];
    pthread_t threads[N_THREADS];
    TF_Output x = placeholder(graph, "x", TF_FLOAT), y = add_op(graph, "Mul", "y", x, x);
    TF_Session *session = new_session(graph);
    for (int i = 0; i < N_THREADS; i++) {
        runners[i] = (struct runner){session, x, y, i * N_STEPS, 0};
        if (pthread_create(&threads[i], NULL, run_steps, &runners[i]))
            abort();
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        printf("thread %d: %d wrong\n", i, runners[i].n_wrong);
    }
    TF_DeleteSession(session, status);
    TF_DeleteGraph(graph);
}

static void run_partially(void) {
    TF_Graph *graph = TF_NewGraph();
    TF_Output a = placeholder(graph, "a", TF_FLOAT), b = placeholder(graph, "b", TF_FLOAT);
    TF_Output square = add_op(graph, "Mul", "square", a, a);
    TF_Output sum = add_op(graph, "AddV2", "sum", square, b);
    TF_Output feeds[] = {a, b}, fetches[] = {square, sum};
    TF_Session *session = new_session(graph);
    const char *handle = NULL;
    TF_SessionPRunSetup(session, feeds, 2, fetches, 2, NULL, 0, &handle, status);
    print_code("setup");
    TF_Tensor *value = number(3), *result = NULL;
    TF_SessionPRun(session, handle, &a, &value, 1, &square, &result, 1, NULL, 0, status);
    print_value("first part", result);
    result = NULL;
    TF_SessionPRun(session, handle, &a, &value, 1, &sum, &result, 1, NULL, 0, status);
    print_value("a feed again", result);
    result = NULL;
    TF_SessionPRun(session, handle, &b, &value, 1, &sum, &result, 1, NULL, 0, status);
    print_value("second part", result);
    result = NULL;
    TF_SessionPRun(session, handle, &b, &value, 1, &sum, &result, 1, NULL, 0, status);
    print_value("after the end", result);
    TF_DeletePRunHandle(handle);
    TF_DeleteTensor(value);
    TF_DeleteSession(session, status);
    TF_DeleteGraph(graph);
}

/* A variable, and a float that is fed as its handle. */
static void run_resources(void) {
    TF_Graph *graph = TF_NewGraph();
    TF_OperationDescription *desc = TF_NewOperation(graph, "VarHandleOp", "v");
    TF_SetAttrType(desc, "dtype", TF_FLOAT);
    TF_SetAttrShape(desc, "shape", NULL, 0);
    TF_Output v = {TF_FinishOperation(desc, status), 0};
    TF_Output x = placeholder(graph, "x", TF_FLOAT), fed = placeholder(graph, "h", TF_RESOURCE);
    TF_Output assign = add_op(graph, "AssignVariableOp", "assign", v, x);
    desc = TF_NewOperation(graph, "ReadVariableOp", "read");
    TF_AddInput(desc, fed);
    TF_SetAttrType(desc, "dtype", TF_FLOAT);
    TF_Output read = {TF_FinishOperation(desc, status), 0};
    TF_Session *session = new_session(graph);
    const TF_Operation *target = assign.oper;
    TF_Tensor *value = number(7), *result = NULL;
    TF_SessionRun(session, NULL, &x, &value, 1, NULL, NULL, 0, &target, 1, NULL, status);
    print_code("assign");
    TF_SessionRun(session, NULL, NULL, NULL, 0, &v, &result, 1, NULL, 0, NULL, status);
    print_code("fetch the handle");
    if (result)
        printf("its dtype: %d\n", TF_TensorType(result));
    TF_DeleteTensor(result);
    result = NULL;
    TF_SessionRun(session, NULL, &fed, &value, 1, &read, &result, 1, NULL, 0, NULL, status);
    print_value("a float for a handle", result);
    TF_DeleteTensor(value);
    TF_DeleteSession(session, status);
    TF_DeleteGraph(graph);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 64;
    status = TF_NewStatus();
    run_imported(argv[1]);
    run_threads();
    run_partially();
    run_resources();
    TF_DeleteStatus(status);
    return 0;
}
