/* The rules of the optimizers. Each rule updates a run of elements; training_rules.inc has them
 * once for all dtypes. */
#ifndef MILLRACE_KERNELS_CPU_STATE_TRAINING_INTERNAL_H
#define MILLRACE_KERNELS_CPU_STATE_TRAINING_INTERNAL_H

#include "common/tensor/dtype.h"
#include "kernels/support/train_run.h"

/* Updates elements [begin, end). */
typedef void train_fn(const struct train_run *run, int64_t begin, int64_t end);

/* By rule; NULL where the rule has no meaning for the dtype. */
extern train_fn *const train_rules_half[N_TRAIN_RULES],
    *const train_rules_bfloat16[N_TRAIN_RULES],
        *const train_rules_float[N_TRAIN_RULES],
            *const train_rules_double[N_TRAIN_RULES],
                *const train_rules_complex64[N_TRAIN_RULES],
                    *const train_rules_complex128[N_TRAIN_RULES];

#endif
