/* Fused programs (common/graph/fused.h) on a GPU: one launch of an interpreter (fused.cu) in place
 * of a launch for each node.
 *
 *   fused_kernels.c   the row: init makes a kernel instance for each instruction; compute plans and
 *                     launches, or else runs the instructions by their own kernels
 *   fused_plan.c      the shapes of all values, and the stages: the outputs of one shape are stored
 *                     by one launch
 *   fused_steps.c     the steps of one stage
 *   fused_source.c    the steps as a kernel that is compiled at run time, which takes the
 *                     interpreter's place once it is ready
 *
 * A value that a stage needs and that is not in memory is computed by the stage, on the elements of
 * its outputs: a value of a smaller shape once for each element of theirs.
 *
 * Values are numbered as in common/graph/fused.h: first the node's inputs, then the
 * instructions. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_FUSED_H
#define MILLRACE_KERNELS_CUDA_OPS_FUSED_H

#include "common/base/arena.h"
#include "common/graph/fused.h"
#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/ops/fused_args.h"
#include "kernels/support/block_engine.h"

struct status *gpu_fused_init(struct kernel_init *init) MUST_USE;
void gpu_fused_fini(void *state);
kernel_fn gpu_fused_compute;

/* The instruction of an elementwise kernel, by the kernel's name; -1: there is none. */
int gpu_fused_kind(const char *kernel_name);

/* ---- what init prepares ---- */

struct gpu_fused_instruction {
    struct kernel_instance kernel;
    const int *operands; /* n_operands values */
    /* by operand: does nobody read its value afterwards, the node's outputs included? */
    const bool *is_last_use;
    int n_operands;
    enum block_shapes shapes; /* BLOCK_NEVER: no step computes it */
    int kind;                 /* enum fused_step_kind; of AddN, an addition */
    bool is_sum;              /* AddN */
    int widen, narrow;        /* of AddN: the casts of operands and result, or -1 */
    double alpha;
    int cut_bits;
    size_t size; /* of an element of the result */
    int output;  /* the first output of the node that is the result, or -1 */
};

struct gpu_fused_state {
    struct fused_program program;
    struct gpu_fused_instruction *instructions; /* in the arena of the program's graph */
    int n_inputs, n_instructions, n_outputs;
    bool can_be_steps; /* no instruction is BLOCK_NEVER */
    /* The nodes of the program, for a message about a launch: "{{node a}}, {{node b}}". In the
     * arena of the program's graph. */
    const char *nodes;
    const struct gpu_function *function;
};

/* ---- one execution ---- */

/* A value of this execution. */
struct gpu_fused_value {
    struct shape shape; /* in the run's arena */
    int64_t n_elements;
    size_t size;   /* of an element */
    uint64_t data; /* the address on the device of what is in memory, or the inline element */
    bool is_inline;
    /* of an output: the stage that stores it; of an input -1, so that it is before all stages; else
     * INT_MAX */
    int stage;
    int last_stage; /* of an input: the last stage that reads it */
};

struct gpu_fused_run {
    struct kernel_ctx *ctx;
    const struct gpu_fused_state *state;
    struct arena arena;
    struct gpu_fused_value *values;
    int *stages;                          /* by stage: a value with its shape */
    const struct gpu_function **compiled; /* by stage; NULL: the interpreter runs it */
    int n_stages;
};

/* The values and stages of an execution. False: the instructions have to run one by one. */
bool gpu_fused_plan(struct gpu_fused_run *run) MUST_USE;
/* Marks the values that a stage reads or computes. */
void gpu_fused_mark_needed(const struct gpu_fused_run *run, int stage, bool *is_needed);

/* Which input of the launch each value is, and what reads it first. */
struct gpu_fused_reads {
    int *input;      /* by value: a number below FUSED_MAX_INPUTS, or -1 */
    int *first_read; /* by value: an instruction; INT_MAX: none reads it */
};
/* Makes the steps of a stage, without addresses. False: there are too many. */
bool gpu_fused_make_steps(struct gpu_fused_run *run, int stage, struct fused_args *ret_args,
                          struct gpu_fused_reads *ret_reads) MUST_USE;

/* The kernel that was compiled for the steps, or NULL while there is none. Addresses and sizes do
 * not matter. */
const struct gpu_function *gpu_fused_compiled(struct kernel_ctx *ctx,
                                              const struct fused_args *args);
struct status *gpu_fused_launch_compiled(struct kernel_ctx *ctx,
                                         const struct gpu_function *function,
                                         const struct fused_args *args, const char *nodes) MUST_USE;

#endif
