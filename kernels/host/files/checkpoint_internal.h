/* Declares what the kernels of both checkpoint formats share. */
#ifndef MILLRACE_KERNELS_HOST_FILES_CHECKPOINT_INTERNAL_H
#define MILLRACE_KERNELS_HOST_FILES_CHECKPOINT_INTERNAL_H

#include "kernels/kernel.h"

/* ---- checkpoint_v1.c: RestoreV2 reads the older format, too ---- */

/* Sets all outputs from the V1 files that match the pattern in input 0, by the names in input 1
 * and, if there is an input 2, its slice specs. */
struct status *checkpoint_v1_restore(struct kernel_ctx *ctx) MUST_USE;

#endif
