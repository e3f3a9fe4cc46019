/* Lets static inference (common/ops/infer.h) compute small constants with the CPU's kernels. Any
 * thread. */
#ifndef MILLRACE_KERNELS_INFER_EVAL_H
#define MILLRACE_KERNELS_INFER_EVAL_H

#include "common/ops/infer.h"

/* infer_options_default, with values computed by kernels. */
void infer_options_with_kernels(struct infer_options *options);

#endif
