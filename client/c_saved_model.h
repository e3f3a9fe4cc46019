/* Loads a SavedModel [OSDI 4.3]: the graph of one of its MetaGraphs, and the values of its
 * variables. Any thread; the call locks the graph. */
#ifndef MILLRACE_CLIENT_C_SAVED_MODEL_H
#define MILLRACE_CLIENT_C_SAVED_MODEL_H

#include "client/c_session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads `export_dir`/saved_model.pb, adds the graph of the MetaGraph that has exactly these tags,
 * and returns a session in which the variables have their saved values and the model's own
 * initialisation has run. `meta_graph_def`, unless NULL, must be empty, and receives the serialized
 * MetaGraphDef, with the signatures. `run_options` is a serialized RunOptions, or NULL.
 *
 * The client reads the model; the servers read `export_dir`/variables and `export_dir`/assets under
 * the same path, which must be visible to them. Errors: NOT_FOUND: no model, or no such tags;
 * INVALID_ARGUMENT: the file is malformed; UNIMPLEMENTED: the model is a text (saved_model.pbtxt);
 * and those of imports and steps. After an error NULL is returned, and the graph may have been
 * added to. */
TF_Session *TF_LoadSessionFromSavedModel(const TF_SessionOptions *session_options,
                                         const TF_Buffer *run_options, const char *export_dir,
                                         const char *const *tags, int tags_len, TF_Graph *graph,
                                         TF_Buffer *meta_graph_def, TF_Status *status);

#ifdef __cplusplus
}
#endif
#endif
