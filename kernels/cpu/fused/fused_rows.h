/* Plans of fused programs with reductions over the last dimensions. For fused_rows*.c.
 *
 * An execution is a list of passes. Most passes are over the rows of one shape, the shape of what
 * is reduced, a few rows at a time, so that a cache has all that is between:
 *
 *   m = Max(x)   d = Sub(x, m)   e = Exp(d)   s = Sum(e)   y = RealDiv(e, s)
 *
 *   pass over the rows of x
 *     phase 0   reduce x to m
 *     phase 1   d, e, reduce e to s
 *     phase 2   y
 *
 * A step of a phase computes the elements of a value, or one value for each row (a reduction, or
 * what is computed from such values). A row that fits a block is computed from the first phase to
 * the last. A longer one goes through each phase piece by piece; what a later phase takes then has
 * a buffer for the whole row. Where the kernel of a reduction cuts rows into chunks, and merges
 * these at the end, a unit of the pass is a chunk, and what takes the result is in a later pass.
 *
 * Any other reduction is a pass of its own, by its own kernel.
 *
 * A plan depends on the shapes of the inputs, the axes and the number of threads. It has no
 * addresses, so it is made once and kept with the node. */
#ifndef MILLRACE_KERNELS_CPU_FUSED_FUSED_ROWS_H
#define MILLRACE_KERNELS_CPU_FUSED_FUSED_ROWS_H

#include "kernels/cpu/fused/fused_internal.h"
#include "kernels/cpu/math/math_rows.h"
#include "kernels/support/broadcast.h"

enum {
    ROWS_BLOCK_BYTES = 8192,  /* of the widest value in a buffer */
    ROWS_BLOCK_LEAST = 2048,  /* elements; a shorter row is not cut into pieces */
    ROWS_WHOLE_BYTES = 65536, /* the most of a row in a buffer of its own */
    /* For rows of fewer elements, a value for each row is spread to a block, which costs less than
     * a call for each row. */
    ROWS_SPREAD_BELOW = 64,
    ROWS_ALIGN = 64,
};

/* Which elements of an operand a step takes. */
enum rows_place {
    ROWS_SAME,   /* those at its own places */
    ROWS_ONE,    /* the only one */
    ROWS_OF_ROW, /* one for each row */
    ROWS_COLUMN, /* as many as a row has, the same for each row */
    ROWS_COPIED, /* a copy has them in the order of the result */
};

/* Where a value is: in memory, or in a buffer of the thread. */
enum rows_home {
    ROWS_IN_MEMORY,
    ROWS_IN_BLOCK, /* of the elements that are computed at a time */
    ROWS_IN_ROW,   /* of a whole row, of which there is one at a time */
    ROWS_IN_VALUES /* one for each row of a block */
};

struct rows_operand {
    enum rows_place place;
    enum rows_home home;
    int value;
    size_t size;
    size_t offset;      /* of the buffer, in the thread's memory */
    int64_t row_step;   /* bytes from row to row */
    int64_t piece_step; /* bytes from element to element of a row that is cut into pieces */
    bool is_spread;     /* copied to `spread`, as often as a row has elements */
    size_t spread;
};

enum rows_role { ROWS_ELEMENTS, ROWS_VALUES, ROWS_REDUCTION };

/* An instruction, or a run of several whose code is there. */
struct rows_step {
    enum rows_role role;
    const struct fused_instruction *instruction;
    const struct emit_code *code;  /* of a run; or NULL */
    struct rows_operand *operands; /* a reduction has one */
    struct rows_operand *results;  /* behind the operands */
    int n_operands, n_results;
    unsigned ones;
    bool by_rows; /* the engine or the code is called for each row */
    double ns_per_element;
    int phase;
    int number; /* of a reduction in its pass */
};

/* An operand that is copied in the order of the result, before the steps of a phase. */
struct rows_copy {
    int value;
    size_t size, offset;
    const struct broadcast *plan;
    bool repeats; /* all blocks of rows have the same elements */
    int phase;
};

struct rows_pass {
    int kernel; /* an instruction that its own kernel runs; -1: none, the rest is about rows */
    int class_of;
    struct math_rows rows;
    int64_t block_rows;      /* 0: rows are longer than blocks */
    int64_t piece;           /* elements of a longer row that are computed at a time */
    struct rows_step *steps; /* in the order of the phases */
    int n_steps, n_phases, n_reductions;
    int *first_of_phase; /* n_phases + 1 */
    struct rows_copy *copies;
    int n_copies;
    size_t buffer_bytes; /* of a thread */
    double unit_ns;
};

/* Memory that an execution needs for the result of an instruction. */
struct rows_result {
    int instruction;
    struct shape shape;
    const int *inputs; /* whose memory it may take over */
    int n_inputs;
};

struct rows_plan {
    struct arena arena;
    /* what it is for */
    struct shape *shapes; /* by input */
    int64_t **axes;       /* by input; NULL where the input has no axes */
    int n_threads;
    /* NULL: the instructions have to run one by one */
    struct rows_pass *passes;
    int n_passes;
    struct rows_result *results; /* but for those that kernels make */
    int n_results;
};

/* ---- planning: shared by fused_rows_plan.c and the files behind it ---- */

/* What is found out about an instruction. */
struct rows_member {
    int pass; /* -1: not known yet */
    enum rows_role role;
    int phase;      /* in which it runs */
    int ready;      /* the first phase that can take its value */
    bool in_memory; /* an output, or taken by another pass */
    int at;         /* its place in the order of execution */
    int step;       /* in its pass */
};

struct rows_planner {
    struct rows_plan *plan;
    struct fused_run run; /* classes and values; no data */
    const struct fused_state *state;
    struct rows_member *members; /* by instruction */
    int n_left;
};

/* fused_rows_plan.c: a plan for these inputs. */
struct rows_plan *rows_plan_new(struct kernel_ctx *ctx);
void rows_plan_free(struct rows_plan *plan);
/* Which elements of an operand does a pass over the shape `of` take? */
enum rows_place rows_place_of(const struct rows_planner *p, const struct rows_pass *pass,
                              int value);
/* fused_rows_build.c: makes the steps, and finds buffers and memory. All members are known. */
void rows_plan_build(struct rows_planner *p);
/* fused_rows_memory.c: before there are steps, the values that another pass takes; and at the end
 * all results in memory, with the inputs whose memory they may take over. */
void rows_plan_find_memory(struct rows_planner *p);
void rows_plan_list_results(struct rows_planner *p);

#endif
