/* The argument of the kernel of fused programs, as the host fills it and the kernel reads it.
 *
 * A program is run by an interpreter. Each thread takes FUSED_ELEMENTS elements at a time through
 * all steps. Values are in slots of the thread. A step loads an input into a slot, stores a slot to
 * an output, or computes a slot from up to three others. All threads run the same steps, so a warp
 * never diverges at them. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_FUSED_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_FUSED_ARGS_H

#include "kernels/cuda/ops/division.h"

/* A program that needs more of anything runs instruction by instruction. Together these fill the
 * argument of one launch (GPU_MAX_ARGS_BYTES). */
enum {
    FUSED_ELEMENTS = 4,
    FUSED_MAX_SLOTS = 16,
    FUSED_MAX_STEPS = 128,
    FUSED_MAX_INPUTS = 24,
    FUSED_MAX_OUTPUTS = 16,
    FUSED_MAX_RANK = 6, /* merged dimensions */
};

enum fused_step_kind {
    /* slot `to` = input a */
    FUSED_LOAD_1,
    FUSED_LOAD_2,
    FUSED_LOAD_4,
    FUSED_LOAD_8, /* by the size of an element */
    /* output `to` = slot a */
    FUSED_STORE_1,
    FUSED_STORE_2,
    FUSED_STORE_4,
    FUSED_STORE_8,
/* slot `to` = name(slot a, slot b, slot c) */
#define FUSED_INSTRUCTION(name) FUSED_##name,
#include "kernels/cuda/ops/fused_instructions.inc"
#undef FUSED_INSTRUCTION
    FUSED_N_KINDS
};

struct fused_step {
    uint16_t kind;
    uint8_t to, a, b, c;
    uint16_t cut_bits; /* of Cast (elementwise_args) */
    double alpha;      /* the number of the op (elementwise_args) */
};

struct fused_args {
    int64_t n; /* elements of the outputs */
    int32_t n_steps;
    int32_t rank;       /* merged dimensions of the outputs, unless all inputs are flat or single */
    uint32_t is_inline; /* bit k: in[k] is the value of the one element of input k */
    uint32_t is_single; /* bit k: in[k] is the address of the one element of input k */
    uint32_t is_flat;   /* bit k: element i of input k belongs to element i of the outputs */
    uint64_t in[FUSED_MAX_INPUTS];
    uint64_t out[FUSED_MAX_OUTPUTS];
    struct gpu_divisor dims[FUSED_MAX_RANK];
    int64_t strides[FUSED_MAX_INPUTS][FUSED_MAX_RANK];
    struct fused_step steps[FUSED_MAX_STEPS]; /* the first n_steps run */
};

#endif
