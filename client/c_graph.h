/* Graphs of the C client [WP 2]: builds nodes, reads them, and copies graphs in and out as
 * GraphDefs.
 *
 *   TF_NewOperation ─ TF_Set…, TF_Add… ─ TF_FinishOperation ─► TF_Operation
 *
 * TF_FinishOperation checks attrs, types and static shapes. A graph owns its operations, and
 * sessions keep a deleted graph until they are deleted, too.
 *
 * Pointers that are NULL where the text does not allow it give INVALID_ARGUMENT with the name of
 * the function and the argument. Functions without a status then return "", 0, -1 or NULL.
 *
 * Threads: the functions lock the graph, except that one TF_OperationDescription serves one thread
 * at a time, and that the caller of a …Locked form keeps other threads off the graph. */
#ifndef MILLRACE_CLIENT_C_GRAPH_H
#define MILLRACE_CLIENT_C_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "client/c_buffer.h"
#include "client/c_status.h"
#include "client/c_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TF_Graph TF_Graph;
typedef struct TF_Operation TF_Operation;
typedef struct TF_OperationDescription TF_OperationDescription;

/* An input of an operation. */
typedef struct TF_Input {
    TF_Operation *oper;
    int index;
} TF_Input;

/* An output of an operation. */
typedef struct TF_Output {
    TF_Operation *oper;
    int index;
} TF_Output;

/* ---- graphs ---- */

TF_Graph *TF_NewGraph(void);
void TF_DeleteGraph(TF_Graph *graph);
/* NULL when there is none. */
TF_Operation *TF_GraphOperationByName(TF_Graph *graph, const char *oper_name);
/* Visits the operations in the order in which they were made: *pos is 0 at first; NULL at the
 * end. */
TF_Operation *TF_GraphNextOperation(TF_Graph *graph, size_t *pos);
/* Each hands out a serialized message in an empty buffer: a GraphDef, the OpDef of an op or of a
 * function of the graph (NOT_FOUND when there is none), a VersionDef. */
void TF_GraphToGraphDef(TF_Graph *graph, TF_Buffer *output_graph_def, TF_Status *status);
void TF_GraphGetOpDef(TF_Graph *graph, const char *op_name, TF_Buffer *output_op_def,
                      TF_Status *status);
void TF_GraphVersions(TF_Graph *graph, TF_Buffer *output_version_def, TF_Status *status);

/* Merges a shape into the inferred one of an output. num_dims -1: the rank is unknown; a size of
 * -1 is unknown. Operations that exist already do not see it. INVALID_ARGUMENT where the two
 * contradict each other. */
void TF_GraphSetTensorShape(TF_Graph *graph, TF_Output output, const int64_t *dims, int num_dims,
                            TF_Status *status);
/* -1 where the rank is unknown. */
int TF_GraphGetTensorNumDims(TF_Graph *graph, TF_Output output, TF_Status *status);
/* Sets num_dims sizes, -1 for an unknown one. Errors: INVALID_ARGUMENT when num_dims is not the
 * rank, which is -1 where it is unknown. */
void TF_GraphGetTensorShape(TF_Graph *graph, TF_Output output, int64_t *dims, int num_dims,
                            TF_Status *status);
/* Sets *result to a new tensor and returns 1 where the value of the output does not depend on a
 * step: it is a constant, a static shape, or small integers computed from these without a kernel.
 * Else 0. */
unsigned char TF_TryEvaluateConstant(TF_Graph *graph, TF_Output output, TF_Tensor **result,
                                     TF_Status *status);

/* ---- new operations ---- */

/* Begins an operation; errors are reported by TF_FinishOperation, which must follow. An attr that
 * the op does not have is refused unless its name begins with "_", and so is a name that no server
 * accepts; TensorFlow's own C API accepts both. */
TF_OperationDescription *TF_NewOperation(TF_Graph *graph, const char *op_type,
                                         const char *oper_name);
TF_OperationDescription *TF_NewOperationLocked(TF_Graph *graph, const char *op_type,
                                               const char *oper_name);
/* Ends the description. After an error the graph is unchanged and the result is NULL. A second call
 * for the same description is FAILED_PRECONDITION as long as the graph lives. */
TF_Operation *TF_FinishOperation(TF_OperationDescription *desc, TF_Status *status);
TF_Operation *TF_FinishOperationLocked(TF_OperationDescription *desc, TF_Status *status);

void TF_SetDevice(TF_OperationDescription *desc, const char *device);
/* Give the arguments of the op in order: TF_AddInput those of one tensor, TF_AddInputList those
 * that stand for several. Attrs that follow from inputs need not be set. */
void TF_AddInput(TF_OperationDescription *desc, TF_Output input);
void TF_AddInputList(TF_OperationDescription *desc, const TF_Output *inputs, int num_inputs);
void TF_AddControlInput(TF_OperationDescription *desc, TF_Operation *input);
void TF_ColocateWith(TF_OperationDescription *desc, TF_Operation *op);

/* All values are copied. */
void TF_SetAttrString(TF_OperationDescription *desc, const char *attr_name, const void *value,
                      size_t length);
void TF_SetAttrStringList(TF_OperationDescription *desc, const char *attr_name,
                          const void *const *values, const size_t *lengths, int num_values);
void TF_SetAttrInt(TF_OperationDescription *desc, const char *attr_name, int64_t value);
void TF_SetAttrIntList(TF_OperationDescription *desc, const char *attr_name, const int64_t *values,
                       int num_values);
void TF_SetAttrFloat(TF_OperationDescription *desc, const char *attr_name, float value);
void TF_SetAttrFloatList(TF_OperationDescription *desc, const char *attr_name, const float *values,
                         int num_values);
void TF_SetAttrBool(TF_OperationDescription *desc, const char *attr_name, unsigned char value);
void TF_SetAttrBoolList(TF_OperationDescription *desc, const char *attr_name,
                        const unsigned char *values, int num_values);
void TF_SetAttrType(TF_OperationDescription *desc, const char *attr_name, TF_DataType value);
void TF_SetAttrTypeList(TF_OperationDescription *desc, const char *attr_name,
                        const TF_DataType *values, int num_values);
void TF_SetAttrPlaceholder(TF_OperationDescription *desc, const char *attr_name,
                           const char *placeholder);
void TF_SetAttrFuncName(TF_OperationDescription *desc, const char *attr_name, const char *value,
                        size_t length);
/* num_dims -1: the rank is unknown. */
void TF_SetAttrShape(TF_OperationDescription *desc, const char *attr_name, const int64_t *dims,
                     int num_dims);
void TF_SetAttrShapeList(TF_OperationDescription *desc, const char *attr_name,
                         const int64_t *const *dims, const int *num_dims, int num_shapes);
void TF_SetAttrTensorShapeProto(TF_OperationDescription *desc, const char *attr_name,
                                const void *proto, size_t proto_len, TF_Status *status);
void TF_SetAttrTensorShapeProtoList(TF_OperationDescription *desc, const char *attr_name,
                                    const void *const *protos, const size_t *proto_lens,
                                    int num_shapes, TF_Status *status);
void TF_SetAttrTensor(TF_OperationDescription *desc, const char *attr_name, TF_Tensor *value,
                      TF_Status *status);
void TF_SetAttrTensorList(TF_OperationDescription *desc, const char *attr_name,
                          TF_Tensor *const *values, int num_values, TF_Status *status);
void TF_SetAttrValueProto(TF_OperationDescription *desc, const char *attr_name, const void *proto,
                          size_t proto_len, TF_Status *status);

/* ---- operations ---- */

/* The texts live as long as the graph. */
const char *TF_OperationName(TF_Operation *oper);
const char *TF_OperationOpType(TF_Operation *oper);
const char *TF_OperationDevice(TF_Operation *oper);
int TF_OperationNumOutputs(TF_Operation *oper);
/* A reference to a variable has its type + 100. */
TF_DataType TF_OperationOutputType(TF_Output oper_out);
/* How many tensors an argument of the op stands for; -1 with INVALID_ARGUMENT when there is no such
 * argument. */
int TF_OperationOutputListLength(TF_Operation *oper, const char *arg_name, TF_Status *status);
int TF_OperationNumInputs(TF_Operation *oper);
TF_DataType TF_OperationInputType(TF_Input oper_in);
int TF_OperationInputListLength(TF_Operation *oper, const char *arg_name, TF_Status *status);
/* The output that feeds an input. */
TF_Output TF_OperationInput(TF_Input oper_in);
void TF_OperationAllInputs(TF_Operation *oper, TF_Output *inputs, int max_inputs);
/* The functions that fill an array return how many entries there are, also where it is shorter. */
int TF_OperationOutputNumConsumers(TF_Output oper_out);
int TF_OperationOutputConsumers(TF_Output oper_out, TF_Input *consumers, int max_consumers);
int TF_OperationNumControlInputs(TF_Operation *oper);
int TF_OperationGetControlInputs(TF_Operation *oper, TF_Operation **control_inputs,
                                 int max_control_inputs);
int TF_OperationNumControlOutputs(TF_Operation *oper);
int TF_OperationGetControlOutputs(TF_Operation *oper, TF_Operation **control_outputs,
                                  int max_control_outputs);
/* A serialized NodeDef. */
void TF_OperationToNodeDef(TF_Operation *oper, TF_Buffer *output_node_def, TF_Status *status);

/* ---- attrs of operations ---- */

typedef enum TF_AttrType {
    TF_ATTR_STRING = 0,
    TF_ATTR_INT = 1,
    TF_ATTR_FLOAT = 2,
    TF_ATTR_BOOL = 3,
    TF_ATTR_TYPE = 4,
    TF_ATTR_SHAPE = 5,
    TF_ATTR_TENSOR = 6,
    TF_ATTR_PLACEHOLDER = 7,
    TF_ATTR_FUNC = 8
} TF_AttrType;

typedef struct TF_AttrMetadata {
    unsigned char is_list;
    int64_t list_size; /* -1 where it is no list */
    TF_AttrType type;  /* of the elements, where it is a list */
    /* bytes of a string or of all strings of a list; sizes of a shape (-1: of unknown rank) or of
     * all shapes of a list; else -1 */
    int64_t total_size;
} TF_AttrMetadata;

/* INVALID_ARGUMENT: the operation has no such attr, or one of another type. NOT_FOUND where the
 * getter of a single value other than a string finds no such attr. Arrays that are too
 * short take the first values, except where the text says otherwise. */
TF_AttrMetadata TF_OperationGetAttrMetadata(TF_Operation *oper, const char *attr_name,
                                            TF_Status *status);
void TF_OperationGetAttrString(TF_Operation *oper, const char *attr_name, void *value,
                               size_t max_length, TF_Status *status);
/* The strings are copied to `storage`; INVALID_ARGUMENT when it is too small. */
void TF_OperationGetAttrStringList(TF_Operation *oper, const char *attr_name, void **values,
                                   size_t *lengths, int max_values, void *storage,
                                   size_t storage_size, TF_Status *status);
void TF_OperationGetAttrInt(TF_Operation *oper, const char *attr_name, int64_t *value,
                            TF_Status *status);
void TF_OperationGetAttrIntList(TF_Operation *oper, const char *attr_name, int64_t *values,
                                int max_values, TF_Status *status);
void TF_OperationGetAttrFloat(TF_Operation *oper, const char *attr_name, float *value,
                              TF_Status *status);
void TF_OperationGetAttrFloatList(TF_Operation *oper, const char *attr_name, float *values,
                                  int max_values, TF_Status *status);
void TF_OperationGetAttrBool(TF_Operation *oper, const char *attr_name, unsigned char *value,
                             TF_Status *status);
void TF_OperationGetAttrBoolList(TF_Operation *oper, const char *attr_name, unsigned char *values,
                                 int max_values, TF_Status *status);
void TF_OperationGetAttrType(TF_Operation *oper, const char *attr_name, TF_DataType *value,
                             TF_Status *status);
void TF_OperationGetAttrTypeList(TF_Operation *oper, const char *attr_name, TF_DataType *values,
                                 int max_values, TF_Status *status);
void TF_OperationGetAttrShape(TF_Operation *oper, const char *attr_name, int64_t *value,
                              int num_dims, TF_Status *status);
/* num_dims[i] is -1 for an unknown rank. The sizes are copied to `storage`; INVALID_ARGUMENT when
 * it is too small. */
void TF_OperationGetAttrShapeList(TF_Operation *oper, const char *attr_name, int64_t **dims,
                                  int *num_dims, int num_shapes, int64_t *storage, int storage_size,
                                  TF_Status *status);
void TF_OperationGetAttrTensorShapeProto(TF_Operation *oper, const char *attr_name,
                                         TF_Buffer *value, TF_Status *status);
/* The caller frees each new buffer. */
void TF_OperationGetAttrTensorShapeProtoList(TF_Operation *oper, const char *attr_name,
                                             TF_Buffer **values, int max_values, TF_Status *status);
/* The caller frees each new tensor, whose elements are a copy. */
void TF_OperationGetAttrTensor(TF_Operation *oper, const char *attr_name, TF_Tensor **value,
                               TF_Status *status);
void TF_OperationGetAttrTensorList(TF_Operation *oper, const char *attr_name, TF_Tensor **values,
                                   int max_values, TF_Status *status);
void TF_OperationGetAttrValueProto(TF_Operation *oper, const char *attr_name,
                                   TF_Buffer *output_attr_value, TF_Status *status);
/* The attrs are sorted by name. TF_OperationGetAttrName writes as many bytes as
 * TF_OperationGetAttrNameLength says, and no NUL. The length is -1 for an index out of range. */
int TF_OperationGetNumAttrs(TF_Operation *oper);
int TF_OperationGetAttrNameLength(TF_Operation *oper, int i);
void TF_OperationGetAttrName(TF_Operation *oper, int i, char *output, TF_Status *status);

/* ---- ops ---- */

/* A serialized OpList of all ops that graphs may contain, without descriptions. */
TF_Buffer *TF_GetAllOpList(void);
/* A serialized KernelList: op, device type and dtypes of each kernel that servers of this version
 * have; older and TensorFlow's own servers have others. The caller frees the new buffer. */
TF_Buffer *TF_GetAllRegisteredKernels(TF_Status *status);
/* The same of one op; empty for an op without kernels, or an unknown one. */
TF_Buffer *TF_GetRegisteredKernelsForOp(const char *name, TF_Status *status);

#ifdef __cplusplus
}
#endif
#endif
