/* Variables: state on the tasks of a cluster, with initial values. Each is a VarHandleOp, whose
 * shared name is its name, and an AssignVariableOp. A builder owns its variables.
 *
 * Initial values are TensorFlow's: the same seeds give the same values as the initializers of
 * tf.compat.v1. One thread at a time per builder. */
#ifndef MILLRACE_CLIENT_TRAINING_VARIABLE_H
#define MILLRACE_CLIENT_TRAINING_VARIABLE_H

#include "client/training/builder.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MR_Variable MR_Variable;

typedef struct MR_Initializer {
    int kind; /* set by the functions below */
    double a, b;
    int64_t seed;
} MR_Initializer;

MR_Initializer MR_Zeros(void);
MR_Initializer MR_Ones(void);
MR_Initializer MR_Fill(double value);
MR_Initializer MR_RandomUniform(double low, double high, int64_t seed);
MR_Initializer MR_RandomNormal(double mean, double stddev, int64_t seed);
/* Values beyond two standard deviations are drawn again. */
MR_Initializer MR_TruncatedNormal(double mean, double stddev, int64_t seed);
/* Uniform in ±sqrt(6 / (fan in + fan out)) [Glorot and Bengio 2010]. The last two sizes of the
 * shape, times all others, are the fans. */
MR_Initializer MR_GlorotUniform(int64_t seed);

/* Adds a variable on the device of the builder. It is trainable. All sizes must be known. Errors:
 * INVALID_ARGUMENT for a name that is taken, an unknown size, or an initializer that has no values
 * of the dtype. */
MR_Variable *MR_NewVariable(MR_Builder *builder, const char *name, TF_DataType dtype,
                            const int64_t *dims, int num_dims, MR_Initializer init);
/* Adds the int64 scalar "global_step", which counts from 0 and is not trainable. */
MR_Variable *MR_NewGlobalStep(MR_Builder *builder);

/* Only trainable variables get gradients when no variables are named. */
void MR_SetTrainable(MR_Variable *variable, unsigned char is_trainable);
/* Adds a read, on the variable's device. */
TF_Output MR_Read(MR_Builder *builder, const MR_Variable *variable);
/* Adds an AssignVariableOp. */
TF_Operation *MR_Assign(MR_Builder *builder, const MR_Variable *variable, TF_Output value);
TF_Output MR_VariableHandle(const MR_Variable *variable);
TF_Operation *MR_VariableInitializer(const MR_Variable *variable);
const char *MR_VariableName(const MR_Variable *variable);
TF_DataType MR_VariableType(const MR_Variable *variable);
/* Returns the rank and copies up to max_dims sizes. */
int MR_VariableShape(const MR_Variable *variable, int64_t *dims, int max_dims);
/* The variable of this name, also a slot of an optimizer; NULL when there is none. */
MR_Variable *MR_FindVariable(const MR_Builder *builder, const char *name);
/* Adds an operation that initializes all variables there are so far. */
TF_Operation *MR_InitializeAll(MR_Builder *builder);

/* ---- partitioned variables [WP 2, OSDI 4.2] ---- */

/* Adds num_parts variables NAME/part_0, NAME/part_1, … that share the rows of one: each has an
 * equal share of dims[0], and the first ones one row more where it does not divide. Part i is on
 * devices[i], or on the builder's device where `devices` is NULL; its seed is the initializer's
 * plus i. The fans of MR_GlorotUniform are those of the whole. A saver writes the parts as slices
 * of one tensor. Sets `parts`. */
void MR_NewPartitionedVariable(MR_Builder *builder, const char *name, TF_DataType dtype,
                               const int64_t *dims, int num_dims, MR_Initializer init,
                               const char *const *devices, int num_parts, MR_Variable **parts);
/* Looks up rows of a variable in num_parts parts, in which row ids are consecutive (TensorFlow's
 * strategy "div"). `ids` are int32 or int64 of any shape; the result has their shape, and then that
 * of a row. Each part gathers its rows on its own device, and the gradient of a part has only these
 * rows. */
TF_Output MR_EmbeddingLookup(MR_Builder *builder, MR_Variable *const *parts, int num_parts,
                             TF_Output ids);

#ifdef __cplusplus
}
#endif
#endif
