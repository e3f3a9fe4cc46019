/* MR_Lbfgs: minimizes a loss of few variables and all data by limited-memory BFGS [OSDI 4.1;
 * Nocedal 1980], built of variables and arithmetic alone.
 *
 * The last `history` changes of the variables and of the gradient stand for the second derivatives.
 * A step finds a direction from them, and halves its length until the loss has fallen enough
 * (Armijo's rule). So the loss must not change between steps: feed the same data, and draw nothing
 * at random.
 *
 * All vectors are on the device of the builder. A builder owns what is made here; one thread at a
 * time. */
#ifndef MILLRACE_CLIENT_TRAINING_LBFGS_H
#define MILLRACE_CLIENT_TRAINING_LBFGS_H

#include "client/training/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct MR_Lbfgs MR_Lbfgs;

/* Adds the operations for these variables; num_variables -1 means all trainable ones. `loss` is a
 * scalar, and the variables have its dtype, float or double. usual: history 10. Memory: 2 · history
 * + 3 copies of the variables. MR_InitializeAll must follow. */
MR_Lbfgs *MR_NewLbfgs(MR_Builder *builder, TF_Output loss, MR_Variable *const *variables,
                      int num_variables, int history);
/* Makes one step, in three or more calls of TF_SessionRun, and returns the loss after it. Inputs
 * are those that the loss needs. Where no length makes the loss fall, nothing changes, and the
 * result is the loss before: the minimum is as near as the dtype allows. */
double MR_LbfgsStep(MR_Lbfgs *lbfgs, TF_Session *session, const TF_Output *inputs,
                    TF_Tensor *const *input_values, int ninputs, TF_Status *status);

#ifdef __cplusplus
}
#endif
#endif
