/* Functions of the C client [CF 3]: made of graphs, copied to and from the libraries of graphs. Any
 * thread may read a function; one thread at a time changes it. */
#ifndef MILLRACE_CLIENT_C_FUNCTION_H
#define MILLRACE_CLIENT_C_FUNCTION_H

#include "client/c_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TF_Function TF_Function;
typedef struct TF_FunctionOptions TF_FunctionOptions; /* there are none */

/* Makes a function of a part of a graph: the operations `opers`, or with num_opers -1 all
 * operations except those of the inputs. `inputs` are its arguments. Each gets the name of its
 * operation in lower case, with _ for what is neither a letter nor a digit; so do the results where
 * output_names is NULL. Control outputs are operations that every call runs. With
 * append_hash_to_fn_name, the name ends with a hash of the definition. `options` and `description`
 * may be NULL. The caller frees the function. Errors: INVALID_ARGUMENT names the input of an
 * operation that is neither in the body nor an argument. */
TF_Function *TF_GraphToFunction(const TF_Graph *fn_body, const char *fn_name,
                                unsigned char append_hash_to_fn_name, int num_opers,
                                const TF_Operation *const *opers, int ninputs,
                                const TF_Output *inputs, int noutputs, const TF_Output *outputs,
                                const char *const *output_names, const TF_FunctionOptions *options,
                                const char *description, TF_Status *status);
TF_Function *TF_GraphToFunctionWithControlOutputs(
    const TF_Graph *fn_body, const char *fn_name, unsigned char append_hash_to_fn_name,
    int num_opers, const TF_Operation *const *opers, int ninputs, const TF_Output *inputs,
    int noutputs, const TF_Output *outputs, const char *const *output_names, int ncontrol_outputs,
    const TF_Operation *const *control_outputs, const char *const *control_output_names,
    const TF_FunctionOptions *options, const char *description, TF_Status *status);
TF_Function *TF_FunctionImportFunctionDef(const void *proto, size_t proto_len, TF_Status *status);
void TF_DeleteFunction(TF_Function *func);

const char *TF_FunctionName(TF_Function *func);
void TF_FunctionToFunctionDef(TF_Function *func, TF_Buffer *output_func_def, TF_Status *status);
/* Attrs of the function itself, as serialized AttrValues. */
void TF_FunctionSetAttrValueProto(TF_Function *func, const char *attr_name, const void *proto,
                                  size_t proto_len, TF_Status *status);
void TF_FunctionGetAttrValueProto(TF_Function *func, const char *attr_name,
                                  TF_Buffer *output_attr_value, TF_Status *status);

/* Adds a function to the library of a graph, where operations call it by its name. `grad`, which
 * may be NULL, becomes its gradient. Errors: INVALID_ARGUMENT when the library has another function
 * of that name, or the function has another gradient already. */
void TF_GraphCopyFunction(TF_Graph *graph, const TF_Function *func, const TF_Function *grad,
                          TF_Status *status);
int TF_GraphNumFunctions(TF_Graph *graph);
/* Sets up to max_func entries to new functions, which the caller frees, and returns how many. */
int TF_GraphGetFunctions(TF_Graph *graph, TF_Function **funcs, int max_func, TF_Status *status);

#ifdef __cplusplus
}
#endif
#endif
