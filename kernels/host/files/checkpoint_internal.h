/* What the kernels of checkpoints share. */
#ifndef MILLRACE_KERNELS_HOST_FILES_CHECKPOINT_INTERNAL_H
#define MILLRACE_KERNELS_HOST_FILES_CHECKPOINT_INTERNAL_H

#include "kernels/kernel.h"

/* ---- checkpoint_v1.c: RestoreV2 reads the older format as well ---- */

/* All outputs from the V1 files that match the pattern in input 0, by the names in input 1, and
 * the specs in input 2 if there is one. */
struct status *checkpoint_v1_restore(struct kernel_ctx *ctx) MUST_USE;

#endif
