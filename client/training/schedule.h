/* Learning rates that depend on the step. Each adds operations and returns a scalar of the given
 * dtype, float or double; the formulas are those of tf.compat.v1.train. `step` is a scalar of any
 * integer type, as MR_Read of the global step. One thread at a time per builder. */
#ifndef MILLRACE_CLIENT_TRAINING_SCHEDULE_H
#define MILLRACE_CLIENT_TRAINING_SCHEDULE_H

#include "client/training/builder.h"

#ifdef __cplusplus
extern "C" {
#endif

/* rate · decay^(step / steps); with is_staircase the exponent is rounded down. */
TF_Output MR_ExponentialDecay(MR_Builder *builder, TF_DataType dtype, TF_Output step, double rate,
                              double steps, double decay, unsigned char is_staircase);
/* values[i] while step ≤ boundaries[i], and at last values[num_boundaries]. Boundaries ascend. */
TF_Output MR_PiecewiseConstant(MR_Builder *builder, TF_DataType dtype, TF_Output step,
                               const int64_t *boundaries, const double *values, int num_boundaries);
/* (rate - end) · (1 - min(step, steps) / steps)^power + end */
TF_Output MR_PolynomialDecay(MR_Builder *builder, TF_DataType dtype, TF_Output step, double rate,
                             double steps, double end, double power);
/* rate · ((1 - alpha) · (1 + cos(π min(step, steps) / steps)) / 2 + alpha)
 * [Loshchilov and Hutter 2017] */
TF_Output MR_CosineDecay(MR_Builder *builder, TF_DataType dtype, TF_Output step, double rate,
                         double steps, double alpha);

#ifdef __cplusplus
}
#endif
#endif
