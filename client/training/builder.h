/* MR_Builder: adds operations to a graph in a short notation, for programs that build models by
 * hand. Everything it adds is an ordinary operation, made with TF_NewOperation.
 *
 *   MR_Builder *b = MR_NewBuilder(graph);
 *   TF_Output x = MR_Placeholder(b, "x", TF_FLOAT, MR_DIMS(-1, 64));
 *   TF_Output y = MR_Binary(b, "MatMul", x, w);
 *   TF_Output p = MR_Op(b, "MaxPool", "ksize=[1,2,2,1], strides=[1,2,2,1], padding=\"SAME\"",
 *                       MR_INPUTS(y));
 *   if (TF_GetCode(MR_BuilderStatus(b)) != TF_OK) …
 *
 * The status is sticky: the builder keeps the first error, which names the function and the
 * culprit. After it, every function adds nothing and returns an output without an operation, so
 * that a program checks once, at the end.
 *
 * A builder owns what the functions of this folder make with it: variables, optimizers, savers.
 * Delete it before its graph. One thread at a time. */
#ifndef MILLRACE_CLIENT_TRAINING_BUILDER_H
#define MILLRACE_CLIENT_TRAINING_BUILDER_H

#include "client/c_graph.h"
#include "client/c_session.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Two arguments each: an array and its length. C99. MR_DIMS needs at least one size; the shape of a
 * scalar is NULL, 0. */
#define MR_DIMS(...)                  \
    ((const int64_t[]){__VA_ARGS__}), \
        (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define MR_INPUTS(...)                  \
    ((const TF_Output[]){__VA_ARGS__}), \
        (int)(sizeof((const TF_Output[]){__VA_ARGS__}) / sizeof(TF_Output))

typedef struct MR_Builder MR_Builder;
MR_Builder *MR_NewBuilder(TF_Graph *graph);
void MR_DeleteBuilder(MR_Builder *builder);
/* TF_OK, or the first error. It lives as long as the builder. */
const TF_Status *MR_BuilderStatus(const MR_Builder *builder);
TF_Graph *MR_BuilderGraph(const MR_Builder *builder);

/* ---- what holds for the operations that follow ---- */

/* "/job:worker/task:0"; NULL or "" is no request. */
void MR_SetDevice(MR_Builder *builder, const char *device);
/* Names begin with "PREFIX/"; NULL or "" is none. */
void MR_SetPrefix(MR_Builder *builder, const char *prefix);
/* The operations that follow wait for these. With n_controls 0 they wait for nothing. */
void MR_SetControls(MR_Builder *builder, TF_Operation *const *controls, int num_controls);
/* The first of the two seeds of random operations; the second is the argument of an initializer.
 * It is TensorFlow's graph seed, and has the same default, 87654321. Both count modulo 2^31 - 1, as
 * there. */
void MR_SetSeed(MR_Builder *builder, int64_t seed);

/* ---- operations ---- */

/* Adds an operation and returns its output 0, which for an op without outputs is still the
 * operation. It is named after its op; a number makes the name unique.
 *
 * `attrs` are written as in `tf-master --dump-graph`, and NULL is none:
 *   "transpose_b=true, strides=[1,1], padding=\"SAME\", dtype=float, value=float[2]{1, 2}".
 * Attrs that follow from inputs, or have defaults, need not be written.
 *
 * Inputs are listed one after the other. An argument that stands for several tensors takes what the
 * others leave. Errors: INVALID_ARGUMENT for an unknown op or attr, a wrong number or dtype of
 * inputs, contradicting shapes. */
TF_Output MR_Op(MR_Builder *builder, const char *op_type, const char *attrs,
                const TF_Output *inputs, int num_inputs);
TF_Output MR_Unary(MR_Builder *builder, const char *op_type, TF_Output x);
TF_Output MR_Binary(MR_Builder *builder, const char *op_type, TF_Output x, TF_Output y);

/* A dimension of -1 may be of any size. num_dims -1: the rank is unknown. The name is kept as it
 * is, below the prefix; NULL is a free name after the op, also for MR_Group. */
TF_Output MR_Placeholder(MR_Builder *builder, const char *name, TF_DataType dtype,
                         const int64_t *dims, int num_dims);
/* `value` stays the caller's. */
TF_Output MR_Constant(MR_Builder *builder, TF_Tensor *value);
/* A number of any integer or real dtype, or a bool. Errors: INVALID_ARGUMENT where the dtype cannot
 * hold the number. */
TF_Output MR_Scalar(MR_Builder *builder, TF_DataType dtype, double value);
TF_Output MR_String(MR_Builder *builder, const char *text); /* a scalar */
/* An int32 vector; values beyond int32 are INVALID_ARGUMENT. */
TF_Output MR_Ints(MR_Builder *builder, const int64_t *values, int num_values);
/* Converts to a dtype; returns x itself where it has that dtype. */
TF_Output MR_Cast(MR_Builder *builder, TF_Output x, TF_DataType dtype);
/* An operation that has run when all of these have; entries that are NULL are left out. */
TF_Operation *MR_Group(MR_Builder *builder, const char *name, TF_Operation *const *opers,
                       int num_opers);

/* ---- sessions ---- */

/* A session without options. `target` as for TF_SetTarget; NULL is $MILLRACE_TARGET. The caller
 * frees it with TF_DeleteSession. */
TF_Session *MR_NewSession(TF_Graph *graph, const char *target, TF_Status *status);
/* A step that only runs an operation, as an initializer. */
void MR_RunOperation(TF_Session *session, const TF_Operation *oper, TF_Status *status);

#ifdef __cplusplus
}
#endif
#endif
