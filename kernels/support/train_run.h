/* What one step of an optimizer works on. The loops of the CPU and of devices share it; it is plain
 * C, which kernels in CUDA read, too. */
#ifndef MILLRACE_KERNELS_SUPPORT_TRAIN_RUN_H
#define MILLRACE_KERNELS_SUPPORT_TRAIN_RUN_H

#include <stdbool.h>
#include <stdint.h>

enum { TRAIN_MAX_SLOTS = 4, TRAIN_MAX_SCALARS = 6 };

enum train_rule {
    RULE_GRADIENT_DESCENT,
    RULE_PROXIMAL_GRADIENT_DESCENT,
    RULE_MOMENTUM,
    RULE_KERAS_MOMENTUM,
    RULE_ADAGRAD,
    RULE_ADAGRAD_V2,
    RULE_ADAGRAD_DA,
    RULE_ADAGRAD_DA_SPARSE,
    RULE_PROXIMAL_ADAGRAD,
    RULE_ADADELTA,
    RULE_RMSPROP,
    RULE_CENTERED_RMSPROP,
    RULE_ADAM,
    RULE_ADAM_AMSGRAD,
    RULE_ADAMAX,
    RULE_FTRL,
    RULE_FTRL_V2,
    RULE_ADD_SIGN,
    RULE_POWER_SIGN,
    N_TRAIN_RULES,
};

/* What a rule sees: the elements of each slot before and after (the same memory when updated in
 * place), the gradient, and the scalars, all of one dtype. `flag` is the optimizer's switch:
 * use_nesterov, update_slots or multiply_linear_by_lr. */
struct train_run {
    const void *in[TRAIN_MAX_SLOTS];
    void *out[TRAIN_MAX_SLOTS];
    const void *grad;
    const void *scalars[TRAIN_MAX_SCALARS];
    int64_t global_step;
    bool flag;
};

#endif
