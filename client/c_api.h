/* The C client library: the functions of TensorFlow's C API that a client of a remote master needs,
 * without TensorFlow. This is the one header that a program includes.
 *
 * A session speaks TensorFlow's client protocol (gRPC) to a Millrace master or to TensorFlow's own
 * server. A function with the name of one in TensorFlow's tensorflow/c/c_api.h has the same
 * meaning; those with MR_ are our own. docs/c-api.md lists all of them.
 *
 * Ownership: what a TF_New… or TF_Allocate… returns is freed by its TF_Delete…, which accepts NULL.
 * Each call with a TF_Status sets it (TF_OK on success).
 *
 * Threads: each of the headers below says what several threads may do. */
#ifndef MILLRACE_CLIENT_C_API_H
#define MILLRACE_CLIENT_C_API_H

#include "client/c_buffer.h"
#include "client/c_function.h"
#include "client/c_gradients.h"
#include "client/c_graph.h"
#include "client/c_import.h"
#include "client/c_run_async.h"
#include "client/c_saved_model.h"
#include "client/c_session.h"
#include "client/c_status.h"
#include "client/c_tensor.h"
#include "client/c_while.h"

#endif
