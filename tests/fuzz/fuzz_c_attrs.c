/* Fuzzes the client's attrs: sets values of any type on an operation, imports a GraphDef, and reads
 * each attr by each getter, with arrays of the sizes that the metadata tells and with shorter ones.
 * ASan sees what is written behind an array.
 *
 *   input   a chunk that is imported, then setters: a kind and what it takes */
#include "client/c_api.h"

#include <math.h>
#include <stdlib.h>

#include "tests/fuzz/input_bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_SETTERS = 40, MAX_LIST = 3, MAX_ELEMENTS = 1 << 16 };

static TF_Status *status;

/* ---- setters ---- */

static TF_Tensor *take_tensor(void) {
    static const TF_DataType dtypes[] = {TF_FLOAT, TF_INT64, TF_BOOL, TF_STRING, TF_HALF};
    TF_DataType dtype = dtypes[take_byte() % ARRAY_LEN(dtypes)];
    struct span chunk = take_chunk();
    if (dtype == TF_STRING)
        return MR_NewStringTensor(NULL, 0, (const char *const[]){chunk.data}, &chunk.len);
    int64_t n = (int64_t)(chunk.len / TF_DataTypeSize(dtype));
    TF_Tensor *t = TF_AllocateTensor(dtype, &n, 1, (size_t)n * TF_DataTypeSize(dtype));
    memcpy(TF_TensorData(t), chunk.data, TF_TensorByteSize(t));
    return t;
}

/* Numbers of a list; -1 now and then, which every setter refuses. */
static int take_count(void) { return (int)(take_byte() % (MAX_LIST + 2)) - 1; }

static void set_shapes(TF_OperationDescription *desc, const char *name, bool is_list) {
    int64_t dims[MAX_LIST][MAX_LIST + 1];
    const int64_t *lists[MAX_LIST];
    int ranks[MAX_LIST];
    for (int i = 0; i < MAX_LIST; i++) {
        ranks[i] = take_count();
        lists[i] = dims[i];
        for (int k = 0; k <= MAX_LIST; k++)
            dims[i][k] = (int64_t)take_byte() - 2;
    }
    if (is_list)
        TF_SetAttrShapeList(desc, name, lists, ranks, take_count());
    else
        TF_SetAttrShape(desc, name, dims[0], ranks[0]);
}

static void set_tensors(TF_OperationDescription *desc, const char *name, bool is_list) {
    TF_Tensor *values[MAX_LIST] = {take_tensor(), take_tensor(), take_tensor()};
    if (is_list)
        TF_SetAttrTensorList(desc, name, values, take_count(), status);
    else
        TF_SetAttrTensor(desc, name, values[0], status);
    for (int i = 0; i < MAX_LIST; i++)
        TF_DeleteTensor(values[i]);
}

static void set_texts(TF_OperationDescription *desc, const char *name, unsigned kind) {
    struct span chunks[MAX_LIST] = {take_chunk(), take_chunk(), take_chunk()};
    const void *texts[MAX_LIST] = {chunks[0].data, chunks[1].data, chunks[2].data};
    size_t lens[MAX_LIST] = {chunks[0].len, chunks[1].len, chunks[2].len};
    if (kind == 0)
        TF_SetAttrString(desc, name, texts[0], lens[0]);
    else if (kind == 1)
        TF_SetAttrStringList(desc, name, texts, lens, take_count());
    else if (kind == 2)
        TF_SetAttrFuncName(desc, name, texts[0], lens[0]);
    else if (kind == 3)
        TF_SetAttrTensorShapeProto(desc, name, texts[0], lens[0], status);
    else if (kind == 4)
        TF_SetAttrTensorShapeProtoList(desc, name, texts, lens, take_count(), status);
    else
        TF_SetAttrValueProto(desc, name, texts[0], lens[0], status);
}

static void set_numbers(TF_OperationDescription *desc, const char *name, unsigned kind) {
    int64_t ints[MAX_LIST] = {(int64_t)take_byte() - 9, INT64_MIN, INT64_MAX};
    float floats[MAX_LIST] = {(float)ints[0] * INFINITY, 1, -0.f};
    unsigned char bools[MAX_LIST] = {(unsigned char)take_byte(), 0, 1};
    TF_DataType types[MAX_LIST] = {(TF_DataType)take_byte(), TF_FLOAT, TF_INT32};
    if (kind == 6)
        TF_SetAttrInt(desc, name, ints[0]);
    else if (kind == 7)
        TF_SetAttrIntList(desc, name, ints, take_count());
    else if (kind == 8)
        TF_SetAttrFloat(desc, name, floats[0]);
    else if (kind == 9)
        TF_SetAttrFloatList(desc, name, floats, take_count());
    else if (kind == 10)
        TF_SetAttrBool(desc, name, bools[0]);
    else if (kind == 11)
        TF_SetAttrBoolList(desc, name, bools, take_count());
    else if (kind == 12)
        TF_SetAttrType(desc, name, types[0]);
    else
        TF_SetAttrTypeList(desc, name, types, take_count());
}

static void set_any(TF_OperationDescription *desc) {
    static const char *const names[] = {"_a", "_b", "T", "dtype", "_class", ""};
    const char *name = names[take_byte() % ARRAY_LEN(names)];
    unsigned kind = take_byte() % 19;
    if (kind < 6)
        set_texts(desc, name, kind);
    else if (kind < 14)
        set_numbers(desc, name, kind);
    else if (kind < 16)
        set_shapes(desc, name, kind == 15);
    else if (kind < 18)
        set_tensors(desc, name, kind == 17);
    else
        TF_SetAttrPlaceholder(desc, name, "_p");
}

/* ---- getters ---- */

static void *array(int64_t n, size_t size) {
    void *memory = calloc((size_t)n + (n == 0), size);
    CHECK(memory);
    return memory;
}

static void get_numbers(TF_Operation *oper, const char *name, int n) {
    int64_t *ints = array(n + 1, sizeof(*ints));
    float *floats = array(n + 1, sizeof(*floats));
    unsigned char *bools = array(n + 1, sizeof(*bools));
    TF_DataType *types = array(n + 1, sizeof(*types));
    TF_OperationGetAttrInt(oper, name, ints, status);
    TF_OperationGetAttrIntList(oper, name, ints, n, status);
    TF_OperationGetAttrFloat(oper, name, floats, status);
    TF_OperationGetAttrFloatList(oper, name, floats, n, status);
    TF_OperationGetAttrBool(oper, name, bools, status);
    TF_OperationGetAttrBoolList(oper, name, bools, n, status);
    TF_OperationGetAttrType(oper, name, types, status);
    TF_OperationGetAttrTypeList(oper, name, types, n, status);
    free(ints), free(floats), free(bools), free(types);
}

static void get_texts(TF_Operation *oper, const char *name, int n, int total) {
    char *storage = array(total, 1);
    void **values = array(n, sizeof(*values));
    size_t *lens = array(n, sizeof(*lens));
    TF_OperationGetAttrString(oper, name, storage, (size_t)total, status);
    TF_OperationGetAttrStringList(oper, name, values, lens, n, storage, (size_t)total, status);
    for (int i = 0; TF_GetCode(status) == TF_OK && i < n && values[i]; i++)
        if ((char *)values[i] + lens[i] > storage + total)
            abort();
    free(storage), free(values), free(lens);
}

static void get_shapes(TF_Operation *oper, const char *name, int n, int total) {
    int64_t *sizes = array(total, sizeof(*sizes)), **dims = array(n, sizeof(*dims));
    int *ranks = array(n, sizeof(*ranks));
    TF_OperationGetAttrShape(oper, name, sizes, total, status);
    TF_OperationGetAttrShapeList(oper, name, dims, ranks, n, sizes, total, status);
    TF_Buffer *proto = TF_NewBuffer(), **protos = array(n, sizeof(*protos));
    TF_OperationGetAttrTensorShapeProto(oper, name, proto, status);
    TF_OperationGetAttrTensorShapeProtoList(oper, name, protos, n, status);
    for (int i = 0; i < n; i++)
        TF_DeleteBuffer(protos[i]);
    TF_DeleteBuffer(proto);
    free(sizes), free(dims), free(ranks), free(protos);
}

static void get_tensors(TF_Operation *oper, const char *name, int n) {
    TF_Tensor *tensor = NULL, **tensors = array(n, sizeof(*tensors));
    TF_OperationGetAttrTensor(oper, name, &tensor, status);
    TF_OperationGetAttrTensorList(oper, name, tensors, n, status);
    for (int i = 0; i < n; i++)
        TF_DeleteTensor(tensors[i]);
    TF_DeleteTensor(tensor);
    free(tensors);
}

static void get_attr(TF_Operation *oper, const char *name) {
    TF_AttrMetadata metadata = TF_OperationGetAttrMetadata(oper, name, status);
    if (TF_GetCode(status) != TF_OK)
        metadata = (TF_AttrMetadata){0, -1, TF_ATTR_STRING, -1};
    for (int less = 0; less < 2; less++) {
        int n = (int)MIN(MAX(metadata.list_size - less, 0), MAX_ELEMENTS),
            total = (int)MIN(MAX(metadata.total_size - less, 0), MAX_ELEMENTS);
        get_numbers(oper, name, n);
        get_texts(oper, name, n, total);
        get_shapes(oper, name, n, total);
        get_tensors(oper, name, n);
    }
    TF_Buffer *proto = TF_NewBuffer();
    TF_OperationGetAttrValueProto(oper, name, proto, status);
    TF_DeleteBuffer(proto);
}

static void get_all(TF_Operation *oper) {
    for (int i = 0; i < TF_OperationGetNumAttrs(oper); i++) {
        int len = TF_OperationGetAttrNameLength(oper, i);
        char *name = array(len + 1, 1);
        TF_OperationGetAttrName(oper, i, name, status);
        get_attr(oper, name);
        free(name);
    }
    get_attr(oper, "not there");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    in = (struct span){(const char *)data, size};
    status = TF_NewStatus();
    TF_Graph *graph = TF_NewGraph();
    struct span message = take_chunk();
    TF_Buffer *buffer = TF_NewBufferFromString(message.data ? message.data : "", message.len);
    TF_GraphImportGraphDef(graph, buffer, NULL, status);
    TF_DeleteBuffer(buffer);
    TF_OperationDescription *desc = TF_NewOperation(graph, "NoOp", "set");
    for (int i = 0; i < MAX_SETTERS && in.len > 0; i++)
        set_any(desc);
    TF_FinishOperation(desc, status);
    size_t pos = 0;
    for (TF_Operation *oper; (oper = TF_GraphNextOperation(graph, &pos));)
        get_all(oper);
    TF_DeleteGraph(graph);
    TF_DeleteStatus(status);
    return 0;
}
