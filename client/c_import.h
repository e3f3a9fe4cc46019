/* Imports GraphDefs into graphs of the C client. One thread at a time uses options or results; the
 * import locks the graph. */
#ifndef MILLRACE_CLIENT_C_IMPORT_H
#define MILLRACE_CLIENT_C_IMPORT_H

#include "client/c_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TF_ImportGraphDefOptions TF_ImportGraphDefOptions;
TF_ImportGraphDefOptions *TF_NewImportGraphDefOptions(void);
void TF_DeleteImportGraphDefOptions(TF_ImportGraphDefOptions *options);
/* Names of imported operations begin with "PREFIX/". */
void TF_ImportGraphDefOptionsSetPrefix(TF_ImportGraphDefOptions *options, const char *prefix);
/* The device of imported operations that name none. */
void TF_ImportGraphDefOptionsSetDefaultDevice(TF_ImportGraphDefOptions *options,
                                              const char *device);
/* Give an imported operation, or the prefix, a free name where its own is taken; 0 refuses the
 * import. The default is 0. */
void TF_ImportGraphDefOptionsSetUniquifyNames(TF_ImportGraphDefOptions *options,
                                              unsigned char uniquify_names);
void TF_ImportGraphDefOptionsSetUniquifyPrefix(TF_ImportGraphDefOptions *options,
                                               unsigned char uniquify_prefix);
/* Replace inputs "src_name:src_index", or control inputs "^src_name", by outputs and operations of
 * the graph. Names here and below are those of the GraphDef, without the prefix. */
void TF_ImportGraphDefOptionsAddInputMapping(TF_ImportGraphDefOptions *options,
                                             const char *src_name, int src_index, TF_Output dst);
void TF_ImportGraphDefOptionsRemapControlDependency(TF_ImportGraphDefOptions *options,
                                                    const char *src_name, TF_Operation *dst);
/* All imported operations wait for `oper`. */
void TF_ImportGraphDefOptionsAddControlDependency(TF_ImportGraphDefOptions *options,
                                                  TF_Operation *oper);
/* Ask for an output, or for an operation, of the GraphDef in the results. An output that is mapped
 * is what it is mapped to. */
void TF_ImportGraphDefOptionsAddReturnOutput(TF_ImportGraphDefOptions *options,
                                             const char *oper_name, int index);
int TF_ImportGraphDefOptionsNumReturnOutputs(const TF_ImportGraphDefOptions *options);
void TF_ImportGraphDefOptionsAddReturnOperation(TF_ImportGraphDefOptions *options,
                                                const char *oper_name);
int TF_ImportGraphDefOptionsNumReturnOperations(const TF_ImportGraphDefOptions *options);

/* What an import returned; the arrays live as long as the results. */
typedef struct TF_ImportGraphDefResults TF_ImportGraphDefResults;
void TF_ImportGraphDefResultsReturnOutputs(TF_ImportGraphDefResults *results, int *num_outputs,
                                           TF_Output **outputs);
void TF_ImportGraphDefResultsReturnOperations(TF_ImportGraphDefResults *results, int *num_opers,
                                              TF_Operation ***opers);
/* The input mappings that no input used and whose source is not in the GraphDef either. */
void TF_ImportGraphDefResultsMissingUnusedInputMappings(TF_ImportGraphDefResults *results,
                                                        int *num_missing_unused_input_mappings,
                                                        const char ***src_names, int **src_indexes);
void TF_DeleteImportGraphDefResults(TF_ImportGraphDefResults *results);

/* Add the nodes and functions of a serialized GraphDef; `options` may be NULL. After an error no
 * node has been added. Errors: INVALID_ARGUMENT, NOT_FOUND (op), RESOURCE_EXHAUSTED. */
TF_ImportGraphDefResults *TF_GraphImportGraphDefWithResults(TF_Graph *graph,
                                                            const TF_Buffer *graph_def,
                                                            const TF_ImportGraphDefOptions *options,
                                                            TF_Status *status);
/* num_return_outputs must be the number that the options ask for. */
void TF_GraphImportGraphDefWithReturnOutputs(TF_Graph *graph, const TF_Buffer *graph_def,
                                             const TF_ImportGraphDefOptions *options,
                                             TF_Output *return_outputs, int num_return_outputs,
                                             TF_Status *status);
void TF_GraphImportGraphDef(TF_Graph *graph, const TF_Buffer *graph_def,
                            const TF_ImportGraphDefOptions *options, TF_Status *status);

#ifdef __cplusplus
}
#endif
#endif
