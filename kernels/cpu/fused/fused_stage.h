/* What a stage of a fused program is, for the files that build it (fused_stage.c) and run it
 * (fused_run.c). */
#ifndef MILLRACE_KERNELS_CPU_FUSED_FUSED_STAGE_H
#define MILLRACE_KERNELS_CPU_FUSED_FUSED_STAGE_H

#include "kernels/cpu/fused/fused_internal.h"
#include "kernels/support/broadcast.h"

enum {
    BLOCK_BYTES = 8192,  /* of the widest value; several blocks fit the first-level cache */
    STACK_BYTES = 65536, /* of all buffers of a thread */
    FEW_STRETCHES = 4,
    LONG_ROW = 64, /* elements; copies of shorter ones cost less than a call for each row */
};

/* Where a block of a value is. */
struct place {
    char *base;  /* element 0 of the stage; NULL: in a buffer */
    size_t step; /* bytes from element to element; 0: one element stands for all */
    int buffer;
};

/* An operand that is stretched to the shape of the stage. */
struct stretch {
    struct broadcast plan; /* of the result and the operand */
    int value;
    int buffer;   /* for a copy in the order of the result; -1: no step needs one */
    bool repeats; /* each block has the same elements */
};

/* One instruction, or a run of several whose code is there. */
struct step {
    const struct fused_instruction *instruction;
    const struct emit_code *code; /* of a run; or NULL */
    struct place *places;         /* of operands, and then of results */
    int n_operands, n_results;
    unsigned ones;
    const struct stretch *rows; /* of operand `row_operand`: run row by row; or NULL */
    int row_operand;
};

struct fused_stage {
    struct fused_run *run;
    int class_of;
    int64_t n_elements, block; /* elements */
    size_t buffer_bytes;       /* of one buffer */
    struct step *steps;
    struct stretch **stretches;
    struct stretch *few; /* the first ones, on the stack because they are large */
    int n_steps, n_stretches;
    int n_buffers;
    size_t widest;
    double cost_ns;
    _Atomic unsigned bad;
};

/* fused_stage.c: finds the steps, buffers and copies of a stage whose class and `few` are set. */
void fused_stage_build(struct fused_stage *stage);

#endif
