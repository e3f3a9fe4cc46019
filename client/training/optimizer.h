/* Optimizers [WP 4.1, OSDI 4.1]: update variables by gradients, with operations of the servers
 * (ResourceApply…). Steps, slots and their names are those of tf.compat.v1.train, so that either
 * can restore a checkpoint of the other.
 *
 *   MR_Optimizer *adam = MR_NewAdam(b, MR_Scalar(b, TF_FLOAT, 1e-3), 0.9, 0.999, 1e-8);
 *   TF_Operation *train = MR_Minimize(b, adam, loss, step);
 *
 * A learning rate is a scalar output, a constant or a schedule (schedule.h). One optimizer serves
 * any number of losses, which then share its slots. Slots are variables on the device of theirs;
 * they exist when MR_ApplyGradients has returned, and MR_InitializeAll must follow.
 *
 * A builder owns its optimizers. One thread at a time per builder. */
#ifndef MILLRACE_CLIENT_TRAINING_OPTIMIZER_H
#define MILLRACE_CLIENT_TRAINING_OPTIMIZER_H

#include "client/training/variable.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MR_Optimizer MR_Optimizer;
/* variable -= rate · gradient */
MR_Optimizer *MR_NewGradientDescent(MR_Builder *builder, TF_Output rate);
/* [Polyak 1964; Sutskever et al. 2013 with use_nesterov] */
MR_Optimizer *MR_NewMomentum(MR_Builder *builder, TF_Output rate, double momentum,
                             unsigned char use_nesterov);
/* [Duchi et al. 2011]; usual: initial 0.1 */
MR_Optimizer *MR_NewAdagrad(MR_Builder *builder, TF_Output rate, double initial);
/* [Zeiler 2012]; usual: rho 0.95, epsilon 1e-8 */
MR_Optimizer *MR_NewAdadelta(MR_Builder *builder, TF_Output rate, double rho, double epsilon);
/* [Hinton 2012; Graves 2013 with is_centered]; usual: decay 0.9, momentum 0, epsilon 1e-10 */
MR_Optimizer *MR_NewRmsProp(MR_Builder *builder, TF_Output rate, double decay, double momentum,
                            double epsilon, unsigned char is_centered);
/* [Kingma and Ba 2015]; usual: 0.9, 0.999, 1e-8 */
MR_Optimizer *MR_NewAdam(MR_Builder *builder, TF_Output rate, double beta1, double beta2,
                         double epsilon);

/* The gradient of a variable: dense, or rows with their numbers. */
typedef struct MR_Gradient {
    MR_Variable *variable;
    TF_Output values;  /* oper NULL: no gradient flows */
    TF_Output indices; /* oper NULL: dense. Else int32 or int64 [n], and `values` has n rows */
} MR_Gradient;

/* Adds the gradients of the sum of `loss` by each variable; num_variables -1 means all trainable
 * ones. Sets up to max_gradients entries, and returns how many variables there are. A variable that
 * the loss reaches only by ResourceGather, as of MR_EmbeddingLookup, has a gradient of rows.
 * Errors: those of TF_AddGradients. */
int MR_Gradients(MR_Builder *builder, TF_Output loss, MR_Variable *const *variables,
                 int num_variables, MR_Gradient *gradients, int max_gradients);
/* Replaces each gradient by gradient · clip / max(norm, clip), where norm is the square root of the
 * sum of squares of all of them, and returns the norm [Pascanu et al. 2013]. */
TF_Output MR_ClipByGlobalNorm(MR_Builder *builder, MR_Gradient *gradients, int num_gradients,
                              double clip);
/* Adds a step of the optimizer, which then increments global_step (may be NULL). Rows of a number
 * that occurs several times are added up first. Errors: INVALID_ARGUMENT when no variable has a
 * gradient. */
TF_Operation *MR_ApplyGradients(MR_Builder *builder, MR_Optimizer *optimizer,
                                const MR_Gradient *gradients, int num_gradients,
                                MR_Variable *global_step);
/* MR_Gradients for all trainable variables, and MR_ApplyGradients. */
TF_Operation *MR_Minimize(MR_Builder *builder, MR_Optimizer *optimizer, TF_Output loss,
                          MR_Variable *global_step);
/* A slot of a variable, from 0 on in the order in which TensorFlow makes them; NULL when there is
 * none (yet). */
MR_Variable *MR_Slot(const MR_Optimizer *optimizer, const MR_Variable *variable, int slot);

#ifdef __cplusplus
}
#endif
#endif
